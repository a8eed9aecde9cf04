/* DPDK's rte_gso as the lab's peer: splits one Ethernet frame (TCP over IPv4) again and again.
 *
 *   rte_gso FRAME HEADERS MSS MILLISECONDS OUT parts|copy
 *
 * rte_gso makes mbufs of headers and leaves the payload where it is; it makes no checksums, which is what
 * its manual asks the application to do. `copy` adds the payload to the headers, in a ring of buffers.
 *
 * Prints {"segments": N, "nanoseconds": N} of each batch, a line each, and writes the segments of the last
 * packet to OUT: a 32-bit length in the machine's byte order before each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_gso.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>

enum { MOST = 512, LINK = 14, ROOM = 65535 };

static struct rte_mempool *headers, *payloads;
static uint8_t *ring;
static size_t chunk;
static uint16_t headers_len;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, rte_strerror(rte_errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* rte_gso copies the flags of the packet to its headers, so that a packet in memory from elsewhere, which has
 * a flag for that, would be freed wrongly: the packet lies in a pool. */
static struct rte_mbuf *super_packet(FILE *file)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create("packet", 1, 0, 0, ROOM, SOCKET_ID_ANY);
	struct rte_mbuf *packet = pool ? rte_pktmbuf_alloc(pool) : NULL;

	if (!packet)
		die("rte_pktmbuf_pool_create");
	packet->data_off = 0;
	packet->data_len = fread(packet->buf_addr, 1, ROOM, file);
	packet->pkt_len = packet->data_len;
	packet->l2_len = LINK;
	packet->l3_len = sizeof(struct rte_ipv4_hdr);
	packet->l4_len = headers_len - LINK - sizeof(struct rte_ipv4_hdr);
	packet->ol_flags |= RTE_MBUF_F_TX_IPV4;
	return packet;
}

/* One super-packet into segments with checksums; how many. */
static int split(struct rte_mbuf *packet, const struct rte_gso_ctx *context, bool copy,
		 struct rte_mbuf **segments)
{
	int count;

	packet->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
	count = rte_gso_segment(packet, context, segments, MOST);
	for (int i = 0; i < count; i++) {
		struct rte_mbuf *segment = segments[i];
		uint8_t *frame = rte_pktmbuf_mtod(segment, uint8_t *);

		if (copy) {
			const struct rte_mbuf *payload = segment->next;

			memcpy(ring + i * chunk, frame, headers_len);
			memcpy(ring + i * chunk + headers_len, rte_pktmbuf_mtod(payload, void *),
			       payload->data_len);
			frame = ring + i * chunk;
		}
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(frame + LINK);
		struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(ip + 1);

		ip->hdr_checksum = 0;
		ip->hdr_checksum = rte_ipv4_cksum(ip);
		tcp->cksum = 0;
		if (copy)
			tcp->cksum = rte_ipv4_udptcp_cksum(ip, tcp);
		else
			tcp->cksum = rte_ipv4_udptcp_cksum_mbuf(segment, ip, LINK + sizeof(*ip));
	}
	return count;
}

static void dump(const char *path, struct rte_mbuf **segments, int count, bool copy)
{
	FILE *file = fopen(path, "wb");

	if (!file) {
		perror(path);
		exit(1);
	}
	for (int i = 0; i < count; i++) {
		static uint8_t room[ROOM];
		uint32_t len = segments[i]->pkt_len;
		const void *bytes = copy ? ring + i * chunk : rte_pktmbuf_read(segments[i], 0, len, room);

		fwrite(&len, sizeof(len), 1, file);
		fwrite(bytes, 1, len, file);
	}
	fclose(file);
}

int main(int argc, char **argv)
{
	char *eal[] = {"rte_gso", "--no-huge", "--no-pci", "--no-telemetry", "-m", "64",
		       "--log-level=error", "--no-shconf"};
	struct rte_mbuf *segments[MOST];
	char core[16];

	if (argc != 7) {
		fprintf(stderr, "rte_gso FRAME HEADERS MSS MILLISECONDS OUT parts|copy\n");
		return 2;
	}
	/* EAL binds to a core of its own choice; the caller's is the first that this process may use. */
	cpu_set_t allowed;
	int first = 0;

	sched_getaffinity(0, sizeof(allowed), &allowed);
	while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &allowed))
		first++;
	snprintf(core, sizeof(core), "-l%d", first);
	char *arguments[RTE_DIM(eal) + 2] = {0};

	memcpy(arguments, eal, sizeof(eal));
	arguments[RTE_DIM(eal)] = core;
	if (rte_eal_init(RTE_DIM(eal) + 1, arguments) < 0)
		die("rte_eal_init");

	headers_len = atoi(argv[2]);
	uint16_t mss = atoi(argv[3]);
	uint64_t end = now() + strtoull(argv[4], NULL, 10) * 1000000;
	bool copy = !strcmp(argv[6], "copy");

	chunk = RTE_ALIGN_CEIL(headers_len + mss, 2048);
	ring = aligned_alloc(4096, RTE_ALIGN_CEIL(MOST * chunk, 4096));
	FILE *file = fopen(argv[1], "rb");
	if (!file || !ring) {
		perror(argv[1]);
		return 1;
	}
	memset(ring, 1, MOST * chunk);
	struct rte_mbuf *packet = super_packet(file);
	fclose(file);

	/* A header mbuf holds what is copied, and a little headroom as a driver would want it. */
	headers = rte_pktmbuf_pool_create("headers", 2047, 256, 0,
					  RTE_PKTMBUF_HEADROOM + 256, SOCKET_ID_ANY);
	payloads = rte_pktmbuf_pool_create("payloads", 2047, 256, 0, 0, SOCKET_ID_ANY);
	if (!headers || !payloads)
		die("rte_pktmbuf_pool_create");
	const struct rte_gso_ctx context = {
		.direct_pool = headers,
		.indirect_pool = payloads,
		.gso_types = RTE_ETH_TX_OFFLOAD_TCP_TSO,
		.gso_size = headers_len + mss,
	};

	for (;;) {
		uint64_t count = 0, start = now();

		for (int turn = 0; turn < 50; turn++) {
			int made = split(packet, &context, copy, segments);

			if (made <= 1) {
				fprintf(stderr, "rte_gso_segment: %d\n", made);
				return 1;
			}
			count += made;
			rte_pktmbuf_free_bulk(segments, made);
		}
		printf("{\"segments\": %" PRIu64 ", \"nanoseconds\": %" PRIu64 "}\n", count, now() - start);
		if (now() > end)
			break;
	}
	int made = split(packet, &context, copy, segments);

	dump(argv[5], segments, made, copy);
	return 0;
}
