/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Learning: what the kernel did with a packet is written down as a session, so that XDP does the same to
 * the next ones. Two programs on every port: `mark` at the ingress hook, first of all programs there,
 * and `learn` at the egress hook, last of all.
 *
 * What makes a session. `learn` sees the packet as it leaves. How it came follows from the packet itself:
 * port, tags, TOS and generation from its arrival (arrival.h); addresses and ports before translation
 * from the connection that it carries (conntrack.h), or, where it carries none, as they are. Both
 * together are a key; a session is learned only if `pending` says that XDP saw this very key lately, that
 * as many packets of it came as control.admission asks for, and with a TTL of one more. Whatever rewrote,
 * wrapped or made the packet elsewhere (stateless translation, tunnels, local senders, mirrors)
 * gives a key that XDP has not seen. Nor does XDP note packets whose checksum is unfinished (unfinished.h).
 *
 * Why nothing stale is learned. Let a change of the configuration happen at C, and user space bump the
 * generation at B, after C. A packet judged before C was marked before C, so its arrival has a
 * generation from before B. If it leaves after B, `learn` sees another generation and refuses. If `learn`
 * looked before B, it publishes the generation of the *arrival* and never the current one, however long
 * it took: after B the session is stale. So every session of the current generation was judged by the
 * kernel after the change that the generation stands for; arrivals hold the whole generation, and a
 * number of theirs cannot come to mean another while the packet is under way. The deny lists: who
 * blocks inserts first and bumps then; XDP reads the generation, then the lists, and leaves that
 * generation in `pending`. A packet that passed before the insertion left one from before the bump, which
 * differs from the current one, or from that of the arrival, or the session turns stale at the bump. The
 * end of a connection: XDP empties `pending` and then ends the session, whichever there is.
 * `learn` reads both before it asks conntrack, publishes by compare-and-swap from what it read, and looks
 * at `pending` again after that, each a full barrier: an end is either seen, or seen to.
 *
 * Counting. Whatever of a session leaves through the kernel is counted here, once and as the frames on the
 * wire: a super-packet as its segments. Before there is a session its packets are counted in `departed`, which
 * becomes the first value of its counters; of two sessions that begin at once and meet there, what the other
 * overwrites is lost. From then on every packet is counted. While it is valid or stale, counts go to
 * `strays` by atomic additions. Once it is ended (its FIN and what follows) they are added under the lock, since
 * the ager takes the lock before it gives the place away.
 *
 * Places. Only free ones are taken, and the ager frees: nothing that is alive is ever pushed out, and no
 * counter is lost. In full buckets sessions go unlearned until its next pass. */
#ifndef LINERATE_LEARN_H
#define LINERATE_LEARN_H

#include "arrival.h"
#include "conntrack.h"
#include "refusals.h"
#include "rewrite.h"

#define NEXT (-1) /* TCX_NEXT, and TC_ACT_UNSPEC of clsact */

#define PROBE_LEN (ETHERNET_LEN + 2 * TAG_LEN + IPV6_LEN + 20) /* headers that have to be at hand */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REFUSALS);
	__type(key, __u32);
	__type(value, __u64);
} refusals SEC(".maps");

/* Interfaces that hand on to the stack what came in by a port as it is, but for its tags: VLANs on it and
 * the bridge that it belongs to. What comes through any other was something else at the port: a tunnel
 * has unwrapped it, and a session learned from it would let in from outside what only the tunnel may. */
struct upper {
	__u32 ifindex;
	__u32 port; /* interface index too */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct upper);
	__type(value, __u8);
} uppers SEC(".maps");

#define DEPARTED 65536

/* Packets that left of what is no session yet: direct-mapped by the upper half of the key's hash. */
struct departed {
	__u64 word; /* lower half of the hash, packets */
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DEPARTED);
	__type(key, __u32);
	__type(value, struct departed);
} departed SEC(".maps");

