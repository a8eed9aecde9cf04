/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A store of sessions in the kernel's hash maps (forward's store.h), in the three designs of statistics of the
 * paper that forward's idea is from: one hash map with atomic counters, one per-CPU hash map for both, and one hash
 * map for sessions with a per-CPU LRU hash map for counters. Keys have generation 0. */
#ifndef LINERATE_HASHED_H
#define LINERATE_HASHED_H

#include "fib.h"
#include "parse.h"
#include "session_access.h"

/* The kernel may give the memory of a deleted entry to another session, but user space deletes only what it has
 * retired and no program holds. */
#define STORE_REUSES_ENTRIES 0
#define STORE_HAS_SLOTS 0
/* A key on the stack leaves no room for translation on the straight path: forward_any() does it. */
#define STORE_PLAIN_NAT 0

static __always_inline __u32 slot_of(const struct session *session)
{
	return 0;
}

struct tuple_key {
	__u64 addresses;
	__u32 ports;
	__u32 kind;
};

static __always_inline __u32 swap_ports(__u32 ports)
{
	return ports << 16 | ports >> 16;
}

static __always_inline int tuple_end(const struct tuple_key *key, struct tuple_key *answers,
				       __u32 closed)
{
	return 0;
}

enum design {
	DESIGN_SHARED,	/* atomic counters in the session */
	DESIGN_PER_CPU, /* a session for each CPU */
	DESIGN_SPLIT,	/* counters for each CPU, beside the session */
};

const volatile __u32 design = DESIGN_SHARED;

struct hashed_session {
	struct session session;
	struct hop hop;
	struct addresses addresses;
	__u64 out[4]; /* IPv6 addresses after NAT */
	struct cold cold;
};

/* Context of the program `end_session`. */
struct end_session {
	struct session_key key; /* generation 0 */
	__u32 cpu;		/* whose copy, in DESIGN_PER_CPU */
	__u32 retire;		/* 1: leave the session locked, for good */
	__u32 ended;		/* out: 1 where it had not ended before */
	__u32 busy;		/* out: 1 where another writer has the lock, and it was ended only */
};

/* Sessions; a per-CPU map in DESIGN_PER_CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct session_key);
	__type(value, struct hashed_session);
} hashed SEC(".maps");

/* Counters of DESIGN_SPLIT. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct session_key);
	__type(value, struct counters);
} split_counters SEC(".maps");

static const struct hashed_session no_session = {};

/* A valid session, and its version before anything else of it was read. */
struct hit {
	struct session *session;
	const struct hop *hop;
	struct addresses *addresses;
	__u32 version;
	__u32 outdated; /* always 0: these stores know one generation */
};

static __always_inline int is_routed(const struct session *session)
{
	return 1;
}

static __always_inline int session_reroute(struct xdp_md *context, __u32 slot)
{
	return 0;
}

static __always_inline int session_reroute_skb(struct __sk_buff *skb, __u32 slot)
{
	return 0;
}

/* Each session has its own. */
static __always_inline const struct hop *hop_of(const struct session *session)
{
	return &((const struct hashed_session *)session)->hop;
}

static __always_inline struct cold *cold_of(const struct entry *entry)
{
	return &((struct hashed_session *)entry->session)->cold;
}

static __always_inline int hop_index(const struct hop *wanted)
{
	return 1;
}

static __always_inline void session_set_hop(const struct entry *entry, __u32 hop, const struct hop *wanted)
{
	((struct hashed_session *)entry->session)->hop = *wanted;
}

static __always_inline __u32 hop_address_number(const __u64 *address)
{
	return 1;
}

static __always_inline void session_set_out(const struct entry *entry, const __u32 *numbers, const void *out)
{
	__builtin_memcpy(((struct hashed_session *)entry->session)->out, out, 32);
}

static __always_inline void out_addresses(const struct session *session, const struct addresses *addresses,
					  __u64 *out)
{
	__builtin_memcpy(out, ((const struct hashed_session *)session)->out, 32);
}

static __always_inline int find_valid(const struct match *match, __u64 hash, int is_ipv6,
				      struct hit *hit)
{
	struct hashed_session *value;
	struct session_key key;

