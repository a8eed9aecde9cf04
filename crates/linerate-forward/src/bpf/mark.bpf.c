// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The program at the ingress hook of every port, before all others there: records how the packet arrived, for
 * `learn` to read when it leaves. */

#include "ingress_meta.h"
#include "parse.h"
#include "tc.h"

/* The number of this packet's ingress metadata; 0 if it is not an IP packet addressed to this machine. The
 * kernel has already moved the outer tag from the frame into the skb. */
static __always_inline __u32 ingress_number(const struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ingress_meta meta = {};
	struct packet packet;
	__u32 type, ifindex = skb->ifindex;
	struct interface *interface;

	if (parse_link(data, end, &packet, &type) != PARSE_OK || packet.network + 2 > end)
		return 0;
	interface = bpf_map_lookup_elem(&interfaces, &ifindex);
	if (!interface || *(__u32 *)interface->mac != load32(data) ||
	    *(__u16 *)(interface->mac + 4) != load16(data + 4))
		return 0;
	if (skb->vlan_present) {
		__u32 outer = tag_kind((__u16)skb->vlan_proto);

		if (!outer || packet.tag_bytes > VLAN_HLEN)
			return 0;
		packet.kind = outer << KIND_OUTER_VLAN_SHIFT |
			      packet.kind >> KIND_OUTER_VLAN_SHIFT << KIND_INNER_VLAN_SHIFT;
		packet.tags = bpf_htons(skb->vlan_tci) | packet.tags << 16;
	}
	meta.generation = READ_ONCE(control.generation);
	meta.route_generation = READ_ONCE(control.route_generation_marked);
	meta.ifindex = ifindex;
	*(__u32 *)meta.tag = packet.tags;
	meta.kind = packet.kind;
	meta.tos = type == RAW_IPV4 ? load16(packet.network) >> 8
				       : bpf_ntohs(load16(packet.network)) >> 4;
	return ingress_meta_number(&meta);
}

SEC("tcx/ingress")
int mark(struct __sk_buff *skb)
{
	skb->tc_index = ingress_number(skb);
	return NEXT;
}
