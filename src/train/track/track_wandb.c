/* track_wandb.c - an offline run of W&B: DIR/wandb/offline-run-DATE-ID with run-ID.wandb and
 * files/, which `wandb sync` uploads. As HF's callback does, every row is a step of its own, and
 * train/global_step is the step of the run. */
#define _GNU_SOURCE /* memmem */
#include "base/file.h"
#include "format/text/json_text.h"
#include "train/run/run_keys.h"
#include "train/track/tracker.h"
#include "train/track/wandb_log.h"

#include <limits.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

static const char step_key[] = "train/global_step";

typedef struct wandb {
    char path[PATH_MAX]; /* DIR/run-ID.wandb */
    uint64_t size;
    int64_t records, rows;
    double start;
    json_t *last; /* the summary: the last value of each name */
} wandb;

static af_status append(wandb *w, int field, af_buf *message, af_error *err)
{
    af_buf out = {0};
    if (w->size == 0)
        af_wandb_log_begin(&out);
    af_wandb_log_add(&out, w->size, ++w->records, field, message);
    const af_status st = out.bad ? af_fail_nomem(err, w->path, message->len)
                                 : af_file_append(w->path, out.data, out.len, false, err);
    w->size += out.len;
    af_buf_clear(&out);
    af_buf_clear(message);
    return st;
}

/* {key_field: key, 16: JSON} as field 1: an item of a configuration, a row or a summary. */
static void put_item(af_buf *b, int key_field, const char *key, const json_t *value)
{
    af_buf item = {0};
    char *text = af_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
    af_wandb_put_text(&item, key_field, key);
    af_wandb_put_text(&item, 16, text ? text : "null");
    af_wandb_put_bytes(b, 1, item.data, item.len);
    b->bad |= item.bad || !text;
    af_buf_clear(&item);
    free(text);
}

