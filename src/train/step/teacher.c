/* teacher.c - see teacher.h. */
#include "train/step/teacher.h"
#include "train/step/ranks.h"

#include "afinar/text.h"
#include "base/file.h"
#include "base/log.h"
#include "train/run/method.h"

#include <math.h>
#include <stdlib.h>

/* ---- a capture ---- */

/* Its tokens that are used. */
static int64_t best_tokens(const af_run_model *m)
{
    return m->run->kd_topk ? m->run->kd_topk : m->capture.k;
}

static af_status open_capture(af_run_model *m, af_error *err)
{
    const af_run_config *r = m->run;
    char at[300];
    const af_status st = af_capture_open(&m->capture, r->kd_logits, err);
    if (st != AF_OK)
        return af_fail_prefix(st, err, "%s", af_run_key_loc(r, "kd_logits", at, sizeof at));
    if (r->kd_topk > m->capture.k)
        return af_fail(err, AF_EUSAGE,
                       "%s: kd_topk is %" PRId64 ", and the capture has %" PRId64
                       " tokens of each position",
                       af_run_key_loc(r, "kd_topk", at, sizeof at), r->kd_topk, m->capture.k);
    return AF_OK;
}

af_status af_teacher_check_data(const af_run_model *m, const af_token_store *s, af_error *err)
{
    char at[300];
    if (!m->capture.file && m->run->kd_topk)
        return af_fail(err, AF_EUSAGE,
                       "%s: kd_topk is for 'afinar distill capture' and for training with its "
                       "file ('kd_logits'); a teacher in the same process gives all tokens",
                       af_run_key_loc(m->run, "kd_topk", at, sizeof at));
    if (!m->capture.file)
        return AF_OK;
    const af_status st = af_capture_fits(&m->capture, s, err);
    return st == AF_OK
               ? st
               : af_fail_prefix(st, err, "%s", af_run_key_loc(m->run, "kd_logits", at, sizeof at));
}

/* ---- the model ---- */

/* Both tokenizers must name the same tokens, up to the smaller vocabulary. */
static af_status check_tokens(const af_run_model *m, const char *teacher, af_error *err)
{
    af_tokenizer *own = NULL, *other = NULL;
    const int64_t V = m->spec->vocab, W = m->teacher_spec->vocab;
    char at[300];
    af_status st = AF_OK;
    af_run_key_loc(m->run, "teacher_model", at, sizeof at);
    if (af_tokenizer_open(&own, m->texts, NULL) != AF_OK ||
        af_tokenizer_open(&other, teacher, NULL) != AF_OK) {
        if (V != W)
            st = af_fail(err, AF_EUSAGE,
                         "%s: the teacher has %" PRId64 " tokens, the model %" PRId64
                         ", and without both tokenizers they cannot be compared",
                         at, W, V);
        goto done;
    }
    const int64_t n = AF_MIN(af_tokenizer_vocab_size(own), AF_MIN(V, W));
    for (int64_t i = 0; i < n && st == AF_OK; i++) {
        const char *a = af_tokenizer_token(own, (int32_t)i, NULL);
        const char *b = af_tokenizer_token(other, (int32_t)i, NULL);
        if ((a != NULL) != (b != NULL) || (a && strcmp(a, b) != 0))
            st = af_fail(
                err, AF_EUSAGE,
                "%s: token %" PRId64 " is '%.40s' in the model and '%.40s' in the teacher: "
                "their vocabularies may differ only in rows that pad them, or set kd_uld: true",
                at, i, a ? a : "nothing", b ? b : "nothing");
    }
    if (st == AF_OK && af_tokenizer_vocab_size(own) > W)
        st = af_fail(err, AF_EUSAGE,
                     "%s: the model has %" PRId32 " tokens and the teacher %" PRId64
                     ": it cannot read all of them",
                     at, af_tokenizer_vocab_size(own), W);
done:
    af_tokenizer_close(own);
    af_tokenizer_close(other);
    return st;
}

/* No tensor of the base but the linears' adapters. */
static bool only_low_rank(const af_adapter *a)
{
    return a->config.save_count == 0 && !a->config.bias && !a->tokens[0].count &&
           !a->tokens[1].count && a->tables == AF_TABLES_OF_BASE;
}

