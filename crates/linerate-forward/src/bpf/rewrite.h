/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What forwarding changes in a packet. Checksums are updated incrementally (RFC 1624), never recomputed: a
 * delta in ones' complement, constant for a session, is added to the field. Results of 0xffff are stored as
 * 0, as Linux does; a UDP checksum of 0 means none and stays, and one that becomes 0 is sent as 0xffff (RFC
 * 768, `__udp_manip_pkt` in nf_nat_proto.c). */
#ifndef LINERATE_REWRITE_H
#define LINERATE_REWRITE_H

#include "parse.h"
#include "table.h"

/* Folds a sum below 2^48 to 16 bits. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* What replacing `before` by `after`, both raw, does to a checksum field: the sum of before, and the
 * complement of after, since the field is the complement of a sum. 0 to 0xfffe. */
static __always_inline __u16 delta16(__u16 before, __u16 after)
{
	__u16 delta = fold((__u64)before + (__u16)~after);

	return delta == 0xffff ? 0 : delta;
}

static __always_inline __u16 delta_add(__u16 a, __u16 b)
{
	__u16 sum = fold((__u64)a + b);

	return sum == 0xffff ? 0 : sum;
}

/* `len` bytes, even, constant. */
static __always_inline __u16 delta_bytes(const void *before, const void *after, __u32 len)
{
	const __u16 *from = before, *to = after;
	__u64 sum = 0;
	__u16 delta;

#pragma clang loop unroll(full)
	for (__u32 i = 0; i < len / 2; i++)
		sum += from[i] + (__u16)~to[i];
	delta = fold(sum);
	return delta == 0xffff ? 0 : delta;
}

/* session.network_delta of IPv4: TTL less one, TOS, addresses. */
static __always_inline __u16 network_delta(__u8 dscp_before, __u8 dscp_after,
					   const void *addresses_before, const void *addresses_after)
{
	__u16 delta = delta_bytes(addresses_before, addresses_after, 8);

	delta = delta_add(delta, delta16(dscp_before << 8, dscp_after << 8));
	return delta_add(delta, delta16(2, 1)); /* the TTL is the first byte of its word */
}

/* A checksum field with `delta` added: 0 to 0xfffe. */
static __always_inline __u16 csum_add(__u16 checksum, __u16 delta)
{
	__u32 sum = (__u32)checksum + delta;

	return sum + (sum >= 0xffff);
}

static __always_inline void csum_add_udp(__u16 *checksum, __u16 delta)
{
	if (*checksum) {
		__u16 after = csum_add(*checksum, delta);

		*checksum = after ? after : 0xffff;
	}
}

/* In hop.dscp to hop.port, as one word: tags, a checksum to verify, a connection that may have to be looked up, or TC. */
#define NOT_PLAIN_FLAGS                                                                             \
	(0xffu << 8 | (SESSION_VERIFY_CHECKSUM | SESSION_UNREPORTED | SESSION_TC) << 16)

/* What a session and its hop do to packets, read under an unchanged version. */
struct action {
	__u64 macs;	    /* destination, and two bytes of source */
	__u32 macs_end;	    /* the rest of source */
	__u32 port;
	__u32 dscp;
	__u32 network_delta;
	__u32 flags;
	__u32 tag_bytes;    /* 0, 4 or 8 */
	__u64 tags;	    /* as in the frame */
	__u64 addresses;    /* NAT: IPv4 */
	__u64 addresses6[4]; /* NAT: IPv6 */
	__u32 ports;	    /* NAT */
	__u32 transport_delta;
};

/* 0 when the IPv6 addresses differ from the session's. */
static __always_inline int take_action(const struct session *session, const struct hop *hop,
				       const struct addresses *addresses,
				       const struct packet *packet, struct action *action)
{
	action->port = hop->port;
	action->macs = load64(hop->destination_mac);
	action->macs_end = load32(hop->source_mac + 2);
	action->dscp = hop->dscp;
	action->network_delta = session->network_delta;
	action->flags = hop->flags;
	action->tag_bytes = hop->out_tags * VLAN_HLEN;
	if (action->tag_bytes)
		action->tags = load64(hop->out_tag);
	if (action->flags & SESSION_NAT) {
		action->ports = *(const __u32 *)&session->source_port;
		action->transport_delta = session->transport_delta;
		action->addresses = *(const __u64 *)&session->source;
	}
	if ((packet->kind & KIND_FAMILY) == KIND_IPV6) {
		if (!same_addresses(addresses, packet->network + 8))
			return 0;
		if (action->flags & SESSION_NAT)
			out_addresses(session, addresses, action->addresses6);
	}
	return 1;
}

