// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Gives connections the timeout that they would have if conntrack had seen their last packets. The ager runs this program
 * (BPF_PROG_TEST_RUN) on a packet that lists sessions; only a tc or XDP program can look connections up.
 *
 * Learning has given the connection the time until the deadline and the timeout of its state: it ends too late, never too
 * early. When the ager finds that the sessions of a connection have become idle, it knows when their last packet was, and
 * the timeout counts from there. A timeout that anything else has set since is the kernel's answer to a later packet,
 * and is only extended. */

#include "conntrack.h"
#include "layout.h"
#include "table.h"

#define REFRESH_START 16 /* of the list in the packet, behind an Ethernet header */

/* The timeout of a connection whose sessions had their last packet at `used`, and how long it lasts from `now`. */
static __always_inline void refresh_idle(struct nf_conn *found, int is_tcp, __u64 used, __u64 now, int is_forced)
{
	/* Conntrack has seen the first packet of a UDP stream (until_stream()), and called it ASSURED. */
	__u64 seen = BPF_CORE_READ(found, status) & CONNTRACK_ASSURED ? now : 0;
	__u32 timeout = state_timeout(found, is_tcp, seen), expiry = BPF_CORE_READ(found, timeout);
	struct tuple_key key = {};
	__s64 left = used + timeout - now;
	int look = 0;

	if (!timeout)
		return;
	if (tuple_of(&key, &found->tuplehash[0].tuple))
		look |= tuple_look(&key, expiry - timeout);
	if (tuple_of(&key, &found->tuplehash[1].tuple))
		look |= tuple_look(&key, expiry - timeout);
	/* The other direction has its turn when it becomes idle. */
	if ((look & TUPLE_REFERENCED) && !is_forced)
		return;
	if ((look & TUPLE_HAS_DEADLINE) || left > (__s32)(expiry - (__u32)now))
		set_timeout(found, left > 0 ? left : 0);
}

/* One entry of the list. Returns REFRESH_UNACKNOWLEDGED or 0. Global, so that the verifier looks at it once. */
__noinline int refresh_slot(struct __sk_buff *skb, __u32 slot, __u32 idle)
{
	const struct session *session = session_at(slot);
	const struct addresses *addresses = addresses_at(slot);
	__u64 now = bpf_jiffies64(), used = now - (__u64)(idle & REFRESH_IDLE) * hz / 1000;
	struct tuple in = {};
	const struct hop *hop;
	struct nf_conn *found;
	__u32 state, answer = 0;
	int is_tcp;

	if (!session || !addresses || !bpf_core_type_exists(struct nf_conn) || !bpf_ksym_exists(bpf_ct_release))
		return 0;
	hop = hop_of(session);
	if (!session->kind || !(hop->flags & SESSION_TRACKED))
		return 0;
	if ((session->kind & KIND_FAMILY) == KIND_IPV4) {
		in.source[0] = session->in_source;
		in.destination[0] = session->in_destination;
	} else {
		__builtin_memcpy(&in, addresses, sizeof(*addresses));
	}
	in.source_port = session->ports;
	in.destination_port = session->ports >> 16;
	is_tcp = session->kind & KIND_TCP;
	found = look_up(skb, &in, session->kind, hop->zone);
	if (!found)
		return 0;
	state = is_tcp ? BPF_CORE_READ(found, proto.tcp.state) : 0;
	if (!(READ_ONCE(session->generation) & GENERATION_CLOSED)) {
		refresh_idle(found, is_tcp, used, now, idle & REFRESH_FORCED);
	} else if (state == CONNTRACK_TCP_ESTABLISHED) {
		/* It was reset, and conntrack did not believe it (connection_refresh()). */
		__u32 timeout = tcp_timeout(found, CONNTRACK_TCP_CLOSE);

		if (timeout && (__s32)(BPF_CORE_READ(found, timeout) - (__u32)now) > (__s32)timeout)
			set_timeout(found, timeout);
	}
	if (state >= CONNTRACK_TCP_ESTABLISHED && state <= CONNTRACK_TCP_LAST_ACK &&
	    ((BPF_CORE_READ(found, proto.tcp.seen[0].flags) | BPF_CORE_READ(found, proto.tcp.seen[1].flags)) &
	     CONNTRACK_TCP_UNACKNOWLEDGED))
		answer = REFRESH_UNACKNOWLEDGED;
	bpf_ct_release(found);
	return answer;
}

SEC("tc")
int refresh(struct __sk_buff *skb)
{
	for (__u32 i = 0; i < REFRESH_ENTRIES; i++) {
		struct refresh *entry = (void *)(long)skb->data + REFRESH_START + i * sizeof(*entry);

		if ((void *)(entry + 1) > (void *)(long)skb->data_end)
			break;
		entry->idle = refresh_slot(skb, entry->slot, entry->idle);
	}
	return 0;
}
