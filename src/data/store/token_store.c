/* token_store.c - see token_store.h for the layout. */
#define _GNU_SOURCE /* flock */
#include "data/store/token_store.h"
#include "base/buf.h"
#include "base/hash.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define MAGIC   0x314b4f54464c4146ull /* "AFLFTOK1" */
#define VERSION 2u

typedef struct header {
    uint64_t magic;
    uint32_t version, longest;
    uint64_t words, records, supervised;
    uint32_t shortest, spare;
    uint64_t note_size, sum;
} header;

struct af_token_writer {
    af_out *out;
    af_buf index, trained; /* trained: tokens with loss of each record */
    header head;           /* its sum: of the words so far */
    bool failed;           /* to write */
};

/* FNV-1a of words instead of bytes: a file is read at the speed of memory, and every changed bit
 * changes the sum. */
static uint64_t sum_words(uint64_t h, const void *words, uint64_t bytes)
{
    const uint32_t *w = words;
    for (uint64_t i = 0; i < bytes / sizeof *w; i++)
        h = (h ^ w[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* What follows the words: the index, the note, and the header itself without a sum. */
static uint64_t sum_rest(header h, const void *index, uint64_t index_bytes, const void *note)
{
    uint64_t sum = sum_words(h.sum, index, index_bytes);
    sum = af_fnv1a(sum, note, h.note_size);
    h.sum = 0;
    return af_fnv1a(sum, &h, sizeof h);
}

af_status af_token_writer_open(af_token_writer **out, const char *path, af_error *err)
{
    af_token_writer *w = af_calloc(1, sizeof *w);
    if (!w)
        return af_fail_nomem(err, "a token file", sizeof *w);
    af_status st = af_out_open_private(&w->out, path, err);
    const header blank = {0};
    if (st == AF_OK)
        st = af_out_write(w->out, &blank, sizeof blank, err);
    if (st != AF_OK) {
        af_token_writer_abandon(w);
        return st;
    }
    w->head.sum = AF_FNV_START;
    *out = w;
    return AF_OK;
}

static void count_record(header *h, uint32_t n)
{
    h->records++;
    h->longest = AF_MAX(h->longest, n);
    h->shortest = h->shortest ? AF_MIN(h->shortest, n) : n;
}

static af_status write_words(af_token_writer *w, const uint32_t *word, int64_t n, af_error *err)
{
    w->head.sum = sum_words(w->head.sum, word, (uint64_t)n * sizeof *word);
    const af_status st = af_out_write(w->out, word, (uint64_t)n * sizeof *word, err);
    w->failed |= st != AF_OK;
    return st;
}

bool af_token_writer_failed(const af_token_writer *w) { return w->failed; }

/* After the n words of a record. */
static af_status end_record(af_token_writer *w, int64_t n, int64_t supervised, int source,
                            int64_t line, af_error *err)
{
    const af_token_index entry = {w->head.words, (uint32_t)n, (uint32_t)source, (uint64_t)line};
    const uint32_t trained = (uint32_t)supervised;
    af_buf_add(&w->index, &entry, sizeof entry);
    af_buf_add(&w->trained, &trained, sizeof trained);
    w->head.words += (uint64_t)n;
    w->head.supervised += (uint64_t)supervised;
    count_record(&w->head, (uint32_t)n);
    return w->index.bad || w->trained.bad
               ? af_fail_nomem(err, "the index of a token file", w->index.len)
               : AF_OK;
}

af_status af_token_writer_add(af_token_writer *w, const int32_t *ids, const int32_t *labels,
                              int64_t n, int source, int64_t line, af_error *err)
{
    assert(n > 0 && n < INT32_MAX);
    uint32_t chunk[1024];
    af_status st = AF_OK;
    int64_t supervised = 0;
    for (int64_t i = 0; i < n && st == AF_OK;) {
        int64_t m = 0;
        for (; m < (int64_t)AF_LEN(chunk) && i < n; m++, i++) {
            const bool loss = labels[i] != -100;
            chunk[m] = (uint32_t)ids[i] | (loss ? 0 : AF_TOKEN_NO_LOSS);
            supervised += loss && i > 0; /* nothing predicts the first token */
        }
        st = write_words(w, chunk, m, err);
    }
    return st == AF_OK ? end_record(w, n, supervised, source, line, err) : st;
}

af_status af_token_writer_add_words(af_token_writer *w, const uint32_t *word, int64_t n,
                                    int64_t supervised, int source, int64_t line, af_error *err)
{
    assert(n > 0 && n < INT32_MAX);
    const af_status st = write_words(w, word, n, err);
    return st == AF_OK ? end_record(w, n, supervised, source, line, err) : st;
}

af_status af_token_writer_order(af_token_writer *w, const int64_t *record, int64_t count,
                                af_error *err)
{
    const af_token_index *entry = (const void *)w->index.data;
    const uint32_t *trained = (const void *)w->trained.data;
    af_buf index = {0};
    header h = w->head;
    h.records = h.supervised = h.longest = h.shortest = 0;
    for (int64_t i = 0; i < count; i++) {
        assert(record[i] >= 0 && (uint64_t)record[i] < w->head.records);
        af_buf_add(&index, &entry[record[i]], sizeof *entry);
        h.supervised += trained[record[i]];
        count_record(&h, entry[record[i]].count);
    }
    if (index.bad) {
        af_buf_clear(&index);
        return af_fail_nomem(err, "the index of a token file", (uint64_t)count * sizeof *entry);
    }
    af_buf_clear(&w->index);
    w->index = index;
    w->head = h;
    return AF_OK;
}

af_status af_token_writer_commit(af_token_writer *w, const char *note, af_error *err)
{
    return af_token_writer_commit_note(w, note, strlen(note), err);
}

af_status af_token_writer_commit_note(af_token_writer *w, const void *note, uint64_t size,
                                      af_error *err)
{
    static const uint32_t pad = 0;
    af_status st = AF_OK;
    const void *index = w->index.data ? w->index.data : "";
    if (w->head.words % 2) { /* the index is 8-byte aligned */
        w->head.sum = sum_words(w->head.sum, &pad, sizeof pad);
        AF_TRY(af_out_write(w->out, &pad, sizeof pad, err));
    }
    AF_TRY(af_out_write(w->out, index, w->index.len, err));
    w->head.magic = MAGIC;
    w->head.version = VERSION;
    w->head.note_size = size;
    w->head.sum = sum_rest(w->head, index, w->index.len, note);
    AF_TRY(af_out_write(w->out, note, w->head.note_size, err));
    AF_TRY(af_out_patch(w->out, 0, &w->head, sizeof w->head, err));
    st = af_out_commit(w->out, err);
    w->out = NULL;
done:
    af_token_writer_abandon(w);
    return st;
}

void af_token_writer_abandon(af_token_writer *w)
{
    if (!w)
        return;
    af_out_abandon(w->out);
    af_buf_clear(&w->index);
    af_buf_clear(&w->trained);
    free(w);
}

static af_status bad_store(const char *path, af_error *err)
{
    return af_fail(err, AF_EFORMAT, "'%s' is not a whole token file", path);
}

/* The sum of the words, which do not stay resident because they were looked at. */
static uint64_t sum_mapped(const af_map *m, uint64_t bytes)
{
    enum { PIECE = 1 << 20 };
    uint64_t sum = AF_FNV_START;
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        const uint64_t n = AF_MIN((uint64_t)PIECE, bytes - at);
        sum = sum_words(sum, m->data + sizeof(header) + at, n);
        af_map_forget(m, at, n);
    }
    return sum;
}

/* The sizes of the header must add up to the file, its sum must be right, and every record must
 * lie inside the words. */
static bool consistent(const af_map *m, header *h, uint64_t *tokens)
{
    uint64_t words, index, need;
    if (m->size < sizeof *h)
        return false;
    memcpy(h, m->data, sizeof *h);
    if (h->magic != MAGIC || h->version != VERSION || h->words > m->size ||
        !af_mul_ok(h->words + h->words % 2, 4, &words) ||
        !af_mul_ok(h->records, sizeof(af_token_index), &index) || !af_add_ok(words, index, &need) ||
        !af_add_ok(need, sizeof *h, &need) || !af_add_ok(need, h->note_size, &need) ||
        need != m->size)
        return false;
    const uint8_t *at = m->data + sizeof *h + words;
    const uint64_t sum = h->sum;
    h->sum = sum_mapped(m, words);
    if (sum_rest(*h, at, index, at + index) != sum)
        return false;
    const af_token_index *e = (const void *)at;
    *tokens = 0;
    for (uint64_t i = 0; i < h->records; i++) {
        if (e[i].at > h->words || e[i].count > h->words - e[i].at || e[i].count == 0)
            return false;
        *tokens += e[i].count; /* a record may be there more than once */
    }
    h->sum = sum;
    return true;
}

af_status af_token_store_open(af_token_store *out, const char *path, af_error *err)
{
    af_map m;
    header h;
    uint64_t tokens = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!flock(fd, LOCK_SH | LOCK_NB); /* not all file systems can */
    const af_status st = af_map_open(&m, path, err);
    const bool good = st == AF_OK && consistent(&m, &h, &tokens);
    if (!good && fd >= 0)
        close(fd);
    if (st != AF_OK)
        return st;
    if (!good) {
        af_map_close(&m);
        return bad_store(path, err);
    }
    const uint8_t *index = m.data + sizeof h + (h.words + h.words % 2) * 4;
    *out = (af_token_store){
        .map = m,
        .locked = fd + 1,
        .words = (const void *)(m.data + sizeof h),
        .index = (const void *)index,
        .records = (int64_t)h.records,
        .tokens = tokens,
        .supervised = h.supervised,
        .longest = h.longest,
        .shortest = h.shortest,
        .sum = h.sum,
        .note = (const char *)index + h.records * sizeof(af_token_index),
        .note_size = h.note_size,
    };
    return AF_OK;
}

void af_token_store_close(af_token_store *s)
{
    af_map_close(&s->map);
    if (s->locked)
        close(s->locked - 1);
    *s = (af_token_store){0};
}
