/* Everything that a program can tell of its UDP sockets, printed: the same with and without the library. Each case has
 * sockets of its own on 127.0.0.1 or ::1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call) ((call) < 0 ? (perror(#call), exit(1), -1) : 0)

static int receiver, sender;
static struct sockaddr_storage address;
static socklen_t address_length;
static unsigned next_number;

static int udp(int family, int flags) {
    int fd = socket(family, SOCK_DGRAM | flags, 0);
    CHECK(fd);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(fd, family == AF_INET ? (void *)&four : (void *)&six, family == AF_INET ? sizeof four : sizeof six));
    return fd;
}

static void open_pair(int family, int flags) {
    receiver = udp(family, flags);
    sender = udp(family, 0);
    address_length = sizeof address;
    CHECK(getsockname(receiver, (void *)&address, &address_length));
    next_number = 0;
}

static void close_pair(void) {
    close(receiver);
    close(sender);
}

/* Sends messages with numbers; message n has 4 + n % 50 bytes. */
static void burst(int count) {
    for (int index = 0; index < count; index++) {
        unsigned char bytes[64];
        memset(bytes, next_number, sizeof bytes);
        memcpy(bytes, &next_number, 4);
        CHECK(sendto(sender, bytes, 4 + next_number % 50, 0, (void *)&address, address_length));
        next_number++;
    }
}

static void show(const char *what, ssize_t result, const void *bytes) {
    int error = errno;
    unsigned number = 0;
    if (result >= 4) memcpy(&number, bytes, 4);
    printf("%s %zd", what, result);
    if (result < 0) printf(" %s", strerrorname_np(error));
    else if (result >= 4) printf(" number %u last %u", number, ((unsigned char *)bytes)[result - 1]);
    printf("\n");
}

static ssize_t show_recv(int flags) {
    unsigned char bytes[128];
    ssize_t result = recv(receiver, bytes, sizeof bytes, flags);
    show("recv", result, bytes);
    return result;
}

/* So that messages are read ahead: many reads, and a burst that is read with two left. */
static void warm(void) {
    burst(40);
    for (int index = 0; index < 40; index++) show_recv(0);
    burst(20);
    for (int index = 0; index < 4; index++) show_recv(0);
}

static void drain(void) {
    while (show_recv(MSG_DONTWAIT) >= 0) {}
}

static void show_message(struct msghdr *message, ssize_t result) {
    show("recvmsg", result, message->msg_iov[0].iov_base);
    if (result < 0) return;
    printf(" flags %x name %u control %zu\n", message->msg_flags, message->msg_namelen, message->msg_controllen);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one; one = CMSG_NXTHDR(message, one)) {
        printf(" level %d type %d length %zu", one->cmsg_level, one->cmsg_type, (size_t)one->cmsg_len);
        /* Times differ from run to run. */
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type == SO_RXQ_OVFL)
            for (size_t index = 0; CMSG_LEN(index) < one->cmsg_len; index++) printf(" %02x", CMSG_DATA(one)[index]);
        printf("\n");
    }
}

static void show_recvmsg(size_t room, size_t control_room, int flags) {
    static unsigned char bytes[70000], control[512];
    struct sockaddr_storage from;
    memset(&from, 0, sizeof from);
    struct iovec vectors[3] = {{bytes, room / 2}, {bytes + room / 2, room - room / 2}, {NULL, 0}};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = vectors, .msg_iovlen = 3,
                             .msg_control = control, .msg_controllen = control_room};
    ssize_t result = recvmsg(receiver, &message, flags);
    show_message(&message, result);
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    getsockname(sender, (void *)&own, &length);
    if (result >= 0)
        printf(" from %s\n", memcmp(&own, &from, 8) == 0 && length == message.msg_namelen ? "sender" : "another");
}

static void case_order(void) {
    warm();
    drain();
}

static void case_names(void) {
    warm();
    for (int index = 0; index < 6; index++) {
        unsigned char bytes[128];
        struct sockaddr_storage from;
        memset(&from, 0, sizeof from);
        socklen_t length = index % 3 == 0 ? 4 : index % 3 == 1 ? sizeof from : 16;
        ssize_t result = recvfrom(receiver, bytes, sizeof bytes, 0, (void *)&from, &length);
        show("recvfrom", result, bytes);
        printf(" name %u family %d\n", length, from.ss_family);
    }
    unsigned char bytes[128];
    show("without a name", recvfrom(receiver, bytes, sizeof bytes, 0, NULL, NULL), bytes);
    drain();
}