/* The run's own adapter must leave the tensors of the base alone. */
static af_status run_is_low_rank(const af_run_model *m, bool *yes, af_error *err)
{
    const af_run_config *r = m->run;
    af_adapter *a = NULL;
    *yes = !af_method_trains_base(r) && !r->lora_modules_to_save.count && !r->trainable_tokens;
    if (!*yes || !r->lora_model_dir)
        return AF_OK;
    const af_status st = af_adapter_read_to_train(&a, m->spec, r->lora_model_dir, err);
    *yes = st == AF_OK && only_low_rank(a);
    af_adapter_free(a);
    return st;
}

/* The base under another adapter, or none: no second copy of its weights is needed. */
static af_status open_shared(af_run_model *m, const char *path, bool *shared, af_error *err)
{
    const af_run_config *r = m->run;
    const bool same_type = r->asft || r->teacher_load_in_4bit == (af_method_quantises(r) == 4);
    *shared = false;
    if (!af_path_same(path, m->path) || !same_type)
        return AF_OK;
    af_status st = run_is_low_rank(m, shared, err);
    if (st != AF_OK || !*shared)
        return st;
    if (r->teacher_adapter)
        st = af_adapter_read(&m->teacher_adapter, m->spec, r->teacher_adapter, err);
    *shared = st == AF_OK && (!m->teacher_adapter || only_low_rank(m->teacher_adapter));
    if (!*shared) {
        af_adapter_free(m->teacher_adapter);
        m->teacher_adapter = NULL;
        return st;
    }
    m->teacher_spec = m->spec;
    return AF_OK;
}

static af_status open_own(af_run_model *m, const char *path, bool outline, af_error *err)
{
    const af_run_config *r = m->run;
    const af_loader_opts o = {.compute = m->compute,
                              .load_in_4bit =
                                  r->asft ? af_method_quantises(r) == 4 : r->teacher_load_in_4bit,
                              .quant_mode = AF_QUANT_SHADOW,
                              .on_cpu = m->device && af_device_is_cpu(m->device),
                              .outline = outline};
    const af_status st = af_loader_open(&m->teacher, path, &o, err);
    if (st != AF_OK)
        return st;
    m->teacher_spec = af_loader_spec(m->teacher);
    return r->teacher_adapter
               ? af_adapter_read(&m->teacher_adapter, m->teacher_spec, r->teacher_adapter, err)
               : AF_OK;
}

af_status af_teacher_open(af_run_model *m, bool outline, af_error *err)
{
    const af_run_config *r = m->run;
    char *path = NULL, at[300];
    bool shared = false;
    af_status st = AF_OK;
    if (r->kd_logits)
        return open_capture(m, err);
    if (!af_run_teacher(r) || r->kd_uld) /* uld_teacher.h opens that one */
        return AF_OK;
    AF_TRY(af_model_resolve_whole(&path, af_run_teacher(r), err));
    AF_TRY(open_shared(m, path, &shared, err));
    if (!shared)
        AF_TRY(open_own(m, path, outline, err));
    else
        af_log_write(AF_LOG_INFO, "the teacher has the weights of the base: no second copy");
done:
    if (st != AF_OK)
        af_fail_prefix(
            st, err, "%s",
            af_run_key_loc(r, r->asft ? "use_asft_loss" : "teacher_model", at, sizeof at));
    else if (!shared && !r->asft)
        st = check_tokens(m, path, err);
    free(path);
    return st;
}

/* ---- the graph ---- */

/* log of softmax(logits / T) over the tokens that both have */
static af_tensor *log_shares(af_model_leaves *l, af_tensor *h, int64_t tokens, double temperature)
{
    af_tensor *z = af_model_logits(l, h, NULL);
    if (l->spec->vocab > tokens)
        z = af_slice(l->graph, z, 1, 0, tokens);
    return af_log_shares(l->graph, z, temperature);
}

