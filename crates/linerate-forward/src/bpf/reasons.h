/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Why a frame was not forwarded by the fast path. src/reason.rs has the same list in the same order.
 * `reasons` is a per-CPU array of one __u64 for each; a frame is counted once. Datapaths return the verdict, or the
 * negative of a reason. */
#ifndef LINERATE_REASONS_H
#define LINERATE_REASONS_H

enum reason {
	PARSE_OK,
	REASON_SHORT,	    /* frame ends before its headers do */
	REASON_NOT_IP,	    /* neither IPv4 nor IPv6: ARP and the like */
	REASON_TAGS,	    /* more than two VLAN tags */
	REASON_MULTICAST,	    /* multicast or broadcast, by MAC or by address */
	REASON_OTHERHOST,	    /* not addressed to this interface's MAC */
	REASON_MALFORMED,   /* version, header length, total length, UDP length, TCP data offset */
	REASON_CHECKSUM,    /* IPv4 header checksum; TCP or UDP checksum where conntrack verifies it */
	REASON_OPTIONS,	    /* IPv4 options */
	REASON_EXTENSION,   /* IPv6 extension headers */
	REASON_FRAGMENT,
	REASON_PROTOCOL,    /* neither TCP nor UDP */
	REASON_TTL,	    /* TTL or hop limit of 1 or 0 */
	REASON_SYN,
	REASON_FIN,
	REASON_RST,
	REASON_FLAGS,	    /* TCP without ACK */
	REASON_UNKNOWN,	    /* no session */
	REASON_STALE,	    /* learned under an earlier generation */
	REASON_ENDED,	    /* its connection ended, or it was flushed or aged out */
	REASON_REVALIDATE,	    /* past its deadline */
	REASON_BUSY,	    /* being written */
	REASON_TOO_BIG,	    /* larger than the MTU of the output interface */
	REASON_NO_PORT,	    /* the output interface is not a port (any more) */
	REASON_NO_HEADROOM,	    /* no headroom for the VLAN tags or the Ethernet header that it leaves with */
	REASON_NO_DAEMON,   /* the heartbeat is older than its timeout */
	REASON_DENIED,	    /* dropped: on a deny list */
	REASONS_END,
};

#define REASONS (REASONS_END - 1)

#endif
