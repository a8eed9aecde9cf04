#ifndef LINERATE_UDP_H
#define LINERATE_UDP_H

/* Made by cbindgen from crates/linerate-udp-c/src; do not edit. */

#include <stddef.h>
#include <stdint.h>

// Report each message's destination address and input interface.
#define LINERATE_RECEIVE_DESTINATION 1

// Report the traffic class of each message: DSCP and ECN.
#define LINERATE_RECEIVE_TRAFFIC_CLASS 2

// Report when each message arrived.
#define LINERATE_RECEIVE_TIMESTAMP 4

// Never sleep while waiting: the lowest latency, at the price of a core.
#define LINERATE_RECEIVE_SPIN 8

// Share the port with other receivers (SO_REUSEPORT): messages of one flow go to one of them.
#define LINERATE_RECEIVE_REUSEPORT 16

// Consent for xdp where `backend` is NULL or "auto": it is selected where it is available. Its messages bypass the
// network stack of the host.
#define LINERATE_RECEIVE_TAKE_OVER 32

// The status of a call. The numbers are stable; new ones may be added.
enum linerate_receive_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Done.
    LINERATE_RECEIVE_STATUS_OK = 0,
    // No message arrived before the timeout, or a signal arrived.
    LINERATE_RECEIVE_STATUS_TIMEOUT = 1,
    // A required pointer is NULL, or what it points to is invalid.
    LINERATE_RECEIVE_STATUS_INVALID_ARGUMENT = 2,
    // No interface of this host has the address.
    LINERATE_RECEIVE_STATUS_ADDRESS_NOT_AVAILABLE = 3,
    // Another socket has the port, or another XDP program the interface.
    LINERATE_RECEIVE_STATUS_ADDRESS_IN_USE = 4,
    // A capability is missing.
    LINERATE_RECEIVE_STATUS_PRIVILEGE = 5,
    // There is no such interface.
    LINERATE_RECEIVE_STATUS_NO_INTERFACE = 6,
    // A group cannot be joined or left.
    LINERATE_RECEIVE_STATUS_GROUP = 7,
    // The backend is unavailable.
    LINERATE_RECEIVE_STATUS_BACKEND_UNAVAILABLE = 8,
    // The kernel refused for another reason.
    LINERATE_RECEIVE_STATUS_SYSTEM = 10,
    // The interface was removed, or moved to another network namespace.
    LINERATE_RECEIVE_STATUS_INTERFACE_GONE = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum linerate_receive_status linerate_receive_status;
#else
typedef int32_t linerate_receive_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A receiver. For one thread at a time.
typedef struct linerate_receiver linerate_receiver;

// A socket that receives and sends, for servers. For one thread at a time.
typedef struct linerate_socket linerate_socket;

// Sends from the socket of a receiver. For one thread at a time, which may be another than the receiver's.
typedef struct linerate_transmitter linerate_transmitter;

// The options of a receiver. Zeroes are good defaults for all but `bind`.
typedef struct linerate_receive_options {
    // Address and port, as `10.0.0.2:7000`, `0.0.0.0:7000` or `[::]:7000` (IPv4 too). Port 0 lets the
    // kernel choose.
    const char *bind;
    // Interface that messages must arrive on; NULL for any.
    const char *interface;
    // "recvmmsg", "gro", "uring" or "xdp"; NULL or "auto" for the best available one that
    // leaves each packet to the host.
    const char *backend;
    // How transmitters and sockets send: "sendmmsg", "uring" or "xdp" (answers past the stack, with the backend xdp); NULL for
    // "sendmmsg".
    const char *send_backend;
    // Multicast groups to join, each as "239.1.1.1", "239.1.1.1@eth1", or "10.0.0.1,232.1.1.1@eth1" to
    // receive from one sender only.
    const char *const *groups;
    // How many groups.
    size_t group_count;
    // Messages that are taken from the kernel at once, at most; 0 for 256.
    size_t batch;
    // Bytes of the longest message; 0 for 2048. A longer one is cut, marked and counted.
    size_t message_size;
    // The receive buffer of the socket (SO_RCVBUF) in bytes; 0 for 8 MiB.
    size_t recv_buffer_size;
    // Microseconds for which the kernel polls the card in a wait; 0 for none.
    uint32_t busy_poll_us;
    // Calibration: milliseconds for which each backend is tried, to select the cheapest; 0 for none. What
    // arrives during calibration is not received.
    uint32_t calibrate_ms;
    // LINERATE_RECEIVE_DESTINATION and others, added.
    uint32_t flags;
} linerate_receive_options;

