// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Learning: writes down as a session what the kernel did to a packet, so that a datapath does the same to the
 * next ones. `forward_tc` runs first at the ingress hook of every port and marks what it does not forward. `learn` runs
 * first at the egress hook: what filters behind it do to a packet they do again on the TC datapath, and no packet
 * that XDP sends has filters to pass.
 *
 * What makes a session. `learn` sees the packet as it leaves. How it arrived follows from the packet itself:
 * port, tags, TOS and generation from its ingress metadata (ingress_meta.h); addresses and ports before
 * translation from its connection (conntrack.h) or, without one, from its own headers. Both together are a
 * key. A session is learned only if `candidates` says that a datapath saw this very key recently, that it saw at
 * least control.admission packets of it, and that the TTL was one more. Anything else that rewrote,
 * encapsulated or created the packet (stateless translation, tunnels, local senders, mirrors) gives a key
 * that no datapath has seen. A session with partial checksums (partial_checksum.h) is not for XDP.
 *
 * Why nothing stale is learned. Let the configuration change at C, and let user space bump the generation at
 * B, after C. The kernel decided on a packet before C only if it was marked before C, so its metadata has a
 * generation from before B. If it leaves after B, `learn` sees another generation and refuses. If `learn`
 * looked before B, it publishes the generation of the metadata and never the current one, however long it
 * takes: after B the session is stale. So the kernel decided on every session of the current generation after
 * the change that the generation stands for. The metadata holds the whole generation, so the number cannot be
 * reused while the packet is in flight. Deny lists: user space inserts an entry and then bumps; XDP reads the
 * generation, then the lists, and leaves that generation in `candidates`. A packet that passed before the
 * insertion left a generation from before the bump. That differs from the current one or from that of the
 * metadata, or the session turns stale at the bump. End of a connection: XDP clears the candidate and then
 * ends the session, if they exist. `learn` reads both before it asks conntrack, publishes by compare-and-swap
 * from what it read, and checks the candidate again after that. Each step is a full barrier, so an end is
 * either seen or wins.
 *
 * Changes of routes and neighbours alone raise another generation, `route_generation`, since there may be thousands a
 * second. Most sessions are then asked about again (fib.h). So what is learned is valid if bpf_fib_lookup() says the
 * same, whenever the kernel decided. Without that it is learned only if the route generation was that of
 * the metadata, which is raised less often; in a storm of changes such a session stays with the kernel.
 *
 * Counting. Packets of a session that leave through the kernel are counted here, once and as frames on the
 * wire: a super-packet counts as its segments. Before there is a session its packets are counted in
 * `prelearn`, which becomes the first value of its counters. Two new sessions that share an entry overwrite
 * each other's count there. From then on every packet is counted. While the session is valid or stale, counts
 * go to `cold.remote` by atomic additions. Once it has ended (its FIN and what follows) they are added
 * under the lock, since the ager takes the lock before it frees the slot.
 *
 * Slots. Only free ones are taken, and the ager frees them. No live session is evicted, and no
 * counter is lost. When both buckets are full, a session stays unlearned until the ager's next pass. */

#include "candidate.h"
#include "egress.h"
#include "rules.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REFUSALS);
	__type(key, __u32);
	__type(value, __u64);
} refusals SEC(".maps");

/* Counts a packet of a session that went through the kernel, and that had this generation when it was found. Only a
 * slot whose session had not ended then keeps it until this program is done. */
static __always_inline void count_egress(const struct entry *entry, const struct egress *egress)
{
	struct counters count = { .packets = egress->wire.packets, .bytes = egress->wire.bytes };
	struct session *session = entry->session;
	__u32 version;

	if (!(egress->known.generation & GENERATION_ENDED)) {
		session_add(entry, &count);
		return;
	}
	/* The lock is held for some stores only; the bound is for the verifier. */
	for (int i = 0; i < 16; i++) {
		if (!session_lock(session, &version))
			continue;
		if (same_key(session, hop_of(session), &egress->key))
			session_add(entry, &count);
		session_unlock(session, version);
		return;
	}
}

