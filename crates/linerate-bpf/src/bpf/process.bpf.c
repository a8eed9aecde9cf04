// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Which process has which socket, and which flow is of which socket.
 *
 * A process is known only where the kernel runs for it: when it makes a socket, accepts a connection (accept(2) asks
 * for the address of the peer), sends or receives. Packets are processed anywhere, so those only tell the socket of a
 * flow. The state of a socket is in its storage. What has none is of no process: sockets of the kernel. */

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "process.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define INET 2
#define INET6 10
#define TCP 6
#define UDP 17
#define ESTABLISHED 1
#define SYN_RECV 3
#define LISTEN 10
#define STREAM 1 /* SOCK_STREAM */
#define DATAGRAM 2
#define TO_HOST 0 /* PACKET_HOST */
#define NO_PARENT (~0ull)
#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD */
#define SYN 0x02
#define SYN_ACK 0x12
#define SECOND 1000000000ull
/* A socket that processes use in turn is reported once in this time. */
#define USE_INTERVAL 1000000ull
/* A datagram flow is reported again after this time: `REPORTED` of linerate-process/src/table.rs. */
#define FLOW_INTERVAL (10 * SECOND)
/* New flows that a CPU reports in a second. Those beyond have no owner: a flood must not hide the other events. */
#define MAX_FLOWS 20000

struct seq_file;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

typedef struct {
	unsigned int val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
};

struct task_struct {
	unsigned int flags;
	int tgid;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	__u64 start_boottime;
	__u32 self_exec_id;
	const struct cred *cred;
	char comm[16];
	struct css_set *cgroups;
};

struct net {
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	__u16 sk_type;
};

struct socket {
	struct sock *sk;
};

struct file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* What tells a process and its program from all others. */
struct process_key {
	__u64 start;
	__u32 id;
	__u32 exec;
};

struct socket_state {
	__u64 cookie;
	__u64 netns;
	__u64 reported; /* when its last use was */
	struct process_key user;
};

/* The socket of a connection starts with a copy of that of the listening one. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct socket_state);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} events SEC(".maps");

/* Processes whose EVENT_PROCESS was sent. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct process_key);
	__type(value, __u8);
} introduced SEC(".maps");

struct flow {
	__u64 netns;
	__u32 local[4];
	__u32 remote[4];
	__u16 local_port;
	__u16 remote_port;
	__u32 protocol;
};

struct reported {
	__u64 cookie;
	__u64 time;
};

/* The sockets of datagrams, which have no event of their own at the start of a flow. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow);
	__type(value, struct reported);
} flows SEC(".maps");

struct rate {
	__u64 second;
	__u64 flows;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rate);
} rates SEC(".maps");

/* Events that were lost, and flows beyond the limit. */
#define LOST 0
#define LIMITED 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

#define INLINE static __attribute__((always_inline))

INLINE void add_one(__u32 index)
{
	__u64 *count = bpf_map_lookup_elem(&counts, &index);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* A new event, with room for `room` bytes behind it. */
INLINE struct event *reserve(__u8 kind, __u32 room)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(struct event) + room, 0);

	if (!event) {
		add_one(LOST);
		return NULL;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->time = bpf_ktime_get_tai_ns();
	return event;
}

INLINE int is_kernel_thread(struct task_struct *task)
{
	return !!(BPF_CORE_READ(task, flags) & KERNEL_THREAD);
}

INLINE void read_key(struct process_key *key, struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	key->start = BPF_CORE_READ(leader, start_boottime);
	key->id = BPF_CORE_READ(leader, tgid);
	key->exec = BPF_CORE_READ(leader, self_exec_id);
}

INLINE void read_process(struct process *process, struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	process->start = BPF_CORE_READ(leader, start_boottime);
	process->id = BPF_CORE_READ(leader, tgid);
	process->exec = BPF_CORE_READ(leader, self_exec_id);
	process->cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	process->uid = BPF_CORE_READ(task, cred, uid.val);
	BPF_CORE_READ_INTO(&process->name, leader, comm);
}

