/* reader_rows.c - the values of a model's tensors as f32; see model_reader.h. */
#include "model/adapter_config.h"
#include "model/arch/arch_disk.h"
#include "model/tensor_layout.h"
#include "tensor/codec.h"

#include <math.h>

/* ---- stored tensors ---- */

af_status af_stored_values_init(af_stored_values *out, bool *readable, const af_weights *w,
                                const af_stored *t, af_dtype round, af_error *err)
{
    af_stored_values v = {.t = t, .count = af_weight_count(t)};
    const af_status st = af_bnb_weight_read(&v.bnb, &v.packed, w, t->name, round, err);
    if (st != AF_OK)
        return st;
    *readable = v.packed || af_codec_can_decode(t->dtype);
    if (v.packed) {
        v.count = v.bnb.count;
        v.bnb.round = round;
    }
    *out = v;
    return AF_OK;
}

/* af_stored_values_init of the weight `name` of a folder with config c, which may be coded. */
AF_CHECKED static af_status values_named(af_stored_values *out, bool *readable, const af_weights *w,
                                         const af_hf_config *c, const char *name,
                                         const af_stored *t, af_dtype round, af_error *err)
{
    af_stored_values v = {.t = t};
    const af_status st = af_coded_weight_read(&v.code, &v.coded, w, c, name, err);
    if (st != AF_OK || !v.coded)
        return st != AF_OK ? st : af_stored_values_init(out, readable, w, t, round, err);
    v.count = v.code.rows * v.code.cols;
    *readable = true;
    *out = v;
    return AF_OK;
}

void af_stored_values_read(const af_stored_values *v, int64_t from, int64_t to, float *out)
{
    const af_dtype_info *d = af_dtype_get(v->t->dtype);
    if (v->coded)
        af_coded_weight_rows(&v->code, from / v->code.cols, (to - from) / v->code.cols, out);
    else if (v->packed)
        af_bnb_weight_decode(&v->bnb, from, to - from, out);
    else
        af_codec_decode_row(v->t->dtype, (const uint8_t *)v->t->data + from / d->elems * d->bytes,
                            out, to - from);
}

/* ---- tensors of the spec ---- */

af_dtype af_tensor_layout_type(const af_tensor_layout *t)
{
    if (t->coded)
        return af_coded_weight_is_mxfp4(t->coded) ? AF_DTYPE_MXFP4 : t->coded->round;
    if (t->kv_split && t->part[0] && t->part[1] && /* columns of blocks are no blocks */
        (t->part[0]->dtype != t->part[1]->dtype || af_dtype_is_block(t->part[0]->dtype)))
        return AF_DTYPE_F32;
    return t->parts && t->part[0] ? t->part[0]->dtype : AF_DTYPE_F32;
}

bool af_model_reader_is_mxfp4(const af_model_reader *in, int tensor)
{
    const af_tensor_layout *t = &in->layout[tensor];
    return t->coded && af_coded_weight_is_mxfp4(t->coded) &&
           !af_model_reader_overlay(in, tensor).module;
}

const void *af_tensor_layout_row(const af_tensor_layout *t, int64_t r)
{
    int64_t part = r / t->part_rows, row = r % t->part_rows;
    uint64_t bytes = 0;
    if (t->uneven)
        for (part = 0, row = r; row >= t->uneven[part]; part++)
            row -= t->uneven[part];
    if (t->order.keys && !t->order.columns)
        row = af_gguf_order_there(&t->order, r);
    if (t->cut.count) {
        int of;
        row = af_gguf_parts_there(&t->cut, r, &of);
        part = of;
    }
    (void)af_dtype_bytes(af_tensor_layout_type(t), (uint64_t)t->cols, &bytes); /* checked at open */
    return (const uint8_t *)t->part[part]->data + (uint64_t)row * bytes;
}

/* Rows of [X][out][in] that lie as [X][in][out]: outputs of an input lie side by side. */
static void side_by_side(const af_tensor_layout *t, int64_t from, int64_t n, float *out)
{
    enum { AT_ONCE = 64 };
    const af_stored *w = t->part[0];
    const int64_t outs = t->turned->dim[1], size = (int64_t)af_dtype_get(w->dtype)->bytes;
    for (int64_t r = from, k; r < from + n; r += k) {
        k = AF_MIN(AF_MIN(from + n - r, outs - r % outs), (int64_t)AT_ONCE);
        float *to = out + (r - from) * t->cols, some[AT_ONCE];
        for (int64_t c = 0; c < t->cols; c++) {
            const int64_t at = (r / outs * t->cols + c) * outs + r % outs;
            af_convert(some, AF_DTYPE_F32, (const uint8_t *)w->data + at * size, w->dtype,
                       (uint64_t)k);
            for (int64_t i = 0; i < k; i++)
                to[i * t->cols + c] = some[i];
        }
    }
}

