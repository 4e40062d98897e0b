/* hub_blob.c - the download of one file; see hub_blob.h.
 *
 * The file is cut into parts in order, a few of which are on their way at once. So the bytes that
 * are whole from the beginning grow all the time, and the hash follows them; it never waits for the
 * end. The order "bytes, then journal" makes a kill harmless: the journal never claims what is not
 * in the file. */
#include "hub/hub_blob.h"

#include "base/cache_file.h"
#include "base/file.h"
#include "base/log.h"

enum { HASH_STEP = 1 << 20, HASH_STEPS = 8, TAKES_MAX = 2 };

void af_blob_init(af_blob *b, const af_hub_file *f, const af_hub_repo *r, af_hub_client *c,
                  char *url, char *final, char *part, char *note, char *lock)
{
    *b = (af_blob){.file = f, .repo = r, .client = c, .url = url, .final = final, .part = part};
    b->note = note;
    b->lock = lock;
    b->fd = b->note_fd = b->lock_fd = -1;
}

/* ---- the hash ---- */

static void hash_begin(af_blob *b)
{
    b->hashed = 0;
    af_sha256_init(&b->sha256);
    af_sha1_init_blob(&b->sha1, b->file->size);
}

static void hash_add(af_blob *b, const void *bytes, uint64_t n)
{
    if (*b->file->sha256)
        af_sha256_add(&b->sha256, bytes, n);
    else
        af_sha1_add(&b->sha1, bytes, n);
    b->hashed += n;
}

static bool hash_is_right(af_blob *b, char hex[65])
{
    if (*b->file->sha256)
        af_sha256_hex(&b->sha256, hex);
    else
        af_sha1_hex(&b->sha1, hex);
    return strcmp(hex, af_hub_file_etag(b->file)) == 0;
}

/* The end of what is whole from the beginning. */
static uint64_t whole(const af_blob *b) { return af_byte_ranges_end(&b->journal.done, 0); }

static af_status hash_some(af_blob *b, int steps, af_error *err)
{
    af_status st = AF_OK;
    uint8_t *buf = b->hashed < whole(b) ? malloc(HASH_STEP) : NULL;
    if (b->hashed < whole(b) && !buf)
        return af_fail_nomem(err, "a buffer", HASH_STEP);
    for (int i = 0; i < steps && b->hashed < whole(b) && st == AF_OK; i++) {
        const uint64_t n = AF_MIN(whole(b) - b->hashed, (uint64_t)HASH_STEP);
        st = af_part_read(b->fd, b->hashed, buf, n, b->part, err);
        if (st == AF_OK)
            hash_add(b, buf, n);
    }
    free(buf);
    return st;
}

/* ---- the journal ---- */

static af_status write_journal(af_blob *b, af_error *err)
{
    char text[AF_JOURNAL_SLOT];
    b->journal.number++;
    const uint64_t n = af_journal_print(&b->journal, text);
    return af_part_write(b->note_fd, b->journal.number % 2 * AF_JOURNAL_SLOT, text, n, b->note,
                         err);
}

/* What an earlier process left, when it is of the same file and still there. */
static af_status read_journal(af_blob *b, af_error *err)
{
    char *text = NULL;
    uint64_t n = 0;
    af_journal old;
    const af_hub_file *f = b->file;
    af_status st = af_file_read(&text, &n, b->note, 4 * AF_JOURNAL_SLOT, NULL);
    const bool good = st == AF_OK && af_journal_parse(&old, text, n) &&
                      strcmp(old.etag, af_hub_file_etag(f)) == 0 && old.size == f->size;
    free(text);
    const int64_t there = af_file_size(b->part);
    const int last = good ? old.done.count - 1 : -1;
    b->journal = (af_journal){.size = f->size};
    snprintf(b->journal.etag, sizeof b->journal.etag, "%s", af_hub_file_etag(f));
    if (last >= 0 && there >= 0 && old.done.at[last].to <= (uint64_t)there)
        b->journal = old;
    if (af_memory_failed())
        return af_fail_nomem(err, "a journal", n);
    return AF_OK;
}

