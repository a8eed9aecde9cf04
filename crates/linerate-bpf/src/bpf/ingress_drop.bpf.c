// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Drops frames at the ingress of the host's stack. Packet sockets receive them before tcx does. */

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "addresses.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Drop only frames for the addresses; a constant to the verifier. */
const volatile __u32 by_address = 0;

SEC("tcx/ingress")
int linerate_drop(struct __sk_buff *skb)
{
	void *data, *data_end;
	__u32 len = skb->len;

	if (!by_address)
		return TC_ACT_SHOT;
	if (skb->vlan_present)
		return TC_ACT_UNSPEC;
	if (len > ADDRESS_MATCH_LEN)
		len = ADDRESS_MATCH_LEN;
	data = (void *)(long)skb->data;
	data_end = (void *)(long)skb->data_end;
	/* Headers are usually linear; pulling them copies. */
	if (data + len > data_end) {
		if (bpf_skb_pull_data(skb, len))
			return TC_ACT_UNSPEC;
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
	}
	return is_for_address(data, data_end) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}
