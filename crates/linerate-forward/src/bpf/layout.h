/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory that the programs and user space share. Mirrored in src/table/layout.rs. Integers are in host order
 * unless the type or the word "raw" says otherwise: raw is as in the frame.
 *
 * The table. `table` is a memory-mapped array of buckets of eight sessions, a cache line each: what a session is
 * matched by, counts, and changes in addresses and ports. The JIT turns the look-up of an array element into a few
 * instructions, so a session costs a hash, a compare and one cache line that no other session has brought in. The
 * search for a free slot starts at a way that the hash chooses (the home way), so in a table that is not full most
 * sessions are found at the first compare. Addresses, ports and protocol alone choose the buckets, so the sessions of
 * a connection that ends are found without an index of their own (by_tuple.h). When its bucket is nearly full, a
 * session may go to a second one, which the other half of the hash chooses: with one bucket each, 8% find no slot in a
 * full table, where five of six slots are taken. At the same index, `cold` has what packets rarely touch, and `table6`
 * has the IPv6 addresses. The session then holds a keyed 64-bit signature of them, and a hit is confirmed by the full
 * addresses.
 *
 * Many sessions share their input link and next hop. The pair is called a hop (struct hop), an
 * entry of `hops`, and a session has its index. There are few, so they stay in the cache. IPv6 addresses that NAT gives
 * to packets (struct nat_address) are entries of the same map.
 *
 * Who may write what, so that nothing is torn or lost:
 * - `version` is a sequence lock. A writer takes it with compare-and-swap from even to odd, so that writers
 *   (learners on several CPUs, the ager) exclude each other, and the loser gives up. The writer releases it
 *   with the next even number. A reader that found its key reads what it needs, then reads `version` again,
 *   and only then touches the frame. x86-64 does not reorder loads with loads nor stores with stores, so the
 *   reader needs compiler barriers only; on other machines `session_barrier` is a full memory barrier.
 * - `generation` makes the session valid: equal to control.generation. Ending a session (SYN, FIN, RST, ager,
 *   flush) changes it to another number of the form GENERATION_ENDED | n (with GENERATION_CLOSED after FIN and RST), with compare-and-swap and without
 *   the lock. A learner remembers the value from before its checks and publishes with compare-and-swap from
 *   that value: a session that was ended in between stays ended. Before a session exists the same is done
 *   through `candidates`, which SYN, FIN and RST clear (a full barrier) before they look up the session, and
 *   which a learner checks again after publishing.
 * - `route_generation` makes the session valid too: equal to control.route_generation. A program that finds it
 *   different asks the kernel's tables (fib.h), and writes the current number if they still give what the session
 *   does. It looks at `version` again after that, and takes the number back if a learner was there.
 * - `owner` is the CPU that counts with plain additions, chosen once by compare-and-swap. Every other
 *   CPU adds atomically to the counters in `cold`. A counter has one kind of writer, so no count is lost. Learning
 *   again does not touch the counters.
 * - Only the ager frees a slot, in two steps with more than a grace period between them. First it
 *   ends the session: no program that starts later forwards or counts by it. Then, if the session is still
 *   ended, it takes the lock, reads the counters for the last time and clears the key. So nobody adds to
 *   a cell that belongs to another session by now.
 * - SESSION_REFERENCED, in `owner`, is the reference bit of the clock algorithm: the fast path sets it when it finds
 *   it clear, the ager clears it. Both do so atomically.
 * - A hop does not change while it is used. A learner takes one with equal content, or fills in a free one
 *   (hop_index). In a pass over the table the ager finds the hops that sessions use. It marks the others unused,
 *   waits for a grace period, and frees those that stay unused for one more pass. A learner that wants an unused one
 *   marks it as used again. So no program holds a hop that becomes another.
 * - A writer that died (user space, by a signal) leaves `version` odd: packets of the session then go to the
 *   kernel. The ager frees a slot that it finds locked for two seconds in the same version. */
#ifndef LINERATE_LAYOUT_H
#define LINERATE_LAYOUT_H

