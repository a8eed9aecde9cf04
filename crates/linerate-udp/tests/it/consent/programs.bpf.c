// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Programs of the administrator, which drop what they see or give it a VLAN tag. Their types need no header. */

#define SEC(name) __attribute__((section(name), used))

typedef unsigned short u16;
typedef unsigned int u32;

static long (*const skb_vlan_push)(void *ctx, u16 protocol, u16 tci) = (void *)18;
static long (*const skb_load_bytes)(const void *ctx, u32 at, void *to, u32 len) = (void *)26;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* All but the port 17099, source or destination, of IPv4 without options: the group has other tests. */
static int is_other(void *ctx, u32 at)
{
	u16 port = 0;

	return skb_load_bytes(ctx, at, &port, sizeof(port)) || port != __builtin_bswap16(17099);
}

SEC("cgroup_skb/ingress") int ingress_of_group(void *ctx) { return is_other(ctx, 22); }
SEC("cgroup_skb/egress") int egress_of_group(void *ctx) { return is_other(ctx, 20); }
SEC("sk_lookup") int drop_at_lookup(void *ctx) { return 0; /* SK_DROP */ }
SEC("netfilter") int drop_at_hook(void *ctx) { return 0; /* NF_DROP */ }
SEC("tcx/ingress") int drop_at_ingress(void *ctx) { return 2; /* TC_ACT_SHOT */ }
SEC("tcx/egress") int push_tag(void *ctx)
{
	skb_vlan_push(ctx, __builtin_bswap16(0x8100), 5);
	return 0;
}

SEC("tcx/egress") int push_priority(void *ctx)
{
	skb_vlan_push(ctx, __builtin_bswap16(0x8100), 0x2000);
	return 0;
}

SEC("tcx/egress") int push_service_tag(void *ctx)
{
	skb_vlan_push(ctx, __builtin_bswap16(0x88a8), 5);
	return 0;
}
