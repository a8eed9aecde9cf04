// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Copies the packets that the kernel drops, with the reason and the code that dropped them, from the
 * tracepoint skb:kfree_skb.
 *
 * Every record is an Ethernet frame. It starts at the MAC header where the packet has an Ethernet one. A
 * packet without (it was dropped before the header was made, or its device has another link layer, or none)
 * starts at its network header, behind a header that is made here: addresses of zeros and the EtherType. A
 * VLAN tag that the kernel keeps beside the packet goes back to its place. */

#include "trace.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define ETHERNET 1          /* ARPHRD_ETHER */
#define LOOPBACK 772        /* ARPHRD_LOOPBACK */
#define UNSET ((__u16)~0)   /* a header's offset */
#define MAC_LEN 14
#define TAG_LEN 4
#define MAX_MADE (MAC_LEN + TAG_LEN)
#define INET 2
#define INET6 10
#define PACKET 17
#define SECOND 1000000000ull
/* Bytes between the start of the frame and skb->data, at most: headers that the stack has passed. */
#define MAX_PULLED 256
#define SLACK (MAX_MADE + MAX_PULLED)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	unsigned short skc_family;
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
};

struct dst_entry {
	struct net_device *dev;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned long _skb_refdst;
	unsigned int len;
	unsigned int data_len;
	int skb_iif;
	__be16 vlan_proto;
	__u16 vlan_tci;
	__be16 protocol;
	__u16 network_header;
	__u16 mac_header;
	unsigned int tail;
	unsigned char *head;
	unsigned char *data;
};

/* Before Linux 6.2 a bit said whether there is a tag. */
struct sk_buff___with_bit {
	__u8 vlan_present : 1;
} __attribute__((preserve_access_index));

#pragma clang attribute pop

/* What the tracepoint of this kernel passes. */
const volatile __u32 has_reason = 1;
const volatile __u32 has_receiver = 1;
/* Whether this kernel lets tracing programs read the paged part of a packet (Linux 6.11). */
const volatile __u32 reads_pages = 1;
const volatile __u32 rate_limit = 0; /* packets a second; 0 for no limit */

struct rate {
	__u64 second;  /* when it began, in nanoseconds */
	__u64 packets; /* since then */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rate);
} rates SEC(".maps");

extern int bpf_dynptr_from_skb(struct sk_buff *skb, __u64 flags, struct bpf_dynptr *ptr) __ksym __weak;

/* A packet as the record shows it: `made` bytes that are composed here, then the packet from `from` on. */
struct frame {
	__u8 bytes[MAX_MADE + 2];
	__u32 made;
	__u32 len;     /* of the whole frame */
	__u32 linear;  /* of these, what is made and the packet's linear part */
	void *from;
	void *data;    /* skb->data */
	struct sk_buff *skb;
};

static __attribute__((always_inline)) int has_tag(struct sk_buff *skb)
{
	struct sk_buff___with_bit *old = (void *)skb;

	if (bpf_core_field_exists(old->vlan_present))
		return BPF_CORE_READ_BITFIELD_PROBED(old, vlan_present);
	return skb->vlan_proto != 0;
}

/* Finds where the frame starts and makes what it lacks. False for what is no packet. */
static __attribute__((always_inline)) int find(struct frame *frame, struct sk_buff *skb, int has_device, __u16 type)
{
	__u16 mac = skb->mac_header, network = skb->network_header;
	void *head = skb->head, *data = skb->data, *tail = head + skb->tail;
	__be16 protocol = skb->protocol;
	int ethernet = mac != UNSET && head + mac + MAC_LEN <= tail;

	/* The network header is at 0 where nobody has set it yet. */
	if (has_device)
		ethernet &= (type == ETHERNET || type == LOOPBACK) &&
			    (network < mac || network >= mac + MAC_LEN);
	else
		ethernet &= network == mac + MAC_LEN;
	frame->skb = skb;
	frame->data = data;
	frame->made = 0;
	if (ethernet) {
		frame->from = head + mac;
		if (has_tag(skb)) {
			if (bpf_probe_read_kernel(frame->bytes, 12, frame->from))
				return 0;
			frame->from += 12;
			frame->made = 12;
		}
	} else {
		__u8 version = 0;

		frame->from = network ? head + network : data;
		if (frame->from > tail)
			return 0;
		if (!protocol) {
			bpf_probe_read_kernel(&version, 1, frame->from);
			if (version >> 4 == 4)
				protocol = bpf_htons(0x0800);
			else if (version >> 4 == 6)
				protocol = bpf_htons(0x86dd);
			else
				return 0;
		}
		__builtin_memset(frame->bytes, 0, 12);
		frame->made = 12;
	}
	if (frame->made) {
		__be16 *at = (__be16 *)(frame->bytes + 12);

		if (has_tag(skb)) {
			at[0] = skb->vlan_proto;
			at[1] = bpf_htons(skb->vlan_tci);
			at[2] = protocol;
			frame->made += TAG_LEN;
		} else {
			at[0] = protocol;
		}
		/* The packet's own EtherType follows where its header is read. */
		if (!ethernet)
			frame->made += 2;
	}
	frame->linear = frame->made + (tail - frame->from);
	frame->len = frame->linear + skb->data_len;
	return 1;
}

