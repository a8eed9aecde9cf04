/* Opens, activates and closes a handle again and again, and counts what is left: descriptors, and memory of
 * the process. cycles INTERFACE TIMES */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/pcap.h>

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* KiB that the process has, by the kernel's word. */
static long resident(const char *name)
{
	char line[256];
	long kib = -1;
	FILE *file = fopen("/proc/self/status", "r");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			kib = atol(line + strlen(name) + 1);
	if (file)
		fclose(file);
	return kib;
}

static void ignore(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
	(void)user, (void)header, (void)bytes;
}

static int cycle(const char *interface)
{
	char errbuf[PCAP_ERRBUF_SIZE];
	struct bpf_program program;
	pcap_t *handle = pcap_create(interface, errbuf);

	pcap_set_timeout(handle, 10);
	if (pcap_activate(handle) < 0)
		return fprintf(stderr, "activate: %s\n", pcap_geterr(handle)), 1;
	if (pcap_compile(handle, &program, "udp", 1, PCAP_NETMASK_UNKNOWN) ||
	    pcap_setfilter(handle, &program))
		return fprintf(stderr, "filter: %s\n", pcap_geterr(handle)), 1;
	pcap_freecode(&program);
	pcap_get_selectable_fd(handle);
	pcap_setnonblock(handle, 1, errbuf);
	pcap_dispatch(handle, -1, ignore, NULL);
	pcap_close(handle);
	return 0;
}

int main(int argc, char **argv)
{
	int times = argc > 2 ? atoi(argv[2]) : 0, before;
	long memory, growth;

	/* What is made once is made now. */
	for (int i = 0; i < 10; i++)
		if (cycle(argv[1]))
			return 1;
	before = descriptors(), memory = resident("VmRSS");
	for (int i = 0; i < times; i++)
		if (cycle(argv[1]))
			return 1;
	growth = resident("VmRSS") - memory;
	printf("%d cycles, %d descriptors more, %ld KiB more\n", times, descriptors() - before, growth);
	return descriptors() != before || growth > 2048;
}
