/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A packet at egress: how it came in, the key and the actions of its session, and its count before there is one.
 * learn.bpf.c describes how they are used. */
#ifndef LINERATE_EGRESS_H
#define LINERATE_EGRESS_H

#include "conntrack.h"
#include "ingress_meta.h"
#include "refusals.h"
#include "rewrite.h"
#include "table.h"
#include "tc.h"

#define PRELEARN_ENTRIES 65536

/* Packets that left before their session was learned: direct-mapped by the upper half of the key's hash. */
struct prelearn {
	__u64 word; /* lower half of rebuilt.prelearn, packets */
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PRELEARN_ENTRIES);
	__type(key, __u32);
	__type(value, struct prelearn);
} prelearn SEC(".maps");

/* The session that a packet at egress belongs to. */
struct known {
	__u32 slot; /* plus one; 0: none */
	__u32 generation; /* when it was found */
	/* It ended, and NAT has given its tuple to another connection, which is not counted with it. The ager frees the slot
	 * soon, and the session that is learned then has these packets, too. */
	__u32 is_other;
	__u32 is_reset; /* one side has reset the connection */
};

/* What a session that is learned will be. */
struct decision {
	__u32 flags;   /* SESSION_* */
	__u32 zone;
	__u32 timeout; /* of the connection, in jiffies */
	__u32 until;   /* the deadline: jiffies from now */
	__u32 routes;  /* the route generation */
	__u32 hop;
	__u32 way; /* of the candidate */
};

/* A packet at egress, how it came in, and the actions of a session for it. */
struct egress {
	struct session_key key;
	struct tuple in; /* its addresses are laid out as in an IPv6 header */
	struct ingress_meta meta;
	struct interface from, to;
	struct packet packet; /* as it leaves, without `network` */
	struct wire wire;
	__u64 hash;
	__u64 prelearn; /* the hash, with the addresses and ports as it leaves */
	struct hop hop;
	union {	      /* source and destination as it leaves */
		__u32 out[2];
		__u64 out6[4];
	};
	__u32 out_numbers[2]; /* IPv6: as session.source6 and destination6 */
	__u16 network_delta;
	__u16 transport_delta;
	__u32 reason; /* PARSE_OK or REASON_* */
	__u32 is_tracked;
	struct known known;
	struct decision decision;
};

/* Not on the stack, for the reasons that slow_path.h has. The steps of learning are global functions with a pointer to
 * it: the verifier looks at each once, and not at each path through all of them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct egress);
} egress SEC(".maps");

static __always_inline int is_direct(const struct __sk_buff *skb, const struct ingress_meta *meta)
{
	return skb->ingress_ifindex == meta->ifindex || is_upper_device(skb->ingress_ifindex, meta->ifindex);
}

static __always_inline void prelearn_add(const struct egress *egress)
{
	__u32 index = (egress->prelearn >> 32) % PRELEARN_ENTRIES;
	struct prelearn *entry = bpf_map_lookup_elem(&prelearn, &index);

	if (!entry)
		return;
	if (entry->word >> 32 == (__u32)egress->prelearn) {
		__sync_fetch_and_add(&entry->word, egress->wire.packets);
		__sync_fetch_and_add(&entry->bytes, egress->wire.bytes);
	} else {
		entry->bytes = egress->wire.bytes;
		WRITE_ONCE(entry->word, egress->prelearn << 32 | egress->wire.packets);
	}
}

/* Moves what was counted so far into *count; only one of two learners gets it. */
static __always_inline void prelearn_take(const struct egress *egress, struct counters *count)
{
	__u32 index = (egress->prelearn >> 32) % PRELEARN_ENTRIES;
	struct prelearn *entry = bpf_map_lookup_elem(&prelearn, &index);

	count->packets = 0;
	count->bytes = 0;
	if (!entry || READ_ONCE(entry->word) >> 32 != (__u32)egress->prelearn)
		return;
	count->packets = (__u32)__sync_lock_test_and_set(&entry->word, 0);
	count->bytes = __sync_lock_test_and_set(&entry->bytes, 0);
}

