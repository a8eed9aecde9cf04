/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The session table: hash, look-up, the sequence lock, counting, `pending`. forward.h tells the rules.
 *
 * The fast path has a look-up of its own in forward.bpf.c, which matches valid sessions only and never
 * builds a key in memory; what is here is for whoever has the time: the slow path and the learner. */
#ifndef LINERATE_SESSION_H
#define LINERATE_SESSION_H

#include "maps.h"

/* Orders what stands before with what follows. FORWARD_ORDERED: loads stay in order with loads, and
 * stores with stores, so that the compiler alone has to be kept from moving them. */
#ifdef FORWARD_ORDERED
#define session_barrier() asm volatile("" ::: "memory")
#else
#define session_barrier()                                                                          \
	do {                                                                                       \
		__u64 nothing = 0;                                                                 \
		__sync_fetch_and_add(&nothing, 0);                                                 \
		asm volatile("" ::"r"(&nothing) : "memory");                                       \
	} while (0)
#endif

#define READ_ONCE(place) (*(volatile typeof(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile typeof(place) *)&(place) = (value))

static __always_inline int uses_table(void)
{
	return statistics <= STATISTICS_SLOT;
}

/* Words of a key. */
static __always_inline __u64 key_addresses(const struct session_key *key)
{
	return key->signature;
}

static __always_inline __u64 key_ports(const struct session_key *key)
{
	return *(const __u64 *)&key->source_port;
}

static __always_inline __u64 key_station(const struct session_key *key)
{
	return *(const __u64 *)key->station;
}

static __always_inline __u32 key_tags(const struct session_key *key)
{
	return *(const __u32 *)key->tag;
}

#define MAC_MASK 0x0000ffffffffffffULL

/* A sum of products with odd random factors, whose upper half is close to universal (Dietzfelbinger et
 * al., "A reliable randomized algorithm for the closest-pair problem"), mixed once more so that nobody
 * who can guess collisions of a few sessions can compute those of others. The products do not wait for
 * each other. The upper half of the result picks the first bucket and the set of `pending`; the lower half
 * is the fingerprint, its low two bits are the home way, and those above pick the second bucket. */
static __always_inline __u64 hash_sum(__u64 addresses, __u64 ports, __u64 station, __u32 tags)
{
	__u64 hash = addresses * control.seeds[0] +
		     (ports ^ (station & ~MAC_MASK)) * control.seeds[1] +
		     tags * control.seeds[2];

	hash ^= hash >> 32;
	return hash * control.seeds[3];
}

/* The last step, which leaves the upper half as it is. */
static __always_inline __u64 hash_end(__u64 sum)
{
	return sum ^ (sum >> 32);
}

static __always_inline __u64 hash_words(__u64 addresses, __u64 ports, __u64 station, __u32 tags)
{
	return hash_end(hash_sum(addresses, ports, station, tags));
}

#define CHOICES 2 /* buckets that a session may be in */

/* The first or second bucket of this hash. */
static __always_inline __u32 bucket_of(__u64 hash, __u32 choice)
{
	return (choice ? (__u32)hash / WAYS : (__u32)(hash >> 32)) & bucket_mask;
}

static __always_inline __u64 session_hash(const struct session_key *key)
{
	return hash_words(key_addresses(key), key_ports(key), key_station(key), key_tags(key));
}

/* Of the two IPv6 addresses: 32 bytes from the source address on, as they stand in the header. */
static __always_inline __u64 session_signature(const void *addresses)
{
	const __u64 *word = addresses;
	__u64 sum = word[0] * control.seeds[4] + word[1] * control.seeds[5] + word[2] * control.seeds[6] +
		    word[3] * control.seeds[7];

	sum ^= sum >> 32;
	sum *= control.seeds[8];
	return sum ^ (sum >> 29);
}

static __always_inline int same_addresses(const struct addresses *addresses, const void *header)
{
	const __u64 *here = (const __u64 *)addresses->source, *there = header;

	return !((here[0] ^ there[0]) | (here[1] ^ there[1]) | (here[2] ^ there[2]) |
		 (here[3] ^ there[3]));
}

/* Equal but for the generation. */
static __always_inline int same_key(const struct session_key *a, const struct session_key *b)
{
	return !((key_addresses(a) ^ key_addresses(b)) | (key_ports(a) ^ key_ports(b)) |
		 (key_station(a) ^ key_station(b)) | (key_tags(a) ^ key_tags(b)));
}

/* A session and what belongs to it. */
struct place {
	struct session *session;
	struct addresses *addresses; /* for an IPv6 session; else NULL */
	__u32 slot;		     /* bucket * WAYS + way; of no use in the designs with hash maps */
};

static __always_inline struct addresses *addresses_at(__u32 slot)
{
	__u32 index = slot / WAYS;
	struct bucket6 *bucket = bpf_map_lookup_elem(&table6, &index);

	return bucket ? &bucket->way[slot % WAYS] : NULL;
}

static __always_inline struct hashed_session *hashed_at(const struct session_key *key)
{
	struct session_key plain = *key;

	plain.generation = 0;
	return bpf_map_lookup_elem(&hashed, &plain);
}

