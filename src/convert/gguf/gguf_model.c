/* gguf_model.c - see gguf_model.h.
 *
 * A tensor of the file is rows of a tensor of the spec in another order: q and k interleaved for
 * llama, gates and ups of experts apart. Rows are read, encoded, measured and written by every
 * thread for itself; memory is a few megabytes whatever the model. */

#include "base/log.h"
#include "convert/gguf/gguf_check.h"
#include "convert/gguf/gguf_export.h"
#include "convert/gguf/gguf_meta.h"
#include "convert/input/gguf_text.h"

#include <math.h>

enum { PIECE_VALUES = 1 << 16, SCRATCH_VALUES = 1 << 12 };

/* ---- values ---- */

/* Which row of the spec's tensor is row r of the file's. */
static int64_t spec_row(const gguf_export *j, const gguf_target *t, int64_t r)
{
    if (t->latents) {
        const af_latent_keys *k = &j->spec->latent;
        return r / k->v_dim * (k->qk_nope_dim + k->v_dim) + k->qk_nope_dim + r % k->v_dim;
    }
    if (t->part >= 0)
        return af_gguf_parts_here(&t->cut, t->part, r);
    const af_tensor_spec *s = t->spec < 0 ? NULL : &j->spec->tensor[t->spec];
    if (t->stack)
        return r % s->dim[0];
    if (s && s->slot == AF_SLOT_PER_LAYER_EMBED && r >= s->dim[0])
        return 0;
    return t->order.columns ? r : af_gguf_order_here(&t->order, r);
}

static int spec_tensor(const gguf_export *j, const gguf_target *t, int64_t r)
{
    const af_tensor_spec *s = &j->spec->tensor[t->spec];
    return t->stack ? j->spec->layer[0].tensor[s->slot + r / s->dim[0]] : t->spec;
}

/* Rows of transposed keys: columns of the rows of their heads. `row` has room for one of those. */
static void read_keys(const gguf_export *j, int64_t from, int64_t n, float *out, float *row)
{
    const af_latent_keys *k = &j->spec->latent;
    const int64_t R = k->kv_lora_rank, nope = k->qk_nope_dim;
    for (int64_t r = from, run; r < from + n; r += run, out += run * nope) {
        run = AF_MIN(from + n - r, R - r % R);
        for (int64_t i = 0; i < nope; i++) {
            af_model_reader_merged_rows(j->in, j->t->spec, r / R * (nope + k->v_dim) + i, 1, row);
            for (int64_t c = 0; c < run; c++)
                out[c * nope + i] = row[r % R + c];
        }
    }
}

/* Rows of length 1. */
static void make_unit(float *rows, int64_t n, int64_t cols)
{
    for (int64_t r = 0; r < n; r++, rows += cols) {
        double sum = 0;
        for (int64_t c = 0; c < cols; c++)
            sum += (double)rows[c] * rows[c];
        const double length = sum > 0 ? sqrt(sum) : 1;
        for (int64_t c = 0; c < cols; c++)
            rows[c] = (float)(rows[c] / length);
    }
}

/* Rows [from, from + n) of the file's tensor, the adapter merged. `row`: see read_keys. */
static void read_rows(const gguf_export *j, int64_t from, int64_t n, float *out, float *row)
{
    const gguf_target *t = j->t;
    const bool ordered = t->order.keys && !t->order.columns;
    const bool one = t->stack || strcmp(t->name, "per_layer_token_embd.weight") == 0;
    const int64_t step = t->part >= 0 || t->latents || ordered || one ? 1 : n;
    if (t->keys) {
        read_keys(j, from, n, out, row);
        return;
    }
    if (t->values) {
        memcpy(out, t->values + from * t->cols, (size_t)(n * t->cols) * sizeof *out);
        return;
    }
    for (int64_t r = 0; r < n; r += step)
        af_model_reader_merged_rows(j->in, spec_tensor(j, t, from + r), spec_row(j, t, from + r),
                                    step, out + r * t->cols);
    for (int64_t r = 0; t->order.columns && r < n; r++)
        af_gguf_order_to_file(&t->order, out + r * t->cols);
    af_gguf_fold_to_file(&t->fold, out, from, n, t->cols);
    if (t->unit)
        make_unit(out, n, t->cols);
}

