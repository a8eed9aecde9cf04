// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Copies frames that a filter accepts to a ring buffer and lets every frame go on to the stack.
 *
 * Two programs. The root is attached to the interface once, whatever the number of captures, and
 * calls eight empty functions. A capture replaces one of them with `capture` (an extension program,
 * BPF_PROG_TYPE_EXT): the kernel allots the function to one capture, and puts the empty one back
 * when the capture's link closes, however its process ended. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "filter.h"
#include "tee.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Global and weak: a function of its own to the verifier, and not to be looked into by the
 * compiler. The argument is used so that it is passed. */
#define SLOT(n)                                                                                    \
	__attribute__((weak, noinline)) int slot##n(struct xdp_md *ctx)                            \
	{                                                                                          \
		int verdict = XDP_PASS;                                                            \
                                                                                                   \
		asm volatile("" : "+r"(verdict) : "r"(ctx));                                       \
		return verdict;                                                                    \
	}

SLOT(0)
SLOT(1)
SLOT(2)
SLOT(3)
SLOT(4)
SLOT(5)
SLOT(6)
SLOT(7)

SEC("xdp.frags")
int TEE_ROOT(struct xdp_md *ctx)
{
	slot0(ctx);
	slot1(ctx);
	slot2(ctx);
	slot3(ctx);
	slot4(ctx);
	slot5(ctx);
	slot6(ctx);
	slot7(ctx);
	return XDP_PASS;
}

/* Constants to the verifier, which removes the branches not taken. */
const volatile __u32 has_filter = 0;
const volatile __u32 stamps = 1;
const volatile __u32 snap_len = TEE_SNAP_MAX;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* set before load */
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tee_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tee_shared);
} shared SEC(".maps");

/* One size class: reserve room for `room` bytes, copy `len` of them, submit without a wake-up. The
 * kernel wants the size reserved as a constant. */
#define COPY(room)                                                                                 \
	do {                                                                                       \
		struct tee_record *record =                                                        \
			bpf_ringbuf_reserve(&records, sizeof(struct tee_record) + (room), 0);      \
                                                                                                   \
		if (!record)                                                                       \
			goto full;                                                                 \
		record->stamp = stamps ? bpf_ktime_get_tai_ns() : 0;                               \
		record->wire_len = wire_len;                                                       \
		record->len = len;                                                                 \
		record->ifindex = ctx->ingress_ifindex;                                            \
		record->queue = ctx->rx_queue_index;                                               \
		record->flags = 0;                                                                 \
		if (bpf_xdp_load_bytes(ctx, 0, record + 1, len)) {                                 \
			bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);                             \
			goto fault;                                                                \
		}                                                                                  \
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);                                      \
	} while (0)

/* The reader says that it sleeps. The submit before was a full barrier, and so is the reader's
 * fence between setting the flag and looking at the ring: one of the two sees the other. An empty
 * record carries the wake-up, since only a record can. */
static __attribute__((always_inline)) void wake_reader(struct tee_shared *reader)
{
	void *carrier;

	reader->waiting = 0;
	carrier = bpf_ringbuf_reserve(&records, 8, 0);
	if (carrier)
		bpf_ringbuf_discard(carrier, BPF_RB_FORCE_WAKEUP);
}

SEC("xdp.frags")
int capture(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct tee_counters *counts = bpf_map_lookup_elem(&counters, &zero);
	struct tee_shared *reader = bpf_map_lookup_elem(&shared, &zero);
	__u32 wire_len = bpf_xdp_get_buff_len(ctx);
	__u32 len = wire_len < snap_len ? wire_len : snap_len;

	if (!counts || !reader)
		return XDP_PASS;
	if (has_filter && !filter(data, data_end, wire_len)) {
		counts->unmatched++;
		return XDP_PASS;
	}
	/* The verifier wants to see the bounds that every frame keeps. */
	if (len < 1 || len > TEE_SNAP_MAX)
		goto fault;
	if (len <= 64)
		COPY(64);
	else if (len <= 96)
		COPY(96);
	else if (len <= 128)
		COPY(128);
	else if (len <= 192)
		COPY(192);
	else if (len <= 256)
		COPY(256);
	else if (len <= 384)
		COPY(384);
	else if (len <= 512)
		COPY(512);
	else if (len <= 768)
		COPY(768);
	else if (len <= 1024)
		COPY(1024);
	else if (len <= 1536)
		COPY(1536);
	else if (len <= 2048)
		COPY(2048);
	else if (len <= 4096)
		COPY(4096);
	else if (len <= 9216)
		COPY(9216);
	else if (len <= 16384)
		COPY(16384);
	else
		COPY(TEE_SNAP_MAX + 1);
	counts->captured++;
	if (*(volatile __u32 *)&reader->waiting)
		wake_reader(reader);
	return XDP_PASS;
full:
	counts->full++;
	return XDP_PASS;
fault:
	counts->faults++;
	return XDP_PASS;
}
