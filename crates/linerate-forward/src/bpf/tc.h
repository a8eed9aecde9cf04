/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the programs at the tc hooks share. */
#ifndef LINERATE_TC_H
#define LINERATE_TC_H

#include "parse.h"
#include "table.h"

#define NEXT (-1) /* TCX_NEXT, and TC_ACT_UNSPEC of clsact: the next program decides */
#define DROP 2	  /* TCX_DROP, TC_ACT_SHOT */

/* __sk_buff.tc_index of a packet that `learn` need not look at (any more). No number of ingress metadata. */
#define TC_INDEX_DONE 0xffff

#define PROBE_LEN (ETHERNET_LEN + 2 * VLAN_HLEN + IPV6_LEN + 20) /* headers that have to be at hand */

/* Puts all headers into the linear part. What points into the packet is invalid afterwards. */
static __always_inline void pull_headers(struct __sk_buff *skb)
{
	__u32 linear = skb->data_end - skb->data;

	if (linear < PROBE_LEN && skb->len > linear)
		bpf_skb_pull_data(skb, skb->len < PROBE_LEN ? skb->len : PROBE_LEN);
}

/* As parse_link(), where the outer tag may be beside the frame, or there is no Ethernet header. */
static __always_inline __u32 parse_skb_link(const struct __sk_buff *skb, void *data, void *end,
					    int has_ethernet, struct packet *packet, __u32 *type)
{
	__u32 outer, reason;

	if (!has_ethernet) {
		packet->network = data;
		packet->tags = 0;
		packet->kind = 0;
		packet->tag_bytes = 0;
		*type = (__u16)skb->protocol;
		return *type == RAW_IPV4 || *type == RAW_IPV6 ? PARSE_OK : REASON_NOT_IP;
	}
	reason = parse_link(data, end, packet, type);
	if (reason != PARSE_OK || !skb->vlan_present)
		return reason;
	outer = tag_kind((__u16)skb->vlan_proto);
	if (!outer || packet->tag_bytes > VLAN_HLEN)
		return REASON_TAGS;
	packet->kind = outer << KIND_OUTER_VLAN_SHIFT |
		       packet->kind >> KIND_OUTER_VLAN_SHIFT << KIND_INNER_VLAN_SHIFT;
	packet->tags = bpf_htons(skb->vlan_tci) | packet->tags << 16;
	return PARSE_OK;
}

static __always_inline __u32 parse_skb(const struct __sk_buff *skb, void *data, void *end,
				       int has_ethernet, struct packet *packet)
{
	__u32 type, reason = parse_skb_link(skb, data, end, has_ethernet, packet, &type);

	if (reason != PARSE_OK)
		return reason;
	return parse_network(type, end, skb->len - (__u32)(packet->network - data), packet);
}

/* What parse_once() found; `network` is an offset. The verifier forgets the values of what it reads from a map: it
 * follows the rest of the program once, and not once for each path through parse_skb(). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet);
} parsed SEC(".maps");

/* Parses the packet into `parsed`. Global, so that the verifier checks it once. */
__noinline int parse_once(struct __sk_buff *skb, __u32 has_ethernet)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 zero = 0, reason;
	struct packet *result = bpf_map_lookup_elem(&parsed, &zero);
	struct packet packet = {};

	if (!result)
		return REASON_SHORT;
	reason = parse_skb(skb, data, end, has_ethernet, &packet);
	packet.network = (void *)(packet.network ? packet.network - data : 0);
	*result = packet;
	return reason;
}

/* The result of parse_once() for the packet that begins at `data`; 0 where there is none. */
static __always_inline int take_parsed(void *data, struct packet *packet)
{
	__u32 zero = 0;
	const struct packet *result = bpf_map_lookup_elem(&parsed, &zero);
	__u64 offset;

	if (!result)
		return 0;
	offset = (__u64)result->network;
	if (offset > ETHERNET_LEN + 2 * VLAN_HLEN)
		return 0;
	CHECKED(offset);
	*packet = *result;
	packet->network = data + offset;
	return 1;
}

/* A packet on the wire, where a super-packet is several. */
struct wire {
	__u32 packets;
	__u32 bytes;   /* of these together, without link layer */
	__u32 longest; /* IP packet among them */
};

static __always_inline void measure_wire(const struct __sk_buff *skb, const struct packet *packet,
					 const void *end, struct wire *wire)
{
	__u32 network = (packet->kind & KIND_FAMILY) == KIND_IPV4 ? IPV4_LEN : IPV6_LEN;
	const void *transport = packet->network + network;
	__u32 headers = network + 8, size = skb->gso_size;

	wire->packets = 1;
	wire->bytes = packet->length;
	wire->longest = packet->length;
	if (!size)
		return;
	if (packet->kind & KIND_TCP)
		headers += transport + 14 > end ? 12 : ((load16(transport + 12) & 0xf0) >> 2) - 8;
	if (packet->length <= headers + size)
		return;
	wire->packets = (packet->length - headers + size - 1) / size;
	wire->bytes += (wire->packets - 1) * headers;
	wire->longest = headers + size;
}

#endif
