// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The XDP datapath: sends a frame of a known session as the kernel would send it, and passes every other frame to
 * the kernel unchanged. */

#include "checksum.h"
#include "ct_lookup.h"
#include "maps.h"
#include "parse.h"
#include "rewrite.h"
#include "slow_path.h"
#include "table.h"

/* Any frame: XDP's verdict; -REASON_*, which takes the slow path; or -OUTDATED and the slot in *outdated. The slow path is
 * not called here, since the stacks of three functions are more than the verifier allows. Global, so that the verifier
 * checks it once. */
__noinline int forward_any(struct xdp_md *context, __u32 *outdated)
{
	__u32 beyond = beyond_first(context);
	void *data = frame_start(context), *end = frame_end(context);
	struct packet packet;
	struct match match;
	struct action action;
	struct hit hit;
	__u32 is_ipv4;
	__u64 hash;
	void *network;
	int reason;

	if (daemon_timed_out())
		return -REASON_NO_DAEMON;
	reason = parse(data, end, beyond, &packet);
	if (reason != PARSE_OK)
		return -reason;

	is_ipv4 = (packet.kind & KIND_FAMILY) == KIND_IPV4;
	match.addresses = is_ipv4 ? packet.addresses : session_signature(packet.network + 8);
	match.ports = packet.ports | MATCH_KIND(packet.kind, packet.tos & 0xfc);
	match.dst_mac = load64(data);
	match.link = context->ingress_ifindex | (__u64)packet.tags << 32;
	hash = tuple_hash(match.addresses, packet.ports, packet.kind);

	if (!find_valid(&match, hash, !is_ipv4, &hit))
		return is_outdated(&hit, outdated) ? -OUTDATED : -REASON_UNKNOWN;
	/* `forward_tc` forwards the packet, or does what slow_path() does. */
	if (hit.hop->flags & SESSION_TC)
		return XDP_PASS;
	if ((__s32)((__u32)bpf_jiffies64() - hit.session->deadline) > 0)
		return -REASON_REVALIDATE;
	if (packet.length > hit.hop->mtu)
		return -REASON_TOO_BIG;
	if (!take_action(hit.session, hit.hop, hit.addresses, &packet, &action))
		return -REASON_UNKNOWN;
	session_barrier();
	if ((hit.version & 1) || READ_ONCE(hit.session->version) != hit.version)
		return -REASON_BUSY;
	if ((action.flags & SESSION_VERIFY_CHECKSUM) && !has_right_checksum(context, 1, &packet, data, end))
		return -REASON_CHECKSUM;
	if ((action.flags & SESSION_UNREPORTED) && !connection_remains(context, 1, &packet, slot_of(hit.session))) {
		session_end(hit.session, 0);
		return -REASON_UNKNOWN;
	}
	/* Checked before the frame is touched: a port may be gone, and the frame then goes to the kernel. */
	if (bpf_redirect_map(&ports, action.port, XDP_PASS) != XDP_REDIRECT)
		return -REASON_NO_PORT;

	network = packet.network;
	if (packet.padding | packet.tag_bytes | action.tag_bytes) {
		network = adjust_headers(context, &packet, &action);
		if (!network)
			return -REASON_NO_HEADROOM;
		data = frame_start(context);
		if (data + ETHERNET_LEN > frame_end(context))
			return -REASON_NO_HEADROOM;
	}
	*(__u64 *)data = action.macs;
	*(__u32 *)(data + 8) = action.macs_end;
	if (is_ipv4)
		rewrite_ipv4(network, &packet, &action, 0);
	else
		rewrite_ipv6(network, &packet, &action, 0);
	session_count(&hit, 1, packet.length);
	return XDP_REDIRECT;
}

/* The ones' complement sum of a correct IPv4 header is a multiple of 0xffff. A number is one when it is at
 * most 2^64 / 0xffff after multiplication with the inverse of 0xffff modulo 2^64. */
#define INVERSE_FFFF 0xfffefffefffeffffULL
#define LARGEST_QUOTIENT 0x0001000100010001ULL

/* The first bytes of a plain frame, without its TOS: IPv4, version 4, a header of five words. */
#define PLAIN_MASK 0xffffff
#define PLAIN (RAW_IPV4 | 0x45 << 16)
/* Its word with fragment, TTL and protocol: no fragment, and which protocol. */
#define PLAIN_PROTOCOL_MASK 0xff00ff3f
#define PLAIN_UDP (IPPROTO_UDP << 24)
#define PLAIN_TCP (IPPROTO_TCP << 24)
#define PLAIN_TTL 0xfe0000 /* none of these bits: a TTL of 1 or 0 */

/* Rewrites a plain frame as its session says, and counts it. 0, and the frame is as it was, when somebody writes to
 * the session: what is read of it is valid only when the version is the same after the last read. */
