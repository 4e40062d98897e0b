/* distill_capture.c - `afinar distill capture`: the teacher of a run over the run's data.
 *
 * Finished records are appended to OUT.part, each with a sum, after a line with the hash of
 * everything the values depend on; a capture that was killed goes on behind the last whole one. At
 * the end the parts are put together in OUT (capture.h). */
#include "afinar/model.h"
#include "afinar/output.h"
#include "afinar/train.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/publish.h"
#include "tensor/dtype.h"
#include "train/run/run_hooks.h"
#include "train/step/run_data.h"
#include "train/trainer/reference_cache.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { KEY_LINE = 65, TOPK_DEFAULT = 64, VOCAB_MAX = 1 << 20, LOW_IDS = 1 << 16 };

typedef struct capture_job {
    af_run_config run;
    af_run_model outline;
    af_run_data data;
    af_model *teacher;
    char *teacher_path, *part;
    char key[65], data_hash[65], teacher_hash[65];
    int64_t k, vocab;      /* tokens of a position; that the student has, too */
    int64_t width, done;   /* bytes of a position; records in the file of parts */
    float *logits;         /* [longest][vocab of the teacher] */
    int32_t *ids, *best;   /* [longest]; [k] */
    unsigned char *record; /* the positions of one, and their sum */
} capture_job;

static bool has_high(const capture_job *j) { return j->vocab > LOW_IDS; }
static int64_t high_width(const capture_job *j) { return has_high(j) ? (j->k + 1) / 2 : 0; }

/* ---- what it is made of ---- */

static af_status make_key(capture_job *j, af_error *err)
{
    af_sha256 h;
    char text[300];
    const af_run_config *r = &j->run;
    af_status st = AF_OK;
    af_sha256_init(&h);
    AF_TRY(af_weights_hash(&h, j->teacher_path, err));
    if (r->teacher_adapter)
        AF_TRY(af_weights_hash(&h, r->teacher_adapter, err));
    snprintf(text, sizeof text, "%d %d", r->teacher_load_in_4bit, (int)j->outline.compute);
    af_sha256_add(&h, text, strlen(text));
    af_sha256_hex(&h, j->teacher_hash);
    af_capture_data_hash(&j->data.store, j->data_hash);
    af_sha256_init(&h);
    snprintf(text, sizeof text, "%s %s %" PRId64 " %" PRId64, j->teacher_hash, j->data_hash, j->k,
             j->vocab);
    af_sha256_add(&h, text, strlen(text));
    af_sha256_hex(&h, j->key);
done:
    return st;
}

static af_status open_job(capture_job *j, const char *out, af_error *err)
{
    af_status st = AF_OK;
    af_run_config *r = &j->run;
    if (!r->teacher_model)
        AF_TRY(af_fail(err, AF_EUSAGE, "%s: no 'teacher_model' to capture", r->path));
    r->kd_logits = NULL; /* the file that this one may become */
    AF_TRY(af_model_resolve_whole(&j->teacher_path, r->teacher_model, err));
    AF_TRY(af_run_model_open_outline(&j->outline, r, err));
    AF_TRY(af_run_data_open(&j->data, r, &j->outline, err));
    j->vocab = AF_MIN(j->outline.spec->vocab, j->outline.teacher_spec->vocab);
    if (j->vocab > VOCAB_MAX)
        AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                       "%s: a capture has ids of 20 bits, and the model %" PRId64 " tokens",
                       r->path, j->vocab));
    j->k = AF_MIN(r->kd_topk ? r->kd_topk : TOPK_DEFAULT, j->vocab);
    j->width = 4 * j->k + high_width(j) + (int64_t)sizeof(float);
    AF_TRY(make_key(j, err));
    j->part = af_calloc(strlen(out) + 6, 1);
    if (!j->part)
        AF_TRY(af_fail_nomem(err, "a path", strlen(out)));
    snprintf(j->part, strlen(out) + 6, "%s.part", out);
done:
    return st;
}

