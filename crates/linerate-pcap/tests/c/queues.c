/* Packets of several receive queues behind one handle, in the order of their timestamps:
 * queues SENDER RECEIVER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include "sender.h"

#define PACKETS 400

static struct timeval last;
static int disordered, count;

static void note(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user, (void)bytes;
	disordered += timercmp(&header->ts, &last, <);
	last = header->ts;
	count++;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	int complete = 0, ordered = 0;
	pcap_t *handle;

	if (argc < 3)
		return 2;
	open_sender(argv[1]);
	handle = pcap_create(argv[2], errbuf);
	pcap_set_tstamp_precision(handle, PCAP_TSTAMP_PRECISION_NANO);
	if (pcap_activate(handle) < 0)
		return printf("activate: %s\n", pcap_geterr(handle)), 2;
	pcap_setnonblock(handle, 1, errbuf);
	/* What one queue still gets while another is read may be older than what was read. So all is sent
	 * first; and where the last of it came late after all, it is done again. */
	for (int i = 0; i < 20 && !(complete && ordered); i++) {
		time_t end = time(NULL) + 60;

		disordered = count = 0;
		for (int port = 0; port < PACKETS; port++)
			give(port);
		usleep(100000);
		while (count < PACKETS && time(NULL) < end)
			if (!pcap_dispatch(handle, -1, note, NULL))
				usleep(1000);
		complete = count == PACKETS, ordered = !disordered;
	}
	printf("complete %d ordered %d\n", complete, ordered);
	pcap_close(handle);
	return 0;
}