/* Whether the session's packets leave as this one does, by address and port. */
static __always_inline int leaves_alike(const struct entry *entry, const struct egress *egress)
{
	const struct session *session = entry->session;
	__u64 out[4];

	if (*(const __u32 *)&session->source_port != egress->packet.ports)
		return 0;
	if ((egress->packet.kind & KIND_FAMILY) == KIND_IPV4)
		return session->source == egress->out[0] && session->destination == egress->out[1];
	out_addresses(session, entry->addresses, out);
	return same_addresses((const struct addresses *)out, egress->out6);
}

/* Whether the rules of packet filters treat all packets of the session alike, whose actions are known: 0, or
 * -REFUSAL_*. */
__noinline int check_rules(struct __sk_buff *skb, struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);
	__u32 zero = 0, kind = 0;
	struct rule_subject *subject = bpf_map_lookup_elem(&rule_subjects, &zero);
	const __u32 *out;
	int is_ipv4;

	if (!kernel || !egress || !subject)
		return -REFUSAL_RULE;
	is_ipv4 = (egress->key.kind & KIND_FAMILY) == KIND_IPV4;
	out = (const __u32 *)egress->out6;
	rule_address(subject->source[0], egress->in.source, is_ipv4);
	rule_address(subject->destination[0], egress->in.destination, is_ipv4);
	rule_address(subject->source[1], out, is_ipv4);
	rule_address(subject->destination[1], out + (is_ipv4 ? 1 : 4), is_ipv4);
	subject->source_port[0] = bpf_ntohs(egress->in.source_port);
	subject->destination_port[0] = bpf_ntohs(egress->in.destination_port);
	subject->source_port[1] = bpf_ntohs(egress->packet.ports);
	subject->destination_port[1] = bpf_ntohs(egress->packet.ports >> 16);
	subject->input[0] = skb->ingress_ifindex;
	subject->input[1] = egress->key.ifindex;
	subject->output[0] = BPF_CORE_READ(kernel_route(kernel), dev, ifindex);
	subject->output[1] = skb->ifindex;
	subject->mark = skb->mark;
	subject->dscp = egress->key.dscp >> 2;
	subject->is_offloaded = egress->is_tracked && is_offloaded(kernel);
	if (!is_ipv4)
		kind |= RULE_IPV6;
	if (egress->key.kind & KIND_TCP)
		kind |= RULE_TCP;
	if (egress->is_tracked)
		kind |= (kernel_connection(kernel) & CONNTRACK_INFO_MASK) >= CONNTRACK_ESTABLISHED_REPLY
				? RULE_REPLY
				: RULE_ORIGINAL;
	return rule_keeps(kind) ? -REFUSAL_RULE : 0;
}

/* Whether the kernel treats every packet like this one alike, as far as the route shows: 0, or -REFUSAL_*. */
__noinline int check_route(struct __sk_buff *skb, const struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);
	struct dst_entry *route;
	__u32 output;

	if (!kernel || !egress)
		return -REFUSAL_UNREADABLE;
	route = kernel_route(kernel);
	/* The same packet in the clear has to be refused by the policy (xfrm4_policy_check). */
	if (!route || route_encapsulates(route) || was_decrypted(kernel) ||
	    BPF_CORE_READ_BITFIELD(kernel, encapsulation))
		return -REFUSAL_TUNNEL;
	if ((egress->key.kind & KIND_FAMILY) == KIND_IPV4 && !BPF_CORE_READ((struct rtable *)route, rt_is_input))
		return -REFUSAL_TUNNEL;
	output = BPF_CORE_READ(route, dev, ifindex);
	if (output != skb->ifindex && BPF_CORE_READ_BITFIELD(kernel, cloned))
		return -REFUSAL_CLONED;
	if (output == skb->ingress_ifindex)
		return -REFUSAL_HAIRPIN;
	return 0;
}

/* Whether bpf_fib_lookup() is asked as the kernel's forwarding is: no device above either port, and the same DSCP
 * all the way. */
static __always_inline int is_seen_by_fib(struct __sk_buff *skb, const struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);

	return kernel && skb->ingress_ifindex == egress->key.ifindex &&
	       BPF_CORE_READ(kernel_route(kernel), dev, ifindex) == skb->ifindex &&
	       !(egress->packet.kind >> KIND_OUTER_VLAN_SHIFT) && egress->hop.dscp == egress->key.dscp;
}

