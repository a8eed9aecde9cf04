/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Why a session was not learned from a packet that left by a port. src/refusal.rs has the same list in
 * the same order. `refusals` is a per-CPU array of one __u64 for each; a packet is counted at most once, a
 * super-packet as one. Functions return 0, or the negative of one. */
#ifndef LINERATE_REFUSALS_H
#define LINERATE_REFUSALS_H

enum refusal {
	NOT_REFUSED,
	REFUSAL_LOCAL,		   /* made by this machine: its own traffic, or a tunnel's */
	REFUSAL_UNMARKED,	   /* arrived by an interface that is not a port, or no entry of ingress_meta was free */
	REFUSAL_INDIRECT,	   /* came through an upper device that is not in `upper_devices` */
	REFUSAL_NOT_SESSION,	   /* no TCP or UDP packet that the fast path would forward */
	REFUSAL_FLAGS,		   /* TCP: SYN, FIN or RST, or no ACK */
	REFUSAL_UNREADABLE,	   /* the kernel does not let programs read its packets (before 6.2) */
	REFUSAL_PARTIAL_CHECKSUM,	   /* partial checksum, which XDP cannot carry and TC may not */
	REFUSAL_DATAPATH,	   /* neither XDP nor TC may take it: something has to see its packets */
	REFUSAL_TUNNEL,		   /* encapsulated, encrypted, or it has no route of forwarding (any more) */
	REFUSAL_CLONED,		   /* a clone: a bridge may flood copies */
	REFUSAL_HAIRPIN,	   /* leaves by its input interface: the kernel may have to send a redirect */
	REFUSAL_NO_PORT,		   /* one of its interfaces is not a port (any more) */
	REFUSAL_GENERATION,	   /* the configuration changed while the packet was under way */
	REFUSAL_UNSEEN,		   /* XDP saw no such packet: rewritten by other than connection tracking */
	REFUSAL_ADMISSION,	   /* too few packets of the session so far */
	REFUSAL_TTL,		   /* TTL or hop limit is not what it came with less one */
	REFUSAL_ECN,		   /* ECN was changed */
	REFUSAL_CONNTRACK_UNKNOWN, /* the connection or its timeout cannot be read, or it is a template */
	REFUSAL_NOT_ESTABLISHED,   /* not answered yet, TCP not established, or ending */
	REFUSAL_HELPER,		   /* a helper or sequence adjustment works on the payload */
	REFUSAL_RULE,		   /* a rule of the packet filter keeps it (rules.h) */
	REFUSAL_UNREPORTED,	   /* the connection may end without a report, and cannot be looked up */
	REFUSAL_EXPIRING,	   /* the connection is about to time out */
	REFUSAL_BUSY,		   /* another writer has the lock of this slot, or it has an ended session whose tuple NAT has
				    * given to another connection */
	REFUSAL_FULL,		   /* no free slot in its two buckets */
	REFUSAL_HOP,		   /* the table of links with next hops, or of IPv6 addresses after NAT, is full */
	REFUSAL_ENDED,		   /* ended while it was being learned */
	REFUSALS_END,
};

#define REFUSALS (REFUSALS_END - 1)

#endif