/* Gives the frame its output length and tags: it removes padding, as `ip_rcv_core` and
 * `ip6_rcv_core` do, and makes room for the tags. Returns the IP header, or NULL when there is no
 * headroom; the frame has then changed only as the kernel itself would have changed it first. */
static __always_inline void *adjust_headers(struct xdp_md *context, const struct packet *packet,
				     const struct action *action)
{
	int longer = (int)action->tag_bytes - (int)packet->tag_bytes;
	__u32 is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4;
	__u16 type = is_ipv4 ? RAW_IPV4 : RAW_IPV6;
	void *data, *end, *network;

	if (packet->padding && bpf_xdp_adjust_tail(context, -(int)packet->padding))
		return NULL;
	if (longer && bpf_xdp_adjust_head(context, -longer))
		return NULL;
	data = frame_start(context);
	end = frame_end(context);
	/* Three cases, so that the verifier sees constants. */
	if (action->tag_bytes == 0)
		network = data + ETHERNET_LEN;
	else if (action->tag_bytes == VLAN_HLEN)
		network = data + ETHERNET_LEN + VLAN_HLEN;
	else
		network = data + ETHERNET_LEN + 2 * VLAN_HLEN;
	/* parse() has checked this, but the verifier has forgotten. */
	if (is_ipv4 && (network + IPV4_LEN + 8 > end ||
			((packet->kind & KIND_TCP) && network + IPV4_LEN + 20 > end)))
		return NULL;
	if (!is_ipv4 && (network + IPV6_LEN + 8 > end ||
			 ((packet->kind & KIND_TCP) && network + IPV6_LEN + 20 > end)))
		return NULL;
	if (action->tag_bytes == 0) {
		*(__u16 *)(data + 12) = type;
	} else if (action->tag_bytes == VLAN_HLEN) {
		*(__u32 *)(data + 12) = action->tags;
		*(__u16 *)(data + 16) = type;
	} else {
		*(__u64 *)(data + 12) = action->tags;
		*(__u16 *)(data + 20) = type;
	}
	return network;
}

/* Ports and checksum of the transport header. A partial checksum is a sum of the pseudo-header alone, without
 * complement; `transport_delta` is then of that (partial_delta()). */
static __always_inline void nat_transport(void *transport, __u32 is_tcp, __u32 ports, __u16 delta,
					  int partial)
{
	__u16 *checksum = transport + (is_tcp ? 16 : 6);

	*(__u32 *)transport = ports;
	if (is_tcp || partial)
		*checksum = csum_add(*checksum, delta);
	else
		csum_add_udp(checksum, delta);
}

/* What the addresses of `action` do to the partial checksum of the packet with this IP header. */
static __always_inline __u16 partial_delta(const void *header, const struct action *action, int is_ipv4)
{
	__u16 delta = is_ipv4 ? delta_bytes(header + 12, &action->addresses, 8)
			      : delta_bytes(header + 8, action->addresses6, 32);

	return ~delta;
}

static __always_inline void rewrite_ipv4(void *header, const struct packet *packet,
					 const struct action *action, int partial)
{
	*(__u8 *)(header + 1) = action->dscp | (packet->tos & 3);
	*(__u32 *)(header + 8) =
		((packet->ttl_proto_csum - 1) & 0xffff) |
		(__u32)csum_add(packet->ttl_proto_csum >> 16, action->network_delta) << 16;
	if (action->flags & SESSION_NAT) {
		*(__u64 *)(header + 12) = action->addresses;
		nat_transport(header + IPV4_LEN, packet->kind & KIND_TCP, action->ports,
			      action->transport_delta, partial);
	}
}

static __always_inline void rewrite_ipv6(void *header, const struct packet *packet,
					 const struct action *action, int partial)
{
	__u32 second = *(__u8 *)(header + 1);

	*(__u16 *)header = 0x60 | action->dscp >> 4 |
			   ((second & 0x3f) | (action->dscp << 4 & 0xc0)) << 8;
	*(__u8 *)(header + 7) = packet->ttl - 1;
	if (action->flags & SESSION_NAT) {
		__builtin_memcpy(header + 8, action->addresses6, 32);
		nat_transport(header + IPV6_LEN, packet->kind & KIND_TCP, action->ports,
			      action->transport_delta, partial);
	}
}

#endif
