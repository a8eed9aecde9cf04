// SPDX-License-Identifier: GPL-2.0 OR MIT
/* An XDP program of somebody else: passes every frame. */

#define SEC(name) __attribute__((section(name), used))

SEC("xdp")
int somebody(void *frame)
{
	return 2; /* XDP_PASS */
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
