/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What trace.bpf.c and drops.bpf.c have in common: tracing programs that copy frames to a ring buffer.
 *
 * A tracing program has no packet pointers. It reads the kernel's memory through bpf_probe_read_kernel. So
 * the filter runs on a copy of the first bytes of the frame: as many as the filter can reach, which the
 * loader knows. Only the members of the kernel's structures that are read are named; CO-RE finds their
 * offsets when the programs are loaded. */
#ifndef LINERATE_TRACE_H
#define LINERATE_TRACE_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "filter.h"
#include "records.h"

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
	unsigned short type;
	possible_net_t nd_net;
};

#pragma clang attribute pop

/* Constants to the verifier, which removes the branches not taken. */
const volatile __u32 timestamps = 1;
const volatile __u32 snaplen = TEE_MAX_SNAPLEN;
const volatile __u32 ifindex = 0;  /* the interface; 0 for all of the namespace */
const volatile __u32 netns = 0;    /* inode of its network namespace */
const volatile __u32 head_len = 0; /* bytes of a frame that the filter can reach */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_counters);
} counters SEC(".maps");

/* The copies that filters run on, one for each CPU and program. An array and no per-CPU array, whose
 * values have at most 32 KiB. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* both set before load */
	__uint(key_size, 4);
	__uint(value_size, 8);
} heads SEC(".maps");

static __attribute__((always_inline)) __u32 netns_of(const struct net_device *device)
{
	return device->nd_net.net->ns.inum;
}

#endif
