/* hub_large.c - large files to the hub's storage: the batch question of git-lfs, then one PUT, or
 * one per part and a list of what the storage answered, then the hub's check. */
#include "base/cache_file.h"
#include "format/text/json_text.h"
#include "hub/hub_push.h"

enum { BATCH = 100, PARTS_MAX = 10000 };
static const char lfs_type[] = "Content-Type: application/vnd.git-lfs+json";

/* PUTs [from, from + n) of a file; etag (may be NULL) takes what the storage calls it. */
static af_status put(af_push *p, const char *url, int fd, const af_push_file *f, uint64_t from,
                     uint64_t n, char etag[130], af_error *err)
{
    af_status st = AF_OK;
    af_transport *net = p->client->net;
    af_ask a = {.method = "PUT",
                .url = url,
                .size = n,
                .body = f->text ? f->text + from : NULL,
                .has_file = !f->text,
                .fd = fd,
                .from = from,
                .for_file = true,
                .is_slow = true};
    while (a.state == AF_ASK_READY || a.state == AF_ASK_RUNNING) {
        af_ask_step(&a, p->client);
        AF_TRY(af_hub_meter_tell(p->meter, net->now(net), p->sent, false, err));
        if (a.state == AF_ASK_READY || a.state == AF_ASK_RUNNING)
            AF_TRY(net->wait(net, 0.1, err));
    }
    if (a.state != AF_ASK_DONE)
        AF_TRY(af_ask_fail(&a, p->client, NULL, f->name, err));
    if (etag)
        memcpy(etag, a.call.head.etag_text, sizeof a.call.head.etag_text);
    p->sent += n;
done:
    af_ask_clear(&a, p->client);
    return st;
}

static af_status fail_answer(const af_push *p, const af_push_file *f, af_error *err)
{
    return af_fail(err, AF_EFORMAT, "%s: %s answers in a way that is not git-lfs", f->name,
                   p->client->endpoint);
}

/* {"oid", "parts": [{"partNumber", "etag"}, ...]} to the address of the upload. */
static af_status complete(af_push *p, const af_push_file *f, const char *url, json_t *parts,
                          af_error *err)
{
    json_t *j = json_pack("{s:s, s:O}", "oid", f->sha256, "parts", parts);
    char *text = j ? af_json_dump(j, JSON_COMPACT) : NULL;
    const af_status st = text ? af_push_ask(NULL, p, url, lfs_type, text, strlen(text), NULL, err)
                              : af_fail_nomem(err, "a question", 0);
    free(text);
    json_decref(j);
    return st;
}

static af_status put_parts(af_push *p, const af_push_file *f, int fd, const char *url,
                           json_t *header, uint64_t each, af_error *err)
{
    af_status st = AF_OK;
    json_t *done = json_array();
    const uint64_t count = (f->size + each - 1) / each;
    if (count > PARTS_MAX)
        AF_TRY(fail_answer(p, f, err));
    for (uint64_t i = 0; i < count; i++) {
        char key[24], etag[130] = "";
        snprintf(key, sizeof key, "%05" PRIu64, i + 1);
        json_t *where = json_object_get(header, key);
        if (!where) { /* without leading zeros */
            snprintf(key, sizeof key, "%" PRIu64, i + 1);
            where = json_object_get(header, key);
        }
        if (!json_string_value(where))
            AF_TRY(fail_answer(p, f, err));
        const uint64_t from = i * each, n = AF_MIN(each, f->size - from);
        AF_TRY(put(p, json_string_value(where), fd, f, from, n, etag, err));
        if (!*etag)
            AF_TRY(fail_answer(p, f, err));
        json_array_append_new(
            done, json_pack("{s:I, s:s}", "partNumber", (json_int_t)(i + 1), "etag", etag));
    }
    AF_TRY(complete(p, f, url, done, err));
done:
    json_decref(done);
    return st;
}

/* The hub compares what arrived with the hash. */
static af_status verify(af_push *p, const af_push_file *f, const char *url, af_error *err)
{
    char body[160];
    const int n =
        snprintf(body, sizeof body, "{\"oid\": \"%s\", \"size\": %" PRIu64 "}", f->sha256, f->size);
    return af_push_ask(NULL, p, url, lfs_type, body, (uint64_t)n, NULL, err);
}

