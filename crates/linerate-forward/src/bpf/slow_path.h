/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What XDP and TC do with a frame that they do not forward: check the deny lists, end the session that the
 * frame ends, record a candidate, count the reason, and pass the frame on unchanged. It parses the frame again,
 * with a key in memory: next to the kernel's own path that costs little, and the fast path stays small. */
#ifndef LINERATE_SLOW_PATH_H
#define LINERATE_SLOW_PATH_H

#include "candidate.h"
#include "parse.h"
#include "partial_checksum.h"
#include "table.h"

/* A frame as the deny lists and the learner see it. */
struct frame {
	struct session_key key;		 /* generation is 0; kind is 0 where there are no addresses */
	struct denied_session_key denied; /* protocol is 0 where there are no ports */
	__u32 ttl;
	__u32 multicast; /* addressed to more than one */
	__u32 partial; /* CANDIDATE_PARTIAL, or 0 */
};

/* Too large for the stack. The verifier also forgets the values of what it reads from a map: it follows the
 * rest of the program once, and not once for each path through parse(). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frame);
} scratch SEC(".maps");

/* `packet` is what parse() made of the frame; `mac` begins with the destination's address. */
static __always_inline void inspect(const struct packet *packet, __u64 mac, void *end,
				    __u32 ifindex, struct frame *frame)
{
	void *network = packet->network;

	__builtin_memset(frame, 0, sizeof(*frame));
	if (!network)
		return;
	__builtin_memcpy(frame->key.dst_mac, &mac, 6);
	if ((packet->kind & KIND_FAMILY) == KIND_IPV4 && network + IPV4_LEN <= end) {
		frame->key.signature = load64(network + 12);
		*(__u32 *)frame->denied.source = load32(network + 12);
		*(__u32 *)frame->denied.destination = load32(network + 16);
		frame->multicast = (frame->key.dst_mac[0] & 1) ||
			      (*(__u8 *)(network + 16) & 0xf0) == 0xe0 ||
			      load32(network + 16) == 0xffffffff;
	} else if ((packet->kind & KIND_FAMILY) == KIND_IPV6 && network + IPV6_LEN <= end) {
		__builtin_memcpy(frame->denied.source, network + 8, 32);
		frame->key.signature = session_signature(network + 8);
		frame->multicast = (frame->key.dst_mac[0] & 1) || *(__u8 *)(network + 24) == 0xff;
	} else {
		return;
	}
	*(__u32 *)&frame->key.source_port = packet->ports;
	frame->key.ifindex = ifindex;
	frame->key.kind = packet->kind;
	frame->key.dscp = packet->tos & 0xfc;
	*(__u32 *)frame->key.tag = packet->tags;
	*(__u32 *)&frame->denied.source_port = packet->ports;
	frame->denied.family = packet->kind & KIND_FAMILY;
	if (packet->ports)
		frame->denied.protocol = packet->kind & KIND_TCP ? IPPROTO_TCP : IPPROTO_UDP;
	frame->ttl = packet->ttl;
}

static __always_inline int is_denied(struct denied *entry)
{
	if (!entry || (entry->expires && entry->expires <= bpf_jiffies64()))
		return 0;
	__sync_fetch_and_add(&entry->dropped, 1);
	return 1;
}

static __always_inline int denied(const struct frame *frame)
{
	if (frame->denied.family == KIND_IPV4) {
		struct denied4_key key = { .prefix_len = 32 };

		*(__u32 *)key.address = *(__u32 *)frame->denied.source;
		if (is_denied(bpf_map_lookup_elem(&denied4, &key)))
			return 1;
		*(__u32 *)key.address = *(__u32 *)frame->denied.destination;
		if (is_denied(bpf_map_lookup_elem(&denied4, &key)))
			return 1;
	} else {
		struct denied6_key key = { .prefix_len = 128 };

		__builtin_memcpy(key.address, frame->denied.source, 16);
		if (is_denied(bpf_map_lookup_elem(&denied6, &key)))
			return 1;
		__builtin_memcpy(key.address, frame->denied.destination, 16);
		if (is_denied(bpf_map_lookup_elem(&denied6, &key)))
			return 1;
	}
	return frame->denied.protocol &&
	       is_denied(bpf_map_lookup_elem(&denied_sessions, &frame->denied));
}

/* Bytes of the frame in further buffers. */
static __always_inline __u32 beyond_first(struct xdp_md *context)
{
	void *data = frame_start(context), *end = frame_end(context);

	return multi_buffer ? bpf_xdp_get_buff_len(context) - (end - data) : 0;
}