static af_status open_teacher(capture_job *j, af_error *err)
{
    const af_run_config *r = &j->run;
    const uint64_t longest = AF_MAX(j->data.store.longest, 1);
    const af_model_opts o = {.device = r->device,
                             .threads = (int)r->threads,
                             .compute = j->outline.compute == AF_DTYPE_F32 ? AF_COMPUTE_F32
                                                                           : AF_COMPUTE_BF16,
                             .load_in_4bit = r->teacher_load_in_4bit,
                             .adapter = {r->teacher_adapter},
                             .adapter_weight = {1},
                             .adapters = r->teacher_adapter != NULL};
    const af_status st = af_model_open(&j->teacher, j->teacher_path, &o, err);
    if (st != AF_OK)
        return st;
    const uint64_t V = (uint64_t)af_model_vocab(j->teacher);
    j->logits = af_calloc(longest * V, sizeof *j->logits);
    j->ids = af_calloc(longest, sizeof *j->ids);
    j->best = af_calloc((uint64_t)j->k, sizeof *j->best);
    j->record = af_calloc(longest * (uint64_t)j->width + sizeof(uint64_t), 1);
    return j->logits && j->ids && j->best && j->record
               ? AF_OK
               : af_fail_nomem(err, "logits", longest * V * sizeof *j->logits);
}

/* ---- positions ---- */

/* The k largest, by value and then by number. */
static void find_best(const float *z, int64_t vocab, int64_t k, int32_t *best)
{
    int64_t n = 0;
    for (int64_t v = 0; v < vocab; v++) {
        if (n == k && !(z[v] > z[best[k - 1]]))
            continue;
        int64_t i = n < k ? n++ : k - 1;
        for (; i > 0 && z[v] > z[best[i - 1]]; i--)
            best[i] = best[i - 1];
        best[i] = (int32_t)v;
    }
}

/* u16 [k] low bits, u8 [] high ones, f16 [k], f32 */
static void pack_position(const capture_job *j, const float *z, unsigned char *to)
{
    double sum = 0, kept = 0;
    unsigned char *high = to + 2 * j->k, *values = high + high_width(j);
    find_best(z, j->vocab, j->k, j->best);
    const double most = z[j->best[0]];
    for (int64_t v = 0; v < j->vocab; v++)
        sum += exp(z[v] - most);
    memset(high, 0, (size_t)high_width(j));
    for (int64_t i = 0; i < j->k; i++) {
        const double share = z[j->best[i]] - most - log(sum);
        const uint16_t low = (uint16_t)(j->best[i] & 0xffff),
                       value = af_f16_from_f32((float)fmax(share, -60000));
        memcpy(to + 2 * i, &low, sizeof low);
        memcpy(values + 2 * i, &value, sizeof value);
        if (has_high(j))
            high[i / 2] |= (unsigned char)(j->best[i] >> 16 << (i % 2 ? 4 : 0));
        kept += exp(share);
    }
    const float tail = (float)fmax(1 - kept, 0);
    memcpy(values + 2 * j->k, &tail, sizeof tail);
}

static uint64_t record_bytes(const capture_job *j, int64_t r)
{
    return (uint64_t)(af_capture_labels(&j->data.store, r) * j->width);
}

static uint64_t sum_of(const void *bytes, uint64_t n, int64_t record)
{
    return af_fnv1a(af_fnv1a(AF_FNV_START, &record, sizeof record), bytes, n);
}

static af_status add_record(capture_job *j, int64_t r, af_error *err)
{
    const af_token_store *s = &j->data.store;
    const uint32_t *w = af_token_words(s, r), n = s->index[r].count;
    const int64_t V = af_model_vocab(j->teacher);
    unsigned char *to = j->record;
    for (uint32_t i = 0; i < n; i++)
        j->ids[i] = (int32_t)(w[i] & ~AF_TOKEN_NO_LOSS);
    const af_status st = af_model_logits_of(j->teacher, j->ids, n, j->logits, err);
    if (st != AF_OK)
        return st;
    for (uint32_t i = 1; i < n; i++) {
        const float *z = j->logits + (int64_t)(i - 1) * V;
        if (w[i] & AF_TOKEN_NO_LOSS)
            continue;
        for (int64_t v = 0; v < j->vocab; v++)
            if (!isfinite(z[v]))
                return af_fail(err, AF_EFORMAT,
                               "the teacher's logits of record %" PRId64 " are not finite", r + 1);
        pack_position(j, z, to);
        to += j->width;
    }
    const uint64_t bytes = (uint64_t)(to - j->record), sum = sum_of(j->record, bytes, r);
    memcpy(to, &sum, sizeof sum);
    return af_file_append(j->part, j->record, bytes + sizeof sum, false, err);
}

