// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The live-frame generator: writes one frame of the run each time it runs, and redirects it.
 *
 * Pages are recycled with the receiver's changes, so every header byte is written every time. The payload
 * after the stamp is not: it is zero, adds nothing to a checksum, and nothing on a frame's path changes it.
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "generate.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define STAMP_MAGIC 0x4c4e5254 /* "LNRT" */
#define WAIT_ROUNDS (1 << 22)  /* each reads the clock once, some 20 ns */

/* Set before load; the smallest UDP frame otherwise. */
const volatile struct generate_config config = {
	.header_len = 42,
	.network_at = 14,
	.transport_at = 34,
	.checksum_at = 40,
	.size_min = 60,
	.size_max = 60,
};

struct generate_counters counters = {};

struct generate_state {
	__u64 flow;
	__u64 place; /* in the map `order` */
	__u64 index[GENERATE_FIELDS];
	__u64 size_index;
	__u64 random;
	__u64 size_random;
	__u64 due;	    /* nanoseconds: when the next frame may go */
	__u64 due_fraction; /* in units of 2^-32 ns */
	__u64 now;
	__u32 cpu;	    /* that runs the program */
} state = {};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} port SEC(".maps");

/* Numbers of flows, in the order in which frames are of them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} order SEC(".maps");

struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

static __always_inline __u64 next_random(__u64 *state)
{
	__u64 x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dULL;
}

/* A number below count, which is at most 2^32. */
static __always_inline __u64 below(__u64 *random, __u64 count)
{
	return ((next_random(random) >> 32) * count) >> 32;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static long clock_is_due(__u32 round, void *context)
{
	state.now = bpf_ktime_get_ns();
	return state.now >= state.due;
}

/* Waits until the next frame is due; false when it gave up. */
static __always_inline int pace(__u32 size)
{
	__u64 step;

	if (!state.due) {
		state.now = bpf_ktime_get_ns();
		state.due = state.now;
	}
	if (state.now < state.due) {
		bpf_loop(WAIT_ROUNDS, clock_is_due, NULL, 0);
		if (state.now < state.due)
			return 0;
		if (state.now - state.due > config.max_catch_up)
			state.due = state.now - config.max_catch_up;
	}
	step = config.frame_time + config.byte_time * size;
	state.due_fraction += step & 0xffffffff;
	state.due += (step >> 32) + (state.due_fraction >> 32);
	state.due_fraction &= 0xffffffff;
	return 1;
}

static __always_inline __u32 next_size(void)
{
	__u64 count, index;

	if (config.size_kind == GENERATE_SIZE_FIXED)
		return config.size_max;
	count = config.size_kind == GENERATE_SIZE_MIX ? config.mix_len
						    : config.size_max - config.size_min + 1;
	if (config.random_size) {
		index = below(&state.size_random, count);
	} else {
		index = state.size_index;
		state.size_index = index + 1 == count ? 0 : index + 1;
	}
	if (config.size_kind == GENERATE_SIZE_MIX)
		return config.mix[index & (GENERATE_MIX - 1)];
	return config.size_min + index;
}

/* The value of a field that varies. Walked fields count like the digits of a number: the next digit
 * moves when this one (and every one before, in *carry) starts again. With an order of flows *carry is what is left
 * of the flow's number. */
static __always_inline __u64 next_value(enum generate_field field, __u64 *carry)
{
	__u64 count = config.fields[field].count;
	__u64 index;

	if (config.random[field])
		return config.fields[field].base + below(&state.random, count);
	if (config.order_mask) {
		index = *carry % count;
		*carry /= count;
		return config.fields[field].base + index;
	}
	index = state.index[field];
	if (*carry) {
		__u64 after = index + 1;

		if (after == count)
			after = 0;
		else
			*carry = 0;
		state.index[field] = after;
	}
	return config.fields[field].base + index;
}

static __always_inline void next_flow(void)
{
	if (!config.flows)
		return;
	if (++state.flow < config.flows)
		return;
	state.flow = 0;
	state.random = config.seed;
	state.index[0] = state.index[1] = state.index[2] = state.index[3] = 0;
}

/* Writes an address and returns what it adds to a checksum. Only the lower half of an IPv6 address
 * varies. */
static __always_inline __u64 write_address(void *header, __u32 at4, __u32 at6, __u64 value)
{
	if (config.ipv6) {
		__u64 raw = bpf_cpu_to_be64(value);

		*(__u64 *)(header + at6 + 8) = raw;
		return (raw & 0xffffffff) + (raw >> 32);
	} else {
		__u32 raw = bpf_htonl((__u32)value);

		*(__u32 *)(header + at4) = raw;
		return raw;
	}
}

static __always_inline void write_random_mac(void *at)
{
	__u64 random = next_random(&state.random);

	*(__u8 *)at = ((random >> 56) & 0xfc) | 2; /* locally administered, not a group */
	*(__u8 *)(at + 1) = random >> 48;
	*(__u16 *)(at + 2) = random >> 32;
	*(__u16 *)(at + 4) = random >> 16;
}

#define COPY_WORD(n)                                                                               \
	do {                                                                                       \
		if (header_len >= 8 * (n) + 8)                                                     \
			*(__u64 *)(data + 8 * (n)) = config.headers_raw[n];                         \
	} while (0)

/* Writes number and time of a frame; their sum for the checksum. */
static __always_inline __u64 write_stamp(void *payload)
{
	__u64 sum = 0;

	if (config.stamp_sequence) {
		__u64 raw = bpf_cpu_to_be64(counters.emitted);

		*(__u32 *)payload = bpf_htonl(STAMP_MAGIC);
		*(__u64 *)(payload + 4) = raw;
		sum += (raw & 0xffffffff) + (raw >> 32);
	}
	if (config.stamp_time) {
		__u64 raw = bpf_cpu_to_be64(bpf_ktime_get_ns());

		*(__u64 *)(payload + 12) = raw;
		sum += (raw & 0xffffffff) + (raw >> 32);
	}

	return sum;
}

/* Redirects a frame of this size, and counts it. */
static __always_inline int redirect(__u32 size)
{
	if (!counters.first) {
		counters.first = bpf_ktime_get_ns();
		counters.last = counters.first;
	}
	state.cpu = bpf_get_smp_processor_id();
	if (bpf_redirect_map(&port, 0, XDP_DROP) != XDP_REDIRECT) {
		/* The map forgets an interface that is removed. */
		counters.redirect_error = -ENODEV;
		return XDP_DROP;
	}
	counters.emitted++;
	if (config.size_kind != GENERATE_SIZE_FIXED)
		counters.bytes += size;
	return XDP_REDIRECT;
}

SEC("xdp")
int generate(struct xdp_md *context)
{
	__u32 size = next_size();
	__u32 header_len = config.header_len;
	__u64 network = config.network_sum, transport = config.transport_sum;
	void *data, *end, *header;
	__u32 need = header_len;
	__u64 carry = 1;

	if (config.order_mask) {
		__u32 place = state.place++ & config.order_mask;
		__u32 *flow = bpf_map_lookup_elem(&order, &place);

		if (!flow)
			return XDP_DROP;
		carry = *flow;
	}
	if (config.frame_time || config.byte_time) {
		if (!pace(size))
			return XDP_DROP;
	}
	if (config.size_kind != GENERATE_SIZE_FIXED && size != config.size_max) {
		if (bpf_xdp_adjust_tail(context, (int)size - (int)config.size_max))
			return XDP_DROP;
	}
	if (config.stamp_time)
		need += 20;
	else if (config.stamp_sequence)
		need += 12;
	data = (void *)(long)context->data;
	end = (void *)(long)context->data_end;
	if (data + need > end)
		return XDP_DROP;

	COPY_WORD(0);
	COPY_WORD(1);
	COPY_WORD(2);
	COPY_WORD(3);
	COPY_WORD(4);
	COPY_WORD(5);
	COPY_WORD(6);
	COPY_WORD(7);
	COPY_WORD(8);
	COPY_WORD(9);
	if (header_len & 4)
		*(__u32 *)(data + (header_len & ~7U)) =
			*(const volatile __u32 *)((void *)config.headers_raw + (header_len & ~7U));
	if (header_len & 2)
		*(__u16 *)(data + (header_len & ~3U)) =
			*(const volatile __u16 *)((void *)config.headers_raw + (header_len & ~3U));

	if (config.random_destination_mac)
		write_random_mac(data);
	if (config.random_source_mac)
		write_random_mac(data + 6);

	header = data + config.transport_at;
	if (config.fields[GENERATE_SOURCE_PORT].count > 1) {
		__u16 raw = bpf_htons((__u16)next_value(GENERATE_SOURCE_PORT, &carry));

		*(__u16 *)header = raw;
		transport += raw;
	}
	if (config.fields[GENERATE_DESTINATION_PORT].count > 1) {
		__u16 raw = bpf_htons((__u16)next_value(GENERATE_DESTINATION_PORT, &carry));

		*(__u16 *)(header + 2) = raw;
		transport += raw;
	}
	header = data + config.network_at;
	if (config.fields[GENERATE_SOURCE].count > 1) {
		__u64 sum = write_address(header, 12, 8, next_value(GENERATE_SOURCE, &carry));

		network += sum;
		transport += sum;
	}
	if (config.fields[GENERATE_DESTINATION].count > 1) {
		__u64 sum = write_address(header, 16, 24, next_value(GENERATE_DESTINATION, &carry));

		network += sum;
		transport += sum;
	}
	next_flow();

	if (config.size_kind != GENERATE_SIZE_FIXED) {
		__u16 transport_len = bpf_htons(size - config.transport_at);

		if (config.ipv6) {
			*(__u16 *)(header + 4) = transport_len;
		} else {
			__u16 total = bpf_htons(size - config.network_at);

			*(__u16 *)(header + 2) = total;
			network += total;
		}
		if (config.udp) {
			*(__u16 *)(data + config.transport_at + 4) = transport_len;
			transport += transport_len;
		}
		transport += transport_len;
	}
	if (config.network_varies)
		*(__u16 *)(header + 10) = ~fold(network);

	transport += write_stamp(data + header_len);
	{
		__u16 checksum = ~fold(transport);

		if (config.udp && !checksum)
			checksum = 0xffff;
		*(__u16 *)(data + config.checksum_at) = checksum;
	}

	return redirect(size);
}

/* Whether what happens on this CPU happens to frames of this run: some are on their way between program
 * and driver. No other traffic can come between the first frame of a batch and its flush, for softirqs
 * are off. */
static __always_inline int is_own_batch(void)
{
	return counters.emitted != counters.accepted + counters.refused + counters.redirect_errors &&
	       state.cpu == bpf_get_smp_processor_id();
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(count_transmit, const struct net_device *from, const struct net_device *to, int sent,
	     int drops, int error)
{
	if (!is_own_batch() || to->ifindex != config.target)
		return 0;
	counters.accepted += sent;
	counters.refused += drops;
	if (drops)
		counters.driver_error = error;
	counters.last = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(count_redirect_error, const struct net_device *from, const void *program,
	     const void *target, int error)
{
	if (!is_own_batch())
		return 0;
	counters.redirect_errors++;
	counters.redirect_error = error;
	return 0;
}
