/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Finds sessions by addresses, ports and protocol alone: those of a connection that ends, whatever port, tags and
 * DSCP its packets come with. `by_tuple` is an array of buckets of slot numbers, a cache line each. A hash of the
 * tuple picks the bucket.
 *
 * Learners add with compare-and-swap, and nobody removes: an entry whose slot is free, or has a session of another
 * bucket by now, may be overwritten. An entry only says where to look; the session's own key decides. */
#ifndef LINERATE_BY_TUPLE_H
#define LINERATE_BY_TUPLE_H

#include "session_access.h"

#define TUPLE_WAYS 16

struct tuple_bucket {
	__u32 slot[TUPLE_WAYS]; /* plus one; 0: free */
};
_Static_assert(sizeof(struct tuple_bucket) == 64, "one cache line");

const volatile __u32 tuple_mask = 0; /* buckets less one */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tuple_bucket);
} by_tuple SEC(".maps");

/* Addresses, ports and protocol of packets as they come in. */
struct tuple_key {
	__u64 addresses; /* IPv4, or the signature of the IPv6 ones */
	__u32 ports;
	__u32 kind; /* KIND_FAMILY and KIND_TCP */
};

#define TUPLE_KIND (KIND_FAMILY | KIND_TCP)

static __always_inline __u32 swap_ports(__u32 ports)
{
	return ports << 16 | ports >> 16;
}

static __always_inline __u32 tuple_bucket_of(__u64 addresses, __u32 ports, __u32 kind)
{
	return hash_sum(addresses, ports, (__u64)(kind & TUPLE_KIND) << 48, 0) >> 32 & tuple_mask;
}

static __always_inline __u32 tuple_bucket_of_key(const struct session_key *key)
{
	return tuple_bucket_of(key_addresses(key), (__u32)key_ports(key), key->kind);
}

/* Makes the session in this slot findable by the tuple of its key; 0 where there is no room. Global, as tuple_end()
 * is, so that the verifier looks at it once. */
__noinline int tuple_add(const struct session_key *key, __u32 slot)
{
	struct tuple_bucket *bucket;
	__u32 index, wanted = slot + 1;

	if (!key)
		return 0;
	index = tuple_bucket_of_key(key);
	bucket = bpf_map_lookup_elem(&by_tuple, &index);
	if (!bucket)
		return 0;
	for (__u32 way = 0; way < TUPLE_WAYS; way++) {
		if (READ_ONCE(bucket->slot[way]) == wanted)
			return 1;
	}
	for (__u32 way = 0; way < TUPLE_WAYS; way++) {
		__u32 found = READ_ONCE(bucket->slot[way]);
		struct session *other = found ? session_at(found - 1) : NULL;

		if (other && READ_ONCE(other->key.kind) && tuple_bucket_of_key(&other->key) == index)
			continue;
		if (__sync_val_compare_and_swap(&bucket->slot[way], found, wanted) == found)
			return 1;
	}
	return 0;
}

/* What the answers to the packets that the session sends come in with. */
static __always_inline void tuple_of_answers(struct tuple_key *answers, const struct session *session,
					     __u32 slot)
{
	const struct addresses *addresses;

	answers->kind = session->key.kind & TUPLE_KIND;
	answers->ports = swap_ports(*(const __u32 *)&session->source_port);
	if ((session->key.kind & KIND_FAMILY) == KIND_IPV4) {
		answers->addresses = session->destination | (__u64)session->source << 32;
		return;
	}
	addresses = addresses_at(slot);
	if (addresses)
		answers->addresses = session_signature_of(addresses->out_destination, addresses->out_source);
}

/* Ends every session of packets that come in with this tuple, as session_end() does. Leaves the tuple of their answers
 * in *answers, where there are sessions. */
__noinline int tuple_end(const struct tuple_key *key, struct tuple_key *answers, __u32 closed)
{
	struct tuple_bucket *bucket;
	__u32 index;

	if (!key || !answers)
		return 0;
	index = tuple_bucket_of(key->addresses, key->ports, key->kind);
	bucket = bpf_map_lookup_elem(&by_tuple, &index);
	if (!bucket)
		return 0;
	for (__u32 way = 0; way < TUPLE_WAYS; way++) {
		__u32 slot = READ_ONCE(bucket->slot[way]);
		struct session *session = slot ? session_at(slot - 1) : NULL;

		if (!session || key_addresses(&session->key) != key->addresses ||
		    (__u32)key_ports(&session->key) != key->ports ||
		    (session->key.kind & TUPLE_KIND) != key->kind)
			continue;
		tuple_of_answers(answers, session, slot - 1);
		session_end(session, closed);
	}
	return 0;
}

#endif
