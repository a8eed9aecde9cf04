/* Calls every function of libpcap's live-capture interface, in the order of a program's life, and prints
 * what comes of it. Run with libpcap alone and with Linerate's, the output is to be the same.
 *
 * calls SENDER RECEIVER [in]: two ends of a veth pair in this namespace; `in` leaves out what goes out. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>

static const char *near, *far;
static int sender;
static pcap_t *handle;

/* -- frames ---------------------------------------------------------------------------------------- */

static unsigned char frame[20000];

/* A UDP datagram to `port` with `len` bytes of payload, tagged with VLAN `vlan` unless that is 0. */
static int datagram(int port, int len, int vlan)
{
	unsigned char *at = frame;

	memset(frame, 0, sizeof(frame));
	memset(at, 0xff, 6), at += 6;
	memcpy(at, "\x02\0\0\0\0\x01", 6), at += 6;
	if (vlan)
		*at++ = 0x81, *at++ = 0, *at++ = vlan >> 8, *at++ = vlan;
	*at++ = 8, *at++ = 0;
	at[0] = 0x45, at[2] = (28 + len) >> 8, at[3] = 28 + len, at[8] = 64, at[9] = 17;
	memcpy(at + 12, "\x0a\0\0\x01\x0a\0\0\x02", 8), at += 20;
	at[0] = 0x10, at[2] = port >> 8, at[3] = port, at[4] = (8 + len) >> 8, at[5] = 8 + len, at += 8;
	for (int i = 0; i < len; i++)
		*at++ = i;
	return at - frame;
}

static void give(int port, int len, int vlan)
{
	int size = datagram(port, len, vlan);

	if (send(sender, frame, size, 0) != size)
		perror("send"), exit(2);
}

/* -- what comes ------------------------------------------------------------------------------------ */

static int seen, quiet;

static void note(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < header->caplen; i++)
		sum = sum * 31 + bytes[i];
	if (!quiet)
		printf("  %s packet: caplen %u len %u sum %08x stamped %d\n", (char *)user, header->caplen,
		       header->len, sum,
		       labs(time(NULL) - header->ts.tv_sec) < 60 && header->ts.tv_usec >= 0);
	seen++;
}

static void note_and_break(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	note(user, header, bytes);
	pcap_breakloop(handle);
}

static int readable(int milliseconds)
{
	struct pollfd fd = { .fd = pcap_get_selectable_fd(handle), .events = POLLIN };

	return poll(&fd, 1, milliseconds) == 1 && fd.revents & POLLIN;
}

/* Reads until `wanted` packets were seen, in a handle that does not block. */
static void collect(const char *what, int wanted)
{
	time_t end = time(NULL) + 60;

	seen = 0;
	while (seen < wanted && time(NULL) < end)
		if (readable(100) && pcap_dispatch(handle, -1, note, (u_char *)what) < 0)
			break;
	printf("%s: %d of %d\n", what, seen, wanted);
}

static void say(const char *what, int status)
{
	printf("%s: %d%s%s\n", what, status, status < 0 ? " " : "",
	       status < 0 && handle ? pcap_geterr(handle) : "");
}

static void filter(const char *text)
{
	struct bpf_program program;

	say("compile", pcap_compile(handle, &program, text, 1, PCAP_NETMASK_UNKNOWN));
	say("setfilter", pcap_setfilter(handle, &program));
	pcap_freecode(&program);
}

/* -- the chapters ---------------------------------------------------------------------------------- */

