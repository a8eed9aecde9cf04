// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Lets `take` of tee.bpf.c pass frames on as soon as a packet socket receives from the interface. The kernel
 * adds each packet socket by `dev_add_pack`; this program runs before that function, and so before the first
 * frame of the socket. */

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "tee.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct packet_type {
	struct net_device *dev;
	void *af_packet_priv;
	struct net *af_packet_net;
};

#pragma clang attribute pop

const volatile __u32 ifindex = 0;
const volatile __u32 netns = 0; /* inode of its network namespace */

/* That of the program that takes frames. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tee_reader);
} readers SEC(".maps");

static long pass(void *map, __u32 *key, struct tee_reader *reader, void *context)
{
	reader->pass = 1;
	return 0;
}

SEC("fentry/dev_add_pack")
int linerate_socket(unsigned long long *ctx)
{
	struct packet_type *type = (struct packet_type *)ctx[0];
	struct net_device *device = type->dev;

	/* Only packet sockets have it. */
	if (!type->af_packet_priv)
		return 0;
	if (device) {
		if (device->ifindex != ifindex || device->nd_net.net->ns.inum != netns)
			return 0;
	} else if (bpf_core_field_exists(type->af_packet_net) &&
		   type->af_packet_net->ns.inum != netns) {
		return 0;
	}
	bpf_for_each_map_elem(&readers, pass, NULL, 0);
	return 0;
}