#include <linux/types.h>

#define WAYS 8

/* session_key.kind: never 0 for a session, always 0 for a free entry. */
#define KIND_IPV4 1
#define KIND_IPV6 2
#define KIND_FAMILY 3
#define KIND_TCP 4	    /* else UDP */
#define KIND_OUTER_VLAN_SHIFT 3 /* two bits: VLAN_* of the first tag in the frame */
#define KIND_INNER_VLAN_SHIFT 5 /* and of the second */

#define VLAN_NONE 0
#define VLAN_8021Q 1  /* 0x8100 */
#define VLAN_8021AD 2 /* 0x88a8 */

/* Set in `generation` of a session that was ended, and of no generation that user space gives. */
#define GENERATION_ENDED 0x80000000u
/* The same, beside it, of one that was ended by a FIN or RST in either direction. */
#define GENERATION_CLOSED 0x40000000u

/* What the session of a frame is found by. The session itself has one part of it, its hop the other. */
struct session_key {
	union {
		struct {
			__be32 source;
			__be32 destination;
		};
		__u64 signature; /* of the IPv6 addresses, keyed by control.seeds */
	};
	__be16 source_port;
	__be16 destination_port;
	__u32 ifindex;	     /* input interface */
	__u8 dst_mac[6];     /* the interface's own */
	__u8 kind;	     /* KIND_* */
	__u8 dscp;	     /* upper six bits of TOS or traffic class; the lower two are 0 */
	__be16 tag[2];	     /* whole TCI of the first and second VLAN tag, 0 where there is none */
	__u32 generation;    /* of the configuration that it is learned under; not compared in a look-up */
};
_Static_assert(sizeof(struct session_key) == 32, "four words");

struct session {
	union {
		struct {
			__be32 in_source; /* as in session_key */
			__be32 in_destination;
		};
		__u64 addresses;
	};
	__u32 ports;	/* as in session_key: both */
	__u8 kind;
	__u8 dscp;
	__u16 hop;	/* index in `hops` */
	__u32 generation;
	__u32 version;	/* odd while being written */
	__u32 deadline; /* low 32 bits of jiffies: after it packets go to the kernel until learned again */
	__u16 owner;	/* CPU that adds plainly to the counters, plus one; 0: none yet. And SESSION_REFERENCED */
	__u16 route_generation; /* of routes and neighbours: as control.route_generation while they are known
				   to give what the hop says */
	__u64 packets; /* by the owner: forwarded here and, once it exists, by the kernel */
	__u64 bytes;   /* their IP packets, header to end of payload, without link layer */
	union {
		struct {
			__be32 source; /* IPv4 after NAT; without NAT as it came */
			__be32 destination;
		};
		struct { /* IPv6: indices in `hops` of the addresses after NAT, plus one; 0 where it does
			    not change */
			__u32 source6;
			__u32 destination6;
		};
	};
	__be16 source_port; /* after NAT; without NAT as it came */
	__be16 destination_port;
	__u16 network_delta;   /* raw: added to the IPv4 header checksum in ones' complement: TTL less
				  one, TOS, addresses */
	__u16 transport_delta; /* raw: the same for TCP and UDP: addresses and ports */
};
_Static_assert(sizeof(struct session) == 64, "one cache line");

#define SESSION_REFERENCED 0x8000u /* in `owner`: forwarded a packet since the last ageing pass */

/* What sessions share: their input link and next hop. An entry of `hops`, as is struct nat_address. */
struct hop {
	/* As in session_key: */
	__u32 ifindex;
	__be16 tag[2];
	__u8 dst_mac[6];
	__u16 mtu;	   /* largest IP packet, bytes: the smaller of interface's and route's */
	__u8 destination_mac[6];
	__u8 source_mac[6];
	__u8 dscp;	       /* upper six bits to write; the lower two are 0 */
	__u8 out_tags;	       /* 0 to 2 */
	__u8 flags;	       /* SESSION_* */
	__u8 port;	       /* XDP: index in `ports` of the output interface */
	__be32 out_tag[2];     /* raw TPID and TCI, outer first; the first `out_tags` count, the others are 0 */
	__u32 out_ifindex;     /* of the output interface */
	__u32 mark;	       /* TC: what egress filters and qdiscs may classify by, as the kernel set it */
	__u32 priority;	       /* the same */
	__u32 zone;	       /* of the connection, in this direction */
	__u32 state; /* HOP_*, and in the other bits how often it was filled in */
	__u32 unused2;
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct hop) == 64, "one cache line");

