// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The end of what a router sends: counts what arrives by where and how it arrives, and drops it. */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct way {
	__u32 ifindex;
	__u32 source; /* IPv4, or the end of IPv6; raw */
	__be16 source_port;
	__u8 to[6];
	__u8 from[6];
	__u16 length;
};
_Static_assert(sizeof(struct way) == 24, "shared with Rust");

struct arrived {
	__u64 packets;
	__u64 last;   /* CLOCK_MONOTONIC of the last, nanoseconds */
	__u64 newest; /* latest time that the generator wrote into one */
};
_Static_assert(sizeof(struct arrived) == 24, "shared with Rust");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct way);
	__type(value, struct arrived);
} arrivals SEC(".maps");

/* Of frames that a generator made: without options and tags. */
SEC("xdp")
int sink(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	struct way way = { .ifindex = context->ingress_ifindex };
	struct arrived *arrived, none = {};
	__u64 newest = 0;
	struct udphdr *udp;

	if (data + sizeof(*ethernet) > end)
		return XDP_DROP;
	__builtin_memcpy(way.to, ethernet->h_dest, 6);
	__builtin_memcpy(way.from, ethernet->h_source, 6);
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data + sizeof(*ethernet);

		if ((void *)(ip + 1) > end)
			return XDP_DROP;
		way.source = ip->saddr;
		way.length = bpf_ntohs(ip->tot_len);
		udp = (void *)(ip + 1);
	} else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data + sizeof(*ethernet);

		if ((void *)(ip + 1) > end)
			return XDP_DROP;
		way.source = ip->saddr.in6_u.u6_addr32[3];
		way.length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
		udp = (void *)(ip + 1);
	} else {
		return XDP_DROP;
	}
	if ((void *)(udp + 1) + 20 <= end && *(__u32 *)(udp + 1) == bpf_htonl(0x4c4e5254)) {
		way.source_port = udp->source;
		newest = bpf_be64_to_cpu(*(__u64 *)((void *)(udp + 1) + 12));
	}
	arrived = bpf_map_lookup_elem(&arrivals, &way);
	if (!arrived) {
		bpf_map_update_elem(&arrivals, &way, &none, BPF_NOEXIST);
		arrived = bpf_map_lookup_elem(&arrivals, &way);
		if (!arrived)
			return XDP_DROP;
	}
	__sync_fetch_and_add(&arrived->packets, 1);
	arrived->last = bpf_ktime_get_ns();
	if (newest > arrived->newest)
		arrived->newest = newest;
	return XDP_DROP;
}

/* Where there are too many sources to tell them apart: a count for each interface. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

SEC("xdp")
int count(struct xdp_md *context)
{
	__u32 index = context->ingress_ifindex;
	__u64 *packets = bpf_map_lookup_elem(&counts, &index);

	if (packets)
		__sync_fetch_and_add(packets, 1);
	return XDP_DROP;
}

/* Lets everything through: a veth takes redirected frames only when its peer has a program. */
SEC("xdp.frags")
int pass(struct xdp_md *context)
{
	return XDP_PASS;
}
