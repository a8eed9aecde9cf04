/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The ring buffers of frames that tee.bpf.c, trace.bpf.c and drops.bpf.c write and user space reads. */
#ifndef LINERATE_RECORDS_H
#define LINERATE_RECORDS_H

#include "tee.h"

/* One ring buffer for each receive queue, or for each CPU, so that CPUs which receive at the same time neither
 * wait for one lock nor write to one cache line.
 *
 * A queue has one NAPI context, which runs on one CPU at a time: the ring of a queue has one writer at a
 * time, its timestamps ascend, and the frames of a flow stay in one ring wherever the queue moves. So the
 * queue is the index as long as the machine has a CPU for each (`by_cpu` is 0). Beyond that, rings by queue
 * would only divide the memory into smaller parts, and the CPU is the index: softirqs do not nest, so that
 * ring too has one writer at a time. The reader then puts a flow that moved to another CPU in order by its
 * timestamps; without them the queue stays the index.
 *
 * The index is a matter of speed only. Where it fails, several CPUs write to a ring, which its lock allows:
 * in generic mode the frames of one queue can be on several CPUs, after receive packet steering or from the
 * backlog of a veth pair; and queues and CPUs that came later share the rings of the others. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* set before load, as its ring buffers */
	__type(key, __u32);
	__type(value, __u32);
} rings SEC(".maps");

/* One element for each ring. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before load */
	__type(key, __u32);
	__type(value, struct tee_reader);
} readers SEC(".maps");

/* Constants to the verifier. */
const volatile __u32 ring_count = 1;
const volatile __u32 by_cpu = 1;

/* The ring for a frame of `queue`. */
static __attribute__((always_inline)) __u32 ring_index(__u32 queue)
{
	__u32 index = by_cpu ? bpf_get_smp_processor_id() : queue;

	return index < ring_count ? index : index % ring_count;
}

/* `len`, which is 1 to 65536, in a form from which the verifier sees that. */
static __attribute__((always_inline)) __u64 bounded(__u32 len)
{
	__u64 bytes = len - 1;

	asm volatile("%0 &= 0xffff" : "+r"(bytes));
	bytes++;
	asm volatile("" : "+r"(bytes));
	return bytes;
}

/* Runs COPY(room), which the program defines for its `ring`, with the smallest room that holds `len` bytes. The kernel
 * wants the size that is reserved as a constant. */
#define COPY_BY_SIZE(len)                                                                          \
	do {                                                                                       \
		UP_TO(64, len) UP_TO(96, len) UP_TO(128, len) UP_TO(192, len) UP_TO(256, len)      \
		UP_TO(384, len) UP_TO(512, len) UP_TO(768, len) UP_TO(1024, len)                   \
		UP_TO(1536, len) UP_TO(2048, len) UP_TO(4096, len) UP_TO(9216, len)                \
		UP_TO(16384, len)                                                                  \
		COPY(TEE_MAX_SNAPLEN + 1);                                                         \
	} while (0)
#define UP_TO(room, len)                                                                           \
	if ((len) <= (room))                                                                       \
		COPY(room);                                                                        \
	else

/* The reader says that it sleeps. The submit before was a full barrier, and so is the reader's fence between
 * setting the flag and looking at the ring: one of the two sees the other. An empty record carries the
 * wake-up, since only a record can. If there is no room for it, the flag stays set, so that the program on
 * the CPU that fills the ring sees it and wakes. */
static __attribute__((always_inline)) void wake_reader(void *ring, struct tee_reader *state)
{
	void *carrier = bpf_ringbuf_reserve(ring, 8, 0);

	if (!carrier)
		return;
	state->waiting = 0;
	bpf_ringbuf_discard(carrier, BPF_RB_FORCE_WAKEUP);
}

#endif
