/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The product's store of sessions: a memory-mapped array of buckets of four, two buckets for each key. */
#ifndef LINERATE_TABLE_H
#define LINERATE_TABLE_H

#include "fib.h"
#include "parse.h"
#include "session_access.h"

#define STORE_REUSES_ENTRIES 1
#define STORE_PLAIN_NAT 1 /* the straight path translates */

#define CHOICES 2 /* buckets that a session may be in */

const volatile __u32 statistics = STATISTICS_SLOT;
const volatile __u32 bucket_mask = 0; /* buckets less one, of table, table6 and remote_counters */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket6);
} table6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct remote_counters);
} remote_counters SEC(".maps");

/* The first or second bucket of this hash. */
static __always_inline __u32 bucket_of(__u64 hash, __u32 choice)
{
	return (choice ? (__u32)hash / WAYS : (__u32)(hash >> 32)) & bucket_mask;
}

static __always_inline struct session *session_at(__u32 slot)
{
	__u32 index = slot / WAYS;
	struct bucket *bucket = bpf_map_lookup_elem(&table, &index);

	return bucket ? &bucket->way[slot % WAYS] : NULL;
}

static __always_inline struct addresses *addresses_at(__u32 slot)
{
	__u32 index = slot / WAYS;
	struct bucket6 *bucket = bpf_map_lookup_elem(&table6, &index);

	return bucket ? &bucket->way[slot % WAYS] : NULL;
}

static __always_inline struct counters *remote_counters_at(__u32 slot)
{
	__u32 index = slot / WAYS;
	struct remote_counters *bucket = bpf_map_lookup_elem(&remote_counters, &index);

	return bucket ? &bucket->way[slot % WAYS] : NULL;
}

/* The slot of a session in the table. */
static __always_inline __u32 slot_of(const struct session *session)
{
	__u32 zero = 0;
	const struct bucket *first = bpf_map_lookup_elem(&table, &zero);

	return first ? ((__u64)session - (__u64)first) / sizeof(*session) : 0;
}

/* A valid session, and its version before anything else of it was read. */
struct hit {
	struct session *session;
	struct addresses *addresses; /* IPv6 */
	__u32 version;
	__u32 outdated; /* slot, plus one, of a session that is valid except for its routes; 0: none */
};

/* Whether routes and neighbours are known to give what the session does. */
static __always_inline int is_routed(const struct session *session)
{
	return READ_ONCE(session->route_generation) == READ_ONCE(control.route_generation);
}

static __always_inline int find_in(__u32 index, const struct match *match, __u64 hash, int is_ipv6,
				   struct hit *hit)
{
	struct bucket *bucket = bpf_map_lookup_elem(&table, &index);

	if (!bucket)
		return 0;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < WAYS; i++) {
		__u32 way = (hash + i) % WAYS;
		struct session *session = &bucket->way[way];

		hit->version = READ_ONCE(session->version);
		session_barrier();
		if (matches(session, match)) {
			if (!is_routed(session)) {
				hit->outdated = index * WAYS + way + 1;
				return 0;
			}
			hit->session = session;
			if (is_ipv6)
				hit->addresses = addresses_at(index * WAYS + way);
			return !is_ipv6 || hit->addresses;
		}
	}
	return 0;
}

static __always_inline int find_valid(const struct match *match, __u64 hash, int is_ipv6,
				      struct hit *hit)
{
	hit->outdated = 0;
	return find_in(bucket_of(hash, 0), match, hash, is_ipv6, hit) ||
	       find_in(bucket_of(hash, 1), match, hash, is_ipv6, hit);
}

/* The words that a plain frame (forward.bpf.c) is matched by, except for the ports. */
static __always_inline void match_plain(const void *data, __u64 marks, struct match *match)
{
	match->addresses = load64(data + 26);
	match->dst_mac = (load64(data) & MAC_MASK) | marks;
	match->tags = (__u64)READ_ONCE(control.generation) << 32;
}

/* The session of a plain frame, searched at its home way first, where most sessions are. The ports are in
 * `match`. */