/* The hash of the packet's session, mixed with its connection and the addresses and ports that it leaves with. One
 * connection after the other may have the tuple: each short one of a client with a fixed port does, and NAT may give it
 * to another host. */
static __always_inline __u64 prelearn_hash(const struct egress *egress, const struct sk_buff *kernel)
{
	__u64 out = egress->packet.ports + (kernel_connection(kernel) & ~CONNTRACK_INFO_MASK);
	int is_ipv4 = (egress->packet.kind & KIND_FAMILY) == KIND_IPV4;

	out = (out + (is_ipv4 ? egress->out6[0] : session_signature(egress->out6))) * control.seeds[4];
	return egress->hash ^ out ^ out >> 32;
}

/* The packet's key, from its own headers, its connection and its ingress metadata; 0, or -REFUSAL_*. */
static __always_inline int rebuild_key(struct egress *egress, const struct sk_buff *kernel)
{
	const struct packet *packet = &egress->packet;
	const struct ingress_meta *meta = &egress->meta;
	struct session_key *key = &egress->key;
	struct tuple *in = &egress->in;
	int is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4, is_tracked = connection_tuple(in, kernel, is_ipv4);

	if (is_tracked < 0)
		return -REFUSAL_CONNTRACK_UNKNOWN;
	egress->is_tracked = is_tracked;
	if (!is_tracked) {
		if (is_ipv4) {
			in->source[0] = egress->out[0];
			in->destination[0] = egress->out[1];
		} else {
			__builtin_memcpy(in, egress->out6, 32);
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
	key->ifindex = meta->ifindex;
	__builtin_memcpy(key->dst_mac, egress->from.mac, 6);
	key->kind = (packet->kind & (KIND_FAMILY | KIND_TCP)) | meta->kind;
	key->dscp = meta->tos & 0xfc;
	__builtin_memcpy(key->tag, meta->tag, 4);
	key->generation = meta->generation;
	egress->hash = session_hash(key);
	return 0;
}

/* Finds the interfaces that the packet is forwarded between, and how it came in: 0, or -REFUSAL_*. */
__noinline int find_ingress(struct __sk_buff *skb, struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);
	const struct ingress_meta *meta;
	const struct interface *from, *to;
	__u32 ifindex = skb->ifindex;

	if (!kernel || !egress)
		return -REFUSAL_UNREADABLE;
	end_former_sessions(kernel);
	if (!skb->ingress_ifindex)
		return -REFUSAL_LOCAL;
	meta = ingress_meta_get(skb->tc_index);
	if (!meta)
		return -REFUSAL_UNMARKED;
	if (!is_direct(skb, meta))
		return -REFUSAL_INDIRECT;
	to = bpf_map_lookup_elem(&interfaces, &ifindex);
	ifindex = meta->ifindex;
	from = bpf_map_lookup_elem(&interfaces, &ifindex);
	if (!from || !to)
		return -REFUSAL_NO_PORT;
	egress->meta = *meta;
	egress->from = *from;
	egress->to = *to;
	return kernel->sk ? -REFUSAL_LOCAL : 0;
}

/* Parses the packet and rebuilds its key: 0, or -REFUSAL_*. */
__noinline int read_packet(struct __sk_buff *skb, struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);
	struct packet packet;
	__u32 reason;
	int refusal;
	void *end;

	if (!kernel || !egress)
		return -REFUSAL_UNREADABLE;
	pull_headers(skb);
	reason = parse_once(skb, egress->to.flags & INTERFACE_ETHERNET);
	egress->reason = reason;
	end = (void *)(long)skb->data_end;
	if (!take_parsed((void *)(long)skb->data, &packet))
		return -REFUSAL_NOT_SESSION;
	if (reason != PARSE_OK && reason != REASON_FLAGS && !is_end(reason))
		return -REFUSAL_NOT_SESSION;
	/* parse_once() has checked this, but the verifier has forgotten. */
	if (packet.network + ((packet.kind & KIND_FAMILY) == KIND_IPV4 ? IPV4_LEN : IPV6_LEN) > end)
		return -REFUSAL_NOT_SESSION;
	if ((packet.kind & KIND_FAMILY) == KIND_IPV4)
		egress->out6[0] = load64(packet.network + 12);
	else
		__builtin_memcpy(egress->out6, packet.network + 8, 32);
	measure_wire(skb, &packet, end, &egress->wire);
	packet.network = NULL;
	egress->packet = packet;
	refusal = rebuild_key(egress, kernel);
	if (!refusal)
		egress->prelearn = prelearn_hash(egress, kernel);
	return refusal;
}

