/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Access to sessions: barriers, the hash, key comparison and the sequence lock. layout.h
 * describes the protocol. */
#ifndef LINERATE_SESSION_H
#define LINERATE_SESSION_H

#include "maps.h"

/* Orders earlier accesses before later ones. x86 keeps loads in order with loads, and stores with stores, so
 * only the compiler must be kept from moving them. On other machines this is a full memory barrier. */
#define session_full_barrier()                                                                     \
	do {                                                                                       \
		__u64 nothing = 0;                                                                 \
		__sync_fetch_and_add(&nothing, 0);                                                 \
		asm volatile("" ::"r"(&nothing) : "memory");                                       \
	} while (0)
#ifdef __TARGET_ARCH_x86
#define session_barrier() asm volatile("" ::: "memory")
#else
#define session_barrier() session_full_barrier()
#endif

#define READ_ONCE(variable) (*(volatile typeof(variable) *)&(variable))
#define WRITE_ONCE(variable, value) (*(volatile typeof(variable) *)&(variable) = (value))

/* Keeps the compiler from holding what it computed from `value` across this point: it computes that again. */
#define REMATERIALIZE(value) asm volatile("" : "+r"(value))

/* A session in the table, and what belongs to it. */
struct entry {
	struct session *session;
	struct addresses *addresses; /* of an IPv6 session */
	__u32 slot;		     /* bucket * WAYS + way */
};

/* The words of a key. */
static __always_inline __u64 key_addresses(const struct session_key *key)
{
	return key->signature;
}

static __always_inline __u64 key_ports(const struct session_key *key)
{
	return *(const __u64 *)&key->source_port;
}

static __always_inline __u64 key_dst_mac(const struct session_key *key)
{
	return *(const __u64 *)key->dst_mac;
}

static __always_inline __u32 key_tags(const struct session_key *key)
{
	return *(const __u32 *)key->tag;
}

/* The words that a session of a frame and its hop have, held in registers. */
struct match {
	__u64 addresses;
	__u64 ports;   /* in the lower half; kind and DSCP (MATCH_KIND) */
	__u64 dst_mac; /* in the lower 48 bits; the others may be anything */
	__u64 link;    /* input interface; tags in the upper half */
};

#define MATCH_KIND(kind, dscp) ((__u64)(kind) << 32 | (__u64)(dscp) << 40)

/* Without the link. */
static __always_inline int matches(const struct session *session, const struct match *match)
{
	return !((session->addresses ^ match->addresses) |
		 (*(const __u64 *)&session->ports ^ match->ports) << 16);
}

/* Whether the frame arrived by the input link of the hop. */
static __always_inline int comes_in(const struct hop *hop, const struct match *match)
{
	return !((*(const __u64 *)hop->dst_mac ^ match->dst_mac) << 16 |
		 (*(const __u64 *)&hop->ifindex ^ match->link));
}

#define MAC_MASK 0x0000ffffffffffffULL

/* A sum of products with odd random factors, whose upper half is close to universal (Dietzfelbinger et al.,
 * "A reliable randomized algorithm for the closest-pair problem"). It is mixed once more, so that somebody
 * who guesses collisions of a few sessions cannot compute those of others. The products do not depend on each
 * other. */
static __always_inline __u64 hash_mix(__u64 sum)
{
	sum ^= sum >> 32;
	return sum * control.seeds[3];
}

/* The last step, which leaves the upper half as it is. */
static __always_inline __u64 hash_end(__u64 mixed)
{
	return mixed ^ (mixed >> 32);
}

/* Selects the buckets of a session: addresses, ports and protocol alone. So all sessions of a connection are in the
 * buckets of its two tuples, whatever port, tags and DSCP their packets come with. The upper half of the hash picks
 * the first bucket, the lower half the second one. The lowest three bits are the home way. */
#define TUPLE_KIND (KIND_FAMILY | KIND_TCP)

static __always_inline __u64 tuple_mix(__u64 addresses, __u32 ports, __u32 kind)
{
	return hash_mix(addresses * control.seeds[0] +
			(ports | (__u64)(kind & TUPLE_KIND) << 32) * control.seeds[1]);
}

static __always_inline __u64 tuple_hash(__u64 addresses, __u32 ports, __u32 kind)
{
	return hash_end(tuple_mix(addresses, ports, kind));
}

/* The hash of the whole key. The upper half picks the set of candidates, the lower half is the fingerprint. */
static __always_inline __u64 session_hash(const struct session_key *key)
{
	return hash_end(hash_mix(key_addresses(key) * control.seeds[0] +
				 (key_ports(key) ^ (key_dst_mac(key) & ~MAC_MASK)) * control.seeds[1] +
				 key_tags(key) * control.seeds[2]));
}

/* Of two IPv6 addresses. */
static __always_inline __u64 session_signature_of(const void *source, const void *destination)
{
	const __u64 *from = source, *to = destination;
	__u64 sum = from[0] * control.seeds[4] + from[1] * control.seeds[5] + to[0] * control.seeds[6] +
		    to[1] * control.seeds[7];

	sum ^= sum >> 32;
	sum *= control.seeds[8];
	return sum ^ (sum >> 29);
}

/* Of the two IPv6 addresses: 32 bytes from the source address on, as they stand in the header. */
static __always_inline __u64 session_signature(const void *addresses)
{
	return session_signature_of(addresses, addresses + 16);
}

static __always_inline int same_addresses(const struct addresses *addresses, const void *header)
{
	const __u64 *here = (const __u64 *)addresses->source, *there = header;

	return !((here[0] ^ there[0]) | (here[1] ^ there[1]) | (here[2] ^ there[2]) |
		 (here[3] ^ there[3]));
}

/* Whether the session, which has this hop, has this key, of any generation. */
static __always_inline int same_key(const struct session *session, const struct hop *hop,
				    const struct session_key *key)
{
	struct match match = {
		.addresses = key_addresses(key),
		.ports = (__u32)key_ports(key) | MATCH_KIND(key->kind, key->dscp),
		.dst_mac = key_dst_mac(key),
		.link = key->ifindex | (__u64)key_tags(key) << 32,
	};

	return matches(session, &match) && comes_in(hop, &match);
}

/* Takes the lock; 0 when another writer has it. On success *version is what to unlock with. */
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

/* Makes the session valid, unless it was ended since `before` was read from its generation. */
static __always_inline int session_publish(struct session *session, __u32 before, __u32 generation)
{
	session_barrier();
	return __sync_val_compare_and_swap(&session->generation, before, generation) == before;
}

/* Makes the session invalid until it is learned again. `closed` is GENERATION_CLOSED or 0. A full barrier. */
static __always_inline void session_end(struct session *session, __u32 closed)
{
	__u32 before = READ_ONCE(session->generation);

	/* The exchange fails when another program has just published: then try once more. A second failure
	 * is a second learner within nanoseconds, which the lock excludes, or another end. */
	for (int i = 0; i < 2; i++) {
		__u32 found = __sync_val_compare_and_swap(&session->generation, before,
							  ((before + 1) & ~GENERATION_CLOSED) |
								  GENERATION_ENDED | closed);

		if (found == before)
			return;
		before = found;
	}
}

#endif
