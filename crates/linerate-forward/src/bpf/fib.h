/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Whether a session is right after a change of routes or neighbours: bpf_fib_lookup() is asked for the route of its
 * packets. The session goes on if the answer has the interface and the MAC addresses of the session, and room for
 * its packets. The way back has to lead through the interface that its packets come in by: a filter of the reverse
 * path (rp_filter) then still accepts them.
 *
 * What bpf_fib_lookup() does not see: marks, the interface above a port that packets come in by (VLAN, bridge, VRF),
 * the MTU of a route, the flow label. Only a session that it answered rightly for when it was learned is asked for
 * again (SESSION_FIB), and only after a change that it does see (src/runtime/watch). After all others the
 * generation changes, and everything is learned again. */
#ifndef LINERATE_FIB_H
#define LINERATE_FIB_H

#include "parse.h"
#include "session_access.h"

#define FIB_IPV4 2 /* AF_INET */
#define FIB_IPV6 10 /* AF_INET6 */

/* A question about a session. Not on the stack, which is small; and what the verifier knows of a session it forgets
 * here, so that it looks at the answer once. */
struct fib_query {
	struct bpf_fib_lookup fib;
	struct addresses addresses; /* IPv6, as it comes in */
	__u64 out[4];		    /* and as it leaves: source and destination */
	__be32 source;		    /* IPv4, at ingress */
	__be32 destination;	    /* as it leaves */
	__be16 source_port;	    /* as it comes in */
	__be16 destination_port;    /* as it leaves */
	__u16 mtu;
	__u8 kind;
	__u8 dscp;
	__u32 ifindex;
	__u32 out_ifindex;
	__u32 macs[3]; /* destination and source */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fib_query);
} fib_queries SEC(".maps");

/* Asks for the route of a session's packets, or for that of packets back to where they come from. Routes are looked up
 * between the translations of destination and source. */
static __always_inline long fib_look_up(void *context, struct fib_query *query, int is_back)
{
	const struct addresses *addresses = &query->addresses;
	struct bpf_fib_lookup *fib = &query->fib;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->l4_protocol = query->kind & KIND_TCP ? IPPROTO_TCP : IPPROTO_UDP;
	fib->sport = is_back ? query->destination_port : query->source_port;
	fib->dport = is_back ? query->source_port : query->destination_port;
	fib->tot_len = IPV6_LEN; /* any: the answer then has the MTU */
	fib->ifindex = is_back ? query->out_ifindex : query->ifindex;
	if ((query->kind & KIND_FAMILY) == KIND_IPV4) {
		fib->family = FIB_IPV4;
		fib->tos = query->dscp;
		fib->ipv4_src = is_back ? query->destination : query->source;
		fib->ipv4_dst = is_back ? query->source : query->destination;
	} else {
		fib->family = FIB_IPV6;
		fib->flowinfo = bpf_htonl((__u32)query->dscp << 20);
		__builtin_memcpy(fib->ipv6_src, is_back ? (const void *)&query->out[2] : addresses->source, 16);
		__builtin_memcpy(fib->ipv6_dst, is_back ? addresses->source : (const void *)&query->out[2], 16);
	}
	return bpf_fib_lookup(context, fib, sizeof(*fib), 0);
}

static __always_inline int fib_agrees(void *context)
{
	__u32 zero = 0;
	struct fib_query *query = bpf_map_lookup_elem(&fib_queries, &zero);
	struct bpf_fib_lookup *fib;
	long answer;

	if (!query || fib_look_up(context, query, 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	fib = &query->fib;
	if (fib->ifindex != query->out_ifindex || fib->mtu_result < query->mtu ||
	    load32(fib->dmac) != query->macs[0] ||
	    (load16(fib->dmac + 4) | (__u32)load16(fib->smac) << 16) != query->macs[1] ||
	    load32(fib->smac + 2) != query->macs[2])
		return 0;
	answer = fib_look_up(context, query, 1);
	return (answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	       fib->ifindex == query->ifindex;
}

/* Whether the kernel's tables give what is in `fib_queries`. Global, so that the verifier looks at them once. */
__noinline int fib_agrees_xdp(struct xdp_md *context)
{
	return fib_agrees(context);
}

__noinline int fib_agrees_skb(struct __sk_buff *skb)
{
	return fib_agrees(skb);
}

/* Starts a route look-up for a session with this hop: the caller adds the
 * addresses and ports. NULL without memory. */
static __always_inline struct fib_query *fib_prepare(const struct hop *hop, __u32 kind, __u32 dscp)
{
	__u32 zero = 0;
	struct fib_query *query = bpf_map_lookup_elem(&fib_queries, &zero);

	if (!query)
		return NULL;
	query->kind = kind;
	query->dscp = dscp;
	query->mtu = hop->mtu;
	query->ifindex = hop->ifindex;
	query->out_ifindex = hop->out_ifindex;
	__builtin_memcpy(query->macs, hop->destination_mac, 12);
	return query;
}

#endif
