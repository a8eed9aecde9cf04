/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The table of sessions: a memory-mapped array of buckets of eight, two buckets for each key. */
#ifndef LINERATE_TABLE_H
#define LINERATE_TABLE_H

#include "fib.h"
#include "hop.h"
#include "parse.h"
#include "session_access.h"

#define CHOICES 2 /* buckets that a session may be in */

const volatile __u32 statistics = STATISTICS_SLOT;
const volatile __u32 buckets = 1; /* of table, table6 and cold */

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
	__type(value, struct cold_bucket);
} cold SEC(".maps");

/* The first or second bucket of this hash: of the product of a half with their number, the upper half (Lemire, "Fast
 * random integer generation in an interval"). */
static __always_inline __u32 bucket_of(__u64 hash, __u32 choice)
{
	return (choice ? (__u64)(__u32)hash : hash >> 32) * buckets >> 32;
}

/* Newer compilers add an offset to a map's value before they compare it with NULL, which the verifier refuses. After
 * the comparison, this keeps what is added where it is. */
#define CHECKED(value) barrier_var(value)

static __always_inline struct session *session_at(__u32 slot)
{
	__u32 index = slot / WAYS;
	struct bucket *bucket = bpf_map_lookup_elem(&table, &index);

	if (!bucket)
		return NULL;
	CHECKED(bucket);
	return &bucket->way[slot % WAYS];
}

static __always_inline struct addresses *addresses_at(__u32 slot)
{
	__u32 index = slot / WAYS;
	struct bucket6 *bucket = bpf_map_lookup_elem(&table6, &index);

	if (!bucket)
		return NULL;
	CHECKED(bucket);
	return &bucket->way[slot % WAYS];
}

static __always_inline struct cold *cold_at(__u32 slot)
{
	__u32 index = slot / WAYS;
	struct cold_bucket *bucket = bpf_map_lookup_elem(&cold, &index);

	if (!bucket)
		return NULL;
	CHECKED(bucket);
	return &bucket->way[slot % WAYS];
}

/* Whatever session is in this slot; 0 if there is no such slot. */
static __always_inline int entry_at(__u32 slot, struct entry *entry)
{
	entry->slot = slot;
	entry->session = session_at(slot);
	entry->addresses = addresses_at(slot);
	return entry->session && entry->addresses;
}

static __always_inline struct cold *cold_of(const struct entry *entry)
{
	return cold_at(entry->slot);
}

/* Writes both addresses with which packets of an IPv6 session leave that came in with `addresses`. */
static __always_inline void out_addresses(const struct session *session, const struct addresses *addresses,
					  __u64 *out)
{
	__u32 source = READ_ONCE(session->source6), destination = READ_ONCE(session->destination6);
	const __u64 *from = source ? nat_address(source) : (const __u64 *)addresses->source;
	const __u64 *to = destination ? nat_address(destination) : (const __u64 *)addresses->destination;

	out[0] = from[0];
	out[1] = from[1];
	out[2] = to[0];
	out[3] = to[1];
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
	const struct hop *hop;
	struct addresses *addresses; /* IPv6 */
	__u32 version;
	__u32 outdated; /* slot, plus one, of a session that is valid except for its routes; 0: none */
};

/* No reason: the session of a frame is valid except for its routes. */
#define OUTDATED REASONS_END

/* Whether find_valid() found only such a session, whose slot it then puts into *outdated. */
static __always_inline int is_outdated(const struct hit *hit, __u32 *outdated)
{
	if (!hit->outdated || !outdated)
		return 0;
	*outdated = hit->outdated - 1;
	return 1;
}

