/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The connection that conntrack has attached to a packet. There is no look-up by addresses, so zones, clashes
 * and directions are those of this very packet. The packet's reference keeps the connection alive while it is
 * read. Its members may change concurrently; each is read once and then checked. */
#ifndef LINERATE_CONNTRACK_H
#define LINERATE_CONNTRACK_H

#include <linux/in.h>

#include "ct_lookup.h"
#include "kernel.h"
#include "refusals.h"
#include "table.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

union nf_inet_addr {
	__u32 all[4];
};

union nf_conntrack_man_proto {
	__be16 all;
};

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
	__u16 l3num;
};

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
		__u8 protonum;
	} dst;
};

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
};

struct ip_ct_tcp_state {
	__u8 flags;
};

struct ip_ct_tcp {
	struct ip_ct_tcp_state seen[2];
	__u8 state;
	__u8 retrans;
	__u16 last_win;
};

struct nf_ct_udp {
	unsigned long stream_ts;
};

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
	struct nf_ct_udp udp;
};

struct nf_conntrack_zone {
	__u16 id;
	__u8 dir; /* bits, by direction */
};

struct nf_ct_timeout {
	char data[0]; /* as nf_tcp_net.timeouts */
};

struct nf_conn_timeout {
	struct nf_ct_timeout *timeout;
};

struct nf_ct_ext {
	__u8 offset[1]; /* by enum nf_ct_ext_id; 0: not there */
};

enum nf_ct_ext_id {
	NF_CT_EXT_ECACHE = 4,
	NF_CT_EXT_TIMEOUT = 6,
};

struct nf_conn {
	__u32 timeout;
	struct nf_conntrack_zone zone;
	possible_net_t ct_net;
	struct nf_ct_ext *ext;
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	union nf_conntrack_proto proto;
};

#pragma clang attribute pop

/* sk_buff._nfct: a pointer, with the packet's direction in its low bits. */
#define CONNTRACK_INFO_MASK 7ul
#define CONNTRACK_ESTABLISHED 0	      /* in the direction of the first packet */
#define CONNTRACK_NEW 2		      /* the same, as long as there was no answer */
#define CONNTRACK_ESTABLISHED_REPLY 3 /* against it */
#define CONNTRACK_UNTRACKED 7	      /* by a `notrack` rule, and without a connection */

/* nf_conn.status, <linux/netfilter/nf_conntrack_common.h> */
#define CONNTRACK_SEEN_REPLY (1ul << 1)
#define CONNTRACK_ASSURED (1ul << 2)
#define CONNTRACK_CONFIRMED (1ul << 3)
#define CONNTRACK_SEQ_ADJUST (1ul << 6)
#define CONNTRACK_DYING (1ul << 9)
#define CONNTRACK_FIXED_TIMEOUT (1ul << 10)
#define CONNTRACK_TEMPLATE (1ul << 11)
#define CONNTRACK_HELPER (1ul << 13)
#define CONNTRACK_OFFLOAD (1ul << 14)

/* ip_ct_tcp.state */
#define CONNTRACK_TCP_ESTABLISHED 3
#define CONNTRACK_TCP_LAST_ACK 6
#define CONNTRACK_TCP_CLOSE 8
#define CONNTRACK_TCP_MAX 10

#define CONNTRACK_TCP_UNACKNOWLEDGED 0x10 /* ip_ct_tcp_state.flags: data was seen, but not its acknowledgement */

/* Addresses and ports of one direction, raw; IPv4 in the first word. */
struct tuple {
	__u32 source[4];
	__u32 destination[4];
	__be16 source_port;
	__be16 destination_port;
};

static __always_inline const struct nf_conn *connection_of(const struct sk_buff *packet)
{
	return (const struct nf_conn *)(kernel_connection(packet) & ~CONNTRACK_INFO_MASK);
}

