/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The IP addresses of an uplink's TUN device, and which frames are for it. Shared with src/addresses.rs.
 *
 * A frame is for the device if it is an IP packet to one of the addresses, or requests the hardware address
 * of one (ARP, RFC 826; neighbour solicitation, RFC 4861). Answers to such requests are not: the host's own
 * neighbour table needs them. */
#ifndef LINERATE_ADDRESSES_H
#define LINERATE_ADDRESSES_H

#include <linux/if_ether.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>

#define MAX_ADDRESSES 256

/* Bytes of a frame that are read at most: up to the target of a solicitation. */
#define ADDRESS_MATCH_LEN (14 + 40 + 24)

/* IPv4 as ::ffff:a.b.c.d (RFC 4291 section 2.5.5.2). */
struct address {
	__u8 bytes[16];
};

_Static_assert(sizeof(struct address) == 16, "address is 16 bytes");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ADDRESSES);
	__type(key, struct address);
	__type(value, __u8);
} addresses SEC(".maps");

struct arp {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_len;
	__u8 protocol_len;
	__be16 operation;
	__u8 sender_mac[6];
	__u8 sender[4];
	__u8 target_mac[6];
	__u8 target[4];
} __attribute__((packed));

struct solicitation {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__u32 reserved;
	__u8 target[16];
} __attribute__((packed));

#define ARP_REQUEST 1
#define ICMPV6 58
#define NEIGHBOUR_SOLICITATION 135

static __always_inline int is_address(const void *bytes)
{
	struct address key;

	__builtin_memcpy(&key, bytes, sizeof(key));
	return bpf_map_lookup_elem(&addresses, &key) != 0;
}

static __always_inline int is_address_v4(const void *bytes)
{
	struct address key = { .bytes = { [10] = 0xff, [11] = 0xff } };

	__builtin_memcpy(key.bytes + 12, bytes, 4);
	return bpf_map_lookup_elem(&addresses, &key) != 0;
}

static __always_inline int is_for_address(void *data, void *data_end)
{
	struct ethhdr *ethernet = data;
	void *network = ethernet + 1;

	if (network > data_end)
		return 0;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = network;

		return (void *)(ip + 1) <= data_end && is_address_v4(&ip->daddr);
	}
	if (ethernet->h_proto == bpf_htons(ETH_P_ARP)) {
		struct arp *arp = network;

		return (void *)(arp + 1) <= data_end && arp->operation == bpf_htons(ARP_REQUEST) &&
		       is_address_v4(arp->target);
	}
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = network;
		struct solicitation *query = (void *)(ip + 1);

		if ((void *)query > data_end)
			return 0;
		if (is_address(&ip->daddr))
			return 1;
		return ip->nexthdr == ICMPV6 && (void *)(query + 1) <= data_end &&
		       query->type == NEIGHBOUR_SOLICITATION && is_address(query->target);
	}
	return 0;
}

#endif
