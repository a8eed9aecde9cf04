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

/* The session that a packet at egress belongs to. */
struct known {
	struct entry entry;
	int is_known;
	__u32 generation; /* when it was found */
	/* It ended, and NAT has given its tuple to another connection, which is not counted with it. The ager frees the slot
	 * soon, and the session that is learned then has these packets, too. */
	int is_other;
	int is_reset; /* one side has reset the connection */
};

/* What a session that is learned will be. */
struct decision {
	struct candidate *candidate;
	__u32 flags;   /* SESSION_* */
	__u32 zone;
	__u32 timeout; /* of the connection, in jiffies */
	__u32 until;   /* the deadline: jiffies from now */
	__u32 routes;  /* the route generation */
	__u32 hop;
};

/* Counts a packet of a session that went through the kernel, and that had this generation when it was found. Only a
 * slot whose session had not ended then keeps it until this program is done. */
static __always_inline void count_egress(const struct entry *entry, const struct egress *egress, __u32 generation)
{
	struct counters count = { .packets = egress->wire.packets, .bytes = egress->wire.bytes };
	struct session *session = entry->session;
	__u32 version;

	if (!(generation & GENERATION_ENDED)) {
		session_add(entry, &count);
		return;
	}
	/* The lock is held for some stores only; the bound is for the verifier. */
	for (int i = 0; i < 16; i++) {
		if (!session_lock(session, &version))
			continue;
		if (same_key(session, hop_of(session), &egress->rebuilt->key))
			session_add(entry, &count);
		session_unlock(session, version);
		return;
	}
}

/* Whether the session's packets leave as this one does, by address and port. */
static __always_inline int leaves_alike(const struct entry *entry, const struct egress *egress, void *end)
{
	const struct packet *packet = &egress->packet;
	const struct session *session = entry->session;
	__u64 out[4];

	if (*(const __u32 *)&session->source_port != packet->ports)
		return 0;
	if ((packet->kind & KIND_FAMILY) == KIND_IPV4)
		return packet->network + IPV4_LEN <= end && session->source == load32(packet->network + 12) &&
		       session->destination == load32(packet->network + 16);
	if (packet->network + IPV6_LEN > end || !entry->addresses)
		return 0;
	out_addresses(session, entry->addresses, out);
	return same_addresses((const struct addresses *)out, packet->network + 8);
}

/* Whether the rules of packet filters treat all packets of the session alike, whose actions are known: 0, or
 * -REFUSAL_*. */
static __always_inline int check_rules(const struct __sk_buff *skb, const struct egress *egress,
				       struct dst_entry *route)
{
	const struct rebuilt *rebuilt = egress->rebuilt;
	__u32 zero = 0, kind = 0;
	struct rule_subject *subject = bpf_map_lookup_elem(&rule_subjects, &zero);
	int is_ipv4 = (rebuilt->key.kind & KIND_FAMILY) == KIND_IPV4;
	const __u32 *out = is_ipv4 ? rebuilt->out : (const __u32 *)rebuilt->out6;

	if (!subject)
		return -REFUSAL_RULE;
	rule_address(subject->source[0], rebuilt->in.source, is_ipv4);
	rule_address(subject->destination[0], rebuilt->in.destination, is_ipv4);
	rule_address(subject->source[1], out, is_ipv4);
	rule_address(subject->destination[1], out + (is_ipv4 ? 1 : 4), is_ipv4);
	subject->source_port[0] = bpf_ntohs(rebuilt->in.source_port);
	subject->destination_port[0] = bpf_ntohs(rebuilt->in.destination_port);
	subject->source_port[1] = bpf_ntohs(rebuilt->out_ports);
	subject->destination_port[1] = bpf_ntohs(rebuilt->out_ports >> 16);
	subject->input[0] = skb->ingress_ifindex;
	subject->input[1] = rebuilt->key.ifindex;
	subject->output[0] = BPF_CORE_READ(route, dev, ifindex);
	subject->output[1] = skb->ifindex;
	subject->mark = skb->mark;
	subject->dscp = rebuilt->key.dscp >> 2;
	subject->is_offloaded = egress->is_tracked && is_offloaded(egress->kernel);
	if (!is_ipv4)
		kind |= RULE_IPV6;
	if (rebuilt->key.kind & KIND_TCP)
		kind |= RULE_TCP;
	if (egress->is_tracked)
		kind |= (kernel_connection(egress->kernel) & CONNTRACK_INFO_MASK) >= CONNTRACK_ESTABLISHED_REPLY
				? RULE_REPLY
				: RULE_ORIGINAL;
	return rule_keeps(kind) ? -REFUSAL_RULE : 0;
}