/* Finds out what the kernel did to the packet: 0, or -REFUSAL_*. */
__noinline int rebuild_actions(struct __sk_buff *skb, struct egress *egress)
{
	struct sk_buff *kernel = kernel_skb(skb);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 tags = 0, in_frame, add, ports, flags, mtu;
	const struct packet *packet;
	struct hop *hop;
	__u16 ports_delta;
	int is_ipv4;

	if (!kernel || !egress)
		return -REFUSAL_UNREADABLE;
	packet = &egress->packet;
	is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4;
	in_frame = packet->tag_bytes / VLAN_HLEN;
	ports = egress->in.source_port | (__u32)egress->in.destination_port << 16;
	ports_delta = delta_bytes(&ports, &packet->ports, 4);
	mtu = kernel_mtu(kernel, kernel_route(kernel), !is_ipv4);
	flags = egress->decision.flags;
	hop = &egress->hop;
	__builtin_memset(hop, 0, sizeof(*hop));
	hop->ifindex = egress->key.ifindex;
	__builtin_memcpy(hop->tag, egress->key.tag, 4);
	__builtin_memcpy(hop->dst_mac, egress->key.dst_mac, 6);
	if ((egress->to.flags & INTERFACE_ETHERNET) && data + ETHERNET_LEN <= end)
		__builtin_memcpy(hop->destination_mac, data, 12);
	if (skb->vlan_present) {
		hop->out_tag[0] = (__u16)skb->vlan_proto | (__u32)bpf_htons(skb->vlan_tci) << 16;
		tags = 1;
	}
	if (in_frame && data + ETHERNET_LEN + 2 * VLAN_HLEN <= end) {
		hop->out_tag[tags & 1] = load32(data + 12);
		tags++;
		if (in_frame == 2) {
			hop->out_tag[1] = load32(data + 16);
			tags++;
		}
	}
	/* XDP adds the tag of a VLAN device. */
	add = egress->to.flags >> INTERFACE_VLAN_SHIFT & !(flags & SESSION_TC);
	hop->out_tag[0] |= egress->to.tag & -add;
	hop->out_tags = tags + add;
	/* A redirected frame may exceed the MTU by one tag and no more (`xdp_ok_fwd_dev`). */
	hop->mtu = lesser(tags == 2 ? mtu - VLAN_HLEN : mtu, 0xffff);
	hop->port = egress->to.port;
	hop->mark = skb->mark;
	hop->priority = skb->priority;
	hop->dscp = packet->tos & 0xfc;
	hop->zone = egress->decision.zone;
	hop->out_ifindex = skb->ifindex;
	egress->network_delta = 0;
	if (is_ipv4) {
		__u32 addresses[2] = { egress->in.source[0], egress->in.destination[0] };

		egress->network_delta = network_delta(egress->key.dscp, hop->dscp, addresses, egress->out);
		egress->transport_delta = delta_add(ports_delta, delta_bytes(addresses, egress->out, 8));
		if ((addresses[0] ^ egress->out[0]) | (addresses[1] ^ egress->out[1]) | (ports ^ packet->ports))
			flags |= SESSION_NAT;
	} else {
		egress->transport_delta = delta_add(ports_delta, delta_bytes(&egress->in, egress->out6, 32));
		if (ports != packet->ports || !same_addresses((const struct addresses *)&egress->in, egress->out6))
			flags |= SESSION_NAT;
	}
	hop->flags = flags;
	return 0;
}

#endif