// An address and a port. `bytes` are laid out as struct sockaddr_in or sockaddr_in6 of this system, `len`
// of them in use, as bind() and sendto() take them.
typedef struct linerate_sockaddr {
    // The family, the port and the rest.
    uint8_t bytes[28];
    // Bytes in use: 16 for IPv4, 28 for IPv6.
    uint32_t len;
} linerate_sockaddr;

// A message, lent until the next call with the receiver.
typedef struct linerate_message {
    // The payload, at most as long as the receiver was opened for.
    const uint8_t *payload;
    // Bytes of payload.
    size_t len;
    // Who sent it.
    struct linerate_sockaddr source;
    // The destination address, if LINERATE_RECEIVE_DESTINATION was requested; otherwise that of the
    // receiver.
    struct linerate_sockaddr destination;
    // When it arrived, in nanoseconds since the Unix epoch; 0 if unknown.
    uint64_t timestamp;
    // Index of the interface that it arrived on; 0 if unknown.
    uint32_t interface_index;
    // DSCP in the upper six bits, ECN in the lower two; -1 if unknown.
    int16_t traffic_class;
    // 1 if it was longer than the receiver was opened for; `payload` is then its beginning.
    uint8_t truncated;
    // The Ethernet address that its frame came from, if it bypassed the stack (`xdp`); zeroes if unknown.
    uint8_t next_hop[6];
    // 1 if the destination is an IPv4 broadcast address, if LINERATE_RECEIVE_DESTINATION was requested.
    uint8_t broadcast;
} linerate_message;

// Messages lost since the receiver was opened, by cause.
typedef struct linerate_drops {
    // The socket's buffer was full. With gro a lower bound.
    uint64_t socket_buffer;
    // The rings of `xdp` were full.
    uint64_t ring;
    // A checksum was wrong.
    uint64_t checksum;
    // The lengths in the headers contradict each other; or a filter or an IPsec policy of the kernel rejected it.
    uint64_t malformed;
    // Not lost: delivered truncated, because longer than the message size.
    uint64_t truncated;
} linerate_drops;

// One datagram to send, or several of one size to one address.
typedef struct linerate_transmit {
    // The payload; that of a message that is lent, too.
    const uint8_t *payload;
    // Bytes of payload.
    size_t len;
    // Where it goes.
    struct linerate_sockaddr destination;
    // The address of this host that it comes from, whatever its port; `len` 0 for that of the socket.
    struct linerate_sockaddr source;
    // Index of the interface that it leaves by; 0 for that of the route.
    uint32_t interface_index;
    // Bytes of each datagram but the last, which may be shorter; 0 if all of the payload is one.
    uint32_t segment_size;
    // DSCP in the upper six bits, ECN in the lower two; -1 for that of the socket.
    int16_t traffic_class;
    // The Ethernet address of the next hop, for the transmit ring of `xdp`; zeroes if unknown.
    uint8_t next_hop[6];
} linerate_transmit;

// What a transmitter sent.
typedef struct linerate_send_statistics {
    // Messages that the kernel took, also by the transmit ring.
    uint64_t messages;
    // Of these, messages that bypassed the stack, through the transmit ring of `xdp`.
    uint64_t ring;
    // Bytes of their payload.
    uint64_t bytes;
    // Messages sent one by one, because the kernel did not segment them.
    uint64_t unsegmented;
    // Messages that the kernel refused.
    uint64_t refused;
    // System calls.
    uint64_t syscalls;
} linerate_send_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library that the program runs with, as "1.2.3". The string is never freed.
const char *linerate_udp_version(void);

// Opens a receiver and stores it at `receiver`. If that fails, NULL is stored, and the reason, truncated if
// necessary, is written to `why`, which has room for `size` bytes and may be NULL.
//
// The caller sees to it that:
// `options` points to options whose texts are NUL-terminated, `receiver` to a place for a pointer, and
// `why` is NULL or points to `size` bytes.
linerate_receive_status linerate_receiver_open(const struct linerate_receive_options *options,
                                               struct linerate_receiver **receiver,
                                               char *why,
                                               size_t size);

