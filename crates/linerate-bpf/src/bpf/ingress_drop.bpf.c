// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Drops frames at the ingress of the host's stack. Packet sockets receive them before tcx does. Frames that
 * this host sends to the addresses are redirected from egress to ingress. */

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "addresses.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Drop only frames for the addresses; a constant to the verifier. */
const volatile __u32 by_address = 0;

/* Whether the frame is for one of the addresses; its headers are in data then, up to data_end. */
static __always_inline int matches(struct __sk_buff *skb)
{
	void *data, *data_end;
	__u32 len = skb->len;

	if (skb->vlan_present)
		return 0;
	if (len > ADDRESS_MATCH_LEN)
		len = ADDRESS_MATCH_LEN;
	data = (void *)(long)skb->data;
	data_end = (void *)(long)skb->data_end;
	/* Headers are usually linear; pulling them copies. */
	if (data + len > data_end) {
		if (bpf_skb_pull_data(skb, len))
			return 0;
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
	}
	return is_for_address(data, data_end);
}

SEC("tcx/ingress")
int linerate_drop(struct __sk_buff *skb)
{
	if (!by_address)
		return TC_ACT_SHOT;
	return matches(skb) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* The interface sends nothing to itself. What another device on it, or the host, sends to the addresses is received
 * instead, and so is the answer to a request for a hardware address, which goes from the interface to the interface. */
SEC("tcx/egress")
int linerate_return(struct __sk_buff *skb)
{
	/* Destination and source of Ethernet. */
	__u16 *mac = (void *)(long)skb->data;

	if (!skb->vlan_present && (void *)(mac + ETH_ALEN) <= (void *)(long)skb->data_end &&
	    mac[0] == mac[3] && mac[1] == mac[4] && mac[2] == mac[5])
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	if (matches(skb))
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	return TC_ACT_UNSPEC;
}
