// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What others attach to the ports of a router. Each program counts the IP packets that it sees. */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Packets seen, and the interface to redirect to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} state SEC(".maps");

static __always_inline int is_ip(struct __sk_buff *skb)
{
	__u32 seen = 0;
	__u64 *count;

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return 0;
	count = bpf_map_lookup_elem(&state, &seen);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 1;
}

SEC("tc")
int count(struct __sk_buff *skb)
{
	is_ip(skb);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int drop(struct __sk_buff *skb)
{
	return is_ip(skb) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("tc")
int redirect(struct __sk_buff *skb)
{
	__u32 target = 1;
	__u64 *ifindex = bpf_map_lookup_elem(&state, &target);

	if (!ifindex || !is_ip(skb))
		return TC_ACT_UNSPEC;
	return bpf_redirect(*ifindex, 0);
}
