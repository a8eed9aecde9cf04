// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The limit of forwarding by the TC datapath: what redirect.bpf.c does, at tcx, with the translation of one address to a
 * constant. All but TCP over IPv4 without options is the kernel's. It serves as a baseline. */
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
const volatile __u32 address_at = 0; /* 26, the source, or 30, the destination */
const volatile __u32 address = 0; /* in network byte order */

SEC("tc")
int redirect_tc(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 at = address_at == 26 ? 26 : 30, new = address, old;
	__u16 hops;

	if (data + 54 > end || *(__u16 *)(data + 12) != bpf_htons(ETH_P_IP) ||
	    *(__u8 *)(data + 14) != 0x45 || *(__u8 *)(data + 23) != 6)
		return TC_ACT_UNSPEC;
	*(__u64 *)data = *(const volatile __u64 *)&macs[0];
	*(__u32 *)(data + 8) = *(const volatile __u32 *)&macs[8];
	hops = *(__u16 *)(data + 22);
	*(__u8 *)(data + 22) -= 1;
	old = *(__u32 *)(data + at);
	*(__u32 *)(data + at) = new;
	/* The helpers know how far the checksum of this packet is: a merged one has only a part. */
	bpf_l3_csum_replace(skb, IP_CHECKSUM, hops, bpf_htons(bpf_ntohs(hops) - 0x100), 2);
	bpf_l3_csum_replace(skb, IP_CHECKSUM, old, new, 4);
	bpf_l4_csum_replace(skb, TCP_CHECKSUM, old, new, BPF_F_PSEUDO_HDR | 4);
	return bpf_redirect(out_ifindex, 0);
}
