// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Copies frames that a filter accepts to ring buffers.
 *
 * `capture` passes every frame on to the stack, and shares the interface. The root program is attached once,
 * for any number of captures. A capture has one of eight slots; root and captures form a chain of tail calls
 * through the slots that are taken, and the last one passes the frame on. `take` has the interface for
 * itself, and drops the frames that the filter accepts after the copy.
 *
 * A slot is taken by putting a socket in `owners`: the kernel accepts only one, and removes it when the
 * socket closes, however its process ended. A program whose socket has gone is not called. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "filter.h"
#include "records.h"
#include "tags.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Constants to the verifier, which removes the branches not taken. */
const volatile __u32 timestamps = 1;
const volatile __u32 snaplen = TEE_MAX_SNAPLEN;
const volatile __u32 slot = 0;
const volatile __u32 queue_count = 1;

/* Both belong to the root; captures find them through it. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, TEE_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TEE_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} captures SEC(".maps");

/* One element for each queue, and one for all queues that came after the start. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* set before load */
	__type(key, __u32);
	__type(value, struct tee_counters);
} counters SEC(".maps");

/* Calls the next capture at or after slot `from`; returns when there is none. The index is a
 * constant at each call, so that the kernel makes a direct jump of it. */
static __attribute__((always_inline)) void call_from(struct xdp_md *ctx, __u32 from)
{
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < TEE_SLOTS; i++) {
		__u32 key = i;

		if (i >= from && bpf_map_lookup_elem(&owners, &key))
			bpf_tail_call_static(ctx, &captures, i);
	}
}

SEC("xdp.frags")
int TEE_ROOT(struct xdp_md *ctx)
{
	call_from(ctx, 0);
	return XDP_PASS;
}

/* One size class: reserve room for `room` bytes, copy `len` of them, submit without a wake-up. The length is
 * bounded after the calls: a value that is kept on the stack loses, to the verifier of Linux 6.1, what was
 * compared since. */
#define COPY(room)                                                                                 \
	do {                                                                                       \
		struct tee_record *record =                                                        \
			bpf_ringbuf_reserve(ring, sizeof(struct tee_record) + (room), 0);          \
		__u64 bytes;                                                                       \
                                                                                                   \
		if (!record)                                                                       \
			goto full;                                                                 \
		record->timestamp = timestamps ? bpf_ktime_get_tai_ns() : 0;                               \
		record->wire_len = wire_len;                                                       \
		record->len = len;                                                                 \
		record->ifindex = ctx->ingress_ifindex;                                            \
		record->queue = queue;                                                             \
		record->traced = TRACED_NOT;                                                                 \
		bytes = bounded(len);                                                              \
		if (bytes > (room) || bpf_xdp_load_bytes(ctx, 0, record + 1, bytes)) {             \
			bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);                             \
			goto fault;                                                                \
		}                                                                                  \
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);                                      \
	} while (0)

/* True when the filter accepts the frame, even if there was no room for it; false after the stop, so
 * that the frame goes on as it will when the program is gone. */
static __attribute__((always_inline)) int copy(struct xdp_md *ctx, int tagged)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 queue = ctx->rx_queue_index;
	__u32 counted = queue < queue_count ? queue : queue_count;
	__u32 index = ring_index(queue);
	struct tee_counters *counts = bpf_map_lookup_elem(&counters, &counted);
	struct tee_reader *state = bpf_map_lookup_elem(&readers, &index);
	void *ring = bpf_map_lookup_elem(&rings, &index);
	__u32 wire_len = bpf_xdp_get_buff_len(ctx);
	__u32 len = wire_len < snaplen ? wire_len : snaplen;

	if (!counts || !state || !ring)
		return 0;
	if (*(volatile __u32 *)&state->stop) {
		counts->late++;
		return 0;
	}
	if (tagged || (has_filter() && !filter(data, data_end, wire_len))) {
		counts->unmatched++;
		return 0;
	}
	COPY_BY_SIZE(len);
	counts->captured++;
	if (*(volatile __u32 *)&state->waiting)
		wake_reader(ring, state);
	return 1;
full:
	counts->full++;
	return 1;
fault:
	counts->faults++;
	return 1;
}

SEC("xdp.frags")
int capture(struct xdp_md *ctx)
{
	copy(ctx, 0);
	call_from(ctx, slot + 1);
	return XDP_PASS;
}

/* Drops what was copied, unless the reader tells it to pass that on, too. */
static __attribute__((always_inline)) int take_frame(struct xdp_md *ctx, int tagged)
{
	__u32 index = ring_index(ctx->rx_queue_index);
	struct tee_reader *state;

	if (!copy(ctx, tagged))
		return XDP_PASS;
	state = bpf_map_lookup_elem(&readers, &index);
	return !state || *(volatile __u32 *)&state->pass ? XDP_PASS : XDP_DROP;
}

SEC("xdp.frags")
int take(struct xdp_md *ctx)
{
	return take_frame(ctx, 0);
}

/* As above without frames of VLANs. Loaded bound to the device. */
SEC("xdp.frags")
int take_untagged(struct xdp_md *ctx)
{
	return take_frame(ctx, is_tagged(ctx));
}
