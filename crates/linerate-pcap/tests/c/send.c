/* Sends the packets of a file, a millisecond apart, so many times. send INTERFACE FILE TIMES */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <pcap/pcap.h>

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	struct pcap_pkthdr *header;
	const u_char *bytes;
	pcap_t *from, *to;

	if (argc < 4)
		return 2;
	to = pcap_open_live(argv[1], 64, 0, 1000, errbuf);
	for (int i = 0; to && i < atoi(argv[3]); i++) {
		from = pcap_open_offline(argv[2], errbuf);
		if (!from)
			break;
		while (pcap_next_ex(from, &header, &bytes) == 1) {
			/* The queue of a busy host may be full for a moment. */
			for (int tries = 0; pcap_sendpacket(to, bytes, header->caplen); tries++) {
				if (errno != ENOBUFS || tries == 1000)
					return pcap_perror(to, "send"), 1;
				usleep(1000);
			}
			usleep(1000);
		}
		pcap_close(from);
	}
	if (*errbuf)
		return fprintf(stderr, "%s\n", errbuf), 1;
	pcap_close(to);
	return 0;
}
