/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The ring buffer of frames that tee.bpf.c, trace.bpf.c and drops.bpf.c write and user space reads. */
#ifndef LINERATE_RECORDS_H
#define LINERATE_RECORDS_H

#include "tee.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* set before load */
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tee_reader);
} reader SEC(".maps");

/* `len`, which is 1 to 65536, in a form from which the verifier sees that. */
static __attribute__((always_inline)) __u64 bounded(__u32 len)
{
	__u64 bytes = len - 1;

	asm volatile("%0 &= 0xffff" : "+r"(bytes));
	bytes++;
	asm volatile("" : "+r"(bytes));
	return bytes;
}

/* Runs COPY(room), which the program defines, with the smallest room that holds `len` bytes. The kernel
 * wants the size that is reserved as a constant. */
#define COPY_BY_SIZE(len)                                                                          \
	do {                                                                                       \
		if ((len) <= 64)                                                                   \
			COPY(64);                                                                  \
		else if ((len) <= 96)                                                              \
			COPY(96);                                                                  \
		else if ((len) <= 128)                                                             \
			COPY(128);                                                                 \
		else if ((len) <= 192)                                                             \
			COPY(192);                                                                 \
		else if ((len) <= 256)                                                             \
			COPY(256);                                                                 \
		else if ((len) <= 384)                                                             \
			COPY(384);                                                                 \
		else if ((len) <= 512)                                                             \
			COPY(512);                                                                 \
		else if ((len) <= 768)                                                             \
			COPY(768);                                                                 \
		else if ((len) <= 1024)                                                            \
			COPY(1024);                                                                \
		else if ((len) <= 1536)                                                            \
			COPY(1536);                                                                \
		else if ((len) <= 2048)                                                            \
			COPY(2048);                                                                \
		else if ((len) <= 4096)                                                            \
			COPY(4096);                                                                \
		else if ((len) <= 9216)                                                            \
			COPY(9216);                                                                \
		else if ((len) <= 16384)                                                           \
			COPY(16384);                                                               \
		else                                                                               \
			COPY(TEE_MAX_SNAPLEN + 1);                                                 \
	} while (0)

/* The reader says that it sleeps. The submit before was a full barrier, and so is the reader's fence between
 * setting the flag and looking at the ring: one of the two sees the other. An empty record carries the
 * wake-up, since only a record can. If there is no room for it, the flag stays set, so that the program on
 * the CPU that fills the ring sees it and wakes. */
static __attribute__((always_inline)) void wake_reader(struct tee_reader *state)
{
	void *carrier = bpf_ringbuf_reserve(&records, 8, 0);

	if (!carrier)
		return;
	state->waiting = 0;
	bpf_ringbuf_discard(carrier, BPF_RB_FORCE_WAKEUP);
}

#endif
