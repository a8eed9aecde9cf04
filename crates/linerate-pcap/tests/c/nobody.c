/* A program that compiles and sets its filter after it has given up its privileges:
 * nobody INTERFACE FILTER PACKETS */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <pcap/pcap.h>

static int count;

static void note(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user, (void)header, (void)bytes;
	count++;
}

int main(int argc, char **argv)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	struct bpf_program program;
	struct pcap_stat stat;
	pcap_t *handle;

	if (argc < 4)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	handle = pcap_open_live(argv[1], 65535, 1, 10, errbuf);
	if (!handle)
		return printf("open: %s\n", errbuf), 2;
	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		return perror("setresuid"), 2;
	if (pcap_compile(handle, &program, argv[2], 1, PCAP_NETMASK_UNKNOWN) ||
	    pcap_setfilter(handle, &program))
		return printf("filter: %s\n", pcap_geterr(handle)), 1;
	printf("ready\n");
	if (pcap_loop(handle, atoi(argv[3]), note, NULL) || pcap_stats(handle, &stat))
		return printf("loop: %s\n", pcap_geterr(handle)), 2;
	printf("%d packets, %u received by filter\n", count, stat.ps_recv);
	pcap_close(handle);
	return 0;
}
