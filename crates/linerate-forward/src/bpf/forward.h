/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the forwarding programs and their user side share. Mirrored in src/layout.rs. Integers are in
 * host order but where the type or the word "raw" says otherwise: raw is as it stands in the frame.
 *
 * The table. `table` is a memory-mapped array of buckets of four sessions. The verifier's JIT turns the
 * look-up of an array element into a few instructions, so that a session costs a hash, a compare and two
 * cache lines. Each session is 128 aligned bytes: line one is what is matched and counted, line two what
 * is done; a processor that fetches lines in pairs has both after one miss, and both are on one page.
 * A session starts looking for a place at a way that its hash chooses (its home), so that at the loads we
 * allow most are found at the first compare. When its bucket is full it goes to a second one, which other
 * bits of the hash choose: with one bucket each, 3% find no place in a table that is half full. IPv6 addresses do not fit: `table6` holds them at the same
 * index, line one holds a keyed 64-bit signature of them, and a hit is confirmed by the full addresses.
 *
 * Who may write what, and how nothing is torn or lost:
 * - `version` is a sequence lock. A writer takes it with compare-and-swap from even to odd, so that
 *   writers (learners on several CPUs, the ager) exclude each other and the loser goes without; it gives
 *   it back with the next even number. A reader that found its key takes what it needs, then looks at
 *   `version` again, and only then touches the frame. On x86-64 loads are not reordered with loads nor
 *   stores with stores, so the reader's barriers are the compiler's; on other machines `session_barrier`
 *   is an atomic operation of full order.
 * - `generation` makes the session valid: equal to control.generation. Whoever ends a session (SYN, FIN,
 *   RST, ager, flush) changes it to another number of the form GENERATION_ENDED | n, with
 *   compare-and-swap and without the lock. A learner remembers the value that it saw before it began to
 *   judge and publishes with compare-and-swap from that value: a session that was ended meanwhile stays
 *   ended. Before a record exists the same is done through `pending`, which SYN, FIN and RST empty
 *   (a full barrier) before they look the session up, and which a learner checks again after publishing.
 * - `owner` is the CPU that counts with plain additions, chosen once by compare-and-swap. Every other
 *   CPU adds atomically to the session's cell in `strays`. A cell has one kind of writer, so no count
 *   is lost; learning again does not touch the counters.
 * - A place is made free only by the ager, in two steps with more than a grace period between: first it
 *   ends the session (no program that starts later forwards or counts by it), then, when it still finds it
 *   ended, it takes the lock, reads the counters for the last time and clears the key. So nobody adds to
 *   a cell that has been given to another session.
 * - `seen` is the reference bit: the fast path stores 1 when it reads 0, the ager clears it. No clock.
 * - A writer that died (user space, by a signal) leaves `version` odd: the session then goes to the kernel;
 *   the next ager clears a place that it finds odd twice, a second or more apart, with the same number. */
#ifndef LINERATE_FORWARD_H
#define LINERATE_FORWARD_H

#include <linux/types.h>

#define WAYS 4

/* session_key.kind: never 0 for a session, always 0 for a free place. */
#define KIND_IPV4 1
#define KIND_IPV6 2
#define KIND_FAMILY 3
#define KIND_TCP 4	    /* else UDP */
#define KIND_OUTER_SHIFT 3 /* two bits: TAG_* of the first tag in the frame */
#define KIND_INNER_SHIFT 5 /* and of the second */

#define TAG_NONE 0
#define TAG_8021Q 1  /* 0x8100 */
#define TAG_8021AD 2 /* 0x88a8 */

/* Set in `generation` of a session that was ended, and of no generation that user space gives. */
#define GENERATION_ENDED 0x80000000u