/* The teacher's own forward pass. */
static af_status record_model(af_teacher *t, const af_run_model *m, af_model_leaves *student,
                              const af_batch_inputs *in, af_tensor **h, af_error *err)
{
    const af_leaves_opts o = {.compute = m->compute,
                              .adapter = m->teacher_adapter,
                              .dtype = m->teacher ? af_loader_dtypes(m->teacher) : NULL,
                              .base = m->teacher ? NULL : student,
                              .prefix = "teacher."};
    const af_status st = af_model_leaves_init(&t->leaves, student->graph, m->teacher_spec, &o, err);
    if (st == AF_OK)
        *h = af_model_forward(&t->leaves, in, NULL);
    return st;
}

/* q comes from a file. */
static af_tensor *record_shares(af_teacher *t, const af_run_model *m, af_teacher_part *part,
                                af_tensor **p)
{
    const int64_t dim[2] = {t->part_rows, best_tokens(m)};
    part->best = af_graph_input(t->graph, "kd_best", AF_DTYPE_I32, 2, dim);
    part->shares = af_graph_input(t->graph, "kd_shares", AF_DTYPE_F32, 2, dim);
    return af_divergence_best(&t->divergence, t->graph, part->best, part->shares, m->spec->vocab,
                              m->run->kd_normalize_topk, p);
}

/* What is recorded for every part. */
typedef struct part_source {
    const af_run_model *m;
    af_model_leaves *student;
    const af_batch_inputs *in;
    af_tensor *h, *teacher; /* last hidden states; the teacher's NULL until it is recorded */
    int64_t rows, tokens;
} part_source;

static void record_inputs(af_teacher *t, af_teacher_part *part, int64_t rows)
{
    af_graph *g = t->graph;
    part->weight = af_graph_input(g, "kd_weight", AF_DTYPE_F32, 1, &t->part_rows);
    if (t->parts == 1)
        return;
    part->index = af_graph_input(g, "kd_rows", AF_DTYPE_I32, 2, (int64_t[]){t->part_rows, 2});
    part->back = af_graph_input(g, "kd_rows_back", AF_DTYPE_I32, 2, (int64_t[]){rows, 2});
}

static af_tensor *rows_of(const af_teacher *t, const af_teacher_part *part, af_tensor *h)
{
    return t->parts == 1 ? h : af_row_pick(t->graph, h, part->index, part->back);
}

/* The weighted sum of the divergences of a part's rows. */
static af_status record_part(af_teacher *t, af_teacher_part *part, part_source *s, af_tensor **sum,
                             af_error *err)
{
    const double T = s->m->run->kd_temperature;
    af_tensor *q, *p = log_shares(s->student, rows_of(t, part, s->h), s->tokens, T);
    if (s->m->capture.file) {
        q = record_shares(t, s->m, part, &p);
    } else {
        if (!s->teacher) {
            const af_status st = record_model(t, s->m, s->student, s->in, &s->teacher, err);
            if (st != AF_OK)
                return st;
        }
        q = log_shares(&t->leaves, rows_of(t, part, s->teacher), s->tokens, T);
    }
    *sum = af_sum_all(t->graph,
                      af_mul(t->graph, af_divergence_rows(&t->divergence, p, q), part->weight));
    return AF_OK;
}

/* Several parts are a block each, after those of both models. */
static af_status record_parts(af_teacher *t, part_source *s, af_error *err)
{
    af_status st = AF_OK;
    af_graph *g = t->graph;
    const int other = s->m->teacher_spec ? s->m->teacher_spec->layers : 0;
    const int first = (int)AF_MAX(s->m->spec->layers, other);
    af_tensor *sum;
    for (int i = 0; i < t->parts; i++)
        record_inputs(t, &t->part[i], s->rows);
    if (t->parts > 1 && !s->m->capture.file)
        AF_TRY(record_model(t, s->m, s->student, s->in, &s->teacher, err));
    for (int i = 0; i < t->parts; i++) {
        if (t->parts > 1)
            af_graph_set_block(g, first + i);
        AF_TRY(record_part(t, &t->part[i], s, &sum, err));
        af_graph_set_block(g, -1);
        t->kd = i ? af_add(g, t->kd, sum) : sum;
    }
    if (t->parts > 1)
        af_graph_set_rebuilt(g, first);
done:
    return st;
}

