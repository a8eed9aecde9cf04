/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What a packet came with, bound to the packet itself until it leaves.
 *
 * At the way out nothing tells any more with which TOS, VLAN tags and by which port a packet came in: the
 * stack has rewritten and stripped them. Remembering the last packet seen would be wrong, since GRO,
 * receive lists and RPS interleave. So `mark`, at the ingress hook of every port, writes down what it
 * sees in `arrivals`, once for all packets that come alike, and gives the packet the number of the place:
 * in tc_index, which the stack carries through GRO, forwarding and queues untouched, and which only the
 * dsmark and GRED schedulers read. The generation of the configuration is part of what is written down,
 * so that the number also says *when* the kernel began to judge the packet.
 *
 * A number never means two things to one packet: a place is given anew only when no packet took its
 * number for ARRIVAL_HOLD, far longer than the stack holds a packet back (three seconds for the
 * address of a neighbour; NFQUEUE has no bound, and whoever uses it wants to see every packet and must
 * not be accelerated). Where no place is to be had the packet stays without number, and nothing is
 * learned from it.
 *
 * Concurrency: `used` is the time of the last use, and ARRIVAL_CLAIMED while a writer fills the place.
 * Writers claim by compare-and-swap of a time that is long past. A number is given out without touching
 * `used` while its time is recent, which nobody may claim, and else by compare-and-swap to now, so that
 * it wins against a claim or sees that it has lost. */
#ifndef LINERATE_ARRIVAL_H
#define LINERATE_ARRIVAL_H

#include "parse.h"
#include "session.h"

struct arrival {
	union {
		struct {
			__u32 generation; /* never 0 */
			__u32 ifindex;	  /* port */
			__be16 tag[2];	  /* as in session_key */
			__u8 kind;	  /* as in session_key: the bits of the tags only */
			__u8 tos;	  /* TOS or traffic class */
			__u8 unused[2];
		};
		__u64 word[2];
	};
	__u32 used; /* low half of jiffies, ARRIVAL_CLAIMED or 0: never used */
	__u32 unused2;
};
_Static_assert(sizeof(struct arrival) == 24, "three words");

#define ARRIVALS 32768	  /* power of two; numbers are 1 to ARRIVALS */
#define ARRIVALS_PROBED 4 /* places that one arrival may take */
#define ARRIVAL_CLAIMED 1
#define ARRIVAL_HOLD 10000   /* jiffies: 10 s where they are shortest, 100 s where longest */
#define ARRIVAL_REFRESH 1000 /* after so many, `used` is set anew */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ARRIVALS);
	__type(key, __u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

/* Jiffies that are neither 0 nor ARRIVAL_CLAIMED. */
static __always_inline __u32 arrival_time(void)
{
	__u32 now = bpf_jiffies64();

	return now > ARRIVAL_CLAIMED ? now : ARRIVAL_CLAIMED + 1;
}

/* The place that `number` stands for; NULL where it stands for none. */
static __always_inline const struct arrival *arrival_of(__u32 number)
{
	__u32 index = number - 1;
	const struct arrival *place = bpf_map_lookup_elem(&arrivals, &index);

	return place && place->generation ? place : NULL;
}

/* The number of the place where `wanted` stands from now on, 0 where there is none. */
static __always_inline __u32 arrival_number(const struct arrival *wanted)
{
	__u64 hash = (wanted->word[0] * control.seeds[0] + wanted->word[1] * control.seeds[1]) ^ control.seeds[2];
	__u32 now = arrival_time(), old = 0, old_used = 0;

	hash = (hash ^ hash >> 32) * control.seeds[3] >> 32;
	for (__u32 i = 0; i < ARRIVALS_PROBED; i++) {
		__u32 index = (hash + i) & (ARRIVALS - 1);
		struct arrival *place = bpf_map_lookup_elem(&arrivals, &index);
		__u32 used;

		if (!place)
			return 0;
		used = READ_ONCE(place->used);
		session_barrier();
		if (used > ARRIVAL_CLAIMED && place->word[0] == wanted->word[0] &&
		    place->word[1] == wanted->word[1]) {
			if (now - used < ARRIVAL_REFRESH ||
			    __sync_val_compare_and_swap(&place->used, used, now) == used)
				return index + 1;
			return 0;
		}
		if (!old && used != ARRIVAL_CLAIMED && (!used || now - used >= ARRIVAL_HOLD)) {
			old = index + 1;
			old_used = used;
		}
	}
	if (old) {
		__u32 index = old - 1;
		struct arrival *place = bpf_map_lookup_elem(&arrivals, &index);

		if (!place || __sync_val_compare_and_swap(&place->used, old_used,
							  ARRIVAL_CLAIMED) != old_used)
			return 0;
		WRITE_ONCE(place->word[0], wanted->word[0]);
		WRITE_ONCE(place->word[1], wanted->word[1]);
		session_barrier();
		WRITE_ONCE(place->used, now);
	}
	return old;
}

/* The number for this packet, at the ingress hook; 0 for what is no IP packet for this machine. The
 * kernel has taken the outer tag off the frame by now, and keeps it beside the packet. */
static __always_inline __u32 arrival_mark(const struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct arrival arrival = {};
	struct packet packet;
	__u32 type, ifindex = skb->ifindex;
	struct interface *interface;

	if (parse_link(data, end, &packet, &type) != CLEAN || packet.network + 2 > end)
		return 0;
	interface = bpf_map_lookup_elem(&interfaces, &ifindex);
	if (!interface || *(__u32 *)interface->mac != word32(data) ||
	    *(__u16 *)(interface->mac + 4) != word16(data + 4))
		return 0;
	if (skb->vlan_present) {
		__u32 outer = tag_kind((__u16)skb->vlan_proto);

		if (!outer || packet.tag_bytes > TAG_LEN)
			return 0;
		packet.kind = outer << KIND_OUTER_SHIFT |
			      packet.kind >> KIND_OUTER_SHIFT << KIND_INNER_SHIFT;
		packet.tags = bpf_htons(skb->vlan_tci) | packet.tags << 16;
	}
	arrival.generation = READ_ONCE(control.generation);
	arrival.ifindex = ifindex;
	*(__u32 *)arrival.tag = packet.tags;
	arrival.kind = packet.kind;
	arrival.tos = type == RAW_IPV4 ? word16(packet.network) >> 8
				       : bpf_ntohs(word16(packet.network)) >> 4;
	return arrival_number(&arrival);
}

#endif