static __always_inline int rewrite_plain(void *data, const struct hit *hit, __u32 kind, int is_nat)
{
	const struct session *session = hit->session;
	const struct hop *hop = hit->hop;
	__u64 macs = load64(hop->destination_mac), addresses = 0, lower;
	__u32 macs_end = load32(hop->source_mac + 2);
	__u32 delta = session->network_delta, dscp = hop->dscp, ports = 0;
	__u16 transport_delta = 0;

	if (is_nat) {
		addresses = *(const __u64 *)&session->source;
		ports = *(const __u32 *)&session->source_port;
		transport_delta = session->transport_delta;
	}
	session_barrier();
	/* A session that is being written has an odd version, which then differs. */
	if (READ_ONCE(session->version) != (hit->version & ~1u))
		return 0;
	*(__u64 *)data = macs;
	*(__u32 *)(data + 8) = macs_end;
	*(__u8 *)(data + 15) = dscp | (*(__u8 *)(data + 15) & 3);
	/* TTL, protocol and checksum: TTL less one, the checksum as csum_add() does it. */
	lower = load32(data + 22) + ((__u64)delta << 16) - 1;
	lower += (lower + 0x10000) >> 32 << 16;
	*(__u32 *)(data + 22) = lower;
	if (is_nat) {
		*(__u64 *)(data + 26) = addresses;
		nat_transport(data + 34, kind & KIND_TCP, ports, transport_delta, 0);
	}
	return 1;
}

/* Most frames are untagged IPv4. This handles them in a fraction of the instructions: all offsets are constants, and
 * any other frame goes to forward_any() from the start. It decides nothing differently from forward_any(). */
SEC("xdp")
int forward(struct xdp_md *context)
{
	void *data = frame_start(context), *end = frame_end(context);
	__u64 now, first, addresses, sum;
	struct match match;
	struct hit hit;
	__u32 middle, length, kind, unusual, outdated;
	__s32 room, time;
	int verdict;

	if (multi_buffer || data + 42 > end)
		goto any;
	first = load64(data + 12);
	if (((__u32)first & PLAIN_MASK) != PLAIN)
		goto any;
	now = bpf_jiffies64();
	if (now - READ_ONCE(control.heartbeat) > READ_ONCE(control.heartbeat_timeout))
		goto any;
	length = bpf_ntohs((__u16)(first >> 32));
	if (end - data != ETHERNET_LEN + length)
		goto any;
	middle = load32(data + 20);
	addresses = load64(data + 26);
	/* A word is congruent to the sum of its 16-bit parts; the ethertype is not part of the header. */
	sum = (__u32)first - RAW_IPV4 + (first >> 32) + middle + load16(data + 24) + (__u32)addresses +
	      (addresses >> 32);
	if (sum * INVERSE_FFFF > LARGEST_QUOTIENT || !(middle & PLAIN_TTL))
		goto any;
	if ((middle & PLAIN_PROTOCOL_MASK) == PLAIN_UDP) {
		kind = KIND_IPV4;
		if (bpf_ntohs(load16(data + 38)) + IPV4_LEN != length)
			goto any;
	} else if ((middle & PLAIN_PROTOCOL_MASK) == PLAIN_TCP && data + 54 <= end) {
		__u32 offset_and_flags = load16(data + 46);
		__u32 header = (offset_and_flags & 0xf0) >> 2;

		kind = KIND_IPV4 | KIND_TCP;
		if ((offset_and_flags & (TCP_SYN | TCP_FIN | TCP_RST | TCP_ACK) << 8) !=
			    TCP_ACK << 8 ||
		    header < 20 || header + IPV4_LEN > length)
			goto any;
	} else {
		goto any;
	}

	match.ports = load32(data + 34) | MATCH_KIND(kind, first >> 24 & 0xfc);
	match.link = context->ingress_ifindex;
	if (!find_plain(&data, addresses, kind, &match, &hit))
		goto any;
	room = hit.hop->mtu - length;
	time = hit.session->deadline - (__u32)now;
	unusual = *(const __u32 *)&hit.hop->dscp & NOT_PLAIN_FLAGS;
	if ((room | time) < 0)
		goto any;
	if (unusual && (unusual != SESSION_UNREPORTED << 16 || !was_looked_up(slot_of(hit.session), now)))
		goto any;
	if (bpf_redirect_map(&ports, hit.hop->port, XDP_PASS) != XDP_REDIRECT)
		goto any;

	/* Only after the call, which clobbers registers, read the rest. */
	REMATERIALIZE(data);
	if ((hit.hop->flags & SESSION_NAT) ? !rewrite_plain(data, &hit, kind, 1)
					   : !rewrite_plain(data, &hit, kind, 0))
		goto any;
	session_count(&hit, 1, length);
	return XDP_REDIRECT;
any:
	outdated = 0;
	verdict = forward_any(context, &outdated);
	if (verdict == -OUTDATED && session_reroute(context, outdated))
		verdict = forward_any(context, &outdated);
	/* Or routes have changed once more. */
	if (verdict == -OUTDATED)
		verdict = -REASON_UNKNOWN;
	if (verdict >= 0)
		return verdict;
	if (verdict == -REASON_NO_DAEMON) {
		count_reason(REASON_NO_DAEMON);
		return XDP_PASS;
	}
	return slow_path(context, -verdict, beyond_first(context));
}
