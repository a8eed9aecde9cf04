/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Ingress metadata: how a packet arrived, bound to the packet until it leaves.
 *
 * At egress the packet's TOS, VLAN tags and port at arrival are unknown: the stack has rewritten and stripped
 * them. Remembering the last packet would be wrong, because GRO, receive lists and RPS interleave packets. So
 * `forward_tc`, at the ingress hook of every port, writes what it sees into the array `ingress_meta`, one entry for
 * all packets that arrive alike. It gives the packet the entry's number in tc_index, which the stack carries
 * through GRO, forwarding and queues unchanged, and which only the dsmark and GRED schedulers read. The
 * generation of the configuration is part of the entry, so the number also says when the kernel began to
 * decide on the packet.
 *
 * A number never means two things to one packet. An entry is reused only when no packet has taken its
 * number for INGRESS_META_HOLD, far longer than the stack holds a packet back (three seconds for neighbour
 * resolution; NFQUEUE has no bound, and its users want to see every packet and must not be
 * accelerated). Where no entry is free, the packet gets no number, and nothing is learned from it.
 *
 * Concurrency: `used` is the time of the last use, and INGRESS_META_CLAIMED while a writer fills the entry.
 * Writers claim an entry by compare-and-swap of a time that is long past. A number is given out without
 * touching `used` while its time is recent, since nobody may claim such an entry. Otherwise `used` is set to now
 * by compare-and-swap, which either wins against a claim or sees that it has lost. */
#ifndef LINERATE_INGRESS_META_H
#define LINERATE_INGRESS_META_H

#include "session_access.h"

struct ingress_meta {
	union {
		struct {
			__u32 generation; /* never 0 */
			__u32 ifindex;	  /* port */
			__be16 tag[2];	  /* as in session_key */
			__u8 kind;	  /* as in session_key: the bits of the tags only */
			__u8 tos;	  /* TOS or traffic class */
			__u16 route_generation; /* of before the kernel decided, or an older one */
		};
		__u64 word[2];
	};
	__u32 used; /* low half of jiffies, INGRESS_META_CLAIMED or 0: never used */
	__u32 unused2;
};
_Static_assert(sizeof(struct ingress_meta) == 24, "three words");

#define INGRESS_META_ENTRIES 32768 /* power of two; numbers are 1 to this */
#define INGRESS_META_PROBES 4 /* entries that one value may be in */
#define INGRESS_META_CLAIMED 1
#define INGRESS_META_HOLD 10000   /* jiffies: 10 s if they are shortest, 100 s if longest */
#define INGRESS_META_TOUCH 1000 /* after so many, `used` is set again */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INGRESS_META_ENTRIES);
	__type(key, __u32);
	__type(value, struct ingress_meta);
} ingress_meta SEC(".maps");

/* Upper devices that pass a port's packets to the stack unchanged, except for their tags: VLAN devices on it
 * and the bridge that it belongs to. A packet that comes through any other device was different at the port:
 * a tunnel has decapsulated it, and a session learned from it would bypass the tunnel. */
struct upper_device {
	__u32 ifindex;
	__u32 port; /* also an interface index */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct upper_device);
	__type(value, __u8);
} upper_devices SEC(".maps");

static __always_inline int is_upper_device(__u32 ifindex, __u32 port)
{
	struct upper_device key = { .ifindex = ifindex, .port = port };

	return bpf_map_lookup_elem(&upper_devices, &key) != NULL;
}

/* Jiffies that are neither 0 nor INGRESS_META_CLAIMED. */
static __always_inline __u32 ingress_meta_now(void)
{
	__u32 now = bpf_jiffies64();

	return now > INGRESS_META_CLAIMED ? now : INGRESS_META_CLAIMED + 1;
}

/* The entry of this number; NULL if there is none. */
static __always_inline const struct ingress_meta *ingress_meta_get(__u32 number)
{
	__u32 index = number - 1;
	const struct ingress_meta *entry = bpf_map_lookup_elem(&ingress_meta, &index);

	return entry && entry->generation ? entry : NULL;
}

/* The number of the entry that holds `wanted` from now on; 0 if none is free. */
static __always_inline __u32 ingress_meta_number(const struct ingress_meta *wanted)
{
	__u64 hash = (wanted->word[0] * control.seeds[0] + wanted->word[1] * control.seeds[1]) ^ control.seeds[2];
	__u32 now = ingress_meta_now(), old = 0, old_used = 0;

	hash = (hash ^ hash >> 32) * control.seeds[3] >> 32;
	for (__u32 i = 0; i < INGRESS_META_PROBES; i++) {
		__u32 index = (hash + i) & (INGRESS_META_ENTRIES - 1);
		struct ingress_meta *entry = bpf_map_lookup_elem(&ingress_meta, &index);
		__u32 used;

		if (!entry)
			return 0;
		used = READ_ONCE(entry->used);
		session_barrier();
		if (used > INGRESS_META_CLAIMED && entry->word[0] == wanted->word[0] &&
		    entry->word[1] == wanted->word[1]) {
			if (now - used < INGRESS_META_TOUCH ||
			    __sync_val_compare_and_swap(&entry->used, used, now) == used)
				return index + 1;
			return 0;
		}
		if (!old && used != INGRESS_META_CLAIMED && (!used || now - used >= INGRESS_META_HOLD)) {
			old = index + 1;
			old_used = used;
		}
	}
	if (old) {
		__u32 index = old - 1;
		struct ingress_meta *entry = bpf_map_lookup_elem(&ingress_meta, &index);

		if (!entry || __sync_val_compare_and_swap(&entry->used, old_used,
							  INGRESS_META_CLAIMED) != old_used)
			return 0;
		WRITE_ONCE(entry->word[0], wanted->word[0]);
		WRITE_ONCE(entry->word[1], wanted->word[1]);
		session_barrier();
		WRITE_ONCE(entry->used, now);
	}
	return old;
}

#endif
