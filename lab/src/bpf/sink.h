// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What the counting sink tells user space, once per CPU. */
#ifndef LINERATE_SINK_H
#define LINERATE_SINK_H

struct sink_count {
	__u64 frames;
	__u64 bytes; /* of the first buffer of each frame */
};

_Static_assert(sizeof(struct sink_count) == 16, "user space reads 16 bytes");
_Static_assert(__builtin_offsetof(struct sink_count, bytes) == 8, "bytes at 8");

#endif