/* The heartbeat is too old: what the sessions hold may no longer be right. */
static __always_inline int daemon_timed_out(void)
{
	return bpf_jiffies64() - READ_ONCE(control.heartbeat) > READ_ONCE(control.heartbeat_timeout);
}

static __always_inline void count_reason(__u32 reason)
{
	__u32 index = reason - 1;
	__u64 *count = bpf_map_lookup_elem(&reasons, &index);

	if (count)
		*count += 1;
}

/* Why the session of this frame, which is parsed, was not used. The fast path found no valid one; one that
 * was learned since then counts as unknown. */
static __always_inline __u32 classify(const struct frame *frame)
{
	struct interface *interface;
	struct entry entry;
	__u32 generation;

	if (frame->multicast)
		return REASON_MULTICAST;
	interface = bpf_map_lookup_elem(&interfaces, &frame->key.ifindex);
	if (interface && (*(__u32 *)interface->mac != *(__u32 *)frame->key.dst_mac ||
			  *(__u16 *)(interface->mac + 4) != *(__u16 *)(frame->key.dst_mac + 4)))
		return REASON_OTHERHOST;
	if (!session_find(&frame->key, frame->denied.source, &entry))
		return REASON_UNKNOWN;
	generation = READ_ONCE(entry.session->generation);
	if (generation & GENERATION_ENDED)
		return REASON_ENDED;
	return generation == READ_ONCE(control.generation) && is_routed(entry.session) ? REASON_UNKNOWN
										       : REASON_STALE;
}

/* A frame that ends a connection ends the sessions of both directions. That of the answers is known from
 * the session of the frame, translation included, or else from the frame itself. */
static __always_inline void end_both(const struct frame *frame)
{
	struct tuple_key key = {
		.addresses = frame->key.signature,
		.ports = *(const __u32 *)&frame->key.source_port,
		.kind = frame->key.kind & TUPLE_KIND,
	};
	struct tuple_key answers = { .ports = swap_ports(key.ports), .kind = key.kind }, unused = {};

	answers.addresses = (key.kind & KIND_FAMILY) == KIND_IPV4
				    ? key.addresses << 32 | key.addresses >> 32
				    : session_signature_of(frame->denied.destination, frame->denied.source);
	tuple_end(&key, &answers, GENERATION_CLOSED);
	tuple_end(&answers, &unused, GENERATION_CLOSED);
}

/* Whether to drop a frame that is not forwarded for `reason`, REASON_UNKNOWN when no session was found. `generation` is
 * from before the call: user space inserts an entry of a deny list first and bumps the generation after. So a packet
 * that was not denied either came before the bump, and what is learned from it is stale, or saw the entry. */
static __always_inline int leave_to_kernel(struct frame *frame, __u32 reason, __u32 generation)
{
	__u64 hash;

	if (READ_ONCE(control.denied) && frame->key.kind && denied(frame)) {
		count_reason(REASON_DENIED);
		return 1;
	}
	hash = session_hash(&frame->key);
	if (is_end(reason)) {
		struct entry entry;

		candidate_clear(hash);
		if (session_find(&frame->key, frame->denied.source, &entry))
			session_end(entry.session, 0);
		if (reason != REASON_SYN)
			end_both(frame);
	} else if (reason == REASON_UNKNOWN || reason == REASON_REVALIDATE) {
		if (reason == REASON_UNKNOWN)
			reason = classify(frame);
		if (reason != REASON_MULTICAST && reason != REASON_OTHERHOST)
			candidate_note(hash, generation, frame->ttl, frame->partial);
	}
	count_reason(reason);
	return 0;
}

/* XDP's verdict for a frame that is not forwarded. Global, so that the verifier looks at it once and not at
 * each call. */
__noinline int slow_path(struct xdp_md *context, __u32 reason, __u32 beyond)
{
	void *data = frame_start(context), *end = frame_end(context);
	__u32 generation = READ_ONCE(control.generation);
	struct packet packet = {};
	__u32 zero = 0, parsed;
	struct frame *frame = bpf_map_lookup_elem(&scratch, &zero);

	session_barrier();
	if (!frame)
		return XDP_PASS;
	parsed = parse(data, end, beyond, &packet);
	if (data + ETHERNET_LEN > end)
		packet.network = NULL;
	inspect(&packet, packet.network ? load64(data) : 0, end, context->ingress_ifindex, frame);
	if (parsed == PARSE_OK && has_partial_checksum(&packet, frame->denied.source, end))
		frame->partial = CANDIDATE_PARTIAL;
	return leave_to_kernel(frame, reason, generation) ? XDP_DROP : XDP_PASS;
}

#endif