static __always_inline int is_valid(const struct session *session)
{
	return READ_ONCE(session->generation) == READ_ONCE(control.generation);
}

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
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < WAYS; i++) {
		__u32 way = (hash + i) % WAYS;
		struct session *session = &bucket->way[way];

		hit->version = READ_ONCE(session->version);
		session_barrier();
		if (!matches(session, match))
			continue;
		hit->hop = hop_of(session);
		if (!comes_in(hit->hop, match) || !is_valid(session))
			continue;
		if (!is_routed(session)) {
			hit->outdated = index * WAYS + way + 1;
			return 0;
		}
		hit->session = session;
		if (is_ipv6)
			hit->addresses = addresses_at(index * WAYS + way);
		return !is_ipv6 || hit->addresses;
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

/* The session of a plain frame (forward.bpf.c), searched at its home way first, where most sessions are. The ports and
 * the link are in `match`. */
static __always_inline int find_plain(void **data, __u64 addresses, __u32 kind, struct match *match,
				      struct hit *hit)
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
	match->addresses = load64(*data + 26);
	match->dst_mac = load64(*data);
	if (matches(hit->session, match)) {
		hit->hop = hop_of(hit->session);
		if (comes_in(hit->hop, match) && is_valid(hit->session) && is_routed(hit->session))
			return 1;
	}
	REMATERIALIZE(*data);
	REMATERIALIZE(mixed);
	match->addresses = load64(*data + 26);
	match->dst_mac = load64(*data);
	return find_valid(match, hash_end(mixed), 0, hit);
}

/* Counts packets, of `bytes` together, that this session forwarded on this CPU, and notes that it is used. */
static __always_inline void session_count(const struct hit *hit, __u64 packets, __u64 bytes)
{
	struct session *session = hit->session;
	/* With the route generation in its upper half. */
	__u32 *owner = (__u32 *)&session->owner, word = READ_ONCE(*owner);
	__u32 cpu = (bpf_get_smp_processor_id() + 1) | SESSION_REFERENCED;
	struct cold *cold;

	if (statistics == STATISTICS_NONE) {
		if (!(word & SESSION_REFERENCED))
			__sync_fetch_and_or(owner, SESSION_REFERENCED);
		return;
	}
	if ((__u16)word != cpu) {
		if (!(word & SESSION_REFERENCED))
			word = __sync_fetch_and_or(owner, SESSION_REFERENCED) | SESSION_REFERENCED;
		if ((__u16)word == SESSION_REFERENCED &&
		    __sync_val_compare_and_swap(owner, word, word | cpu) == word)
			word |= cpu;
		if ((__u16)word != cpu) {
			cold = cold_at(slot_of(session));
			if (cold) {
				__sync_fetch_and_add(&cold->remote.packets, packets);
				__sync_fetch_and_add(&cold->remote.bytes, bytes);
			}
			return;
		}
	}
	/* This CPU's softirqs are off: no other plain addition to this counter can run. */
	session->packets += packets;
	session->bytes += bytes;
}

static __always_inline __u64 tuple_hash_of(const struct session_key *key)
{
	return tuple_hash(key_addresses(key), key_ports(key), key->kind);
}

/* The slot, plus one, of the session of this key, of any generation; 0 if there is none. For IPv6 the addresses have to
 * be the same too. Global, so that the verifier looks at it once. */
__noinline int slot_of_key(const struct session_key *key, const struct addresses *addresses)
{
	__u64 hash;

	if (!key || !addresses)
		return 0;
	hash = tuple_hash_of(key);
	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		__u32 way = (hash + i) % WAYS, index = bucket_of(hash, i / WAYS);
		struct bucket *bucket = bpf_map_lookup_elem(&table, &index);
		const struct addresses *found;
		struct session *session;

		if (!bucket)
			return 0;
		session = &bucket->way[way];
		if (!same_key(session, hop_of(session), key))
			continue;
		if ((key->kind & KIND_FAMILY) != KIND_IPV6)
			return index * WAYS + way + 1;
		found = addresses_at(index * WAYS + way);
		if (found && same_addresses(found, addresses))
			return index * WAYS + way + 1;
	}
	return 0;
}

/* The session of this key, of any generation. Other CPUs may modify it: take the lock, or check `version`
 * before and after reading. `addresses` points to the IPv6 source and destination, 32 bytes that are not read
 * for IPv4. A session of the same signature with other addresses is not found. */
static __always_inline int session_find(const struct session_key *key, const void *addresses,
					struct entry *entry)
{
	__u32 slot = slot_of_key(key, addresses);

	return slot && entry_at(slot - 1, entry);
}

/* Slots of a bucket that are taken. */
static __always_inline __u32 bucket_load(const struct bucket *bucket)
{
	__u32 load = 0;

	for (__u32 way = 0; way < WAYS; way++)
		load += !!READ_ONCE(bucket->way[way].kind);
	return load;
}

