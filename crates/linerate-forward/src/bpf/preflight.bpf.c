// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What the preflight loads: a program that makes the far end of a veth able to receive redirected frames,
 * and one that sends a frame out of an interface, to see it go. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Index of the interface that the probe sends to. */
const volatile __u32 target;

SEC("xdp.frags")
int linerate_stub(struct xdp_md *context)
{
	return XDP_PASS;
}

SEC("xdp")
int linerate_probe(struct xdp_md *context)
{
	return bpf_redirect(target, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
