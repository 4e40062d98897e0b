/* wandb_log.c - see wandb_log.h. */
#include "train/track/wandb_log.h"

enum { HEAD = 7, BLOCK = 32768 };
enum { FULL = 1, FIRST, MIDDLE, LAST };
enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };
static const char start[HEAD] = {':', 'W', '&', 'B', (char)0xe1, (char)0xbe, 0};

/* CRC-32 as zlib has it, of the type and the bytes. */
static uint32_t checksum(uint8_t type, const void *bytes, uint64_t n)
{
    const uint8_t *p = bytes;
    uint32_t c = UINT32_MAX;
    for (uint64_t i = 0; i <= n; i++) {
        c ^= i ? p[i - 1] : type;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~c;
}

static void put_number(af_buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        af_buf_char(b, (char)(v | 0x80));
    af_buf_char(b, (char)v);
}

void af_wandb_put_varint(af_buf *b, int field, uint64_t v)
{
    put_number(b, (uint64_t)field << 3 | WIRE_VARINT);
    put_number(b, v);
}

void af_wandb_put_bytes(af_buf *b, int field, const void *p, uint64_t n)
{
    put_number(b, (uint64_t)field << 3 | WIRE_BYTES);
    put_number(b, n);
    if (n)
        af_buf_add(b, p, n);
}

void af_wandb_put_text(af_buf *b, int field, const char *s)
{
    af_wandb_put_bytes(b, field, s, strlen(s));
}

void af_wandb_log_begin(af_buf *out) { af_buf_add(out, start, sizeof start); }

static void put_frame(af_buf *out, uint8_t type, const char *bytes, uint64_t n)
{
    const uint32_t c = checksum(type, bytes, n);
    const uint8_t head[HEAD] = {(uint8_t)c,
                                (uint8_t)(c >> 8),
                                (uint8_t)(c >> 16),
                                (uint8_t)(c >> 24),
                                (uint8_t)n,
                                (uint8_t)(n >> 8),
                                type};
    af_buf_add(out, head, sizeof head);
    af_buf_add(out, bytes, n);
}

void af_wandb_log_add(af_buf *out, uint64_t at, int64_t num, int field, const af_buf *message)
{
    af_buf record = {0};
    af_wandb_put_varint(&record, 1, (uint64_t)num);
    af_wandb_put_bytes(&record, field, message->data, message->len);
    out->bad |= record.bad || message->bad;
    bool begun = false; /* a first frame may be empty */
    for (uint64_t done = 0; done < record.len && !out->bad; begun = true) {
        uint64_t room = BLOCK - (at + out->len) % BLOCK;
        if (room < HEAD) { /* no frame begins here */
            af_buf_add(out, "\0\0\0\0\0\0", room);
            room = BLOCK;
        }
        const uint64_t left = record.len - done, n = AF_MIN(left, room - HEAD);
        const int type = !begun ? (n == left ? FULL : FIRST) : (n == left ? LAST : MIDDLE);
        put_frame(out, (uint8_t)type, record.data + done, n);
        done += n;
    }
    af_buf_clear(&record);
}

bool af_wandb_log_next(const char *file, uint64_t size, uint64_t *at, af_buf *record)
{
    uint64_t p = *at;
    record->len = 0;
    if (p == 0) {
        if (size < HEAD || memcmp(file, start, HEAD) != 0)
            return false;
        p = HEAD;
    }
    for (;;) {
        if (BLOCK - p % BLOCK < HEAD)
            p += BLOCK - p % BLOCK;
        if (p > size || size - p < HEAD)
            return false;
        const uint8_t *h = (const uint8_t *)file + p;
        const uint64_t n = h[4] | (uint64_t)h[5] << 8;
        const uint32_t c = h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
        p += HEAD;
        if (size - p < n || checksum(h[6], file + p, n) != c || h[6] < FULL || h[6] > LAST)
            return false;
        af_buf_add(record, file + p, n);
        p += n;
        if (h[6] == FULL || h[6] == LAST)
            break;
    }
    *at = p;
    return !record->bad;
}

static bool get_number(const af_buf *b, uint64_t *at, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; *at < b->len && shift < 64; shift += 7) {
        const uint8_t c = (uint8_t)b->data[(*at)++];
        *v |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80))
            return true;
    }
    return false;
}

int af_wandb_record_kind(const af_buf *record, int64_t *num, af_buf *message)
{
    uint64_t at = 0, tag, v;
    *num = 0;
    message->len = 0;
    while (get_number(record, &at, &tag) && get_number(record, &at, &v)) {
        if ((tag & 7) == WIRE_VARINT) {
            *num = (int64_t)v;
        } else if ((tag & 7) != WIRE_BYTES || v > record->len - at) {
            return 0;
        } else {
            af_buf_add(message, record->data + at, v);
            return (int)(tag >> 3);
        }
    }
    return 0;
}