/* What a frame is matched by. 32 bytes, compared as four words. */
struct session_key {
	union {
		struct {
			__be32 source;
			__be32 destination;
		};
		__u64 signature; /* of the IPv6 addresses, keyed afresh at every load */
	};
	__be16 source_port;
	__be16 destination_port;
	__u32 ifindex;	     /* interface that received it */
	__u8 station[6];     /* destination MAC: the interface's own */
	__u8 kind;	     /* KIND_* */
	__u8 dscp;	     /* upper six bits of TOS or traffic class; the lower two are 0 */
	__be16 tag[2];	     /* whole TCI of the first and second VLAN tag, 0 where there is none */
	__u32 generation;    /* of the configuration that it was learned under: last, so that a session
				matches only while it is valid */
};
_Static_assert(sizeof(struct session_key) == 32, "four words");

struct session {
	/* Line one: matched and counted. */
	struct session_key key;
	__u32 version;	/* odd while being written */
	__u32 deadline; /* low 32 bits of jiffies: after it packets go to the kernel until learned again */
	__u32 owner;	/* CPU that adds plainly to the counters, plus one; 0: none yet */
	__u8 seen;	/* forwarded a packet since the ager last looked */
	__u8 unused[3];
	__u64 packets; /* by the owner: forwarded here and, once it exists, by the kernel */
	__u64 bytes;   /* their IP packets, header to end of payload, without link layer */

	/* Line two: what is done. */
	__u8 destination_mac[6];
	__u8 source_mac[6];
	__be32 out_tag[2]; /* raw TPID and TCI, outer first; the first `out_tags` count */
	__u16 mtu;	   /* largest IP packet, bytes: the smaller of interface's and route's */
	__u16 port;	   /* index in `ports` of the interface that it leaves by */
	__be32 source;	   /* IPv4 after NAT; without NAT as in the key */
	__be32 destination;
	__be16 source_port; /* after NAT; without NAT as in the key */
	__be16 destination_port;
	__u16 network_delta;   /* raw: added to the IPv4 header checksum in ones' complement: TTL less
				  one, TOS, addresses */
	__u16 transport_delta; /* raw: the same for TCP and UDP: addresses and ports */
	__u8 dscp;	       /* upper six bits to write; the lower two are 0 */
	__u8 out_tags;	       /* 0 to 2 */
	__u8 flags;	       /* SESSION_* */
	__u8 origin;	       /* ORIGIN_*: who vouches for it */
	__u32 created;	       /* low 32 bits of jiffies: when the place was taken */
	__u32 learned;	       /* when it was learned last */
	__u32 out_ifindex;     /* that `port` stands for */
	__u32 relearned;       /* times that it was learned again */
	__u8 reserved[4];
};
_Static_assert(sizeof(struct session) == 128, "two cache lines");
_Static_assert(__builtin_offsetof(struct session, destination_mac) == 64, "line two");

/* session.flags */
#define SESSION_NAT (1 << 0)	     /* addresses or ports change */
#define SESSION_TRACKED (1 << 1)     /* conntrack has it; its timeout is refreshed by the kernel path */
#define SESSION_CHECKED (1 << 2)     /* conntrack judges TCP and UDP checksums here: so do we */

/* session.origin: what the learner relied on. */
#define ORIGIN_STATELESS 0 /* no connection tracking of this packet */
#define ORIGIN_CONNTRACK 1 /* an established connection */
#define ORIGIN_INSERTED 2  /* by hand: tests and measurements */

struct bucket {
	struct session way[WAYS];
};
_Static_assert(sizeof(struct bucket) == 512, "four sessions");

/* IPv6 addresses of a session, at its index in `table6`. Written under the session's `version`. */
struct addresses {
	__u8 source[16]; /* as it came */
	__u8 destination[16];
	__u8 out_source[16]; /* as it leaves */
	__u8 out_destination[16];
};
_Static_assert(sizeof(struct addresses) == 64, "one cache line");

struct bucket6 {
	struct addresses way[WAYS];
};
_Static_assert(sizeof(struct bucket6) == 256, "four sessions");

/* Counts of CPUs other than the owner; atomic additions only. */
struct stray {
	__u64 packets;
	__u64 bytes;
};

