// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The shortest XDP program that feeds an AF_XDP socket. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int xdp_loop(struct xdp_md *context)
{
	return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}