static void case_sizes(void) {
    warm();
    unsigned char bytes[128];
    show("peek", recv(receiver, bytes, sizeof bytes, MSG_PEEK), bytes);
    show("peek 2", recv(receiver, bytes, 2, MSG_PEEK), bytes);
    show("peek 2 trunc", recv(receiver, bytes, 2, MSG_PEEK | MSG_TRUNC), bytes);
    show("trunc", recv(receiver, bytes, 2, MSG_TRUNC), bytes);
    show("cut", recv(receiver, bytes, 3, 0), bytes);
    show("nothing", recv(receiver, bytes, 0, 0), bytes);
    show("read nothing", read(receiver, bytes, 0), bytes);
    show("read", read(receiver, bytes, sizeof bytes), bytes);
    show("waitall", recv(receiver, bytes, sizeof bytes, MSG_WAITALL), bytes);
    struct iovec vectors[2] = {{bytes, 3}, {bytes + 3, 100}};
    show("readv", readv(receiver, vectors, 2), bytes);
    show_recvmsg(3, 0, 0);
    show_recvmsg(3, 0, MSG_TRUNC);
    show_recvmsg(100, 100, MSG_CMSG_CLOEXEC);
    drain();
    /* Empty messages, and the largest. */
    static unsigned char large[65507];
    memset(large, 7, sizeof large);
    for (int round = 0; round < 40; round++) {
        unsigned length = round % 3 == 0 ? 0 : round % 3 == 1 ? 65507 : 1472;
        CHECK(sendto(sender, large, length, 0, (void *)&address, address_length));
        if (round % 4 == 3)
            for (int index = 0; index < 4; index++) {
                static unsigned char room[70000];
                ssize_t result = recv(receiver, room, sizeof room, 0);
                printf("large %zd %d\n", result, result > 0 ? room[result - 1] : 0);
            }
    }
}

static void case_several(void) {
    warm();
    for (int round = 0; round < 4; round++) {
        struct mmsghdr headers[5];
        struct iovec vectors[5];
        static unsigned char bytes[5][64];
        memset(headers, 0, sizeof headers);
        for (int index = 0; index < 5; index++) {
            vectors[index] = (struct iovec){bytes[index], 64};
            headers[index].msg_hdr.msg_iov = &vectors[index];
            headers[index].msg_hdr.msg_iovlen = 1;
        }
        int flags = round == 0 ? 0 : round == 1 ? MSG_DONTWAIT : round == 2 ? MSG_WAITFORONE : MSG_PEEK | MSG_DONTWAIT;
        int count = recvmmsg(receiver, headers, round == 3 ? 2 : 5, flags, NULL);
        printf("recvmmsg %d\n", count);
        for (int index = 0; index < count; index++) show("one", headers[index].msg_len, bytes[index]);
    }
    drain();
    struct mmsghdr one = {0};
    printf("recvmmsg %d", recvmmsg(receiver, &one, 1, MSG_DONTWAIT, NULL));
    printf(" %s\n", strerrorname_np(errno));
}

