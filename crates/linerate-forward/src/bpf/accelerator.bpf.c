// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* All programs of the accelerator in one object, so that they share maps and are loaded together:
 * `forward` (XDP), `mark` (tc ingress), `learn` (tc egress) and `heartbeat` (syscall). */

#include "forward.bpf.c"
#include "mark.bpf.c"
#include "learn.bpf.c"
#include "heartbeat.bpf.c"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
