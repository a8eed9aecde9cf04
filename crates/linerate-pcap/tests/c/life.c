/* What programs do with a handle beside reading it, on all sources: filters set by callbacks and by other
 * threads, privileges given up, processes forked, threads cancelled, callbacks that do not return. Run with
 * libpcap alone and with Linerate's, the output is to be the same.
 *
 * life SENDER RECEIVER: two ends of a veth pair in this namespace. */
#define _GNU_SOURCE
#include <net/ethernet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include "sender.h"

static const char *far;
static pcap_t *handle;
static char errbuf[PCAP_ERRBUF_SIZE];

static int port_of(const u_char *bytes)
{
	return bytes[36] << 8 | bytes[37];
}

static void filter(pcap_t *of, const char *text)
{
	struct bpf_program program;

	if (pcap_compile(of, &program, text, 1, PCAP_NETMASK_UNKNOWN) || pcap_setfilter(of, &program))
		printf("filter: %s\n", pcap_geterr(of)), exit(2);
	pcap_freecode(&program);
}

/* A handle that waits for packets of `text`. */
static pcap_t *opened(const char *text)
{
	pcap_t *made = pcap_open_live(far, 65535, 1, 10, errbuf);

	if (!made)
		printf("open: %s\n", errbuf), exit(2);
	filter(made, text);
	return made;
}

static int seen[8], count;

static void note(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user, (void)header;
	if (count < 8)
		seen[count] = port_of(bytes);
	count++;
}

/* Reads so many packets, and prints their ports. */
static void expect(const char *what, int wanted)
{
	count = 0;
	int status = pcap_loop(handle, wanted, note, NULL);

	printf("%s: %d", what, status);
	for (int i = 0; i < count && i < 8; i++)
		printf(" %d", seen[i]);
	printf("%s\n", status == PCAP_ERROR ? pcap_geterr(handle) : "");
}

/* -- filters --------------------------------------------------------------------------------------- */

static void exchange(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	note(user, header, bytes);
	filter(handle, "udp port 2003 or udp port 2004");
}

static void filters_of_callbacks(void)
{
	handle = opened("udp portrange 2000-2004");
	for (int port = 2000; port <= 2004; port++)
		give(port);
	count = 0;
	/* The first one sets the filter; it holds for those that wait behind it. */
	while (count < 1)
		pcap_dispatch(handle, 1, exchange, NULL);
	printf("first: %d\n", seen[0]);
	expect("then", 2);
	pcap_close(handle);
}

static void *loop_for_one(void *unused)
{
	(void)unused;
	expect("while another thread sets filters", 1);
	return NULL;
}

static void filters_of_threads(void)
{
	pthread_t thread;

	handle = opened("udp port 2100");
	pthread_create(&thread, NULL, loop_for_one, NULL);
	for (int i = 0; i < 4; i++) {
		filter(handle, i % 2 ? "udp port 2101" : "udp port 2102");
		usleep(20000);
	}
	filter(handle, "udp port 2103");
	give(2101), give(2102), give(2103);
	pthread_join(thread, NULL);
	pcap_close(handle);
}

static void without_privileges(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		handle = pcap_open_live(far, 65535, 1, 10, errbuf);
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			perror("setresuid"), _exit(2);
		filter(handle, "udp port 2200");
		give(2201), give(2200);
		expect("as nobody", 1);
		filter(handle, "udp port 2201");
		give(2200), give(2201);
		expect("as nobody, with another filter", 1);
		pcap_close(handle);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("child: %d\n", status);
}

/* Whether `handle` is readable, and `other` too where it is one. */
static int readable(int other, int seconds)
{
	int fd = pcap_get_selectable_fd(handle);
	struct timeval time = { .tv_sec = seconds };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	if (other >= 0)
		FD_SET(other, &set);
	return select((fd > other ? fd : other) + 1, &set, NULL, NULL, &time);
}

static void one_by_one(void)
{
	int ends[2];

	handle = opened("udp portrange 2250-2251");
	pcap_setnonblock(handle, 1, errbuf);
	for (int i = 0; i < 50; i++)
		give(2250);
	count = 0;
	while (count < 50 && readable(-1, 60) == 1)
		pcap_dispatch(handle, 1, note, NULL);
	printf("one by one: %d", count);
	printf(" then %d\n", readable(-1, 0));
	/* Two at least wait, of which one is read: the other descriptor is not forgotten over the second. */
	if (pipe(ends))
		return perror("pipe");
	while (count == 50) {
		give(2251), give(2251);
		usleep(50000);
		while (count == 50 && readable(-1, 60) == 1)
			pcap_dispatch(handle, 1, note, NULL);
	}
	printf("beside a pipe: %d", readable(ends[0], 60));
	if (write(ends[1], "x", 1) != 1)
		return perror("write");
	printf(", with something in it %d\n", readable(ends[0], 60));
	close(ends[0]), close(ends[1]);
	pcap_close(handle);
}

/* -- processes and threads ------------------------------------------------------------------------- */

static void forked(void)
{
	int status;

	handle = opened("udp port 2300");
	for (int closes = 0; closes < 2; closes++) {
		fflush(stdout);
		pid_t child = fork();

		if (!child) {
			if (closes)
				pcap_close(handle);
			_exit(0);
		}
		waitpid(child, &status, 0);
		give(2300);
		expect(closes ? "after a child closed it" : "after a child ended", 1);
	}
	pcap_close(handle);
}

