// Sends UDP frames of one flow by XDP live frames, in the guest of scripts/test-costs:
//   burst IFACE DESTINATION-MAC SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT BYTES FRAMES [VLAN]
// SOURCE and DESTINATION are addresses of IPv4 or IPv6, and VLAN is the number of a tag. FRAMES is a number, or
// "marked:MILLISECONDS": then it sends BURSTS pairs of a short and a long burst, each between two marks for the plugin
// (count.c) and with a pause in which all queues drain. What a long one costs more is the cost of its EXTRA frames. And
//   burst drop IFACE
// attaches an XDP program that drops all, and waits until it is ended. And
//   burst redirect IFACE TO-IFACE DESTINATION-MAC
// attaches one that does the least that a router must do: it writes constants where the MAC addresses and the TTL are,
// and redirects. And
//   burst pair COMMAND COMMAND
// runs a command of the shell that has less to do, and one with more, each between two marks.
#include <arpa/inet.h>
#include <err.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WARM_UP = 512, BURSTS = 20, SHORT = 256, EXTRA = 1024, BATCH = 64 };
enum { IPV4_BYTES = 20, IPV6_BYTES = 40, UDP_BYTES = 8, VLAN_BYTES = 4, LONGEST = 1514 };
// Tag, IPv6 and UDP, in whole words.
enum { MOST_HEADERS = (ETH_HLEN + VLAN_BYTES + IPV6_BYTES + UDP_BYTES + 3) / 4 * 4 };

// An instruction that does nothing, which the plugin knows.
#define MARK(number) __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00, " #number ", 0xff, 0x52, 0x4c" ::: "memory")

static int bpf(int command, union bpf_attr *attr)
{
    return syscall(SYS_bpf, command, attr, sizeof *attr);
}

static int load(const struct bpf_insn *instructions, unsigned count)
{
    union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_XDP, .insns = (uintptr_t)instructions, .insn_cnt = count,
        .license = (uintptr_t)"GPL"};
    int program = bpf(BPF_PROG_LOAD, &attr);

    if (program < 0)
        err(1, "cannot load an XDP program");
    return program;
}

static unsigned ifindex(const char *name)
{
    unsigned index = if_nametoindex(name);

    if (!index)
        err(1, "%s", name);
    return index;
}

// Attaches a program and waits until this process is ended.
static void serve(int program, const char *interface)
{
    union bpf_attr attr = {.link_create = {.prog_fd = program, .target_ifindex = ifindex(interface), .attach_type = BPF_XDP}};

    if (bpf(BPF_LINK_CREATE, &attr) < 0)
        err(1, "cannot attach an XDP program to %s", interface);
    pause();
}

static void drop(const char *interface)
{
    struct bpf_insn instructions[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_DROP},
        {.code = BPF_JMP | BPF_EXIT},
    };

    serve(load(instructions, 2), interface);
}

// Adds the instructions that load the frame into r3, and drop one that is shorter than `bytes`. `rest` instructions
// follow before the verdict in r0.
static unsigned begin(struct bpf_insn *instructions, unsigned bytes, unsigned rest)
{
    unsigned next = 0;

    instructions[next++] = (struct bpf_insn){.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_1}; // data
    instructions[next++] = (struct bpf_insn){.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_1, .off = 4}; // data_end
    instructions[next++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_4, .src_reg = BPF_REG_3};
    instructions[next++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_4, .imm = bytes};
    instructions[next++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_DROP};
    instructions[next++] = (struct bpf_insn){.code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = BPF_REG_4, .src_reg = BPF_REG_2, .off = rest};
    return next;
}

// Adds the instructions that write `bytes` of `frame`, whole words, from its byte `at` on.
static unsigned write_words(struct bpf_insn *instructions, unsigned next, const uint8_t *frame, unsigned at, unsigned bytes)
{
    for (unsigned end = at + bytes; at < end; at += 4) {
        struct bpf_insn store = {.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = BPF_REG_3, .off = at};

        memcpy(&store.imm, frame + at, 4);
        instructions[next++] = store;
    }
    return next;
}

// Adds a redirect to an interface, as many as REDIRECT instructions, and returns how many there are now.
enum { REDIRECT = 4 };
static unsigned end_with_redirect(struct bpf_insn *instructions, unsigned next, unsigned interface)
{
    instructions[next++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = interface};
    instructions[next++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2};
    instructions[next++] = (struct bpf_insn){.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect};
    instructions[next++] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
    return next;
}

