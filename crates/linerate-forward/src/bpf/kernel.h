/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the kernel knows about a packet, read from its own structures.
 *
 * Only the members that are read are named; CO-RE finds their offsets when the programs are loaded, in
 * the kernel's types or those of a module. Reads go through bpf_probe_read_kernel, and not through
 * bpf_rdonly_cast: conntrack is a module on many systems, and a type of a module has no BTF id
 * that a cast would accept. All of this runs only for packets on the kernel's own path.
 *
 * bpf_cast_to_kern_ctx (Linux 6.2) is the only way from the program's view of a packet to the kernel's.
 * Without it nothing is learned: a second look-up cannot tell whether a checksum is complete, which
 * connection the packet belongs to and which route it took, since it may find another route or zone than the
 * packet's own. */
#ifndef LINERATE_KERNEL_H
#define LINERATE_KERNEL_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct nf_tcp_net {
	unsigned int timeouts[1]; /* by TCP_CONNTRACK_* */
	__u8 tcp_max_retrans;
};

struct nf_udp_net {
	unsigned int timeouts[2]; /* of a connection that is no stream, and of one that is */
};

struct nf_ip_net {
	struct nf_tcp_net tcp;
	struct nf_udp_net udp;
};

struct netns_ct {
	__u8 sysctl_checksum;
	struct nf_ip_net nf_ct_proto;
};

struct nf_hook_entry {
	void *hook;
};

struct nf_hook_entries {
	__u16 num_hook_entries;
	struct nf_hook_entry hooks[];
};

struct netns_nf {
	struct nf_hook_entries *hooks_ipv4[1]; /* by NF_INET_*; the first is PRE_ROUTING */
	struct nf_hook_entries *hooks_ipv6[1];
};

struct net {
	struct netns_ct ct;
	struct netns_nf nf;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct ipv6_devconf {
	__s32 mtu6;
};

struct inet6_dev {
	struct ipv6_devconf cnf;
};

struct net_device {
	int ifindex;
	unsigned int mtu;
	struct inet6_dev *ip6_ptr;
	possible_net_t nd_net;
};

struct dst_entry {
	struct net_device *dev;
	unsigned long _metrics;
	void *xfrm;
	void *lwtstate;
};

/* An IPv4 route; struct rt6_info begins with a dst_entry too. */
struct rtable {
	struct dst_entry dst;
	__u8 rt_is_input;
	__u32 rt_mtu_locked : 1, rt_pmtu : 31;
};

struct sock;

struct sk_buff {
	struct sock *sk;
	struct net_device *dev;
	unsigned long _nfct;
	unsigned long _skb_refdst;
	__u16 mac_len;
	__u8 cloned : 1;
	__u8 active_extensions;
	__u8 encapsulation : 1;
	__u8 ip_summed : 2;
};

enum skb_ext_id {
	SKB_EXT_SEC_PATH,
};

#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *) __weak __ksym;

#define KERNEL_CHECKSUM_PARTIAL 3 /* sk_buff.ip_summed */
#define KERNEL_REFERENCE_MASK 1ul /* in sk_buff._skb_refdst: not a counted reference */
#define KERNEL_METRICS_MASK 3ul	  /* in dst_entry._metrics: flags */
#define KERNEL_METRIC_MTU 1	  /* RTAX_MTU less one: index in the array of metrics */
#define KERNEL_LOCKED_MTU 576	  /* MTU of a route whose locked MTU is below the minimum */

static __always_inline struct sk_buff *kernel_skb(struct __sk_buff *ctx)
{
	return bpf_ksym_exists(bpf_cast_to_kern_ctx) ? bpf_cast_to_kern_ctx(ctx) : NULL;
}

/* Connection and direction as the kernel packs them; 0 without a connection. */
static __always_inline unsigned long kernel_connection(const struct sk_buff *packet)
{
	return bpf_core_field_exists(packet->_nfct) ? packet->_nfct : 0;
}

/* Whether the route applies IPsec or an encapsulation. */
static __always_inline int route_encapsulates(struct dst_entry *route)
{
	if (bpf_core_field_exists(route->xfrm) && BPF_CORE_READ(route, xfrm))
		return 1;
	return bpf_core_field_exists(route->lwtstate) && BPF_CORE_READ(route, lwtstate);
}

/* Whether IPsec has decrypted the packet (skb_sec_path()). */
static __always_inline int was_decrypted(const struct sk_buff *packet)
{
	return bpf_core_field_exists(packet->active_extensions) &&
	       bpf_core_enum_value_exists(enum skb_ext_id, SKB_EXT_SEC_PATH) &&
	       (packet->active_extensions & 1 << bpf_core_enum_value(enum skb_ext_id, SKB_EXT_SEC_PATH));
}

/* The packet's route; NULL if it has none. */
static __always_inline struct dst_entry *kernel_route(const struct sk_buff *packet)
{
	return (struct dst_entry *)(packet->_skb_refdst & ~KERNEL_REFERENCE_MASK);
}

static __always_inline __u32 lesser(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

/* The largest packet that certainly passes unfragmented, in bytes: the smallest of all limits that ip_forward,
 * ip6_forward and the output after them may check (route metric, learned path MTU, the devices'
 * MTU and IPv6's own). They do not check each of them each time; larger packets go to the kernel. */
static __always_inline __u32 kernel_mtu(const struct sk_buff *packet, struct dst_entry *route,
					int is_ipv6)
{
	struct net_device *device = BPF_CORE_READ(route, dev);
	const __u32 *metrics = (const __u32 *)(BPF_CORE_READ(route, _metrics) & ~KERNEL_METRICS_MASK);
	__u32 mtu = lesser(BPF_CORE_READ(packet, dev, mtu), BPF_CORE_READ(device, mtu));
	__u32 metric = 0;

	if (!bpf_probe_read_kernel(&metric, sizeof(metric), metrics + KERNEL_METRIC_MTU) && metric)
		mtu = lesser(mtu, metric);
	if (is_ipv6)
		return bpf_core_type_exists(struct inet6_dev)
			       ? lesser(mtu, BPF_CORE_READ(device, ip6_ptr, cnf.mtu6))
			       : mtu;
	if (bpf_core_field_exists(struct rtable, rt_pmtu)) {
		const struct rtable *ipv4 = (const struct rtable *)route;
		__u32 path = BPF_CORE_READ_BITFIELD_PROBED(ipv4, rt_pmtu);

		if (path)
			mtu = lesser(mtu, path);
		if (BPF_CORE_READ_BITFIELD_PROBED(ipv4, rt_mtu_locked))
			mtu = lesser(mtu, KERNEL_LOCKED_MTU);
	}
	return mtu;
}

#endif
