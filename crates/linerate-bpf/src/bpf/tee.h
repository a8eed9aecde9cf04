/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What tee.bpf.c, trace.bpf.c and drops.bpf.c share with src/tee and src/trace. All integers are in host
 * order. */
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
	__u16 traced;   /* TRACED_*: what follows this header, before the bytes */
};

_Static_assert(sizeof(struct tee_record) == 24, "tee_record is 24 bytes");

/* Values of tee_record.traced. All but the first say that the record is a trace_record. */
#define TRACED_NOT 0   /* a frame of the tee */
#define TRACED_ENTRY 1 /* an XDP program starts with the frame */
#define TRACED_EXIT 2  /* it has returned its verdict */
#define TRACED_DROP 3  /* the kernel dropped the frame */

/* A traced frame in the ring buffer, before its bytes. */
struct trace_record {
	struct tee_record frame;
	__u64 place; /* entry and exit: a number that both share. drop: the address of the code that dropped */
	__u32 code;  /* exit: the verdict, XDP_*. drop: the reason, SKB_DROP_REASON_*. entry: zero */
	__u32 reserved;
};

_Static_assert(sizeof(struct trace_record) == 40, "trace_record is 40 bytes");

/* One element per CPU. A frame of the interface is in exactly one of the first six. */
struct trace_counters {
	__u64 captured;  /* copied to the ring buffer */
	__u64 unmatched; /* rejected by the filter */
	__u64 full;      /* accepted, but the ring buffer was full */
	__u64 faults;    /* accepted, but the copy failed */
	__u64 late;      /* came after the stop: not filtered */
	__u64 limited;   /* accepted, but over the rate limit */
	__u64 cut;       /* of those captured: only the first buffer could be read */
	__u64 elsewhere; /* of another interface or network namespace */
	__u64 unknown;   /* dropped, and nothing tells in which network namespace */
};

_Static_assert(sizeof(struct trace_counters) == 72, "trace_counters is 72 bytes");

/* One element per CPU and receive queue. A frame is in exactly one of them. */
struct tee_counters {
	__u64 captured;  /* copied to the ring buffer */
	__u64 unmatched; /* rejected by the filter */
	__u64 full;      /* accepted, but the ring buffer was full */
	__u64 faults;    /* accepted, but the copy failed */
	__u64 late;      /* came after the stop: not filtered */
};

_Static_assert(sizeof(struct tee_counters) == 40, "tee_counters is 40 bytes");

/* The reader of a ring buffer: memory-mapped by both sides, in a cache line of its own. */
struct tee_reader {
	__u32 waiting; /* the reader sets it before it sleeps, the program clears it and wakes */
	__u32 stop;    /* the reader sets it once: no further frame is copied */
	__u32 pass;    /* the reader sets and clears it: while set, `take` drops no frame */
	__u32 unused[13];
};

_Static_assert(sizeof(struct tee_reader) == 64, "tee_reader is 64 bytes");

/* The longest frame copied in full: the largest that bpf_xdp_load_bytes takes at once. */
#define TEE_MAX_SNAPLEN 65535

#endif
