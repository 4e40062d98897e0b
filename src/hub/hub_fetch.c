/* hub_fetch.c - the needed files of a commit into the cache, or into a plain folder: which of them
 * are there, whether the disk has space for the rest, and all downloads side by side. */
#include "base/cache_file.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/hub_blob.h"
#include "hub/hub_pull.h"

#include <stdarg.h>

enum { REQUESTS = 8, BLOBS = 8 };

AF_PRINTF(2, 3) static char *print_path(bool *bad, const char *fmt, ...)
{
    af_buf b = {0};
    char text[8192];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0 && n < (int)sizeof text)
        af_buf_str(&b, text);
    char *path = n >= 0 && n < (int)sizeof text ? af_buf_take(&b) : NULL;
    *bad |= !path;
    return path;
}

/* ---- what is there ---- */

static char *snapshot_path(const af_hub_store *s, const af_hub_file *f, bool *bad)
{
    return s->output ? print_path(bad, "%s/%s", s->output, f->path)
                     : print_path(bad, "%s/snapshots/%s/%s", s->dir, s->commit, f->path);
}

static char *final_path(const af_hub_store *s, const af_hub_file *f, bool *bad)
{
    return s->output ? print_path(bad, "%s/%s", s->output, f->path)
                     : print_path(bad, "%s/blobs/%s", s->dir, af_hub_file_etag(f));
}

/* The link of the snapshot to the blob: one "../" per folder of the path, and two. */
static af_status make_link(const af_hub_store *s, const af_hub_file *f, af_error *err)
{
    bool bad = false;
    af_buf target = {0};
    if (s->output)
        return AF_OK;
    for (const char *p = f->path; *p; p++)
        if (*p == '/')
            af_buf_str(&target, "../");
    af_buf_printf(&target, "../../blobs/%s", af_hub_file_etag(f));
    char *path = snapshot_path(s, f, &bad), *have = path ? af_link_read(path) : NULL;
    af_status st = AF_OK;
    if (bad || target.bad)
        st = af_fail_nomem(err, "a path", strlen(f->path));
    else if (!have || strcmp(have, target.data) != 0)
        st = af_link_make(target.data, path, err);
    free(have);
    free(path);
    af_buf_clear(&target);
    return st;
}

/* Links the blob to the one copy of a Xet file that huggingface_hub 2.x keeps for the whole cache,
 * when that has the right content: blobs/HH/HASH, with its list of links. */
static af_status use_shared(bool *used, const af_hub_store *s, const af_hub_file *f, af_error *err)
{
    af_status st = AF_OK;
    bool bad = false, same = false;
    char *mark = NULL, *blob = NULL, *refs = NULL, *path = NULL, *target = NULL, *line = NULL;
    *used = false;
    if (s->output || !*f->xet)
        return AF_OK;
    mark = print_path(&bad, "%s/blobs/.huggingface-shared-blobs", s->cache);
    blob = print_path(&bad, "%s/blobs/%.2s/%s", s->cache, f->xet, f->xet);
    refs = print_path(&bad, "%s/blobs/%.2s/%s.refs", s->cache, f->xet, f->xet);
    path = print_path(&bad, "%s/blobs/%s", s->dir, af_hub_file_etag(f));
    target = print_path(&bad, "../../blobs/%.2s/%s", f->xet, f->xet);
    line = print_path(&bad, "%s/blobs/%s\n", af_path_name(s->dir), af_hub_file_etag(f));
    if (bad)
        AF_TRY(af_fail_nomem(err, "a path", strlen(s->cache)));
    if (!af_file_exists(mark) || af_file_size(blob) != (int64_t)f->size)
        goto done;
    AF_TRY(af_blob_check(&same, f, blob, err));
    if (!same)
        goto done;
    AF_TRY(af_file_append(refs, line, strlen(line), false, err));
    AF_TRY(af_link_make(target, path, err));
    *used = true;
done:
    free(mark);
    free(blob);
    free(refs);
    free(path);
    free(target);
    free(line);
    return st;
}

/* In a plain folder, a file of another content is the user's. */
static af_status check_output(const af_hub_file *f, const char *path, bool *there, af_error *err)
{
    if (!af_path_is_taken(path))
        return AF_OK;
    const af_status st = af_blob_check(there, f, path, err);
    if (st != AF_OK || *there)
        return st;
    return af_fail(err, AF_EUSAGE,
                   "'%s' is there already and has another content; move it away, or name another "
                   "folder",
                   path);
}