/* Families, IPv4 and IPv6, that conntrack was ever seen to track here; used if its hooks cannot be searched.
 * Never reset: if conntrack is switched off, this costs the fast path until the next attachment, but the
 * opposite guess would cost a connection its translation. */
__u8 conntrack_active[2];

#define CONNTRACK_IPV4 2 /* AF_INET: nf_conntrack_tuple.src.l3num */
#define CONNTRACK_IPV6 10 /* AF_INET6 */

/* The tuple of a direction as its packets come in; 0 where they belong to no session. */
static __always_inline int tuple_of(struct tuple_key *key, const struct nf_conntrack_tuple *tuple)
{
	__u16 family = BPF_CORE_READ(tuple, src.l3num);
	__u8 protocol = BPF_CORE_READ(tuple, dst.protonum);
	__u32 source[4], destination[4];
	__be16 source_port, destination_port;

	if ((family != CONNTRACK_IPV4 && family != CONNTRACK_IPV6) ||
	    (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return 0;
	BPF_CORE_READ_INTO(&source, tuple, src.u3.all);
	BPF_CORE_READ_INTO(&destination, tuple, dst.u3.all);
	BPF_CORE_READ_INTO(&source_port, tuple, src.u.all);
	BPF_CORE_READ_INTO(&destination_port, tuple, dst.u.all);
	key->ports = source_port | (__u32)destination_port << 16;
	key->kind = (family == CONNTRACK_IPV4 ? KIND_IPV4 : KIND_IPV6) |
		    (protocol == IPPROTO_TCP ? KIND_TCP : 0);
	key->addresses = family == CONNTRACK_IPV4 ? source[0] | (__u64)destination[0] << 32
						  : session_signature_of(source, destination);
	return 1;
}

/* Ends the sessions of both directions of the connection at this address, as session_end() does. Global, so that the
 * verifier looks at it once. */
__noinline int connection_end_sessions(unsigned long address, __u32 closed)
{
	const struct nf_conn *connection = (const struct nf_conn *)address;
	struct tuple_key key = {}, answers = {};

	if (!bpf_core_type_exists(struct nf_conn))
		return 0;
	/* Not in a loop: CO-RE knows where these two are, and no stride. */
	if (tuple_of(&key, &connection->tuplehash[0].tuple))
		tuple_end(&key, &answers, closed);
	if (tuple_of(&key, &connection->tuplehash[1].tuple))
		tuple_end(&key, &answers, closed);
	return 0;
}

/* A packet of a connection without an answer yet ends the sessions with its tuples: they were learned from a former
 * connection. The kernel gives addresses and ports to another when a connection is gone, and the answers must not
 * go to the former one. */
static __always_inline void end_former_sessions(const struct sk_buff *packet)
{
	const struct nf_conn *found = connection_of(packet);

	if (found && (kernel_connection(packet) & CONNTRACK_INFO_MASK) == CONNTRACK_NEW)
		connection_end_sessions((unsigned long)found, 0);
}

/* Conntrack's hook for incoming packets. It has no address if conntrack is a module that was loaded after
 * these programs, or if the kernel hides its addresses (kernel.kptr_restrict = 2). */
extern const void ipv4_conntrack_in __weak __ksym;
extern const void ipv6_conntrack_in __weak __ksym;

#define MAX_HOOKS 32 /* at prerouting: chains, defragmentation, tracking */

/* Whether conntrack tracks this family in the packet's network namespace. If it does, a packet without a
 * connection is INVALID (`nf_conntrack_in`), and what happens to it says nothing about the session. */
static __always_inline int is_tracking(const struct sk_buff *packet, int is_ipv4)
{
	const void *wanted = is_ipv4 ? &ipv4_conntrack_in : &ipv6_conntrack_in;
	const struct nf_hook_entries *entries;
	const void *hook;
	__u32 count;

	if (!wanted || !bpf_core_field_exists(struct net, nf) ||
	    !bpf_core_field_exists(struct netns_nf, hooks_ipv4) ||
	    !bpf_core_field_exists(struct nf_hook_entry, hook))
		return conntrack_active[is_ipv4 ? 0 : 1];
	entries = is_ipv4 ? BPF_CORE_READ(packet, dev, nd_net.net, nf.hooks_ipv4[0])
			  : BPF_CORE_READ(packet, dev, nd_net.net, nf.hooks_ipv6[0]);
	if (!entries)
		return 0;
	count = BPF_CORE_READ(entries, num_hook_entries);
	if (count > MAX_HOOKS)
		return 1;
	for (__u32 i = 0; i < MAX_HOOKS && i < count; i++) {
		const void *entry = (const void *)entries +
				    bpf_core_field_offset(struct nf_hook_entries, hooks) +
				    i * bpf_core_type_size(struct nf_hook_entry) +
				    bpf_core_field_offset(struct nf_hook_entry, hook);

		if (!bpf_probe_read_kernel(&hook, sizeof(hook), entry) && hook == wanted)
			return 1;
	}
	return 0;
}

/* Reads the addresses and ports that the packet came in with, before translation, into *in. 1 if it has a
 * connection; 0 if conntrack does not work or was told not to track the packet; -1 if the connection cannot
 * be read, because conntrack's module was loaded after these programs, or the packet is INVALID. */
static __always_inline int connection_tuple(struct tuple *in, const struct sk_buff *packet, int is_ipv4)
{
	const struct nf_conn *found = connection_of(packet);
	const struct nf_conntrack_tuple *tuple;
	volatile __u8 *at_work = &conntrack_active[is_ipv4 ? 0 : 1];

	if (!found && (kernel_connection(packet) & CONNTRACK_INFO_MASK) == CONNTRACK_UNTRACKED)
		return 0;
	if (!found)
		return is_tracking(packet, is_ipv4) ? -1 : 0;
	if (!*at_work)
		*at_work = 1;
	if (!bpf_core_type_exists(struct nf_conn))
		return -1;
	/* IP_CT_ESTABLISHED_REPLY, IP_CT_RELATED_REPLY */
	tuple = (kernel_connection(packet) & CONNTRACK_INFO_MASK) >= CONNTRACK_ESTABLISHED_REPLY
			? &found->tuplehash[1].tuple
			: &found->tuplehash[0].tuple;
	BPF_CORE_READ_INTO(&in->source, tuple, src.u3.all);
	BPF_CORE_READ_INTO(&in->destination, tuple, dst.u3.all);
	BPF_CORE_READ_INTO(&in->source_port, tuple, src.u.all);
	BPF_CORE_READ_INTO(&in->destination_port, tuple, dst.u.all);
	return 1;
}

/* Bytes from the connection's extensions to one of them; 0 if it is not there. */
static __always_inline __u32 extension_of(const struct nf_conn *found, __u32 id)
{
	const struct nf_ct_ext *extensions = BPF_CORE_READ(found, ext);
	__u8 offset = 0;

	if (extensions)
		bpf_probe_read_kernel(&offset, sizeof(offset),
				      (const void *)extensions +
					      bpf_core_field_offset(struct nf_ct_ext, offset) + id);
	return offset;
}

/* The timeout of this state of a connection, in jiffies, as `nf_ct_timeout_lookup` finds it: of its policy, or of its
 * network namespace. 0 if it cannot be read. `namespace` is the offset of the timeouts in struct net. */
static __always_inline __u32 timeout_at(const struct nf_conn *found, __u64 namespace, __u32 state)
{
	const void *timeouts = NULL;
	__u32 policy = 0, timeout = 0;

	if (bpf_core_enum_value_exists(enum nf_ct_ext_id, NF_CT_EXT_TIMEOUT))
		policy = extension_of(found, bpf_core_enum_value(enum nf_ct_ext_id, NF_CT_EXT_TIMEOUT));
	if (policy) {
		const struct nf_conn_timeout *extension = (const void *)BPF_CORE_READ(found, ext) + policy;

		if (!bpf_core_field_exists(struct nf_conn_timeout, timeout) ||
		    !bpf_core_field_exists(struct nf_ct_timeout, data))
			return 0;
		timeouts = BPF_CORE_READ(extension, timeout);
		if (timeouts)
			timeouts += bpf_core_field_offset(struct nf_ct_timeout, data);
	}
	if (!timeouts)
		timeouts = (const void *)BPF_CORE_READ(found, ct_net.net) + namespace;
	bpf_probe_read_kernel(&timeout, sizeof(timeout), timeouts + state * sizeof(timeout));
	return timeout;
}

static __always_inline __u32 tcp_timeout(const struct nf_conn *found, __u32 state)
{
	if (!bpf_core_field_exists(struct netns_ct, nf_ct_proto) || state >= CONNTRACK_TCP_MAX)
		return 0;
	return timeout_at(found, bpf_core_field_offset(struct net, ct.nf_ct_proto.tcp.timeouts), state);
}

/* The time for which a packet keeps a connection in its state; 0 if it cannot be read. A UDP connection is a stream if
 * it has packets two seconds after its first; `now` is the time of the packet, in jiffies. */
static __always_inline __u32 state_timeout(const struct nf_conn *found, int is_tcp, __u64 now)
{
	if (is_tcp)
		return tcp_timeout(found, BPF_CORE_READ(found, proto.tcp.state));
	if (!bpf_core_field_exists(struct netns_ct, nf_ct_proto) ||
	    !bpf_core_field_exists(struct nf_ct_udp, stream_ts))
		return 0;
	return timeout_at(found, bpf_core_field_offset(struct net, ct.nf_ct_proto.udp.timeouts),
			  (__s64)(now - BPF_CORE_READ(found, proto.udp.stream_ts)) > 0);
}

/* Jiffies until a packet makes the UDP connection a stream; conntrack has to see that one. The greatest number if it would
 * do so now. */
static __always_inline __u32 until_stream(const struct nf_conn *found)
{
	__s64 left = bpf_core_field_exists(struct nf_ct_udp, stream_ts)
			     ? BPF_CORE_READ(found, proto.udp.stream_ts) - bpf_jiffies64()
			     : 0;

	return left > 0 ? left : (__u32)-1;
}

/* Whether conntrack shortens the timeout because of a window of zero, or of retransmissions. It would do so for ever if
 * it did not see what ends that. */
static __always_inline int is_stalled(const struct nf_conn *found)
{
	__u8 max_retrans;

	if (!bpf_core_field_exists(struct netns_ct, nf_ct_proto))
		return 1;
	max_retrans = BPF_CORE_READ(found, ct_net.net, ct.nf_ct_proto.tcp.tcp_max_retrans);
	return !BPF_CORE_READ(found, proto.tcp.last_win) || BPF_CORE_READ(found, proto.tcp.retrans) >= max_retrans;
}

static __always_inline int is_established(const struct nf_conn *found)
{
	return BPF_CORE_READ(found, proto.tcp.state) == CONNTRACK_TCP_ESTABLISHED;
}

/* The connection in sk_buff._nfct. */
static __always_inline const struct nf_conn *connection_in(unsigned long nfct)
{
	return (const struct nf_conn *)(nfct & ~CONNTRACK_INFO_MASK);
}

/* The zone of the connection in sk_buff._nfct, in the direction of the packet. */
static __always_inline __u32 zone_of(unsigned long nfct)
{
	const struct nf_conn *found = connection_in(nfct);
	__u32 direction = (nfct & CONNTRACK_INFO_MASK) >= CONNTRACK_ESTABLISHED_REPLY;

	if (!bpf_core_field_exists(struct nf_conn, zone) ||
	    !(BPF_CORE_READ(found, zone.dir) & 1 << direction))
		return 0;
	return BPF_CORE_READ(found, zone.id);
}

/* Whether a rule has put the connection of the packet into a flowtable. */
static __always_inline int is_offloaded(const struct sk_buff *packet)
{
	return !!(BPF_CORE_READ(connection_of(packet), status) & CONNTRACK_OFFLOAD);
}

/* 0 if conntrack need not see further packets of the connection, otherwise -REFUSAL_*: it has a reply
 * and, if TCP, is established; no helper reads its payload, and nothing adjusts its sequence numbers; and its timeout
 * can be read and set. *timeout is then that of its state, in jiffies, at least 1. */
static __always_inline int connection_check(const struct sk_buff *packet, int is_tcp, __u32 *timeout)
{
	const struct nf_conn *found = connection_of(packet);
	__u32 info = kernel_connection(packet) & CONNTRACK_INFO_MASK;
	unsigned long status = BPF_CORE_READ(found, status);
	__u32 left;

	if (status & CONNTRACK_TEMPLATE)
		return -REFUSAL_CONNTRACK_UNKNOWN;
	if (status & (CONNTRACK_HELPER | CONNTRACK_SEQ_ADJUST))
		return -REFUSAL_HELPER;
	if (info != CONNTRACK_ESTABLISHED && info != CONNTRACK_ESTABLISHED_REPLY)
		return -REFUSAL_NOT_ESTABLISHED;
	if (!(status & CONNTRACK_CONFIRMED) || !(status & CONNTRACK_SEEN_REPLY) ||
	    (status & CONNTRACK_DYING) ||
	    ((status & CONNTRACK_OFFLOAD) && !(READ_ONCE(control.rules) & RULES_OFFLOADED)))
		return -REFUSAL_NOT_ESTABLISHED;
	if (is_tcp && (!(status & CONNTRACK_ASSURED) || !is_established(found)))
		return -REFUSAL_NOT_ESTABLISHED;
	if (is_tcp && is_stalled(found)) {
		connection_end_sessions((unsigned long)found, 0);
		return -REFUSAL_NOT_ESTABLISHED;
	}
	if (zone_of(kernel_connection(packet)) && !bpf_core_field_exists(struct bpf_ct_opts, ct_zone_id))
		return -REFUSAL_CONNTRACK_UNKNOWN;
	left = BPF_CORE_READ(found, timeout) - (__u32)bpf_jiffies64();
	if ((__s32)left <= 0)
		return -REFUSAL_EXPIRING;
	/* One whose timeout is fixed ends at that time. */
	*timeout = status & CONNTRACK_FIXED_TIMEOUT ? left : state_timeout(found, is_tcp, bpf_jiffies64());
	return *timeout ? 0 : -REFUSAL_CONNTRACK_UNKNOWN;
}

/* Whether the end of the connection is reported where no packet tells of it. Conntrack drops connections early that are
 * not ASSURED, and reports the end of those only that had a listener when they began (nf_conntrack_events). */
static __always_inline int connection_end_is_reported(const struct sk_buff *packet)
{
	const struct nf_conn *found = connection_of(packet);

	return (BPF_CORE_READ(found, status) & CONNTRACK_ASSURED) &&
	       bpf_core_enum_value_exists(enum nf_ct_ext_id, NF_CT_EXT_ECACHE) &&
	       extension_of(found, bpf_core_enum_value(enum nf_ct_ext_id, NF_CT_EXT_ECACHE));
}

/* Whether conntrack verifies TCP and UDP checksums here. */
static __always_inline int conntrack_verifies(struct dst_entry *route)
{
	__u8 verifies = 1;

	if (bpf_core_field_exists(struct net, ct) && bpf_core_field_exists(possible_net_t, net))
		BPF_CORE_READ_INTO(&verifies, route, dev, nd_net.net, ct.sysctl_checksum);
	return verifies;
}

/* The connection of packets that come in like this, from a look-up in this zone; to be released. */
static __always_inline struct nf_conn *look_up(struct __sk_buff *skb, const struct tuple *in, __u32 kind, __u32 zone)
{
	struct bpf_ct_opts___12 options = {
		.netns_id = BPF_F_CURRENT_NETNS,
		.l4proto = kind & KIND_TCP ? IPPROTO_TCP : IPPROTO_UDP,
		.ct_zone_id = zone,
	};
	struct bpf_sock_tuple tuple = {};

	if (!bpf_ksym_exists(bpf_skb_ct_lookup) || !bpf_ksym_exists(bpf_ct_release))
		return NULL;
	if ((kind & KIND_FAMILY) == KIND_IPV4) {
		tuple.ipv4.saddr = in->source[0];
		tuple.ipv4.daddr = in->destination[0];
		tuple.ipv4.sport = in->source_port;
		tuple.ipv4.dport = in->destination_port;
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, in, 32);
		tuple.ipv6.sport = in->source_port;
		tuple.ipv6.dport = in->destination_port;
	}
	if (!zone)
		return bpf_skb_ct_lookup(skb, &tuple, lookup_length(kind), &options, CT_OPTS_WITHOUT_ZONE);
	options.ct_zone_dir = CONNTRACK_BOTH_DIRECTIONS;
	return bpf_skb_ct_lookup(skb, &tuple, lookup_length(kind), &options, sizeof(options));
}

/* Whether a datapath finds the connection in sk_buff._nfct by a look-up. Global, as the functions below, so that the
 * verifier looks at it once. */
__noinline int can_be_looked_up(struct __sk_buff *skb, unsigned long nfct, const struct tuple *in, __u32 kind)
{
	struct nf_conn *found = in && can_look_up() ? look_up(skb, in, kind, 0) : NULL;
	int same = found == connection_in(nfct);

	if (found)
		bpf_ct_release(found);
	return found && same;
}

static __always_inline void set_timeout(struct nf_conn *connection, __u64 jiffies)
{
	__u64 milliseconds = hz ? jiffies * 1000 / hz : 0;

	if (hz && bpf_ksym_exists(bpf_ct_change_timeout))
		bpf_ct_change_timeout(connection, milliseconds > (__u32)-1 ? (__u32)-1 : milliseconds);
}

/* Has the connection in sk_buff._nfct end in so many jiffies. The kernel wants a connection from a look-up. */
__noinline int connection_set_timeout(struct __sk_buff *skb, unsigned long nfct, const struct tuple *in, __u32 kind,
				      __u64 jiffies)
{
	struct nf_conn *connection = in ? look_up(skb, in, kind, zone_of(nfct)) : NULL;
	int is_same = connection == connection_in(nfct);

	if (!connection)
		return 0;
	/* Some compilers would pass on the other of two equal pointers, which the verifier knows as a number only. */
	barrier_var(is_same);
	if (is_same)
		set_timeout(connection, jiffies);
	bpf_ct_release(connection);
	return 0;
}

/* Gives the TCP connection of a packet, which it has sessions of, the timeout of its state. What conntrack does not see
 * makes it choose another one: an acknowledgement, an open window. `is_reset`: one side has reset it, which conntrack
 * believes only where it knows the last acknowledgement. */
__noinline int connection_refresh(struct __sk_buff *skb, unsigned long nfct, const struct tuple *in, __u32 kind,
				  int is_reset)
{
	const struct nf_conn *found = connection_in(nfct);
	__u32 timeout = is_reset ? tcp_timeout(found, CONNTRACK_TCP_CLOSE) : state_timeout(found, 1, 0);
	__s32 left = BPF_CORE_READ(found, timeout) - (__u32)bpf_jiffies64();

	if (!timeout || !(BPF_CORE_READ(found, status) & CONNTRACK_ASSURED))
		return 0;
	if (is_reset ? left > (__s32)timeout : left < (__s32)timeout)
		connection_set_timeout(skb, nfct, in, kind, timeout);
	return 0;
}

#endif
