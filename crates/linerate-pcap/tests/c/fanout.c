/* Two handles that share the packets of an interface by an option of their sockets: fanout SENDER RECEIVER */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <linux/if_packet.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include "sender.h"

#define PACKETS 200

static unsigned counts[2];

static void note(u_char *count, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)header, (void)bytes;
	++*(unsigned *)count;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	struct bpf_program program;
	pcap_t *handles[2];

	if (argc < 3)
		return 2;
	open_sender(argv[1]);
	for (int i = 0; i < 2; i++) {
		int turns = 4711 | PACKET_FANOUT_LB << 16;

		handles[i] = pcap_open_live(argv[2], 65535, 1, 10, errbuf);
		if (!handles[i] || pcap_compile(handles[i], &program, "udp and src 10.0.0.1", 1, PCAP_NETMASK_UNKNOWN) ||
		    pcap_setfilter(handles[i], &program))
			return 3;
		pcap_setnonblock(handles[i], 1, errbuf);
		if (setsockopt(pcap_fileno(handles[i]), SOL_PACKET, PACKET_FANOUT, &turns, sizeof(turns))) {
			printf("fanout: %s\n", strerror(errno));
			return 0;
		}
	}
	for (int i = 0; i < PACKETS; i++)
		give(2000 + i);
	for (int wait = 0; wait < 10000 && counts[0] + counts[1] < PACKETS; wait++, usleep(1000))
		for (int i = 0; i < 2; i++)
			pcap_dispatch(handles[i], -1, note, (u_char *)&counts[i]);
	printf("%u and %u\n", counts[0], counts[1]);
	return 0;
}
