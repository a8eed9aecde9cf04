// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* All programs of the accelerator in one object, so that they share maps and are loaded together:
 * `forward` (XDP), `forward_tc` (tc ingress), `learn` (tc egress), `heartbeat` (syscall) and `refresh` (tc, by test
 * runs). */

#include "forward.bpf.c"
#include "forward_tc.bpf.c"
#include "learn.bpf.c"
#include "heartbeat.bpf.c"
#include "refresh.bpf.c"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