/* Rows of a tensor whose values lie in another order: column by column, since those are rows there.
 */
static void turned_rows(const af_tensor_layout *t, int64_t from, int64_t n, float *out)
{
    const af_stored *w = t->part[0];
    if (!t->coded && t->turned->ndim == 3 && !t->turned->alternates && !t->turned->flat) {
        side_by_side(t, from, n, out);
        return;
    }
    for (int64_t r = 0; t->coded && r < n; r++)
        af_coded_weight_stored_rows(t->coded, af_disk_out_row(t->turned, from + r), 1,
                                    out + r * t->cols);
    for (int64_t c = 0; !t->coded && c < t->cols; c++)
        for (int64_t r = 0; r < n; r++)
            out[r * t->cols + c] =
                (float)af_load_f64(w->data, w->dtype, (uint64_t)af_disk_at(t->turned, from + r, c));
}

/* Rows of keys [from, from + n) of one head, which are columns of `w`: block by block, since a
 * block has values of several. Returns how many it read. */
static int64_t key_rows(const af_stored *w, const af_latent_keys *k, int64_t head, int64_t from,
                        int64_t n, float *out)
{
    enum { BLOCK_MAX = 256 };
    const af_dtype_info *d = af_dtype_get(w->dtype);
    const int64_t size = d->elems, R = k->kv_lora_rank, at = from % size;
    const uint64_t row_bytes = (uint64_t)(k->qk_nope_dim / size * d->bytes);
    const uint8_t *first = (const uint8_t *)w->data + (uint64_t)(head * R) * row_bytes +
                           (uint64_t)(from / size * d->bytes);
    float x[BLOCK_MAX];
    assert(size <= BLOCK_MAX);
    n = AF_MIN(n, size - at);
    for (int64_t c = 0; c < R; c++) {
        af_codec_decode_row(w->dtype, first + (uint64_t)c * row_bytes, x, size);
        for (int64_t r = 0; r < n; r++)
            out[r * R + c] = x[at + r];
    }
    return n;
}

/* Each head has its keys, then its values. */
static void kv_split_rows(const af_tensor_layout *t, int64_t from, int64_t n, float *out)
{
    const af_latent_keys *k = t->kv_split;
    const int64_t nope = k->qk_nope_dim, both = nope + k->v_dim;
    const af_stored *v = t->part[1];
    uint64_t bytes = 0;
    (void)af_dtype_bytes(v->dtype, (uint64_t)t->cols, &bytes); /* checked at open */
    for (int64_t r = from, done; r < from + n; r += done, out += done * t->cols) {
        const int64_t head = r / both, at = r % both;
        done = 1;
        if (at < nope)
            done = key_rows(t->part[0], k, head, at, AF_MIN(from + n - r, nope - at), out);
        else
            af_codec_decode_row(v->dtype,
                                (const uint8_t *)v->data +
                                    (uint64_t)(head * k->v_dim + at - nope) * bytes,
                                out, t->cols);
    }
}

/* Runs of rows that lie in one part: what is stored transposed is read faster so. */
static void coded_rows(const af_tensor_layout *t, int64_t from, int64_t n, float *out)
{
    for (int64_t r = from, k; r < from + n; r += k, out += k * t->cols) {
        const int64_t part = r / t->part_rows, row = r % t->part_rows;
        k = AF_MIN(from + n - r, t->part_rows - row);
        af_coded_weight_rows(&t->coded[part], row, k, out);
    }
}

