/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The VLAN tag that a driver took out of a frame, as the kernel's metadata has it. */
#ifndef LINERATE_TAGS_H
#define LINERATE_TAGS_H

/* Weak, so that the object also loads where the kernel has no such function. Only a program that is bound to its device
 * may call it. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *proto,
					__u16 *tci) __ksym __weak;

/* Whether the frame is of a VLAN, and not of the interface, although no tag is in it. */
static __always_inline int is_tagged(struct xdp_md *ctx)
{
	__be16 proto;
	__u16 tci;

	return !bpf_xdp_metadata_rx_vlan_tag(ctx, &proto, &tci);
}

#endif
