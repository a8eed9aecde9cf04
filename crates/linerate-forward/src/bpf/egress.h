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

/* The ingress metadata of a packet at egress, and the actions of a session for it. */
struct rebuilt {
	struct session_key key;
	struct tuple in; /* its addresses are laid out as in an IPv6 header */
	__u64 hash;
	__u64 prelearn; /* the hash, with the addresses and ports as it leaves */
	struct hop hop;
	union {	      /* source and destination as it leaves */
		__u32 out[2];
		__u64 out6[4];
	};
	__u32 out_numbers[2]; /* IPv6: as session.source6 and destination6 */
	__u32 out_ports;
	__u16 network_delta;
	__u16 transport_delta;
};

/* Not on the stack, for the reasons that slow_path.h has. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rebuilt);
} rebuilt SEC(".maps");

/* A packet at egress, and how it came in. */
struct egress {
	struct sk_buff *kernel;
	const struct ingress_meta *meta;
	const struct interface *in, *out;
	struct packet packet; /* as it leaves */
	struct rebuilt *rebuilt;
	struct wire wire;
	__u32 reason; /* PARSE_OK or REASON_* */
	int is_tracked;
};

static __always_inline int is_direct(const struct __sk_buff *skb, const struct ingress_meta *meta)
{
	return skb->ingress_ifindex == meta->ifindex || is_upper_device(skb->ingress_ifindex, meta->ifindex);
}

static __always_inline void prelearn_add(const struct egress *egress)
{
	__u32 index = (egress->rebuilt->prelearn >> 32) % PRELEARN_ENTRIES;
	struct prelearn *entry = bpf_map_lookup_elem(&prelearn, &index);

	if (!entry)
		return;
	if (entry->word >> 32 == (__u32)egress->rebuilt->prelearn) {
		__sync_fetch_and_add(&entry->word, egress->wire.packets);
		__sync_fetch_and_add(&entry->bytes, egress->wire.bytes);
	} else {
		entry->bytes = egress->wire.bytes;
		WRITE_ONCE(entry->word, egress->rebuilt->prelearn << 32 | egress->wire.packets);
	}
}

/* Moves what was counted so far into *count; only one of two learners gets it. */
static __always_inline void prelearn_take(const struct egress *egress, struct counters *count)
{
	__u32 index = (egress->rebuilt->prelearn >> 32) % PRELEARN_ENTRIES;
	struct prelearn *entry = bpf_map_lookup_elem(&prelearn, &index);

	count->packets = 0;
	count->bytes = 0;
	if (!entry || READ_ONCE(entry->word) >> 32 != (__u32)egress->rebuilt->prelearn)
		return;
	count->packets = (__u32)__sync_lock_test_and_set(&entry->word, 0);
	count->bytes = __sync_lock_test_and_set(&entry->bytes, 0);
}

/* The hash of the packet's session, mixed with its connection and the addresses and ports that it leaves with. One
 * connection after the other may have the tuple: each short one of a client with a fixed port does, and NAT may give it
 * to another host. */
static __always_inline __u64 prelearn_hash(const struct egress *egress, const struct sk_buff *kernel, void *end)
{
	const struct packet *packet = &egress->packet;
	__u64 out = packet->ports + (kernel_connection(kernel) & ~CONNTRACK_INFO_MASK);

	if ((packet->kind & KIND_FAMILY) == KIND_IPV4) {
		if (packet->network + IPV4_LEN <= end)
			out = (out + load64(packet->network + 12)) * control.seeds[4];
	} else if (packet->network + IPV6_LEN <= end) {
		out = (out + session_signature(packet->network + 8)) * control.seeds[4];
	}
	return egress->rebuilt->hash ^ out ^ out >> 32;
}

