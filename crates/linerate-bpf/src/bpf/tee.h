/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What tee.bpf.c and src/tee share. All integers are in host order. */
#ifndef LINERATE_TEE_H
#define LINERATE_TEE_H

#include <linux/types.h>

/* Name of the root program, by which another process recognises it, and the number of its slots. */
#define TEE_ROOT linerate_tee
#define TEE_SLOTS 8

/* A captured frame in the ring buffer, before its bytes. */
struct tee_record {
	__u64 timestamp; /* nanoseconds of CLOCK_TAI, 0 with timestamps off */
	__u32 wire_len; /* length of the whole frame */
	__u32 len;      /* bytes that follow; the reserved space may be longer */
	__u32 ifindex;  /* interface that received it */
	__u16 queue;    /* receive queue */
	__u16 flags;    /* none yet, zero */
};

_Static_assert(sizeof(struct tee_record) == 24, "tee_record is 24 bytes");

/* One element per CPU. A frame is in exactly one of them. */
struct tee_counters {
	__u64 captured;  /* copied to the ring buffer */
	__u64 unmatched; /* rejected by the filter */
	__u64 full;      /* accepted, but the ring buffer was full */
	__u64 faults;    /* accepted, but the copy failed */
	__u64 late;      /* came after the stop: not filtered */
};

_Static_assert(sizeof(struct tee_counters) == 40, "tee_counters is 40 bytes");

/* Memory-mapped by both sides. */
struct tee_reader {
	__u32 waiting; /* the reader sets it before it sleeps, the program clears it and wakes */
	__u32 stop;    /* the reader sets it once: no further frame is copied */
};

_Static_assert(sizeof(struct tee_reader) == 8, "tee_reader is 8 bytes");

/* The longest frame copied in full: the largest that bpf_xdp_load_bytes takes at once. */
#define TEE_MAX_SNAPLEN 65535

#endif
