/* upload.c - bytes to and from the device through pinned memory.
 *
 * Uploads go through a ring of segments: data is copied into the current segment and an
 * asynchronous transfer is queued on the stream. A segment is used again only after the event
 * recorded when it was left, so small batches are queued without waiting, and large
 * weights stream through at the speed of the bus. One thread that copies out of a mapped file is
 * slower than that: several copy what is long. */
#include "backend/cuda/cuda_graph.h"
#include "base/pool.h"

enum { SEGMENTS = 8, SEGMENT_BYTES = 8 << 20 };
enum {
    PENDING_MAX = 256,
    PENDING_BYTES = 256
}; /* asynchronous downloads, and bytes of each at most */

enum { DOWNLOAD_LONG = 1 << 16, COPIERS_MAX = 8, COPY_TOGETHER = 1 << 20, COPY_PIECE = 1 << 17 };

struct af_upload {
    uint8_t *host;
    af_pool *copiers; /* NULL until something long comes */
    bool alone;       /* there are none to be had */
    void *event[SEGMENTS];
    bool pending[SEGMENTS];
    int at;
    uint64_t used;
    struct {
        void *to;
        uint64_t bytes;
    } download[PENDING_MAX]; /* number i arrives at host + SEGMENTS * SEGMENT_BYTES + i *
                                PENDING_BYTES */
    int downloads;
};

af_status af_upload_new(af_upload **out, af_cuda *cu, af_error *err)
{
    af_status st = AF_OK;
    af_upload *u = af_calloc(1, sizeof *u);
    if (!u)
        return af_fail_nomem(err, "the upload ring", sizeof *u);
    AF_TRY(af_cu_check(
        cu->drv,
        cu->drv->host_alloc((void **)&u->host,
                            (size_t)SEGMENTS * SEGMENT_BYTES + (size_t)PENDING_MAX * PENDING_BYTES,
                            0),
        "cuMemHostAlloc", "the upload ring", err));
    for (int i = 0; i < SEGMENTS; i++)
        AF_TRY(af_cu_check(cu->drv, cu->drv->event_new(&u->event[i], AF_CU_EVENT_NO_TIMING),
                           "cuEventCreate", "the upload ring", err));
    *out = u;
    u = NULL;
done:
    af_upload_free(u, cu);
    return st;
}

void af_upload_free(af_upload *u, af_cuda *cu)
{
    if (!u)
        return;
    for (int i = 0; i < SEGMENTS; i++)
        if (u->event[i])
            cu->drv->event_free(u->event[i]);
    if (u->host)
        cu->drv->host_free(u->host);
    af_pool_free(u->copiers);
    free(u);
}

/* Leaves the current segment and waits until the next one is no longer being read. */
static af_status next_segment(af_cuda *cu, af_error *err)
{
    af_upload *u = cu->upload;
    af_status st = AF_OK;
    AF_TRY(af_cu_check(cu->drv, cu->drv->event_record(u->event[u->at], cu->stream), "cuEventRecord",
                       "an upload", err));
    u->pending[u->at] = true;
    u->at = (u->at + 1) % SEGMENTS;
    u->used = 0;
    if (u->pending[u->at])
        cu->device.counters.host_syncs++;
    if (u->pending[u->at])
        AF_TRY(af_cu_check(cu->drv, cu->drv->event_sync(u->event[u->at]), "cuEventSynchronize",
                           "an upload", err));
    u->pending[u->at] = false;
done:
    return st;
}

typedef struct copy_job {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
} copy_job;

static void copy_pieces(void *arg, int64_t from, int64_t to, int share)
{
    const copy_job *j = arg;
    const uint64_t at = (uint64_t)from * COPY_PIECE;
    (void)share;
    memcpy(j->to + at, j->from + at, AF_MIN((uint64_t)to * COPY_PIECE, j->bytes) - at);
}

