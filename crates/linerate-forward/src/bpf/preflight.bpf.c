// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The programs of the preflight: one enables the peer of a veth to receive redirected frames, the other sends
 * a frame out of an interface, to verify that it transmits. */
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