static void options_of(int family) {
    int on = 1;
    if (family == AF_INET) {
        setsockopt(receiver, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
        setsockopt(receiver, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
        setsockopt(receiver, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
        int tos = 0x48;
        setsockopt(sender, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
    } else {
        setsockopt(receiver, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
        setsockopt(receiver, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on);
        setsockopt(receiver, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on);
    }
    setsockopt(receiver, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt(receiver, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
}

static void control_of(int family) {
    options_of(family);
    warm();
    /* Room for all, for a part of each one, for none. */
    for (size_t room = 0; room < 200; room += 12) {
        burst(1);
        show_recvmsg(100, room, 0);
    }
    show_recvmsg(100, 512, MSG_PEEK);
    while (recv(receiver, &(char){0}, 1, MSG_DONTWAIT) >= 0) {}
    show_recvmsg(100, 512, MSG_DONTWAIT);
}

static void case_control(void) { control_of(AF_INET); }
static void case_control_six(void) { control_of(AF_INET6); }

static void case_stamps(void) {
    int on = 1;
    setsockopt(receiver, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
    struct timespec begin, end;
    clock_gettime(CLOCK_REALTIME, &begin);
    warm();
    struct timespec before = {0, 0};
    for (int index = 0; index < 12; index++) {
        char bytes[64], control[64];
        struct iovec vector = {bytes, sizeof bytes};
        struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 64};
        recvmsg(receiver, &message, 0);
        clock_gettime(CLOCK_REALTIME, &end);
        struct timeval *stamp = (void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
        int later = stamp->tv_sec > begin.tv_sec || (stamp->tv_sec == begin.tv_sec && stamp->tv_usec * 1000 >= begin.tv_nsec - 1000);
        int early = stamp->tv_sec < end.tv_sec || (stamp->tv_sec == end.tv_sec && stamp->tv_usec * 1000 <= end.tv_nsec);
        int ordered = stamp->tv_sec > before.tv_sec || (stamp->tv_sec == before.tv_sec && stamp->tv_usec >= before.tv_nsec);
        before = (struct timespec){stamp->tv_sec, stamp->tv_usec};
        printf("stamp %d %d %d\n", later, early, ordered);
    }
    drain();
}

static void case_poll(void) {
    warm();
    for (int index = 0; index < 18; index++) {
        struct pollfd fds[3] = {{receiver, POLLIN | (index % 2 ? POLLOUT : 0), 0}, {sender, POLLIN, 0}, {-1, POLLIN, 0}};
        struct timespec second = {0, 20000000};
        sigset_t mask;
        sigemptyset(&mask);
        int count = index % 3 ? poll(fds, 3, 20) : ppoll(fds, 3, &second, &mask);
        printf("poll %d %x %x %x\n", count, fds[0].revents, fds[1].revents, fds[2].revents);
        if (count > 0 && fds[0].revents & POLLIN) show_recv(0);
    }
    struct pollfd only = {receiver, POLLRDNORM, 0};
    printf("poll %d\n", poll(&only, 1, 0));
}

static void case_select(void) {
    warm();
    for (int index = 0; index < 18; index++) {
        fd_set readable, writable, except;
        FD_ZERO(&readable);
        FD_ZERO(&writable);
        FD_ZERO(&except);
        FD_SET(receiver, &readable);
        FD_SET(sender, &readable);
        FD_SET(receiver, &except);
        if (index % 2) FD_SET(sender, &writable);
        struct timeval time = {0, 20000};
        struct timespec second = {0, 20000000};
        int end = (receiver > sender ? receiver : sender) + 1;
        int count = index % 3 ? select(end, &readable, &writable, &except, &time)
                              : pselect(end, &readable, index % 2 ? &writable : NULL, NULL, &second, NULL);
        printf("select %d %d %d %d\n", count, !!FD_ISSET(receiver, &readable), !!FD_ISSET(sender, &readable),
               !!FD_ISSET(sender, &writable));
        if (FD_ISSET(receiver, &readable)) show_recv(0);
    }
}

static void epoll_of(uint32_t flags, int until_empty) {
    int epoll = epoll_create1(0), pipes[2];
    CHECK(pipe(pipes));
    struct epoll_event event = {.events = EPOLLIN | flags, .data.u64 = 0x1234567890};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, receiver, &event));
    struct epoll_event other = {.events = EPOLLIN, .data.u64 = 77};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &other));
    burst(40);
    for (int index = 0; index < 40; index++) show_recv(0);
    drain();
    for (int round = 0; round < 6; round++) {
        burst(9);
        if (round == 3) CHECK(write(pipes[1], "x", 1));
        for (int turn = 0; turn < 12; turn++) {
            struct epoll_event events[8];
            struct timespec time = {0, 1000000};
            int count = turn % 3 == 0   ? epoll_wait(epoll, events, 8, 1)
                        : turn % 3 == 1 ? epoll_pwait(epoll, events, round == 4 ? 2 : 8, 1, NULL)
                                        : epoll_pwait2(epoll, events, 8, &time, NULL);
            int found = 0, piped = 0;
            for (int index = 0; index < count; index++) {
                if (events[index].data.u64 == 77) piped = events[index].events;
                else if (events[index].data.u64 == event.data.u64) found = events[index].events;
                else printf("another\n");
            }
            /* An edge more than the kernel's is none that a program may not get: only those that it reads by. */
            if (!until_empty) printf("epoll %d %x %x\n", count, found, piped);
            if (piped) CHECK(read(pipes[0], &(char){0}, 1));
            if (!found) continue;
            if (until_empty) drain();
            else show_recv(0);
        }
        if (round == 1) {
            event.data.u64 = 0x55;
            CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, receiver, &event));
        }
        if (round == 2) {
            CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, receiver, NULL));
            burst(3);
            printf("removed %d\n", epoll_wait(epoll, &other, 1, 0));
            drain();
            CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, receiver, &event));
        }
    }
    drain();
    close(epoll);
    close(pipes[0]);
    close(pipes[1]);
}

static void case_epoll(void) { epoll_of(0, 0); }
static void case_epoll_edge(void) { epoll_of(EPOLLET, 1); }

/* An edge-triggered program that reads as many messages as there were at the edge, and then waits for the next edge. */
static void case_epoll_edge_budget(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, receiver, &event));
    warm();
    drain();
    for (int index = 0; index < 40; index++) {
        if (index == 0) burst(4);
        printf("edge %d\n", epoll_wait(epoll, &event, 1, 1000));
        burst(6);
        for (int turn = 0; turn < 6; turn++) show_recv(MSG_DONTWAIT);
    }
    close(epoll);
}

