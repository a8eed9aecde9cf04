// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Copies the frames of an XDP program that is attached already: `trace_entry` (fentry) as they came,
 * `trace_exit` (fexit) as they left, with the verdict. The traced program runs as if nothing were there.
 *
 * Of a frame of several buffers the first is copied: no helper reads the others from a tracing program
 * into a ring buffer. Those frames are counted. */

#include "trace.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct xdp_rxq_info {
	struct net_device *dev;
	__u32 queue_index;
};

struct xdp_buff {
	void *data;
	void *data_end;
	struct xdp_rxq_info *rxq;
};

#pragma clang attribute pop

/* Whether `trace_entry` is attached too, which then numbers the frames. */
const volatile __u32 entry_numbers = 1;

/* The number of the frame that the traced program has on this CPU: it returns before it gets the next. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} numbers SEC(".maps");

#define COPY(room)                                                                                 \
	do {                                                                                       \
		struct trace_record *record =                                                      \
			bpf_ringbuf_reserve(ring, sizeof(struct trace_record) + (room), 0);        \
		__u64 bytes;                                                                       \
                                                                                                   \
		if (!record)                                                                       \
			goto full;                                                                 \
		record->frame.timestamp = timestamps ? bpf_ktime_get_tai_ns() : 0;                 \
		record->frame.wire_len = wire_len;                                                 \
		record->frame.len = len;                                                           \
		record->frame.ifindex = ifindex;                                                   \
		record->frame.queue = xdp->rxq->queue_index;                                       \
		record->frame.traced = point;                                                      \
		record->place = *number;                                                           \
		record->code = verdict;                                                            \
		record->reserved = 0;                                                              \
		bytes = bounded(len);                                                              \
		if (bytes > (room) || bpf_probe_read_kernel(record + 1, bytes, data)) {            \
			bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);                             \
			goto fault;                                                                \
		}                                                                                  \
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);                                      \
	} while (0)

static __attribute__((always_inline)) int copy(struct xdp_buff *xdp, __u16 point, __u32 verdict)
{
	const struct net_device *device = xdp->rxq->dev;
	void *data = xdp->data;
	__u32 linear = xdp->data_end - data;
	__u32 zero = 0, index = ring_index(0), slot = 2 * bpf_get_smp_processor_id() + (point == TRACED_EXIT);
	struct trace_counters *counts = bpf_map_lookup_elem(&counters, &zero);
	struct tee_reader *state = bpf_map_lookup_elem(&readers, &index);
	void *ring = bpf_map_lookup_elem(&rings, &index);
	__u64 *number = bpf_map_lookup_elem(&numbers, &zero);
	__u32 wire_len, len;

	if (!counts || !state || !ring || !number)
		return 0;
	/* A program can be attached to several interfaces. */
	if (device->ifindex != ifindex || netns_of(device) != netns) {
		counts->elsewhere++;
		return 0;
	}
	if (point == TRACED_ENTRY || !entry_numbers)
		*number = (*number + 1) | (__u64)bpf_get_smp_processor_id() << 48;
	if (*(volatile __u32 *)&state->stop) {
		counts->late++;
		return 0;
	}
	wire_len = bpf_xdp_get_buff_len((struct xdp_md *)xdp);
	if (has_filter()) {
		void *head = bpf_map_lookup_elem(&heads, &slot);
		__u64 bytes = linear < head_len ? linear : head_len;

		/* The verifier follows the register that it is compared in. */
		asm volatile("" : "+r"(bytes));
		if (!head || bytes > head_len || bpf_probe_read_kernel(head, bytes, data))
			goto fault;
		if (!filter(head, (void *)(long)bytes, wire_len)) {
			counts->unmatched++;
			return 0;
		}
	}
	len = linear < snaplen ? linear : snaplen;
	COPY_BY_SIZE(len);
	counts->captured++;
	if (wire_len > linear && snaplen > linear)
		counts->cut++;
	if (*(volatile __u32 *)&state->waiting)
		wake_reader(ring, state);
	return 0;
full:
	counts->full++;
	return 0;
fault:
	counts->faults++;
	return 0;
}

SEC("fentry")
int trace_entry(unsigned long long *ctx)
{
	return copy((struct xdp_buff *)ctx[0], TRACED_ENTRY, 0);
}

SEC("fexit")
int trace_exit(unsigned long long *ctx)
{
	return copy((struct xdp_buff *)ctx[0], TRACED_EXIT, ctx[1]);
}
