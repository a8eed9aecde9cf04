/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Rules of packet filters that do not treat all packets of a session alike. User space evaluates the rules (crate
 * linerate-net, ruleset) and writes what they leave: for each kind of session a list of entries with ranges, in the order
 * in which the rules are met. An entry keeps the sessions that it is for with the kernel, or has them skip others: a
 * certain verdict stands before the rules behind it. Only the learner looks at them.
 *
 * User space writes the entries and then bumps the generation. A learner that sees some of the new ones and some of the
 * old publishes a generation from before the bump. */
#ifndef LINERATE_RULES_H
#define LINERATE_RULES_H

#include "maps.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RULE_KINDS);
	__type(key, __u32);
	__type(value, struct rule_list);
} rules SEC(".maps");

/* The rules that keep sessions, by their numbers in entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RULES_MAX);
	__type(key, __u32);
	__type(value, struct kept_rule);
} kept_rules SEC(".maps");

/* A session as rules see it: by [0] as it comes in or as routing sees it, by [1] as it leaves or on the device. Addresses
 * as numbers, upper half first. */
struct rule_subject {
	__u64 source[2][2];
	__u64 destination[2][2];
	__u32 input[2];
	__u32 output[2];
	__u16 source_port[2];
	__u16 destination_port[2];
	__u32 mark;
	__u8 dscp;
	__u8 is_offloaded;
	/* The entries that may be for it and that the walk has not reached. Here, because the verifier does not follow values in a
	 * map: it would look at the walk once for each value on the stack. */
	struct rule_set left;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule_subject);
} rule_subjects SEC(".maps");

/* An address from its words in network order. */
static __always_inline void rule_address(__u64 *number, const __u32 *words, int is_ipv4)
{
	number[0] = is_ipv4 ? 0 : (__u64)bpf_ntohl(words[0]) << 32 | bpf_ntohl(words[1]);
	number[1] = is_ipv4 ? bpf_ntohl(words[0]) : (__u64)bpf_ntohl(words[2]) << 32 | bpf_ntohl(words[3]);
}

static __always_inline int is_at_most(const __u64 *one, const __u64 *other)
{
	return one[0] < other[0] || (one[0] == other[0] && one[1] <= other[1]);
}

/* Global, as rule_next(), so that the verifier looks at it once. */
__noinline int rule_is_for(const struct rule_entry *entry, const struct rule_subject *subject)
{
	__u32 source, destination, device;

	if (!entry || !subject || ((entry->seen & RULE_OFFLOADED) && !subject->is_offloaded))
		return 0;
	source = entry->seen & RULE_SOURCE_OUT ? 1 : 0;
	destination = entry->seen & RULE_DESTINATION_OUT ? 1 : 0;
	device = entry->seen & RULE_DEVICE ? 1 : 0;
	return subject->input[device] >= entry->input[0] && subject->input[device] <= entry->input[1] &&
	       subject->output[device] >= entry->output[0] && subject->output[device] <= entry->output[1] &&
	       subject->destination_port[destination] >= entry->destination_port[0] &&
	       subject->destination_port[destination] <= entry->destination_port[1] &&
	       subject->source_port[source] >= entry->source_port[0] &&
	       subject->source_port[source] <= entry->source_port[1] &&
	       is_at_most(entry->source[0], subject->source[source]) &&
	       is_at_most(subject->source[source], entry->source[1]) &&
	       is_at_most(entry->destination[0], subject->destination[destination]) &&
	       is_at_most(subject->destination[destination], entry->destination[1]) &&
	       subject->mark >= entry->mark[0] && subject->mark <= entry->mark[1] &&
	       subject->dscp >= entry->dscp[0] && subject->dscp <= entry->dscp[1];
}

#define RULE_WORDS (RULE_ENTRIES / 64)

static __always_inline __u32 address_group(const __u64 *number, int is_ipv6)
{
	return (is_ipv6 ? number[0] : number[1] >> 8) % RULE_GROUPS;
}

/* The word of the entries that a field in these groups allows: `out` are those that see it as the packet leaves. */
static __always_inline __u64 in_groups(const struct rule_set *groups, __u32 coming, __u32 leaving, __u64 out,
				       __u32 word)
{
	return (groups[coming].words[word] & ~out) | (groups[leaving].words[word] & out);
}