/* Which bucket a new session goes to: the first, where the fast path looks first, unless at most three of its
 * slots are free and the second has more. In a table that has all sessions it has room for, always taking the
 * emptier one leaves a session in 1,000 without a slot but puts a third where the fast path looks last; taking the
 * second only when the first is full gives one in 40 and 7%. This is between the two: one in 500 and 19%, and one in
 * 10,000 at nine tenths. */
static __always_inline __u32 choice_of(__u64 hash)
{
	__u32 first = bucket_of(hash, 0), second = bucket_of(hash, 1), load;
	const struct bucket *bucket = bpf_map_lookup_elem(&table, &first);

	if (!bucket)
		return 0;
	load = bucket_load(bucket);
	if (load < WAYS - 3)
		return 0;
	bucket = bpf_map_lookup_elem(&table, &second);
	return bucket && bucket_load(bucket) < load;
}

/* Gives back a slot that was claimed, before the lock is released. */
static __always_inline void session_unclaim(struct session *session)
{
	session->kind = 0;
	__sync_fetch_and_sub(&control.taken, 1);
}

/* Takes a free slot for the key in one of its buckets and locks it. The caller fills in everything except
 * `version`, and publishes. 0 when the table has all sessions that it has room for, or both buckets are full. */
static __always_inline int session_claim(const struct session_key *key, struct entry *entry, __u32 *version)
{
	__u64 hash = tuple_hash_of(key);
	__u32 choice = choice_of(hash);

	if (READ_ONCE(control.taken) >= control.room)
		return 0;
	if (__sync_fetch_and_add(&control.taken, 1) >= control.room)
		goto none;
	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		__u32 way = (hash + i) % WAYS, index = bucket_of(hash, i / WAYS ^ choice);
		struct bucket *bucket = bpf_map_lookup_elem(&table, &index);
		struct session *session;

		if (!bucket)
			goto none;
		session = &bucket->way[way];
		if (READ_ONCE(session->kind) || !session_lock(session, version))
			continue;
		if (READ_ONCE(session->kind)) {
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
		if (index * WAYS + way != entry->slot &&
		    same_key(&bucket->way[way], hop_of(&bucket->way[way]), key))
			return 1;
	}
	return 0;
}

/* Adds what went through the kernel to the counters of a session. */
static __always_inline void session_add(const struct entry *entry, const struct counters *count)
{
	struct cold *cold;

	if (statistics == STATISTICS_NONE)
		return;
	cold = cold_of(entry);
	if (cold) {
		__sync_fetch_and_add(&cold->remote.packets, count->packets);
		__sync_fetch_and_add(&cold->remote.bytes, count->bytes);
	}
}

#include "by_tuple.h"

/* The whole question whether the kernel's tables give what the session does (fib.h). The caller notices it if the session
 * changes meanwhile. */
static __always_inline int fib_prepare_session(const struct session *session, const struct hop *hop,
					       const struct addresses *addresses)
{
	struct fib_query *query = fib_prepare(hop, session->kind, session->dscp);

	if (!query)
		return 0;
	query->source = session->in_source;
	query->source_port = session->ports;
	query->destination = session->destination;
	query->destination_port = session->destination_port;
	if (addresses && (session->kind & KIND_FAMILY) == KIND_IPV6) {
		query->addresses = *addresses;
		out_addresses(session, addresses, query->out);
	}
	return 1;
}

/* Makes an outdated session valid, if the kernel's tables still give what it does. */
static __always_inline int reroute(void *context, int is_xdp, __u32 slot)
{
	struct session *session = session_at(slot);
	const struct hop *hop;
	__u32 version, routes;

	if (!session)
		return 0;
	version = READ_ONCE(session->version);
	session_barrier();
	routes = READ_ONCE(control.route_generation);
	session_barrier();
	/* At a tc hook there are also packets that XDP has asked about. */
	hop = hop_of(session);
	if ((version & 1) || !(hop->flags & SESSION_FIB) || (!is_xdp && !(hop->flags & SESSION_TC)) ||
	    !fib_prepare_session(session, hop, addresses_at(slot)) ||
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