static af_status send_one(af_push *p, const af_push_file *f, json_t *row, af_error *err)
{
    af_status st = AF_OK;
    int fd = -1;
    json_t *actions = json_object_get(row, "actions"), *up = json_object_get(actions, "upload");
    json_t *header = json_object_get(up, "header"), *size = json_object_get(header, "chunk_size");
    const char *url = json_string_value(json_object_get(up, "href"));
    const char *check =
        json_string_value(json_object_get(json_object_get(actions, "verify"), "href"));
    const char *why = json_string_value(json_object_get(json_object_get(row, "error"), "message"));
    if (why)
        return af_fail(err, AF_EIO, "%s: the hub does not take it: %.200s", f->name, why);
    if (!json_is_object(actions)) { /* it is there: an earlier push was cut after it */
        p->sent += f->size;
        return AF_OK;
    }
    if (!url)
        return fail_answer(p, f, err);
    const char *text = json_string_value(size);
    const int64_t each = text ? strtoll(text, NULL, 10) : json_integer_value(size);
    if (f->path)
        AF_TRY(af_part_open_read(&fd, f->path, err));
    if (size && each <= 0)
        AF_TRY(fail_answer(p, f, err));
    if (size)
        AF_TRY(put_parts(p, f, fd, url, header, (uint64_t)each, err));
    else
        AF_TRY(put(p, url, fd, f, 0, f->size, NULL, err));
    if (check)
        AF_TRY(verify(p, f, check, err));
done:
    af_part_close(fd);
    return st;
}

/* The question of up to BATCH files; NULL when out of memory. */
static char *batch_text(const af_push *p, af_push_file *const *list, int n)
{
    json_t *objects = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(objects, json_pack("{s:s, s:I}", "oid", list[i]->sha256, "size",
                                                 (json_int_t)list[i]->size));
    json_t *j = json_pack("{s:s, s:[s, s], s:o, s:s, s:{s:s}}", "operation", "upload", "transfers",
                          "basic", "multipart", "objects", objects, "hash_algo", "sha256", "ref",
                          "name", p->repo->revision);
    char *text = j ? af_json_dump(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return text;
}

static af_status send_batch(af_push *p, af_push_file *const *list, int n, af_error *err)
{
    af_status st = AF_OK;
    json_t *answer = NULL, *row;
    size_t k;
    af_buf url = {0};
    int sent = 0;
    char *text = batch_text(p, list, n);
    af_buf_printf(&url, "%s/%s%s.git/info/lfs/objects/batch", p->client->endpoint,
                  p->repo->kind == AF_HUB_DATASET ? "datasets/" : "", p->repo->name);
    if (!text || url.bad)
        AF_TRY(af_fail_nomem(err, "a question", 0));
    AF_TRY(af_push_ask(&answer, p, url.data, lfs_type, text, strlen(text), NULL, err));
    json_array_foreach(json_object_get(answer, "objects"), k, row)
    {
        const char *oid = json_string_value(json_object_get(row, "oid"));
        for (int i = 0; i < n; i++)
            if (oid && strcmp(oid, list[i]->sha256) == 0) {
                AF_TRY(send_one(p, list[i], row, err));
                p->meter->p.files_done++;
                sent++;
                break; /* the same content twice is sent once */
            }
    }
    if (sent < n)
        AF_TRY(fail_answer(p, list[0], err));
done:
    json_decref(answer);
    free(text);
    af_buf_clear(&url);
    return st;
}

af_status af_push_large(af_push *p, af_error *err)
{
    af_push_file *list[BATCH];
    int n = 0;
    af_status st = AF_OK;
    for (int i = 0; i < p->count && st == AF_OK; i++) {
        bool twice = false;
        for (int k = 0; k < n; k++)
            twice |= strcmp(list[k]->sha256, p->file[i].sha256) == 0;
        if (p->file[i].large && !p->file[i].known && !twice)
            list[n++] = &p->file[i];
        if (n == BATCH) {
            st = send_batch(p, list, n, err);
            n = 0;
        }
    }
    return st == AF_OK && n > 0 ? send_batch(p, list, n, err) : st;
}
