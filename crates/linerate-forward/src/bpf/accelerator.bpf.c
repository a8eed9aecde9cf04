// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* All programs of the accelerator in one object, so that they share maps and are loaded together:
 * `forward` (XDP), `forward_tc` (tc ingress), `learn` (tc egress) and `heartbeat` (syscall). */

#include "forward.bpf.c"
#include "forward_tc.bpf.c"
#include "learn.bpf.c"
#include "heartbeat.bpf.c"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