/* What an edge-triggered program must see that reads one message for each edge, when the next has come meanwhile. */
static void case_epoll_edge_each(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, receiver, &event));
    burst(40);
    for (int index = 0; index < 40; index++) show_recv(0);
    drain();
    burst(1);
    for (int index = 0; index < 200; index++) {
        burst(1);
        CHECK(epoll_wait(epoll, &event, 1, 1000) - 1);
        show_recv(MSG_DONTWAIT);
    }
    close(epoll);
}

static void case_epoll_once(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, receiver, &event));
    warm();
    for (int index = 0; index < 8; index++) {
        struct epoll_event got;
        printf("epoll %d", epoll_wait(epoll, &got, 1, 0));
        printf(" %d\n", epoll_wait(epoll, &got, 1, 0));
        show_recv(0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, receiver, &event));
    }
    close(epoll);
}

static void case_epoll_nested(void) {
    int inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, receiver, &event));
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
    warm();
    for (int index = 0; index < 18; index++) {
        struct pollfd one = {inner, POLLIN, 0};
        printf("nested %d", poll(&one, 1, 0));
        printf(" %d\n", epoll_wait(outer, &event, 1, 0));
        show_recv(MSG_DONTWAIT);
    }
    close(inner);
    close(outer);
}

/* The socket joins an epoll that is in another one already, or that has a second descriptor; and one that holds messages. */
static void case_epoll_nested_before(void) {
    for (int way = 0; way < 3; way++) {
        int inner = epoll_create1(0), outer = epoll_create1(0), again = dup(inner);
        struct epoll_event event = {.events = EPOLLIN};
        if (way != 1) CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
        if (way == 2) warm();
        CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, receiver, &event));
        if (way != 2) warm();
        for (int index = 0; index < (way == 2 ? 10 : 18); index++) {
            printf("nested %d", way == 1 ? epoll_wait(again, &event, 1, 0) : epoll_wait(outer, &event, 1, 0));
            printf(" %d %x\n", epoll_wait(inner, &event, 1, 0), event.events);
            show_recv(MSG_DONTWAIT);
        }
        drain();
        close(inner);
        close(outer);
        close(again);
        close_pair();
        open_pair(AF_INET, 0);
    }
}

static void case_epoll_polled(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, receiver, &event));
    warm();
    for (int index = 0; index < 18; index++) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(epoll, &set);
        struct timeval none = {0, 0};
        printf("polled %d\n", select(epoll + 1, &set, NULL, NULL, &none));
        show_recv(MSG_DONTWAIT);
    }
    close(epoll);
}

static void case_ioctl(void) {
    warm();
    for (int index = 0; index < 18; index++) {
        int length = -1, queued = -1;
        int result = ioctl(receiver, FIONREAD, &length);
        ioctl(receiver, TIOCOUTQ, &queued);
        printf("next %d %d %d\n", result, length, queued);
        show_recv(MSG_DONTWAIT);
    }
    int on = 1;
    CHECK(ioctl(receiver, FIONBIO, &on));
    show_recv(0);
    CHECK(fcntl(receiver, F_SETFL, 0));
    struct timeval time = {0, 10000};
    CHECK(setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    show_recv(0);
    burst(20);
    show_recv(0);
    CHECK(fcntl(receiver, F_SETFL, O_NONBLOCK));
    drain();
    show_recv(0);
}

/* An error of ICMP, before and after messages. */
static void case_errors(void) {
    int on = 1, error = -1;
    socklen_t length = sizeof error;
    struct sockaddr_storage from;
    socklen_t from_length = sizeof from;
    CHECK(getsockname(sender, (void *)&from, &from_length));
    CHECK(connect(receiver, (void *)&from, from_length));
    warm();
    drain();
    close(sender);
    CHECK(send(receiver, "x", 1, 0));
    show_recv(MSG_DONTWAIT);
    show_recv(MSG_DONTWAIT);
    CHECK(send(receiver, "x", 1, 0));
    CHECK(getsockopt(receiver, SOL_SOCKET, SO_ERROR, &error, &length));
    printf("error %d\n", error);
    CHECK(setsockopt(receiver, IPPROTO_IP, IP_RECVERR, &on, sizeof on));
    CHECK(send(receiver, "x", 1, 0));
    struct pollfd one = {receiver, POLLIN, 0};
    printf("poll %d %x\n", poll(&one, 1, 10), one.revents);
    show_recvmsg(100, 512, MSG_ERRQUEUE);
    show_recvmsg(100, 512, MSG_ERRQUEUE);
    show_recv(MSG_DONTWAIT);
    show_recv(MSG_DONTWAIT);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK(connect(receiver, &none, sizeof none));
    sender = udp(AF_INET, 0);
    burst(3);
    drain();
}

static void case_unknown_option(void) {
    int on = 1;
    warm();
    CHECK(setsockopt(receiver, IPPROTO_IP, IP_RECVOPTS, &on, sizeof on));
    burst(20);
    drain();
    warm();
    drain();
}

static void case_shutdown(void) {
    CHECK(connect(receiver, (void *)&address, address_length));
    CHECK(connect(receiver, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)));
    struct sockaddr_storage from;
    socklen_t from_length = sizeof from;
    CHECK(getsockname(sender, (void *)&from, &from_length));
    CHECK(connect(receiver, (void *)&from, from_length));
    CHECK(getsockname(receiver, (void *)&address, &address_length));
    warm();
    CHECK(shutdown(receiver, SHUT_RD));
    for (int index = 0; index < 20; index++) show_recv(MSG_DONTWAIT);
    struct pollfd one = {receiver, POLLIN | POLLRDHUP, 0};
    printf("poll %d %x\n", poll(&one, 1, 0), one.revents);
}