// Another receiver on the same socket, for another thread: each message goes to one of them. Not for xdp.
//
// The caller sees to it that:
// `receiver` is of linerate_receiver_open(), and `other` points to a place for a pointer.
linerate_receive_status linerate_receiver_clone(struct linerate_receiver *receiver,
                                                struct linerate_receiver **other);

// Closes a receiver; what it lent is gone.
//
// The caller sees to it that:
// `receiver` is NULL or of linerate_receiver_open() or linerate_receiver_clone(), and not used any more.
void linerate_receiver_close(struct linerate_receiver *receiver);

// Stores messages at `messages`, which has room for `room`, and their number at `count`: those that have
// arrived, at once if there are any, otherwise when there are. Waits for `timeout` nanoseconds: 0 not at
// all, a negative number for ever. LINERATE_RECEIVE_STATUS_TIMEOUT if none arrived. Messages without room
// are in the next call. Payloads are lent until the next call with the receiver, whichever it is.
//
// The caller sees to it that:
// `receiver` is of linerate_receiver_open(), `messages` points to `room` messages, and `count` to a number.
linerate_receive_status linerate_receiver_receive(struct linerate_receiver *receiver,
                                                  int64_t timeout,
                                                  struct linerate_message *messages,
                                                  size_t room,
                                                  size_t *count);

// The descriptor to poll: readable when there are messages. It is the receiver's to close; -1 for NULL.
//
// The caller sees to it that:
// `receiver` is NULL or of linerate_receiver_open().
int linerate_receiver_fd(struct linerate_receiver *receiver);

// The socket itself, or the companion of xdp, on which recvmsg() and setsockopt() work as ever; -1 for NULL.
//
// The caller sees to it that:
// `receiver` is NULL or of linerate_receiver_open().
int linerate_receiver_socket(struct linerate_receiver *receiver);

// Stores the address that the receiver is bound to.
//
// The caller sees to it that:
// `receiver` is of linerate_receiver_open(), and `address` points to an address.
linerate_receive_status linerate_receiver_address(struct linerate_receiver *receiver,
                                                  struct linerate_sockaddr *address);

// The backend in use, as "gro"; valid until the receiver is closed, NULL for NULL.
//
// The caller sees to it that:
// `receiver` is NULL or of linerate_receiver_open().
const char *linerate_receiver_backend(const struct linerate_receiver *receiver);

// Stores what was lost, by cause.
//
// The caller sees to it that:
// `receiver` is of linerate_receiver_open(), and `drops` points to drops.
linerate_receive_status linerate_receiver_drops(struct linerate_receiver *receiver,
                                                struct linerate_drops *drops);

// Joins a group, as "239.1.1.1@eth1".
//
// The caller sees to it that:
// `receiver` is of linerate_receiver_open(), and `group` is a NUL-terminated text.
linerate_receive_status linerate_receiver_join(struct linerate_receiver *receiver,
                                               const char *group);

// Leaves a group.
//
// The caller sees to it that:
// As linerate_receiver_join().
linerate_receive_status linerate_receiver_leave(struct linerate_receiver *receiver,
                                                const char *group);

// Why the last failed call failed, and what to do about it; an empty text if none failed. Valid until the
// next call with the receiver, NULL for NULL.
//
// The caller sees to it that:
// `receiver` is NULL or of linerate_receiver_open().
const char *linerate_receiver_error(const struct linerate_receiver *receiver);

// Opens a socket and stores it at `socket`. `fd` is -1, or a UDP socket that is already bound, as systemd passes it
// (sd_listen_fds): it is duplicated, stays open, and `options->bind` is ignored. Destinations of messages are reported
// if it is bound to every address, so that answers come from the address that was asked. If it fails, NULL is stored,
// and the reason, truncated if necessary, is written to `why`, which has room for `size` bytes and may be NULL.
//
// The caller sees to it that:
// `options` points to options whose texts are NUL-terminated, `fd` is -1 or open, `socket` points to a place for a
// pointer, and `why` is NULL or points to `size` bytes.
linerate_receive_status linerate_socket_open(const struct linerate_receive_options *options,
                                             int fd,
                                             struct linerate_socket **socket,
                                             char *why,
                                             size_t size);

