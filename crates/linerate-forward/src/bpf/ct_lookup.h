/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Looking connections up in conntrack's table, in its default zone, with the kernel's functions for that. */
#ifndef LINERATE_CT_LOOKUP_H
#define LINERATE_CT_LOOKUP_H

#include "parse.h"
#include "session_access.h"

struct nf_conn;

struct bpf_ct_opts___12 {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u16 ct_zone_id; /* since Linux 6.11, as what follows */
	__u8 ct_zone_dir;
	__u8 reserved[3];
};

/* Whether it has zones. */
struct bpf_ct_opts {
	__u16 ct_zone_id;
} __attribute__((preserve_access_index));

#define CT_OPTS_WITHOUT_ZONE 12 /* bytes */
#define CONNTRACK_BOTH_DIRECTIONS 3 /* bpf_ct_opts.ct_zone_dir */

/* Jiffies per second; 0: do not touch the timeouts of connections. Set before load. Not 0 here, so that a tool that loads
 * the object as it is (scripts/test-compilers) has all code verified. */
const volatile __u32 hz = 1;

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *, struct bpf_sock_tuple *, __u32,
					 struct bpf_ct_opts___12 *, __u32) __weak __ksym;
extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *, struct bpf_sock_tuple *, __u32,
					 struct bpf_ct_opts___12 *, __u32) __weak __ksym;
extern int bpf_ct_change_timeout(struct nf_conn *, __u32) __weak __ksym;
extern void bpf_ct_release(struct nf_conn *) __weak __ksym;

/* Whether programs can look connections up where packets come in. */
static __always_inline int can_look_up(void)
{
	return bpf_ksym_exists(bpf_xdp_ct_lookup) && bpf_ksym_exists(bpf_skb_ct_lookup) &&
	       bpf_ksym_exists(bpf_ct_release);
}

static __always_inline __u32 lookup_length(__u32 kind)
{
	return (kind & KIND_FAMILY) == KIND_IPV4 ? sizeof(((struct bpf_sock_tuple *)0)->ipv4)
						 : sizeof(((struct bpf_sock_tuple *)0)->ipv6);
}

static __always_inline int connection_found(void *context, int is_xdp, struct bpf_sock_tuple *tuple, __u32 kind)
{
	struct bpf_ct_opts___12 options = {
		.netns_id = BPF_F_CURRENT_NETNS,
		.l4proto = kind & KIND_TCP ? IPPROTO_TCP : IPPROTO_UDP,
	};
	__u32 length = lookup_length(kind);
	struct nf_conn *found;

	if (!tuple || !can_look_up())
		return 0;
	found = is_xdp ? bpf_xdp_ct_lookup(context, tuple, length, &options, CT_OPTS_WITHOUT_ZONE)
		       : bpf_skb_ct_lookup(context, tuple, length, &options, CT_OPTS_WITHOUT_ZONE);
	if (!found)
		return 0;
	bpf_ct_release(found);
	return 1;
}

/* Whether a packet that comes in with these addresses and ports belongs to a connection. `tuple` is laid out for the
 * family. Global, as the next one, so that the verifier looks at it once. */
__noinline int connection_exists(struct xdp_md *context, struct bpf_sock_tuple *tuple, __u32 kind)
{
	return connection_found(context, 1, tuple, kind);
}

/* The same at a tc hook. */
__noinline int connection_exists_skb(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 kind)
{
	return connection_found(skb, 0, tuple, kind);
}

/* The same for a packet that parse() has accepted; `context` is that of XDP or TC. */
static __always_inline int has_connection(void *context, int is_xdp, const struct packet *packet)
{
	struct bpf_sock_tuple tuple = {};

	if ((packet->kind & KIND_FAMILY) == KIND_IPV4) {
		*(__u64 *)&tuple.ipv4.saddr = packet->addresses;
		*(__u32 *)&tuple.ipv4.sport = packet->ports;
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, packet->network + 8, 32);
		*(__u32 *)&tuple.ipv6.sport = packet->ports;
	}
	return is_xdp ? connection_exists(context, &tuple, packet->kind)
		      : connection_exists_skb(context, &tuple, packet->kind);
}

/* Sessions whose connections were found lately, by the lower bits of their slots: the slot, and when, in jiffies. What a
 * former session of the slot left there is at most as old as what this one would have written: its learner has found the
 * connection. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* looked_mask + 1 */
	__type(key, __u32);
	__type(value, __u64);
} looked SEC(".maps");

const volatile __u32 looked_mask = 0;

/* Whether the connection of a session was looked up in the last 10 ms, or in this jiffy where that is longer. */
static __always_inline int was_looked_up(__u32 slot, __u32 now)
{
	__u32 index = slot & looked_mask;
	const __u64 *word = bpf_map_lookup_elem(&looked, &index);
	__u64 last;

	if (!word)
		return 0;
	last = READ_ONCE(*word);
	return last >> 32 == slot && now - (__u32)last < hz / 100;
}

/* Whether the connection of this packet's session still exists. */
static __always_inline int connection_remains(void *context, int is_xdp, const struct packet *packet, __u32 slot)
{
	__u32 now = bpf_jiffies64(), index = slot & looked_mask;
	__u64 *word;

	if (was_looked_up(slot, now))
		return 1;
	if (!has_connection(context, is_xdp, packet))
		return 0;
	word = bpf_map_lookup_elem(&looked, &index);
	if (word)
		WRITE_ONCE(*word, (__u64)slot << 32 | now);
	return 1;
}

#endif