/* The session of this key, whatever its generation. What it points to may be changed by others: take the
 * lock, or look at `version` before and after. `addresses` is where the IPv6 source and destination stand,
 * 32 bytes that are not looked at for IPv4: a session of the same signature with other addresses is not
 * found. */
static __always_inline int session_find(const struct session_key *key, __u64 hash,
					const void *addresses, struct place *place)
{
	int is_ipv6 = (key->kind & KIND_FAMILY) == KIND_IPV6;
	struct bucket *bucket;
	__u32 index;

	place->addresses = NULL;
	if (!uses_table()) {
		struct hashed_session *found = hashed_at(key);

		if (!found || !found->session.key.kind)
			return 0;
		place->session = &found->session;
		place->addresses = &found->addresses;
		place->slot = 0;
		return !is_ipv6 || same_addresses(&found->addresses, addresses);
	}
	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		__u32 way = (hash + i) % WAYS;
		struct session *session;

		index = bucket_of(hash, i / WAYS);
		bucket = bpf_map_lookup_elem(&table, &index);
		if (!bucket)
			return 0;
		session = &bucket->way[way];
		if (!same_key(&session->key, key))
			continue;
		place->session = session;
		place->slot = index * WAYS + way;
		if (!is_ipv6)
			return 1;
		place->addresses = addresses_at(place->slot);
		if (place->addresses && same_addresses(place->addresses, addresses))
			return 1;
	}
	return 0;
}

/* Takes the lock; 0 when somebody else has it. On success *version is what to unlock with. */
static __always_inline int session_lock(struct session *session, __u32 *version)
{
	*version = READ_ONCE(session->version);
	return !(*version & 1) &&
	       __sync_val_compare_and_swap(&session->version, *version, *version + 1) == *version;
}

static __always_inline void session_unlock(struct session *session, __u32 version)
{
	session_barrier();
	WRITE_ONCE(session->version, version + 2);
}

/* Places of a bucket that are not free. */
static __always_inline __u32 bucket_load(const struct bucket *bucket)
{
	__u32 load = 0;

	for (__u32 way = 0; way < WAYS; way++)
		load += !!READ_ONCE(bucket->way[way].key.kind);
	return load;
}

/* Which bucket a new session goes to. The first, where the fast path looks first, unless that has one place
 * left at most and the second has more. Always the emptier one would leave a session in 50,000 without a place
 * in a table that holds all it has room for, but a quarter would be where the fast path looks last; only when
 * the first is full: one in 300 and 3%. This is between the two: one in 4,000 and 9%. */
static __always_inline __u32 choice_of(__u64 hash)
{
	__u32 first = bucket_of(hash, 0), second = bucket_of(hash, 1), load;
	const struct bucket *bucket = bpf_map_lookup_elem(&table, &first);

	if (!bucket)
		return 0;
	load = bucket_load(bucket);
	if (load < WAYS - 1)
		return 0;
	bucket = bpf_map_lookup_elem(&table, &second);
	return bucket && bucket_load(bucket) < load;
}

/* Takes a free place for the key in one of its buckets and locks it. The caller fills in everything but
 * `version`, and publishes. 0 when there is none. */
static __always_inline int session_claim(__u64 hash, struct place *place, __u32 *version)
{
	__u32 choice = choice_of(hash);

	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		__u32 way = (hash + i) % WAYS, index = bucket_of(hash, i / WAYS ^ choice);
		struct bucket *bucket = bpf_map_lookup_elem(&table, &index);
		struct session *session;

		if (!bucket)
			return 0;
		session = &bucket->way[way];
		if (READ_ONCE(session->key.kind) || !session_lock(session, version))
			continue;
		if (READ_ONCE(session->key.kind)) {
			session_unlock(session, *version);
			continue;
		}
		place->session = session;
		place->slot = index * WAYS + way;
		place->addresses = addresses_at(place->slot);
		return 1;
	}
	return 0;
}

/* Makes the session valid, unless it was ended since `before` was read from key.generation. */
static __always_inline int session_publish(struct session *session, __u32 before, __u32 generation)
{
	session_barrier();
	return __sync_val_compare_and_swap(&session->key.generation, before, generation) == before;
}

/* Makes the session invalid until it is learned again. A full barrier. */
static __always_inline void session_end(struct session *session)
{
	__u32 before = READ_ONCE(session->key.generation);

	/* When the exchange fails somebody has just published: then once more. A second failure is a
	 * second learner within nanoseconds, which the lock does not let in, or another end. */
	for (int i = 0; i < 2; i++) {
		__u32 found = __sync_val_compare_and_swap(&session->key.generation, before,
							  (before + 1) | GENERATION_ENDED);

		if (found == before)
			return;
		before = found;
	}
}

/* bucket * WAYS + way of a session in the table. */
static __always_inline __u32 slot_of(const struct session *session)
{
	__u32 zero = 0;
	const struct bucket *first = bpf_map_lookup_elem(&table, &zero);

	return first ? ((__u64)session - (__u64)first) / sizeof(*session) : 0;
}