/* An entry of `hops`, too: an IPv6 address that NAT gives to packets. Its `state` is that of a hop. */
struct nat_address {
	__u64 no_link[2]; /* 0, as no hop has it: hop.ifindex to hop.mtu */
	__u64 address[2]; /* raw */
	__u64 unused[4];
};
_Static_assert(sizeof(struct nat_address) == sizeof(struct hop), "entries of one map");

#define HOP_WORDS 7 /* of a hop, before `state` */

/* hop.state */
#define HOP_STATE 3
#define HOP_FREE 0
#define HOP_CLAIMED 1 /* being filled in */
#define HOP_USED 2
#define HOP_UNUSED 3 /* no session used it in the last ageing pass */
#define HOP_FILLED 4 /* added each time */

/* hop.flags */
#define SESSION_NAT (1 << 0)	     /* addresses or ports change */
#define SESSION_TRACKED (1 << 1)     /* conntrack tracks it; the kernel path refreshes its timeout */
#define SESSION_VERIFY_CHECKSUM (1 << 2)     /* TCP and UDP checksums are verified, as conntrack does it here */
#define SESSION_UNREPORTED (1 << 3)  /* its connection may end without a report: it is looked up every 10 ms */
#define SESSION_TC (1 << 4)	     /* forwarded by the TC datapath, else by XDP */
#define SESSION_FIB (1 << 5)	     /* bpf_fib_lookup() gives what it does (fib.h) */

struct bucket {
	struct session way[WAYS];
};
_Static_assert(sizeof(struct bucket) == 512, "eight sessions");

/* IPv6 addresses of a session, at its index in `table6`. Written under the session's `version`. */
struct addresses {
	__u8 source[16]; /* as it came */
	__u8 destination[16];
};
_Static_assert(sizeof(struct addresses) == 32, "half a cache line");

struct bucket6 {
	struct addresses way[WAYS];
};
_Static_assert(sizeof(struct bucket6) == 256, "eight sessions");

/* Packets and bytes. */
struct counters {
	__u64 packets;
	__u64 bytes;
};

/* The fields of a session that packets rarely touch. */
struct cold {
	struct counters remote; /* by CPUs other than the owner; atomic additions only */
	__u32 created;	/* low 32 bits of jiffies: when the session began, the last time if it had ended. Instead of the
			   lowest bits, CREATED_*: the number of the session among those of the slot, which one that begins
			   again keeps; and whether NAT has given the tuple of an ended session to another connection */
	__u32 used;	/* low 24 bits: sixteenths of a second when the ager last found it referenced; high 8:
			   times that it was learned again, stops at 255. Written atomically */
};
_Static_assert(sizeof(struct cold) == 24, "three words");

#define COLD_REVALIDATION (1u << 24)
#define CREATED_NUMBER 0xfu
#define CREATED_WANTED 0x10u

struct cold_bucket {
	struct cold way[WAYS];
};

/* A packet that XDP passed to the kernel and that may become a session. One word, written whole, so that it is
 * never torn. */
struct candidate {
	__u64 word; /* CANDIDATE_* fields; 0: empty */
};

#define CANDIDATE_WAYS 8 /* a cache line */

#define CANDIDATE_FINGERPRINT_SHIFT 32 /* lower half of the key's hash */
#define CANDIDATE_GENERATION_SHIFT 16  /* low 16 bits of the generation at XDP, read before the deny list */
#define CANDIDATE_TTL_SHIFT 8	     /* TTL or hop limit that the last packet came with */
#define CANDIDATE_PARTIAL 0x80u	     /* one of them had a partial checksum: not for XDP */
#define CANDIDATE_COUNT_MASK 0x7fu     /* packets since the entry was taken; stops at 127 */