/* A vector: biases of q and k are interleaved too. */
static void read_vector(const gguf_export *j, float *out, float *scratch)
{
    const gguf_target *t = j->t;
    if (t->values) {
        memcpy(out, t->values, (size_t)t->cols * sizeof *out);
        return;
    }
    if (t->raw) {
        af_convert(out, AF_DTYPE_F32, t->raw->data, t->raw->dtype, (uint64_t)t->cols);
        return;
    }
    const gguf_target as_rows = {.rows = t->cols, .part = -1, .order = t->order};
    const af_tensor_spec *s = &j->spec->tensor[t->spec];
    af_model_reader_merged_rows(j->in, t->spec, 0, s->ndim == 2 ? s->dim[0] : 1, scratch);
    for (int64_t i = 0; i < t->cols; i++)
        out[i] = scratch[spec_row(j, &as_rows, i)];
    for (int64_t i = 0; i < t->cols; i++)
        out[i] = t->exp ? (float)t->exp * expf(out[i]) : out[i] + t->add;
    af_gguf_fold_to_file(&t->fold, out, 0, 1, t->cols);
}

static const float *importance_of(const gguf_export *j, int64_t row)
{
    return j->importance ? j->importance + row / j->importance_rows * j->t->cols : NULL;
}

/* The embedding's rows are looked up, not multiplied: an entry for it means nothing. */
static af_status find_importance(gguf_export *j, const gguf_target *t, af_error *err)
{
    const af_imatrix_entry *e = af_imatrix_find(j->o->imatrix, t->name);
    const int64_t matrices = t->ndim == 3 ? t->dim[0] : 1, need = matrices * t->cols;
    j->importance = NULL;
    j->importance_rows = t->rows / matrices;
    if (!e || t->stack || (e->count != need && strcmp(t->name, "token_embd.weight") == 0))
        return AF_OK; /* stacks, whose entries are of one matrix each, are not quantised */
    if (e->count != need)
        return af_fail(err, AF_EFORMAT,
                       "the importance matrix has %" PRId64 " values for '%s', which has %" PRId64
                       " columns: it is of another model",
                       e->count, t->name, need);
    j->importance = e->values;
    return AF_OK;
}

/* Rows [row, row+n), as many as fit the worker's scratch: read, encode and measure them while they
 * are in the cache. */
static void encode_rows(gguf_export *j, int64_t row, int64_t n, uint8_t *bytes, float *x,
                        af_error_sums *sums)
{
    const gguf_target *t = j->t;
    float *back = x + j->scratch_rows * t->cols;
    read_rows(j, row, n, x, back + t->cols);
    for (int64_t r = 0; r < n; r++) {
        const float *from = x + r * t->cols;
        af_codec_encode_row(t->dtype, from, bytes, t->cols, importance_of(j, row + r));
        if (t->dtype != AF_DTYPE_F32) {
            af_codec_decode_row(t->dtype, bytes, back, t->cols);
            af_error_sums_measure(sums, from, back, t->cols);
        }
        bytes += j->row_bytes;
    }
}

static void write_pieces(void *arg, int64_t from_piece, int64_t to_piece, int share)
{
    gguf_export *j = arg;
    encode_worker *w = &j->worker[share];
    for (int64_t p = from_piece; p < to_piece && w->st == AF_OK; p++) {
        const int64_t row = p * j->piece_rows, end = AF_MIN(row + j->piece_rows, j->t->rows);
        for (int64_t r = row; r < end; r += j->scratch_rows)
            encode_rows(j, r, AF_MIN(j->scratch_rows, end - r),
                        w->bytes + (uint64_t)(r - row) * j->row_bytes, w->x, &j->sums[p]);
        w->st = af_gguf_writer_fill(j->w, j->offset + (uint64_t)row * j->row_bytes, w->bytes,
                                    (uint64_t)(end - row) * j->row_bytes, &w->err);
    }
}