static void before_activation(void)
{
	struct pcap_stat stat;
	struct pcap_pkthdr *header;
	const u_char *bytes;
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int *list;

	say("dispatch", pcap_dispatch(handle, 1, note, NULL));
	say("next_ex", pcap_next_ex(handle, &header, &bytes));
	say("stats", pcap_stats(handle, &stat));
	say("datalink", pcap_datalink(handle));
	say("snapshot", pcap_snapshot(handle));
	say("setdirection", pcap_setdirection(handle, PCAP_D_IN));
	say("inject", pcap_inject(handle, frame, 60));
	say("fileno", pcap_fileno(handle));
	say("selectable", pcap_get_selectable_fd(handle));
	say("list_datalinks", pcap_list_datalinks(handle, &list));
	say("tstamp types", pcap_list_tstamp_types(handle, &list));
	pcap_free_tstamp_types(list);
	say("can_set_rfmon", pcap_can_set_rfmon(handle));
	printf("getnonblock: %d %s\n", pcap_getnonblock(handle, errbuf), errbuf);
}

static void setters(void)
{
	say("snaplen", pcap_set_snaplen(handle, 300));
	say("promisc", pcap_set_promisc(handle, 1));
	say("timeout", pcap_set_timeout(handle, 10));
	say("buffer", pcap_set_buffer_size(handle, 1 << 20));
	say("buffer 0", pcap_set_buffer_size(handle, 0));
	say("immediate", pcap_set_immediate_mode(handle, 0));
	say("tstamp -1", pcap_set_tstamp_type(handle, -1));
	say("tstamp 77", pcap_set_tstamp_type(handle, 77));
	say("tstamp host", pcap_set_tstamp_type(handle, PCAP_TSTAMP_HOST));
	say("precision 9", pcap_set_tstamp_precision(handle, 9));
	say("precision micro", pcap_set_tstamp_precision(handle, PCAP_TSTAMP_PRECISION_MICRO));
	say("rfmon", pcap_set_rfmon(handle, 0));
}

static void after_activation(void)
{
	int *list, count;
	char errbuf[PCAP_ERRBUF_SIZE] = "";

	say("activate again", pcap_activate(handle));
	setters();
	printf("datalink %d ext %d snapshot %d swapped %d version %d.%d precision %d\n",
	       pcap_datalink(handle), pcap_datalink_ext(handle), pcap_snapshot(handle),
	       pcap_is_swapped(handle), pcap_major_version(handle), pcap_minor_version(handle),
	       pcap_get_tstamp_precision(handle));
	printf("bufsize %d file %d\n", pcap_bufsize(handle) > 0, pcap_file(handle) != NULL);
	count = pcap_list_datalinks(handle, &list);
	for (int i = 0; i < count; i++)
		printf("  link type %d %s\n", list[i], pcap_datalink_val_to_name(list[i]));
	pcap_free_datalinks(list);
	say("set_datalink", pcap_set_datalink(handle, DLT_EN10MB));
	say("set_datalink of another", pcap_set_datalink(handle, DLT_RAW));
	say("required timeout", pcap_get_required_select_timeout(handle) != NULL);
	say("fileno", pcap_fileno(handle) >= 0);
	say("same", pcap_fileno(handle) == pcap_get_selectable_fd(handle));
	printf("getnonblock: %d %s\n", pcap_getnonblock(handle, errbuf), errbuf);
	printf("setnonblock: %d %s\n", pcap_setnonblock(handle, 1, errbuf), errbuf);
	printf("getnonblock: %d %s\n", pcap_getnonblock(handle, errbuf), errbuf);
}

static void nothing_there(void)
{
	struct pcap_pkthdr header, *at;
	const u_char *bytes;

	say("dispatch", pcap_dispatch(handle, -1, note, NULL));
	say("next_ex", pcap_next_ex(handle, &at, &bytes));
	say("next", pcap_next(handle, &header) != NULL);
	say("readable", readable(0));
}