static const struct hashed_session no_session = {};

static __always_inline int came_directly(const struct __sk_buff *skb, const struct arrival *arrival)
{
	struct upper upper = { .ifindex = skb->ingress_ifindex, .port = arrival->ifindex };

	return upper.ifindex == upper.port || bpf_map_lookup_elem(&uppers, &upper);
}

/* A packet on its way out, and what is known of its way in. */
struct departure {
	struct packet packet; /* as it leaves */
	struct session_key key;
	struct tuple in;      /* of it the addresses are those of an IPv6 header */
	__u64 hash;
	__u32 packets; /* on the wire */
	__u32 bytes;   /* of these together, without link layer */
};

/* Packets and bytes on the wire of a packet that may be a super-packet. */
static __always_inline void measure(struct departure *departure, const struct __sk_buff *skb,
				    const void *end)
{
	const struct packet *packet = &departure->packet;
	int is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4;
	const void *transport = packet->network + (is_ipv4 ? IPV4_LEN : IPV6_LEN);
	__u32 headers = (is_ipv4 ? IPV4_LEN : IPV6_LEN) + 8, size = skb->gso_size;

	departure->packets = 1;
	departure->bytes = packet->length;
	if (!size)
		return;
	if (packet->kind & KIND_TCP)
		headers += transport + 14 > end ? 12 : ((word16(transport + 12) & 0xf0) >> 2) - 8;
	if (packet->length <= headers + size)
		return;
	departure->packets = (packet->length - headers + size - 1) / size;
	departure->bytes += (departure->packets - 1) * headers;
}

static __always_inline void departed_add(const struct departure *departure)
{
	__u32 index = (departure->hash >> 32) % DEPARTED;
	struct departed *entry = bpf_map_lookup_elem(&departed, &index);

	if (!entry)
		return;
	if (entry->word >> 32 == (__u32)departure->hash) {
		__sync_fetch_and_add(&entry->word, departure->packets);
		__sync_fetch_and_add(&entry->bytes, departure->bytes);
	} else {
		entry->bytes = departure->bytes;
		WRITE_ONCE(entry->word, departure->hash << 32 | departure->packets);
	}
}

/* Moves what has been counted so far into *count; of two learners one gets it. */
static __always_inline void departed_take(const struct departure *departure, struct stray *count)
{
	__u32 index = (departure->hash >> 32) % DEPARTED;
	struct departed *entry = bpf_map_lookup_elem(&departed, &index);

	count->packets = 0;
	count->bytes = 0;
	if (!entry || READ_ONCE(entry->word) >> 32 != (__u32)departure->hash)
		return;
	count->packets = (__u32)__sync_lock_test_and_set(&entry->word, 0);
	count->bytes = __sync_lock_test_and_set(&entry->bytes, 0);
}

/* Adds to the counters of a session; in the designs with hash maps on whose side it finds itself. */
static __always_inline void add(const struct place *place, const struct session_key *key,
				const struct stray *count)
{
	struct session *session = place->session;

	if (statistics == STATISTICS_SLOT) {
		__u32 index = place->slot / WAYS;
		struct strays *others = bpf_map_lookup_elem(&strays, &index);

		if (!others)
			return;
		__sync_fetch_and_add(&others->way[place->slot % WAYS].packets, count->packets);
		__sync_fetch_and_add(&others->way[place->slot % WAYS].bytes, count->bytes);
	} else if (statistics == STATISTICS_SHARED) {
		__sync_fetch_and_add(&session->packets, count->packets);
		__sync_fetch_and_add(&session->bytes, count->bytes);
	} else if (statistics == STATISTICS_PER_CPU) {
		session->packets += count->packets;
		session->bytes += count->bytes;
	} else if (statistics == STATISTICS_SPLIT) {
		struct session_key plain = *key;
		struct stray *cell;

		plain.generation = 0;
		cell = bpf_map_lookup_elem(&counters, &plain);
		if (cell) {
			cell->packets += count->packets;
			cell->bytes += count->bytes;
		} else {
			bpf_map_update_elem(&counters, &plain, count, BPF_ANY);
		}
	}
}

