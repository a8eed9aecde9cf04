/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What steer.bpf.c and src/steer share. Integers are in host order where no comment says otherwise. */
#ifndef LINERATE_STEER_H
#define LINERATE_STEER_H

#include <linux/types.h>

/* Where timestamps come from: values of `timestamps` in the program's read-only data. */
#define STEER_TIMESTAMP_NONE 0
#define STEER_TIMESTAMP_SOFTWARE 1

/* Bits of steer_meta.flags: which fields are valid. */
#define STEER_META_HARDWARE (1 << 0) /* timestamp of the card's clock, else TAI of the kernel */
#define STEER_META_VLAN (1 << 1)

/* Tells metadata of this program from older contents of a chunk. */
#define STEER_META_MAGIC 0x4c4e5254

/* In front of every redirected frame with timestamps on; ends at the frame's first byte. */
struct steer_meta {
	__u64 timestamp;   /* nanoseconds, 0 for none */
	__u16 vlan_tci;    /* tag that the card stripped */
	__be16 vlan_proto; /* its ethertype, network order */
	__u32 flags;       /* STEER_META_* */
	__u32 magic;       /* STEER_META_MAGIC */
} __attribute__((packed, aligned(4)));

_Static_assert(sizeof(struct steer_meta) == 20, "steer_meta is 20 bytes");

/* One element per CPU and receive queue. A frame is in exactly one of the three. */
struct steer_counters {
	__u64 matched;   /* redirected to a socket; what the socket could not take is in its own statistics */
	__u64 unmatched; /* rejected by the filter: passed to the stack */
	__u64 no_socket; /* accepted, but its queue has no socket: passed to the stack */
};

_Static_assert(sizeof(struct steer_counters) == 24, "steer_counters is 24 bytes");

/* Size of the socket map: the highest queue index plus one. */
#define STEER_QUEUES 256

#endif
