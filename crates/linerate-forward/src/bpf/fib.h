/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The stateless rival (`--mode fib`): every packet asks the kernel's routing and neighbour tables. The
 * same parsing, and the same frames left to the kernel. No sessions, and so no NAT and no firewall; and
 * no VLAN tags, since a tag stands for an interface of its own. */
#ifndef LINERATE_FIB_H
#define LINERATE_FIB_H

#include "rewrite.h"
#include "slow.h"

#define FAMILY_IPV4 2 /* AF_INET and AF_INET6, which no header of the kernel's interface has */
#define FAMILY_IPV6 10

/* The ports again, by the ifindex that the look-up answers with. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, PORTS_MAX);
	__uint(key_size, 4);
	__uint(value_size, 4);
} exits SEC(".maps");

static __always_inline int is_addressed_to(const void *data, __u32 ifindex)
{
	struct interface *interface = bpf_map_lookup_elem(&interfaces, &ifindex);

	return interface && *(__u32 *)interface->mac == word32(data) &&
	       *(__u16 *)(interface->mac + 4) == word16(data + 4);
}

/* Whether the frame is denied, and then counted. There is no session that was checked when it was learned. */
__noinline int drops(struct xdp_md *context, __u32 beyond)
{
	__u32 zero = 0;
	struct seen *seen = bpf_map_lookup_elem(&scratch, &zero);

	if (!seen)
		return 0;
	look(frame_start(context), frame_end(context), beyond,
	     context->ingress_ifindex, seen);
	if (!denied(seen))
		return 0;
	count_reason(REASON_DENIED);
	return 1;
}

static __always_inline int fib_frame(struct xdp_md *context, __u32 beyond)
{
	void *data = frame_start(context), *end = frame_end(context);
	struct bpf_fib_lookup query = {};
	struct action action = {};
	struct packet packet;
	__u32 reason, is_ipv4;
	void *network;
	long answer;

	if (is_silent()) {
		count_reason(REASON_NO_DAEMON);
		return XDP_PASS;
	}
	reason = parse(data, end, beyond, &packet);
	if (reason != CLEAN)
		return leave(context, reason, beyond);
	if (READ_ONCE(control.denied) && drops(context, beyond))
		return XDP_DROP;
	if (packet.tag_bytes)
		return leave(context, REASON_NO_ROUTE, beyond);
	if (!is_addressed_to(data, context->ingress_ifindex))
		return leave(context, CLEAN, beyond);

	network = packet.network;
	is_ipv4 = (packet.kind & KIND_FAMILY) == KIND_IPV4;
	query.l4_protocol = packet.kind & KIND_TCP ? IPPROTO_TCP : IPPROTO_UDP;
	query.tot_len = packet.length;
	query.ifindex = context->ingress_ifindex;
	if (is_ipv4) {
		query.family = FAMILY_IPV4;
		query.tos = packet.tos;
		query.ipv4_src = (__u32)packet.addresses;
		query.ipv4_dst = packet.addresses >> 32;
	} else {
		query.family = FAMILY_IPV6;
		query.flowinfo = word32(network) & bpf_htonl(0x0fffffff);
		__builtin_memcpy(query.ipv6_src, network + 8, 32);
	}
	answer = bpf_fib_lookup(context, &query, sizeof(query), 0);
	if (answer != BPF_FIB_LKUP_RET_SUCCESS)
		return leave(context, answer == BPF_FIB_LKUP_RET_FRAG_NEEDED ? REASON_TOO_BIG
									  : REASON_NO_ROUTE, beyond);
	if (bpf_redirect_map(&exits, query.ifindex, XDP_PASS) != XDP_REDIRECT)
		return leave(context, REASON_NO_PORT, beyond);

	if (packet.excess) {
		network = reshape(context, &packet, &action);
		if (!network)
			return leave(context, REASON_NO_ROOM, beyond);
		data = frame_start(context);
		if (data + ETHERNET_LEN > frame_end(context))
			return leave(context, REASON_NO_ROOM, beyond);
	}
	__builtin_memcpy(data, query.dmac, 6);
	__builtin_memcpy(data + 6, query.smac, 6);
	action.dscp = packet.tos & 0xfc;
	action.network_delta = delta16(2, 1);
	if (is_ipv4)
		rewrite_ipv4(network, &packet, &action);
	else
		rewrite_ipv6(network, &packet, &action);
	return XDP_REDIRECT;
}

#endif
