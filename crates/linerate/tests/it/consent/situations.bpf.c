// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Programs that drop what comes to one UDP port, for the situations of tests. */

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The source that `control_group` drops: no other test has it. 10.93.0.1. */
#define SOURCE 0x0a5d0001
/* The port that `socket_lookup` drops. */
#define PORT 5000

SEC("cgroup_skb/ingress")
int control_group(struct __sk_buff *skb)
{
	__u32 source = 0;

	bpf_skb_load_bytes(skb, 12, &source, sizeof(source));
	return source != bpf_htonl(SOURCE);
}

SEC("sk_lookup")
int socket_lookup(struct bpf_sk_lookup *ctx)
{
	return ctx->local_port == PORT ? SK_DROP : SK_PASS;
}

/* All that comes to the hook. */
SEC("netfilter")
int hook(void *ctx)
{
	return 0; /* NF_DROP */
}