/* Counts a packet of a session that went through the kernel. */
static __always_inline void count_departure(const struct place *place, const struct departure *departure)
{
	struct stray count = { .packets = departure->packets, .bytes = departure->bytes };
	struct session *session = place->session;
	__u32 version;

	if (statistics == STATISTICS_NONE)
		return;
	if (!(READ_ONCE(session->key.generation) & GENERATION_ENDED) || !uses_table()) {
		add(place, &departure->key, &count);
		return;
	}
	/* Whoever has the lock holds it for some stores; the bound is for the verifier. */
	for (int i = 0; i < 16; i++) {
		if (!session_lock(session, &version))
			continue;
		if (same_key(&session->key, &departure->key))
			add(place, &departure->key, &count);
		session_unlock(session, version);
		return;
	}
}

/* The packet's key, from its own headers, its connection and its arrival; 0, or REFUSAL_* plus one. */
static __always_inline __u32 rebuild(struct departure *departure, const struct arrival *arrival,
				     const struct sk_buff *kernel, int *is_tracked)
{
	const struct packet *packet = &departure->packet;
	struct session_key *key = &departure->key;
	struct tuple *in = &departure->in;
	int is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4;
	__u32 ifindex = arrival->ifindex;
	struct interface *interface = bpf_map_lookup_elem(&interfaces, &ifindex);

	if (!interface)
		return REFUSAL_PORT + 1;
	*is_tracked = connection_tuple(in, kernel, is_ipv4);
	if (*is_tracked < 0)
		return REFUSAL_CONNTRACK_UNKNOWN + 1;
	if (!*is_tracked) {
		if (is_ipv4) {
			in->source[0] = word32(packet->network + 12);
			in->destination[0] = word32(packet->network + 16);
		} else {
			__builtin_memcpy(in, packet->network + 8, 32);
		}
		in->source_port = packet->ports;
		in->destination_port = packet->ports >> 16;
	}
	if (is_ipv4) {
		key->source = in->source[0];
		key->destination = in->destination[0];
	} else {
		key->signature = session_signature(in);
	}
	key->source_port = in->source_port;
	key->destination_port = in->destination_port;
	key->ifindex = ifindex;
	__builtin_memcpy(key->station, interface->mac, 6);
	key->kind = (packet->kind & (KIND_FAMILY | KIND_TCP)) | arrival->kind;
	key->dscp = arrival->tos & 0xfc;
	__builtin_memcpy(key->tag, arrival->tag, 4);
	key->generation = arrival->generation;
	departure->hash = session_hash(key);
	return 0;
}

/* Whether what became of this packet becomes of every one like it, as far as its route tells: 0, or
 * REFUSAL_* plus one. */
static __always_inline __u32 judge_route(const struct __sk_buff *skb, const struct sk_buff *kernel,
					 struct dst_entry *route, int is_ipv4)
{
	__u32 way_out;

	if (!route || kernel_wraps(route) ||
	    BPF_CORE_READ_BITFIELD(kernel, encapsulation))
		return REFUSAL_TUNNEL + 1;
	if (is_ipv4 && !BPF_CORE_READ((struct rtable *)route, rt_is_input))
		return REFUSAL_TUNNEL + 1;
	way_out = BPF_CORE_READ(route, dev, ifindex);
	if (way_out != skb->ifindex && BPF_CORE_READ_BITFIELD(kernel, cloned))
		return REFUSAL_COPY + 1;
	if (way_out == skb->ingress_ifindex)
		return REFUSAL_HAIRPIN + 1;
	if (!skb->gso_size && BPF_CORE_READ_BITFIELD(kernel, ip_summed) == KERNEL_CHECKSUM_PARTIAL)
		return REFUSAL_CHECKSUM + 1;
	return 0;
}