/* Whether the result of bpf_fib_lookup() matches *egress. */
static __always_inline int fib_gives(struct __sk_buff *skb, const struct egress *egress)
{
	struct fib_query *query = fib_prepare(&egress->hop, egress->key.kind, egress->key.dscp);

	if (!query)
		return 0;
	query->source = egress->in.source[0];
	query->source_port = egress->in.source_port;
	query->destination = egress->out[1];
	query->destination_port = egress->packet.ports >> 16;
	__builtin_memcpy(&query->addresses, &egress->in, 32);
	__builtin_memcpy(query->out, egress->out6, 32);
	return fib_agrees_skb(skb);
}

/* Which datapath sessions between two interfaces take, as SESSION_TC or 0 in decision.flags: 0, or -REFUSAL_*. */
static __always_inline int choose_datapath(struct egress *egress, int is_partial)
{
	__u32 in = egress->from.flags, out = egress->to.flags;

	/* XDP adds a tag to frames that have none. */
	if (egress->packet.kind >> KIND_OUTER_VLAN_SHIFT && out >> INTERFACE_VLAN_SHIFT)
		out &= ~INTERFACE_XDP_OUT;
	egress->decision.flags = 0;
	if (!is_partial && (in & INTERFACE_XDP_IN) && (out & INTERFACE_XDP_OUT))
		return 0;
	egress->decision.flags = SESSION_TC;
	if ((in & INTERFACE_TC_IN) && (out & INTERFACE_TC_OUT))
		return 0;
	return is_partial ? -REFUSAL_PARTIAL_CHECKSUM : -REFUSAL_DATAPATH;
}

/* Stores the source (0) or destination (1) address after NAT, if NAT changes it; 0 where there is no room. */
static __always_inline int store_nat_address(struct egress *egress, __u32 which)
{
	const __u64 *in = (const __u64 *)&egress->in + 2 * which, *out = &egress->out6[2 * which];

	egress->out_numbers[which] = 0;
	if (in[0] == out[0] && in[1] == out[1])
		return 1;
	egress->out_numbers[which] = nat_address_index(out);
	return egress->out_numbers[which] != 0;
}

/* Writes what learning may change. The lock is held. */
static __always_inline void write_actions(const struct entry *entry, const struct egress *egress, __u32 deadline)
{
	struct session *session = entry->session;

	WRITE_ONCE(session->hop, egress->decision.hop - 1);
	*(__u32 *)&session->source_port = egress->packet.ports;
	session->network_delta = egress->network_delta;
	session->transport_delta = egress->transport_delta;
	if ((egress->key.kind & KIND_FAMILY) == KIND_IPV4) {
		session->source = egress->out[0];
		session->destination = egress->out[1];
	} else if (entry->addresses) {
		__builtin_memcpy(entry->addresses, &egress->in, 32);
		WRITE_ONCE(session->source6, egress->out_numbers[0]);
		WRITE_ONCE(session->destination6, egress->out_numbers[1]);
	}
	session->deadline = deadline;
	session->route_generation = egress->decision.routes;
	__sync_fetch_and_or((__u32 *)&session->owner, SESSION_REFERENCED);
}

/* `cold.created` at these jiffies, with the number of a session in its slot. */
static __always_inline __u32 created_word(__u32 jiffies, __u32 number)
{
	return (jiffies & ~(CREATED_NUMBER | CREATED_WANTED)) | (number & CREATED_NUMBER);
}

/* Fills in the key of an entry just claimed, which has its hop, and what counts for it; not the generation. Returns 0,
 * and the entry is free again, if a learner on another CPU is about to do the same: both write the key before they look
 * for it elsewhere, with a full barrier in between, so that at least one of them sees the other. */
