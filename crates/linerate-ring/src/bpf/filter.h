/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The place of the capture filter: a subprogram whose instructions are replaced before load.
 *
 * Its contract: the first contiguous piece of the frame from `data` to `data_end`, `len` the length
 * of the whole frame; the result is 0 to refuse, anything else to accept. The programs call it last,
 * so that it is the last subprogram of the loaded program and can have any length. They also call it
 * where nothing is filtered, so that a filter can be put in while they run. */
#ifndef LINERATE_FILTER_H
#define LINERATE_FILTER_H

/* The empty assembly keeps the compiler from seeing that nothing happens here, which would let it
 * drop the arguments or fold the result into the caller. */
static __attribute__((noinline)) __u32 filter(void *data, void *data_end, __u32 len)
{
	__u32 verdict = 1;

	asm volatile("" : "+r"(verdict) : "r"(data), "r"(data_end), "r"(len));
	return verdict;
}

#endif
