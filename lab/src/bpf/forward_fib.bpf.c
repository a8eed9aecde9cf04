// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The stateless rival: every packet asks the kernel's routing and neighbour tables (bpf_fib_lookup). The
 * same parsing, and the same frames left to the kernel as in the accelerator. No sessions, and so no NAT, no
 * firewall and no VLAN tags, since a tag stands for a device of its own. */

#include "rewrite.h"
#include "slow_path.h"
#include "heartbeat.bpf.c"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

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

	return interface && *(__u32 *)interface->mac == load32(data) &&
	       *(__u16 *)(interface->mac + 4) == load16(data + 4);
}

SEC("xdp")
int forward(struct xdp_md *context)
{
	__u32 beyond = beyond_first(context);
	void *data = frame_start(context), *end = frame_end(context);
	struct bpf_fib_lookup query = {};
	struct action action = {};
	struct packet packet;
	__u32 reason, is_ipv4;
	void *network;
	long answer;

	if (daemon_timed_out()) {
		count_reason(REASON_NO_DAEMON);
		return XDP_PASS;
	}
	reason = parse(data, end, beyond, &packet);
	if (reason != PARSE_OK)
		return slow_path(context, reason, beyond);
	if (packet.tag_bytes)
		return slow_path(context, REASON_UNKNOWN, beyond);
	if (!is_addressed_to(data, context->ingress_ifindex))
		return slow_path(context, REASON_UNKNOWN, beyond);

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
		query.flowinfo = load32(network) & bpf_htonl(0x0fffffff);
		__builtin_memcpy(query.ipv6_src, network + 8, 32);
	}
	answer = bpf_fib_lookup(context, &query, sizeof(query), 0);
	if (answer != BPF_FIB_LKUP_RET_SUCCESS)
		return slow_path(context, answer == BPF_FIB_LKUP_RET_FRAG_NEEDED ? REASON_TOO_BIG
									  : REASON_UNKNOWN, beyond);
	if (bpf_redirect_map(&exits, query.ifindex, XDP_PASS) != XDP_REDIRECT)
		return slow_path(context, REASON_NO_PORT, beyond);

	if (packet.padding) {
		network = adjust_headers(context, &packet, &action);
		if (!network)
			return slow_path(context, REASON_NO_HEADROOM, beyond);
		data = frame_start(context);
		if (data + ETHERNET_LEN > frame_end(context))
			return slow_path(context, REASON_NO_HEADROOM, beyond);
	}
	__builtin_memcpy(data, query.dmac, 6);
	__builtin_memcpy(data + 6, query.smac, 6);
	action.dscp = packet.tos & 0xfc;
	action.network_delta = delta16(2, 1);
	if (is_ipv4)
		rewrite_ipv4(network, &packet, &action, 0);
	else
		rewrite_ipv6(network, &packet, &action, 0);
	return XDP_REDIRECT;
}
