#ifndef LINERATE_SEGMENT_H
#define LINERATE_SEGMENT_H

/* Made by cbindgen from crates/linerate-segment-c/src; do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The status of a call. The numbers are stable; new ones may be added.
enum linerate_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Done.
    LINERATE_STATUS_OK = 0,
    // There is no further segment.
    LINERATE_STATUS_END = 1,
    // A required pointer is NULL, or a number is not in its enumeration.
    LINERATE_STATUS_ARGUMENT = 2,
    // The output of a coalescer called the coalescer that called it.
    LINERATE_STATUS_BUSY = 3,
    // The buffer does not hold the next segment, which can be asked for again.
    LINERATE_STATUS_BUFFER = 4,
    // A header is incomplete or breaks a rule of its protocol.
    LINERATE_STATUS_HEADER = 5,
    // A length field does not agree with the bytes that are there.
    LINERATE_STATUS_LENGTH = 6,
    // Not a packet that can be split so: not IP, another protocol, a fragment, a jumbogram, too
    // many tags, tunnels or headers.
    LINERATE_STATUS_UNSUPPORTED = 7,
    // TCP with SYN and more than one segment of payload.
    LINERATE_STATUS_SYN = 8,
    // The packet must be fragmented and may not be (DF).
    LINERATE_STATUS_DONT_FRAGMENT = 9,
    // A fixed IPv4 identification without the DF flag.
    LINERATE_STATUS_FIXED_ID = 10,
    // The segment size is 0, or the MTU leaves no room for payload.
    LINERATE_STATUS_SIZE = 11,
    // More bytes or segments than the policy allows.
    LINERATE_STATUS_LIMIT = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum linerate_status linerate_status;
#else
typedef int32_t linerate_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How to split, with a size in bytes.
enum linerate_split
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Into TCP segments with so much payload (gso_size: the MSS less the length of the TCP options).
    LINERATE_SPLIT_TCP = 0,
    // Into UDP datagrams with so much payload (USO).
    LINERATE_SPLIT_UDP = 1,
    // Into fragments of the outermost IP packet, none longer than this, without the link header.
    LINERATE_SPLIT_FRAGMENTS = 2,
    // Into IP packets no longer than this, without the link header: TCP becomes segments, also in a tunnel,
    // and everything else fragments.
    LINERATE_SPLIT_MTU = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum linerate_split linerate_split;
#else
typedef uint8_t linerate_split;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What is done about the checksums of TCP and UDP. That of an IPv4 header is always right.
enum linerate_checksums
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // All are computed.
    LINERATE_CHECKSUMS_FULL = 0,
    // The innermost holds the sum of its pseudo header, for hardware to finish; those of a tunnel
    // are complete, as they do not depend on that work.
    LINERATE_CHECKSUMS_PARTIAL = 1,
    // None is computed: the fields of segments are 0, also those of tunnels; fragments keep what
    // stands in the packet.
    LINERATE_CHECKSUMS_NONE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum linerate_checksums linerate_checksums;
#else
typedef uint8_t linerate_checksums;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What the packet starts with.
enum linerate_link_type
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // An Ethernet header with no, one or two VLAN tags.
    LINERATE_LINK_TYPE_ETHERNET = 0,
    // An IPv4 or IPv6 header, as on a TUN device.
    LINERATE_LINK_TYPE_IP = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum linerate_link_type linerate_link_type;
#else
typedef uint8_t linerate_link_type;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How the identification of an IPv4 header goes on from segment to segment.
enum linerate_ip_id
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // One more with each segment, modulo 65,536.
    LINERATE_IP_ID_INCREMENT = 0,
    // The same in all (the kernel's `SKB_GSO_TCP_FIXEDID`); needs the DF flag.
    LINERATE_IP_ID_FIXED = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum linerate_ip_id linerate_ip_id;
#else
typedef uint8_t linerate_ip_id;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why a frame or a super-packet came out when it did.
enum linerate_flush_reason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // It is not a packet that can be joined at all: neither TCP nor UDP, a fragment, with IPv4
    // options, cut short, with bytes behind the packet, or with headers over 512 bytes.
    LINERATE_FLUSH_REASON_PROTOCOL = 0,
    // No payload: a pure acknowledgement, or an empty datagram.
    LINERATE_FLUSH_REASON_NO_PAYLOAD = 1,
    // A checksum is wrong, missing (UDP's 0), or written in a way that nobody computes.
    LINERATE_FLUSH_REASON_CHECKSUM = 2,
    // SYN, RST, URG or CWR.
    LINERATE_FLUSH_REASON_FLAGS = 3,
    // PSH, FIN or a segment shorter than the first: nothing can follow it.
    LINERATE_FLUSH_REASON_LAST_SEGMENT = 4,
    // The next packet of the flow could not be joined: it came alone behind this.
    LINERATE_FLUSH_REASON_UNMERGEABLE = 5,
    // The next packet of the flow differs in a header field that all segments share: type of
    // service, hop limit, DF, acknowledgement, window, flags, TCP options.
    LINERATE_FLUSH_REASON_HEADER = 6,
    // The next packet's sequence number, or IPv4 identification, is not the one that follows.
    LINERATE_FLUSH_REASON_SEQUENCE = 7,
    // The next packet of the flow is longer than the first.
    LINERATE_FLUSH_REASON_LARGER_SEGMENT = 8,
    // The next packet did not fit into the configured length or number of segments.
    LINERATE_FLUSH_REASON_FULL = 9,
    // A new flow needed its place.
    LINERATE_FLUSH_REASON_EVICTED = 10,
    // Its time was up, or everything was flushed.
    LINERATE_FLUSH_REASON_FLUSHED = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum linerate_flush_reason linerate_flush_reason;
#else
typedef uint8_t linerate_flush_reason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Joins the segments of many flows. For one thread at a time.
typedef struct linerate_coalescer linerate_coalescer;

// The segments of one super-packet after another. For one thread at a time.
typedef struct linerate_segments linerate_segments;

// What a coalescer does. Start with linerate_coalesce_options_default() and change what differs.
typedef struct linerate_coalesce_options {
    // UDP destination port that means VXLAN; 0 for none.
    uint16_t vxlan_port;
    // UDP destination port that means Geneve; 0 for none.
    uint16_t geneve_port;
    // Longest IP packet to make, in bytes.
    uint16_t max_len;
    // Most segments to join, 2 to 128.
    uint16_t max_segments;
    // What a frame starts with: a linerate_link_type.
    uint8_t link;
    // What the innermost checksum of a super-packet becomes: a linerate_checksums.
    uint8_t checksums;
    // Join TCP segments.
    bool tcp;
    // Join UDP datagrams of one size.
    bool udp;
    // Join what is inside of VXLAN, Geneve, GRE and IP in IP.
    bool tunnels;
} linerate_coalesce_options;

// What to do with a super-packet. Start with linerate_segment_options_default() and change what differs.
typedef struct linerate_segment_options {
    // Longest IP packet that is split, in bytes.
    uint32_t max_burst;
    // Most segments that a packet may make.
    uint32_t max_segments;
    // Identification of the IPv6 fragments, if there will be any.
    uint32_t fragment_id;
    // The size that belongs to `split`, in bytes.
    uint16_t size;
    // UDP destination port that means VXLAN; 0 for none.
    uint16_t vxlan_port;
    // UDP destination port that means Geneve; 0 for none.
    uint16_t geneve_port;
    // UDP destination port that means GTP-U; 0 for none.
    uint16_t gtp_port;
    // UDP destination port that means GUE, or IP directly in UDP; 0 for none.
    uint16_t gue_port;
    // How to split: a linerate_split.
    uint8_t split;
    // What the packet starts with: a linerate_link_type.
    uint8_t link;
    // What is done about checksums: a linerate_checksums.
    uint8_t checksums;
    // The identification of the outermost IPv4 header: a linerate_ip_id.
    uint8_t outer_id;
    // The identification of the IPv4 header inside of a tunnel: a linerate_ip_id.
    uint8_t inner_id;
    // CWR belongs to Accurate ECN and is repeated in all segments; otherwise it is set in the first only.
    bool accurate_ecn;
} linerate_segment_options;

// The output of a coalescer: each input frame comes out exactly once, alone or as a part of a super-packet.
// All pointers are valid during the call only.
//
// A super-packet is its header, followed by bytes of each frame in `tokens`, from `header_len` on:
// `segment_size` bytes, of the last frame `last_size`.
typedef struct linerate_output {
    // The caller's names of the frames, in order.
    const uint64_t *tokens;
    // How many: 1 for a frame that comes out as it came, then all that follows but `reason` is 0 or
    // NULL.
    size_t token_count;
    // The finished headers, link header included.
    const uint8_t *header;
    // Bytes of headers.
    size_t header_len;
    // Length of the super-packet in bytes, with its headers.
    size_t len;
    // The time that the first frame came with.
    uint64_t since;
    // With these the frames are made again, byte for byte, where the checksums are full.
    struct linerate_segment_options split;
    // Payload of every frame but the last (gso_size).
    uint16_t segment_size;
    // Payload of the last frame.
    uint16_t last_size;
    // What a TUN device, a packet socket or a virtual machine has to know: struct virtio_net_hdr in the
    // machine's byte order.
    uint8_t virtio[10];
    // Whether `virtio` says something: a packet inside of a tunnel has no such header.
    bool has_virtio;
    // Why nothing more was joined: a linerate_flush_reason.
    uint8_t reason;
} linerate_output;

// Takes what comes out of a coalescer. `context` is what was given beside it. It may not call the
// coalescer.
typedef void (*linerate_sink)(void *context, const struct linerate_output *output);

// The switches of one interface: what `net.gso.dev.XXX.enable_gso`, `net.gso.dev.XXX.max_burst` and
// `net.inet.{tcp,udp}.gso` are to an interface of the FreeBSD implementation, in one value.
//
// Written as text, as on a command line, it is a list of what differs from the default:
// `tcp=on,udp=off,max_burst=32768`.
typedef struct linerate_policy {
    // Longest IP packet that is split, in bytes; a longer one is refused.
    uint32_t max_burst;
    // Most segments that a packet may make; one that would make more is refused.
    uint32_t max_segments;
    // Whether anything is split on this interface.
    bool enabled;
    // Whether TCP is.
    bool tcp;
    // Whether UDP is, into datagrams or fragments.
    bool udp;
} linerate_policy;
// Everything is split, up to the 65,536 bytes that a sender makes by default.
#define LINERATE_POLICY_DEFAULT (linerate_policy){ .max_burst = 65536, .max_segments = 65536, .enabled = true, .tcp = true, .udp = true }

// A segment in two pieces; on the wire they follow each other.
typedef struct linerate_segment_view {
    // All headers, link header included, in the handle: valid until its next call.
    const uint8_t *header;
    // Bytes of headers.
    size_t header_len;
    // The payload, in the super-packet.
    const uint8_t *payload;
    // Bytes of payload.
    size_t payload_len;
} linerate_segment_view;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library that the program runs with, as "1.2.3". The string is never freed.
const char *linerate_segment_version(void);

// Creates a coalescer for this number of flows, of 2.5 KiB each; when all are in use, a new flow replaces
// the oldest. It finds them by a hash with its own random key. This is the only allocation. Returns NULL if
// there is no memory, or a number in the options is not in its enumeration.
//
// The caller sees to it that:
// `options` is NULL, for the default ones, or points to options.
struct linerate_coalescer *linerate_coalescer_create(const struct linerate_coalesce_options *options,
                                                     uint16_t flows);

// Frees a coalescer, and forgets what it held: flush it first.
//
// The caller sees to it that:
// `coalescer` is NULL or of linerate_coalescer_create(), not used any more, and not in a call.
void linerate_coalescer_destroy(struct linerate_coalescer *coalescer);

// Takes a frame, which `token` names from now on. It comes out of this call or of a later one, to `sink`;
// until then its bytes stay as they are. `time` is when it came, in a unit that
// linerate_coalescer_flush_before() shares.
//
// The caller sees to it that:
// `coalescer` is of linerate_coalescer_create(), `frame` points to `len` bytes, and `sink` may be called
// with `context`.
linerate_status linerate_coalescer_push(struct linerate_coalescer *coalescer,
                                        const uint8_t *frame,
                                        size_t len,
                                        uint64_t token,
                                        uint64_t time,
                                        linerate_sink sink,
                                        void *context);

// Hands over every flow whose first frame came at `time` or before it, the oldest first.
//
// The caller sees to it that:
// `coalescer` is of linerate_coalescer_create(), and `sink` may be called with `context`.
linerate_status linerate_coalescer_flush_before(struct linerate_coalescer *coalescer,
                                                uint64_t time,
                                                linerate_sink sink,
                                                void *context);

// Hands over everything, the flow that began first before the others.
//
// The caller sees to it that:
// `coalescer` is of linerate_coalescer_create(), and `sink` may be called with `context`.
linerate_status linerate_coalescer_flush_all(struct linerate_coalescer *coalescer,
                                             linerate_sink sink,
                                             void *context);

// When the frame came that waits longest, at `time`. False where none waits.
//
// The caller sees to it that:
// `coalescer` is NULL or of linerate_coalescer_create(), and `time` points to a number.
bool linerate_coalescer_oldest(const struct linerate_coalescer *coalescer, uint64_t *time);

// Ethernet frames, full checksums, incrementing identifications, the default ports, no limits.
// `split` is a linerate_split and `size` what belongs to it.
struct linerate_segment_options linerate_segment_options_default(uint8_t split, uint16_t size);

// Ethernet frames, all protocols, full checksums, the largest super-packets.
struct linerate_coalesce_options linerate_coalesce_options_default(void);

// Everything is split, up to the 65,536 bytes that a sender makes by default.
struct linerate_policy linerate_policy_default(void);

// Reads a policy from text, as a command line or a configuration file has it: a list of what differs
// from the default, "tcp=on,udp=off,max_burst=32768". Where it cannot be read, `policy` stays as it is
// and `error`, of `error_size` bytes, says why; it may be NULL.
//
// The caller sees to it that:
// `text` is a NUL-terminated string, `policy` points to a policy, `error` is NULL or points to
// `error_size` bytes.
linerate_status linerate_policy_parse(const char *text,
                                      struct linerate_policy *policy,
                                      char *error,
                                      size_t error_size);

// Writes the policy as text that linerate_policy_parse() reads, NUL-terminated, to `size` bytes at
// `out`; 128 are enough.
//
// The caller sees to it that:
// `policy` points to a policy and `out` to `size` bytes.
linerate_status linerate_policy_text(const struct linerate_policy *policy, char *out, size_t size);

// Whether packets of this IP protocol are split (6 TCP, 17 UDP); those that are neither follow
// `enabled`. False where `policy` is NULL.
//
// The caller sees to it that:
// `policy` is NULL or points to a policy.
bool linerate_policy_allows(const struct linerate_policy *policy, uint8_t protocol);

// Puts the limits of the policy into `options`.
//
// The caller sees to it that:
// `policy` points to a policy and `options` to options.
linerate_status linerate_policy_limit(const struct linerate_policy *policy,
                                      struct linerate_segment_options *options);

// Makes a handle, with which super-packets are split one after another. The only allocation: nothing is
// allocated for a packet or a segment.
struct linerate_segments *linerate_segments_create(void);

// Frees a handle.
//
// The caller sees to it that:
// `segments` is NULL or of linerate_segments_create(), and not used any more.
void linerate_segments_destroy(struct linerate_segments *segments);

// Takes a super-packet of `len` bytes and prepares its segments; what was left of another is forgotten.
// Its bytes stay as they are until the last segment was taken.
//
// The caller sees to it that:
// `segments` is of linerate_segments_create(), `packet` points to `len` bytes that nobody writes to while
// segments are taken, and `options` to options.
linerate_status linerate_segments_begin(struct linerate_segments *segments,
                                        const uint8_t *packet,
                                        size_t len,
                                        const struct linerate_segment_options *options);

// How many segments are still to come; 0 where none was begun.
//
// The caller sees to it that:
// `segments` is NULL or of linerate_segments_create().
size_t linerate_segments_left(const struct linerate_segments *segments);

// Length in bytes of the longest segment, link header included; 0 where none was begun.
//
// The caller sees to it that:
// `segments` is NULL or of linerate_segments_create().
size_t linerate_segments_max_len(const struct linerate_segments *segments);

// What hardware has to finish with LINERATE_CHECKSUMS_PARTIAL: the checksum over the bytes from `start`
// to the end of each segment goes to `start + offset`. False where nothing is left to finish.
//
// The caller sees to it that:
// `segments` is of linerate_segments_create(), `start` and `offset` point to a number each.
bool linerate_segments_partial(const struct linerate_segments *segments,
                               uint16_t *start,
                               uint16_t *offset);

// Writes the next segment to `out`, a buffer of `size` bytes, and its length to `len`; bytes of the buffer
// after it may be written as well. LINERATE_STATUS_END after the last, LINERATE_STATUS_BUFFER if the buffer
// is too short (linerate_segments_max_len() bytes are enough for all), LINERATE_STATUS_ARGUMENT if it
// overlaps the packet.
//
// The caller sees to it that:
// `segments` is of linerate_segments_create(), the bytes of its packet are as they were, `out` points to
// `size` bytes, and `len` to a number.
linerate_status linerate_segments_write_next(struct linerate_segments *segments,
                                             uint8_t *out,
                                             size_t size,
                                             size_t *len);

// Gives the next segment as headers and payload, for a gathering write: the payload is not copied.
// LINERATE_STATUS_END after the last.
//
// The caller sees to it that:
// `segments` is of linerate_segments_create(), the bytes of its packet are as they were, and `view`
// points to a view.
linerate_status linerate_segments_next_view(struct linerate_segments *segments,
                                            struct linerate_segment_view *view);

// Why the last call failed, in words, and what can be done about it; an empty text where none did. Valid
// until the next call with the handle, NULL where that is NULL.
//
// The caller sees to it that:
// `segments` is NULL or of linerate_segments_create().
const char *linerate_segments_error(struct linerate_segments *segments);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LINERATE_SEGMENT_H */
