/* Splits a super-packet into what goes on the wire, and joins the pieces again.
 *
 *   split FRAME MTU SEGMENTS.pcap JOINED.pcap [POLICY]
 *
 * FRAME is a file with one Ethernet frame. Build it with
 *
 *   cc split.c $(pkg-config --cflags --libs linerate-segment) -o split
 */
#include <linerate/segment.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 17, MOST = 1 << 16 };

struct frame {
    uint8_t *bytes;
    size_t len;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* A pcap file of Ethernet frames, in the machine's byte order. */
static FILE *pcap_create(const char *path)
{
    const uint32_t header[6] = {0xa1b2c3d4, 4 << 16 | 2, 0, 0, LONGEST, 1};
    FILE *file = fopen(path, "wb");

    if (!file || fwrite(header, sizeof header, 1, file) != 1)
        die(path, "cannot be written");
    return file;
}

static void pcap_begin(FILE *file, size_t len)
{
    const uint32_t header[4] = {0, 0, (uint32_t)len, (uint32_t)len};

    if (fwrite(header, sizeof header, 1, file) != 1)
        die("pcap", "cannot be written");
}

static void pcap_bytes(FILE *file, const uint8_t *bytes, size_t len)
{
    if (fwrite(bytes, 1, len, file) != len)
        die("pcap", "cannot be written");
}

static void pcap_close(FILE *file)
{
    if (fclose(file))
        die("pcap", "cannot be written");
}

struct joined {
    FILE *file;
    const struct frame *frames;
};

/* Takes what comes out of the coalescer; a token is the number of a frame. */
static void keep(void *context, const linerate_output *output)
{
    const struct joined *joined = context;

    if (output->token_count == 1) {
        const struct frame *frame = &joined->frames[output->tokens[0]];

        pcap_begin(joined->file, frame->len);
        pcap_bytes(joined->file, frame->bytes, frame->len);
        return;
    }
    pcap_begin(joined->file, output->len);
    pcap_bytes(joined->file, output->header, output->header_len);
    for (size_t i = 0; i < output->token_count; i++) {
        const struct frame *frame = &joined->frames[output->tokens[i]];
        bool last = i + 1 == output->token_count;

        pcap_bytes(joined->file, frame->bytes + output->header_len,
                   last ? output->last_size : output->segment_size);
    }
}

int main(int argc, char **argv)
{
    static uint8_t packet[LONGEST];
    static struct frame frames[MOST];
    char why[256] = "";
    size_t len, count = 0;

    if (argc != 5 && argc != 6)
        die("usage", "split FRAME MTU SEGMENTS.pcap JOINED.pcap [POLICY]");
    FILE *file = fopen(argv[1], "rb");
    if (!file)
        die(argv[1], "cannot be read");
    len = fread(packet, 1, sizeof packet, file);
    fclose(file);

    linerate_policy policy = LINERATE_POLICY_DEFAULT;
    if (argc == 6 && linerate_policy_parse(argv[5], &policy, why, sizeof why) != LINERATE_STATUS_OK)
        die(argv[5], why);
    linerate_segment_options options =
        linerate_segment_options_default(LINERATE_SPLIT_MTU, (uint16_t)atoi(argv[2]));
    linerate_policy_limit(&policy, &options);

    linerate_segments *segments = linerate_segments_create();
    linerate_status status = linerate_segments_begin(segments, packet, len, &options);
    size_t longest = linerate_segments_max_len(segments);

    file = pcap_create(argv[3]);
    while (status == LINERATE_STATUS_OK && count < MOST) {
        struct frame *frame = &frames[count];

        frame->bytes = malloc(longest);
        if (!frame->bytes)
            die("split", "no memory");
        status = linerate_segments_write_next(segments, frame->bytes, longest, &frame->len);
        if (status != LINERATE_STATUS_OK) {
            free(frame->bytes);
            break;
        }
        pcap_begin(file, frame->len);
        pcap_bytes(file, frame->bytes, frame->len);
        count++;
    }
    if (status != LINERATE_STATUS_END)
        die(argv[1], linerate_segments_error(segments));
    pcap_close(file);
    linerate_segments_destroy(segments);

    struct joined joined = {pcap_create(argv[4]), frames};
    linerate_coalescer *coalescer = linerate_coalescer_create(NULL, 16);
    if (!coalescer)
        die("split", "no memory");
    for (size_t i = 0; i < count; i++)
        linerate_coalescer_push(coalescer, frames[i].bytes, frames[i].len, i, 0, keep, &joined);
    linerate_coalescer_flush_all(coalescer, keep, &joined);
    linerate_coalescer_destroy(coalescer);
    pcap_close(joined.file);

    for (size_t i = 0; i < count; i++)
        free(frames[i].bytes);
    printf("%zu frames, linerate-segment %s\n", count, linerate_segment_version());
    return 0;
}
