// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The fast path: a frame of a session that the kernel has decided is sent as the kernel would send it;
 * every other goes to the kernel as it came. */

#include "checksum.h"
#include "maps.h"
#include "parse.h"
#include "rewrite.h"
#include "session.h"
#include "slow.h"
#include "fib.h"
#include "learn.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The words that a valid session of this frame has, held in registers. */
struct wanted {
	__u64 addresses;
	__u64 ports;
	__u64 station;
	__u64 tags; /* and generation */
};

static __always_inline int matches(const struct session *session, const struct wanted *wanted)
{
	return !((session->key.signature ^ wanted->addresses) |
		 (key_ports(&session->key) ^ wanted->ports) |
		 (key_station(&session->key) ^ wanted->station) |
		 (*(const __u64 *)session->key.tag ^ wanted->tags));
}

/* Where the valid session of these words is, and its version before anything else of it was read. */
struct found {
	struct session *session;
	struct addresses *addresses; /* IPv6 */
	struct session_key key;	     /* in the designs with hash maps */
	__u32 version;
};

static __always_inline int find_in(__u32 index, const struct wanted *wanted, __u64 hash, int is_ipv6,
				   struct found *found)
{
	struct bucket *bucket = bpf_map_lookup_elem(&table, &index);

	if (!bucket)
		return 0;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < WAYS; i++) {
		__u32 way = (hash + i) % WAYS;
		struct session *session = &bucket->way[way];

		found->version = READ_ONCE(session->version);
		session_barrier();
		if (matches(session, wanted)) {
			found->session = session;
			if (is_ipv6)
				found->addresses = addresses_at(index * WAYS + way);
			return !is_ipv6 || found->addresses;
		}
	}
	return 0;
}

static __always_inline int find(const struct wanted *wanted, __u64 hash, int is_ipv6,
				struct found *found)
{
	return find_in(bucket_of(hash, 0), wanted, hash, is_ipv6, found) ||
	       find_in(bucket_of(hash, 1), wanted, hash, is_ipv6, found);
}

static __always_inline int find_hashed(const struct wanted *wanted, struct found *found)
{
	struct hashed_session *value;

	found->key.signature = wanted->addresses;
	*(__u64 *)&found->key.source_port = wanted->ports;
	*(__u64 *)found->key.station = wanted->station;
	*(__u64 *)found->key.tag = (__u32)wanted->tags;
	value = bpf_map_lookup_elem(&hashed, &found->key);
	if (!value)
		return 0;
	found->version = READ_ONCE(value->session.version);
	session_barrier();
	found->session = &value->session;
	found->addresses = &value->addresses;
	return matches(&value->session, wanted);
}

/* 1 when the addresses are right, always so for IPv4. */
static __always_inline int take_action(const struct session *session,
				       const struct addresses *addresses,
				       const struct packet *packet, struct action *action)
{
	action->port = session->port;
	action->macs = *(const __u64 *)session->destination_mac;
	action->macs_end = *(const __u32 *)(session->source_mac + 2);
	action->dscp = session->dscp;
	action->network_delta = session->network_delta;
	action->flags = session->flags;
	action->tag_bytes = session->out_tags * TAG_LEN;
	if (action->tag_bytes)
		action->tags = *(const __u32 *)&session->out_tag[0] |
			       (__u64) * (const __u32 *)&session->out_tag[1] << 32;
	if (action->flags & SESSION_NAT) {
		action->ports = *(const __u32 *)&session->source_port;
		action->transport_delta = session->transport_delta;
		action->addresses = *(const __u64 *)&session->source;
	}
	if ((packet->kind & KIND_FAMILY) == KIND_IPV6) {
		if (!same_addresses(addresses, packet->network + 8))
			return 0;
		if (action->flags & SESSION_NAT)
			__builtin_memcpy(action->addresses6, addresses->out_source, 32);
	}
	return 1;
}

/* Bytes of the frame in further buffers. */
static __always_inline __u32 beyond_first(struct xdp_md *context)
{
	void *data = frame_start(context), *end = frame_end(context);

	return multi_buffer ? bpf_xdp_get_buff_len(context) - (end - data) : 0;
}

/* More than any verdict of XDP: with a reason added, that the frame is to be left. Returned and not called,
 * since the stacks of three functions are more than the verifier allows. */
#define LEAVE 0x100