static void stored_rows(const af_tensor_layout *t, int64_t from, int64_t n, float *out)
{
    if (t->packed) {
        af_bnb_weight_decode(&t->bnb, from * t->cols, n * t->cols, out);
        return;
    }
    for (int64_t r = 0; t->row_halves && r < 2 * n; r++) {
        const af_stored *w = t->part[r % 2];
        const uint64_t half = (uint64_t)t->cols / 2;
        af_convert(out + (uint64_t)r * half, AF_DTYPE_F32,
                   (const uint8_t *)w->data +
                       (uint64_t)(from + r / 2) * half * (uint64_t)af_dtype_get(w->dtype)->bytes,
                   w->dtype, half);
    }
    if (t->kv_split)
        kv_split_rows(t, from, n, out);
    if (t->row_halves || t->kv_split)
        return;
    if (t->turned || t->coded) {
        (t->turned ? turned_rows : coded_rows)(t, from, n, out);
        return;
    }
    const af_dtype type = af_tensor_layout_type(t);
    for (int64_t r = 0; r < n; r++)
        af_codec_decode_row(type, af_tensor_layout_row(t, from + r), out + r * t->cols, t->cols);
    for (int64_t r = 0; t->order.columns && r < n; r++)
        af_gguf_order_from_file(&t->order, out + r * t->cols);
    for (int64_t k = 0; t->add != 0 && k < n * t->cols; k++)
        out[k] += t->add;
    for (int64_t k = 0; t->exp && k < n * t->cols; k++)
        out[k] = logf((float)t->exp * out[k]);
    af_gguf_fold_from_file(&t->fold, out, from, n, t->cols);
}

void af_tensor_layout_rows(const af_tensor_layout *t, int64_t from, int64_t n, float *out)
{
    const int64_t has = t->mean ? AF_MAX(AF_MIN(n, t->stored_rows - from), 0) : n;
    if (has > 0)
        stored_rows(t, from, has, out);
    for (int64_t r = has; r < n; r++)
        memcpy(out + r * t->cols, t->mean, (size_t)t->cols * sizeof *out);
}

void af_model_reader_rows(const af_model_reader *in, int tensor, int64_t from, int64_t n,
                          float *out)
{
    const af_tensor_layout *t = &in->layout[tensor];
    if (in->spec.tensor[tensor].ndim == 1) /* an interleaved vector has rows of one value */
        n = t->rows;
    assert(from >= 0 && n >= 0 && from + n <= t->rows);
    af_tensor_layout_rows(t, from, n, out);
}

static void take_saved(const af_overlay *o, int64_t from, int64_t n, int64_t cols, float *out)
{
    memcpy(out, o->saved + from * cols, (size_t)(n * cols) * sizeof *out);
}

void af_model_reader_merged_rows(const af_model_reader *in, int tensor, int64_t from, int64_t n,
                                 float *out)
{
    const af_tensor_spec *t = &in->spec.tensor[tensor];
    const int64_t cols = t->dim[t->ndim - 1];
    const af_overlay o = af_model_reader_overlay(in, tensor);
    if (o.saved)
        take_saved(&o, from, n, cols, out);
    else
        af_model_reader_rows(in, tensor, from, n, out);
    af_overlay_apply(&o, out, from, n, cols);
}

void af_model_reader_forget(const af_model_reader *in, int tensor)
{
    const af_tensor_layout *t = &in->layout[tensor];
    for (int i = 0; i < t->parts; i++)
        af_weights_forget(in->weights, t->part[i]);
    if (t->packed)
        af_weights_forget(in->weights, af_weights_find(in->weights, t->bnb.name));
}

/* ---- listed tensors ---- */

af_status af_tensor_view_open(af_tensor_view *v, af_model_reader *in, const af_model_tensor *t,
                              af_error *err)
{
    char name[512];
    bool readable = true;
    *v = (af_tensor_view){.in = in, .t = t};
    if (in->adapter) {
        af_model_reader_own_name(in, t->name, name, sizeof name);
        int64_t from;
        const int tensor = af_disk_find(in->adapter->spec, name, &from);
        v->overlay = af_model_reader_overlay(in, tensor);
        v->overlay.tokens = t->dim[0];
        v->overlay.row = from / af_model_tensor_cols(t);
        const af_model_spec *s = in->adapter->spec;
        const int m = tensor < 0 ? -1 : s->tensor[tensor].module;
        const af_adapter_other *o = tensor < 0 ? af_model_reader_other(in, in->adapter, t) : NULL;
        if (o)
            v->overlay = (af_overlay){.module = &o->low, .out = o->out};
        if (m >= 0 && s->module[m].weight == tensor && af_disk_is_turned(s, tensor)) {
            v->overlay.turned = s->module[m].in;
            v->overlay.pairs = s->tensor[tensor].alternates;
        }
    }
    if (!t->stored && af_disk_is_turned(&in->spec, t->spec)) {
        const af_tensor_spec *own = &in->spec.tensor[t->spec];
        const uint64_t cols = (uint64_t)own->dim[own->ndim - 1];
        v->row = af_calloc(cols, sizeof *v->row);
        if (!v->row)
            return af_fail_nomem(err, "a row of a tensor", cols * sizeof *v->row);
    }
    if (!t->stored)
        return AF_OK;
    const af_status st = values_named(&v->values, &readable, in->weights, &in->config, t->name,
                                      t->stored, t->dtype, err);
    if (st == AF_OK && !readable)
        return af_fail(err, AF_EUNSUPPORTED, "tensor '%s' has type %s, which cannot be read",
                       t->name, af_dtype_name(t->stored->dtype));
    return st;
}

