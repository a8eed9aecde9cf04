// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The daemon runs this program to show that it is alive. Only a program can read jiffies64. */

#include "session_access.h"

SEC("syscall")
int heartbeat(struct heartbeat *context)
{
	context->jiffies = bpf_jiffies64();
	WRITE_ONCE(control.heartbeat, context->jiffies);
	return 0;
}