static void reading(void)
{
	static const int lengths[] = { 0, 18, 200, 258, 259, 1000, 1400 };
	struct pcap_pkthdr header, *at;
	const u_char *bytes;
	struct pcap_stat stat;

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		give(7000 + i, lengths[i], 0);
	collect("lengths", sizeof(lengths) / sizeof(*lengths));
	say("stats", pcap_stats(handle, &stat));
	printf("received %u dropped %u by interface %u\n", stat.ps_recv, stat.ps_drop, stat.ps_ifdrop);
	for (int i = 0; i < 5; i++)
		give(7100 + i, 20, 0);
	seen = 0;
	for (time_t end = time(NULL) + 60; seen < 5 && time(NULL) < end;)
		if (readable(100) && pcap_dispatch(handle, 2, note, (u_char *)"two at most") > 2)
			printf("more than asked for\n");
	for (int i = 0; i < 3; i++)
		give(7200 + i, 30, 0);
	for (int i = 0; i < 3; i++) {
		while (pcap_next_ex(handle, &at, &bytes) == 0)
			readable(100);
		note((u_char *)"next_ex", at, bytes);
	}
	/* The descriptor does not tell of a packet that the program has. */
	say("readable after the last", readable(0));
	give(7300, 40, 0);
	while (!(bytes = pcap_next(handle, &header)))
		readable(100);
	note((u_char *)"next", &header, bytes);
	say("readable after the last", readable(0));
	/* The next packet wakes a program that has looked in vain, and has the descriptor from before. */
	struct pollfd kept = { .fd = pcap_get_selectable_fd(handle), .events = POLLIN };

	for (int i = 0; i < 3; i++) {
		say("next_ex for nothing", pcap_next_ex(handle, &at, &bytes));
		give(7310 + i, 40, 0);
		say("woken", poll(&kept, 1, 20000));
		while (pcap_next_ex(handle, &at, &bytes) == 0)
			readable(100);
		note((u_char *)"next_ex", at, bytes);
	}
}