af_status af_teacher_record(af_teacher *t, const af_run_model *m, af_model_leaves *student,
                            const af_batch_inputs *in, af_tensor *h, int64_t rows, af_tensor **loss,
                            af_error *err)
{
    const af_run_config *r = m->run;
    af_graph *g = student->graph;
    part_source s = {.m = m, .student = student, .in = in, .h = h, .rows = rows};
    s.tokens = m->capture.file ? m->spec->vocab : AF_MIN(m->spec->vocab, m->teacher_spec->vocab);
    t->graph = g;
    t->divergence = (af_divergence){.graph = g, .beta = r->kd_beta};
    t->part_rows = r->kd_chunk_size && r->kd_chunk_size < rows ? r->kd_chunk_size : rows;
    t->parts = (int)((rows + t->part_rows - 1) / t->part_rows);
    t->part = af_calloc((uint64_t)t->parts, sizeof *t->part);
    if (!t->part)
        return af_fail_nomem(err, "a teacher", (uint64_t)t->parts * sizeof *t->part);
    const af_status st = record_parts(t, &s, err);
    if (st != AF_OK)
        return st;
    t->ce = *loss;
    *loss = af_add(g, af_scale(g, t->ce, r->asft ? 1 : r->kd_ce_alpha),
                   af_scale(g, t->kd, r->asft ? r->asft_alpha : r->kd_alpha));
    if (af_graph_status(g, NULL) == AF_OK) {
        af_graph_output(g, t->ce);
        af_graph_output(g, t->kd);
    }
    return AF_OK;
}

static af_status load_capture(af_teacher *t, const af_run_model *m, int64_t rows, af_error *err)
{
    const uint64_t n = (uint64_t)rows * (uint64_t)best_tokens(m);
    t->id = af_calloc(n, sizeof *t->id);
    t->log_share = af_calloc(n, sizeof *t->log_share);
    if (!t->id || !t->log_share)
        return af_fail_nomem(err, "captured distributions", n * 2 * sizeof *t->id);
    return AF_OK;
}

/* Of all parts: a few more than a micro-batch has. */
static int64_t all_rows(const af_teacher *t) { return t->parts * t->part_rows; }

af_status af_teacher_load(af_teacher *t, const af_run_model *m, int64_t rows, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t k = (uint64_t)af_ranks_micro(m->comm, m->run);
    if (m->teacher)
        AF_TRY(af_loader_write(m->teacher, &t->leaves, err));
    if (m->teacher_adapter)
        AF_TRY(af_adapter_upload(m->teacher_adapter, &t->leaves, err));
    if (m->teacher_spec)
        AF_TRY(af_model_write_rope(&t->leaves, m->run->sequence_len, err));
    if (m->capture.file)
        AF_TRY(load_capture(t, m, all_rows(t), err));
    AF_TRY(af_divergence_load(&t->divergence, err));
    t->rows = af_calloc((uint64_t)all_rows(t), sizeof *t->rows);
    t->picked = af_calloc((uint64_t)(t->part_rows + rows) * 2, sizeof *t->picked);
    t->ce_loss = af_calloc(k, sizeof *t->ce_loss);
    t->kd_loss = af_calloc(k, sizeof *t->kd_loss);
    if (!t->rows || !t->picked || !t->ce_loss || !t->kd_loss)
        st = af_fail_nomem(err, "staging buffers", (uint64_t)rows * sizeof *t->rows);
done:
    return st;
}

/* One position of the capture, for one row. */
static af_status put_position(af_teacher *t, const af_run_model *m, int64_t position, int64_t row,
                              af_error *err)
{
    const int64_t n = best_tokens(m);
    int32_t *id = t->id + row * n;
    float *share = t->log_share + row * n;
    af_capture_read(&m->capture, position, n, m->run->kd_temperature, id, share);
    for (int64_t i = 0; i < n; i++) {
        if (id[i] < 0 || id[i] >= m->spec->vocab || isnan(share[i]))
            return af_fail(err, AF_EFORMAT,
                           "'%s': position %" PRId64 " has token %" PRId32
                           " with log-probability %g, and the model has %" PRId64 " tokens",
                           m->capture.path, position, id[i], (double)share[i], m->spec->vocab);
        share[i] = AF_MAX(share[i], AF_SHARE_LEAST);
    }
    return AF_OK;
}