/* Any frame: XDP_REDIRECT, or LEAVE and the reason. Global, so that the verifier looks at it once. */
__noinline int forward_any(struct xdp_md *context)
{
	__u32 beyond = beyond_first(context);
	void *data = frame_start(context), *end = frame_end(context);
	struct packet packet;
	struct wanted wanted;
	struct action action;
	struct found found;
	__u32 reason, is_ipv4;
	__u64 hash;
	void *network;

	if (is_silent())
		return LEAVE + REASON_NO_DAEMON;
	reason = parse(data, end, beyond, &packet);
	if (reason != CLEAN)
		return LEAVE + reason;

	is_ipv4 = (packet.kind & KIND_FAMILY) == KIND_IPV4;
	wanted.addresses = is_ipv4 ? packet.addresses : session_signature(packet.network + 8);
	wanted.ports = packet.ports | (__u64)context->ingress_ifindex << 32;
	wanted.station = (word64(data) & MAC_MASK) | (__u64)packet.kind << 48 |
			 (__u64)(packet.tos & 0xfc) << 56;
	wanted.tags = packet.tags | (__u64)READ_ONCE(control.generation) << 32;
	hash = hash_words(wanted.addresses, wanted.ports, wanted.station, packet.tags);

	if (uses_table() ? !find(&wanted, hash, !is_ipv4, &found) : !find_hashed(&wanted, &found))
		return LEAVE + CLEAN;
	if ((__s32)((__u32)bpf_jiffies64() - found.session->deadline) > 0)
		return LEAVE + REASON_REFRESH;
	if (packet.length > found.session->mtu)
		return LEAVE + REASON_TOO_BIG;
	if (!take_action(found.session, found.addresses, &packet, &action))
		return LEAVE + CLEAN;
	session_barrier();
	if ((found.version & 1) || READ_ONCE(found.session->version) != found.version)
		return LEAVE + REASON_BUSY;
	/* Tracking takes a packet with a wrong checksum out of its connection, and so out of NAT. */
	if ((action.flags & SESSION_CHECKED) && !has_right_checksum(context, &packet, data, end))
		return LEAVE + REASON_CHECKSUM;
	/* Asked before the frame is touched: a port may have gone, and the frame is then the kernel's. */
	if (bpf_redirect_map(&ports, action.port, XDP_PASS) != XDP_REDIRECT)
		return LEAVE + REASON_NO_PORT;

	network = packet.network;
	if (packet.excess | packet.tag_bytes | action.tag_bytes) {
		network = reshape(context, &packet, &action);
		if (!network)
			return LEAVE + REASON_NO_ROOM;
		data = frame_start(context);
		if (data + ETHERNET_LEN > frame_end(context))
			return LEAVE + REASON_NO_ROOM;
	}
	*(__u64 *)data = action.macs;
	*(__u32 *)(data + 8) = action.macs_end;
	if (is_ipv4)
		rewrite_ipv4(network, &packet, &action);
	else
		rewrite_ipv6(network, &packet, &action);
	if (!found.session->seen)
		found.session->seen = 1;
	session_count(found.session, &found.key, packet.length);
	return XDP_REDIRECT;
}

/* The ones' complement sum of a right IPv4 header is a multiple of 0xffff. A number is one when it is at
 * most 2^64 / 0xffff after multiplication with the inverse of 0xffff modulo 2^64. */
#define INVERSE_FFFF 0xfffefffefffeffffULL
#define LARGEST_QUOTIENT 0x0001000100010001ULL

/* The first bytes of a plain frame, its TOS left out: IPv4, version 4, a header of five words. */
#define PLAIN_MASK 0xffffff
#define PLAIN (RAW_IPV4 | 0x45 << 16)
/* Its word with fragment, TTL and protocol: no fragment, and which protocol. */
#define PLAIN_PROTOCOL_MASK 0xff00ff3f
#define PLAIN_UDP (IPPROTO_UDP << 24)
#define PLAIN_TCP (IPPROTO_TCP << 24)
#define PLAIN_TTL 0xfe0000 /* none of these bits: a TTL of 1 or 0 */

/* What was made of this is made again where it is wanted, and not kept in memory for it. */
#define FORGET(value) asm volatile("" : "+r"(value))

/* The words that a plain frame is matched by, but for the ports. */
static __always_inline void want_plain(const void *data, __u64 marks, struct wanted *wanted)
{
	wanted->addresses = word64(data + 26);
	wanted->station = (word64(data) & MAC_MASK) | marks;
	wanted->tags = (__u64)READ_ONCE(control.generation) << 32;
}

/* What most frames are, untagged IPv4 of a session without NAT, in a fraction of the instructions: all
 * offsets are constants, and what is not as expected is left to forward_any() from the start. It decides
 * nothing that forward_any() would decide otherwise. What is read of the session counts only when its
 * version is the same afterwards, and that is asked after the last of it, before the frame is touched. */
