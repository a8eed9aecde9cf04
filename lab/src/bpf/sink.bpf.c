// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The veth peer in an experiment that captures nothing: counts every frame and drops it, so that the
 * cost of sending and delivery can be subtracted from the cost of a capture. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "sink.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sink_count);
} counts SEC(".maps");

SEC("xdp.frags")
int sink(struct xdp_md *context)
{
	__u32 key = 0;
	struct sink_count *count = bpf_map_lookup_elem(&counts, &key);

	if (count) {
		count->frames++;
		count->bytes += context->data_end - context->data;
	}
	return XDP_DROP;
}