	hit->outdated = 0;
	key.signature = match->addresses;
	*(__u64 *)&key.source_port = (__u32)match->ports | match->link << 32;
	*(__u64 *)key.dst_mac = (match->dst_mac & MAC_MASK) | match->ports >> 32 << 48;
	*(__u64 *)key.tag = match->link >> 32;
	value = bpf_map_lookup_elem(&hashed, &key);
	if (!value)
		return 0;
	hit->version = READ_ONCE(value->session.version);
	session_barrier();
	hit->session = &value->session;
	hit->hop = &value->hop;
	hit->addresses = &value->addresses;
	return matches(&value->session, match) && comes_in(&value->hop, match) &&
	       READ_ONCE(value->session.generation) == READ_ONCE(control.generation);
}

static __always_inline int find_plain(void **data, __u64 addresses, __u32 kind, struct match *match,
				      struct hit *hit)
{
	match->addresses = addresses;
	match->dst_mac = load64(*data);
	return find_valid(match, 0, 0, hit);
}

static __always_inline void count_split(const struct session_key *key, const struct counters *count)
{
	struct counters *cell = bpf_map_lookup_elem(&split_counters, key);

	if (cell) {
		cell->packets += count->packets;
		cell->bytes += count->bytes;
	} else {
		bpf_map_update_elem(&split_counters, key, count, BPF_ANY);
	}
}

static __always_inline void session_count(const struct hit *hit, __u64 packets, __u64 bytes)
{
	struct session *session = hit->session;

	if (design == DESIGN_SHARED) {
		__sync_fetch_and_add(&session->packets, packets);
		__sync_fetch_and_add(&session->bytes, bytes);
	} else if (design == DESIGN_PER_CPU) {
		session->packets += packets;
		session->bytes += bytes;
	} else {
		struct counters one = { .packets = packets, .bytes = bytes };
		struct session_key key = {
			.signature = session->addresses,
			.ifindex = hit->hop->ifindex,
			.kind = session->kind,
			.dscp = session->dscp,
		};

		*(__u32 *)&key.source_port = session->ports;
		__builtin_memcpy(key.dst_mac, hit->hop->dst_mac, 6);
		__builtin_memcpy(key.tag, hit->hop->tag, 4);
		count_split(&key, &one);
	}
}

static __always_inline int session_find(const struct session_key *key, const void *addresses,
					struct entry *entry)
{
	struct session_key plain = *key;
	struct hashed_session *found;

	plain.generation = 0;
	found = bpf_map_lookup_elem(&hashed, &plain);
	entry->addresses = NULL;
	if (!found || !found->session.kind)
		return 0;
	entry->session = &found->session;
	entry->addresses = &found->addresses;
	entry->slot = 0;
	return (key->kind & KIND_FAMILY) != KIND_IPV6 || same_addresses(&found->addresses, addresses);
}

static __always_inline int session_claim(const struct session_key *key, struct entry *entry, __u32 *version)
{
	struct session_key plain = *key;
	struct hashed_session *made;

	plain.generation = 0;
	bpf_map_update_elem(&hashed, &plain, &no_session, BPF_NOEXIST);
	made = bpf_map_lookup_elem(&hashed, &plain);
	if (!made || !session_lock(&made->session, version))
		return 0;
	if (made->session.kind) {
		session_unlock(&made->session, *version);
		return 0;
	}
	entry->session = &made->session;
	entry->addresses = &made->addresses;
	entry->slot = 0;
	return 1;
}

static __always_inline void session_unclaim(struct session *session)
{
	session->kind = 0;
}

/* A hash map has a key once. */
static __always_inline int session_is_duplicate(const struct entry *entry, const struct session_key *key)
{
	return 0;
}

static __always_inline void session_add(const struct entry *entry, const struct session_key *key,
					const struct counters *count)
{
	struct session *session = entry->session;

	if (design == DESIGN_SHARED) {
		__sync_fetch_and_add(&session->packets, count->packets);
		__sync_fetch_and_add(&session->bytes, count->bytes);
	} else if (design == DESIGN_PER_CPU) {
		session->packets += count->packets;
		session->bytes += count->bytes;
	} else {
		struct session_key plain = *key;

		plain.generation = 0;
		count_split(&plain, count);
	}
}

#endif
