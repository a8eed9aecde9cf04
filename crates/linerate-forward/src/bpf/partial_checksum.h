/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Partial checksums: the sender has left them to the hardware.
 *
 * A sender on this machine, at the other end of a veth, sends packets whose checksum field holds the sum of
 * the pseudo-header only (CHECKSUM_PARTIAL). The kernel completes it where the packet leaves the machine; the
 * fast path would send it unchanged. XDP does not see the kernel's mark, and at egress the mark says nothing
 * about a super-packet, because GRO sets it on all that it builds. But the field itself shows it: in such a
 * packet it is the sum of the pseudo-header, without complement. A complete checksum equals that by chance
 * once in 65,536 packets; the session is then learned from another packet. */
#ifndef LINERATE_PARTIAL_CHECKSUM_H
#define LINERATE_PARTIAL_CHECKSUM_H

#include "parse.h"
#include "rewrite.h"

/* Whether the checksum of a packet that parse() accepted is partial. `addresses` are the source and
 * destination, 16 bytes each; the rest of an IPv4 address is zero. */
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
	return load16(field) == fold(sum);
}

#endif