static __always_inline int session_init(const struct entry *entry, const struct egress *egress)
{
	const struct session_key *key = &egress->key;
	struct session *session = entry->session;
	struct cold *cold;
	struct counters count;
	__u32 number;

	WRITE_ONCE(session->hop, egress->decision.hop - 1);
	session->addresses = key_addresses(key);
	session->ports = key_ports(key);
	session->dscp = key->dscp;
	session->kind = key->kind;
	__sync_lock_test_and_set(&session->generation, GENERATION_ENDED);
	if (session_is_duplicate(entry, key)) {
		session_unclaim(session);
		return 0;
	}
	cold = cold_of(entry);
	if (!cold) {
		session_unclaim(session);
		return 0;
	}
	*(__u32 *)&session->owner = 0; /* and the route generation */
	session->packets = 0;
	session->bytes = 0;
	number = cold->created + 1;
	__builtin_memset(cold, 0, sizeof(*cold));
	cold->created = created_word(bpf_jiffies64(), number);
	prelearn_take(egress, &count);
	session_add(entry, &count);
	return 1;
}

/* Finds the packet's session, and has the session and its connection see the packet: 0, or -REFUSAL_*. */
__noinline int find_known(struct __sk_buff *skb, struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);
	struct known *known;
	struct entry entry;
	__u32 reason;

	if (!kernel || !egress)
		return -REFUSAL_UNREADABLE;
	reason = egress->reason;
	known = &egress->known;
	__builtin_memset(known, 0, sizeof(*known));
	if (!session_find(&egress->key, &egress->in, &entry)) {
		prelearn_add(egress);
	} else {
		known->slot = entry.slot + 1;
		known->generation = READ_ONCE(entry.session->generation);
		known->is_other = (known->generation & GENERATION_ENDED) && !leaves_alike(&entry, egress);
		if (known->is_other)
			prelearn_add(egress);
		else
			count_egress(&entry, egress);
	}
	/* Data after a reset that conntrack did not believe: it was under way. */
	if (known->slot && egress->is_tracked && (egress->key.kind & KIND_TCP)) {
		known->is_reset = reason == REASON_RST ||
				  (reason == PARSE_OK && (known->generation & GENERATION_CLOSED) &&
				   is_established(connection_of(kernel)));
		connection_refresh(skb, kernel_connection(kernel), &egress->in, egress->key.kind, known->is_reset);
	}
	if (reason == PARSE_OK)
		return 0;
	/* XDP may have known no session of this direction, and so not the tuple of the other. */
	if (egress->is_tracked && is_end(reason))
		connection_end_sessions((unsigned long)connection_of(kernel),
					reason == REASON_SYN ? 0 : GENERATION_CLOSED);
	return -REFUSAL_FLAGS;
}

/* Whether the session may be learned again: 0, or -REFUSAL_*. */
static __always_inline int check_known(const struct egress *egress)
{
	const struct known *known = &egress->known;
	struct cold *cold;

	/* Nobody else knows that an untracked connection is closing: data that was under way when it was reset would begin a
	 * session that nothing ends. A SYN, or a free slot, begins anew. */
	if ((!egress->is_tracked && (known->generation & GENERATION_CLOSED)) || known->is_reset)
		return -REFUSAL_NOT_ESTABLISHED;
	if (!known->is_other)
		return 0;
	cold = cold_at(known->slot - 1);
	if (cold && !(READ_ONCE(cold->created) & CREATED_WANTED))
		__sync_fetch_and_or(&cold->created, CREATED_WANTED);
	return -REFUSAL_BUSY;
}