/* An interface under acceleration, by ifindex in `interfaces`. */
struct interface {
	__u32 port; /* index in `ports`, the devmap */
	__u8 mac[6]; /* 0 without Ethernet */
	__u16 flags; /* INTERFACE_* */
	__be32 tag;  /* of a VLAN device: raw TPID and TCI */
};
_Static_assert(sizeof(struct interface) == 16, "interface is 16 bytes");

/* interface.flags: what may be done with packets that come in and that leave. User space decides (src/runtime/
 * datapath.rs) and changes them before it bumps the generation. Without a datapath for both ends the kernel
 * forwards. */
#define INTERFACE_XDP (1 << 0)	    /* XDP sees what comes in */
#define INTERFACE_XDP_IN (1 << 1)   /* XDP may forward what comes in */
#define INTERFACE_XDP_OUT (1 << 2)  /* XDP may send: no qdisc, filter or mirror has to see the packet */
#define INTERFACE_TC_IN (1 << 3)    /* TC may forward what comes in */
#define INTERFACE_TC_OUT (1 << 4)   /* TC may send, through qdisc and egress filters */
#define INTERFACE_ETHERNET (1 << 5) /* packets have an Ethernet header */
#define INTERFACE_VLAN_SHIFT 6	    /* XDP adds `tag`, and sends by the port below, which is in `ports` */

#define PORTS_MAX 256

/* What user space tells the programs: the section .data.control, one mappable page. */
struct control {
	/* Line one: what may change at any time. */
	__u32 generation;    /* 1 to 2^30 - 1; bumped after each change of the configuration */
	__u32 denied;	     /* entries of the deny lists, all three; 0: not checked */
	__u64 heartbeat;     /* jiffies64 of the daemon's last heartbeat */
	__u64 heartbeat_timeout; /* jiffies that the fast path goes on without one */
	__u32 revalidate_after;	     /* jiffies from learning to the deadline, at most 2^30 */
	__u32 admission;     /* packets of a session before it is learned: 1 or more */
	__u32 rules;	     /* RULES_*: what packet filters look at */
	__u32 route_generation; /* below 2^16; raised after each change that only bpf_fib_lookup() need see */
	__u32 route_generation_marked; /* the same, but raised a few times a second only: what ingress metadata
					  takes, of which there is not one for each change */
	__u32 verify_checksums; /* 1: conntrack's judgement of checksums counts, where it verifies them */
	__u8 reserved[16];
	/* Set once, before the programs run; here and not in the read-only data, so that programs that
	 * replace these find the same sessions. */
	__u64 seeds[9];	     /* random, odd: 0 to 3 of the hash, 4 to 8 of the signature */
	__u32 abi;	     /* number of the layout, `ABI` in layout.rs: programs of another are not adopted */
	__u32 statistics;    /* enum statistics */
	__u32 multi_buffer;  /* 1 where frames may come in several buffers */
	__u32 taken;	     /* slots of the table that are not free: at most `room` */
	__u32 room;	     /* sessions that the table takes */
	__u32 reserved2[9];
};
_Static_assert(sizeof(struct control) == 192, "three cache lines");
_Static_assert(__builtin_offsetof(struct control, seeds) == 64, "line two");

/* control.rules: what packet filters look at, for user space. Shift by the family less one. */
#define RULES_ROUTE (1 << 0) /* a rule looks at routes */
#define RULES_OFFLOADED (1 << 2) /* of both families: connections in a flowtable are learned, too */

/* Kinds of sessions, by their numbers: 1 for IPv6, 2 for TCP, and how they are tracked. */
#define RULE_KINDS 12
#define RULE_IPV6 1
#define RULE_TCP 2
#define RULE_ORIGINAL 4
#define RULE_REPLY 8
#define RULE_ENTRIES 256 /* of one kind */
#define RULES_MAX 1024

