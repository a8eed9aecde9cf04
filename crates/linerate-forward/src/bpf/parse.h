/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* From the first byte of a frame to a session key.
 *
 * A frame is accepted if Linux would look up a route for it: complete, with a correct IPv4 header checksum,
 * no options, no fragment, a TTL above 1, TCP or UDP with lengths that connection tracking accepts
 * (`tcp_error` and `udp_error` in nf_conntrack_proto_*.c). Loads are as wide as possible: for a frame in the
 * cache that is cheapest. */
#ifndef LINERATE_PARSE_H
#define LINERATE_PARSE_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"
#include "reasons.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are taken apart as little-endian");

#define RAW_IPV4 0x0008 /* ethertypes as a little-endian machine loads them */
#define RAW_IPV6 0xdd86
#define RAW_8021Q 0x0081
#define RAW_8021AD 0xa888

#define ETHERNET_LEN 14
#define VLAN_HLEN 4
#define IPV4_LEN 20
#define IPV6_LEN 40

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* Version 4, a header of five words, no fragment: in the first eight bytes of an IPv4 header. */
#define IPV4_PLAIN_MASK 0xff3f0000000000ffULL
#define IPV4_PLAIN 0x45

static __always_inline __u64 load64(const void *at)
{
	return *(const __u64 *)at;
}

static __always_inline __u32 load32(const void *at)
{
	return *(const __u32 *)at;
}

static __always_inline __u16 load16(const void *at)
{
	return *(const __u16 *)at;
}

/* The bounds of a frame's first buffer. In assembly, since the compiler sees 32-bit members and would
 * copy them as such, and the verifier would no longer know that they are pointers. */
static __always_inline void *frame_start(struct xdp_md *context)
{
	void *start;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(start)
		     : "r"(context), "i"(__builtin_offsetof(struct xdp_md, data)));
	return start;
}

static __always_inline void *frame_end(struct xdp_md *context)
{
	void *end;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(end)
		     : "r"(context), "i"(__builtin_offsetof(struct xdp_md, data_end)));
	return end;
}

/* A packet that begins or ends a connection. */
static __always_inline int is_end(__u32 reason)
{
	return reason == REASON_SYN || reason == REASON_FIN || reason == REASON_RST;
}

/* What parse() found. The words are those of session_key. */
struct packet {
	void *network;	  /* first byte of the IP header */
	__u64 addresses;  /* IPv4 */
	__u32 ports;
	__u32 tags;	  /* TCIs */
	__u32 kind;
	__u32 tag_bytes;  /* 0, 4 or 8 */
	__u32 length;	  /* of the IP packet, header included */
	__u32 tos;	  /* TOS or traffic class, ECN included */
	__u32 ttl;	  /* TTL or hop limit */
	__u32 ttl_proto_csum;	  /* IPv4: raw TTL, protocol, checksum */
	__u32 padding;	  /* bytes after the IP packet: padding */
};

static __always_inline __u32 tag_kind(__u32 type)
{
	return type == RAW_8021Q ? VLAN_8021Q : type == RAW_8021AD ? VLAN_8021AD : VLAN_NONE;
}

/* Ethernet and up to two tags; leaves the ethertype after them in *type. */
static __always_inline __u32 parse_link(void *data, void *end, struct packet *packet, __u32 *type)
{
	void *at = data + ETHERNET_LEN;
	__u32 tag;

	packet->tags = 0;
	packet->kind = 0;
	packet->tag_bytes = 0;
	if (at > end)
		return REASON_SHORT;
	*type = load16(data + 12);
	if (*type != RAW_IPV4 && *type != RAW_IPV6) {
		tag = tag_kind(*type);
		if (!tag)
			return REASON_NOT_IP;
		if (at + VLAN_HLEN > end)
			return REASON_SHORT;
		packet->kind = tag << KIND_OUTER_VLAN_SHIFT;
		packet->tags = load16(at);
		packet->tag_bytes = VLAN_HLEN;
		*type = load16(at + 2);
		at += VLAN_HLEN;
		tag = tag_kind(*type);
		if (tag) {
			if (at + VLAN_HLEN > end)
				return REASON_SHORT;
			packet->kind |= tag << KIND_INNER_VLAN_SHIFT;
			packet->tags |= (__u32)load16(at) << 16;
			packet->tag_bytes = 2 * VLAN_HLEN;
			*type = load16(at + 2);
			at += VLAN_HLEN;
		}
		if (*type != RAW_IPV4 && *type != RAW_IPV6)
			return tag_kind(*type) ? REASON_TAGS : REASON_NOT_IP;
	}
	packet->network = at;
	return PARSE_OK;
}