static void waiting(void)
{
	int epoll = epoll_create1(0), fd = pcap_get_selectable_fd(handle);
	struct epoll_event event = { .events = EPOLLIN };
	struct timeval patience = { .tv_sec = 20 };
	fd_set set;

	give(7400, 50, 0);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	say("select", select(fd + 1, &set, NULL, NULL, &patience));
	collect("after select", 1);
	say("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	say("epoll_wait for nothing", epoll_wait(epoll, &event, 1, 0));
	give(7401, 60, 0);
	say("epoll_wait", epoll_wait(epoll, &event, 1, 20000));
	collect("after epoll", 1);
	close(epoll);
}

static void filters(void)
{
	struct bpf_program bad = { 0, NULL };
	struct bpf_insn jump[] = { { 0x15, 200, 0, 0 }, { 6, 0, 0, 1 } };

	say("setfilter NULL", pcap_setfilter(handle, NULL));
	bad.bf_len = 2, bad.bf_insns = jump;
	say("setfilter bad", pcap_setfilter(handle, &bad));
	filter("udp port 7501");
	for (int i = 0; i < 4; i++)
		give(7500 + i % 2, 20 + i, 0);
	collect("udp port 7501", 2);
	filter("vlan 5");
	give(7500, 20, 0), give(7500, 21, 5), give(7501, 22, 6), give(7500, 23, 5);
	collect("vlan 5", 2);
	filter("vlan 6 and udp port 7501");
	give(7501, 20, 0), give(7501, 21, 5), give(7501, 22, 6), give(7502, 23, 6);
	collect("vlan 6 and udp port 7501", 1);
	filter("udp port 7502");
	give(7502, 20, 0), give(7502, 21, 5), give(7503, 22, 6);
	collect("udp port 7502, tagged or not", 2);
	filter("udp and greater 200 and less 400");
	give(7504, 10, 0), give(7504, 200, 0), give(7504, 200, 9), give(7504, 500, 0);
	collect("greater and less", 2);
	/* What waits when another filter comes passes both. */
	filter("udp");
	give(7601, 10, 0), give(7602, 11, 0);
	readable(60000);
	filter("udp port 7602 or udp port 7603");
	give(7601, 12, 0), give(7603, 13, 0);
	collect("under two filters", 2);
	filter("");
}

static void directions(int in_only)
{
	say("setdirection 9", pcap_setdirection(handle, 9));
	if (!in_only) {
		int out = socket(AF_PACKET, SOCK_RAW, 0), size;
		struct sockaddr_ll to = { .sll_family = AF_PACKET,
					  .sll_ifindex = if_nametoindex(far) };

		bind(out, (struct sockaddr *)&to, sizeof(to));
		for (int direction = 0; direction < 3; direction++) {
			say("setdirection", pcap_setdirection(handle, direction));
			size = datagram(7700, 10, 0);
			if (send(out, frame, size, 0) != size)
				perror("send");
			give(7701, 11, 0);
			collect("direction", direction == PCAP_D_INOUT ? 2 : 1);
		}
		close(out);
	}
	say("setdirection in", pcap_setdirection(handle, PCAP_D_IN));
	say("setdirection both", pcap_setdirection(handle, PCAP_D_INOUT));
}

static void sending(void)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	int size = datagram(7800, 100, 0), count = 0;
	pcap_t *ours = handle;
	char errbuf[PCAP_ERRBUF_SIZE];

	say("inject", pcap_inject(handle, frame, size));
	say("sendpacket", pcap_sendpacket(handle, frame, size));
	/* libpcap adds the text of whatever errno is. */
	printf("inject nothing: %d\n", pcap_inject(handle, frame, 0));
	printf("sendpacket nothing: %d\n", pcap_sendpacket(handle, frame, 0));
	say("inject too much", pcap_inject(handle, frame, 5000));
	say("sendpacket too much", pcap_sendpacket(handle, frame, 5000));
	/* A handle does not see what it sends. What the sender gives now comes behind it. */
	give(7801, 12, 0);
	for (time_t end = time(NULL) + 60; count < 1 && time(NULL) < end;)
		if (readable(100) && pcap_next_ex(handle, &header, &bytes) == 1)
			count++, note((u_char *)"after sending", header, bytes);
	/* The other end does. */
	handle = pcap_open_live(near, 65535, 1, 10, errbuf);
	filter("udp port 7802");
	pcap_setnonblock(handle, 1, errbuf);
	datagram(7802, 33, 0);
	say("inject", pcap_inject(ours, frame, 75));
	collect("at the other end", 1);
	pcap_close(handle);
	handle = ours;
}

static void *breaker(void *unused)
{
	(void)unused;
	usleep(100000);
	pcap_breakloop(handle);
	return NULL;
}

static void on_alarm(int signal)
{
	(void)signal;
	pcap_breakloop(handle);
}

static void *feeder(void *stop)
{
	for (int i = 0; !*(_Atomic int *)stop; i++) {
		give(7900, i % 100, 0);
		usleep(2000);
	}
	return NULL;
}

static void breaking(void)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	struct sigaction action = { .sa_handler = on_alarm };
	struct pcap_pkthdr *header;
	const u_char *bytes;
	pthread_t thread;
	_Atomic int stop = 0;

	say("setnonblock", pcap_setnonblock(handle, 0, errbuf));
	quiet = 1;
	pthread_create(&thread, NULL, breaker, NULL);
	say("loop until a thread breaks it", pcap_loop(handle, -1, note, NULL));
	pthread_join(thread, NULL);
	sigaction(SIGALRM, &action, NULL);
	alarm(1);
	say("loop until a signal breaks it", pcap_loop(handle, -1, note, NULL));
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	alarm(1);
	say("next_ex until a signal breaks it", pcap_next_ex(handle, &header, &bytes));
	pcap_breakloop(handle);
	say("a break before the call", pcap_dispatch(handle, -1, note, NULL));
	pthread_create(&thread, NULL, feeder, &stop);
	seen = 0;
	say("loop of 20", pcap_loop(handle, 20, note, NULL));
	printf("seen %d\n", seen);
	seen = 0;
	say("a callback breaks", pcap_loop(handle, -1, note_and_break, NULL));
	printf("seen %d\n", seen);
	say("next_ex that waits", pcap_next_ex(handle, &header, &bytes));
	say("dispatch that waits", pcap_dispatch(handle, -1, note, NULL) > 0);
	stop = 1;
	pthread_join(thread, NULL);
	quiet = 0;
}