/* ---- the file of parts ---- */

/* Counts whole records and cuts off what comes after them. */
static af_status resume(capture_job *j, bool force, af_error *err)
{
    af_map m;
    uint64_t at = KEY_LINE;
    char line[KEY_LINE + 1];
    snprintf(line, sizeof line, "%s\n", j->key);
    if (!af_file_exists(j->part))
        return af_file_append(j->part, line, KEY_LINE, true, err);
    af_status st = af_map_open(&m, j->part, err);
    if (st != AF_OK)
        return st;
    const bool same = m.size >= KEY_LINE && memcmp(m.data, line, KEY_LINE) == 0;
    const bool begun = m.size == 0 || (m.size < KEY_LINE && memcmp(m.data, line, m.size) == 0);
    for (; same && j->done < j->data.store.records; j->done++) {
        const uint64_t n = record_bytes(j, j->done), next = at + n + sizeof(uint64_t);
        uint64_t sum;
        if (next > m.size)
            break;
        memcpy(&sum, m.data + at + n, sizeof sum);
        if (sum != sum_of(m.data + at, n, j->done))
            break;
        at = next;
    }
    af_map_close(&m);
    if (!same && !begun && !force) /* begun: killed before its first line was whole */
        return af_fail(err, AF_EUSAGE,
                       "'%s' is of a capture with another teacher, data or kd_topk: remove it, "
                       "choose another name, or use --force",
                       j->part);
    if (!same)
        return af_file_write(j->part, line, KEY_LINE, err);
    if (truncate(j->part, (off_t)at) != 0)
        return af_fail(err, AF_EIO, "cannot write '%s'", j->part);
    if (j->done)
        af_log_write(AF_LOG_INFO, "going on after %" PRId64 " of %" PRId64 " records", j->done,
                     j->data.store.records);
    return AF_OK;
}

/* ---- the result ---- */

static af_status declare(const capture_job *j, af_safetensors_writer *w, int64_t n, af_error *err)
{
    af_status st = AF_OK;
    char k[24];
    snprintf(k, sizeof k, "%" PRId64, j->k);
    AF_TRY(af_safetensors_writer_meta(w, "teacher", j->teacher_hash, err));
    AF_TRY(af_safetensors_writer_meta(w, "data", j->data_hash, err));
    AF_TRY(af_safetensors_writer_meta(w, "key", j->key, err));
    AF_TRY(af_safetensors_writer_meta(w, "kd_topk", k, err));
    AF_TRY(af_safetensors_writer_add(w, "row_start", AF_DTYPE_I64,
                                     (int64_t[]){j->data.store.records + 1}, 1, err));
    AF_TRY(af_safetensors_writer_add(w, "tail", AF_DTYPE_F32, &n, 1, err));
    AF_TRY(af_safetensors_writer_add(w, "ids", AF_DTYPE_U16, (int64_t[]){n, j->k}, 2, err));
    AF_TRY(af_safetensors_writer_add(w, "logprobs", AF_DTYPE_F16, (int64_t[]){n, j->k}, 2, err));
    if (has_high(j))
        AF_TRY(af_safetensors_writer_add(w, "ids_high", AF_DTYPE_U8, (int64_t[]){n, high_width(j)},
                                         2, err));
    st = af_safetensors_writer_begin(w, err);
done:
    return st;
}

/* One column of the positions: `n` bytes at `from` of each. */
static af_status write_column(const capture_job *j, af_safetensors_writer *w, const af_map *m,
                              int64_t from, int64_t n, af_error *err)
{
    const unsigned char *at = (const unsigned char *)m->data + KEY_LINE;
    af_status st = AF_OK;
    for (int64_t r = 0; r < j->data.store.records; r++) {
        const uint64_t bytes = record_bytes(j, r);
        for (uint64_t i = 0; i < bytes; i += (uint64_t)j->width)
            AF_TRY(af_safetensors_writer_data(w, at + i + from, (uint64_t)n, err));
        at += bytes + sizeof(uint64_t);
    }
done:
    return st;
}