/* ---- begin ---- */

/* The result is there: what is left of a process killed right after the rename goes away. */
static void remove_leftovers(const af_blob *b)
{
    (void)!af_path_remove(b->part, NULL);
    (void)!af_path_remove(b->note, NULL);
}

af_status af_blob_begin(af_blob *b, af_error *err)
{
    af_status st = af_lock_take(&b->lock_fd, b->lock, err);
    if (st != AF_OK || b->lock_fd < 0)
        return st;
    bool there = af_file_size(b->final) == (int64_t)b->file->size; /* by whoever had the lock */
    if (there && b->keep)
        AF_TRY(af_blob_check(&there, b->file, b->final, err));
    if (there) {
        remove_leftovers(b);
        b->state = AF_BLOB_DONE;
        return AF_OK;
    }
    AF_TRY(af_part_open(&b->fd, b->part, err));
    AF_TRY(af_part_open(&b->note_fd, b->note, err));
    AF_TRY(read_journal(b, err));
    hash_begin(b);
    b->state = AF_BLOB_RUNNING;
done:
    return st;
}

/* ---- parts ---- */

/* The server has no ranges: this part becomes the whole file, and the others end. */
static void take_all(af_blob_part *p)
{
    af_blob *b = p->blob;
    b->taker = p;
    b->journal.done = (af_byte_ranges){0};
    hash_begin(b);
    p->at = 0;
    p->end = b->file->size;
}

static void part_begin(void *user)
{
    af_blob_part *p = user;
    const bool all = p->at == 0 && p->end == p->blob->file->size;
    p->ask.range[0] = '\0';
    if (p->blob->taker)
        take_all(p);
    else if (!all)
        snprintf(p->ask.range, sizeof p->ask.range, "Range: bytes=%" PRIu64 "-%" PRIu64, p->at,
                 p->end - 1);
}

static af_status fail_size(uint64_t got, const af_blob *b, af_error *err)
{
    return af_fail_subject(err, AF_EFORMAT, "size",
                           "the server has a file of %" PRIu64 " bytes, the hub lists %" PRIu64,
                           got, b->file->size);
}

static af_status check_range(af_blob_part *p, const af_http_head *h, af_error *err)
{
    af_blob *b = p->blob;
    const uint64_t size = b->file->size;
    const bool asked = *p->ask.range != '\0';
    if (h->status == 206) {
        if (h->range_total >= 0 && (uint64_t)h->range_total != size)
            return fail_size((uint64_t)h->range_total, b, err);
        if (!asked || !h->has_range || h->range_from != p->at || h->range_to >= p->end)
            return af_fail(err, AF_EFORMAT, "the server sends other bytes than those asked for");
        if (h->content_length >= 0 &&
            (uint64_t)h->content_length != h->range_to - h->range_from + 1)
            return af_fail(err, AF_EFORMAT,
                           "the server sends %" PRId64 " bytes for a range of %" PRIu64,
                           h->content_length, h->range_to - h->range_from + 1);
        return AF_OK;
    }
    if (h->status != 200)
        return af_fail(err, AF_EFORMAT, "the server answers with status %d", h->status);
    if (h->content_length >= 0 && (uint64_t)h->content_length != size)
        return fail_size((uint64_t)h->content_length, b, err);
    if (asked && b->taker)
        return af_fail(err, AF_EIO, "another part takes the whole file");
    if (asked)
        take_all(p);
    return AF_OK;
}

