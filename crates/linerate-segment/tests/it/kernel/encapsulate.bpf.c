// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Puts IPv4 and IPv6 packets into an outer IP header before the kernel segments them, for kernels that
 * were built without tunnel devices. The Ethernet addresses stay, and so does the segment size. */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* The start of the context, as include/uapi/linux/bpf.h has it. */
struct __sk_buff {
	u32 len;
	u32 packet_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
};

static long (*store_bytes)(struct __sk_buff *, u32 at, const void *, u32 len, u64 flags) = (void *)9;
static long (*adjust_room)(struct __sk_buff *, int len, u32 mode, u64 flags) = (void *)50;

#define SECTION(name) __attribute__((section(name), used))
#define BIG_ENDIAN16(word) __builtin_bswap16(word)

enum {
	NEXT_FILTER = -1,
	DROP = 2,
	BEHIND_LINK = 1,
	FIXED_SEGMENT_SIZE = 1 << 0,
	OUTER_IPV4 = 1 << 1,
	OUTER_IPV6 = 1 << 2,
	LINK = 14,
	IPV4 = 0x0800,
	IPV6 = 0x86dd,
};

/* The protocol number of what is put in, or 0 for what is left alone. */
static __attribute__((always_inline)) u8 inner(const struct __sk_buff *skb)
{
	if (skb->protocol == BIG_ENDIAN16(IPV4))
		return 4;
	return skb->protocol == BIG_ENDIAN16(IPV6) ? 41 : 0;
}

static __attribute__((always_inline)) int put(struct __sk_buff *skb, const void *header, u32 len,
					      u16 protocol)
{
	u16 type = BIG_ENDIAN16(protocol);

	if (store_bytes(skb, LINK, header, len, 0) || store_bytes(skb, LINK - 2, &type, 2, 0))
		return DROP;
	return NEXT_FILTER;
}

SECTION("tc/ipv4") int in_ipv4(struct __sk_buff *skb)
{
	u8 protocol = inner(skb);
	u16 header[10] = {};
	u32 sum = 0;

	if (!protocol)
		return NEXT_FILTER;
	if (adjust_room(skb, sizeof(header), BEHIND_LINK, FIXED_SEGMENT_SIZE | OUTER_IPV4))
		return DROP;
	header[0] = BIG_ENDIAN16(0x4503);
	header[1] = BIG_ENDIAN16(skb->len - LINK);
	/* Wraps at the third segment. */
	header[2] = BIG_ENDIAN16(0xfffe);
	header[4] = BIG_ENDIAN16(0x4000 | protocol);
	header[6] = BIG_ENDIAN16(0xac10);
	header[7] = BIG_ENDIAN16(0x0001);
	header[8] = BIG_ENDIAN16(0xac10);
	header[9] = BIG_ENDIAN16(0x0002);
#pragma unroll
	for (int word = 0; word < 10; word++)
		sum += header[word];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	header[5] = ~sum;
	return put(skb, header, sizeof(header), IPV4);
}

SECTION("tc/ipv6") int in_ipv6(struct __sk_buff *skb)
{
	u8 protocol = inner(skb);
	u16 header[20] = {};

	if (!protocol)
		return NEXT_FILTER;
	if (adjust_room(skb, sizeof(header), BEHIND_LINK, FIXED_SEGMENT_SIZE | OUTER_IPV6))
		return DROP;
	header[0] = BIG_ENDIAN16(0x6032);
	header[1] = BIG_ENDIAN16(0x1234);
	header[2] = BIG_ENDIAN16(skb->len - LINK - sizeof(header));
	header[3] = BIG_ENDIAN16(protocol << 8 | 64);
	header[4] = BIG_ENDIAN16(0xfd00);
	header[11] = BIG_ENDIAN16(0x0001);
	header[12] = BIG_ENDIAN16(0xfd00);
	header[19] = BIG_ENDIAN16(0x0002);
	return put(skb, header, sizeof(header), IPV6);
}

SECTION("license") char license_of_all[] = "Dual MIT/GPL";