static void copy_bytes(af_upload *u, uint8_t *to, const uint8_t *from, uint64_t n)
{
    if (n >= COPY_TOGETHER && !u->copiers && !u->alone)
        u->alone = af_pool_new(&u->copiers, AF_MIN(af_cpu_count(), COPIERS_MAX), NULL) != AF_OK;
    if (n < COPY_TOGETHER || !u->copiers)
        memcpy(to, from, n);
    else
        af_pool_run(u->copiers, (int64_t)((n + COPY_PIECE - 1) / COPY_PIECE), copy_pieces,
                    &(copy_job){to, from, n});
}

static af_status send_some(af_cuda *cu, uint8_t *to, uint64_t pitch, const uint8_t *from,
                           uint64_t width, uint64_t rows, const char *what, af_error *err)
{
    af_upload *u = cu->upload;
    uint8_t *stage = u->host + (uint64_t)u->at * SEGMENT_BYTES + u->used;
    copy_bytes(u, stage, from, width * rows);
    u->used = AF_ALIGN_UP(u->used + width * rows, (uint64_t)256);
    if (rows == 1 || pitch == width)
        return af_cu_check(cu->drv, cu->drv->copy_up(to, stage, width * rows, cu->stream),
                           "cuMemcpyHtoDAsync", what, err);
    const af_copy2d c = {.src_kind = AF_CU_KIND_HOST,
                         .src_host = stage,
                         .src_pitch = width,
                         .dst_kind = AF_CU_KIND_DEVICE,
                         .dst_device = to,
                         .dst_pitch = pitch,
                         .width = width,
                         .height = rows};
    return af_cu_check(cu->drv, cu->drv->copy_2d(&c, cu->stream), "cuMemcpy2DAsync", what, err);
}

af_status af_upload_rows(af_cuda *cu, void *to, uint64_t pitch, const void *from, uint64_t width,
                         uint64_t rows, const char *what, af_error *err)
{
    af_status st = AF_OK;
    if (pitch == width) { /* one long row */
        width *= rows;
        pitch = width;
        rows = 1;
    }
    const uint8_t *src = from;
    uint8_t *dst = to;
    for (uint64_t r = 0; r < rows;) {
        const uint64_t left = SEGMENT_BYTES - AF_MIN(cu->upload->used, (uint64_t)SEGMENT_BYTES);
        if (left < AF_MIN(width, (uint64_t)SEGMENT_BYTES)) {
            AF_TRY(next_segment(cu, err));
            continue;
        }
        if (width <= left) {
            const uint64_t n = AF_MIN(left / AF_MAX(width, (uint64_t)1), rows - r);
            AF_TRY(send_some(cu, dst + r * pitch, pitch, src + r * width, width, n, what, err));
            r += n;
            continue;
        }
        for (uint64_t at = 0; at < width; at += SEGMENT_BYTES) { /* a row longer than a segment */
            AF_TRY(next_segment(cu, err));
            const uint64_t n = AF_MIN(width - at, (uint64_t)SEGMENT_BYTES);
            AF_TRY(send_some(cu, dst + r * pitch + at, n, src + r * width + at, n, 1, what, err));
        }
        r++;
    }
done:
    return st;
}

static uint8_t *pending_at(const af_upload *u, int i)
{
    return u->host + (uint64_t)SEGMENTS * SEGMENT_BYTES + (uint64_t)i * PENDING_BYTES;
}

void af_download_drop(af_cuda *cu) { cu->upload->downloads = 0; }

/* After the stream was waited for: copies what has arrived to where it was requested. */
static void finish_downloads(af_upload *u)
{
    for (int i = 0; i < u->downloads; i++)
        memcpy(u->download[i].to, pending_at(u, i), u->download[i].bytes);
    u->downloads = 0;
}

af_status af_download_wait(af_cuda *cu, af_error *err)
{
    if (cu->upload->downloads == 0)
        return AF_OK;
    cu->device.counters.host_syncs++;
    const af_status st = af_cu_check(cu->drv, cu->drv->stream_sync(cu->stream),
                                     "cuStreamSynchronize", "pending downloads", err);
    if (st == AF_OK)
        finish_downloads(cu->upload);
    return st;
}