static af_status put_sequence(af_teacher *t, const af_run_model *m, const af_batch *b, int64_t s,
                              af_error *err)
{
    const af_capture *c = &m->capture;
    const int64_t record = b->record[s];
    if (record >= c->records)
        return af_fail(err, AF_EUSAGE,
                       "'%s' has %" PRId64 " records, and the run needs record %" PRId64, c->path,
                       c->records, record + 1);
    int64_t at = af_capture_start(c, record);
    const int64_t end = af_capture_start(c, record + 1);
    for (int64_t i = b->bounds[s]; i < b->bounds[s + 1]; i++) {
        if (b->labels[i] == -100)
            continue;
        if (at == end)
            return af_fail(err, AF_EUSAGE, "'%s' has too few positions of record %" PRId64, c->path,
                           record + 1);
        const af_status st = put_position(t, m, at++, i, err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

/* The k best tokens of every row that has a label; the device makes whole rows of them. */
static af_status upload_shares(af_teacher *t, const af_run_model *m, const af_batch *b,
                               af_error *err)
{
    af_status st = AF_OK;
    const int64_t n = t->part_rows * best_tokens(m);
    for (int64_t i = 0; i < t->parts * n; i++)
        t->id[i] = -100;
    for (int64_t s = 0; s < b->sequences; s++)
        AF_TRY(put_sequence(t, m, b, s, err));
    for (int i = 0; i < t->parts; i++) {
        const af_teacher_part *p = &t->part[i];
        AF_TRY(af_tensor_write(t->graph, p->best, t->id + i * n, af_tensor_bytes(p->best), err));
        AF_TRY(af_tensor_write(t->graph, p->shares, t->log_share + i * n,
                               af_tensor_bytes(p->shares), err));
    }
done:
    return st;
}

/* The weights of a part's rows, and where it has several parts, which rows those with a label are;
 * the others are zeros there, not what an earlier micro-batch left. */
static af_status upload_part(af_teacher *t, int i, int64_t rows, af_error *err)
{
    const af_teacher_part *part = &t->part[i];
    const int64_t from = i * t->part_rows;
    int32_t *index = t->picked, *back = index + 2 * t->part_rows;
    const af_status st =
        af_tensor_write(t->graph, part->weight, t->rows + from, af_tensor_bytes(part->weight), err);
    if (st != AF_OK || t->parts == 1)
        return st;
    for (int64_t k = 0; k < 2 * (t->part_rows + rows); k++)
        t->picked[k] = -100;
    for (int64_t k = 0; k < AF_MIN(t->part_rows, rows - from); k++)
        if (t->rows[from + k] != 0) {
            index[2 * k] = (int32_t)(from + k);
            back[2 * (from + k)] = (int32_t)k;
        }
    const af_status there =
        af_tensor_write(t->graph, part->index, index, af_tensor_bytes(part->index), err);
    return there == AF_OK
               ? af_tensor_write(t->graph, part->back, back, af_tensor_bytes(part->back), err)
               : there;
}

af_status af_teacher_upload(af_teacher *t, const af_run_model *m, const af_batch *b, int64_t rows,
                            float scale, int64_t length, af_error *err)
{
    af_status st = AF_OK;
    const double square = m->run->kd_temperature * m->run->kd_temperature;
    for (int64_t i = 0; i < rows; i++)
        t->rows[i] = i < b->rows && b->labels[i] != -100 ? (float)(square * scale) : 0;
    if (m->teacher_spec)
        AF_TRY(af_model_write_rope(&t->leaves, length, err));
    if (m->capture.file && scale != 0)
        AF_TRY(upload_shares(t, m, b, err));
    for (int i = 0; i < t->parts; i++)
        AF_TRY(upload_part(t, i, rows, err));
done:
    return st;
}

void af_teacher_drop(af_teacher *t)
{
    af_model_leaves_clear(&t->leaves);
    free(t->part);
    t->part = NULL;
}

void af_teacher_clear(af_teacher *t)
{
    af_teacher_drop(t);
    free(t->rows);
    free(t->picked);
    free(t->ce_loss);
    free(t->kd_loss);
    free(t->log_share);
    free(t->id);
    *t = (af_teacher){0};
}