/* Copies the first `len` bytes to `to`, which has room for `room` and SLACK more. */
static __attribute__((always_inline)) int read(void *to, __u32 room, const struct frame *frame, __u32 len)
{
	__u32 made = frame->made, bytes = len - made;

	if (made > MAX_MADE)
		return -1;
	__builtin_memcpy(to, frame->bytes, MAX_MADE);
	if (len <= made)
		return 0;
	if (len <= frame->linear) {
		if (bytes > room)
			return -1;
		return bpf_probe_read_kernel(to + made, bytes, frame->from);
	}
	if (reads_pages && bpf_dynptr_from_skb) {
		__u32 pulled = 0, offset = 0, left;
		struct bpf_dynptr packet;

		if (frame->from < frame->data)
			pulled = frame->data - frame->from;
		else
			offset = frame->from - frame->data;
		if (pulled > MAX_PULLED)
			return -1;
		if (pulled > bytes)
			pulled = bytes;
		if (pulled && bpf_probe_read_kernel(to + made, pulled, frame->from))
			return -1;
		left = bytes - pulled;
		if (left > room)
			return -1;
		if (!left)
			return 0;
		if (bpf_dynptr_from_skb(frame->skb, 0, &packet))
			return -1;
		return bpf_dynptr_read(to + made + pulled, left, &packet, offset, 0);
	}
	return -1;
}

#define COPY(room)                                                                                 \
	do {                                                                                       \
		struct trace_record *record = bpf_ringbuf_reserve(                                 \
			ring, sizeof(struct trace_record) + (room) + SLACK, 0);                    \
                                                                                                   \
		if (!record)                                                                       \
			goto full;                                                                 \
		record->frame.timestamp = timestamps ? bpf_ktime_get_tai_ns() : 0;                 \
		record->frame.wire_len = frame.len;                                                \
		record->frame.len = len;                                                           \
		record->frame.ifindex = interface;                                                 \
		record->frame.queue = 0;                                                           \
		record->frame.traced = TRACED_DROP;                                                \
		record->place = ctx[1];                                                            \
		record->code = has_reason ? ctx[2] : 0;                                            \
		record->reserved = 0;                                                              \
		if (read(record + 1, room, &frame, len)) {                                         \
			bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);                             \
			goto fault;                                                                \
		}                                                                                  \
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);                                      \
	} while (0)

/* Whether one more packet is within the limit. Packets of several CPUs at the turn of a second can be counted
 * for either. */
static __attribute__((always_inline)) int within_limit(void)
{
	__u32 zero = 0;
	struct rate *rate = bpf_map_lookup_elem(&rates, &zero);
	__u64 now = bpf_ktime_get_ns();

	if (!rate)
		return 0;
	if (now - rate->second >= SECOND) {
		rate->second = now;
		rate->packets = 0;
	}
	return __sync_fetch_and_add(&rate->packets, 1) < rate_limit;
}

SEC("tp_btf/kfree_skb")
int dropped(unsigned long long *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct net_device *device = skb->dev;
	/* Some protocols keep numbers of their own in the place of the device. */
	int has_device = (long)device < 0;
	__u32 zero = 0, cpu = bpf_get_smp_processor_id(), index = ring_index(0);
	struct trace_counters *counts = bpf_map_lookup_elem(&counters, &zero);
	struct tee_reader *state = bpf_map_lookup_elem(&readers, &index);
	void *ring = bpf_map_lookup_elem(&rings, &index);
	__u32 interface, namespace = 0, len;
	struct frame frame;
	__u16 type = 0;

	if (!counts || !state || !ring)
		return 0;
	if (has_device) {
		interface = device->ifindex;
		namespace = netns_of(device);
		type = device->type;
	} else {
		struct sock *sk = has_receiver ? (struct sock *)ctx[3] : NULL;

		interface = skb->skb_iif;
		if (!sk)
			sk = skb->sk;
		if (sk) {
			__u16 family = sk->__sk_common.skc_family;

			/* Other families use the same buffers for what is no packet. */
			if (family != INET && family != INET6 && family != PACKET)
				return 0;
			namespace = sk->__sk_common.skc_net.net->ns.inum;
		} else {
			struct dst_entry *dst = (void *)(skb->_skb_refdst & ~7ul);
			struct net_device *by;

			if (dst && !bpf_probe_read_kernel(&by, sizeof(by), __builtin_preserve_access_index(&dst->dev)) && by)
				namespace = BPF_CORE_READ(by, nd_net.net, ns.inum);
		}
	}
	if (!find(&frame, skb, has_device, type))
		return 0;
	if (!namespace) {
		counts->unknown++;
		return 0;
	}
	if (namespace != netns || (ifindex && interface != ifindex)) {
		counts->elsewhere++;
		return 0;
	}
	if (*(volatile __u32 *)&state->stop) {
		counts->late++;
		return 0;
	}
	if (!(reads_pages && bpf_dynptr_from_skb) || frame.data - frame.from > MAX_PULLED)
		len = frame.linear;
	else
		len = frame.len;
	if (has_filter()) {
		void *head = bpf_map_lookup_elem(&heads, &cpu);
		__u32 bytes = len;

		if (bytes > head_len)
			bytes = head_len;
		if (!head || read(head, head_len, &frame, bytes))
			goto fault;
		if (!filter(head, (void *)(long)bytes, frame.len)) {
			counts->unmatched++;
			return 0;
		}
	}
	if (rate_limit && !within_limit()) {
		counts->limited++;
		return 0;
	}
	if (len < frame.len && snaplen > len)
		counts->cut++;
	if (len > snaplen)
		len = snaplen;
	COPY_BY_SIZE(len);
	counts->captured++;
	if (*(volatile __u32 *)&state->waiting)
		wake_reader(ring, state);
	return 0;
full:
	counts->full++;
	return 0;
fault:
	counts->faults++;
	return 0;
}