static void errors(void)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";

	handle = pcap_create("nosuch0", errbuf);
	say("activate nosuch0", pcap_activate(handle));
	printf("  %s\n", pcap_statustostr(PCAP_ERROR_NO_SUCH_DEVICE));
	pcap_perror(handle, "perror");
	pcap_close(handle);
	handle = NULL;
	printf("open_live: %d %s\n", pcap_open_live("nosuch0", 100, 0, 10, errbuf) != NULL, errbuf);
	errbuf[0] = 0;
	handle = pcap_open_live("lo", 100, 0, 10, errbuf);
	printf("open_live lo: %d %s\n", handle != NULL, errbuf);
	pcap_close(handle);
	handle = pcap_open_live("any", 100, 0, 10, errbuf);
	printf("open_live any: %d link type %d\n", handle != NULL, pcap_datalink(handle));
	pcap_close(handle);
	handle = pcap_open_dead(DLT_EN10MB, 100);
	filter("tcp");
	say("stats of a dead one", pcap_dispatch(handle, 1, note, NULL));
	pcap_close(handle);
	handle = NULL;
}

static void precisions(void)
{
	char errbuf[PCAP_ERRBUF_SIZE];

	for (int precision = 0; precision < 2; precision++) {
		handle = pcap_create(far, errbuf);
		pcap_set_tstamp_precision(handle, precision);
		/* libpcap cuts two bytes more than the snap length says in this mode. */
		pcap_set_immediate_mode(handle, !precision);
		pcap_set_snaplen(handle, precision ? 60 : 0);
		pcap_set_timeout(handle, 10);
		say("activate", pcap_activate(handle));
		printf("precision %d snapshot %d\n", pcap_get_tstamp_precision(handle),
		       pcap_snapshot(handle));
		filter("udp port 8000");
		pcap_setnonblock(handle, 1, errbuf);
		give(8000, 100, 0), give(8000, 100, 3);
		collect("precision", 2);
		pcap_close(handle);
	}
	handle = NULL;
}

static void gone(void)
{
	char errbuf[PCAP_ERRBUF_SIZE], command[100];

	handle = pcap_open_live(far, 65535, 1, 10, errbuf);
	filter("udp port 8100");
	snprintf(command, sizeof(command), "(sleep 0.3; ip link del %s) &", far);
	if (system(command))
		perror("system");
	say("loop until the interface goes", pcap_loop(handle, -1, note, (u_char *)"gone"));
	pcap_close(handle);
	handle = NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET };
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	int in_only = argc > 3;

	if (argc < 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	near = argv[1], far = argv[2];
	sender = socket(AF_PACKET, SOCK_RAW, 0);
	address.sll_ifindex = if_nametoindex(near);
	if (bind(sender, (struct sockaddr *)&address, sizeof(address)))
		return perror("bind"), 2;

	printf("-- errors\n"), errors();
	handle = pcap_create(far, errbuf);
	printf("-- before activation\n"), before_activation(), setters();
	say("activate", pcap_activate(handle));
	printf("-- after activation\n"), after_activation();
	filter("udp");
	printf("-- nothing there\n"), nothing_there();
	printf("-- reading\n"), reading();
	printf("-- waiting\n"), waiting();
	printf("-- filters\n"), filters();
	filter("udp");
	printf("-- directions\n"), directions(in_only);
	printf("-- sending\n"), sending();
	printf("-- breaking\n"), breaking();
	pcap_close(handle);
	printf("-- precisions\n"), precisions();
	printf("-- gone\n"), gone();
	return 0;
}
