// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* VLAN interfaces for a kernel that has none: takes the tags off what comes in, and puts tags on what
 * goes to a station whose hardware address says so.
 *
 * The outer VLAN becomes the mark of the packet, so that the router may route each VLAN by itself, as it
 * does when each is an interface. */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* __sk_buff.tc_index of what the TC datapath sends (`src/bpf/tc.h`). */
#define TC_INDEX_DONE 0xffff

/* A VLAN that nobody has an interface for. */
#define UNKNOWN 999

SEC("tcx/ingress")
int pop(struct __sk_buff *skb)
{
	if (!skb->vlan_present || !(skb->vlan_tci & 0xfff) || (skb->vlan_tci & 0xfff) == UNKNOWN)
		return TC_ACT_UNSPEC;
	skb->mark = skb->vlan_tci & 0xfff;
	if (bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	if (skb->vlan_present && (skb->vlan_tci & 0xfff) && bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

/* 02:56:01:TCI:TCI:xx is behind one tag, 02:56:02:INNER:OUTER:xx behind two. */
SEC("tcx/egress")
int push(struct __sk_buff *skb)
{
	__u8 mac[6];

	/* The TC datapath puts the tags on by itself, and passes no VLAN interface. */
	if (skb->tc_index == TC_INDEX_DONE)
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes(skb, 0, mac, sizeof(mac)) || mac[0] != 2 || mac[1] != 0x56)
		return TC_ACT_UNSPEC;
	if (mac[2] == 1)
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), mac[3] << 8 | mac[4]);
	if (mac[2] == 2) {
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), mac[3]);
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021AD), mac[4]);
	}
	return TC_ACT_UNSPEC;
}

/* Gives packets the headroom of a port with XDP: the kernel reassembles fragments in other ways without it. */
SEC("xdp")
int pass(struct xdp_md *context)
{
	return XDP_PASS;
}