struct strays {
	struct stray way[WAYS];
};
_Static_assert(sizeof(struct strays) == 64, "one cache line");

/* The seed's three designs keep sessions in hash maps, keyed by session_key with generation 0. */
struct hashed_session {
	struct session session;
	struct addresses addresses;
};
_Static_assert(sizeof(struct hashed_session) == 192, "a session with its addresses");

/* What XDP saw pass to the kernel, in sets of PENDING_WAYS by the upper half of the key's hash, until it is
 * learned. One word, written
 * whole, so that it is never torn; `bytes` is right as long as one CPU receives the session's packets. */
struct pending {
	__u64 word; /* PENDING_* fields; 0: empty */
	__u32 bytes; /* of the IP packets counted in word, together */
	__u32 unused;
};
_Static_assert(sizeof(struct pending) == 16, "pending is 16 bytes");

#define PENDING_WAYS 4

#define PENDING_FINGERPRINT_SHIFT 32 /* lower half of the key's hash */
#define PENDING_GENERATION_SHIFT 16  /* low 16 bits of the generation at XDP, read before the deny list */
#define PENDING_TTL_SHIFT 8	     /* TTL or hop limit that the last packet came with */
#define PENDING_COUNT_MASK 0xffu     /* packets passed since the fingerprint moved in; stops at 255 */

/* An interface under acceleration, by ifindex in `interfaces`. */
struct interface {
	__u32 port; /* index in `ports`, the devmap */
	__u8 mac[6];
	__u8 unused[2];
};
_Static_assert(sizeof(struct interface) == 12, "interface is 12 bytes");

#define PORTS_MAX 256

/* What user space tells the programs: the section .data.control, one mappable page. */
struct control {
	/* Line one: what may change at any time. */
	__u32 generation;    /* 1 to 2^31 - 1; bumped after each change of the configuration */
	__u32 denied;	     /* entries of the deny lists, all three; 0: not looked at */
	__u64 heartbeat;     /* jiffies64 of the daemon's last beat (program `beat`) */
	__u64 patience;	     /* jiffies that the fast path goes on without one */
	__u32 refresh;	     /* jiffies from learning to the deadline, at most 2^30 */
	__u32 admission;     /* packets of a session before it is learned: 1 or more */
	__u8 reserved[32];
	/* Set once, before the programs run; here and not in the read-only data, so that programs that
	 * replace these find the same sessions. */
	__u64 seeds[9];	     /* random, odd: 0 to 3 of the hash, 4 to 8 of the signature */
	__u32 abi;	     /* number of the layout, `ABI` in layout.rs: programs of another are not adopted */
	__u32 statistics;    /* enum statistics */
	__u32 fib;	     /* 1 in fib mode */
	__u32 multi_buffer;  /* 1 where frames may come in several buffers */
	__u64 reserved2[5];
};
_Static_assert(sizeof(struct control) == 192, "three cache lines");
_Static_assert(__builtin_offsetof(struct control, seeds) == 64, "line two");

/* Context of the program `beat`. */
struct beat {
	__u64 jiffies; /* out: jiffies64 now, also stored as heartbeat */
};

/* Context of the program `end`. */
struct end {
	struct session_key key; /* generation 0 */
	__u32 cpu;		/* whose copy, in STATISTICS_PER_CPU */
	__u32 retire;		/* 1: leave the session locked, for good */
	__u32 ended;		/* out: 1 where it had not ended before */
	__u32 busy;		/* out: 1 where somebody else has the lock, and it was ended only */
};

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

/* `statistics` in the read-only data: where sessions and their counters live. */
enum statistics {
	STATISTICS_NONE,    /* table; nothing counted */
	STATISTICS_SLOT,    /* table; counters in the session */
	STATISTICS_SHARED,  /* one hash map, atomic counters */
	STATISTICS_PER_CPU, /* one per-CPU hash map for both */
	STATISTICS_SPLIT,   /* hash map for sessions, per-CPU LRU hash map for counters */
};

#endif
