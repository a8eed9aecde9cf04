// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The TC datapath, at the ingress hook of every port, before all other programs there. It sends a packet of a known
 * session as XDP does, but as an skb: by `bpf_redirect` through `dev_queue_xmit` of the output interface. So egress
 * filters and qdisc see the packet, a super-packet stays whole, a partial checksum stays partial, and interfaces
 * need no native XDP and no Ethernet. Routing, netfilter and conntrack are skipped. Every other packet is marked
 * (ingress.h) and goes on. */

#include "checksum.h"
#include "ct_lookup.h"
#include "kernel.h"
#include "ingress.h"
#include "rewrite.h"
#include "slow_path.h"
#include "tc.h"

#define KERNEL_CHECKSUM_NONE 0 /* sk_buff.ip_summed */
#define KERNEL_CHECKSUM_COMPLETE 2

#define REDIRECT 7 /* TC_ACT_REDIRECT */

/* What the TC datapath does beside `struct action`. */
struct tc_output {
	__u32 ifindex;
	__u32 mark;
	__u32 priority;
};

/* Beside the stack, which is too small. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct action);
} tc_action SEC(".maps");

/* Removes the tags of the frame and adds those of the session; 0 when memory is short. */
static __always_inline int retag(struct __sk_buff *skb, __u32 in_frame, const struct action *action)
{
	__u32 tags = action->tag_bytes / VLAN_HLEN;

	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return 0;
	/* The kernel moved the next tag beside the frame. */
	if (in_frame && bpf_skb_vlan_pop(skb))
		return 0;
	if (tags == 2 && bpf_skb_vlan_push(skb, (__u16)(action->tags >> 32),
					   bpf_ntohs((__u16)(action->tags >> 48))))
		return 0;
	return !tags || !bpf_skb_vlan_push(skb, (__u16)action->tags,
					   bpf_ntohs((__u16)(action->tags >> 16)));
}

/* Of what a session may change in a packet whose whole sum the kernel knows (CHECKSUM_COMPLETE): IP header, ports and
 * transport checksum. */
static __always_inline __u64 headers_sum(const void *network, int is_ipv4, int is_tcp)
{
	const void *transport = network + (is_ipv4 ? IPV4_LEN : IPV6_LEN);
	__u64 sum = load32(transport) + (__u64)load16(transport + (is_tcp ? 16 : 6));

#pragma clang loop unroll(full)
	for (__u32 i = 0; i < IPV4_LEN; i += 4)
		sum += load32(network + i);
	if (!is_ipv4) {
#pragma clang loop unroll(full)
		for (__u32 i = IPV4_LEN; i < IPV6_LEN; i += 4)
			sum += load32(network + i);
	}
	return sum;
}

/* REDIRECT or DROP; 0 for a packet without a session of TC; -REASON_*, which takes the slow path of a packet that XDP left
 * to TC; or -OUTDATED and the slot in *outdated. Global, so that the verifier checks it once. */
