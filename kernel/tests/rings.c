/* A program that makes packet sockets itself, with rings: what they do must not depend on what they are made of.
 * Prints what happened, and the size of the pages that each mapping has. Packets go over the loopback interface. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAMES 100
#define BLOCK 65536
#define FRAME 2048

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

/* A ring and its place; TPACKET_V2, a frame in a slot. */
struct ring {
	int fd, port;
	unsigned int receive, transmit;	/* blocks */
	uint8_t *at;
	unsigned int next;
};

static size_t length(const struct ring *ring)
{
	return (size_t)(ring->receive + ring->transmit) * BLOCK;
}

static int request(int fd, int option, unsigned int blocks)
{
	struct tpacket_req req = { .tp_block_size = BLOCK, .tp_block_nr = blocks, .tp_frame_size = FRAME,
				   .tp_frame_nr = blocks * (BLOCK / FRAME) };

	return setsockopt(fd, SOL_PACKET, option, &req, sizeof(req));
}

/* Receives datagrams to the port. */
static void bound(int fd, int port)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ETH_HLEN + 9),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, ETH_HLEN + sizeof(struct iphdr) + 2),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0xffff),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog filter = { sizeof(steps) / sizeof(*steps), steps };
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP),
				       .sll_ifindex = if_nametoindex("lo") };

	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)))
		fail("filter");
	if (bind(fd, (void *)&address, sizeof(address)))
		fail("bind");
}

static void make(struct ring *ring, int port, unsigned int receive, unsigned int transmit)
{
	int version = TPACKET_V2;

	*ring = (struct ring){ .port = port, .receive = receive, .transmit = transmit };
	ring->fd = socket(AF_PACKET, SOCK_RAW, 0);
	if (ring->fd < 0)
		fail("socket");
	if (setsockopt(ring->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)))
		fail("version");
	if (request(ring->fd, PACKET_RX_RING, receive))
		fail("receive ring");
	if (transmit && request(ring->fd, PACKET_TX_RING, transmit))
		fail("transmit ring");
	bound(ring->fd, port);
}

static void map(struct ring *ring)
{
	ring->at = mmap(NULL, length(ring), PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (ring->at == MAP_FAILED)
		fail("mmap");
}

static void unmap(struct ring *ring)
{
	if (munmap(ring->at, length(ring)))
		fail("munmap");
	ring->at = NULL;
}

/* KiB of a page of the mapping there, or of what an entry of the page tables maps at once. */
static int pages(const void *at)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[256];
	unsigned long start, end;
	int inside = 0, size = 0, entries = 0;

	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = (unsigned long)at >= start && (unsigned long)at < end;
		else if (inside && !sscanf(line, "KernelPageSize: %d", &size))
			sscanf(line, "FilePmdMapped: %d", &entries);
	}
	fclose(file);
	return entries ? 2048 : size;
}

static int free_pages(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[256];
	int free = 0, reserved = 0;

	while (fgets(line, sizeof(line), file)) {
		sscanf(line, "HugePages_Free: %d", &free);
		sscanf(line, "HugePages_Rsvd: %d", &reserved);
	}
	fclose(file);
	return free - reserved;
}

static void send_datagrams(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	for (uint32_t number = 0; number < FRAMES; number++)
		sendto(fd, &number, sizeof(number), 0, (void *)&to, sizeof(to));
	close(fd);
}

/* How many datagrams have come, each once and in their order; waits a while for so many. */
static int received(struct ring *ring, uint32_t wanted)
{
	uint32_t expected = 0;
	unsigned int slots = ring->receive * (BLOCK / FRAME);

	for (int patience = 10000;;) {
		struct tpacket2_hdr *frame = (void *)(ring->at + (size_t)ring->next * FRAME);
		struct udphdr *udp = (void *)((uint8_t *)frame + frame->tp_net + sizeof(struct iphdr));
		uint32_t number;

		if (!(atomic_load((_Atomic uint32_t *)&frame->tp_status) & TP_STATUS_USER)) {
			if (expected >= wanted || !patience--)
				break;
			usleep(1000);
			continue;
		}
		memcpy(&number, udp + 1, sizeof(number));
		if (number != expected++)
			return -1;
		atomic_store((_Atomic uint32_t *)&frame->tp_status, TP_STATUS_KERNEL);
		ring->next = (ring->next + 1) % slots;
	}
	return expected;
}