/* Writes line two and what else learning may change. The lock is held. */
static __always_inline void write(const struct place *place, const struct departure *departure,
				  const struct __sk_buff *skb, __u32 mtu, __u32 port, __u32 deadline,
				  __u32 flags)
{
	const struct packet *packet = &departure->packet;
	struct session *session = place->session;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	int is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4;
	__u32 before[3], after[3], tags = 0, in_frame = packet->tag_bytes / TAG_LEN;

	if (data + ETHERNET_LEN + 2 * TAG_LEN > end)
		return;
	__builtin_memcpy(session->destination_mac, data, 12);
	session->out_tag[0] = 0;
	session->out_tag[1] = 0;
	if (skb->vlan_present) {
		session->out_tag[0] = (__u16)skb->vlan_proto | (__u32)bpf_htons(skb->vlan_tci) << 16;
		tags = 1;
	}
	if (in_frame) {
		session->out_tag[tags & 1] = word32(data + 12);
		tags++;
		if (in_frame == 2) {
			session->out_tag[1] = word32(data + 16);
			tags++;
		}
	}
	session->out_tags = tags;
	/* What is redirected may be longer than the MTU by one tag and no more (`xdp_ok_fwd_dev`). */
	session->mtu = lesser(tags == 2 ? mtu - TAG_LEN : mtu, 0xffff);
	session->port = port;
	session->source_port = packet->ports;
	session->destination_port = packet->ports >> 16;
	session->dscp = packet->tos & 0xfc;
	session->out_ifindex = skb->ifindex;

	before[2] = departure->in.source_port | (__u32)departure->in.destination_port << 16;
	after[2] = packet->ports;
	if (is_ipv4) {
		before[0] = departure->in.source[0];
		before[1] = departure->in.destination[0];
		after[0] = word32(packet->network + 12);
		after[1] = word32(packet->network + 16);
		session->source = after[0];
		session->destination = after[1];
		session->network_delta = network_delta(departure->key.dscp, session->dscp, before, after);
		session->transport_delta = delta_bytes(before, after, 12);
		if ((before[0] ^ after[0]) | (before[1] ^ after[1]) | (before[2] ^ after[2]))
			flags |= SESSION_NAT;
	} else {
		__u16 ports = delta_bytes(before + 2, after + 2, 4);

		session->network_delta = 0;
		session->transport_delta =
			delta_add(ports, delta_bytes(&departure->in, packet->network + 8, 32));
		if (place->addresses) {
			__builtin_memcpy(place->addresses->source, &departure->in, 32);
			__builtin_memcpy(place->addresses->out_source, packet->network + 8, 32);
			if (before[2] != after[2] ||
			    !same_addresses(place->addresses, packet->network + 8))
				flags |= SESSION_NAT;
		}
	}
	session->flags = flags;
	session->origin = flags & SESSION_TRACKED ? ORIGIN_CONNTRACK : ORIGIN_STATELESS;
	session->deadline = deadline;
	session->learned = bpf_jiffies64();
	session->seen = 1;
}

/* A place in a hash map; as session_claim. */
static __always_inline int claim_hashed(const struct session_key *key, struct place *place,
					__u32 *version)
{
	struct session_key plain = *key;
	struct hashed_session *made;

	plain.generation = 0;
	bpf_map_update_elem(&hashed, &plain, &no_session, BPF_NOEXIST);
	made = bpf_map_lookup_elem(&hashed, &plain);
	if (!made || !session_lock(&made->session, version))
		return 0;
	if (made->session.key.kind) {
		session_unlock(&made->session, *version);
		return 0;
	}
	place->session = &made->session;
	place->addresses = &made->addresses;
	place->slot = 0;
	return 1;
}

