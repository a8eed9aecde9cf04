// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Shared by the generating program and user space. Numbers are in host byte order, except where a name
 * ends in _raw: those are the bytes of the frame, read as one machine word. */
#ifndef LINERATE_GENERATE_H
#define LINERATE_GENERATE_H

#include <linux/types.h>

#define GENERATE_HEADER_WORDS 10 /* 80 bytes: Ethernet, a tag, IPv6 and TCP take 78 */
#define GENERATE_MIX 16		   /* sizes of a mix, walked in turn */

enum generate_field {
	GENERATE_SOURCE_PORT,
	GENERATE_DESTINATION_PORT,
	GENERATE_SOURCE,
	GENERATE_DESTINATION,
	GENERATE_FIELDS,
};

enum generate_sizes {
	GENERATE_SIZE_FIXED,
	GENERATE_SIZE_RANGE,
	GENERATE_SIZE_MIX,
};

/* One field of the flow: `base + index`, where the index is below `count`. For an IPv6 address this is
 * its lower half. A count of 1 leaves the field constant. */
struct generate_range {
	__u64 base;
	__u64 count;
};
_Static_assert(sizeof(struct generate_range) == 16, "shared with Rust");

/* The configuration of a run. It is constant data, so that the verifier removes the branches that the run
 * does not take. */
struct generate_config {
	__u64 headers_raw[GENERATE_HEADER_WORDS]; /* the headers; zero where a field varies */
	struct generate_range fields[GENERATE_FIELDS];
	__u64 network_sum;   /* ones' complement sum of the constant part of the IPv4 header */
	__u64 transport_sum; /* the same of pseudo header, transport header and stamp */
	__u64 seed;
	__u64 flows;	   /* flows after which the fields start again; 0: never */
	__u64 order_mask;  /* entries of the map `order` less one; 0: flows come one after the other */
	__u64 frame_time;  /* nanoseconds from frame to frame, 32.32 fixed point; 0: no pacing */
	__u64 byte_time;   /* nanoseconds more for each byte of a frame, 32.32 fixed point */
	__u64 max_catch_up; /* nanoseconds by which a late run may catch up */
	__u32 target;	   /* interface that receives the frames */
	__u32 header_len;  /* bytes of all headers: a multiple of 2 */
	__u32 network_at;  /* offsets from the start of the frame */
	__u32 transport_at;
	__u32 checksum_at; /* of the transport checksum */
	__u32 size_min;
	__u32 size_max; /* length of the frame that the kernel is given */
	__u32 size_kind;
	__u32 mix_len;
	__u16 mix[GENERATE_MIX];
	__u8 ipv6;
	__u8 udp;
	__u8 random[GENERATE_FIELDS];
	__u8 random_size;
	__u8 random_source_mac;
	__u8 random_destination_mac;
	__u8 stamp_sequence;
	__u8 stamp_time;
	__u8 network_varies; /* the IPv4 checksum must be recomputed for each frame */
};
_Static_assert(sizeof(struct generate_config) == 288, "shared with Rust");

/* The counters of a run. Only the CPU that runs it writes them. */
struct generate_counters {
	__u64 emitted;	/* frames given to the redirect */
	__u64 bytes;	/* their bytes, where they are not all of one length */
	__u64 accepted; /* frames that the driver took */
	__u64 refused;	/* frames that the driver gave back */
	__u64 redirect_errors; /* frames that the redirect itself refused */
	__u64 first;	/* CLOCK_MONOTONIC nanoseconds of the first frame */
	__u64 last;	/* and of the last transmission by the driver */
	__s32 driver_error;   /* negative errno of the last refusal by the driver, 0: its ring was full */
	__s32 redirect_error; /* negative errno of the last refusal by the redirect */
};
_Static_assert(sizeof(struct generate_counters) == 64, "shared with Rust");

#endif