static void report(const char *what, struct ring *ring, uint32_t wanted)
{
	printf("%s: %d", what, received(ring, wanted));
	printf(", pages of %d kB\n", pages(ring->at));
}

/* Sends frames by the transmit ring: what the kernel says of them. */
static int transmitted(struct ring *ring)
{
	uint8_t *slots = ring->at + (size_t)ring->receive * BLOCK;
	int count = 0;

	for (uint32_t number = 0; number < 10; number++) {
		struct tpacket2_hdr *frame = (void *)(slots + (size_t)number * FRAME);
		uint8_t *data = (uint8_t *)frame + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll);
		struct iphdr ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP,
				    .tot_len = htons(sizeof(struct iphdr) + sizeof(struct udphdr) + 4),
				    .saddr = htonl(INADDR_LOOPBACK), .daddr = htonl(INADDR_LOOPBACK) };
		struct udphdr udp = { .dest = htons(ring->port), .len = htons(sizeof(udp) + 4) };

		memset(data, 0, ETH_HLEN);
		data[13] = 0x00;
		data[12] = 0x08;
		memcpy(data + ETH_HLEN, &ip, sizeof(ip));
		memcpy(data + ETH_HLEN + sizeof(ip), &udp, sizeof(udp));
		memcpy(data + ETH_HLEN + sizeof(ip) + sizeof(udp), &number, sizeof(number));
		frame->tp_len = ETH_HLEN + sizeof(ip) + sizeof(udp) + 4;
		atomic_store((_Atomic uint32_t *)&frame->tp_status, TP_STATUS_SEND_REQUEST);
	}
	if (send(ring->fd, NULL, 0, 0) < 0)
		fail("send");
	for (uint32_t number = 0; number < 10; number++) {
		struct tpacket2_hdr *frame = (void *)(slots + (size_t)number * FRAME);

		count += frame->tp_status == TP_STATUS_AVAILABLE;
	}
	return count;
}

static void alone(void)
{
	struct ring ring;
	void *second;

	make(&ring, 9001, 32, 0);
	map(&ring);
	send_datagrams(ring.port);
	report("one ring", &ring, FRAMES);
	second = mmap(NULL, length(&ring), PROT_READ, MAP_SHARED, ring.fd, 0);
	printf("mapped twice: %s", second == MAP_FAILED ? "no" : "yes");
	printf(", unmapped once: %d", munmap(second, length(&ring)));
	send_datagrams(ring.port);
	printf(", received: %d\n", received(&ring, FRAMES));
	unmap(&ring);
	send_datagrams(ring.port);
	map(&ring);
	printf("mapped again: %d\n", received(&ring, FRAMES));
	unmap(&ring);
	close(ring.fd);
}

static void both(unsigned int receive)
{
	struct ring ring;

	make(&ring, 9002, receive, 32);
	map(&ring);
	send_datagrams(ring.port);
	printf("two rings: %d", received(&ring, FRAMES));
	printf(", transmitted: %d", transmitted(&ring));
	report(", came back", &ring, 10);
	unmap(&ring);
	if (request(ring.fd, PACKET_TX_RING, 0))
		fail("release");
	ring.transmit = 0;
	map(&ring);
	send_datagrams(ring.port);
	printf("the one that is left: %d\n", received(&ring, FRAMES));
	unmap(&ring);
	close(ring.fd);
}

static void *some(void *first)
{
	struct ring rings[5];
	long wrong = 0;

	for (int i = 0; i < 5; i++) {
		make(&rings[i], 9100 + (int)(long)first + i, 48, 0);
		map(&rings[i]);
		send_datagrams(rings[i].port);
	}
	for (int i = 4; i >= 0; i--) {
		wrong += received(&rings[i], FRAMES) != FRAMES;
		/* Half of them are unmapped after they are closed. */
		if (i % 2)
			close(rings[i].fd);
		unmap(&rings[i]);
		if (!(i % 2))
			close(rings[i].fd);
	}
	return (void *)wrong;
}

