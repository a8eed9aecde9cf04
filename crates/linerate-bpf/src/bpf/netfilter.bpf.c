// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Lists the BPF programs at netfilter's hooks (BPF_LINK_TYPE_NETFILTER, Linux 6.4) of one network namespace. What
 * BPF_OBJ_GET_INFO_BY_FD says of such a link lacks the namespace. */

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define NAME_LENGTH 16
/* BPF_LINK_TYPE_NETFILTER, which older headers lack. */
#define LINK_TYPE_NETFILTER 10

struct seq_file;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

struct bpf_prog_aux {
	char name[NAME_LENGTH];
};

struct bpf_prog {
	struct bpf_prog_aux *aux;
};

struct bpf_link {
	__u32 id;
	enum bpf_link_type type;
	struct bpf_prog *prog;
};

struct nf_hook_ops {
	__u8 pf;
	unsigned int hooknum;
	int priority;
};

struct bpf_nf_link {
	struct bpf_link link;
	struct nf_hook_ops hook_ops;
	struct net *net;
	__u32 dead;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__bpf_link {
	struct bpf_iter_meta *meta;
	struct bpf_link *link;
};

#pragma clang attribute pop

const volatile __u32 netns = 0; /* inode of the network namespace */

/* As `Record` of netfilter.rs. */
struct record {
	__u32 id;
	__u32 family;
	__u32 hook;
	__s32 priority;
	char program[NAME_LENGTH];
};

SEC("iter/bpf_link")
int linerate_links(struct bpf_iter__bpf_link *ctx)
{
	struct bpf_link *link = ctx->link;
	struct bpf_nf_link *hooked = (struct bpf_nf_link *)link;
	struct record record = {};

	if (!link || (__u32)link->type != LINK_TYPE_NETFILTER || !bpf_core_type_exists(struct bpf_nf_link))
		return 0;
	if (BPF_CORE_READ(hooked, dead) || BPF_CORE_READ(hooked, net, ns.inum) != netns)
		return 0;
	record.id = link->id;
	record.family = BPF_CORE_READ(hooked, hook_ops.pf);
	record.hook = BPF_CORE_READ(hooked, hook_ops.hooknum);
	record.priority = BPF_CORE_READ(hooked, hook_ops.priority);
	BPF_CORE_READ_INTO(&record.program, link, prog, aux, name);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