/* Sends what the current process is, unless that was done. */
static __attribute__((noinline)) int introduce(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	unsigned long from, bytes;
	struct process_key key;
	struct event *event;
	__u8 one = 1;

	read_key(&key, task);
	if (bpf_map_lookup_elem(&introduced, &key))
		return 0;
	event = reserve(EVENT_PROCESS, ARGUMENTS_LEN);
	if (!event)
		return 0;
	read_process(&event->process, task);
	from = BPF_CORE_READ(task, mm, arg_start);
	bytes = BPF_CORE_READ(task, mm, arg_end) - from;
	if (bytes > ARGUMENTS_LEN)
		bytes = ARGUMENTS_LEN;
	if (!bpf_probe_read_user(event + 1, bytes, (void *)from))
		event->arguments = bytes;
	bpf_ringbuf_submit(event, 0);
	bpf_map_update_elem(&introduced, &key, &one, BPF_ANY);
	return 0;
}

/* Sends an event of a socket and the current process. */
static __attribute__((noinline)) int say(__u8 kind, __u64 cookie, __u64 netns, __u8 protocol)
{
	struct event *event = reserve(kind, 0);

	if (!event)
		return 0;
	read_process(&event->process, (void *)bpf_get_current_task());
	event->socket = cookie;
	event->netns = netns;
	event->protocol = protocol;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("cgroup/sock_create")
int linerate_create(struct bpf_sock *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct socket_state *socket;
	__u32 protocol = ctx->protocol, type = ctx->type;

	/* A raw socket gets copies of what is of others. */
	if (!((protocol == TCP && type == STREAM) || (protocol == UDP && type == DATAGRAM)) || is_kernel_thread(task))
		return 1;
	introduce();
	socket = bpf_sk_storage_get(&sockets, ctx, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!socket) {
		add_one(LOST);
		return 1;
	}
	socket->cookie = bpf_get_socket_cookie(ctx);
	socket->netns = bpf_get_netns_cookie(ctx);
	socket->reported = 0;
	read_key(&socket->user, task);
	say(EVENT_SOCKET, socket->cookie, socket->netns, protocol);
	return 1;
}

SEC("cgroup/sock_release")
int linerate_release(struct bpf_sock *ctx)
{
	struct socket_state *socket = bpf_sk_storage_get(&sockets, ctx, NULL, 0);
	struct event *event;

	if (!socket)
		return 1;
	event = reserve(EVENT_RELEASE, 0);
	if (!event)
		return 1;
	event->socket = socket->cookie;
	bpf_ringbuf_submit(event, 0);
	return 1;
}

/* The current process uses the socket with this cookie. A connection by Fast Open has the state of the listening socket
 * until it is established. */
INLINE void note_use(struct socket_state *socket, __u64 cookie)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct process_key key;
	__u64 now;

	read_key(&key, task);
	if (cookie != socket->cookie)
		return;
	if (key.id == socket->user.id && key.start == socket->user.start && key.exec == socket->user.exec)
		return;
	now = bpf_ktime_get_ns();
	if (now - socket->reported < USE_INTERVAL || is_kernel_thread(task))
		return;
	introduce();
	/* The first one accepts it, and may pass it on at once. */
	if (socket->user.id)
		socket->reported = now;
	socket->user = key;
	say(EVENT_USE, socket->cookie, socket->netns, 0);
}

INLINE int name_of_peer(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct socket_state *socket;

	if (!sk)
		return 1;
	socket = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (socket)
		note_use(socket, bpf_get_socket_cookie(ctx));
	return 1;
}

/* accept(2) runs these for the new socket, and getpeername(2). */
SEC("cgroup/getpeername4")
int linerate_peer4(struct bpf_sock_addr *ctx)
{
	return name_of_peer(ctx);
}

SEC("cgroup/getpeername6")
int linerate_peer6(struct bpf_sock_addr *ctx)
{
	return name_of_peer(ctx);
}

INLINE int used(struct sock *sk)
{
	struct socket_state *socket = bpf_sk_storage_get(&sockets, sk, NULL, 0);

	if (socket)
		note_use(socket, bpf_get_socket_cookie(sk));
	return 0;
}

