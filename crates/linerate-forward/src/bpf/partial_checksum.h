/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Checksums that the sender has left to the hardware.
 *
 * A sender on this machine, behind a veth, hands over packets whose checksum field holds the sum of the
 * pseudo-header only (CHECKSUM_PARTIAL): the kernel finishes it where it leaves the machine, and the fast
 * path, which knows no such thing, would send it as it is. The kernel's mark is not seen by XDP; and at the
 * way out it tells nothing of a super-packet, since GRO sets it on all it makes. But the field itself
 * tells: in such a packet it *is* the sum of the pseudo-header, without complement. A finished checksum is
 * that by chance once in 65,536 packets, which only learns from another one. */
#ifndef LINERATE_PARTIAL_CHECKSUM_H
#define LINERATE_PARTIAL_CHECKSUM_H

#include "parse.h"
#include "rewrite.h"

/* Whether the checksum of a packet that parse() found clean is unfinished. `addresses` are the source and
 * destination, 16 bytes each; what an IPv4 address does not fill is zero. */
static __always_inline int has_partial_checksum(const struct packet *packet, const void *addresses,
					 const void *end)
{
	__u32 header = (packet->kind & KIND_FAMILY) == KIND_IPV4 ? IPV4_LEN : IPV6_LEN;
	const void *field = packet->network + header + (packet->kind & KIND_TCP ? 16 : 6);
	const __u32 *word = addresses;
	__u64 sum = bpf_htons(packet->kind & KIND_TCP ? IPPROTO_TCP : IPPROTO_UDP);

	if (field + 2 > end)
		return 0;
	sum += bpf_htons(packet->length - header);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < 8; i++)
		sum += word[i];
	return word16(field) == fold(sum);
}

#endif