/* The transport header, `length` bytes with its payload. */
static __always_inline __u32 parse_transport(void *transport, void *end, __u32 protocol,
					     __u32 length, struct packet *packet)
{
	if (transport + 8 > end || length < 8)
		return REASON_SHORT;
	packet->ports = load32(transport);
	if (protocol == IPPROTO_UDP) {
		__u32 udp_len = bpf_ntohs(load16(transport + 4));

		if (udp_len > length || udp_len < 8)
			return REASON_MALFORMED;
	} else {
		__u32 header, offset_and_flags;

		packet->kind |= KIND_TCP;
		if (transport + 20 > end || length < 20)
			return REASON_SHORT;
		offset_and_flags = load16(transport + 12);
		if ((offset_and_flags & ((TCP_SYN | TCP_FIN | TCP_RST | TCP_ACK) << 8)) !=
		    TCP_ACK << 8) {
			if (offset_and_flags & (TCP_SYN << 8))
				return REASON_SYN;
			if (offset_and_flags & (TCP_RST << 8))
				return REASON_RST;
			if (offset_and_flags & (TCP_FIN << 8))
				return REASON_FIN;
			return REASON_FLAGS;
		}
		header = (offset_and_flags & 0xf0) >> 2;
		if (header < 20 || header > length)
			return REASON_MALFORMED;
	}
	return PARSE_OK;
}

static __always_inline __u32 parse_ipv4(void *end, __u32 available, struct packet *packet)
{
	void *header = packet->network;
	__u64 first, sum;
	__u32 protocol;

	if (header + IPV4_LEN > end)
		return REASON_SHORT;
	first = load64(header);
	packet->ttl_proto_csum = load32(header + 8);
	packet->addresses = load64(header + 12);
	packet->length = bpf_ntohs((__u16)(first >> 16));
	packet->tos = (first >> 8) & 0xff;
	packet->ttl = packet->ttl_proto_csum & 0xff;
	packet->kind |= KIND_IPV4;
	if ((first & IPV4_PLAIN_MASK) != IPV4_PLAIN) {
		if ((first & 0xf0) != 0x40 || (first & 0x0f) < 5)
			return REASON_MALFORMED;
		if ((first & 0x0f) > 5)
			return REASON_OPTIONS;
		return REASON_FRAGMENT;
	}
	if (packet->length > available || packet->length < IPV4_LEN)
		return REASON_MALFORMED;
	/* The ones' complement sum of a correct header is a multiple of 0xffff, and never 0. */
	sum = (first & 0xffffffff) + (first >> 32) + packet->ttl_proto_csum +
	      (packet->addresses & 0xffffffff) + (packet->addresses >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if ((sum & 0xffff) + (sum >> 16) != 0xffff)
		return REASON_CHECKSUM;
	protocol = (packet->ttl_proto_csum >> 8) & 0xff;
	if (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)
		return REASON_PROTOCOL;
	if (packet->ttl <= 1)
		return REASON_TTL;
	packet->padding = available - packet->length;
	return parse_transport(header + IPV4_LEN, end, protocol, packet->length - IPV4_LEN, packet);
}

/* IPv6 headers that may precede the transport header (RFC 8200 and its successors). */
static __always_inline int is_extension(__u32 next)
{
	return next == 0 || next == 43 || next == 50 || next == 51 || next == 60 || next == 135 ||
	       next == 139 || next == 140 || next == 253 || next == 254;
}

static __always_inline __u32 parse_ipv6(void *end, __u32 available, struct packet *packet)
{
	void *header = packet->network;
	__u64 first;
	__u32 next;

	if (header + IPV6_LEN > end)
		return REASON_SHORT;
	first = load64(header);
	next = (first >> 48) & 0xff;
	packet->length = IPV6_LEN + bpf_ntohs((__u16)(first >> 32));
	packet->tos = ((first & 0x0f) << 4) | ((first >> 12) & 0x0f);
	packet->ttl = first >> 56;
	packet->kind |= KIND_IPV6;
	if ((first & 0xf0) != 0x60)
		return REASON_MALFORMED;
	if (packet->length > available)
		return REASON_MALFORMED;
	if (next != IPPROTO_UDP && next != IPPROTO_TCP)
		return next == 44 ? REASON_FRAGMENT
			: is_extension(next) ? REASON_EXTENSION : REASON_PROTOCOL;
	if (packet->ttl <= 1)
		return REASON_TTL;
	packet->padding = available - packet->length;
	return parse_transport(header + IPV6_LEN, end, next, packet->length - IPV6_LEN, packet);
}

/* The packet behind the link layer; `available` bytes from its first on. */
static __always_inline __u32 parse_network(__u32 type, void *end, __u32 available,
					   struct packet *packet)
{
	return type == RAW_IPV4 ? parse_ipv4(end, available, packet)
				: parse_ipv6(end, available, packet);
}

/* `beyond` is the number of bytes of the frame after `end`, in further buffers. */
static __always_inline __u32 parse(void *data, void *end, __u32 beyond, struct packet *packet)
{
	__u32 type, reason = parse_link(data, end, packet, &type);

	if (reason != PARSE_OK)
		return reason;
	return parse_network(type, end, (__u32)(end - packet->network) + beyond, packet);
}

#endif