/* Whether another place where the key may be has it too. */
static __always_inline int is_elsewhere(const struct place *place, const struct departure *departure)
{
	for (__u32 i = 0; i < CHOICES * WAYS; i++) {
		__u32 way = i % WAYS, index = bucket_of(departure->hash, i / WAYS);
		struct bucket *bucket = bpf_map_lookup_elem(&table, &index);

		if (!bucket)
			return 0;
		if (index * WAYS + way != place->slot && same_key(&bucket->way[way].key, &departure->key))
			return 1;
	}
	return 0;
}

/* Fills in line one of a place just taken, all but the generation. 0, and the place is free again, where
 * a learner on another CPU is about to do the same: both write the key before they look for it elsewhere,
 * with a full barrier in between, so that at least one of them sees the other. */
static __always_inline int found(const struct place *place, const struct departure *departure)
{
	struct session *session = place->session;
	struct stray count;

	session->key = departure->key;
	__sync_lock_test_and_set(&session->key.generation, GENERATION_ENDED);
	if (uses_table() && is_elsewhere(place, departure)) {
		session->key.kind = 0;
		return 0;
	}
	session->owner = 0;
	session->packets = 0;
	session->bytes = 0;
	session->created = bpf_jiffies64();
	session->relearned = 0;
	if (statistics == STATISTICS_SLOT) {
		__u32 index = place->slot / WAYS;
		struct strays *others = bpf_map_lookup_elem(&strays, &index);

		if (others) {
			others->way[place->slot % WAYS].packets = 0;
			others->way[place->slot % WAYS].bytes = 0;
		}
	}
	departed_take(departure, &count);
	add(place, &departure->key, &count);
	return 1;
}

