// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The limit of forwarding by the TC datapath: what redirect.bpf.c does, at tcx, with the translation of one address to a
 * constant. The kernel gets all packets but TCP over IPv4 without options. It serves as a baseline. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define IP_CHECKSUM 24
#define TCP_CHECKSUM 50

/* Set before load. */
const volatile __u32 out_ifindex = 0;
const volatile __u8 macs[12] = {}; /* destination, source */
const volatile __u32 address_offset = 0; /* 26, the source, or 30, the destination */
const volatile __u32 address = 0; /* in network byte order */

SEC("tc")
int redirect_tc(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 at = address_offset == 26 ? 26 : 30, new = address, old;
	__u16 ttl_protocol;

	if (data + 54 > end || *(__u16 *)(data + 12) != bpf_htons(ETH_P_IP) ||
	    *(__u8 *)(data + 14) != 0x45 || *(__u8 *)(data + 23) != 6)
		return TC_ACT_UNSPEC;
	*(__u64 *)data = *(const volatile __u64 *)&macs[0];
	*(__u32 *)(data + 8) = *(const volatile __u32 *)&macs[8];
	ttl_protocol = *(__u16 *)(data + 22);
	*(__u8 *)(data + 22) -= 1;
	old = *(__u32 *)(data + at);
	*(__u32 *)(data + at) = new;
	/* The helpers handle CHECKSUM_PARTIAL, which packets of GRO have. */
	bpf_l3_csum_replace(skb, IP_CHECKSUM, ttl_protocol, bpf_htons(bpf_ntohs(ttl_protocol) - 0x100), 2);
	bpf_l3_csum_replace(skb, IP_CHECKSUM, old, new, 4);
	bpf_l4_csum_replace(skb, TCP_CHECKSUM, old, new, BPF_F_PSEUDO_HDR | 4);
	return bpf_redirect(out_ifindex, 0);
}