/* JSON has no NaN; W&B writes its name. */
static json_t *number(double v)
{
    if (isfinite(v))
        return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
    return json_string(isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
}

static const char *first_of(const char *key, const char *env, const char *otherwise)
{
    const char *value = getenv(env);
    return key && *key ? key : value && *value ? value : otherwise;
}

/* ---- files ---- */

/* Writes DIR/files/NAME. */
static af_status write_file(const wandb *w, const char *name, const char *text, uint64_t n,
                            af_error *err)
{
    char path[PATH_MAX + 64];
    const int dir = (int)(af_path_name(w->path) - w->path);
    snprintf(path, sizeof path, "%.*sfiles/%s", dir, w->path, name);
    return text ? af_file_write(path, text, n, err) : af_fail_nomem(err, name, n);
}

static af_status write_json(const wandb *w, const char *name, const json_t *o, af_error *err)
{
    char *text = af_json_dump(o, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    const af_status st = write_file(w, name, text, text ? strlen(text) : 0, err);
    free(text);
    return st;
}

static af_status write_config(const wandb *w, const json_t *keys, af_error *err)
{
    af_buf b = {0};
    const char *key;
    json_t *value;
    af_buf_str(&b, "wandb_version: 1\n");
    json_object_foreach((json_t *)keys, key, value)
    {
        char *text = af_json_dump(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        af_buf_printf(&b, "%s:\n    value: %s\n", key, text ? text : "null");
        b.bad |= !text;
        free(text);
    }
    const af_status st = write_file(w, "config.yaml", b.bad ? NULL : b.data, b.len, err);
    af_buf_clear(&b);
    return st;
}

static af_status write_metadata(const wandb *w, const af_run_config *run, af_error *err)
{
    char date[40], host[64] = "";
    const time_t t = (time_t)w->start;
    struct tm utc;
    gethostname(host, sizeof host - 1);
    gmtime_r(&t, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *o = json_pack("{s:s,s:s,s:s,s:[s,s]}", "program", "afinar", "startedAt", date, "host",
                          host, "args", "train", run->path ? run->path : "");
    const af_status st = write_json(w, "wandb-metadata.json", o, err);
    json_decref(o);
    return st;
}

/* ---- records ---- */

static af_status put_header(wandb *w, af_error *err)
{
    af_buf version = {0}, header = {0};
    af_wandb_put_text(&version, 1, "afinar");
    af_wandb_put_text(&version, 2, "0.40.0"); /* the oldest reader */
    af_wandb_put_bytes(&header, 1, version.data, version.len);
    header.bad |= version.bad;
    af_buf_clear(&version);
    return append(w, AF_WANDB_HEADER, &header, err);
}

static af_status put_run(wandb *w, const char *id, const af_track_start *s, af_error *err)
{
    af_buf b = {0}, config = {0}, time = {0};
    char host[64] = "";
    const char *key, *entity = getenv("WANDB_ENTITY");
    json_t *value;
    gethostname(host, sizeof host - 1);
    json_object_foreach((json_t *)s->keys, key, value) put_item(&config, 1, key, value);
    af_wandb_put_varint(&time, 1, (uint64_t)w->start);
    af_wandb_put_varint(&time, 2, (uint64_t)((w->start - floor(w->start)) * 1e9));
    af_wandb_put_text(&b, 1, id);
    if (entity && *entity)
        af_wandb_put_text(&b, 2, entity);
    af_wandb_put_text(&b, 3, first_of(s->run->wandb_project, "WANDB_PROJECT", "huggingface"));
    af_wandb_put_bytes(&b, 4, config.data, config.len);
    af_wandb_put_text(&b, 8, first_of(s->run->wandb_name, "WANDB_NAME", s->name));
    af_wandb_put_text(&b, 13, host);
    af_wandb_put_bytes(&b, 17, time.data, time.len);
    b.bad |= config.bad || time.bad;
    af_buf_clear(&config);
    af_buf_clear(&time);
    return append(w, AF_WANDB_RUN, &b, err);
}

static af_status create_run(wandb *w, const af_track_start *s, af_error *err)
{
    char id[65], date[20], fresh[9];
    const time_t t = (time_t)s->time;
    struct tm local;
    localtime_r(&t, &local);
    strftime(date, sizeof date, "%Y%m%d_%H%M%S", &local);
    af_track_new_id(fresh, 8, s->run->output_dir);
    snprintf(id, sizeof id, "%s", first_of(s->run->wandb_run_id, "WANDB_RUN_ID", fresh));
    if (strpbrk(id, "/\\#?%:"))
        return af_fail(err, AF_EUSAGE, "the run's id '%s' has characters W&B does not allow", id);
    char dir[PATH_MAX];
    if (snprintf(dir, sizeof dir, "%s/wandb/offline-run-%s-%s/files",
                 first_of(NULL, "WANDB_DIR", s->run->output_dir), date, id) >= PATH_MAX - 100)
        return af_fail(err, AF_EIO, "the path of the run is too long");
    af_status st = af_dir_make(dir, err);
    if (st != AF_OK)
        return st;
    dir[strlen(dir) - strlen("/files")] = '\0';
    if (snprintf(w->path, sizeof w->path, "%s/run-%s.wandb", dir, id) >= PATH_MAX)
        return af_fail(err, AF_EIO, "the path of the run is too long");
    if (af_file_exists(w->path))
        return af_fail(err, AF_EIO, "%s: is there already", w->path);
    st = put_header(w, err);
    if (st == AF_OK)
        st = put_run(w, id, s, err);
    if (st == AF_OK)
        st = write_config(w, s->keys, err);
    return st == AF_OK ? write_metadata(w, s->run, err) : st;
}

/* The step of the run in a row written by wandb_row: its first item, {key, tag of 2 bytes, length,
 * digits}. */
static int64_t row_step(const af_buf *row)
{
    const char *key = row->len ? memmem(row->data, row->len, step_key, sizeof step_key - 1) : NULL;
    return key ? strtoll(key + sizeof step_key - 1 + 3, NULL, 10) : 0;
}

/* Writes the file again without the rows of later steps and without its end. */
static af_status continue_run(wandb *w, const af_track_start *s, af_error *err)
{
    char *file = NULL;
    uint64_t size = 0, at = 0;
    int64_t num;
    af_buf record = {0}, message = {0}, out = {0};
    snprintf(w->path, sizeof w->path, "%s", s->id);
    af_status st = af_file_read(&file, &size, w->path, UINT64_MAX / 2, err);
    if (st != AF_OK)
        return st;
    af_wandb_log_begin(&out);
    while (af_wandb_log_next(file, size, &at, &record)) {
        const int kind = af_wandb_record_kind(&record, &num, &message);
        if (kind == AF_WANDB_HISTORY && row_step(&message) <= s->step)
            w->rows++;
        else if (kind != AF_WANDB_HEADER && kind != AF_WANDB_RUN)
            continue;
        af_wandb_log_add(&out, 0, ++w->records, kind, &message);
    }
    st = out.bad || record.bad || message.bad ? af_fail_nomem(err, w->path, size)
                                              : af_file_write(w->path, out.data, out.len, err);
    w->size = out.len;
    af_buf_clear(&record);
    af_buf_clear(&message);
    af_buf_clear(&out);
    free(file);
    return st;
}

/* ---- the tracker ---- */

static void wandb_free(void *state)
{
    wandb *w = state;
    json_decref(w->last);
    free(w);
}

static af_status wandb_open(void **state, char **id, const af_track_start *s, af_error *err)
{
    const char *mode = getenv("WANDB_MODE");
    if (mode && strcmp(mode, "disabled") == 0)
        return AF_OK;
    wandb *w = calloc(1, sizeof *w);
    if (!w)
        return af_fail_nomem(err, "W&B's run", sizeof *w);
    w->start = s->time;
    w->last = json_object();
    const bool there = s->id && af_file_exists(s->id);
    af_status st = there ? continue_run(w, s, err) : create_run(w, s, err);
    if (st == AF_OK && !(*id = strdup(w->path)))
        st = af_fail_nomem(err, "a path", strlen(w->path));
    if (st == AF_OK)
        *state = w;
    else
        wandb_free(w);
    return st;
}

static void put_value(af_buf *b, json_t *last, const char *name, json_t *value)
{
    put_item(b, 2, name, value);
    json_object_set_new(last, name, value);
}

static af_status wandb_row(void *state, const af_track_row *row, af_error *err)
{
    wandb *w = state;
    af_buf b = {0}, step = {0};
    char name[128];
    put_value(&b, w->last, step_key, json_integer(row->step));
    for (int i = 0; i < row->count; i++) {
        af_track_name(name, sizeof name, row->name[i]);
        put_value(&b, w->last, name, number(row->value[i]));
    }
    put_value(&b, w->last, "_timestamp", json_real(row->time));
    put_value(&b, w->last, "_runtime", json_real(row->time - w->start));
    put_value(&b, w->last, "_step", json_integer(w->rows));
    af_wandb_put_varint(&step, 1, (uint64_t)w->rows++);
    af_wandb_put_bytes(&b, 2, step.data, step.len);
    b.bad |= step.bad;
    af_buf_clear(&step);
    return append(w, AF_WANDB_HISTORY, &b, err);
}

static af_status wandb_end(void *state, af_track_end how, double time, af_error *err)
{
    wandb *w = state;
    af_buf summary = {0}, end = {0};
    const char *key;
    json_t *value;
    json_object_foreach(w->last, key, value) put_item(&summary, 2, key, value);
    /* 255: as its client after Ctrl-C */
    af_wandb_put_varint(&end, 1, how == AF_TRACK_DONE ? 0 : how == AF_TRACK_FAILED ? 1 : 255);
    af_wandb_put_varint(&end, 2, (uint64_t)(time - w->start));
    af_status st = append(w, AF_WANDB_SUMMARY, &summary, err);
    if (st == AF_OK)
        st = append(w, AF_WANDB_EXIT, &end, err);
    af_buf_clear(&end);
    return st == AF_OK ? write_json(w, "wandb-summary.json", w->last, err) : st;
}

const af_tracker_kind af_track_wandb = {
    .which = AF_TRACKER_WANDB,
    .name = "wandb",
    .open = wandb_open,
    .row = wandb_row,
    .end = wandb_end,
    .free = wandb_free,
};