static void case_dup(void) {
    warm();
    int again = dup(receiver), first = receiver;
    for (int index = 0; index < 6; index++) {
        receiver = index % 2 ? first : again;
        show_recv(0);
    }
    close(first);
    receiver = again;
    show_recv(0);
    int other = fcntl(receiver, F_DUPFD, 100), third = dup2(receiver, 90);
    printf("dup %d %d\n", other, third);
    close(receiver);
    receiver = other;
    show_recv(0);
    receiver = third;
    burst(20);
    drain();
    close(other);
    show_recv(MSG_DONTWAIT);
}

/* Messages of a closed socket must not come out of the next one of its number. */
static void case_close(void) {
    warm();
    int number = receiver;
    close(receiver);
    close(sender);
    open_pair(AF_INET, 0);
    printf("same %d\n", number == receiver);
    show_recv(MSG_DONTWAIT);
    warm();
    int file = open("/dev/null", O_RDONLY);
    CHECK(dup2(file, receiver));
    char byte;
    show("read", read(receiver, &byte, 1), &byte);
    close(file);
    close_pair();
    open_pair(AF_INET, 0);
    warm();
    CHECK(close_range(receiver, receiver, 0));
    int pipes[2];
    CHECK(pipe(pipes));
    struct pollfd one = {receiver, POLLIN, 0};
    printf("poll %d %x\n", poll(&one, 1, 0), one.revents);
    close(pipes[0]);
    close(pipes[1]);
}

/* Parent and child take the messages of one queue in turns. */
static void case_fork(void) {
    int there[2], back[2];
    CHECK(pipe(there));
    CHECK(pipe(back));
    warm();
    fflush(stdout);
    pid_t child = fork();
    int *mine = child ? there : back, *other = child ? back : there;
    char turn = 'x';
    for (int index = 0; index < 6; index++) {
        if (!child || index > 0) CHECK(read(other[0], &turn, 1));
        printf("%s ", child ? "parent" : "child");
        show_recv(MSG_DONTWAIT);
        if (child) burst(4);
        fflush(stdout);
        CHECK(write(mine[1], &turn, 1));
    }
    if (!child) _exit(0);
    waitpid(child, NULL, 0);
    drain();
    burst(40);
    drain();
    for (int index = 0; index < 2; index++) {
        close(there[index]);
        close(back[index]);
    }
}

/* A child is killed while it reads, wherever it is; its parent reads on. */
static void case_killed(void) {
    warm();
    drain();
    for (int round = 0; round < 60; round++) {
        close_pair();
        open_pair(AF_INET, 0);
        pid_t child = fork();
        if (child == 0) {
            for (;;) {
                burst(6);
                for (int index = 0; index < 6; index++) recv(receiver, &(int){0}, 4, MSG_DONTWAIT);
            }
        }
        usleep(1000 + round * 37);
        kill(child, SIGKILL);
        /* In every second round it stays a zombie. */
        siginfo_t info;
        CHECK(waitid(P_PID, child, &info, WEXITED | (round % 2 ? 0 : WNOWAIT)));
        while (recv(receiver, &(int){0}, 4, MSG_DONTWAIT) >= 0) {}
        burst(3);
        drain();
        if (round % 2 == 0) waitpid(child, NULL, 0);
    }
}

/* The parent of a daemon ends; the child reads. */
static void case_daemon(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child) {
        waitpid(child, NULL, 0);
        return;
    }
    burst(20);
    for (int index = 0; index < 20; index++) show_recv(0);
    warm();
    drain();
    fflush(stdout);
    _exit(0);
}

