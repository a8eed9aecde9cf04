/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Candidates: packets that XDP passed to the kernel and that `learn` may make a session of. `candidates` is an
 * array of sets of CANDIDATE_WAYS entries; the upper half of the key's hash picks the set, and the lower
 * half is the fingerprint. */
#ifndef LINERATE_CANDIDATE_H
#define LINERATE_CANDIDATE_H

#include "session_access.h"

static __always_inline __u32 candidate_generation(__u64 word)
{
	return (word >> CANDIDATE_GENERATION_SHIFT) & 0xffff;
}

static __always_inline __u32 candidate_ttl(__u64 word)
{
	return (word >> CANDIDATE_TTL_SHIFT) & 0xff;
}

static __always_inline __u32 candidate_count(__u64 word)
{
	return word & CANDIDATE_COUNT_MASK;
}

static __always_inline int candidate_matches(__u64 word, __u64 hash)
{
	return word && word >> CANDIDATE_FINGERPRINT_SHIFT == (__u32)hash;
}

/* One of the entries for this hash: they share a cache line. */
static __always_inline struct candidate *candidate_way(__u64 hash, __u32 way)
{
	__u32 index = ((__u32)(hash >> 32) & candidate_mask & ~(__u32)(CANDIDATE_WAYS - 1)) + way;

	return bpf_map_lookup_elem(&candidates, &index);
}

/* The way of the entry of this hash; CANDIDATE_WAYS if there is none. */
static __always_inline __u32 candidate_find(__u64 hash)
{
	for (__u32 way = 0; way < CANDIDATE_WAYS; way++) {
		struct candidate *entry = candidate_way(hash, way);

		if (entry && candidate_matches(READ_ONCE(entry->word), hash))
			return way;
	}
	return CANDIDATE_WAYS;
}

/* The entry of this hash, or one for it: an empty one, otherwise a random one. A fixed choice would be wrong:
 * when more sessions take turns than there are entries, they would evict each other for ever. When as many sessions as
 * there are entries take turns, one in 60 is not learned in three rounds; with four ways it is one in 12. */
static __always_inline struct candidate *candidate_slot(__u64 hash)
{
	struct candidate *slot = 0;

	for (__u32 way = 0; way < CANDIDATE_WAYS; way++) {
		struct candidate *entry = candidate_way(hash, way);
		__u64 word;

		if (!entry)
			return 0;
		word = READ_ONCE(entry->word);
		if (candidate_matches(word, hash))
			return entry;
		if (!word)
			slot = entry;
	}
	return slot ? slot : candidate_way(hash, bpf_get_prandom_u32() % CANDIDATE_WAYS);
}

/* Records that a packet of this hash goes to the kernel; `partial` is CANDIDATE_PARTIAL or 0. */
static __always_inline void candidate_note(__u64 hash, __u32 generation, __u32 ttl, __u32 partial)
{
	struct candidate *entry = candidate_slot(hash);
	__u64 word;
	__u32 count = 0;

	if (!entry)
		return;
	word = READ_ONCE(entry->word);
	if (candidate_matches(word, hash)) {
		count = candidate_count(word);
		if (candidate_generation(word) == (generation & 0xffff))
			partial |= word & CANDIDATE_PARTIAL;
	}
	count += count < CANDIDATE_COUNT_MASK;
	WRITE_ONCE(entry->word, hash << CANDIDATE_FINGERPRINT_SHIFT |
					(__u64)(generation & 0xffff) << CANDIDATE_GENERATION_SHIFT |
					(ttl & 0xff) << CANDIDATE_TTL_SHIFT | partial | count);
}

/* No packet of this hash that is now in the stack can create a session. A full barrier. */
static __always_inline void candidate_clear(__u64 hash)
{
	for (__u32 way = 0; way < CANDIDATE_WAYS; way++) {
		struct candidate *entry = candidate_way(hash, way);

		if (entry && candidate_matches(READ_ONCE(entry->word), hash))
			__sync_lock_test_and_set(&entry->word, 0);
	}
	session_full_barrier();
}

#endif