/* Sizes for the tensor at work, and the memory its workers need. */
static af_status take_scratch(gguf_export *j, int64_t *pieces, af_error *err)
{
    const gguf_target *t = j->t;
    const int threads = af_pool_threads(j->pool);
    j->piece_rows = AF_MIN(AF_MAX(PIECE_VALUES / t->cols, 1), t->rows);
    j->scratch_rows = AF_MIN(AF_MAX(SCRATCH_VALUES / t->cols, 1), j->piece_rows);
    *pieces = (t->rows + j->piece_rows - 1) / j->piece_rows;
    const int64_t keys = t->keys ? j->spec->latent.kv_lora_rank : 0;
    const uint64_t values = (uint64_t)((j->scratch_rows + 1) * t->cols + keys);
    const uint64_t bytes = (uint64_t)j->piece_rows * j->row_bytes;
    j->worker = af_arena_take(&j->scratch, (uint64_t)threads * sizeof *j->worker);
    j->sums = af_arena_take(&j->scratch, (uint64_t)*pieces * sizeof *j->sums);
    for (int i = 0; i < threads && j->worker && j->sums; i++) {
        encode_worker *w = &j->worker[i];
        w->x = af_arena_take(&j->scratch, values * sizeof *w->x);
        w->bytes = af_arena_take(&j->scratch, bytes);
        if (!w->x || !w->bytes)
            return af_fail_nomem(err, t->name, values * sizeof *w->x + bytes);
    }
    return j->worker && j->sums ? AF_OK : af_fail_nomem(err, t->name, bytes);
}

static af_status write_matrix(gguf_export *j, af_error_sums *all, af_error *err)
{
    af_status st = AF_OK;
    const gguf_target *t = j->t;
    int64_t pieces;
    if (!af_dtype_bytes(t->dtype, (uint64_t)t->cols, &j->row_bytes))
        return af_fail(err, AF_EUNSUPPORTED, "'%s': rows of %" PRId64 " do not fill blocks of %s",
                       t->name, t->cols, af_dtype_name(t->dtype));
    AF_TRY(take_scratch(j, &pieces, err));
    j->offset = af_gguf_writer_take(j->w, (int)(t - j->list));
    af_pool_run(j->pool, pieces, write_pieces, j);
    for (int i = 0; i < af_pool_threads(j->pool); i++)
        if (j->worker[i].st != AF_OK)
            AF_TRY(af_fail(err, j->worker[i].st, "%s", j->worker[i].err.msg));
    for (int64_t p = 0; p < pieces; p++)
        af_error_sums_add(all, &j->sums[p]);
done:
    af_arena_clear(&j->scratch);
    return st;
}

static af_status write_one(gguf_export *j, const gguf_target *t, af_error *err)
{
    af_status st = AF_OK;
    af_error_sums all = {0};
    float *vector = NULL;
    uint64_t bytes = 0;
    j->t = t;
    if (t->vector) {
        vector = af_calloc((uint64_t)t->cols, 2 * sizeof *vector);
        if (!vector)
            AF_TRY(af_fail_nomem(err, t->name, (uint64_t)t->cols * 4));
        read_vector(j, vector, vector + t->cols);
        AF_TRY(af_gguf_writer_fill(j->w, af_gguf_writer_take(j->w, (int)(t - j->list)), vector,
                                   (uint64_t)t->cols * 4, err));
    } else {
        AF_TRY(find_importance(j, t, err));
        AF_TRY(write_matrix(j, &all, err));
        af_model_reader_forget(j->in, t->spec);
    }
    AF_TRY(af_error_sums_check(&all, t->name, t->dtype, err));
    (void)af_dtype_bytes(t->dtype, (uint64_t)(t->rows * t->cols), &bytes);
    af_convert_row *row = af_convert_report_add(j->report, t->name, af_dtype_name(t->dtype),
                                                t->rows * t->cols, bytes);
    if (row && t->dtype != AF_DTYPE_F32)
        af_error_sums_report(&all, row);
done:
    free(vector);
    return st;
}

/* ---- metadata ---- */

/* w + 1 and -exp(w) have not all the bits of w: what is missing, so that the folder can come back
 * as it was. */
static af_status put_norm_rest(gguf_export *j, const gguf_target *t, af_error *err)
{
    af_status st = AF_OK;
    char key[NAME_BYTES + sizeof AF_GGUF_REST_KEY];
    bool any = false;
    float *w = af_calloc((uint64_t)t->cols, 2 * sizeof *w);
    if (!w)
        return af_fail_nomem(err, t->name, (uint64_t)t->cols * 8);
    const gguf_target plain = {.spec = t->spec, .cols = t->cols, .part = -1};
    j->t = &plain;
    read_vector(j, w, w + t->cols);
    for (int64_t i = 0; i < t->cols; i++) {
        const float stored = t->exp ? (float)t->exp * expf(w[i]) : w[i] + t->add;
        const float back = t->exp ? logf((float)t->exp * stored) : stored - t->add;
        w[i] = w[i] - back;
        any |= w[i] != 0;
    }
    snprintf(key, sizeof key, AF_GGUF_REST_KEY "%s", t->name);
    if (any)
        AF_TRY(af_gguf_put_array(j->w, key, AF_GGUF_F32, w, (uint64_t)t->cols, err));
done:
    free(w);
    return st;
}