/* Whether XDP has seen the packet come in as the kernel has forwarded it, and chooses the datapath: 0, or -REFUSAL_*. */
__noinline int check_candidate(struct __sk_buff *skb, struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);
	struct candidate *candidate;
	struct session *session;
	__u64 word;
	int refusal;

	if (!kernel || !egress)
		return -REFUSAL_UNREADABLE;
	if (egress->key.generation != READ_ONCE(control.generation))
		return -REFUSAL_GENERATION;
	egress->decision.way = candidate_find(egress->hash);
	candidate = candidate_way(egress->hash, egress->decision.way);
	word = candidate ? READ_ONCE(candidate->word) : 0;
	if (!candidate_matches(word, egress->hash))
		return -REFUSAL_UNSEEN;
	if (candidate_generation(word) != (egress->key.generation & 0xffff))
		return -REFUSAL_GENERATION;
	if (candidate_count(word) < READ_ONCE(control.admission) &&
	    (!egress->known.slot || (egress->known.generation & GENERATION_ENDED)))
		return -REFUSAL_ADMISSION;
	if (egress->packet.ttl + 1 != candidate_ttl(word))
		return -REFUSAL_TTL;
	if ((egress->packet.tos ^ egress->meta.tos) & 3)
		return -REFUSAL_ECN;
	refusal = choose_datapath(egress, (word & CANDIDATE_PARTIAL) ||
						  (!skb->gso_size && BPF_CORE_READ_BITFIELD(kernel, ip_summed) ==
									     KERNEL_CHECKSUM_PARTIAL));
	if (!refusal || !egress->known.slot)
		return refusal;
	/* One complete checksum in 65,536 looks partial. A session of XDP has had complete ones: it is judged anew by the
	 * packets after those that are in the stack now, which find no candidate. */
	session = session_at(egress->known.slot - 1);
	if (session && !(hop_of(session)->flags & SESSION_TC))
		__sync_val_compare_and_swap(&candidate->word, word, 0);
	return refusal;
}

/* Whether conntrack need not see the packets of its connection: 0, or -REFUSAL_*. */
__noinline int check_connection(struct __sk_buff *skb, struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);
	struct decision *decision;
	int refusal;

	if (!kernel || !egress)
		return -REFUSAL_UNREADABLE;
	decision = &egress->decision;
	session_barrier();
	refusal = connection_check(kernel, egress->key.kind & KIND_TCP, &decision->timeout);
	if (refusal == -REFUSAL_NOT_ESTABLISHED)
		connection_end_sessions((unsigned long)connection_of(kernel), 0);
	if (refusal)
		return refusal;
	decision->until = lesser(decision->until, decision->timeout / 2);
	decision->zone = zone_of(kernel_connection(kernel));
	decision->flags |= SESSION_TRACKED;
	if (READ_ONCE(control.verify_checksums) && conntrack_verifies(kernel_route(kernel)))
		decision->flags |= SESSION_VERIFY_CHECKSUM;
	if (connection_end_is_reported(kernel))
		return 0;
	if (!can_be_looked_up(skb, kernel_connection(kernel), &egress->in, egress->key.kind))
		return -REFUSAL_UNREPORTED;
	/* Soon again: it may be ASSURED by then. */
	decision->until = lesser(decision->until, hz);
	if (!(egress->key.kind & KIND_TCP))
		decision->until = lesser(decision->until, until_stream(connection_of(kernel)));
	decision->flags |= SESSION_UNREPORTED;
	return 0;
}

/* Finds the hop of the session and how changes of routes are noticed: 0, or -REFUSAL_*. */
__noinline int find_hop(struct __sk_buff *skb, struct egress *egress)
{
	struct session *session;

	if (!egress)
		return -REFUSAL_UNREADABLE;
	/* Read before the route look-up. */
	egress->decision.routes = READ_ONCE(control.route_generation);
	session_barrier();
	if (is_seen_by_fib(skb, egress) && fib_gives(skb, egress)) {
		egress->hop.flags |= SESSION_FIB;
	} else if (egress->meta.route_generation != (__u16)egress->decision.routes) {
		/* The kernel decided before a change, or may have. */
		session = egress->known.slot ? session_at(egress->known.slot - 1) : NULL;
		if (session)
			session_end(session, 0);
		return -REFUSAL_GENERATION;
	}
	egress->decision.hop = hop_index(&egress->hop);
	if (!egress->decision.hop)
		return -REFUSAL_HOP;
	if ((egress->key.kind & KIND_FAMILY) == KIND_IPV6 &&
	    (!store_nat_address(egress, 0) || !store_nat_address(egress, 1)))
		return -REFUSAL_HOP;
	return 0;
}

