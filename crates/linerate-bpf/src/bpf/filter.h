/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The place of the capture filter: a subprogram whose instructions are replaced before load.
 *
 * Its contract: the first contiguous piece of the frame from `data` to `data_end`, `len` the length
 * of the whole frame; the result is 0 to reject, anything else to accept. The programs call it last,
 * so that it is the last subprogram of the loaded program and can have any length. They call
 * has_filter() first, which is false in a program that is loaded without a filter; the verifier then
 * removes the call. */
#ifndef LINERATE_FILTER_H
#define LINERATE_FILTER_H

/* Replaced by 0 where nothing is filtered. A number that is no constant of any program. */
#define HAS_FILTER 0x4c46494c

/* No read-only data: the programs of one capture, with a filter and without, share their maps. */
static __attribute__((always_inline)) int has_filter(void)
{
	__u64 has;

	asm volatile("%0 = %1" : "=r"(has) : "i"(HAS_FILTER));
	return has != 0;
}

/* The empty assembly keeps the compiler from seeing that nothing happens here, which would let it
 * drop the arguments or fold the result into the caller. */
static __attribute__((noinline)) __u32 filter(void *data, void *data_end, __u32 len)
{
	__u32 verdict = 1;

	asm volatile("" : "+r"(verdict) : "r"(data), "r"(data_end), "r"(len));
	return verdict;
}

#endif
