/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Finds the hop that a session needs, or fills in a new one. layout.h describes who may write to a hop. */
#ifndef LINERATE_HOP_H
#define LINERATE_HOP_H

#include "session_access.h"

const volatile __u32 hop_mask = 0; /* hops less one, at most 65535 */

/* One value of the map, not elements: a program then finds a hop without a look-up. Sized before load. */
struct hop hops[1] SEC(".data.hops") = {};

#define HOP_PROBES 16 /* entries that one hop may be in */

static __always_inline struct hop *hop_at(__u32 index)
{
	struct hop *first = hops;

	/* There are more than the compiler knows. */
	REMATERIALIZE(first);
	return first + (index & hop_mask);
}

static __always_inline struct hop *hop_of(const struct session *session)
{
	return hop_at(READ_ONCE(session->hop));
}

static __always_inline int same_hop(const struct hop *hop, const struct hop *wanted)
{
	const __u64 *here = (const __u64 *)hop, *there = (const __u64 *)wanted;
	__u64 differs = 0;

#pragma clang loop unroll(full)
	for (__u32 i = 0; i < HOP_WORDS; i++)
		differs |= here[i] ^ there[i];
	return !differs;
}

static __always_inline __u32 hop_hash(const struct hop *wanted)
{
	const __u64 *words = (const __u64 *)wanted;
	__u64 sum = 0;

#pragma clang loop unroll(full)
	for (__u32 i = 0; i < HOP_WORDS; i++)
		sum += words[i] * control.seeds[i];
	return hash_mix(sum) >> 32;
}

/* The index of the hop that equals `wanted`, plus one. It stays so while this program runs, and while a session has it.
 * 0 if there is no room for it. Two CPUs may fill in the same hop: then there are two. Global, so that the verifier
 * looks at it once. */
__noinline int hop_index(const struct hop *wanted)
{
	__u32 hash, free = 0, found;
	struct hop *hop;

	if (!wanted)
		return 0;
	hash = hop_hash(wanted);
	for (__u32 probe = 0; probe < HOP_PROBES; probe++) {
		__u32 index = (hash + probe) & hop_mask, state;

		hop = hop_at(index);
		state = READ_ONCE(hop->state);
		session_barrier();
		if ((state & HOP_STATE) == HOP_FREE && !free)
			free = index + 1;
		if ((state & HOP_STATE) < HOP_USED || !same_hop(hop, wanted))
			continue;
		if ((state & HOP_STATE) == HOP_UNUSED) {
			__u32 used = (state & ~HOP_STATE) | HOP_USED;

			found = __sync_val_compare_and_swap(&hop->state, state, used);
			if (found != state && found != used)
				continue;
		}
		return index + 1;
	}
	if (!free)
		return 0;
	hop = hop_at(free - 1);
	found = READ_ONCE(hop->state);
	if ((found & HOP_STATE) != HOP_FREE ||
	    __sync_val_compare_and_swap(&hop->state, found, found + HOP_FILLED + HOP_CLAIMED) != found)
		return 0;
	__builtin_memcpy(hop, wanted, HOP_WORDS * sizeof(__u64));
	session_barrier();
	WRITE_ONCE(hop->state, found + HOP_FILLED + HOP_USED);
	return free;
}

/* Not on the stack, which is small. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hop);
} wanted_address SEC(".maps");

/* The index of the entry that holds this IPv6 address, plus one; 0 where there is no room. */
static __always_inline __u32 nat_address_index(const __u64 *address)
{
	__u32 zero = 0;
	struct hop *wanted = bpf_map_lookup_elem(&wanted_address, &zero);

	if (!wanted)
		return 0;
	__builtin_memset(wanted, 0, sizeof(*wanted));
	((struct nat_address *)wanted)->address[0] = address[0];
	((struct nat_address *)wanted)->address[1] = address[1];
	return hop_index(wanted);
}

/* The IPv6 address of a result of nat_address_index(). */
static __always_inline const __u64 *nat_address(__u32 index)
{
	return ((const struct nat_address *)hop_at(index - 1))->address;
}

#endif
