// The least that receives over AF_XDP, in the guest of scripts/test-costs: loop IFACE [udp]
//
// One socket on queue 0, an XDP program of six instructions, and a loop that returns each chunk to the fill ring, and
// sleeps for a millisecond when the receive ring is empty. With "udp" it verifies the headers of a UDP datagram over
// IPv4 in each frame. SIGTERM ends it, and it prints {"captured": N}.
#include <arpa/inet.h>
#include <err.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_xdp.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOTS = 8192, CHUNK = 2048 };

static volatile sig_atomic_t ended;

struct ring {
    uint32_t *producer, *consumer;
    void *entries;
};

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static int bpf(int command, union bpf_attr *attr)
{
    int result = syscall(SYS_bpf, command, attr, sizeof *attr);

    if (result < 0)
        err(1, "bpf(2), command %d", command);
    return result;
}

// Attaches a program that redirects the frames of queue 0 to the socket, and passes others.
static void attach(unsigned interface, int socket)
{
    uint32_t key = 0;
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
    int sockets = bpf(BPF_MAP_CREATE, &map);
    union bpf_attr element = {.map_fd = sockets, .key = (uintptr_t)&key, .value = (uintptr_t)&socket};
    struct bpf_insn instructions[] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_1, .off = 16}, // rx_queue_index
        {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = sockets},
        {0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_XDP, .insns = (uintptr_t)instructions, .license = (uintptr_t)"GPL",
        .insn_cnt = sizeof instructions / sizeof *instructions};

    bpf(BPF_MAP_UPDATE_ELEM, &element);
    union bpf_attr link = {.link_create = {.prog_fd = bpf(BPF_PROG_LOAD, &load), .target_ifindex = interface,
        .attach_type = BPF_XDP}};
    bpf(BPF_LINK_CREATE, &link);
}

static void set(int socket, int option, const void *value, unsigned bytes)
{
    if (setsockopt(socket, SOL_XDP, option, value, bytes))
        err(1, "cannot set up an AF_XDP socket, option %d", option);
}

static struct ring map_ring(int socket, uint64_t at, struct xdp_ring_offset offset, unsigned entry)
{
    uint8_t *base = mmap(NULL, offset.desc + SLOTS * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket, at);

    if (base == MAP_FAILED)
        err(1, "cannot map a ring");
    return (struct ring){(uint32_t *)(base + offset.producer), (uint32_t *)(base + offset.consumer), base + offset.desc};
}

// Whether the frame is a whole UDP datagram over IPv4 without options, by its lengths and the checksum of its header.
static int is_udp(const uint8_t *frame, unsigned bytes)
{
    struct iphdr ip;
    struct udphdr udp;
    uint32_t words[5];
    uint64_t sum = 0;

    if (bytes < ETH_HLEN + sizeof ip + sizeof udp || frame[12] != ETH_P_IP >> 8 || frame[13] != (ETH_P_IP & 0xff))
        return 0;
    memcpy(&ip, frame + ETH_HLEN, sizeof ip);
    memcpy(&udp, frame + ETH_HLEN + sizeof ip, sizeof udp);
    memcpy(words, frame + ETH_HLEN, sizeof words);
    for (int i = 0; i < 5; i++)
        sum += words[i];
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    unsigned total = ntohs(ip.tot_len), length = ntohs(udp.len);
    return sum == 0xffff && ip.version == 4 && ip.ihl == 5 && !(ip.frag_off & htons(0x3fff)) && ip.protocol == IPPROTO_UDP &&
        total <= bytes - ETH_HLEN && length >= sizeof udp && length <= total - sizeof ip;
}

static uint64_t receive(struct ring fill, struct ring ring, const uint8_t *memory, int udp)
{
    uint32_t head = 0, filled = SLOTS;
    uint64_t frames = 0;

    while (!ended) {
        uint32_t tail = __atomic_load_n(ring.producer, __ATOMIC_ACQUIRE);
        if (tail == head) {
            usleep(1000);
            continue;
        }
        for (; head != tail; head++, filled++) {
            struct xdp_desc frame = ((struct xdp_desc *)ring.entries)[head % SLOTS];
            frames += !udp || is_udp(memory + frame.addr, frame.len);
            ((uint64_t *)fill.entries)[filled % SLOTS] = frame.addr;
        }
        __atomic_store_n(fill.producer, filled, __ATOMIC_RELEASE);
        __atomic_store_n(ring.consumer, head, __ATOMIC_RELEASE);
    }
    return frames;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        errx(2, "loop IFACE [udp]");
    signal(SIGTERM, end);
    unsigned interface = if_nametoindex(argv[1]);
    int socket_ = socket(AF_XDP, SOCK_RAW, 0), slots = SLOTS;
    uint8_t *memory = mmap(NULL, SLOTS * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (!interface || socket_ < 0 || memory == MAP_FAILED)
        err(1, "no interface %s, AF_XDP socket or memory", argv[1]);
    struct xdp_umem_reg umem = {.addr = (uintptr_t)memory, .len = SLOTS * CHUNK, .chunk_size = CHUNK};
    set(socket_, XDP_UMEM_REG, &umem, sizeof umem);
    set(socket_, XDP_UMEM_FILL_RING, &slots, sizeof slots);
    set(socket_, XDP_UMEM_COMPLETION_RING, &slots, sizeof slots);
    set(socket_, XDP_RX_RING, &slots, sizeof slots);
    struct xdp_mmap_offsets offsets;
    socklen_t length = sizeof offsets;
    if (getsockopt(socket_, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length))
        err(1, "cannot get the offsets of the rings");
    struct ring fill = map_ring(socket_, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, sizeof(uint64_t));
    struct ring ring = map_ring(socket_, XDP_PGOFF_RX_RING, offsets.rx, sizeof(struct xdp_desc));
    for (uint64_t slot = 0; slot < SLOTS; slot++)
        ((uint64_t *)fill.entries)[slot] = slot * CHUNK;
    __atomic_store_n(fill.producer, SLOTS, __ATOMIC_RELEASE);
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_ifindex = interface, .sxdp_flags = XDP_USE_NEED_WAKEUP};
    if (bind(socket_, (struct sockaddr *)&address, sizeof address))
        err(1, "cannot bind to queue 0 of %s", argv[1]);
    attach(interface, socket_);
    printf("{\"captured\": %llu}\n", (unsigned long long)receive(fill, ring, memory, argc > 2));
    return 0;
}
