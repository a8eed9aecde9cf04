/* Sends every message back to where it came from, in an epoll loop: echo ADDRESS:PORT COUNT [BACKEND [SEND-BACKEND]]
 *
 * Ends after COUNT answers. Payloads are sent from where they were received. With LISTEN_FDS it serves the socket that
 * systemd passed (sd_listen_fds(3)), and ADDRESS:PORT is ignored.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <linerate/udp.h>

#define BATCH 64

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return fail("usage", "echo ADDRESS:PORT COUNT [BACKEND [SEND-BACKEND]]");
    struct linerate_receive_options options = {
        .bind = argv[1],
        .backend = argc > 3 ? argv[3] : NULL,
        .send_backend = argc > 4 ? argv[4] : NULL,
    };
    struct linerate_socket *server;
    char why[512];
    int passed = getenv("LISTEN_FDS") ? 3 : -1;
    if (linerate_socket_open(&options, passed, &server, why, sizeof why) != LINERATE_RECEIVE_STATUS_OK)
        return fail("linerate_socket_open", why);
    struct linerate_receiver *receiver = linerate_socket_receiver(server);
    struct linerate_transmitter *transmitter = linerate_socket_transmitter(server);

    /* Edge-triggered: take batches until none is left. */
    int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, linerate_socket_fd(server), &event) != 0)
        return fail("epoll", "cannot watch the socket");
    struct linerate_sockaddr bound;
    linerate_receiver_address(receiver, &bound);
    printf("port %d by %s\n", bound.bytes[2] << 8 | bound.bytes[3], linerate_receiver_backend(receiver));
    fflush(stdout);

    long left = atol(argv[2]);
    while (left > 0) {
        static struct linerate_message messages[BATCH];
        static struct linerate_transmit answers[BATCH];
        size_t count, sent;
        enum linerate_receive_status status =
            linerate_socket_receive(server, 0, messages, BATCH, &count);
        if (status == LINERATE_RECEIVE_STATUS_TIMEOUT) {
            if (epoll_wait(loop, &event, 1, -1) < 0 && errno != EINTR)
                return fail("epoll_wait", "it failed");
            continue;
        }
        if (status != LINERATE_RECEIVE_STATUS_OK)
            return fail("linerate_socket_receive", linerate_receiver_error(receiver));
        for (size_t at = 0; at < count; at++)
            linerate_message_reply(&messages[at], &answers[at]);
        for (size_t at = 0; at < count; at += sent) {
            /* Without room the socket has some again at once; a server with more to do polls. */
            status = linerate_socket_send(server, answers + at, count - at, &sent);
            if (status != LINERATE_RECEIVE_STATUS_OK && status != LINERATE_RECEIVE_STATUS_TIMEOUT)
                return fail("linerate_socket_send", linerate_transmitter_error(transmitter));
        }
        left -= (long)count;
    }
    struct linerate_send_statistics statistics;
    linerate_transmitter_statistics(transmitter, &statistics);
    printf("%llu answered, %llu refused\n", (unsigned long long)statistics.messages,
           (unsigned long long)statistics.refused);
    linerate_socket_close(server);
    return EXIT_SUCCESS;
}