static af_status part_check(void *user, const af_http_head *h, bool of_hub, bool last,
                            af_error *err)
{
    af_blob_part *p = user;
    af_blob *b = p->blob;
    const char *want = af_hub_file_etag(b->file);
    const char *etag = *h->linked_etag ? h->linked_etag : h->etag;
    if (of_hub && *etag && (strlen(etag) == 40 || strlen(etag) == 64) && strcmp(etag, want) != 0)
        return af_fail_subject(err, AF_EFORMAT, "etag",
                               "the hub lists it with the hash %s and serves it as %s", want, etag);
    if (of_hub && h->linked_size >= 0 && (uint64_t)h->linked_size != b->file->size)
        return fail_size((uint64_t)h->linked_size, b, err);
    if (!last)
        return AF_OK;
    if (!of_hub)
        snprintf(b->location, sizeof b->location, "%s", p->ask.at);
    return check_range(p, h, err);
}

static af_status part_sink(void *user, const uint8_t *bytes, uint64_t n, af_error *err)
{
    af_blob_part *p = user;
    af_blob *b = p->blob;
    af_status st = AF_OK;
    if (n > p->end - p->at)
        return af_fail(err, AF_EFORMAT, "the server sends more bytes than those asked for");
    AF_TRY(af_part_write(b->fd, p->at, bytes, n, b->part, err));
    if (p->at == b->hashed)
        hash_add(b, bytes, n);
    af_byte_ranges_add(&b->journal.done, p->at, p->at + n);
    p->at += n;
    AF_TRY(write_journal(b, err));
done:
    return st;
}

static void part_start(af_blob *b, af_blob_part *p, af_byte_range span)
{
    *p = (af_blob_part){.blob = b, .active = true, .at = span.from, .end = span.to};
    p->ask = (af_ask){.method = "GET",
                      .url = b->url,
                      .for_file = true,
                      .begin = part_begin,
                      .check = part_check,
                      .sink = part_sink,
                      .user = p};
    memcpy(p->ask.at, b->location, sizeof p->ask.at);
}

/* The next bytes that neither are there nor on their way. */
static bool next_span(const af_blob *b, af_byte_range *out)
{
    const uint64_t size = b->file->size;
    uint64_t most = AF_MIN(AF_MAX(size / 64, (uint64_t)AF_BLOB_PART_MIN), AF_BLOB_PART_MAX);
    af_byte_ranges taken = b->journal.done;
    for (int i = 0; i < AF_BLOB_PARTS; i++)
        if (b->parts[i].active)
            af_byte_ranges_add(&taken, b->parts[i].at, b->parts[i].end);
    if (b->taker)
        most = size;
    if (!af_byte_ranges_gap(&taken, 0, size, out))
        return false;
    if (out->to - out->from > most + AF_BLOB_PART_MIN) /* no tiny rest */
        out->to = out->from + most;
    return true;
}

static void part_stop(af_blob_part *p)
{
    if (p->active)
        af_ask_clear(&p->ask, p->blob->client);
    p->active = false;
}

static af_status part_look(af_blob_part *p, af_error *err)
{
    af_blob *b = p->blob;
    if (p->at == p->end) { /* whatever becomes of the connection */
        part_stop(p);
        return AF_OK;
    }
    af_ask_step(&p->ask, b->client);
    if (p->ask.state == AF_ASK_DONE) {
        const bool short_of = p->at < p->end;
        const bool moved = p->ask.moved;
        part_stop(p);
        if (short_of && !moved) /* a whole answer without a byte: again would be the same */
            return af_fail(err, AF_EFORMAT, "%s: the server sends fewer bytes than it says",
                           b->file->path);
    } else if (p->ask.state == AF_ASK_FAILED) {
        if (p->ask.tries > 0 || p->ask.status == 403)
            b->location[0] = '\0';
        const af_status st = af_ask_fail(&p->ask, b->client, b->repo, b->file->path, err);
        part_stop(p);
        return st;
    }
    return AF_OK;
}

/* One part takes the whole file: the others are of no use any more. */
static void stop_others(af_blob *b)
{
    for (int i = 0; i < AF_BLOB_PARTS && b->taker; i++)
        if (&b->parts[i] != b->taker)
            part_stop(&b->parts[i]);
}

/* ---- the end ---- */