af_status af_download_async(af_cuda *cu, void *to, const void *from, uint64_t bytes,
                            const char *what, af_error *err)
{
    af_upload *u = cu->upload;
    if (bytes > PENDING_BYTES || u->downloads == PENDING_MAX)
        return af_download_rows(cu, to, from, bytes, bytes, 1, what, err);
    const af_status st = af_cu_check(
        cu->drv, cu->drv->copy_down(pending_at(u, u->downloads), from, bytes, cu->stream),
        "cuMemcpyDtoHAsync", what, err);
    if (st == AF_OK) {
        u->download[u->downloads].to = to;
        u->download[u->downloads++].bytes = bytes;
    }
    return st;
}

/* A transfer to pageable memory is several times slower than the bus: what is long comes through
 * the ring as well. Uploads that still read a segment are before it on the stream. */
static af_status download_long(af_cuda *cu, uint8_t *to, const uint8_t *from, uint64_t bytes,
                               const char *what, af_error *err)
{
    af_upload *u = cu->upload;
    const uint64_t parts = (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
    uint64_t sent = 0;
    af_status st = AF_OK;
    for (uint64_t done = 0; done < parts; done++) {
        for (; sent < parts && sent < done + SEGMENTS; sent++) {
            const uint64_t at = sent * SEGMENT_BYTES;
            const int k = (int)(sent % SEGMENTS);
            AF_TRY(af_cu_check(cu->drv,
                               cu->drv->copy_down(u->host + (uint64_t)k * SEGMENT_BYTES, from + at,
                                                  AF_MIN(bytes - at, (uint64_t)SEGMENT_BYTES),
                                                  cu->stream),
                               "cuMemcpyDtoHAsync", what, err));
            AF_TRY(af_cu_check(cu->drv, cu->drv->event_record(u->event[k], cu->stream),
                               "cuEventRecord", what, err));
        }
        const uint64_t at = done * SEGMENT_BYTES;
        const int k = (int)(done % SEGMENTS);
        AF_TRY(af_cu_check(cu->drv, cu->drv->event_sync(u->event[k]), "cuEventSynchronize", what,
                           err));
        copy_bytes(u, to + at, u->host + (uint64_t)k * SEGMENT_BYTES,
                   AF_MIN(bytes - at, (uint64_t)SEGMENT_BYTES));
    }
    cu->device.counters.host_syncs++;
    finish_downloads(u); /* and no segment is being read */
    memset(u->pending, 0, sizeof u->pending);
    u->used = 0;
done:
    return st;
}

af_status af_download_rows(af_cuda *cu, void *to, const void *from, uint64_t pitch, uint64_t width,
                           uint64_t rows, const char *what, af_error *err)
{
    const af_driver *drv = cu->drv;
    const af_copy2d c = {.src_kind = AF_CU_KIND_DEVICE,
                         .src_device = (void *)from,
                         .src_pitch = pitch,
                         .dst_kind = AF_CU_KIND_HOST,
                         .dst_host = to,
                         .dst_pitch = width,
                         .width = width,
                         .height = rows};
    af_status st = AF_OK;
    if (width * rows == 0)
        return AF_OK;
    if (pitch == width && width * rows >= DOWNLOAD_LONG)
        return download_long(cu, to, from, width * rows, what, err);
    if (pitch == width)
        AF_TRY(af_cu_check(drv, drv->copy_down(to, from, width * rows, cu->stream),
                           "cuMemcpyDtoHAsync", what, err));
    else
        AF_TRY(af_cu_check(drv, drv->copy_2d(&c, cu->stream), "cuMemcpy2DAsync", what, err));
    cu->device.counters.host_syncs++;
    AF_TRY(af_cu_check(drv, drv->stream_sync(cu->stream), "cuStreamSynchronize", what, err));
    finish_downloads(cu->upload);
done:
    return st;
}
