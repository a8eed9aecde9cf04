// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Programs for the tests of traces. In XDP the UDP port of a frame says what becomes of it. */

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))

static long (*redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* 1000 to 1003: the verdict of this number; 1004: sent to where it came from by a redirect; 2000: becomes a
 * frame to port 7, and goes on. */
static __attribute__((always_inline)) int judge(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 port;

	if (frame + 42 > end || frame[12] != 8 || frame[23] != 17)
		return XDP_PASS;
	port = frame[36] << 8 | frame[37];
	if (port == 2000) {
		frame[36] = 0;
		frame[37] = 7;
		return XDP_PASS;
	}
	if (port == 1000 + XDP_REDIRECT)
		return redirect(ctx->ingress_ifindex, 0);
	if (port >= 1000 && port < 1000 + XDP_REDIRECT)
		return port - 1000;
	return XDP_PASS;
}

SEC("xdp.frags")
int verdicts(struct xdp_md *ctx)
{
	return judge(ctx);
}

SEC("xdp.frags")
int successor(struct xdp_md *ctx)
{
	return judge(ctx);
}

SEC("tc")
int drop_all(struct __sk_buff *skb)
{
	return 2; /* TC_ACT_SHOT */
}