void af_tensor_view_close(af_tensor_view *v)
{
    if (v->in && v->t->stored)
        af_weights_forget(v->in->weights, v->t->stored);
    else if (v->in)
        af_model_reader_forget(v->in, v->t->spec);
    free(v->row);
    *v = (af_tensor_view){0};
}

/* Norms that GGUF stores as 1 + w, A_log as -exp(w): the bits that were lost, where the writer kept
 * them. */
static void add_rest(const af_tensor_view *v, int64_t from, int64_t n, float *out)
{
    char key[512];
    const int64_t cols = af_model_tensor_cols(v->t), all = af_model_tensor_rows(v->t) * cols;
    snprintf(key, sizeof key, AF_GGUF_REST_KEY "%s", v->in->spec.tensor[v->t->spec].gguf);
    const af_gguf_kv *kv = af_gguf_find_kv(af_weights_gguf(v->in->weights), key);
    if (!kv || kv->type != AF_GGUF_ARRAY || kv->item != AF_GGUF_F32 || kv->count != (uint64_t)all)
        return;
    for (int64_t i = 0; i < n * cols; i++)
        out[i] += (float)af_gguf_item_float(kv, (uint64_t)(from * cols + i));
}

/* Rows of matrices that lie turned in a folder, one after another: columns of ours. */
static void columns_as_rows(const af_tensor_view *v, int64_t from, int64_t n, float *out)
{
    const af_tensor_spec *t = &v->in->spec.tensor[v->t->spec];
    const int64_t cols = af_model_tensor_cols(v->t), base = from * cols;
    const bool bias = t->slot == AF_SLOT_EXPERTS_GATE_UP_BIAS; /* its columns alone change places */
    const int64_t outs = bias ? 1 : t->dim[t->ndim - 2], ins = bias ? 1 : t->dim[t->ndim - 1];
    for (int64_t x = from / ins; x * ins < from + n; x++)
        for (int64_t r = x * outs; r < (x + 1) * outs; r++) {
            const int64_t first = bias ? 0 : AF_MAX(from - x * ins, INT64_C(0)),
                          end = bias ? cols : AF_MIN(from + n - x * ins, ins);
            af_model_reader_rows(v->in, v->t->spec, r, 1, v->row);
            for (int64_t c = first; c < end; c++)
                out[af_disk_at(t, r, c) - base] = v->row[c];
        }
}

/* The same of experts [X * F][D]: gates or ups, which are rows of ours, or downs. */
static void flat_rows(const af_tensor_view *v, int64_t from, int64_t n, float *out)
{
    const af_model_spec *s = &v->in->spec;
    const int64_t F = s->expert_ffn, D = s->width;
    if (af_disk_is_flat(s, v->t->spec)) {
        const int64_t part = v->t->spec_row ? F : 0;
        for (int64_t r = from; r < from + n; r++, out += D)
            af_model_reader_rows(v->in, v->t->spec, r / F * 2 * F + part + r % F, 1, out);
        return;
    }
    for (int64_t r = from, k; r < from + n; r += k, out += k * D) {
        k = AF_MIN(from + n - r, F - r % F); /* of one expert */
        for (int64_t d = 0; d < D; d++) {
            af_model_reader_rows(v->in, v->t->spec, r / F * D + d, 1, v->row);
            for (int64_t i = 0; i < k; i++)
                out[i * D + d] = v->row[r % F + i];
        }
    }
}

void af_tensor_view_rows(const af_tensor_view *v, int64_t from, int64_t n, float *out)
{
    const af_model_tensor *t = v->t;
    const int64_t cols = af_model_tensor_cols(t);
    if (v->overlay.saved) {
        take_saved(&v->overlay, from, n, cols, out);
    } else if (t->stored) {
        af_stored_values_read(&v->values, from * cols, (from + n) * cols, out);
    } else if (v->row) {
        (v->in->spec.tensor[t->spec].flat ? flat_rows : columns_as_rows)(v, from, n, out);
    } else {
        af_model_reader_rows(v->in, t->spec, t->spec_row + from, n, out);
        const af_tensor_layout *e = &v->in->layout[t->spec];
        if (e->exp || (t->ndim == 1 && e->add != 0))
            add_rest(v, from, n, out);
    }
    af_overlay_apply(&v->overlay, out, from, n, cols);
}

