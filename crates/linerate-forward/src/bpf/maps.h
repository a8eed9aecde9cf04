/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The maps and constants of the forwarding object. Sizes of 1 are set before load. */
#ifndef LINERATE_MAPS_H
#define LINERATE_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "forward.h"
#include "reasons.h"

/* Constants to the verifier, which removes the branches not taken. */
const volatile __u32 statistics = STATISTICS_SLOT;
const volatile __u32 bucket_mask = 0; /* buckets less one, of table, table6 and strays */
const volatile __u32 pending_mask = 0;
/* The programs are loaded for frames in several buffers (BPF_F_XDP_HAS_FRAGS), whose length they then ask
 * for. Not for nothing; and a devmap takes programs of one kind only, so that all ports are alike. */
const volatile __u32 multi_buffer = 0;

struct control control SEC(".data.control") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket6);
} table6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct strays);
} strays SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pending);
} pending SEC(".maps");

/* Sessions of the three designs with hash maps; a per-CPU map in STATISTICS_PER_CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct session_key);
	__type(value, struct hashed_session);
} hashed SEC(".maps");

/* Counters of STATISTICS_SPLIT. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct session_key);
	__type(value, struct stray);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, PORTS_MAX);
	__uint(key_size, 4);
	__uint(value_size, 4);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, struct interface);
} interfaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct denied4_key);
	__type(value, struct denied);
} denied4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct denied6_key);
	__type(value, struct denied);
} denied6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct denied_session_key);
	__type(value, struct denied);
} denied_sessions SEC(".maps");

#endif