/* The child reads on, as a daemon does that opens the handle before it forks. */
static void closed_by_the_parent(void)
{
	int ends[2], status;
	char byte;

	handle = opened("udp port 2301");
	if (pipe(ends))
		return perror("pipe");
	fflush(stdout);
	pid_t child = fork();

	if (!child) {
		close(ends[1]);
		alarm(120);
		/* Until the parent has closed both. */
		if (read(ends[0], &byte, 1))
			_exit(2);
		give(2301);
		expect("in a child whose parent closed it", 1);
		pcap_close(handle);
		fflush(stdout);
		_exit(0);
	}
	pcap_close(handle);
	close(ends[0]), close(ends[1]);
	waitpid(child, &status, 0);
	printf("child: %d\n", status);
}

static void *loop_for_ever(void *ready)
{
	__atomic_store_n((int *)ready, 1, __ATOMIC_RELEASE);
	pcap_loop(handle, -1, note, NULL);
	return NULL;
}

static void cancelled(void)
{
	pthread_t thread;
	void *result;
	int ready = 0;

	handle = opened("udp port 2400");
	pthread_create(&thread, NULL, loop_for_ever, &ready);
	while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
		usleep(1000);
	/* It sleeps now, or is about to: either is a place to end. */
	usleep(50000);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	printf("cancelled: %d\n", result == PTHREAD_CANCELED);
	give(2400);
	expect("by the next thread", 1);
	pcap_close(handle);
}

static void leave(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	*(int *)user = port_of(bytes);
	pthread_exit(user);
}

static void *loop_until_it_leaves(void *port)
{
	pcap_loop(handle, -1, leave, port);
	return NULL;
}

static void left(void)
{
	pthread_t thread;
	int port = 0;

	handle = opened("udp portrange 2500-2501");
	pthread_create(&thread, NULL, loop_until_it_leaves, &port);
	give(2500);
	pthread_join(thread, NULL);
	printf("left by a callback: %d\n", port);
	filter(handle, "udp port 2501");
	give(2501);
	expect("by the next thread", 1);
	pcap_close(handle);
}

/* -- handles of other kinds ------------------------------------------------------------------------ */

static void others(void)
{
	pcap_t *made = pcap_create(far, errbuf);
	struct pcap_stat stat;

	/* Not activated. */
	printf("loop %d", pcap_loop(made, 1, note, NULL));
	printf(" next_ex %d", pcap_next_ex(made, &(struct pcap_pkthdr *){ 0 }, &(const u_char *){ 0 }));
	printf(" stats %d", pcap_stats(made, &stat));
	printf(" sendpacket %d", pcap_sendpacket(made, (const u_char *)errbuf, 60));
	printf(" setfilter %d", pcap_setfilter(made, NULL));
	printf(" setnonblock %d\n", pcap_setnonblock(made, 1, errbuf));
	pcap_close(made);

	made = pcap_open_dead(DLT_EN10MB, 65535);
	pcap_breakloop(made);
	printf("dead: loop %d %s", pcap_loop(made, 1, note, NULL), pcap_geterr(made));
	printf(" next %d", pcap_next(made, &(struct pcap_pkthdr){ 0 }) != NULL);
	printf(" stats %d", pcap_stats(made, &stat));
	printf(" inject %d", pcap_inject(made, errbuf, 60));
	printf(" direction %d", pcap_setdirection(made, PCAP_D_IN));
	printf(" fileno %d selectable %d\n", pcap_fileno(made), pcap_get_selectable_fd(made));
	pcap_close(made);

	/* A file, broken off before it is read, and read. */
	pcap_t *dead = pcap_open_dead(DLT_EN10MB, 65535);
	pcap_dumper_t *dumper = pcap_dump_open(dead, "life.pcap");
	struct pcap_pkthdr header = { .caplen = 60, .len = 60 };
	unsigned char frame[60] = { 0 };

	frame[36] = 2600 >> 8, frame[37] = 2600 & 255;
	pcap_dump((u_char *)dumper, &header, frame);
	pcap_dump_close(dumper);
	pcap_close(dead);
	handle = pcap_open_offline("life.pcap", errbuf);
	pcap_breakloop(handle);
	expect("a file, broken off", -1);
	expect("a file", -1);
	printf("at its end: %d\n", pcap_next_ex(handle, &(struct pcap_pkthdr *){ 0 }, &(const u_char *){ 0 }));
	pcap_close(handle);

	/* A name as long as the buffer for the error. */
	char name[300];
	memset(name, 'x', sizeof(name) - 1), name[sizeof(name) - 1] = 0;
	memset(errbuf, 0, sizeof(errbuf));
	made = pcap_open_live(name, 65535, 1, 10, errbuf);
	printf("a long name: %d %zu\n", made != NULL, strlen(errbuf));
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	far = argv[2];
	open_sender(argv[1]);
	printf("-- filters of callbacks\n"), filters_of_callbacks();
	printf("-- filters of threads\n"), filters_of_threads();
	printf("-- without privileges\n"), without_privileges();
	printf("-- one by one\n"), one_by_one();
	printf("-- forked\n"), forked();
	printf("-- closed by the parent\n"), closed_by_the_parent();
	printf("-- cancelled\n"), cancelled();
	printf("-- left\n"), left();
	printf("-- others\n"), others();
	printf("-- end\n");
	return 0;
}
