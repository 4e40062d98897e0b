/* tfevents.c - Event{wall_time=1: double, step=2: int64, file_version=3: string, session_log=7,
 * summary=5: Summary{value=1: Value{tag=1: string, simple_value=2: float}}} in protobuf's wire
 * format, each in a frame: u64 length, masked CRC-32C of it, bytes, masked CRC-32C of them. */
#include "format/text/tfevents.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"

static void put_varint(af_buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        af_buf_char(b, (char)(v | 0x80));
    af_buf_char(b, (char)v);
}

static void put_bytes(af_buf *b, int field, const void *p, uint64_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    af_buf_add(b, p, n);
}

static uint32_t masked(const void *p, uint64_t n)
{
    const uint32_t c = af_crc32c(p, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void put_frame(af_buf *out, const af_buf *event)
{
    const uint64_t n = event->len;
    const uint32_t head = masked(&n, sizeof n), body = masked(event->data, n);
    af_buf_add(out, &n, sizeof n);
    af_buf_add(out, &head, sizeof head);
    af_buf_add(out, event->data, n);
    af_buf_add(out, &body, sizeof body);
}

static void put_start(af_buf *b, double wall_time, int64_t step)
{
    put_varint(b, 1 << 3 | 1);
    af_buf_add(b, &wall_time, sizeof wall_time);
    put_varint(b, 2 << 3 | 0);
    put_varint(b, (uint64_t)step);
}

static af_status append_frame(const char *path, af_buf *event, af_error *err)
{
    af_buf frame = {0};
    put_frame(&frame, event);
    const af_status st = frame.bad || event->bad
                             ? af_fail_nomem(err, path, event->len)
                             : af_file_append(path, frame.data, frame.len, false, err);
    af_buf_clear(&frame);
    af_buf_clear(event);
    return st;
}

af_status af_tfevents_start(const char *path, double wall_time, af_error *err)
{
    af_buf event = {0};
    put_start(&event, wall_time, 0);
    put_bytes(&event, 3, "brain.Event:2", 13);
    return append_frame(path, &event, err);
}

/* SessionLog{status=1: START}: readers drop what earlier files say of this step and later ones. */
af_status af_tfevents_resume(const char *path, double wall_time, int64_t step, af_error *err)
{
    af_buf event = {0};
    put_start(&event, wall_time, step);
    put_bytes(&event, 7, "\x08\x01", 2);
    return append_frame(path, &event, err);
}

af_status af_tfevents_scalars(const char *path, double wall_time, int64_t step,
                              const char *const *tag, const double *value, int n, af_error *err)
{
    af_buf event = {0}, summary = {0}, one = {0};
    for (int i = 0; i < n; i++) {
        const float v = (float)value[i];
        one.len = 0;
        put_bytes(&one, 1, tag[i], strlen(tag[i]));
        put_varint(&one, 2 << 3 | 5);
        af_buf_add(&one, &v, sizeof v);
        put_bytes(&summary, 1, one.data, one.len);
    }
    put_start(&event, wall_time, step);
    put_bytes(&event, 5, summary.data ? summary.data : "", summary.len);
    event.bad |= summary.bad || one.bad;
    af_buf_clear(&summary);
    af_buf_clear(&one);
    return append_frame(path, &event, err);
}