static void read_mac(uint8_t *mac, const char *word)
{
    if (sscanf(word, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6)
        errx(1, "%s is no MAC address", word);
}

static void redirect(const char *interface, const char *to, const char *mac)
{
    // TTL, protocol and checksum of IPv4 are one word, which is not aligned: no matter here.
    enum { MACS = 12, TTL = ETH_HLEN + 8 };
    struct bpf_insn instructions[6 + MACS / 4 + 1 + REDIRECT];
    uint8_t frame[TTL + 4] = {[6] = 2, [TTL] = 63, [TTL + 1] = IPPROTO_UDP};

    read_mac(frame, mac);
    unsigned next = begin(instructions, TTL + 4, MACS / 4 + 1 + REDIRECT - 1);
    next = write_words(instructions, next, frame, 0, MACS);
    next = write_words(instructions, next, frame, TTL, 4);
    serve(load(instructions, end_with_redirect(instructions, next, ifindex(to))), interface);
}

// Loads the program of the live frames. The kernel uses their memory again as a router left it, so the program writes the
// headers each time, in words of four bytes.
static int load_sender(unsigned interface, const uint8_t *frame, unsigned headers)
{
    struct bpf_insn instructions[6 + MOST_HEADERS / 4 + REDIRECT];
    unsigned next = begin(instructions, headers, headers / 4 + REDIRECT - 1);

    next = write_words(instructions, next, frame, 0, headers);
    return load(instructions, end_with_redirect(instructions, next, interface));
}

static void send_frames(int program, uint8_t *frame, unsigned bytes, unsigned frames, unsigned pause)
{
    union bpf_attr attr = {.test = {.prog_fd = program, .data_in = (uintptr_t)frame, .data_size_in = bytes,
        .repeat = frames, .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = BATCH}};

    if (bpf(BPF_PROG_TEST_RUN, &attr) < 0)
        err(1, "cannot send live frames");
    usleep(pause * 1000);
}

static void put(uint8_t *frame, unsigned at, uint16_t value)
{
    frame[at] = value >> 8;
    frame[at + 1] = value;
}

// Adds the words of `bytes` to a checksum that is not folded yet.
static uint32_t add(uint32_t sum, const uint8_t *bytes, unsigned count)
{
    for (unsigned at = 0; at < count; at += 2)
        sum += bytes[at] << 8 | bytes[at + 1];
    return sum;
}

static uint16_t fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return ~(sum + (sum >> 16));
}

// Writes the headers of a frame and returns their bytes, in whole words. Its payload is zeros. UDP has a checksum where
// it must have one, over IPv6.
static unsigned write_headers(uint8_t *frame, char **words, unsigned bytes, const char *vlan)
{
    unsigned ip = ETH_HLEN + (vlan ? VLAN_BYTES : 0), ipv6 = !!strchr(words[1], ':');
    unsigned udp = ip + (ipv6 ? IPV6_BYTES : IPV4_BYTES);

    read_mac(frame, words[0]);
    frame[6] = 2;
    if (vlan) {
        put(frame, 12, ETH_P_8021Q);
        put(frame, 14, atoi(vlan));
    }
    put(frame, ip - 2, ipv6 ? ETH_P_IPV6 : ETH_P_IP);
    put(frame, udp, atoi(words[3]));
    put(frame, udp + 2, atoi(words[4]));
    put(frame, udp + 4, bytes - udp);
    int family = ipv6 ? AF_INET6 : AF_INET;
    unsigned source = ip + (ipv6 ? 8 : 12), address = ipv6 ? 16 : 4;
    if (inet_pton(family, words[1], frame + source) != 1 || inet_pton(family, words[2], frame + source + address) != 1)
        errx(1, "%s or %s is no address, or not of one family", words[1], words[2]);
    if (ipv6) {
        frame[ip] = 0x60;
        put(frame, ip + 4, bytes - udp);
        put(frame, ip + 6, IPPROTO_UDP << 8 | 64);
        put(frame, udp + 6, fold(add(IPPROTO_UDP + bytes - udp, frame + source, 2 * address + UDP_BYTES)));
    } else {
        put(frame, ip, 0x4500);
        put(frame, ip + 2, bytes - ip);
        put(frame, ip + 8, 64 << 8 | IPPROTO_UDP);
        put(frame, ip + 10, fold(add(0, frame + ip, IPV4_BYTES)));
    }
    return (udp + UDP_BYTES + 3) / 4 * 4;
}

static void run(const char *command)
{
    if (system(command))
        errx(1, "failed: %s", command);
}

int main(int argc, char **argv)
{
    uint8_t frame[LONGEST] = {0};

    if (argc == 3 && !strcmp(argv[1], "drop")) {
        drop(argv[2]);
        return 1;
    }
    if (argc == 5 && !strcmp(argv[1], "redirect")) {
        redirect(argv[2], argv[3], argv[4]);
        return 1;
    }
    if (argc == 4 && !strcmp(argv[1], "pair")) {
        run(argv[2]);
        MARK(1);
        run(argv[2]);
        MARK(2);
        run(argv[3]);
        MARK(3);
        MARK(4);
        return 0;
    }
    if (argc != 9 && argc != 10)
        errx(2, "burst IFACE DESTINATION-MAC SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT BYTES "
            "FRAMES|marked:MILLISECONDS [VLAN], burst drop IFACE, burst redirect IFACE TO-IFACE DESTINATION-MAC, or "
            "burst pair COMMAND COMMAND");
    unsigned bytes = atoi(argv[7]);
    if (bytes < MOST_HEADERS - 4 || bytes > LONGEST)
        errx(2, "a frame has %d to %d bytes", MOST_HEADERS - 4, LONGEST);
    unsigned headers = write_headers(frame, argv + 2, bytes, argv[9]);
    if (headers > bytes)
        errx(2, "these headers do not fit into %u bytes", bytes);
    int program = load_sender(ifindex(argv[1]), frame, headers);
    unsigned pause = 20;
    if (sscanf(argv[8], "marked:%u", &pause) != 1) {
        send_frames(program, frame, bytes, atoi(argv[8]), pause);
        return 0;
    }
    send_frames(program, frame, bytes, WARM_UP, pause);
    for (int burst = 0; burst < BURSTS; burst++) {
        MARK(1);
        send_frames(program, frame, bytes, SHORT, pause);
        MARK(2);
        send_frames(program, frame, bytes, SHORT + EXTRA, pause);
        MARK(3);
    }
    MARK(4);
    return 0;
}