static af_status start_again(af_blob *b, const char *hex, af_error *err)
{
    const af_hub_file *f = b->file;
    for (int i = 0; i < AF_BLOB_PARTS; i++)
        part_stop(&b->parts[i]);
    b->journal.done = (af_byte_ranges){0};
    b->location[0] = '\0';
    b->taker = NULL;
    hash_begin(b);
    const af_status st = write_journal(b, err);
    if (st != AF_OK)
        return st;
    if (++b->takes < TAKES_MAX) {
        af_log_write(AF_LOG_WARN, "%s arrived with a wrong checksum and is downloaded again",
                     f->path);
        return AF_OK;
    }
    remove_leftovers(b);
    return af_fail_subject(err, AF_EFORMAT, "checksum",
                           "%s has the checksum %s, not %s as the hub lists it; nothing of it was "
                           "kept",
                           f->path, hex, af_hub_file_etag(f));
}

static af_status finish(af_blob *b, af_error *err)
{
    char hex[65];
    if (!hash_is_right(b, hex))
        return start_again(b, hex, err);
    const int fd = b->fd;
    b->fd = -1;
    const af_status st = af_part_finish(fd, b->part, b->final, b->keep, err);
    if (st != AF_OK)
        return st;
    remove_leftovers(b);
    b->state = AF_BLOB_DONE;
    return AF_OK;
}

af_status af_blob_step(af_blob *b, int slots, af_error *err)
{
    af_status st = AF_OK;
    af_byte_range span;
    int running = 0;
    stop_others(b);
    for (int i = 0; i < AF_BLOB_PARTS; i++) {
        if (b->parts[i].active)
            AF_TRY(part_look(&b->parts[i], err));
        running += b->parts[i].active;
    }
    for (int i = 0; i < AF_BLOB_PARTS && running < slots; i++)
        if (!b->parts[i].active && (!b->taker || b->taker == &b->parts[i]) && next_span(b, &span)) {
            part_start(b, &b->parts[i], span);
            af_ask_step(&b->parts[i].ask, b->client);
            running++;
        }
    AF_TRY(hash_some(b, HASH_STEPS, err));
    if (running == 0 && b->hashed == b->file->size)
        AF_TRY(finish(b, err));
done:
    return st;
}

int af_blob_running(const af_blob *b)
{
    int n = 0;
    for (int i = 0; i < AF_BLOB_PARTS; i++)
        n += b->parts[i].active;
    return n;
}

uint64_t af_blob_bytes(const af_blob *b)
{
    return b->state == AF_BLOB_DONE ? b->file->size : af_byte_ranges_total(&b->journal.done);
}

bool af_blob_is_behind(const af_blob *b)
{
    return b->state == AF_BLOB_RUNNING && b->hashed < whole(b);
}

void af_blob_clear(af_blob *b)
{
    for (int i = 0; i < AF_BLOB_PARTS; i++)
        part_stop(&b->parts[i]);
    af_part_close(b->fd);
    af_part_close(b->note_fd);
    af_part_close(b->lock_fd);
    free(b->url);
    free(b->final);
    free(b->part);
    free(b->note);
    free(b->lock);
    *b = (af_blob){.fd = -1, .note_fd = -1, .lock_fd = -1};
}

af_status af_blob_check(bool *same, const af_hub_file *f, const char *path, af_error *err)
{
    char hex[65];
    af_blob b = {.file = f, .part = (char *)path, .fd = -1};
    *same = false;
    if (af_file_size(path) != (int64_t)f->size)
        return AF_OK;
    af_status st = af_part_open_read(&b.fd, path, err);
    if (st != AF_OK)
        return st;
    hash_begin(&b);
    af_byte_ranges_add(&b.journal.done, 0, f->size);
    while (st == AF_OK && b.hashed < f->size)
        st = hash_some(&b, HASH_STEPS, err);
    *same = st == AF_OK && hash_is_right(&b, hex);
    af_part_close(b.fd);
    return st;
}