static af_status is_there(const af_hub_store *s, const af_hub_file *f, bool *there, af_error *err)
{
    bool bad = false;
    af_status st = AF_OK;
    char *path = final_path(s, f, &bad);
    *there = false;
    if (bad)
        return af_fail_nomem(err, "a path", strlen(f->path));
    if (s->output)
        AF_TRY(check_output(f, path, there, err));
    else
        *there = af_file_size(path) == (int64_t)f->size;
    if (!*there)
        AF_TRY(use_shared(there, s, f, err));
done:
    free(path);
    return st;
}

/* ---- one file ---- */

static af_status open_blob(af_blob *b, const af_hub_store *s, const af_hub_file *f, af_error *err)
{
    bool bad = false;
    const char *etag = af_hub_file_etag(f);
    af_buf url = {0};
    char *part, *note, *lock;
    af_buf_printf(&url, "%s/%s%s/resolve/%s/", s->client->endpoint,
                  s->repo->kind == AF_HUB_DATASET ? "datasets/" : "", s->repo->name, s->commit);
    af_url_quote(&url, f->path, true);
    if (s->output) {
        part = print_path(&bad, "%s/.cache/huggingface/download/%s.afinar.incomplete", s->output,
                          etag);
        note =
            print_path(&bad, "%s/.cache/huggingface/download/%s.afinar.journal", s->output, etag);
        lock = print_path(&bad, "%s/.cache/huggingface/download/%s.lock", s->output, etag);
    } else {
        part = print_path(&bad, "%s/blobs/%s.afinar.incomplete", s->dir, etag);
        note = print_path(&bad, "%s/blobs/%s.afinar.journal", s->dir, etag);
        lock = print_path(&bad, "%s/.locks/%s/%s.lock", s->cache, af_path_name(s->dir), etag);
    }
    char *final = final_path(s, f, &bad), *address = af_buf_take(&url);
    af_buf_clear(&url);
    af_blob_init(b, f, s->repo, s->client, address, final, part, note, lock);
    b->keep = s->output != NULL;
    if (!address || bad) {
        af_blob_clear(b);
        return af_fail_nomem(err, "a path", strlen(f->path));
    }
    return AF_OK;
}

/* Bytes of the file that an earlier process left. */
static uint64_t left_over(const af_hub_store *s, const af_hub_file *f)
{
    af_blob b;
    char *text = NULL;
    uint64_t n = 0, bytes = 0;
    af_journal j;
    if (open_blob(&b, s, f, NULL) != AF_OK)
        return 0;
    if (af_file_exists(b.part) && af_file_exists(b.note) &&
        af_file_read(&text, &n, b.note, 4 * AF_JOURNAL_SLOT, NULL) == AF_OK &&
        af_journal_parse(&j, text, n) && j.size == f->size)
        bytes = af_byte_ranges_total(&j.done);
    free(text);
    af_blob_clear(&b);
    return bytes;
}

/* What a process left that was killed right after the last byte. */
static void remove_left(const af_hub_store *s, const af_hub_file *f)
{
    af_blob b;
    if (open_blob(&b, s, f, NULL) != AF_OK)
        return;
    (void)!af_path_remove(b.part, NULL);
    (void)!af_path_remove(b.note, NULL);
    af_blob_clear(&b);
}

/* ---- all files ---- */

typedef struct fetch {
    const af_hub_store *s;
    const af_hub_file **todo;
    int count, next; /* to begin next */
    af_blob *blob;   /* [BLOBS] */
    bool used[BLOBS];
    uint64_t before; /* bytes of files that are complete */
    af_hub_meter *meter;
    bool waited;
} fetch;

