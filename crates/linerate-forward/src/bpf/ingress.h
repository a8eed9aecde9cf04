/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Writes down how a packet came in, for `learn` to read when it leaves. */
#ifndef LINERATE_INGRESS_H
#define LINERATE_INGRESS_H

#include "ingress_meta.h"
#include "tc.h"

/* The number of this packet's ingress metadata; 0 for what is no IP packet addressed to this machine. The
 * kernel has already moved the outer tag from the frame into the skb. */
static __always_inline __u32 ingress_number(const struct __sk_buff *skb, const struct interface *interface)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	int has_ethernet = interface->flags & INTERFACE_ETHERNET;
	struct ingress_meta meta = {};
	struct packet packet;
	__u32 type;

	if (parse_skb_link(skb, data, end, has_ethernet, &packet, &type) != PARSE_OK ||
	    packet.network + 2 > end)
		return 0;
	if (has_ethernet && (data + 6 > end || *(__u32 *)interface->mac != load32(data) ||
			     *(__u16 *)(interface->mac + 4) != load16(data + 4)))
		return 0;
	meta.generation = READ_ONCE(control.generation);
	meta.route_generation = READ_ONCE(control.route_generation_marked);
	meta.ifindex = skb->ifindex;
	*(__u32 *)meta.tag = packet.tags;
	meta.kind = packet.kind;
	meta.tos = type == RAW_IPV4 ? load16(packet.network) >> 8
				       : bpf_ntohs(load16(packet.network)) >> 4;
	return ingress_meta_number(&meta);
}

#endif