__noinline int forward_skb(struct __sk_buff *skb, __u32 *outdated)
{
	struct sk_buff *kernel = kernel_skb(skb);
	void *data, *end, *network;
	__u32 zero = 0;
	struct action *action = bpf_map_lookup_elem(&tc_action, &zero);
	struct tc_output to;
	struct packet packet;
	struct match match;
	struct wire wire;
	struct hit hit;
	__u32 is_ipv4, is_tcp, summed, has_mac;
	__u64 hash, before = 0;

	if (!kernel || !action || daemon_timed_out())
		return 0;
	has_mac = kernel->mac_len != 0;
	pull_headers(skb);
	if (parse_once(skb, has_mac) != PARSE_OK)
		return 0;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (!take_parsed(data, &packet))
		return 0;
	is_ipv4 = (packet.kind & KIND_FAMILY) == KIND_IPV4;
	/* parse_once() has checked this, but the verifier has forgotten. */
	if (packet.network + (is_ipv4 ? IPV4_LEN : IPV6_LEN) > end || data + 8 > end)
		return 0;
	is_tcp = packet.kind & KIND_TCP;
	match.addresses = is_ipv4 ? packet.addresses : session_signature(packet.network + 8);
	match.ports = packet.ports | MATCH_KIND(packet.kind, packet.tos & 0xfc);
	match.dst_mac = has_mac ? load64(data) : 0;
	match.link = skb->ifindex | (__u64)packet.tags << 32;
	hash = tuple_hash(match.addresses, packet.ports, packet.kind);
	if (!find_valid(&match, hash, !is_ipv4, &hit))
		return is_outdated(&hit, outdated) ? -OUTDATED : 0;
	if (!(hit.hop->flags & SESSION_TC))
		return 0;
	if ((__s32)((__u32)bpf_jiffies64() - hit.session->deadline) > 0)
		return -REASON_REVALIDATE;
	measure_wire(skb, &packet, end, &wire);
	if (wire.longest > hit.hop->mtu)
		return -REASON_TOO_BIG;
	if (!take_action(hit.session, hit.hop, hit.addresses, &packet, action))
		return 0;
	to.ifindex = hit.hop->out_ifindex;
	to.mark = hit.hop->mark;
	to.priority = hit.hop->priority;
	session_barrier();
	if ((hit.version & 1) || READ_ONCE(hit.session->version) != hit.version)
		return -REASON_BUSY;
	summed = BPF_CORE_READ_BITFIELD(kernel, ip_summed);
	if ((action->flags & SESSION_VERIFY_CHECKSUM) &&
	    (summed == KERNEL_CHECKSUM_NONE || summed == KERNEL_CHECKSUM_COMPLETE) &&
	    !has_right_checksum(skb, 0, &packet, data, end))
		return -REASON_CHECKSUM;
	if ((action->flags & SESSION_UNREPORTED) && !connection_remains(skb, 0, &packet, slot_of(hit.session))) {
		session_end(hit.session, 0);
		return -REASON_UNKNOWN;
	}

	/* The kernel adds an Ethernet header to at most 16 KiB (SKB_MAX_ALLOC); GRO builds more. */
	if (!has_mac && (action->macs | action->macs_end)) {
		if (bpf_skb_change_head(skb, ETHERNET_LEN, 0))
			return -REASON_NO_HEADROOM;
		has_mac = 1;
		data = (void *)(long)skb->data;
		if (data + ETHERNET_LEN > (void *)(long)skb->data_end)
			return DROP;
		*(__u16 *)(data + 12) = is_ipv4 ? RAW_IPV4 : RAW_IPV6;
	}

	/* From here on the packet changes. What fails for want of memory loses it, as anywhere in the kernel. */
	if (packet.padding && bpf_skb_change_tail(skb, skb->len - packet.padding, 0))
		return DROP;
	if ((packet.kind >> KIND_OUTER_VLAN_SHIFT || action->tag_bytes) &&
	    !retag(skb, packet.tag_bytes, action))
		return DROP;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	network = data;
	if (has_mac) {
		if (data + ETHERNET_LEN > end)
			return DROP;
		*(__u64 *)data = action->macs;
		*(__u32 *)(data + 8) = action->macs_end;
		network += action->tag_bytes > VLAN_HLEN ? ETHERNET_LEN + VLAN_HLEN : ETHERNET_LEN;
	}
	if (network + (is_ipv4 ? IPV4_LEN : IPV6_LEN) + (is_tcp ? 20 : 8) > end)
		return DROP;
	if (summed == KERNEL_CHECKSUM_COMPLETE)
		before = headers_sum(network, is_ipv4, is_tcp);
	if (summed == KERNEL_CHECKSUM_PARTIAL && (action->flags & SESSION_NAT))
		action->transport_delta = partial_delta(network, action, is_ipv4);
	if (is_ipv4)
		rewrite_ipv4(network, &packet, action, summed == KERNEL_CHECKSUM_PARTIAL);
	else
		rewrite_ipv6(network, &packet, action, summed == KERNEL_CHECKSUM_PARTIAL);
	if (summed == KERNEL_CHECKSUM_COMPLETE)
		bpf_csum_update(skb, fold(headers_sum(network, is_ipv4, is_tcp) + (__u16)~fold(before)));
	skb->mark = to.mark;
	skb->priority = to.priority;
	skb->tc_index = TC_INDEX_DONE;
	session_count(&hit, wire.packets, wire.bytes);
	return bpf_redirect(to.ifindex, 0);
}

/* slow_path(), where XDP is not on the interface or left the packet to TC. */
__noinline int slow_path_skb(struct __sk_buff *skb, __u32 reason, __u32 has_ethernet)
{
	__u32 generation = READ_ONCE(control.generation);
	__u32 zero = 0, parsed = parse_once(skb, has_ethernet);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct frame *frame = bpf_map_lookup_elem(&scratch, &zero);
	struct sk_buff *kernel = kernel_skb(skb);
	struct packet packet;

	session_barrier();
	if (!frame || !take_parsed(data, &packet))
		return NEXT;
	inspect(&packet, has_ethernet && data + ETHERNET_LEN <= end ? load64(data) : 0, end, skb->ifindex,
		frame);
	if (kernel && BPF_CORE_READ_BITFIELD(kernel, ip_summed) == KERNEL_CHECKSUM_PARTIAL)
		frame->partial = CANDIDATE_PARTIAL;
	if (!reason)
		reason = daemon_timed_out() ? REASON_NO_DAEMON : parsed ?: REASON_UNKNOWN;
	return leave_to_kernel(frame, reason, generation) ? DROP : NEXT;
}

SEC("tcx/ingress")
int forward_tc(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, outdated = 0;
	const struct ingress_meta *below = skb->tc_index ? ingress_meta_get(skb->tc_index) : NULL;
	struct interface *interface;
	int verdict;

	/* A port below this one has seen it: its session, if there is one, is of that port. */
	if (below && is_upper_device(ifindex, below->ifindex))
		return NEXT;
	verdict = forward_skb(skb, &outdated);
	if (verdict == -OUTDATED && session_reroute_skb(skb, outdated))
		verdict = forward_skb(skb, &outdated);
	/* Or routes have changed once more. */
	if (verdict == -OUTDATED)
		verdict = 0;
	if (verdict > 0)
		return verdict;
	interface = bpf_map_lookup_elem(&interfaces, &ifindex);
	if (!interface) {
		skb->tc_index = 0;
		return NEXT;
	}
	if ((verdict || !(interface->flags & INTERFACE_XDP)) &&
	    slow_path_skb(skb, -verdict, interface->flags & INTERFACE_ETHERNET) == DROP)
		return DROP;
	skb->tc_index = ingress_number(skb, interface);
	return NEXT;
}
