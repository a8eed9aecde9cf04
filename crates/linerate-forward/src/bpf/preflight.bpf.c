// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The programs of the preflight: one enables the peer of a veth to receive redirected frames, another sends a frame out
 * of an interface, to verify that it transmits, and the third loads where programs can look connections up. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Index of the interface that the probe sends to. */
const volatile __u32 target;

SEC("xdp.frags")
int linerate_pass(struct xdp_md *context)
{
	return XDP_PASS;
}

SEC("xdp")
int linerate_probe(struct xdp_md *context)
{
	return bpf_redirect(target, 0);
}

/* libbpf compares kinds of types, not members. */
struct nf_conn {
	unsigned long status;
};

/* As in ct_lookup.h, without zones. */
struct bpf_ct_opts___12 {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *, struct bpf_sock_tuple *, __u32,
					 struct bpf_ct_opts___12 *, __u32) __weak __ksym;
extern void bpf_ct_release(struct nf_conn *) __weak __ksym;

SEC("tc")
int linerate_lookup(struct __sk_buff *skb)
{
	struct bpf_ct_opts___12 options = { .netns_id = BPF_F_CURRENT_NETNS, .l4proto = 17 /* IPPROTO_UDP */ };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn *found = bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv4), &options, sizeof(options));

	if (found)
		bpf_ct_release(found);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