static void *read_in_thread(void *unused) {
    static unsigned char bytes[64];
    (void)unused;
    return (void *)recv(receiver, bytes, sizeof bytes, 0);
}

static void *poll_in_thread(void *unused) {
    (void)unused;
    struct pollfd one = {receiver, POLLIN, 0};
    return (void *)(long)poll(&one, 1, 10000);
}

static int thread_epoll;
static void *epoll_in_thread(void *unused) {
    (void)unused;
    struct epoll_event event;
    return (void *)(long)epoll_wait(thread_epoll, &event, 1, 10000);
}

/* A thread that waits wakes up for the second message while the first one's thread does something else. */
static void case_threads(void) {
    void *(*ways[])(void *) = {read_in_thread, poll_in_thread, epoll_in_thread};
    thread_epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(thread_epoll, EPOLL_CTL_ADD, receiver, &event));
    warm();
    drain();
    for (int round = 0; round < 60; round++) {
        pthread_t thread;
        CHECK(-pthread_create(&thread, NULL, ways[round % 3], NULL));
        usleep(round % 2 ? 2000 : 0);
        burst(6);
        recv(receiver, &(char){0}, 1, 0);
        void *result;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 5;
        int error = pthread_timedjoin_np(thread, &result, &until);
        printf("thread %d %d\n", error, (long)result > 0);
        while (recv(receiver, &(char){0}, 1, MSG_DONTWAIT) >= 0) {}
    }
    close(thread_epoll);
}

/* A thread waits for an epoll before the socket is in it, and wakes up for messages that are there, or left there. */
static void case_joined(void) {
    for (int round = 0; round < 200; round++) {
        if (round < 2) warm();
        if (round < 2) drain();
        thread_epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN | (round % 3 == 0 ? EPOLLET : 0), .data.u64 = 5};
        int way = round % 2;
        if (way == 0) {
            burst(8);
            for (int index = 0; index < 3; index++) recv(receiver, &(char){0}, 1, 0);
        }
        /* So that the epoll is known before. */
        CHECK(epoll_ctl(thread_epoll, EPOLL_CTL_ADD, sender, &event));
        pthread_t thread;
        CHECK(-pthread_create(&thread, NULL, epoll_in_thread, NULL));
        usleep(2000);
        CHECK(epoll_ctl(thread_epoll, EPOLL_CTL_ADD, receiver, &event));
        if (way == 1) {
            burst(8);
            for (int index = 0; index < 3; index++) recv(receiver, &(char){0}, 1, 0);
        }
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 5;
        void *result;
        int error = pthread_timedjoin_np(thread, &result, &until);
        printf("joined %d %ld\n", error, (long)result);
        if (error) exit(1);
        int events = epoll_wait(thread_epoll, &event, 1, 0);
        if (round % 3) printf("again %d %x\n", events, event.events);
        while (recv(receiver, &(char){0}, 1, MSG_DONTWAIT) >= 0) {}
        close(thread_epoll);
        close_pair();
        open_pair(AF_INET, 0);
        warm();
        drain();
    }
}

/* A thread is cancelled in a read; the next read works. */
static void case_cancel(void) {
    warm();
    drain();
    pthread_t thread;
    void *result;
    CHECK(-pthread_create(&thread, NULL, read_in_thread, NULL));
    usleep(2000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    burst(20);
    drain();
}

static volatile int signals;
static void on_signal(int number) {
    char bytes[8];
    (void)number;
    signals++;
    /* recv(2) is one of the functions that a handler may call. */
    int error = errno;
    recv(sender, bytes, sizeof bytes, MSG_DONTWAIT);
    errno = error;
}

static void case_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 100}, {0, 100}}, stop = {{0, 0}, {0, 0}};
    unsigned lost = 0, expected = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int round = 0; round < 300; round++) {
        for (int index = 0; index < 30; index++) {
            while (sendto(sender, &expected, 4, 0, (void *)&address, address_length) < 0 && errno == EINTR) {}
            expected++;
        }
        for (int index = 0; index < 30; index++) {
            unsigned number = -1;
            struct pollfd one = {receiver, POLLIN, 0};
            while (poll(&one, 1, 1000) < 0 && errno == EINTR) {}
            while (recv(receiver, &number, 4, 0) < 0 && errno == EINTR) {}
            lost += number != expected - 30 + index;
        }
    }
    setitimer(ITIMER_REAL, &stop, NULL);
    printf("signals %d lost %u\n", signals > 0, lost);
    struct itimerval once = {{0, 0}, {0, 5000}};
    setitimer(ITIMER_REAL, &once, NULL);
    show_recv(0);
}

