/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What XDP does with a frame that it does not forward: look at the deny lists, end the session that the
 * frame ends, tell the learner what passed, count why, and pass it on as it came. Parses the frame again,
 * with a key in memory: next to the kernel's own path that is little, and the fast path stays small. */
#ifndef LINERATE_SLOW_H
#define LINERATE_SLOW_H

#include "parse.h"
#include "session.h"
#include "unfinished.h"

/* A frame as the deny lists and the learner see it. */
struct seen {
	struct session_key key;		 /* generation is 0; kind is 0 where there are no addresses */
	struct denied_session_key denied; /* protocol is 0 where there are no ports */
	__u32 ttl;
	__u32 length;
	__u32 group; /* addressed to more than one */
	__u32 unfinished; /* its checksum is left to the hardware: nothing to learn from */
};

/* Too large for the stack. And what the verifier reads from a map it has forgotten: it then follows the
 * rest of the program once, and not once for each way through parse(). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} scratch SEC(".maps");

static __always_inline void look(void *data, void *end, __u32 beyond, __u32 ifindex,
				 struct seen *seen)
{
	struct packet packet = {};
	void *network;
	__u32 reason;

	__builtin_memset(seen, 0, sizeof(*seen));
	reason = parse(data, end, beyond, &packet);
	if (data + ETHERNET_LEN > end || !packet.network)
		return;
	__builtin_memcpy(seen->key.station, data, 6);
	network = packet.network;
	if ((packet.kind & KIND_FAMILY) == KIND_IPV4 && network + IPV4_LEN <= end) {
		seen->key.signature = word64(network + 12);
		*(__u32 *)seen->denied.source = word32(network + 12);
		*(__u32 *)seen->denied.destination = word32(network + 16);
		seen->group = (seen->key.station[0] & 1) ||
			      (*(__u8 *)(network + 16) & 0xf0) == 0xe0 ||
			      word32(network + 16) == 0xffffffff;
	} else if ((packet.kind & KIND_FAMILY) == KIND_IPV6 && network + IPV6_LEN <= end) {
		__builtin_memcpy(seen->denied.source, network + 8, 32);
		seen->key.signature = session_signature(network + 8);
		seen->group = (seen->key.station[0] & 1) || *(__u8 *)(network + 24) == 0xff;
	} else {
		return;
	}
	*(__u32 *)&seen->key.source_port = packet.ports;
	seen->key.ifindex = ifindex;
	seen->key.kind = packet.kind;
	seen->key.dscp = packet.tos & 0xfc;
	*(__u32 *)seen->key.tag = packet.tags;
	*(__u32 *)&seen->denied.source_port = packet.ports;
	seen->denied.family = packet.kind & KIND_FAMILY;
	if (packet.ports)
		seen->denied.protocol = packet.kind & KIND_TCP ? IPPROTO_TCP : IPPROTO_UDP;
	seen->ttl = packet.ttl;
	seen->length = packet.length;
	if (reason == CLEAN)
		seen->unfinished = is_unfinished(&packet, seen->denied.source, end);
}

static __always_inline int is_denied(struct denied *entry)
{
	if (!entry || (entry->expires && entry->expires <= bpf_jiffies64()))
		return 0;
	__sync_fetch_and_add(&entry->dropped, 1);
	return 1;
}

static __always_inline int denied(const struct seen *seen)
{
	if (seen->denied.family == KIND_IPV4) {
		struct denied4_key key = { .prefix_len = 32 };

		*(__u32 *)key.address = *(__u32 *)seen->denied.source;
		if (is_denied(bpf_map_lookup_elem(&denied4, &key)))
			return 1;
		*(__u32 *)key.address = *(__u32 *)seen->denied.destination;
		if (is_denied(bpf_map_lookup_elem(&denied4, &key)))
			return 1;
	} else {
		struct denied6_key key = { .prefix_len = 128 };

		__builtin_memcpy(key.address, seen->denied.source, 16);
		if (is_denied(bpf_map_lookup_elem(&denied6, &key)))
			return 1;
		__builtin_memcpy(key.address, seen->denied.destination, 16);
		if (is_denied(bpf_map_lookup_elem(&denied6, &key)))
			return 1;
	}
	return seen->denied.protocol &&
	       is_denied(bpf_map_lookup_elem(&denied_sessions, &seen->denied));
}

/* The daemon has not been heard of for too long, and what it knew may no longer be so. */
static __always_inline int is_silent(void)
{
	return bpf_jiffies64() - READ_ONCE(control.heartbeat) > READ_ONCE(control.patience);
}

static __always_inline void count_reason(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&reasons, &reason);

	if (count)
		*count += 1;
}

/* Why the session of this frame, which parses, was not used. The fast path found no valid one; if somebody
 * has learned it by now, it was unknown. */
static __always_inline __u32 judge(const struct seen *seen, __u64 hash)
{
	struct interface *interface;
	struct place place;
	__u32 generation;

	if (seen->group)
		return REASON_GROUP;
	interface = bpf_map_lookup_elem(&interfaces, &seen->key.ifindex);
	if (interface && (*(__u32 *)interface->mac != *(__u32 *)seen->key.station ||
			  *(__u16 *)(interface->mac + 4) != *(__u16 *)(seen->key.station + 4)))
		return REASON_FOREIGN;
	if (!session_find(&seen->key, hash, seen->denied.source, &place))
		return REASON_UNKNOWN;
	generation = READ_ONCE(place.session->key.generation);
	if (generation & GENERATION_ENDED)
		return REASON_ENDED;
	return generation == READ_ONCE(control.generation) ? REASON_UNKNOWN : REASON_STALE;
}

static __always_inline int is_end(__u32 reason)
{
	return reason == REASON_SYN || reason == REASON_FIN || reason == REASON_RST;
}

/* The verdict for a frame that is not forwarded for `reason`, CLEAN when the fast path found no session.
 * Global, so that the verifier looks at it once and not at each call. */
__noinline int leave(struct xdp_md *context, __u32 reason, __u32 beyond)
{
	/* Before the deny lists: who blocks inserts first and bumps after. A session that is learned from
	 * a packet that was not denied is of a generation before the bump, or the packet saw the entry. */
	__u32 generation = READ_ONCE(control.generation);
	__u32 zero = 0;
	struct seen *seen = bpf_map_lookup_elem(&scratch, &zero);
	__u64 hash;

	session_barrier();
	if (!seen)
		return XDP_PASS;
	look(frame_start(context), frame_end(context), beyond,
	     context->ingress_ifindex, seen);
	if (READ_ONCE(control.denied) && seen->key.kind && denied(seen)) {
		count_reason(REASON_DENIED);
		return XDP_DROP;
	}
	hash = session_hash(&seen->key);
	if (is_end(reason)) {
		struct place place;

		pending_clear(hash);
		if (session_find(&seen->key, hash, seen->denied.source, &place))
			session_end(place.session);
	} else if (reason == CLEAN || reason == REASON_REFRESH) {
		if (reason == CLEAN)
			reason = judge(seen, hash);
		if (reason != REASON_GROUP && reason != REASON_FOREIGN && !seen->unfinished)
			pending_note(hash, generation, seen->ttl, seen->length);
	}
	count_reason(reason);
	return XDP_PASS;
}

#endif
