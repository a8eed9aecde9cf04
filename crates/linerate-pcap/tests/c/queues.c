/* Packets of several receive queues behind one handle, in the order of their time stamps:
 * queues SENDER RECEIVER */
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>

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
	struct sockaddr_ll address = { .sll_family = AF_PACKET };
	unsigned char frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0,
				    0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
				    0x10, 0, 0, 0, 0, 26 };
	char errbuf[PCAP_ERRBUF_SIZE];
	int sender = socket(AF_PACKET, SOCK_RAW, 0), complete = 0, ordered = 0;
	pcap_t *handle;

	if (argc < 3)
		return 2;
	address.sll_ifindex = if_nametoindex(argv[1]);
	if (bind(sender, (struct sockaddr *)&address, sizeof(address)))
		return perror("bind"), 2;
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
		for (int port = 0; port < PACKETS; port++) {
			frame[36] = port >> 8, frame[37] = port;
			if (send(sender, frame, sizeof(frame), 0) != sizeof(frame))
				return perror("send"), 2;
		}
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