/* rule_entry.seen: what the rule sees of a session. */
#define RULE_SOURCE_OUT 1      /* source address and port as they leave, else as they come in */
#define RULE_DESTINATION_OUT 2 /* the same for the destination */
#define RULE_DEVICE 4	       /* the ports, else the interfaces that routing sees */
#define RULE_OFFLOADED 8	       /* only connections in a flowtable */

/* The sessions in all these ranges, first and last number of each. */
struct rule_entry {
	__u64 source[2][2]; /* upper half of an address first */
	__u64 destination[2][2];
	__u32 input[2]; /* interfaces */
	__u32 output[2];
	__u32 mark[2];
	__u16 source_port[2];
	__u16 destination_port[2];
	__u8 dscp[2];
	__u8 seen;
	__u8 unused;
	__u16 skip; /* go on so many entries behind this one; 0: they stay with the kernel */
	__u16 rule; /* because of this one in `kept_rules` */
};
_Static_assert(sizeof(struct rule_entry) == 104, "without padding");

/* Entries of a list, by their numbers: a bit each. */
struct rule_set {
	__u64 words[RULE_ENTRIES / 64];
};

/* The values of a field are in groups, and a session is compared only with entries that have values in all groups of its
 * fields. Ports are grouped by their lowest bits, addresses by those of their /24 or /64 network. */
#define RULE_GROUPS 64

struct rule_list {
	__u32 count;
	__u32 unused;
	struct rule_set source_out; /* RULE_SOURCE_OUT */
	struct rule_set destination_out; /* RULE_DESTINATION_OUT */
	struct rule_set source[RULE_GROUPS];
	struct rule_set destination[RULE_GROUPS];
	struct rule_set source_port[RULE_GROUPS];
	struct rule_set destination_port[RULE_GROUPS];
	struct rule_entry entries[RULE_ENTRIES];
};

struct kept_rule {
	__u64 packets;	 /* that a session was not learned from; atomic additions */
	char name[120]; /* ends with a zero */
};

/* Context of the program `heartbeat`. */
struct heartbeat {
	__u64 jiffies; /* out: jiffies64 now, also stored as heartbeat */
};

/* A session whose connection the program `refresh` gives its timeout. */
struct refresh {
	__u32 slot;
	__u32 idle; /* milliseconds since its last packet, and REFRESH_FORCED; out: REFRESH_UNACKNOWLEDGED or 0 */
};
_Static_assert(sizeof(struct refresh) == 8, "as layout.rs has it");

#define REFRESH_ENTRIES 256 /* at most, in a packet */
#define REFRESH_IDLE 0x7fffffffu
#define REFRESH_FORCED 0x80000000u /* also if another session of the connection has packets */
#define REFRESH_UNACKNOWLEDGED 1   /* conntrack waits for an acknowledgement, which it may not have seen */

/* Deny lists. Keys of the longest-prefix maps; a packet is dropped when either address matches. */
struct denied4_key {
	__u32 prefix_len;
	__u8 address[4];
};
_Static_assert(sizeof(struct denied4_key) == 8, "as bpf_lpm_trie_key wants it");

struct denied6_key {
	__u32 prefix_len;
	__u8 address[16];
};
_Static_assert(sizeof(struct denied6_key) == 20, "as bpf_lpm_trie_key wants it");

/* One direction of a conversation, at any interface; IPv4 addresses in the first four bytes. */
struct denied_session_key {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	__u8 family;   /* KIND_IPV4 or KIND_IPV6 */
	__u8 unused[2];
};
_Static_assert(sizeof(struct denied_session_key) == 40, "without padding");

struct denied {
	__u64 expires; /* jiffies64; 0: never */
	__u64 dropped; /* packets, added atomically */
};
_Static_assert(sizeof(struct denied) == 16, "denied is 16 bytes");

/* `statistics` in the read-only data. */
enum statistics {
	STATISTICS_NONE, /* nothing is counted */
	STATISTICS_SLOT, /* counters in the session */
};

#endif
