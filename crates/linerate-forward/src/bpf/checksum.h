/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Verifies TCP and UDP checksums, for sessions where connection tracking does so and the user wants the same
 * (control.verify_checksums). Conntrack takes a packet with a wrong checksum out of its connection, and so out of NAT. */
#ifndef LINERATE_CHECKSUM_H
#define LINERATE_CHECKSUM_H

#include "parse.h"

#define TRANSPORT_MAX 4096 /* longer ones go to the kernel */
#define TRANSPORT_PIECE 512 /* limit of one bpf_csum_diff before Linux 6.13 */

/* A copy of transport header and payload, with room for zeros: the helper sums whole words, and the verifier
 * cannot follow the length of memory in a frame. */
struct transport_bytes {
	__u8 bytes[TRANSPORT_MAX + 4];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct transport_bytes);
} transports SEC(".maps");

/* Whether the ones' complement sum of `pseudo` and the `length` bytes at `offset` is zero, as with a correct
 * checksum. `context` is that of an XDP or of a tc program. */
static __always_inline int sum_is_zero(void *context, int is_xdp, __u32 offset, __u32 length,
				       __u32 pseudo)
{
	__u32 zero = 0;
	struct transport_bytes *copy = bpf_map_lookup_elem(&transports, &zero);
	__s64 sum = pseudo;

	if (!copy || length < 8)
		return 0;
	/* Two comparisons: compilers merge them into one, from which the verifier (of Linux 6.12) learns nothing. */
	barrier_var(length);
	if (length > TRANSPORT_MAX)
		return 0;
	if (is_xdp ? bpf_xdp_load_bytes(context, offset, copy->bytes, length)
		   : bpf_skb_load_bytes(context, offset, copy->bytes, length))
		return 0;
	*(__u32 *)&copy->bytes[length] = 0;
	/* Newer compilers leave the first comparison of the loop out otherwise, and Linux 6.1 does not see that the second
	 * implies it. */
	barrier_var(length);
	for (__u32 at = 0; at < TRANSPORT_MAX && at < length; at += TRANSPORT_PIECE) {
		__u32 piece = (length - at + 3) & ~3u;

		if (piece > TRANSPORT_PIECE)
			piece = TRANSPORT_PIECE;
		sum = bpf_csum_diff(NULL, 0, (__be32 *)&copy->bytes[at], piece, sum);
		if (sum < 0)
			return 0;
	}
	return (__u32)sum && !((__u32)sum % 0xffff);
}

/* Global, so that the verifier checks each once. */
__noinline int transport_sum_is_zero(struct xdp_md *context, __u32 offset, __u32 length, __u32 pseudo)
{
	return sum_is_zero(context, 1, offset, length, pseudo);
}

__noinline int transport_sum_is_zero_skb(struct __sk_buff *skb, __u32 offset, __u32 length, __u32 pseudo)
{
	return sum_is_zero(skb, 0, offset, length, pseudo);
}

/* Whether `udp_error` and `tcp_error` would accept the packet's checksum: a sum over all of the IP
 * packet's payload, whatever the UDP length says. A UDP checksum of 0 means none, and is accepted. */
static __always_inline int has_right_checksum(void *context, int is_xdp, const struct packet *packet,
					      void *data, void *end)
{
	__u32 is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4, is_tcp = packet->kind & KIND_TCP;
	__u32 header = is_ipv4 ? IPV4_LEN : IPV6_LEN;
	__u32 length = packet->length - header;
	__u64 pseudo = bpf_htons(is_tcp ? IPPROTO_TCP : IPPROTO_UDP) + bpf_htons(length);

	if (!is_tcp) {
		void *transport = packet->network + header;

		if (transport + 8 > end)
			return 0;
		if (!load16(transport + 6))
			return 1;
	}
	if (is_ipv4) {
		pseudo += (packet->addresses & 0xffffffff) + (packet->addresses >> 32);
	} else {
#pragma clang loop unroll(full)
		for (__u32 i = 0; i < 32; i += 4)
			pseudo += load32(packet->network + 8 + i);
	}
	pseudo = (pseudo & 0xffffffff) + (pseudo >> 32);
	pseudo = (pseudo & 0xffff) + (pseudo >> 16);
	return is_xdp ? transport_sum_is_zero(context, packet->network - data + header, length, pseudo)
		      : transport_sum_is_zero_skb(context, packet->network - data + header, length,
						  pseudo);
}

#endif
