// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Drops long packets at a hook of netfilter. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define NF_DROP 0
#define NF_ACCEPT 1

struct sk_buff {
	unsigned int len;
} __attribute__((preserve_access_index));

struct nf_hook_state;

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
} __attribute__((preserve_access_index));

SEC("netfilter")
int drop_long(struct bpf_nf_ctx *ctx)
{
	return ctx->skb->len > 100 ? NF_DROP : NF_ACCEPT;
}
