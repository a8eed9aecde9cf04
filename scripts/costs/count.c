// A plugin of QEMU's emulator (interface version 1: QEMU 4.2 to 8.2) that counts the instructions of all virtual CPUs. A
// program in the guest marks a moment by an instruction that does nothing, an eight-byte nop with the displacement
// 0x4c52ffNN. The plugin then writes NN and the count, and how many of them were in user space, to
// the file of its argument out=FILE. With a second argument,
// blocks=FILE, it shows there where the instructions were: for each mark 4, a line for each block that had any, its
// address and what it had more between marks 2 and 3 than between marks 1 and 2; then an empty line.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What it uses of that interface. Debian 12 has no header of it.
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info_t;
typedef uint64_t qemu_plugin_id_t;
enum { QEMU_PLUGIN_CB_NO_REGS = 0, QEMU_PLUGIN_INLINE_ADD_U64 = 0 };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int operation, void *counter, uint64_t operand);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned cpu, void *), int, void *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

static const uint8_t nop[] = {0x0f, 0x1f, 0x84, 0x00}, displacement[] = {0xff, 0x52, 0x4c};
static uint64_t count, in_user_space;
static FILE *out, *blocks_out;

// Blocks are never freed: QEMU may still count in them.
static struct block {
    struct block *next;
    uint64_t address, count, before;
    int64_t more;
} *blocks;

static void account(unsigned mark)
{
    for (struct block *block = blocks; block; block = block->next) {
        int64_t had = block->count - block->before;
        block->before = block->count;
        if (mark == 2 || mark == 3)
            block->more += mark == 3 ? had : -had;
        if (mark == 4 && block->more)
            fprintf(blocks_out, "%llx %lld\n", (unsigned long long)block->address, (long long)block->more);
        if (mark == 4)
            block->more = 0;
    }
    if (mark == 4)
        fprintf(blocks_out, "\n");
}

static void write_mark(unsigned cpu, void *mark)
{
    fprintf(out, "%u %llu %llu\n", (unsigned)(uintptr_t)mark, (unsigned long long)count, (unsigned long long)in_user_space);
    fflush(out);
    if (blocks_out)
        account((uintptr_t)mark);
}

// Whether it is one instruction that repeats: QEMU has a block for each turn after the first, which a CPU does not count.
static int is_turn(const struct qemu_plugin_tb *block, const struct qemu_plugin_insn *first)
{
    const uint8_t *bytes = qemu_plugin_insn_data(first);
    size_t size = qemu_plugin_insn_size(first);
    // MOVS and CMPS, or STOS, LODS and SCAS, perhaps with a REX prefix.
    uint8_t code = bytes[size - 1];

    return qemu_plugin_tb_n_insns(block) == 1 && (bytes[0] == 0xf2 || bytes[0] == 0xf3) &&
        (size == 2 || (size == 3 && bytes[1] >> 4 == 4)) && ((code >= 0xa4 && code <= 0xa7) || (code >= 0xaa && code <= 0xaf));
}

// A block is counted as it begins. So a mark inside of it counts the rest of the block as well, the same each time.
static void instrument(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    size_t instructions = qemu_plugin_tb_n_insns(block);

    if (is_turn(block, qemu_plugin_tb_get_insn(block, 0)))
        return;
    qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &count, instructions);
    // The kernel has the upper half of the addresses.
    if (!(qemu_plugin_tb_vaddr(block) >> 63))
        qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &in_user_space, instructions);
    if (blocks_out) {
        struct block *new = calloc(1, sizeof *new);
        *new = (struct block){.next = blocks, .address = qemu_plugin_tb_vaddr(block)};
        blocks = new;
        qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &new->count, instructions);
    }
    for (size_t i = 0; i < instructions; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        const uint8_t *bytes = qemu_plugin_insn_data(instruction);

        if (qemu_plugin_insn_size(instruction) == 8 && !memcmp(bytes, nop, 4) && !memcmp(bytes + 5, displacement, 3))
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, write_mark, QEMU_PLUGIN_CB_NO_REGS,
                (void *)(uintptr_t)bytes[4]);
    }
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info, int argc, char **argv)
{
    if (argc < 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "w")) ||
        (argc > 1 && (strncmp(argv[1], "blocks=", 7) || !(blocks_out = fopen(argv[1] + 7, "w"))))) {
        fprintf(stderr, "count: needs the arguments out=FILE and perhaps blocks=FILE, files that can be written to\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, instrument);
    return 0;
}
