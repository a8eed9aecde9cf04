/* Receives messages and prints each on a line: who sent it, how long it is, and the text in it.
 *
 *   receive ADDRESS:PORT COUNT [BACKEND]
 *
 * ends after COUNT messages, or when none has come for 20 seconds. Build it with
 *
 *   cc receive.c $(pkg-config --cflags --libs linerate-udp) -o receive
 */
#include <linerate/udp.h>

#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 64 };

static void print_address(const struct linerate_sockaddr *address)
{
    char text[INET6_ADDRSTRLEN];
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (address->len == sizeof v4) {
        memcpy(&v4, address->bytes, sizeof v4);
        printf("%s:%u", inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text), ntohs(v4.sin_port));
    } else {
        memcpy(&v6, address->bytes, sizeof v6);
        printf("[%s]:%u", inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text),
               ntohs(v6.sin6_port));
    }
}

int main(int argc, char **argv)
{
    struct linerate_receive_options options = {0};
    struct linerate_message messages[ROOM];
    struct linerate_sockaddr address;
    struct linerate_drops losses;
    linerate_receiver *receiver;
    linerate_receive_status status;
    struct pollfd readable;
    char why[512];
    size_t wanted, count;

    if (argc < 3) {
        fprintf(stderr, "receive ADDRESS:PORT COUNT [BACKEND]\n");
        return 2;
    }
    wanted = strtoul(argv[2], NULL, 10);
    options.bind = argv[1];
    options.backend = argc > 3 ? argv[3] : NULL;
    if (linerate_receiver_open(&options, &receiver, why, sizeof why)) {
        fprintf(stderr, "receive: %s\n", why);
        return 1;
    }
    linerate_receiver_address(receiver, &address);
    printf("receiving on ");
    print_address(&address);
    printf(" by %s\n", linerate_receiver_backend(receiver));
    fflush(stdout);

    readable.fd = linerate_receiver_fd(receiver);
    readable.events = POLLIN;
    while (wanted > 0) {
        status = linerate_receiver_receive(receiver, 0, messages, wanted < ROOM ? wanted : ROOM,
                                           &count);
        if (status == LINERATE_RECEIVE_STATUS_TIMEOUT) {
            if (poll(&readable, 1, 20000) == 0)
                break;
            continue;
        }
        if (status) {
            fprintf(stderr, "receive: %s\n", linerate_receiver_error(receiver));
            break;
        }
        for (size_t at = 0; at < count; at++) {
            print_address(&messages[at].source);
            printf(" %zu %.*s\n", messages[at].len, (int)messages[at].len,
                   (const char *)messages[at].payload);
        }
        wanted -= count;
    }
    if (linerate_receiver_drops(receiver, &losses) == LINERATE_RECEIVE_STATUS_OK)
        printf("%" PRIu64 " lost, %" PRIu64 " truncated\n",
               losses.socket_buffer + losses.ring + losses.checksum + losses.malformed,
               losses.truncated);
    linerate_receiver_close(receiver);
    return wanted > 0;
}