static af_status list_todo(fetch *f, const af_hub_tree *t, af_error *err)
{
    af_status st = AF_OK;
    uint64_t bytes = 0;
    f->todo = af_calloc((uint64_t)t->count + 1, sizeof *f->todo);
    if (!f->todo)
        return af_fail_nomem(err, "a list of files", (uint64_t)t->count * sizeof *f->todo);
    for (int i = 0; i < t->count; i++) {
        const af_hub_file *file = &t->file[i];
        bool there = false;
        if (!file->needed)
            continue;
        f->meter->p.files++;
        f->meter->p.total += file->size;
        AF_TRY(is_there(f->s, file, &there, err));
        if (there) {
            remove_left(f->s, file);
            AF_TRY(make_link(f->s, file, err));
            f->before += file->size;
            f->meter->p.files_done++;
        }
        const uint64_t have = there ? 0 : left_over(f->s, file);
        const uint64_t rest = there ? 0 : file->size - AF_MIN(have, file->size);
        bytes = af_add_ok(bytes, rest, &bytes) ? bytes : UINT64_MAX;
        if (!there)
            f->todo[f->count++] = file;
        if (!there && file->size > UINT64_C(50000000000))
            af_log_write(AF_LOG_WARN,
                         "%s has %.0f GB: the hub serves files above 50 GB through Xet alone, "
                         "which afinar does not speak; this may be refused (hf download fetches "
                         "it)",
                         file->path, (double)file->size / 1e9);
    }
    AF_TRY(af_disk_check(f->s->output ? f->s->output : f->s->cache, "the download", bytes, err));
done:
    return st;
}

/* Another file of this pull has the same content, and comes first. */
static bool is_ours(const fetch *f, const af_blob *b)
{
    for (int i = 0; i < BLOBS; i++)
        if (f->used[i] && f->blob[i].lock_fd >= 0 && strcmp(f->blob[i].lock, b->lock) == 0)
            return true;
    return false;
}

static af_status step_blob(fetch *f, int i, int *running, bool *behind, af_error *err)
{
    af_status st = AF_OK;
    af_blob *b = &f->blob[i];
    if (b->state == AF_BLOB_LOCKED)
        AF_TRY(af_blob_begin(b, err));
    if (b->state == AF_BLOB_LOCKED && !f->waited && !is_ours(f, b)) {
        f->waited = true;
        af_log_write(AF_LOG_INFO, "waiting for another process that downloads %s", b->file->path);
    }
    if (b->state == AF_BLOB_RUNNING)
        AF_TRY(af_blob_step(b, REQUESTS - *running, err));
    *running += af_blob_running(b);
    *behind |= af_blob_is_behind(b);
    if (b->state == AF_BLOB_DONE) {
        AF_TRY(make_link(f->s, b->file, err));
        f->before += b->file->size;
        f->meter->p.files_done++;
        af_blob_clear(b);
        f->used[i] = false;
        *behind = true; /* a place is free */
    }
done:
    return st;
}

static af_status run(fetch *f, af_error *err)
{
    af_status st = AF_OK;
    af_transport *net = f->s->client->net;
    for (bool any = true; any;) {
        int running = 0;
        bool behind = false;
        uint64_t done = f->before;
        any = false;
        for (int i = 0; i < BLOBS; i++) {
            if (!f->used[i] && f->next < f->count && running < REQUESTS) {
                AF_TRY(open_blob(&f->blob[i], f->s, f->todo[f->next++], err));
                f->used[i] = true;
            }
            if (f->used[i])
                AF_TRY(step_blob(f, i, &running, &behind, err));
            any |= f->used[i];
        }
        any |= f->next < f->count;
        for (int i = 0; i < BLOBS; i++)
            done += f->used[i] ? af_blob_bytes(&f->blob[i]) : 0;
        AF_TRY(af_hub_meter_tell(f->meter, net->now(net), AF_MAX(done, f->before), !any, err));
        if (any)
            AF_TRY(net->wait(net, behind ? 0 : 0.1, err));
    }
done:
    return st;
}

af_status af_hub_fetch_files(const af_hub_store *s, const af_hub_tree *t, af_hub_meter *m,
                             af_error *err)
{
    af_status st = AF_OK;
    fetch f = {.s = s, .meter = m};
    f.blob = af_calloc(BLOBS, sizeof *f.blob);
    if (!f.blob)
        AF_TRY(af_fail_nomem(err, "downloads", BLOBS * sizeof *f.blob));
    AF_TRY(list_todo(&f, t, err));
    AF_TRY(run(&f, err));
done:
    for (int i = 0; i < BLOBS && f.blob; i++)
        if (f.used[i])
            af_blob_clear(&f.blob[i]);
    free(f.blob);
    free(f.todo);
    return st;
}
