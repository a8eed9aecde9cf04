// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The limit of forwarding: writes constant MAC addresses, takes one off the TTL with its checksum, and
 * redirects to a constant interface. No map and no look-up: the program checks only that the
 * headers are there. It serves as a baseline. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set before load. */
const volatile __u32 out_ifindex = 0;
const volatile __u8 macs[12] = {}; /* destination, source */

SEC("xdp")
int redirect(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 checksum;

	if (data + 34 > end)
		return XDP_DROP;
	*(__u64 *)data = *(const volatile __u64 *)&macs[0];
	*(__u32 *)(data + 8) = *(const volatile __u32 *)&macs[8];
	*(__u8 *)(data + 22) -= 1;
	checksum = (__u32)*(__u16 *)(data + 24) + 1; /* the TTL is the first byte of its word */
	*(__u16 *)(data + 24) = checksum + (checksum >= 0xffff);
	return bpf_redirect(out_ifindex, 0);
}
