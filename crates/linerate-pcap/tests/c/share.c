/* Handles on one interface that share its packets: share SENDER RECEIVER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include "sender.h"

#define PACKETS 200
/* The last one: when it has come, so have all. */
#define LAST 9999

static int ports[65536];
static char errbuf[PCAP_ERRBUF_SIZE];

static void note(u_char *count, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header;
	ports[bytes[36] << 8 | bytes[37]]++;
	++*(unsigned *)count;
}

static pcap_t *opened(const char *interface)
{
	pcap_t *made = pcap_open_live(interface, 65535, 1, 10, errbuf);
	struct bpf_program program;

	if (!made)
		printf("open: %s\n", errbuf), exit(2);
	if (pcap_compile(made, &program, "udp and src 10.0.0.1", 1, PCAP_NETMASK_UNKNOWN) ||
	    pcap_setfilter(made, &program))
		printf("filter: %s\n", pcap_geterr(made)), exit(2);
	pcap_freecode(&program);
	pcap_setnonblock(made, 1, errbuf);
	return made;
}

/* Sends, and reads `handles` until the last packet has come to one of them and nothing is left unread. */
static void pass(const char *what, pcap_t **handles, int number)
{
	time_t end = time(NULL) + 60;
	unsigned counts[2] = { 0, 0 }, received = 1;
	int once = 1;

	memset(ports, 0, sizeof(ports));
	for (int i = 0; i < PACKETS; i++)
		give(2000 + i);
	give(LAST);
	while ((!ports[LAST] || received != counts[0] + counts[1]) && time(NULL) < end) {
		struct pcap_stat stat;

		received = 0;
		for (int i = 0; i < number; i++) {
			pcap_dispatch(handles[i], -1, note, (u_char *)&counts[i]);
			pcap_stats(handles[i], &stat);
			received += stat.ps_recv;
		}
		usleep(1000);
	}
	for (int i = 0; i < PACKETS; i++)
		once &= ports[2000 + i] == 1;
	printf("%s: %u packets%s%s\n", what, counts[0] + counts[1], once ? ", each one once" : "",
	       counts[0] && counts[1] ? ", some to each" : "");
}

int main(int argc, char **argv)
{
	pcap_t *handles[3];

	if (argc < 3)
		return 2;
	open_sender(argv[1]);
	for (int count = 1; count <= 3; count++) {
		for (int i = 0; i < count; i++)
			handles[i] = opened(argv[2]);
		if (count == 1)
			pass("one alone", handles, 1);
		else if (count == 2)
			pass("two", handles, 2);
		else
			pass("the third", handles + 2, 1);
		for (int i = 0; i < count; i++)
			pcap_close(handles[i]);
	}
	/* Whoever stays gets all. */
	handles[0] = opened(argv[2]), handles[1] = opened(argv[2]);
	pcap_close(handles[0]);
	pass("one of two", handles + 1, 1);
	pcap_close(handles[1]);
	return 0;
}