/* Another process passes the socket on, before it reads. */
static void case_rights(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    union { struct cmsghdr head; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    memset(&control, 0, sizeof control);
    char byte = 'x';
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &receiver, sizeof(int));
    CHECK(sendmsg(pair[0], &message, 0));
    message.msg_controllen = sizeof control;
    CHECK(recvmsg(pair[1], &message, 0));
    int first = receiver, passed;
    memcpy(&passed, CMSG_DATA(&control.head), sizeof(int));
    for (int index = 0; index < 4; index++) {
        burst(20);
        for (int turn = 0; turn < 20; turn++) {
            receiver = turn % 2 ? first : passed;
            show_recv(MSG_DONTWAIT);
        }
    }
    close(passed);
    receiver = first;
    close(pair[0]);
    close(pair[1]);
}

/* A child that another program becomes reads the socket after its parent. */
static void case_spawned(void) {
    burst(40);
    for (int index = 0; index < 40; index++) show_recv(0);
    drain();
    fflush(stdout);
    char number[16];
    snprintf(number, sizeof number, "%d", receiver);
    for (int way = 0; way < 3; way++) {
        burst(20);
        pid_t child;
        char *arguments[] = {"cases", "drain", number, NULL};
        if (way == 0) {
            CHECK(-posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ));
        } else if ((child = way == 1 ? vfork() : fork()) == 0) {
            if (way == 1) execl("/proc/self/exe", "cases", "drain", number, (char *)NULL);
            else execv("/proc/self/exe", arguments);
            _exit(127);
        }
        int status;
        waitpid(child, &status, 0);
        printf("status %d\n", WEXITSTATUS(status));
        fflush(stdout);
        burst(20);
        drain();
        fflush(stdout);
    }
}

static int read_in_clone(void *unused) {
    (void)unused;
    show_recv(MSG_DONTWAIT);
    close(receiver);
    char byte = 7;
    show("read", read(open("/dev/zero", O_RDONLY), &byte, 1), &byte);
    printf("zero %d\n", byte);
    fflush(stdout);
    return 0;
}

/* Descriptors that are closed, and processes that are made, by no function of the C library. */
static void case_unseen(void) {
    warm();
    drain();
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_close), "D"(receiver) : "rcx", "r11", "memory");
#else
    close(receiver);
#endif
    int file = open("/dev/zero", O_RDONLY);
    printf("same %d\n", file == receiver);
    for (int index = 0; index < 100; index++) {
        int number = 7;
        if (read(file, &number, 4) != 4 || number != 0) printf("read %d %s\n", number, strerrorname_np(errno));
    }
    close(file);
    close_pair();
    open_pair(AF_INET, 0);
    warm();
    fflush(stdout);
    static char stack[65536] __attribute__((aligned(16)));
    pid_t child = clone(read_in_clone, stack + sizeof stack, SIGCHLD, NULL);
    CHECK(child);
    waitpid(child, NULL, 0);
    drain();
}

/* A filter of system calls lets the program read as it does, and ends it for anything else. */
static void case_seccomp(void) {
    warm();
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvmmsg, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {.len = 4, .filter = code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0));
    drain();
    close_pair();
    open_pair(AF_INET, 0);
    warm();
    drain();
}

static sigjmp_buf back;
static void jump(int number) {
    (void)number;
    siglongjmp(back, 1);
}

/* A program that leaves its reads by siglongjmp, wherever they are. */
static void case_jump(void) {
    struct sigaction action = {.sa_handler = jump};
    sigaction(SIGALRM, &action, NULL);
    volatile unsigned jumps = 0, lost = 0;
    warm();
    drain();
    while (jumps < 300) {
        if (sigsetjmp(back, 1) == 0) {
            struct itimerval timer = {{0, 0}, {0, 40 + jumps % 60}};
            setitimer(ITIMER_REAL, &timer, NULL);
            for (;;) {
                for (int index = 0; index < 6; index++)
                    sendto(sender, "abcd", 4, 0, (void *)&address, address_length);
                for (int index = 0; index < 6; index++)
                    lost += recv(receiver, &(int){0}, 4, 0) != 4;
            }
        }
        jumps++;
    }
    printf("jumps %u wrong %u\n", jumps, lost);
}