/* Linux 6.3 has these. */
SEC("tp_btf/sock_send_length")
int linerate_send(unsigned long long *ctx)
{
	return used((struct sock *)ctx[0]);
}

SEC("tp_btf/sock_recv_length")
int linerate_receive(unsigned long long *ctx)
{
	return used((struct sock *)ctx[0]);
}

/* A process that is known executes another program. */
SEC("tp_btf/sched_process_exec")
int linerate_exec(unsigned long long *ctx)
{
	struct process_key key;

	read_key(&key, (void *)bpf_get_current_task());
	key.exec--;
	if (bpf_map_lookup_elem(&introduced, &key))
		introduce();
	return 0;
}

SEC("tp_btf/sched_process_fork")
int linerate_fork(unsigned long long *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	struct event *event;

	if (BPF_CORE_READ(parent, tgid) == BPF_CORE_READ(child, tgid) || is_kernel_thread(parent))
		return 0;
	event = reserve(EVENT_FORK, 0);
	if (!event)
		return 0;
	read_process(&event->process, parent);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

INLINE void map_address(__u8 *to, __be32 address)
{
	__builtin_memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, &address, sizeof(address));
}

INLINE void read_ends(struct event *event, struct sock *sk)
{
	event->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	event->remote_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == INET6) {
		BPF_CORE_READ_INTO(&event->local, sk, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr8);
		BPF_CORE_READ_INTO(&event->remote, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr8);
	} else {
		map_address(event->local, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
		map_address(event->remote, BPF_CORE_READ(sk, __sk_common.skc_daddr));
	}
}

/* A listening socket has a new connection, which nobody has accepted yet. */
SEC("tp_btf/inet_sock_set_state")
int linerate_state(unsigned long long *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct socket_state *socket;
	struct event *event;
	__u64 parent;

	if ((int)ctx[1] != SYN_RECV || (int)ctx[2] != ESTABLISHED || BPF_CORE_READ(sk, sk_protocol) != TCP)
		return 0;
	socket = bpf_sk_storage_get(&sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!socket) {
		add_one(LOST);
		return 0;
	}
	parent = socket->cookie ? socket->cookie : NO_PARENT;
	socket->cookie = bpf_get_socket_cookie(sk);
	socket->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, net_cookie);
	socket->reported = 0;
	__builtin_memset(&socket->user, 0, sizeof(socket->user));
	event = reserve(EVENT_FLOW, 0);
	if (!event)
		return 0;
	event->socket = socket->cookie;
	event->parent = parent;
	event->netns = socket->netns;
	event->protocol = TCP;
	read_ends(event, sk);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Whether one more flow is within the limit. */
INLINE int within_limit(void)
{
	__u32 zero = 0;
	struct rate *rate = bpf_map_lookup_elem(&rates, &zero);
	__u64 now = bpf_ktime_get_ns();

	if (!rate)
		return 0;
	if (now - rate->second >= SECOND) {
		rate->second = now;
		rate->flows = 0;
	}
	return rate->flows++ < MAX_FLOWS;
}

/* Fills in the ends of a packet from its IP header; returns where its ports are, or NULL. */
INLINE __u8 *parse(struct flow *flow, struct __sk_buff *skb, int outgoing, __u32 protocol)
{
	__u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 *source = outgoing ? flow->local : flow->remote;
	__u32 *destination = outgoing ? flow->remote : flow->local;

	if (data + 20 > end)
		return NULL;
	if (data[0] >> 4 == 4) {
		source[2] = destination[2] = bpf_htonl(0xffff);
		__builtin_memcpy(&source[3], data + 12, 4);
		__builtin_memcpy(&destination[3], data + 16, 4);
		/* What is sent to a group may reach several sockets. */
		if (data[9] != protocol || (!outgoing && data[16] >= 224))
			return NULL;
		return data + ((data[0] & 0x0f) << 2);
	}
	if (data + 40 > end || data[6] != protocol || (!outgoing && data[24] == 0xff))
		return NULL;
	/* Each link has these addresses. */
	if (data[8] == 0xfe || data[24] == 0xfe)
		return NULL;
	__builtin_memcpy(source, data + 8, 16);
	__builtin_memcpy(destination, data + 24, 16);
	return data + 40;
}