static af_status put_meta(gguf_export *j, af_error *err)
{
    af_status st = AF_OK;
    const af_model_reader *in = j->in;
    const af_text_dirs dirs = {in->path, in->template_dir, in->tokenizer_dir};
    const bool whole = !af_dtype_is_block(af_mix_get(j->o->mix)->base);
    if (af_model_reader_is_gguf(in))
        return af_gguf_put_copy(j->w, af_weights_gguf(in->weights), in->template_dir,
                                af_mix_get(j->o->mix)->file_type, err);
    AF_TRY(af_gguf_check_supported(j->spec, err));
    AF_TRY(af_gguf_put_arch(j->w, j->spec, &in->config, in->path, af_mix_get(j->o->mix)->file_type,
                            err));
    AF_TRY(af_gguf_put_xielu(j->w, in, err));
    AF_TRY(af_gguf_put_tokenizer(j->w, &dirs, &in->config, j->spec->vocab, err));
    AF_TRY(af_gguf_put_files(j->w, &dirs, whole, err));
    for (int i = 0; whole && i < j->count; i++)
        if (j->list[i].add != 0 || j->list[i].exp)
            AF_TRY(put_norm_rest(j, &j->list[i], err));
done:
    return st;
}

static af_status write_file(gguf_export *j, const char *out, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_gguf_writer_new(&j->w, out, err));
    AF_TRY(put_meta(j, err));
    if (j->o->collect)
        AF_TRY(j->o->collect(j->o->user, err));
    AF_TRY(af_gguf_put_imatrix(j->w, j->o->imatrix, j->o->imatrix_file, err));
    for (int i = 0; i < j->count; i++)
        AF_TRY(af_gguf_put_tensor(j->w, j->list[i].name, j->list[i].dtype, j->list[i].dim,
                                  j->list[i].ndim, err));
    AF_TRY(af_gguf_writer_begin(j->w, err));
    for (int i = 0; i < j->count; i++)
        if (j->list[i].spec < 0) /* rope factors: the check reads them */
            AF_TRY(write_one(j, &j->list[i], err));
    AF_TRY(af_gguf_check_metadata(j->spec, af_gguf_writer_file(j->w), err));
    for (int i = 0; i < j->count; i++)
        if (j->list[i].spec >= 0)
            AF_TRY(write_one(j, &j->list[i], err));
    st = af_gguf_writer_commit(j->w, err);
    j->w = NULL;
done:
    af_gguf_writer_abandon(j->w);
    return st;
}

static void warn_fallbacks(const gguf_export *j)
{
    int n = 0;
    for (int i = 0; i < j->count; i++)
        n += j->list[i].fell_back;
    if (n)
        af_log_write(AF_LOG_WARN,
                     "%d of %d tensors: rows do not fill the blocks of %s, they are written in "
                     "another type",
                     n, j->count, af_mix_get(j->o->mix)->name);
}

af_status af_gguf_model_write(af_convert_report **report, af_model_reader *in, const char *out,
                              const af_gguf_model_opts *o, af_error *err)
{
    af_status st = AF_OK;
    gguf_export j = {.in = in, .o = o};
    AF_TRY(af_model_reader_match(in, err));
    j.spec = af_model_reader_spec(in);
    AF_TRY(af_pool_new(&j.pool, o->threads, err));
    AF_TRY(af_gguf_list_tensors(&j, err));
    AF_TRY(af_convert_report_new(&j.report, j.count, err));
    warn_fallbacks(&j);
    AF_TRY(write_file(&j, out, err));
    af_convert_report_finish(j.report);
    if (in->any_quantised)
        j.report->note = "the source was quantised already: its dequantised values were used";
    *report = j.report;
    j.report = NULL;
done:
    af_convert_report_free(j.report);
    af_pool_free(j.pool);
    af_arena_clear(&j.arena);
    af_arena_clear(&j.scratch);
    return st;
}