/* Whether the kernel treats every packet like this one alike, as far as the route shows: 0, or -REFUSAL_*. */
static __always_inline int check_route(const struct __sk_buff *skb, const struct sk_buff *kernel,
					 struct dst_entry *route, int is_ipv4)
{
	__u32 output;

	/* The same packet in the clear has to be refused by the policy (xfrm4_policy_check). */
	if (!route || route_encapsulates(route) || was_decrypted(kernel) ||
	    BPF_CORE_READ_BITFIELD(kernel, encapsulation))
		return -REFUSAL_TUNNEL;
	if (is_ipv4 && !BPF_CORE_READ((struct rtable *)route, rt_is_input))
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
static __always_inline int is_seen_by_fib(const struct __sk_buff *skb, const struct packet *packet,
					  struct dst_entry *route, const struct session_key *key,
					  const struct hop *hop)
{
	return skb->ingress_ifindex == key->ifindex && BPF_CORE_READ(route, dev, ifindex) == skb->ifindex &&
	       !(packet->kind >> KIND_OUTER_VLAN_SHIFT) && hop->dscp == key->dscp;
}

/* Whether the result of bpf_fib_lookup() matches *rebuilt. */
static __always_inline int fib_gives(struct __sk_buff *skb, const struct rebuilt *rebuilt)
{
	struct fib_query *query = fib_prepare(&rebuilt->hop, rebuilt->key.kind, rebuilt->key.dscp);

	if (!query)
		return 0;
	query->source = rebuilt->in.source[0];
	query->source_port = rebuilt->in.source_port;
	query->destination = rebuilt->out[1];
	query->destination_port = rebuilt->out_ports >> 16;
	__builtin_memcpy(&query->addresses, &rebuilt->in, 32);
	__builtin_memcpy(query->out, rebuilt->out6, 32);
	return fib_agrees_skb(skb);
}

/* Which datapath sessions between two interfaces take, as SESSION_TC or 0 in *flags: 0, or -REFUSAL_*. */
static __always_inline int choose_datapath(__u32 in, const struct interface *interface,
					     const struct packet *packet, int is_partial, __u32 *flags)
{
	__u32 out = interface->flags, is_tagged = -(packet->kind >> KIND_OUTER_VLAN_SHIFT) >> 31;

	/* XDP adds a tag to frames that have none. Without a branch, which the verifier would follow twice. */
	out &= ~((out >> INTERFACE_VLAN_SHIFT & is_tagged) * INTERFACE_XDP_OUT);
	*flags = 0;
	if (!is_partial && (in & INTERFACE_XDP_IN) && (out & INTERFACE_XDP_OUT))
		return 0;
	*flags = SESSION_TC;
	if ((in & INTERFACE_TC_IN) && (out & INTERFACE_TC_OUT))
		return 0;
	return is_partial ? -REFUSAL_PARTIAL_CHECKSUM : -REFUSAL_DATAPATH;
}

/* Stores the source (0) or destination (1) address after NAT, if NAT changes it; 0 where there is no room. */
static __always_inline int store_nat_address(struct rebuilt *rebuilt, __u32 which)
{
	const __u64 *in = (const __u64 *)&rebuilt->in + 2 * which, *out = &rebuilt->out6[2 * which];

	rebuilt->out_numbers[which] = 0;
	if (in[0] == out[0] && in[1] == out[1])
		return 1;
	rebuilt->out_numbers[which] = nat_address_index(out);
	return rebuilt->out_numbers[which] != 0;
}

/* Writes what learning may change. The lock is held. */
static __always_inline void write_actions(const struct entry *entry, const struct egress *egress, __u32 hop,
					  __u32 deadline)
{
	const struct rebuilt *rebuilt = egress->rebuilt;
	struct session *session = entry->session;

	WRITE_ONCE(session->hop, hop - 1);
	*(__u32 *)&session->source_port = rebuilt->out_ports;
	session->network_delta = rebuilt->network_delta;
	session->transport_delta = rebuilt->transport_delta;
	if ((rebuilt->key.kind & KIND_FAMILY) == KIND_IPV4) {
		session->source = rebuilt->out[0];
		session->destination = rebuilt->out[1];
	} else if (entry->addresses) {
		__builtin_memcpy(entry->addresses, &rebuilt->in, 32);
		WRITE_ONCE(session->source6, rebuilt->out_numbers[0]);
		WRITE_ONCE(session->destination6, rebuilt->out_numbers[1]);
	}
	session->deadline = deadline;
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
static __always_inline int session_init(const struct entry *entry, const struct egress *egress, __u32 hop)
{
	const struct session_key *key = &egress->rebuilt->key;
	struct session *session = entry->session;
	struct cold *cold;
	struct counters count;
	__u32 number;

	WRITE_ONCE(session->hop, hop - 1);
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
static __always_inline int find_known(struct __sk_buff *skb, const struct egress *egress, struct known *known)
{
	struct rebuilt *rebuilt = egress->rebuilt;
	__u32 reason = egress->reason;

	known->is_known = session_find(&rebuilt->key, &rebuilt->in, &known->entry);
	if (known->is_known) {
		known->generation = READ_ONCE(known->entry.session->generation);
		known->is_other = (known->generation & GENERATION_ENDED) &&
				  !leaves_alike(&known->entry, egress, (void *)(long)skb->data_end);
	}
	if (known->is_known && !known->is_other)
		count_egress(&known->entry, egress, known->generation);
	else
		prelearn_add(egress);
	/* Data after a reset that conntrack did not believe: it was under way. */
	if (known->is_known && egress->is_tracked && (rebuilt->key.kind & KIND_TCP)) {
		known->is_reset = reason == REASON_RST ||
				  (reason == PARSE_OK && (known->generation & GENERATION_CLOSED) &&
				   is_established(connection_of(egress->kernel)));
		connection_refresh(skb, kernel_connection(egress->kernel), &rebuilt->in, rebuilt->key.kind,
				   known->is_reset);
	}
	if (reason == PARSE_OK)
		return 0;
	/* XDP may have known no session of this direction, and so not the tuple of the other. */
	if (egress->is_tracked && is_end(reason))
		connection_end_sessions((unsigned long)connection_of(egress->kernel),
					reason == REASON_SYN ? 0 : GENERATION_CLOSED);
	return -REFUSAL_FLAGS;
}

/* Whether the session may be learned again: 0, or -REFUSAL_*. */
static __always_inline int check_known(const struct egress *egress, const struct known *known)
{
	struct cold *cold;

	/* Nobody else knows that an untracked connection is closing: data that was under way when it was reset would begin a
	 * session that nothing ends. A SYN, or a free slot, begins anew. */
	if ((!egress->is_tracked && (known->generation & GENERATION_CLOSED)) || known->is_reset)
		return -REFUSAL_NOT_ESTABLISHED;
	if (!known->is_other)
		return 0;
	cold = cold_of(&known->entry);
	if (cold && !(READ_ONCE(cold->created) & CREATED_WANTED))
		__sync_fetch_and_or(&cold->created, CREATED_WANTED);
	return -REFUSAL_BUSY;
}

/* Whether XDP has seen the packet come in as the kernel has forwarded it, and chooses the datapath: 0, or -REFUSAL_*. */
static __always_inline int check_candidate(const struct __sk_buff *skb, const struct egress *egress,
					   const struct known *known, struct decision *decision)
{
	const struct rebuilt *rebuilt = egress->rebuilt;
	struct candidate *candidate;
	__u64 word;
	int refusal;

	if (rebuilt->key.generation != READ_ONCE(control.generation))
		return -REFUSAL_GENERATION;
	candidate = candidate_find(rebuilt->hash);
	word = candidate ? READ_ONCE(candidate->word) : 0;
	if (!candidate_matches(word, rebuilt->hash))
		return -REFUSAL_UNSEEN;
	if (candidate_generation(word) != (rebuilt->key.generation & 0xffff))
		return -REFUSAL_GENERATION;
	if (candidate_count(word) < READ_ONCE(control.admission) &&
	    (!known->is_known || (known->generation & GENERATION_ENDED)))
		return -REFUSAL_ADMISSION;
	if (egress->packet.ttl + 1 != candidate_ttl(word))
		return -REFUSAL_TTL;
	if ((egress->packet.tos ^ egress->meta->tos) & 3)
		return -REFUSAL_ECN;
	refusal = choose_datapath(egress->in->flags, egress->out, &egress->packet,
				  (word & CANDIDATE_PARTIAL) ||
					  (!skb->gso_size && BPF_CORE_READ_BITFIELD(egress->kernel, ip_summed) ==
								     KERNEL_CHECKSUM_PARTIAL),
				  &decision->flags);
	/* One complete checksum in 65,536 looks partial. A session of XDP has had complete ones: it is judged anew by the
	 * packets after those that are in the stack now, which find no candidate. */
	if (refusal && known->is_known && !(hop_of(known->entry.session)->flags & SESSION_TC))
		__sync_val_compare_and_swap(&candidate->word, word, 0);
	decision->candidate = candidate;
	return refusal;
}

/* Whether conntrack need not see the packets of its connection: 0, or -REFUSAL_*. */
static __always_inline int check_connection(struct __sk_buff *skb, const struct egress *egress,
					    struct decision *decision)
{
	const struct rebuilt *rebuilt = egress->rebuilt;
	const struct sk_buff *kernel = egress->kernel;
	int refusal;

	session_barrier();
	refusal = connection_check(kernel, rebuilt->key.kind & KIND_TCP, &decision->timeout);
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
	if (!can_be_looked_up(skb, kernel_connection(kernel), &rebuilt->in, rebuilt->key.kind))
		return -REFUSAL_UNREPORTED;
	/* Soon again: it may be ASSURED by then. */
	decision->until = lesser(decision->until, hz);
	if (!(rebuilt->key.kind & KIND_TCP))
		decision->until = lesser(decision->until, until_stream(connection_of(kernel)));
	decision->flags |= SESSION_UNREPORTED;
	return 0;
}

/* Finds the hop of the session and how changes of routes are noticed: 0, or -REFUSAL_*. */
static __always_inline int find_hop(struct __sk_buff *skb, const struct egress *egress,
				    const struct known *known, struct decision *decision)
{
	struct rebuilt *rebuilt = egress->rebuilt;

	/* Read before the route look-up. */
	decision->routes = READ_ONCE(control.route_generation);
	session_barrier();
	if (is_seen_by_fib(skb, &egress->packet, kernel_route(egress->kernel), &rebuilt->key, &rebuilt->hop) &&
	    fib_gives(skb, rebuilt)) {
		rebuilt->hop.flags |= SESSION_FIB;
	} else if (egress->meta->route_generation != (__u16)decision->routes) {
		/* The kernel decided before a change, or may have. */
		if (known->is_known)
			session_end(known->entry.session, 0);
		return -REFUSAL_GENERATION;
	}
	decision->hop = hop_index(&rebuilt->hop);
	if (!decision->hop)
		return -REFUSAL_HOP;
	if ((rebuilt->key.kind & KIND_FAMILY) == KIND_IPV6 &&
	    (!store_nat_address(rebuilt, 0) || !store_nat_address(rebuilt, 1)))
		return -REFUSAL_HOP;
	return 0;
}

/* Writes the session, known or new, and makes it valid: 0, or -REFUSAL_*. */
static __always_inline int write_session(const struct egress *egress, struct known *known,
					 const struct decision *decision)
{
	const struct session_key *key = &egress->rebuilt->key;
	struct entry *entry = &known->entry;
	__u32 version, before = known->generation, now = bpf_jiffies64();
	__u64 word;

	if (known->is_known) {
		struct cold *cold = cold_of(entry);

		if (!cold || !session_lock(entry->session, &version))
			return -REFUSAL_BUSY;
		if (!same_key(entry->session, hop_of(entry->session), key)) {
			session_unlock(entry->session, version);
			return -REFUSAL_BUSY;
		}
		if (READ_ONCE(cold->used) < 255 * COLD_REVALIDATION)
			__sync_fetch_and_add(&cold->used, COLD_REVALIDATION);
		/* It had ended and starts again: a new age, and the counts continue. */
		if (before & GENERATION_ENDED)
			cold->created = created_word(now, cold->created);
	} else {
		if (!session_claim(key, entry, &version))
			return -REFUSAL_FULL;
		if (!session_init(entry, egress, decision->hop)) {
			session_unlock(entry->session, version);
			return -REFUSAL_BUSY;
		}
		before = GENERATION_ENDED;
	}
	write_actions(entry, egress, decision->hop, now + decision->until);
	entry->session->route_generation = decision->routes;
	if (!session_publish(entry->session, before, key->generation)) {
		session_unlock(entry->session, version);
		return -REFUSAL_ENDED;
	}
	session_unlock(entry->session, version);
	word = READ_ONCE(decision->candidate->word);
	if (!candidate_matches(word, egress->rebuilt->hash)) {
		session_end(entry->session, 0);
		return -REFUSAL_ENDED;
	}
	/* Room for others: from now on XDP records only what is due for revalidation. */
	if (!known->is_known)
		__sync_val_compare_and_swap(&decision->candidate->word, word, 0);
	return 0;
}

/* Learns the session of the packet, or learns it again: 0, or -REFUSAL_*. */
static __always_inline int learn_session(struct __sk_buff *skb, const struct egress *egress, struct known *known)
{
	struct rebuilt *rebuilt = egress->rebuilt;
	int is_ipv4 = (rebuilt->key.kind & KIND_FAMILY) == KIND_IPV4, refusal;
	struct dst_entry *route = kernel_route(egress->kernel);
	struct decision decision = { .until = READ_ONCE(control.revalidate_after) };

	refusal = check_route(skb, egress->kernel, route, is_ipv4) ?: check_candidate(skb, egress, known, &decision);
	if (!refusal && egress->is_tracked)
		refusal = check_connection(skb, egress, &decision);
	if (refusal)
		return refusal;
	rebuild_actions(egress, skb, kernel_mtu(egress->kernel, route, !is_ipv4), egress->out, decision.flags);
	rebuilt->hop.zone = decision.zone;
	refusal = check_rules(skb, egress, route) ?: find_hop(skb, egress, known, &decision) ?:
		  write_session(egress, known, &decision);
	if (refusal)
		return refusal;
	/* As if the connection had its last packet at the deadline: it ends no earlier than if conntrack saw them all. The ager
	 * corrects that when it has seen the last one (refresh.bpf.c). */
	if (egress->is_tracked)
		connection_set_timeout(skb, kernel_connection(egress->kernel), &rebuilt->in, rebuilt->key.kind,
				       (__u64)decision.timeout + decision.until);
	return 0;
}

/* 0 when the packet's session is known, valid and in time, or was learned; otherwise -REFUSAL_*. */
static __always_inline int learn_from(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct egress egress = { .rebuilt = bpf_map_lookup_elem(&rebuilt, &zero) };
	struct known known = {};
	int refusal;

	refusal = find_ingress(skb, &egress) ?: read_packet(skb, &egress) ?: find_known(skb, &egress, &known);
	if (refusal)
		return refusal;
	if (known.is_known && known.generation == egress.rebuilt->key.generation && is_routed(known.entry.session) &&
	    (__s32)((__u32)bpf_jiffies64() - READ_ONCE(known.entry.session->deadline)) <= 0)
		return 0;
	return check_known(&egress, &known) ?: learn_session(skb, &egress, &known);
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