bool af_tensor_view_is_raw(const af_tensor_view *v)
{
    return v->t->stored && !v->values.packed && !v->values.coded && !v->overlay.module &&
           !v->overlay.saved && !v->overlay.trained.count && !v->overlay.biased;
}

bool af_tensor_view_rows_finite(const af_tensor_view *v, int64_t from, int64_t n, const float *rows)
{
    const af_stored *s = v->t->stored;
    const int64_t cols = af_model_tensor_cols(v->t);
    uint64_t skip = 0;
    if (!af_tensor_view_is_raw(v) || !af_dtype_bytes(s->dtype, (uint64_t)(from * cols), &skip))
        return af_all_finite(AF_DTYPE_F32, rows, n * cols);
    return af_all_finite(s->dtype, (const uint8_t *)s->data + skip, n * cols);
}

bool af_tensor_view_finite(const af_tensor_view *v)
{
    const int64_t rows = af_model_tensor_rows(v->t);
    float *row = af_calloc((uint64_t)AF_MAX(af_model_tensor_cols(v->t), 1), sizeof *row);
    bool finite = true; /* also when there is no memory to check */
    for (int64_t r = 0; row && finite && r < rows; r++) {
        af_tensor_view_rows(v, r, 1, row);
        finite = af_tensor_view_rows_finite(v, r, 1, row);
    }
    free(row);
    return finite;
}

/* ---- numbers among the metadata of GGUF ---- */

af_status af_reader_match_xielu(af_model_reader *in, int tensor, af_error *err)
{
    const af_tensor_spec *t = &in->spec.tensor[tensor];
    af_tensor_layout *e = &in->layout[tensor];
    const char *key = af_slot_xielu_key(t->slot);
    const af_gguf_kv *kv = af_gguf_find_kv(af_weights_gguf(in->weights), key);
    af_stored *made = af_arena_take(&in->arena, sizeof *made);
    float *value = af_arena_take(&in->arena, sizeof *value);
    const af_stored **part = af_arena_take(&in->arena, sizeof *part);
    if (!made || !value || !part)
        return af_fail_nomem(err, key, sizeof *made);
    if (!kv || kv->str || (kv->count != 1 && kv->count != (uint64_t)in->spec.layers))
        return af_fail(err, AF_EFORMAT, "%s: %s is not one number per layer", in->path, key);
    *value = (float)af_gguf_item_float(kv, kv->count == 1 ? 0 : (uint64_t)t->layer);
    *made = (af_stored){.name = t->name,
                        .dtype = AF_DTYPE_F32,
                        .ndim = 1,
                        .dim = {1},
                        .data = value,
                        .bytes = sizeof *value};
    part[0] = made;
    e->part = part;
    e->parts = 1;
    return AF_OK;
}

/* ---- a changed vocabulary ---- */

enum { STEP_ROWS = 64 };

static bool is_vocab(const af_tensor_spec *t)
{
    return t->slot == AF_SLOT_EMBED || t->slot == AF_SLOT_HEAD;
}

/* An embedding may have rows beyond vocab_size. */
static int64_t rows_on_disk(const af_model_reader *in, const af_tensor_spec *t)
{
    return in->stored_vocab + (t->slot == AF_SLOT_EMBED ? in->config.embed_more : 0);
}

void af_reader_vocab_set(af_model_reader *in)
{
    in->stored_vocab = in->config.vocab_size;
    if (in->vocab && (in->vocab > in->stored_vocab || in->vocab_weights))
        in->config.vocab_size = in->vocab;
}

af_status af_reader_vocab_check(const af_model_reader *in, af_error *err)
{
    const bool bias = in->spec.outer[AF_SLOT_HEAD_BIAS] >= 0;
    if (in->config.vocab_size == in->stored_vocab || !(bias || in->config.embed_more))
        return AF_OK;
    return af_fail(err, AF_EUNSUPPORTED, "'%s' takes no new tokens: %s", in->path,
                   bias ? "its head has a bias, with a value for each of its own"
                        : "the rows after its vocabulary are of image tokens");
}