/* Writes the session, known or new, and makes it valid: 0, or -REFUSAL_*. */
__noinline int write_session(struct egress *egress)
{
	__u32 version, before, now = bpf_jiffies64();
	struct candidate *candidate;
	struct entry entry;
	struct cold *cold;
	__u64 word;

	if (!egress)
		return -REFUSAL_UNREADABLE;
	before = egress->known.generation;
	if (egress->known.slot) {
		cold = cold_at(egress->known.slot - 1);
		if (!cold || !entry_at(egress->known.slot - 1, &entry) || !session_lock(entry.session, &version))
			return -REFUSAL_BUSY;
		if (!same_key(entry.session, hop_of(entry.session), &egress->key)) {
			session_unlock(entry.session, version);
			return -REFUSAL_BUSY;
		}
		if (READ_ONCE(cold->used) < 255 * COLD_REVALIDATION)
			__sync_fetch_and_add(&cold->used, COLD_REVALIDATION);
		/* It had ended and starts again: a new age, and the counts continue. */
		if (before & GENERATION_ENDED)
			cold->created = created_word(now, cold->created);
	} else {
		if (!session_claim(&egress->key, &entry, &version))
			return -REFUSAL_FULL;
		if (!session_init(&entry, egress)) {
			session_unlock(entry.session, version);
			return -REFUSAL_BUSY;
		}
		before = GENERATION_ENDED;
	}
	write_actions(&entry, egress, now + egress->decision.until);
	if (!session_publish(entry.session, before, egress->key.generation)) {
		session_unlock(entry.session, version);
		return -REFUSAL_ENDED;
	}
	session_unlock(entry.session, version);
	candidate = candidate_way(egress->hash, egress->decision.way);
	word = candidate ? READ_ONCE(candidate->word) : 0;
	if (!candidate_matches(word, egress->hash)) {
		session_end(entry.session, 0);
		return -REFUSAL_ENDED;
	}
	/* Room for others: from now on XDP records only what is due for revalidation. */
	if (!egress->known.slot)
		__sync_val_compare_and_swap(&candidate->word, word, 0);
	return 0;
}

/* As if the connection had its last packet at the deadline: it ends no earlier than if conntrack saw them all. The ager
 * corrects that when it has seen the last one (refresh.bpf.c). */
static __always_inline int extend_connection(struct __sk_buff *skb, const struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);

	return kernel ? connection_set_timeout(skb, kernel_connection(kernel), &egress->in, egress->key.kind,
					       (__u64)egress->decision.timeout + egress->decision.until)
		      : 0;
}

/* Whether the packet's session is valid, and in time. */
static __always_inline int is_current(const struct egress *egress)
{
	const struct known *known = &egress->known;
	const struct session *session = known->slot ? session_at(known->slot - 1) : NULL;

	return session && known->generation == egress->key.generation && is_routed(session) &&
	       (__s32)((__u32)bpf_jiffies64() - READ_ONCE(session->deadline)) <= 0;
}

/* 0 when the packet's session is known, valid and in time, or was learned; otherwise -REFUSAL_*. */
static __always_inline int learn_from(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct egress *packet = bpf_map_lookup_elem(&egress, &zero);
	int refusal;

	if (!packet)
		return -REFUSAL_UNREADABLE;
	refusal = find_ingress(skb, packet) ?: read_packet(skb, packet) ?: find_known(skb, packet);
	if (refusal || is_current(packet))
		return refusal;
	__builtin_memset(&packet->decision, 0, sizeof(packet->decision));
	packet->decision.until = READ_ONCE(control.revalidate_after);
	refusal = check_known(packet) ?: check_route(skb, packet) ?: check_candidate(skb, packet);
	if (!refusal && packet->is_tracked)
		refusal = check_connection(skb, packet);
	if (refusal)
		return refusal;
	refusal = rebuild_actions(skb, packet) ?: check_rules(skb, packet) ?: find_hop(skb, packet) ?:
		  write_session(packet);
	return !refusal && packet->is_tracked ? extend_connection(skb, packet) : refusal;
}

SEC("tcx/egress")
int learn(struct __sk_buff *skb)
{
	int refusal;

	/* Sent by TC, or seen by `learn` at an interface above this one. */
	if (skb->tc_index == TC_INDEX_DONE)
		return NEXT;
	refusal = learn_from(skb);
	skb->tc_index = 0;
	if (refusal) {
		__u32 index = -refusal - 1;
		__u64 *count = bpf_map_lookup_elem(&refusals, &index);

		if (count)
			*count += 1;
	}
	return NEXT;
}