// The receiving half, for the functions of receivers; NULL for NULL. It is closed with the socket.
//
// The caller sees to it that:
// `socket` is NULL or of linerate_socket_open().
struct linerate_receiver *linerate_socket_receiver(struct linerate_socket *socket);

// The sending half, for the functions of transmitters; NULL for NULL. It is closed with the socket.
//
// The caller sees to it that:
// `socket` is NULL or of linerate_socket_open().
struct linerate_transmitter *linerate_socket_transmitter(struct linerate_socket *socket);

// As linerate_receiver_receive(). Payloads stay while answers to them are sent by linerate_socket_send().
//
// The caller sees to it that:
// `socket` is of linerate_socket_open(); the rest as linerate_receiver_receive().
linerate_receive_status linerate_socket_receive(struct linerate_socket *socket,
                                                int64_t timeout,
                                                struct linerate_message *messages,
                                                size_t room,
                                                size_t *count);

// As linerate_transmitter_send().
//
// The caller sees to it that:
// `socket` is of linerate_socket_open(); the rest as linerate_transmitter_send().
linerate_receive_status linerate_socket_send(struct linerate_socket *socket,
                                             const struct linerate_transmit *transmits,
                                             size_t count,
                                             size_t *sent);

// The descriptor to poll: readable when there are messages. To wait for room, poll linerate_transmitter_fd(). It is the
// socket's to close; -1 for NULL.
//
// The caller sees to it that:
// `socket` is NULL or of linerate_socket_open().
int linerate_socket_fd(struct linerate_socket *socket);

// Closes a socket with both halves; what it lent is gone.
//
// The caller sees to it that:
// `socket` is NULL or of linerate_socket_open(), and neither it nor a half of it is used any more.
void linerate_socket_close(struct linerate_socket *socket);

// Makes an answer to a message: to its sender, from the address that it was sent to, as far as that is known
// (LINERATE_RECEIVE_DESTINATION). Its payload is that of the message.
//
// The caller sees to it that:
// `message` and `transmit` point to one each.
linerate_receive_status linerate_message_reply(const struct linerate_message *message,
                                               struct linerate_transmit *transmit);

// Opens a transmitter on the socket of a receiver and stores it at `transmitter`. The socket stays open until all of
// them are closed. It takes as many datagrams at a time as the receiver's batch has. Messages that the receiver lent go
// back with this call, as with every other.
//
// The caller sees to it that:
// `receiver` is of linerate_receiver_open(), and `transmitter` points to a place for a pointer.
linerate_receive_status linerate_transmitter_open(struct linerate_receiver *receiver,
                                                  struct linerate_transmitter **transmitter);

// Sends datagrams without waiting, from the memory of their payloads, and stores at `sent` how many were sent or
// refused, from the first on. LINERATE_RECEIVE_STATUS_TIMEOUT where the socket has no room: poll
// linerate_transmitter_fd() for writing. Payloads may be those of messages that a receiver lends.
//
// The caller sees to it that:
// `transmitter` is of linerate_transmitter_open(), `transmits` points to `count` of them, whose payloads are readable,
// and `sent` to a number.
linerate_receive_status linerate_transmitter_send(struct linerate_transmitter *transmitter,
                                                  const struct linerate_transmit *transmits,
                                                  size_t count,
                                                  size_t *sent);

// The descriptor to poll for writing; -1 for NULL. It is the socket's.
//
// The caller sees to it that:
// `transmitter` is NULL or of linerate_transmitter_open().
int linerate_transmitter_fd(const struct linerate_transmitter *transmitter);

// Stores what was sent.
//
// The caller sees to it that:
// `transmitter` is of linerate_transmitter_open(), and `statistics` points to statistics.
linerate_receive_status linerate_transmitter_statistics(const struct linerate_transmitter *transmitter,
                                                        struct linerate_send_statistics *statistics);

// Why the last failed call failed; an empty text if none failed. Valid until the next call with the transmitter, NULL
// for NULL.
//
// The caller sees to it that:
// `transmitter` is NULL or of linerate_transmitter_open().
const char *linerate_transmitter_error(const struct linerate_transmitter *transmitter);

// Closes a transmitter.
//
// The caller sees to it that:
// `transmitter` is NULL or of linerate_transmitter_open(), and not used any more.
void linerate_transmitter_close(struct linerate_transmitter *transmitter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LINERATE_UDP_H */