/* The packet's key, from its own headers, its connection and its ingress metadata; 0, or -REFUSAL_*. */
static __always_inline int rebuild_key(struct egress *egress)
{
	const struct packet *packet = &egress->packet;
	const struct ingress_meta *meta = egress->meta;
	struct session_key *key = &egress->rebuilt->key;
	struct tuple *in = &egress->rebuilt->in;
	int is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4;

	egress->is_tracked = connection_tuple(in, egress->kernel, is_ipv4);
	if (egress->is_tracked < 0)
		return -REFUSAL_CONNTRACK_UNKNOWN;
	if (!egress->is_tracked) {
		if (is_ipv4) {
			in->source[0] = load32(packet->network + 12);
			in->destination[0] = load32(packet->network + 16);
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
	key->ifindex = meta->ifindex;
	__builtin_memcpy(key->dst_mac, egress->in->mac, 6);
	key->kind = (packet->kind & (KIND_FAMILY | KIND_TCP)) | meta->kind;
	key->dscp = meta->tos & 0xfc;
	__builtin_memcpy(key->tag, meta->tag, 4);
	key->generation = meta->generation;
	egress->rebuilt->hash = session_hash(key);
	return 0;
}

/* Finds the interfaces that the packet is forwarded between, and how it came in: 0, or -REFUSAL_*. */
static __always_inline int find_ingress(struct __sk_buff *skb, struct egress *egress)
{
	__u32 ifindex = skb->ifindex;

	egress->kernel = kernel_skb(skb);
	if (!egress->kernel || !egress->rebuilt)
		return -REFUSAL_UNREADABLE;
	end_former_sessions(egress->kernel);
	if (!skb->ingress_ifindex)
		return -REFUSAL_LOCAL;
	egress->meta = ingress_meta_get(skb->tc_index);
	if (!egress->meta)
		return -REFUSAL_UNMARKED;
	if (!is_direct(skb, egress->meta))
		return -REFUSAL_INDIRECT;
	egress->out = bpf_map_lookup_elem(&interfaces, &ifindex);
	ifindex = egress->meta->ifindex;
	egress->in = bpf_map_lookup_elem(&interfaces, &ifindex);
	if (!egress->out || !egress->in)
		return -REFUSAL_NO_PORT;
	return egress->kernel->sk ? -REFUSAL_LOCAL : 0;
}

/* Parses the packet and rebuilds its key: 0, or -REFUSAL_*. */
static __always_inline int read_packet(struct __sk_buff *skb, struct egress *egress)
{
	struct packet packet;
	__u32 reason;
	int refusal;
	void *end;

	pull_headers(skb);
	reason = parse_once(skb, egress->out->flags & INTERFACE_ETHERNET);
	egress->reason = reason;
	end = (void *)(long)skb->data_end;
	if (!take_parsed((void *)(long)skb->data, &packet))
		return -REFUSAL_NOT_SESSION;
	if (packet.network + ((packet.kind & KIND_FAMILY) == KIND_IPV4 ? IPV4_LEN : IPV6_LEN) > end)
		return -REFUSAL_NOT_SESSION;
	/* Only now: newer compilers would write its address before they check the offset, which the verifier refuses. */
	egress->packet = packet;
	if (reason != PARSE_OK && reason != REASON_SYN && reason != REASON_FIN && reason != REASON_RST &&
	    reason != REASON_FLAGS)
		return -REFUSAL_NOT_SESSION;
	refusal = rebuild_key(egress);
	if (refusal)
		return refusal;
	measure_wire(skb, &egress->packet, end, &egress->wire);
	egress->rebuilt->prelearn = prelearn_hash(egress, egress->kernel, end);
	return 0;
}

/* Puts into *rebuilt what the kernel did to the packet; `flags` are those known so far. */
static __always_inline void rebuild_actions(const struct egress *egress, const struct __sk_buff *skb,
					    __u32 mtu, const struct interface *interface, __u32 flags)
{
	const struct packet *packet = &egress->packet;
	struct rebuilt *rebuilt = egress->rebuilt;
	struct hop *hop = &rebuilt->hop;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	int is_ipv4 = (packet->kind & KIND_FAMILY) == KIND_IPV4;
	__u32 ports = rebuilt->in.source_port | (__u32)rebuilt->in.destination_port << 16;
	__u32 tags = 0, in_frame = packet->tag_bytes / VLAN_HLEN, add;
	__u16 ports_delta = delta_bytes(&ports, &packet->ports, 4);

	__builtin_memset(hop, 0, sizeof(*hop));
	hop->ifindex = rebuilt->key.ifindex;
	__builtin_memcpy(hop->tag, rebuilt->key.tag, 4);
	__builtin_memcpy(hop->dst_mac, rebuilt->key.dst_mac, 6);
	if ((interface->flags & INTERFACE_ETHERNET) && data + ETHERNET_LEN <= end)
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
	add = interface->flags >> INTERFACE_VLAN_SHIFT & ((flags & SESSION_TC) / SESSION_TC ^ 1);
	hop->out_tag[0] |= interface->tag & -add;
	hop->out_tags = tags + add;
	/* A redirected frame may exceed the MTU by one tag and no more (`xdp_ok_fwd_dev`). */
	hop->mtu = lesser(tags == 2 ? mtu - VLAN_HLEN : mtu, 0xffff);
	hop->port = interface->port;
	hop->mark = skb->mark;
	hop->priority = skb->priority;
	hop->dscp = packet->tos & 0xfc;
	hop->out_ifindex = skb->ifindex;

	rebuilt->out_ports = packet->ports;
	if (is_ipv4 && packet->network + IPV4_LEN <= end) {
		__u32 addresses[2] = { rebuilt->in.source[0], rebuilt->in.destination[0] };

		rebuilt->out[0] = load32(packet->network + 12);
		rebuilt->out[1] = load32(packet->network + 16);
		rebuilt->network_delta = network_delta(rebuilt->key.dscp, hop->dscp, addresses, rebuilt->out);
		rebuilt->transport_delta = delta_add(ports_delta, delta_bytes(addresses, rebuilt->out, 8));
		if ((addresses[0] ^ rebuilt->out[0]) | (addresses[1] ^ rebuilt->out[1]) |
		    (ports ^ packet->ports))
			flags |= SESSION_NAT;
	} else if (packet->network + IPV6_LEN <= end) {
		__builtin_memcpy(rebuilt->out6, packet->network + 8, 32);
		rebuilt->network_delta = 0;
		rebuilt->transport_delta = delta_add(ports_delta, delta_bytes(&rebuilt->in, rebuilt->out6, 32));
		if (ports != packet->ports ||
		    !same_addresses((const struct addresses *)&rebuilt->in, rebuilt->out6))
			flags |= SESSION_NAT;
	}
	hop->flags = flags;
}

#endif