/* 0 when the packet's session is known, valid and in time, or was learned; else REFUSAL_* plus one. */
static __always_inline __u32 learn_from(struct __sk_buff *skb)
{
	const struct arrival *arrival;
	struct departure departure = {};
	struct place place = {};
	struct sk_buff *kernel;
	struct dst_entry *route;
	struct interface *interface;
	struct pending *entry;
	void *data, *end;
	__u64 word;
	__u32 reason, refusal, version, before = 0, left = 0, now, until, flags = 0;
	__u32 ifindex = skb->ifindex;
	int is_tracked, is_known;

	if (!skb->ingress_ifindex)
		return REFUSAL_LOCAL + 1;
	arrival = arrival_of(skb->tc_index);
	if (!arrival)
		return REFUSAL_UNMARKED + 1;
	if (!came_directly(skb, arrival))
		return REFUSAL_INDIRECT + 1;
	interface = bpf_map_lookup_elem(&interfaces, &ifindex);
	if (!interface)
		return REFUSAL_PORT + 1;
	kernel = kernel_packet(skb);
	if (!kernel)
		return REFUSAL_UNREADABLE + 1;
	if (kernel->sk)
		return REFUSAL_LOCAL + 1;

	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + PROBE_LEN > end && skb->len > end - data)
		bpf_skb_pull_data(skb, lesser(skb->len, PROBE_LEN));
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	reason = parse(data, end, skb->len - (end - data), &departure.packet);
	if (reason != CLEAN && reason != REASON_SYN && reason != REASON_FIN && reason != REASON_RST &&
	    reason != REASON_FLAGS)
		return REFUSAL_NOT_SESSION + 1;
	refusal = rebuild(&departure, arrival, kernel, &is_tracked);
	if (refusal)
		return refusal;
	measure(&departure, skb, end);

	is_known = session_find(&departure.key, departure.hash, &departure.in, &place);
	if (is_known) {
		before = READ_ONCE(place.session->key.generation);
		count_departure(&place, &departure);
	} else if (statistics != STATISTICS_NONE) {
		departed_add(&departure);
	}
	if (reason != CLEAN)
		return REFUSAL_FLAGS + 1;
	now = bpf_jiffies64();
	if (is_known && before == departure.key.generation &&
	    (__s32)(now - READ_ONCE(place.session->deadline)) <= 0)
		return 0;

	route = kernel_route(kernel);
	refusal = judge_route(skb, kernel, route, (departure.key.kind & KIND_FAMILY) == KIND_IPV4);
	if (refusal)
		return refusal;
	if (departure.key.generation != READ_ONCE(control.generation))
		return REFUSAL_GENERATION + 1;
	entry = pending_at(departure.hash);
	word = entry ? READ_ONCE(entry->word) : 0;
	if (!pending_is_of(word, departure.hash))
		return REFUSAL_UNSEEN + 1;
	if (pending_generation(word) != (departure.key.generation & 0xffff))
		return REFUSAL_GENERATION + 1;
	if (pending_count(word) < READ_ONCE(control.admission) &&
	    (!is_known || (before & GENERATION_ENDED)))
		return REFUSAL_ADMISSION + 1;
	if (departure.packet.ttl + 1 != pending_ttl(word))
		return REFUSAL_TTL + 1;
	if ((departure.packet.tos ^ arrival->tos) & 3)
		return REFUSAL_ECN + 1;
	until = READ_ONCE(control.refresh);
	if (is_tracked) {
		session_barrier();
		refusal = connection_judge(kernel, departure.key.kind & KIND_TCP, &left);
		if (refusal)
			return refusal;
		until = lesser(until, left / 2);
		flags = SESSION_TRACKED;
		if (conntrack_verifies(route))
			flags |= SESSION_CHECKED;
	}

	if (is_known) {
		if (!session_lock(place.session, &version))
			return REFUSAL_BUSY + 1;
		if (!same_key(&place.session->key, &departure.key)) {
			session_unlock(place.session, version);
			return REFUSAL_BUSY + 1;
		}
		place.session->relearned++;
		/* It had ended, and begins anew: a new age, and the counts go on. */
		if (before & GENERATION_ENDED)
			place.session->created = now;
	} else {
		if (uses_table() ? !session_claim(departure.hash, &place, &version)
				 : !claim_hashed(&departure.key, &place, &version))
			return REFUSAL_FULL + 1;
		if (!found(&place, &departure)) {
			session_unlock(place.session, version);
			return REFUSAL_BUSY + 1;
		}
		before = GENERATION_ENDED;
	}
	write(&place, &departure, skb,
	      kernel_mtu(kernel, route, (departure.key.kind & KIND_FAMILY) == KIND_IPV6),
	      interface->port, now + until, flags);
	if (!session_publish(place.session, before, departure.key.generation)) {
		session_unlock(place.session, version);
		return REFUSAL_ENDED + 1;
	}
	session_unlock(place.session, version);
	word = READ_ONCE(entry->word);
	if (!pending_is_of(word, departure.hash)) {
		session_end(place.session);
		return REFUSAL_ENDED + 1;
	}
	/* Room for others: from now on XDP notes only what is to be learned again. */
	if (!is_known)
		__sync_val_compare_and_swap(&entry->word, word, 0);
	if (is_tracked)
		connection_put_off(skb, kernel, &departure.in,
				   (departure.key.kind & KIND_FAMILY) == KIND_IPV4,
				   departure.key.kind & KIND_TCP ? IPPROTO_TCP : IPPROTO_UDP,
				   (__u64)left + until);
	return 0;
}

SEC("tcx/ingress")
int mark(struct __sk_buff *skb)
{
	skb->tc_index = arrival_mark(skb);
	return NEXT;
}

SEC("tcx/egress")
int learn(struct __sk_buff *skb)
{
	__u32 refusal = learn_from(skb);

	skb->tc_index = 0;
	if (refusal) {
		__u32 index = refusal - 1;
		__u64 *count = bpf_map_lookup_elem(&refusals, &index);

		if (count)
			*count += 1;
	}
	return NEXT;
}

#endif
