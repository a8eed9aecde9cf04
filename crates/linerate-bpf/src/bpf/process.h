/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What process.bpf.c shares with src/process.rs. Integers are in host order, addresses in network order. */
#ifndef LINERATE_PROCESS_H
#define LINERATE_PROCESS_H

#include <linux/types.h>

/* Bytes of a command line, its arguments with a zero after each. */
#define ARGUMENTS_LEN 256

struct process {
	__u64 start; /* nanoseconds since boot: with the id this is no other process */
	__u32 id;    /* in the initial PID namespace */
	__u32 exec;  /* changes with the program */
	__u64 cgroup;
	__u32 uid;
	char name[16];
	__u32 reserved;
};

enum event_kind {
	EVENT_PROCESS, /* a process, with its arguments, before its first other event */
	EVENT_SOCKET,  /* it made a socket */
	EVENT_FLOW,    /* packets of these ends are of this socket */
	EVENT_USE,     /* a process accepted the socket, or uses it after another one */
	EVENT_RELEASE, /* the last descriptor of the socket is closed */
	EVENT_FORK,    /* a process has a child, which has its sockets, too */
	EVENT_HOLDER,  /* of the iterator: a process has a descriptor of the socket */
};

struct event {
	__u64 time;   /* nanoseconds of CLOCK_TAI */
	__u64 socket; /* cookie */
	__u64 parent; /* of a new connection: cookie of the listening socket, or NO_PARENT */
	__u64 netns;  /* cookie */
	struct process process;
	__u8 kind;
	__u8 protocol;
	__u16 local_port;
	__u16 remote_port;
	__u16 arguments; /* bytes that follow, of EVENT_PROCESS */
	__u8 local[16];  /* IPv4 addresses are mapped */
	__u8 remote[16];
};

_Static_assert(sizeof(struct event) == 120, "event is 120 bytes");

#endif