static void threads(void)
{
	pthread_t all[4];
	long wrong = 0;
	void *result;

	for (long i = 0; i < 4; i++)
		pthread_create(&all[i], NULL, some, (void *)(i * 5));
	for (int i = 0; i < 4; i++) {
		pthread_join(all[i], &result);
		wrong += (long)result;
	}
	printf("20 rings in four threads: %ld wrong\n", wrong);
}

static void descriptors(void)
{
	struct ring ring;
	int other;

	make(&ring, 9003, 32, 0);
	other = dup(ring.fd);
	close(ring.fd);
	ring.fd = other;
	map(&ring);
	send_datagrams(ring.port);
	report("another descriptor", &ring, FRAMES);
	unmap(&ring);
	/* Goes without close(). */
	dup2(STDIN_FILENO, ring.fd);
	other = ring.fd;
	make(&ring, 9004, 32, 0);
	close(other);
	close(ring.fd);
}

static void children(void)
{
	struct ring ring;
	int status, back = 0;

	make(&ring, 9005, 32, 0);
	fflush(stdout);
	if (!fork()) {
		map(&ring);
		send_datagrams(ring.port);
		report("a child", &ring, FRAMES);
		exit(0);
	}
	wait(&status);
	map(&ring);
	for (ring.next = 0; ring.next < FRAMES; ring.next++) {
		struct tpacket2_hdr *frame = (void *)(ring.at + (size_t)ring.next * FRAME);

		back += frame->tp_len > 0 && frame->tp_status == TP_STATUS_KERNEL;
	}
	printf("its parent: %d frames given back\n", back);
	unmap(&ring);
	close(ring.fd);
}

static void not_ours(void)
{
	struct ring ring;
	size_t half;

	make(&ring, 9008, 64, 0);
	/* What such a child closes is its own. */
	if (!vfork()) {
		close(ring.fd);
		_exit(0);
	}
	map(&ring);
	send_datagrams(ring.port);
	printf("after a child of vfork closed it: %d\n", received(&ring, FRAMES));
	half = length(&ring) / 2;
	printf("unmapped by halves: %d", munmap(ring.at, half));
	printf(" %d\n", munmap(ring.at + half, half));
	printf("released: %s\n", request(ring.fd, PACKET_RX_RING, 0) ? strerror(errno) : "done");
	errno = ENOTTY;
	close(ring.fd);
	printf("after close: %s\n", strerror(errno));
}

static void refused(void)
{
	struct ring ring;

	make(&ring, 9006, 32, 0);
	printf("set again: %s\n", request(ring.fd, PACKET_RX_RING, 32) ? strerror(errno) : "done");
	printf("a part: %s\n",
	       mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, ring.fd, 0) == MAP_FAILED ? strerror(errno) : "mapped");
	printf("from the middle: %s\n", mmap(NULL, length(&ring), PROT_READ, MAP_SHARED, ring.fd, BLOCK) == MAP_FAILED ?
					 strerror(errno) : "mapped");
	map(&ring);
	printf("released while it is mapped: %s\n",
	       request(ring.fd, PACKET_RX_RING, 0) ? strerror(errno) : "done");
	printf("another ring while it is mapped: %s\n",
	       request(ring.fd, PACKET_TX_RING, 32) ? strerror(errno) : "done");
	unmap(&ring);
	printf("released: %s\n", request(ring.fd, PACKET_RX_RING, 0) ? strerror(errno) : "done");
	printf("a larger one: %s\n", request(ring.fd, PACKET_RX_RING, 64) ? strerror(errno) : "done");
	ring.receive = 64;
	map(&ring);
	send_datagrams(ring.port);
	report("received", &ring, FRAMES);
	/* Closed before it is unmapped, and read between. */
	close(ring.fd);
	printf("after it was closed: %d\n", received(&ring, 0));
	unmap(&ring);
}

int main(void)
{
	int before = free_pages();

	setvbuf(stdout, NULL, _IOLBF, 0);
	alone();
	both(32);
	/* Not a whole number of huge pages, with another ring behind. */
	both(33);
	threads();
	descriptors();
	children();
	not_ours();
	refused();
	printf("huge pages kept: %d\n", before - free_pages());
	return 0;
}