static __always_inline int find_plain(void **data, __u64 addresses, __u32 kind, __u64 marks,
				      struct match *match, struct hit *hit)
{
	__u64 mixed = tuple_mix(addresses, match->ports, kind);
	__u32 index = bucket_of(mixed, 0);
	struct bucket *bucket = bpf_map_lookup_elem(&table, &index);

	if (!bucket)
		return 0;
	hit->session = &bucket->way[hash_end(mixed) % WAYS];
	hit->version = READ_ONCE(hit->session->version);
	session_barrier();
	REMATERIALIZE(*data);
	match_plain(*data, marks, match);
	if (matches(hit->session, match) && is_routed(hit->session))
		return 1;
	REMATERIALIZE(*data);
	REMATERIALIZE(mixed);
	match_plain(*data, marks, match);
	return find_valid(match, hash_end(mixed), 0, hit);
}

/* Counts packets, of `bytes` together, that this session forwarded on this CPU. */
static __always_inline void session_count(const struct hit *hit, __u64 packets, __u64 bytes)
{
	struct session *session = hit->session;
	struct counters *remote;
	__u32 cpu, word;

	if (statistics == STATISTICS_NONE)
		return;
	cpu = bpf_get_smp_processor_id() + 1;
	/* This CPU's softirqs are off: no other plain addition to this counter can run. */
	/* With the route generation in its upper half. */
	word = READ_ONCE(*(__u32 *)&session->owner);
	if ((__u16)word == cpu ||
	    (!(__u16)word &&
	     __sync_val_compare_and_swap((__u32 *)&session->owner, word, word | cpu) == word)) {
		session->packets += packets;
		session->bytes += bytes;
		return;
	}
	remote = remote_counters_at(slot_of(session));
	if (remote) {
		__sync_fetch_and_add(&remote->packets, packets);
		__sync_fetch_and_add(&remote->bytes, bytes);
	}
}

static __always_inline __u64 tuple_hash_of(const struct session_key *key)
{
	return tuple_hash(key_addresses(key), key_ports(key), key->kind);
}

/* The session of this key, of any generation. Other CPUs may modify it: take the lock, or check `version`
 * before and after reading. `addresses` points to the IPv6 source and destination, 32 bytes that are not read
 * for IPv4. A session of the same signature with other addresses is not found. */
static __always_inline int session_find(const struct session_key *key, const void *addresses,
					struct entry *entry)
{
	int is_ipv6 = (key->kind & KIND_FAMILY) == KIND_IPV6;
	__u64 hash = tuple_hash_of(key);
	struct bucket *bucket;
	__u32 index;

	entry->addresses = NULL;
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
		entry->session = session;
		entry->slot = index * WAYS + way;
		if (!is_ipv6)
			return 1;
		entry->addresses = addresses_at(entry->slot);
		if (entry->addresses && same_addresses(entry->addresses, addresses))
			return 1;
	}
	return 0;
}

/* Slots of a bucket that are taken. */
static __always_inline __u32 bucket_load(const struct bucket *bucket)
{
	__u32 load = 0;

	for (__u32 way = 0; way < WAYS; way++)
		load += !!READ_ONCE(bucket->way[way].key.kind);
	return load;
}

/* Which bucket a new session goes to: the first, where the fast path looks first, unless at most one of its
 * slots is free and the second has more. In a table filled to its capacity, always taking the emptier one
 * leaves a session in 50,000 without a slot but puts a quarter where the fast path looks last; taking the
 * second only when the first is full gives one in 300 and 3%. This is between the two: one in 4,000 and 9%.
 * */
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

/* Gives back a slot that was claimed, before the lock is released. */
static __always_inline void session_unclaim(struct session *session)
{
	session->key.kind = 0;
	__sync_fetch_and_sub(&control.taken, 1);
}

/* Takes a free slot for the key in one of its buckets and locks it. The caller fills in everything except
 * `version`, and publishes. 0 when the table has all sessions that it has room for, or both buckets are full. */
