/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Maps and constants that several programs share. Sizes of 1 are set before load. */
#ifndef LINERATE_MAPS_H
#define LINERATE_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"
#include "reasons.h"

/* Constants to the verifier, which removes the branches not taken. */
const volatile __u32 candidate_mask = 0;
/* The programs are loaded for frames in several buffers (BPF_F_XDP_HAS_FRAGS), and then ask for the length of
 * each frame. That costs time; and a devmap takes programs of one kind only, so all ports are alike. */
const volatile __u32 multi_buffer = 0;

struct control control SEC(".data.control") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct candidate);
} candidates SEC(".maps");

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