/* A child by vfork(2) gives the socket, which is close-on-exec, to its next program under another number. */
static void case_vforked(void) {
    CHECK(fcntl(receiver, F_SETFD, FD_CLOEXEC));
    warm();
    drain();
    burst(20);
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        dup2(receiver, 90);
        execl("/proc/self/exe", "cases", "drain", "90", (char *)NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
    burst(20);
    drain();
}

/* The program itself becomes another one, with messages in its queue. */
static void case_executed(void) {
    warm();
    fflush(stdout);
    char number[16];
    snprintf(number, sizeof number, "%d", receiver);
    pid_t child = vfork();
    if (child == 0) {
        close(receiver);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("none %d\n", execlp("/nowhere/program", "cases", (char *)NULL));
    show_recv(MSG_DONTWAIT);
    fflush(stdout);
    execl("/proc/self/exe", "cases", "drain", number, (char *)NULL);
}

/* A child floods and stops the parent. What is not received is in the kernel's own count, and nothing else. */
static void case_flood(void) {
    enum { MESSAGES = 100000 };
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, receiver, &event));
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(receiver);
        for (next_number = 0; next_number < MESSAGES; next_number++) {
            CHECK(sendto(sender, &next_number, 4, 0, (void *)&address, address_length));
            if (next_number % 20000 == 5000) kill(parent, SIGSTOP);
            if (next_number % 20000 == 7000) kill(parent, SIGCONT);
            if (next_number % 64 == 0) usleep(50);
        }
        _exit(0);
    }
    unsigned received = 0, disorder = 0, last = -1, number;
    for (;;) {
        int count = epoll_wait(epoll, &event, 1, 1000);
        /* After SIGCONT it is interrupted (signal(7)). */
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        for (int index = 0; index < 3; index++) {
            if (recv(receiver, &number, 4, MSG_DONTWAIT) < 0) break;
            received++;
            disorder += last != (unsigned)-1 && number <= last;
            last = number;
        }
    }
    waitpid(child, NULL, 0);
    unsigned memory[9];
    socklen_t length = sizeof memory;
    CHECK(getsockopt(receiver, SOL_SOCKET, SO_MEMINFO, memory, &length));
    printf("neither received nor dropped %d, in disorder %u\n", MESSAGES - received - memory[8], disorder);
    close(epoll);
}

static const struct {
    const char *name;
    void (*run)(void);
    int family, flags;
} cases[] = {
    {"order", case_order, AF_INET, 0},
    {"nonblocking", case_order, AF_INET6, SOCK_NONBLOCK},
    {"names", case_names, AF_INET, 0},
    {"names-six", case_names, AF_INET6, 0},
    {"sizes", case_sizes, AF_INET, 0},
    {"several", case_several, AF_INET, 0},
    {"control", case_control, AF_INET, 0},
    {"control-six", case_control_six, AF_INET6, 0},
    {"stamps", case_stamps, AF_INET, 0},
    {"poll", case_poll, AF_INET, 0},
    {"select", case_select, AF_INET, 0},
    {"epoll", case_epoll, AF_INET, 0},
    {"epoll-edge", case_epoll_edge, AF_INET, SOCK_NONBLOCK},
    {"epoll-edge-each", case_epoll_edge_each, AF_INET, SOCK_NONBLOCK},
    {"epoll-edge-budget", case_epoll_edge_budget, AF_INET, SOCK_NONBLOCK},
    {"epoll-once", case_epoll_once, AF_INET, SOCK_NONBLOCK},
    {"epoll-nested", case_epoll_nested, AF_INET, 0},
    {"epoll-nested-before", case_epoll_nested_before, AF_INET, 0},
    {"epoll-polled", case_epoll_polled, AF_INET, 0},
    {"ioctl", case_ioctl, AF_INET, 0},
    {"errors", case_errors, AF_INET, 0},
    {"unknown-option", case_unknown_option, AF_INET, 0},
    {"shutdown", case_shutdown, AF_INET, 0},
    {"dup", case_dup, AF_INET, 0},
    {"close", case_close, AF_INET, 0},
    {"fork", case_fork, AF_INET, 0},
    {"killed", case_killed, AF_INET, 0},
    {"daemon", case_daemon, AF_INET, SOCK_NONBLOCK},
    {"threads", case_threads, AF_INET, 0},
    {"joined", case_joined, AF_INET, 0},
    {"cancel", case_cancel, AF_INET, 0},
    {"signals", case_signals, AF_INET, 0},
    {"rights", case_rights, AF_INET, 0},
    {"flood", case_flood, AF_INET, 0},
    {"unseen", case_unseen, AF_INET, 0},
    {"seccomp", case_seccomp, AF_INET, 0},
    {"jump", case_jump, AF_INET, 0},
    {"spawned", case_spawned, AF_INET, 0},
    {"vforked", case_vforked, AF_INET, 0},
    {"executed", case_executed, AF_INET, 0},
};

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "drain") == 0) {
        receiver = atoi(arguments[2]);
        drain();
        return 7;
    }
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++) {
        if (count < 2) printf("%s\n", cases[index].name);
        else if (strcmp(cases[index].name, arguments[1]) == 0) {
            open_pair(cases[index].family, cases[index].flags);
            cases[index].run();
            close_pair();
        }
    }
    return 0;
}