static __always_inline int session_claim(const struct session_key *key, struct entry *entry, __u32 *version)
{
	__u64 hash = tuple_hash_of(key);
	__u32 choice = choice_of(hash), room = (bucket_mask + 1) * (WAYS / 2);

	if (READ_ONCE(control.taken) >= room)
		return 0;
	if (__sync_fetch_and_add(&control.taken, 1) >= room)
		goto none;
	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		__u32 way = (hash + i) % WAYS, index = bucket_of(hash, i / WAYS ^ choice);
		struct bucket *bucket = bpf_map_lookup_elem(&table, &index);
		struct session *session;

		if (!bucket)
			goto none;
		session = &bucket->way[way];
		if (READ_ONCE(session->key.kind) || !session_lock(session, version))
			continue;
		if (READ_ONCE(session->key.kind)) {
			session_unlock(session, *version);
			continue;
		}
		entry->session = session;
		entry->slot = index * WAYS + way;
		entry->addresses = addresses_at(entry->slot);
		return 1;
	}
none:
	__sync_fetch_and_sub(&control.taken, 1);
	return 0;
}

/* Whether another possible slot of the key has it too. */
static __always_inline int session_is_duplicate(const struct entry *entry, const struct session_key *key)
{
	__u64 hash = tuple_hash_of(key);

	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		__u32 way = i % WAYS, index = bucket_of(hash, i / WAYS);
		struct bucket *bucket = bpf_map_lookup_elem(&table, &index);

		if (!bucket)
			return 0;
		if (index * WAYS + way != entry->slot && same_key(&bucket->way[way].key, key))
			return 1;
	}
	return 0;
}

/* Clears what was counted outside the session. */
static __always_inline void session_reset(const struct entry *entry)
{
	struct counters *remote;

	if (statistics == STATISTICS_NONE)
		return;
	remote = remote_counters_at(entry->slot);
	if (remote) {
		remote->packets = 0;
		remote->bytes = 0;
	}
}

/* Adds what went through the kernel to the counters of a session. */
static __always_inline void session_add(const struct entry *entry, const struct session_key *key,
					const struct counters *count)
{
	struct counters *remote;

	if (statistics == STATISTICS_NONE)
		return;
	remote = remote_counters_at(entry->slot);
	if (remote) {
		__sync_fetch_and_add(&remote->packets, count->packets);
		__sync_fetch_and_add(&remote->bytes, count->bytes);
	}
}

#include "by_tuple.h"

/* Makes an outdated session valid, if the kernel's tables still give what it does. */
static __always_inline int reroute(void *context, int is_xdp, __u32 slot)
{
	struct session *session = session_at(slot);
	__u32 version, routes;

	if (!session)
		return 0;
	version = READ_ONCE(session->version);
	session_barrier();
	routes = READ_ONCE(control.route_generation);
	session_barrier();
	/* At a tc hook there are also packets that XDP has asked about. */
	if ((version & 1) || !(session->flags & SESSION_FIB) ||
	    (!is_xdp && !(session->flags & SESSION_TC)) ||
	    !fib_prepare(session, addresses_at(slot)) ||
	    !(is_xdp ? fib_agrees_xdp(context) : fib_agrees_skb(context)))
		return 0;
	session_barrier();
	if (READ_ONCE(session->version) != version)
		return 0;
	WRITE_ONCE(session->route_generation, routes);
	session_full_barrier();
	if (READ_ONCE(session->version) == version)
		return 1;
	/* A learner was there meanwhile: what it wrote was not asked about. */
	WRITE_ONCE(session->route_generation, routes - 1);
	return 0;
}

/* The same at XDP. Global, as the next one, so that the verifier looks at it once. */
__noinline int session_reroute(struct xdp_md *context, __u32 slot)
{
	return reroute(context, 1, slot);
}

/* The same at a tc hook. */
__noinline int session_reroute_skb(struct __sk_buff *skb, __u32 slot)
{
	return reroute(skb, 0, slot);
}

#endif