void af_reader_vocab_stored_dim(const af_model_reader *in, int tensor, int64_t dim[4])
{
    const af_tensor_spec *t = &in->spec.tensor[tensor];
    for (int i = 0; i < t->ndim; i++)
        dim[i] = t->dim[i];
    if (is_vocab(t))
        dim[0] = rows_on_disk(in, t);
}

/* The base of an adapted head that is tied: PEFT stores it under the head's name alone. */
static const af_stored *tied_base(const af_model_reader *in, const af_tensor_spec *t)
{
    char name[AF_ADAPTER_NAME_BYTES];
    if (!in->spec.tied || t->slot != AF_SLOT_EMBED)
        return NULL;
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.base_layer.weight",
             in->spec.module[in->spec.head_module].path);
    const af_stored *w = af_weights_find(in->vocab_weights, name);
    return w && w->ndim == 2 && af_dtype_is_float(w->dtype) ? w : NULL;
}

const af_stored *af_reader_vocab_own(const af_model_reader *in, int tensor)
{
    const af_tensor_spec *t = &in->spec.tensor[tensor];
    const af_stored *w = in->vocab_weights && is_vocab(t)
                             ? af_adapter_find_vocab(in->vocab_weights, &in->spec, t)
                             : NULL;
    if (!w && in->vocab_weights && is_vocab(t))
        w = tied_base(in, t);
    if (!w || w->dim[0] != t->dim[0] || w->dim[1] != t->dim[1])
        return NULL;
    /* PEFT stores the base of an adapted embedding, too, whether it was changed or not; one that
     * modules_to_save trains is the adapter's, and a head that was tied to it stays as on disk */
    const bool base = strstr(w->name, ".base_layer."),
               copy = base && !strstr(w->name, ".token_adapter."), trained = !base && in->untie;
    return (copy || trained) && in->config.vocab_size == in->stored_vocab ? NULL : w;
}

/* In the order of the rows, so that the bits do not depend on anything else. */
static af_status add_up(const af_tensor_layout *e, double *sum, af_error *err)
{
    float *rows = af_calloc((uint64_t)(STEP_ROWS * e->cols), sizeof *rows);
    if (!rows)
        return af_fail_nomem(err, "rows of the embedding", (uint64_t)e->cols * sizeof *rows);
    for (int64_t r = 0; r < e->stored_rows; r += STEP_ROWS) {
        const int64_t n = AF_MIN(e->stored_rows - r, STEP_ROWS);
        af_tensor_layout_rows(e, r, n, rows);
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < e->cols; c++)
                sum[c] += rows[i * e->cols + c];
    }
    free(rows);
    return AF_OK;
}

/* As transformers' resize_token_embeddings, which draws new rows from a normal distribution around
 * the mean of the others with a billionth of their covariance; here they are the mean itself, in
 * the type of the others. */
static af_status find_mean(const af_tensor_layout *e, float *mean, af_error *err)
{
    const af_dtype stored = e->packed ? e->bnb.round : af_tensor_layout_type(e);
    double *sum = af_calloc((uint64_t)e->cols, sizeof *sum);
    if (!sum)
        return af_fail_nomem(err, "a row of the embedding", (uint64_t)e->cols * sizeof *sum);
    const af_status st = add_up(e, sum, err);
    for (int64_t c = 0; st == AF_OK && c < e->cols; c++) {
        mean[c] = (float)(sum[c] / (double)e->stored_rows);
        if (stored == AF_DTYPE_BF16 || stored == AF_DTYPE_F16) {
            uint16_t half;
            af_convert(&half, stored, &mean[c], AF_DTYPE_F32, 1);
            af_convert(&mean[c], AF_DTYPE_F32, &half, stored, 1);
        }
    }
    free(sum);
    return st;
}

af_status af_reader_vocab_grow(af_model_reader *in, int tensor, af_error *err)
{
    af_status st = AF_OK;
    const af_tensor_spec *t = &in->spec.tensor[tensor];
    af_tensor_layout *e = &in->layout[tensor];
    if (!is_vocab(t) || t->dim[0] <= rows_on_disk(in, t) || e->mean ||
        af_reader_vocab_own(in, tensor))
        return AF_OK;
    float *mean = af_arena_take(&in->arena, (uint64_t)e->cols * sizeof *mean);
    if (!mean)
        return af_fail_nomem(err, "a row of the embedding", (uint64_t)e->cols * sizeof *mean);
    e->stored_rows = rows_on_disk(in, t);
    if (!in->no_values)
        AF_TRY(find_mean(e, mean, err));
    e->mean = mean;
done:
    return st;
}
