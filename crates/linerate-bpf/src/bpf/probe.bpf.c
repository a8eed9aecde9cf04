// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Does nothing: whether it can be attached says whether the kernel traces its functions. */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("fentry/dev_add_pack")
int linerate_probe(unsigned long long *ctx)
{
	return 0;
}