/* Finds the entries that may be for the subject. */
static __always_inline void rule_select(const struct rule_list *list, struct rule_subject *subject, int is_ipv6)
{
	__u32 source[2] = { address_group(subject->source[0], is_ipv6), address_group(subject->source[1], is_ipv6) };
	__u32 destination[2] = { address_group(subject->destination[0], is_ipv6),
				 address_group(subject->destination[1], is_ipv6) };

	for (__u32 word = 0; word < RULE_WORDS; word++) {
		__u64 source_out = list->source_out.words[word], destination_out = list->destination_out.words[word];

		subject->left.words[word] =
			in_groups(list->source, source[0], source[1], source_out, word) &
			in_groups(list->destination, destination[0], destination[1], destination_out, word) &
			in_groups(list->source_port, subject->source_port[0] % RULE_GROUPS,
				  subject->source_port[1] % RULE_GROUPS, source_out, word) &
			in_groups(list->destination_port, subject->destination_port[0] % RULE_GROUPS,
				  subject->destination_port[1] % RULE_GROUPS, destination_out, word);
	}
}

/* The number of the lowest bit that is set. */
static __always_inline __u32 lowest_bit(__u64 word)
{
	__u32 number = 0;

#pragma clang loop unroll(full)
	for (__u32 half = 32; half; half /= 2) {
		__u32 is_above = !(word & ((1ull << half) - 1));

		word >>= is_above * half;
		number += is_above * half;
	}
	return number;
}

/* Takes the first entry that is left; RULE_ENTRIES where there is none. */
__noinline int rule_next(struct rule_set *left)
{
	if (!left)
		return RULE_ENTRIES;
	for (__u32 word = 0; word < RULE_WORDS; word++) {
		__u64 bits = left->words[word];

		if (!bits)
			continue;
		left->words[word] = bits & (bits - 1);
		return word * 64 + lowest_bit(bits);
	}
	return RULE_ENTRIES;
}

/* Leaves out the entries before this one. */
static __always_inline void rule_skip(struct rule_set *left, __u32 to)
{
	for (__u32 word = 0; word < RULE_WORDS; word++) {
		if (to >= (word + 1) * 64)
			left->words[word] = 0;
		else if (to > word * 64)
			left->words[word] &= ~0ull << to % 64;
	}
}

/* Where the walk through a list is. */
struct rule_walk {
	const struct rule_list *list;
	struct rule_subject *subject;
	__u32 is_kept;
};

/* One entry; 1 ends the walk. */
static long rule_step(__u32 step, void *context)
{
	struct rule_walk *walk = context;
	const struct rule_entry *entry;
	struct kept_rule *kept;
	__u32 at = rule_next(&walk->subject->left), number;

	/* Compilers know what rule_next() may return, and the verifier does not. */
	barrier_var(at);
	if (at >= RULE_ENTRIES)
		return 1;
	entry = &walk->list->entries[at];
	if (!rule_is_for(entry, walk->subject))
		return 0;
	if (entry->skip) {
		rule_skip(&walk->subject->left, at + entry->skip);
		return 0;
	}
	number = entry->rule;
	kept = bpf_map_lookup_elem(&kept_rules, &number);
	if (kept)
		__sync_fetch_and_add(&kept->packets, 1);
	walk->is_kept = 1;
	return 1;
}

/* Whether a rule keeps this CPU's subject, of this kind, with the kernel. Global, so that the verifier looks at it
 * once. */
__noinline int rule_keeps(__u32 kind)
{
	__u32 zero = 0;
	struct rule_walk walk = {};

	walk.subject = bpf_map_lookup_elem(&rule_subjects, &zero);
	walk.list = bpf_map_lookup_elem(&rules, &kind);
	if (!walk.subject || !walk.list || !walk.list->count)
		return 0;
	rule_select(walk.list, walk.subject, kind & RULE_IPV6);
	bpf_loop(RULE_ENTRIES, rule_step, &walk, 0);
	return walk.is_kept;
}

#endif
