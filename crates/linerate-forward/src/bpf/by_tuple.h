/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Ends sessions by addresses, ports and protocol alone: those of a connection that ends, whatever port, tags and
 * DSCP its packets come with. They are in two buckets, because only these fields of the key select the buckets. */
#ifndef LINERATE_BY_TUPLE_H
#define LINERATE_BY_TUPLE_H

#include "session_access.h"

/* Addresses, ports and protocol of packets as they come in. */
struct tuple_key {
	__u64 addresses; /* IPv4, or the signature of the IPv6 ones */
	__u32 ports;
	__u32 kind; /* KIND_FAMILY and KIND_TCP */
};

#define DEADLINE_SPREAD 4 /* jiffies */

static __always_inline __u32 swap_ports(__u32 ports)
{
	return ports << 16 | ports >> 16;
}

/* What the answers to the packets that the session sends come in with. */
static __always_inline void tuple_of_answers(struct tuple_key *answers, const struct session *session,
					     __u32 slot)
{
	const struct addresses *addresses;
	__u64 out[4];

	answers->kind = session->kind & TUPLE_KIND;
	answers->ports = swap_ports(*(const __u32 *)&session->source_port);
	if ((session->kind & KIND_FAMILY) == KIND_IPV4) {
		answers->addresses = session->destination | (__u64)session->source << 32;
		return;
	}
	addresses = addresses_at(slot);
	if (!addresses)
		return;
	out_addresses(session, addresses, out);
	answers->addresses = session_signature_of(&out[2], out);
}

/* The session in slot number `i` of those that this tuple, of this hash, may have; NULL if it has another tuple. */
static __always_inline struct session *tuple_session(const struct tuple_key *key, __u64 hash, __u32 i)
{
	struct session *session = session_at(bucket_of(hash, i / WAYS) * WAYS + i % WAYS);

	return session && session->addresses == key->addresses && session->ports == key->ports &&
			       (session->kind & TUPLE_KIND) == key->kind
		       ? session
		       : NULL;
}

/* Ends every session of packets that come in with this tuple, as session_end() does. Leaves the tuple of their answers
 * in *answers, where there are sessions. */
__noinline int tuple_end(const struct tuple_key *key, struct tuple_key *answers, __u32 closed)
{
	__u64 hash;

	if (!key || !answers)
		return 0;
	hash = tuple_hash(key->addresses, key->ports, key->kind);
	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		struct session *session = tuple_session(key, hash, i);

		if (!session)
			continue;
		tuple_of_answers(answers, session, slot_of(session));
		session_end(session, closed);
	}
	return 0;
}

#define TUPLE_REFERENCED 1
#define TUPLE_HAS_DEADLINE 2

/* Whether a session of packets that come in with this tuple has forwarded one since the ager looked, and whether one has
 * this deadline, more or less. */
__noinline int tuple_look(const struct tuple_key *key, __u32 deadline)
{
	__u64 hash;
	int found = 0;

	if (!key)
		return 0;
	hash = tuple_hash(key->addresses, key->ports, key->kind);
	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		const struct session *session = tuple_session(key, hash, i);

		if (!session)
			continue;
		if (READ_ONCE(session->owner) & SESSION_REFERENCED)
			found |= TUPLE_REFERENCED;
		/* Some jiffies pass while a session is learned. */
		if (READ_ONCE(session->deadline) - deadline + DEADLINE_SPREAD <= 2 * DEADLINE_SPREAD)
			found |= TUPLE_HAS_DEADLINE;
	}
	return found;
}

#endif
