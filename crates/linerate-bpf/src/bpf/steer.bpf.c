// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Redirects frames that a filter accepts to AF_XDP sockets, one socket per receive queue. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "addresses.h"
#include "filter.h"
#include "steer.h"
#include "tags.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Constants to the verifier, which removes the branches not taken. */
const volatile __u32 timestamps = STEER_TIMESTAMP_NONE;
const volatile __u32 by_address = 0;
const volatile __u32 queue_count = 1;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, STEER_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* One element for each queue, and one for all queues that came after the start. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* set before load */
	__type(key, __u32);
	__type(value, struct steer_counters);
} counters SEC(".maps");

/* Weak, as that of tags.h. */
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym __weak;

static __always_inline struct steer_counters *counters_of_cpu(struct xdp_md *ctx)
{
	__u32 queue = ctx->rx_queue_index;
	__u32 counted = queue < queue_count ? queue : queue_count;

	return bpf_map_lookup_elem(&counters, &counted);
}

/* Room for the metadata, or NULL where the driver has none: the frame then goes without. */
static __always_inline struct steer_meta *add_meta(struct xdp_md *ctx)
{
	struct steer_meta *meta;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return NULL;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return NULL;
	return meta;
}

static __always_inline int unmatched(struct steer_counters *counts)
{
	if (counts)
		counts->unmatched++;
	return XDP_PASS;
}

static __always_inline int redirect(struct xdp_md *ctx, struct steer_counters *counts)
{
	int action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);

	if (counts) {
		if (action == XDP_REDIRECT)
			counts->matched++;
		else
			counts->no_socket++;
	}
	return action;
}

static __always_inline int accepted(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;

	if (by_address && !is_for_address(data, data_end))
		return 0;
	return !has_filter() || filter(data, data_end, bpf_xdp_get_buff_len(ctx));
}

static __always_inline int steer_frame(struct xdp_md *ctx, int tagged)
{
	struct steer_counters *counts = counters_of_cpu(ctx);

	if (tagged || !accepted(ctx))
		return unmatched(counts);
	if (timestamps == STEER_TIMESTAMP_SOFTWARE) {
		struct steer_meta *meta = add_meta(ctx);

		if (meta) {
			meta->timestamp = bpf_ktime_get_tai_ns();
			meta->vlan_tci = 0;
			meta->vlan_proto = 0;
			meta->flags = 0;
			meta->magic = STEER_META_MAGIC;
		}
	}
	return redirect(ctx, counts);
}

SEC("xdp.frags")
int steer(struct xdp_md *ctx)
{
	return steer_frame(ctx, 0);
}

/* As above without frames of VLANs. Loaded bound to the device. */
SEC("xdp.frags")
int steer_untagged(struct xdp_md *ctx)
{
	return steer_frame(ctx, is_tagged(ctx));
}

/* As steer with the metadata of the card. Loaded bound to the device: only then may it call the kfuncs,
 * and only then do they reach the driver. */
SEC("xdp.frags")
int steer_hardware(struct xdp_md *ctx)
{
	struct steer_counters *counts = counters_of_cpu(ctx);
	struct steer_meta *meta;
	__u64 timestamp = 0;
	__u32 flags = 0;
	__be16 vlan_proto = 0;
	__u16 vlan_tci = 0;

	if (!accepted(ctx))
		return unmatched(counts);
	if (!bpf_xdp_metadata_rx_timestamp(ctx, &timestamp) && timestamp)
		flags |= STEER_META_HARDWARE;
	else
		timestamp = bpf_ktime_get_tai_ns();
	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &vlan_proto, &vlan_tci))
		flags |= STEER_META_VLAN;
	meta = add_meta(ctx);
	if (meta) {
		meta->timestamp = timestamp;
		meta->vlan_tci = vlan_tci;
		meta->vlan_proto = vlan_proto;
		meta->flags = flags;
		meta->magic = STEER_META_MAGIC;
	}
	return redirect(ctx, counts);
}