/* Counts a packet of `bytes` that went this session's way on this CPU. The generation of `key` is 0. */
static __always_inline void session_count(struct session *session, const struct session_key *key,
					  __u64 bytes)
{
	__u32 design = statistics;

	if (design == STATISTICS_NONE)
		return;
	if (design == STATISTICS_SLOT) {
		__u32 cpu = bpf_get_smp_processor_id() + 1, slot, index;
		struct strays *others;

		/* This CPU's softirqs are off: nothing else adds plainly to this cell meanwhile. */
		if (READ_ONCE(session->owner) == cpu ||
		    (!READ_ONCE(session->owner) &&
		     __sync_val_compare_and_swap(&session->owner, 0, cpu) == 0)) {
			session->packets++;
			session->bytes += bytes;
			return;
		}
		slot = slot_of(session);
		index = slot / WAYS;
		others = bpf_map_lookup_elem(&strays, &index);
		if (others) {
			__sync_fetch_and_add(&others->way[slot % WAYS].packets, 1);
			__sync_fetch_and_add(&others->way[slot % WAYS].bytes, bytes);
		}
		return;
	}
	if (design == STATISTICS_SHARED) {
		__sync_fetch_and_add(&session->packets, 1);
		__sync_fetch_and_add(&session->bytes, bytes);
		return;
	}
	if (design == STATISTICS_PER_CPU) {
		session->packets++;
		session->bytes += bytes;
		return;
	}
	{
		struct stray *cell, one = { .packets = 1, .bytes = bytes };

		cell = bpf_map_lookup_elem(&counters, key);
		if (cell) {
			cell->packets++;
			cell->bytes += bytes;
		} else {
			bpf_map_update_elem(&counters, key, &one, BPF_ANY);
		}
	}
}

static __always_inline __u32 pending_generation(__u64 word)
{
	return (word >> PENDING_GENERATION_SHIFT) & 0xffff;
}

static __always_inline __u32 pending_ttl(__u64 word)
{
	return (word >> PENDING_TTL_SHIFT) & 0xff;
}

static __always_inline __u32 pending_count(__u64 word)
{
	return word & PENDING_COUNT_MASK;
}

static __always_inline int pending_is_of(__u64 word, __u64 hash)
{
	return word && word >> PENDING_FINGERPRINT_SHIFT == (__u32)hash;
}

/* One of the entries that this hash may have: they share a cache line. */
static __always_inline struct pending *pending_way(__u64 hash, __u32 way)
{
	__u32 index = ((__u32)(hash >> 32) & pending_mask & ~(__u32)(PENDING_WAYS - 1)) + way;

	return bpf_map_lookup_elem(&pending, &index);
}

/* The entry of this hash; NULL where there is none. */
static __always_inline struct pending *pending_at(__u64 hash)
{
	for (__u32 way = 0; way < PENDING_WAYS; way++) {
		struct pending *entry = pending_way(hash, way);

		if (entry && pending_is_of(READ_ONCE(entry->word), hash))
			return entry;
	}
	return 0;
}

/* The entry of this hash, or one for it: an empty one, else any. Always the same would be wrong: sessions
 * that come in turns, more than there are entries, would push each other out for ever. */
static __always_inline struct pending *pending_place(__u64 hash)
{
	struct pending *place = 0;

	for (__u32 way = 0; way < PENDING_WAYS; way++) {
		struct pending *entry = pending_way(hash, way);
		__u64 word;

		if (!entry)
			return 0;
		word = READ_ONCE(entry->word);
		if (pending_is_of(word, hash))
			return entry;
		if (!word)
			place = entry;
	}
	return place ? place : pending_way(hash, bpf_get_prandom_u32() % PENDING_WAYS);
}

/* A packet of this hash goes to the kernel, which may make a session of it. */
static __always_inline void pending_note(__u64 hash, __u32 generation, __u32 ttl, __u32 bytes)
{
	struct pending *entry = pending_place(hash);
	__u64 word;
	__u32 count = 0, sum = 0;

	if (!entry)
		return;
	word = READ_ONCE(entry->word);
	if (pending_is_of(word, hash)) {
		count = pending_count(word);
		sum = entry->bytes;
	}
	if (count < PENDING_COUNT_MASK) {
		count++;
		sum += bytes;
	}
	entry->bytes = sum;
	session_barrier();
	WRITE_ONCE(entry->word, hash << PENDING_FINGERPRINT_SHIFT |
					(__u64)(generation & 0xffff) << PENDING_GENERATION_SHIFT |
					(ttl & 0xff) << PENDING_TTL_SHIFT | count);
}

/* What is on its way through the stack with this hash makes no session. A full barrier. */
static __always_inline void pending_clear(__u64 hash)
{
	for (__u32 way = 0; way < PENDING_WAYS; way++) {
		struct pending *entry = pending_way(hash, way);

		/* The exchange of nothing for nothing is for the barrier. */
		if (entry && pending_is_of(READ_ONCE(entry->word), hash))
			__sync_lock_test_and_set(&entry->word, 0);
		else if (entry)
			__sync_val_compare_and_swap(&entry->word, 0, 0);
	}
}

#endif