INLINE int observe(struct __sk_buff *skb, int outgoing)
{
	struct bpf_sock *sk = skb->sk;
	__u8 *ports, *end;
	struct socket_state *socket;
	struct flow flow = {};
	struct event *event;
	struct reported *known, report;
	__u64 cookie;
	__u16 source, destination;
	__u32 protocol;

	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 1;
	protocol = sk->protocol;
	if (!((protocol == TCP && sk->type == STREAM) || (protocol == UDP && sk->type == DATAGRAM)))
		return 1;
	if (!outgoing && skb->pkt_type != TO_HOST)
		return 1;
	ports = parse(&flow, skb, outgoing, protocol);
	end = (void *)(long)skb->data_end;
	if (!ports || ports + 8 > end)
		return 1;
	/* A connection starts with a SYN; the other packets need no look. */
	if (protocol == TCP && (ports + 20 > end || (ports[13] & SYN_ACK) != SYN))
		return 1;
	source = ports[0] << 8 | ports[1];
	destination = ports[2] << 8 | ports[3];
	flow.local_port = outgoing ? source : destination;
	flow.remote_port = outgoing ? destination : source;
	flow.protocol = protocol;
	socket = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!socket)
		return 1;
	flow.netns = socket->netns;
	cookie = socket->cookie;
	if (!cookie)
		return 1;
	report.cookie = cookie;
	report.time = 0;
	if (protocol == UDP) {
		report.time = bpf_ktime_get_coarse_ns();
		known = bpf_map_lookup_elem(&flows, &flow);
		if (known && known->cookie == cookie && report.time - known->time < FLOW_INTERVAL)
			return 1;
	}
	if (!within_limit()) {
		add_one(LIMITED);
		return 1;
	}
	event = reserve(EVENT_FLOW, 0);
	if (!event)
		return 1;
	event->socket = cookie;
	event->netns = flow.netns;
	event->protocol = protocol;
	event->local_port = flow.local_port;
	event->remote_port = flow.remote_port;
	__builtin_memcpy(event->local, flow.local, sizeof(flow.local));
	__builtin_memcpy(event->remote, flow.remote, sizeof(flow.remote));
	bpf_ringbuf_submit(event, 0);
	if (protocol == UDP)
		bpf_map_update_elem(&flows, &flow, &report, BPF_ANY);
	return 1;
}

SEC("cgroup_skb/ingress")
int linerate_ingress(struct __sk_buff *skb)
{
	return observe(skb, 0);
}

SEC("cgroup_skb/egress")
int linerate_egress(struct __sk_buff *skb)
{
	return observe(skb, 1);
}

/* Lists each descriptor of a socket. Sockets that are older than these programs get their state here. */
SEC("iter/task_file")
int linerate_holders(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket_state *state;
	struct event event = {};
	struct socket *socket;
	struct sock *sk;
	__u16 family, protocol, type;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	protocol = BPF_CORE_READ(sk, sk_protocol);
	type = BPF_CORE_READ(sk, sk_type);
	if (family != INET && family != INET6)
		return 0;
	if (!((protocol == TCP && type == STREAM) || (protocol == UDP && type == DATAGRAM)))
		return 0;
	state = bpf_sk_storage_get(&sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!state)
		return 0;
	read_process(&event.process, task);
	if (!state->cookie) {
		state->cookie = bpf_get_socket_cookie(sk);
		state->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, net_cookie);
		state->user.start = event.process.start;
		state->user.id = event.process.id;
		state->user.exec = event.process.exec;
	}
	event.kind = EVENT_HOLDER;
	event.protocol = protocol;
	event.socket = state->cookie;
	event.netns = state->netns;
	if (protocol == TCP && BPF_CORE_READ(sk, __sk_common.skc_state) != LISTEN)
		read_ends(&event, sk);
	bpf_seq_write(ctx->meta->seq, &event, sizeof(event));
	return 0;
}
