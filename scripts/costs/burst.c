// Sends UDP frames of one flow by XDP live frames, in the guest of scripts/test-costs:
//   burst IFACE DESTINATION-MAC SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT BYTES FRAMES
// FRAMES is a number, or "marked": then it sends BURSTS pairs of a short and a long burst, each between two marks for
// the plugin (count.c) and with a pause in which all queues drain. What a long one costs more is the cost of its
// EXTRA frames. And
//   burst drop IFACE
// attaches an XDP program that drops all, and waits until it is ended.
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
enum { UDP_AT = ETH_HLEN + 20, HEADERS = UDP_AT + 8, WRITTEN = HEADERS + 2, LONGEST = 1514 };

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

static void drop(const char *interface)
{
    struct bpf_insn instructions[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_DROP},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr attr = {.link_create = {.prog_fd = load(instructions, 2), .target_ifindex = ifindex(interface),
        .attach_type = BPF_XDP}};

    if (bpf(BPF_LINK_CREATE, &attr) < 0)
        err(1, "cannot attach an XDP program to %s", interface);
    pause();
}

// Loads the program of the live frames. The kernel uses their memory again as a router left it, so the program writes the
// headers each time, in words of four bytes.
static int load_sender(unsigned interface, const uint8_t *frame)
{
    struct bpf_insn instructions[6 + WRITTEN / 4 + 4] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_1}, // data
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_1, .off = 4}, // data_end
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_4, .src_reg = BPF_REG_3},
        {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_4, .imm = WRITTEN},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_DROP},
        {.code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = BPF_REG_4, .src_reg = BPF_REG_2, .off = WRITTEN / 4 + 3},
    };
    unsigned next = 6;

    for (unsigned at = 0; at < WRITTEN; at += 4) {
        struct bpf_insn store = {.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = BPF_REG_3, .off = at};

        memcpy(&store.imm, frame + at, 4);
        instructions[next++] = store;
    }
    instructions[next++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = interface};
    instructions[next++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2};
    instructions[next++] = (struct bpf_insn){.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect};
    instructions[next++] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
    return load(instructions, next);
}

static void send_frames(int program, uint8_t *frame, unsigned bytes, unsigned frames)
{
    union bpf_attr attr = {.test = {.prog_fd = program, .data_in = (uintptr_t)frame, .data_size_in = bytes,
        .repeat = frames, .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = BATCH}};

    if (bpf(BPF_PROG_TEST_RUN, &attr) < 0)
        err(1, "cannot send live frames");
    usleep(20000);
}

static void put(uint8_t *frame, unsigned at, uint16_t value)
{
    frame[at] = value >> 8;
    frame[at + 1] = value;
}

// The headers of a frame; its payload is zeros, and it has no UDP checksum.
static void write_headers(uint8_t *frame, char **words, unsigned bytes)
{
    uint32_t sum = 0;

    if (sscanf(words[0], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", frame, frame + 1, frame + 2, frame + 3, frame + 4, frame + 5) != 6)
        errx(1, "%s is no MAC address", words[0]);
    frame[6] = 2;
    put(frame, 12, ETH_P_IP);
    put(frame, 14, 0x4500);
    put(frame, 16, bytes - ETH_HLEN);
    put(frame, 22, 64 << 8 | IPPROTO_UDP);
    if (inet_pton(AF_INET, words[1], frame + 26) != 1 || inet_pton(AF_INET, words[2], frame + 30) != 1)
        errx(1, "%s or %s is no IPv4 address", words[1], words[2]);
    for (unsigned at = ETH_HLEN; at < UDP_AT; at += 2)
        sum += frame[at] << 8 | frame[at + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    put(frame, 24, ~(sum + (sum >> 16)));
    put(frame, UDP_AT, atoi(words[3]));
    put(frame, UDP_AT + 2, atoi(words[4]));
    put(frame, UDP_AT + 4, bytes - UDP_AT);
}

int main(int argc, char **argv)
{
    uint8_t frame[LONGEST] = {0};

    if (argc == 3 && !strcmp(argv[1], "drop")) {
        drop(argv[2]);
        return 1;
    }
    if (argc != 9)
        errx(2, "burst IFACE DESTINATION-MAC SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT BYTES FRAMES|marked, or burst drop IFACE");
    unsigned bytes = atoi(argv[7]);
    if (bytes < WRITTEN || bytes > LONGEST)
        errx(2, "a frame has %d to %d bytes", WRITTEN, LONGEST);
    write_headers(frame, argv + 2, bytes);
    int program = load_sender(ifindex(argv[1]), frame);
    if (strcmp(argv[8], "marked")) {
        send_frames(program, frame, bytes, atoi(argv[8]));
        return 0;
    }
    send_frames(program, frame, bytes, WARM_UP);
    for (int burst = 0; burst < BURSTS; burst++) {
        MARK(1);
        send_frames(program, frame, bytes, SHORT);
        MARK(2);
        send_frames(program, frame, bytes, SHORT + EXTRA);
        MARK(3);
    }
    MARK(4);
    return 0;
}