static af_status write_all(const capture_job *j, af_safetensors_writer *w, const af_map *m,
                           int64_t *positions, af_error *err)
{
    const int64_t high = 2 * j->k, values = high + high_width(j), tail = values + 2 * j->k;
    int64_t n = 0;
    af_status st = AF_OK;
    for (int64_t r = 0; r < j->data.store.records; r++)
        n += af_capture_labels(&j->data.store, r);
    *positions = n;
    AF_TRY(declare(j, w, n, err));
    n = 0;
    for (int64_t r = 0; r <= j->data.store.records; r++) {
        AF_TRY(af_safetensors_writer_data(w, &n, sizeof n, err));
        if (r < j->data.store.records)
            n += af_capture_labels(&j->data.store, r);
    }
    AF_TRY(write_column(j, w, m, tail, sizeof(float), err));
    AF_TRY(write_column(j, w, m, 0, 2 * j->k, err));
    AF_TRY(write_column(j, w, m, values, 2 * j->k, err));
    if (has_high(j))
        AF_TRY(write_column(j, w, m, high, high_width(j), err));
done:
    return st;
}

static af_status put_together(const capture_job *j, const char *out, bool force, int64_t *positions,
                              af_error *err)
{
    af_safetensors_writer *w = NULL;
    af_output f = {0};
    af_map m = {0};
    char *file = NULL;
    af_status st = AF_OK;
    AF_TRY(af_output_open_file(&f, out, NULL, force, err));
    file = af_output_file(&f);
    if (!file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(out)));
    AF_TRY(af_map_open(&m, j->part, err));
    AF_TRY(af_safetensors_writer_new(&w, file, 0, err));
    AF_TRY(write_all(j, w, &m, positions, err));
    st = af_safetensors_writer_commit(w, err);
    w = NULL;
    if (st == AF_OK)
        AF_TRY(af_output_commit(&f, err));
done:
    af_safetensors_writer_abandon(w);
    af_output_abandon(&f);
    af_map_close(&m);
    free(file);
    return st == AF_OK ? af_path_remove(j->part, err) : st;
}

static void close_job(capture_job *j)
{
    af_model_close(j->teacher);
    af_run_data_close(&j->data);
    af_run_model_close(&j->outline);
    af_run_config_clear(&j->run);
    free(j->teacher_path);
    free(j->part);
    free(j->logits);
    free(j->ids);
    free(j->best);
    free(j->record);
}

af_status af_distill_capture(const char *run_file, const char *const *overrides, int count,
                             const char *out, bool force, const af_train_hooks *hooks,
                             af_capture_result *result, af_error *err)
{
    AF_NEED(err, run_file, overrides || !count, out);
    capture_job j = {0};
    af_error unread;
    af_capture_result r = {0};
    err = af_error_or(err, &unread);
    af_status st = af_run_config_read(&j.run, run_file, overrides, count, err);
    if (st != AF_OK)
        return st;
    AF_TRY(af_output_check_file(out, force, err));
    AF_TRY(open_job(&j, out, err));
    AF_TRY(resume(&j, force, err));
    r.resumed = j.done;
    if (j.done < j.data.store.records)
        AF_TRY(open_teacher(&j, err));
    for (; j.done < j.data.store.records; j.done++) {
        if (af_run_stop_requested(hooks))
            AF_TRY(af_fail(err, AF_ESTOPPED,
                           "stopped after %" PRId64 " of %" PRId64 " records; the same command "
                           "goes on from there",
                           j.done, j.data.store.records));
        AF_TRY(add_record(&j, j.done, err));
    }
    AF_TRY(put_together(&j, out, force, &r.positions, err));
    r.records = j.done;
    r.k = j.k;
    if (result)
        *result = r;
done:
    close_job(&j);
    return st;
}