SEC("xdp")
int forward(struct xdp_md *context)
{
	void *data = frame_start(context), *end = frame_end(context);
	__u64 now, first, addresses, marks, sum;
	struct session *session = 0;
	struct wanted wanted;
	struct found found;
	__u32 middle, length, kind, verdict;
	__s32 room, time;

	if (multi_buffer || data + 42 > end)
		goto any;
	first = word64(data + 12);
	if (((__u32)first & PLAIN_MASK) != PLAIN)
		goto any;
	now = bpf_jiffies64();
	if (now - READ_ONCE(control.heartbeat) > READ_ONCE(control.patience))
		goto any;
	length = bpf_ntohs((__u16)(first >> 32));
	if (end - data != ETHERNET_LEN + length)
		goto any;
	middle = word32(data + 20);
	addresses = word64(data + 26);
	/* A word is congruent to the sum of its 16-bit parts; the ethertype is none of the header. */
	sum = (__u32)first - RAW_IPV4 + (first >> 32) + middle + word16(data + 24) + (__u32)addresses +
	      (addresses >> 32);
	if (sum * INVERSE_FFFF > LARGEST_QUOTIENT || !(middle & PLAIN_TTL))
		goto any;
	if ((middle & PLAIN_PROTOCOL_MASK) == PLAIN_UDP) {
		kind = KIND_IPV4;
		if (bpf_ntohs(word16(data + 38)) + IPV4_LEN != length)
			goto any;
	} else if ((middle & PLAIN_PROTOCOL_MASK) == PLAIN_TCP && data + 54 <= end) {
		__u32 offset_and_flags = word16(data + 46);
		__u32 header = (offset_and_flags & 0xf0) >> 2;

		kind = KIND_IPV4 | KIND_TCP;
		if ((offset_and_flags & (TCP_SYN | TCP_FIN | TCP_RST | TCP_ACK) << 8) !=
			    TCP_ACK << 8 ||
		    header < 20 || header + IPV4_LEN > length)
			goto any;
	} else {
		goto any;
	}

	marks = ((first >> 16 & 0xfc00) | kind) << 48;
	wanted.ports = word32(data + 34) | (__u64)context->ingress_ifindex << 32;
	if (uses_table()) {
		__u64 mixed = hash_sum(addresses, wanted.ports, marks, 0);
		__u32 index = bucket_of(mixed, 0);
		struct bucket *bucket = bpf_map_lookup_elem(&table, &index);

		if (!bucket)
			goto any;
		session = &bucket->way[hash_end(mixed) % WAYS];
		found.version = READ_ONCE(session->version);
		session_barrier();
		FORGET(data);
		want_plain(data, marks, &wanted);
		if (!matches(session, &wanted)) {
			/* Not at home, where most are. */
			FORGET(data);
			FORGET(mixed);
			want_plain(data, marks, &wanted);
			if (!find(&wanted, hash_end(mixed), 0, &found))
				goto any;
			session = found.session;
		}
	} else {
		want_plain(data, marks, &wanted);
		if (!find_hashed(&wanted, &found))
			goto any;
		session = found.session;
	}
	room = session->mtu - length;
	time = session->deadline - (__u32)now;
	if ((*(__u32 *)&session->dscp & WHAT_UNUSUAL) || (room | time) < 0)
		goto any;
	if (bpf_redirect_map(&ports, session->port, XDP_PASS) != XDP_REDIRECT)
		goto any;

	/* After the call, which keeps no registers: only then is the rest of line two taken. */
	FORGET(data);
	{
		__u64 macs = *(__u64 *)session->destination_mac, lower;
		__u32 macs_end = *(__u32 *)(session->source_mac + 2);
		__u32 delta = session->network_delta, dscp = session->dscp;

		session_barrier();
		/* A session that is being written has an odd version, which is then another one. */
		if (READ_ONCE(session->version) != (found.version & ~1u))
			goto any;
		*(__u64 *)data = macs;
		*(__u32 *)(data + 8) = macs_end;
		*(__u8 *)(data + 15) = dscp | (*(__u8 *)(data + 15) & 3);
		/* TTL, protocol and checksum: one off the first, the last as mended() does it. */
		lower = word32(data + 22) + ((__u64)delta << 16) - 1;
		lower += (lower + 0x10000) >> 32 << 16;
		*(__u32 *)(data + 22) = lower;
	}
	if (!session->seen)
		session->seen = 1;
	session_count(session, &found.key, length);
	return XDP_REDIRECT;
any:
	verdict = forward_any(context);
	if (verdict < LEAVE)
		return verdict;
	if (verdict == LEAVE + REASON_NO_DAEMON) {
		count_reason(REASON_NO_DAEMON);
		return XDP_PASS;
	}
	return leave(context, verdict - LEAVE, beyond_first(context));
}

/* What user space runs to say that it lives. */
SEC("syscall")
int beat(struct beat *context)
{
	context->jiffies = bpf_jiffies64();
	WRITE_ONCE(control.heartbeat, context->jiffies);
	return 0;
}

/* What user space runs to end a session in a hash map, of which it can only replace whole values. One that is
 * retired stays locked: nobody writes to it or makes it valid again, so that it may be deleted once no program
 * runs that has found it before. */
SEC("syscall")
int end(struct end *context)
{
	struct session_key key = context->key;
	struct hashed_session *found;
	__u32 version;

	context->ended = 0;
	context->busy = 0;
	if (statistics == STATISTICS_PER_CPU)
		found = bpf_map_lookup_percpu_elem(&hashed, &key, context->cpu);
	else
		found = bpf_map_lookup_elem(&hashed, &key);
	if (!found)
		return 0;
	if (context->retire && !session_lock(&found->session, &version))
		context->busy = 1;
	if (found->session.key.kind && !(READ_ONCE(found->session.key.generation) & GENERATION_ENDED)) {
		session_end(&found->session);
		context->ended = 1;
	}
	return 0;
}

/* Without sessions. */
SEC("xdp")
int fib(struct xdp_md *context)
{
	return fib_frame(context, beyond_first(context));
}
