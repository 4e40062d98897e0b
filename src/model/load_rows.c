/* load_rows.c - values of stored tensors: rows in our order, bound, copied or converted into a
 * graph. */
#include "model/load_entry.h"

#include "graph/backend.h"
#include "tensor/codec.h"

enum { CHUNK_VALUES = 1 << 16 };  /* converted at a time */
enum { FORGET_VALUES = 1 << 22 }; /* after that many, pages of the file are given back */

af_dtype af_entry_type(const af_entry *e)
{
    return e->pieces && e->piece[0] ? e->piece[0]->dtype : AF_DTYPE_F32;
}

/* llama.cpp stores row (head, i, half) where Hugging Face has (head, half, i). */
static int64_t unpermute(int64_t r, int64_t rows, int64_t heads)
{
    const int64_t E = rows / heads, h = r / E, half = r % E / (E / 2), i = r % E % (E / 2);
    return h * E + i * 2 + half;
}

const void *af_entry_row(const af_source *s, const af_entry *e, int64_t r)
{
    int64_t piece = r / e->piece_rows, row = r % e->piece_rows;
    uint64_t bytes = 0;
    if (e->heads)
        row = unpermute(r, e->rows, e->heads);
    if (e->gate_up_split) { /* [X][F][D] twice -> [X][2F][D] */
        const int64_t F = s->spec.expert_ffn, x = r / (2 * F), in = r % (2 * F);
        piece = in / F;
        row = x * F + in % F;
    }
    (void)af_dtype_bytes(af_entry_type(e), (uint64_t)e->cols, &bytes); /* checked at open */
    return (const uint8_t *)e->piece[piece]->data + (uint64_t)row * bytes;
}

static void rows_f32(const af_source *s, const af_entry *e, int64_t from, int64_t n, float *out)
{
    if (e->kind == AF_ENTRY_BNB || (e->quantise && e->bnb.codes)) {
        af_bnb_weight_decode(&e->bnb, from * e->cols, n * e->cols, out);
        return;
    }
    const af_dtype t = af_entry_type(e);
    for (int64_t r = 0; r < n; r++) {
        const void *row = af_entry_row(s, e, from + r);
        if (af_dtype_is_block(t))
            af_codec_decode_row(t, row, out + r * e->cols, e->cols);
        else
            af_convert(out + r * e->cols, AF_DTYPE_F32, row, t, (uint64_t)e->cols);
    }
    for (int64_t k = 0; e->add != 0 && k < n * e->cols; k++)
        out[k] += e->add;
}

af_status af_source_rows(af_source *s, int tensor, int64_t from, int64_t n, float *out,
                         af_error *err)
{
    const af_entry *e = &s->entry[tensor];
    assert(from >= 0 && n >= 0 && from + n <= e->rows);
    if (e->quantise) {
        const af_status st = af_entry_quantise(s, tensor, err);
        if (st != AF_OK)
            return st;
    }
    rows_f32(s, e, from, n, out);
    return AF_OK;
}

af_status af_entry_quantise(af_source *s, int tensor, af_error *err)
{
    af_entry *e = &s->entry[tensor];
    if (e->bnb.codes)
        return AF_OK;
    const int64_t n = e->rows * e->cols;
    float *x = af_calloc((uint64_t)n, sizeof *x);
    if (!x)
        return af_fail_nomem(err, "a tensor to quantise", (uint64_t)n * sizeof *x);
    rows_f32(s, e, 0, e->rows, x);
    const af_status st = af_bnb_weight_make(&e->bnb, x, n, e->cols, s->o.compute, err);
    free(x);
    return st;
}

/* ---- before prepare ---- */

/* One allocation of ours serves codes and scales; on the CPU the graph reads them there. */
static af_status bind_codes(af_source *s, af_model_leaves *l, int i, bool cpu, af_error *err)
{
    af_entry *e = &s->entry[i];
    af_tensor *t = l->tensor[i];
    const af_bnb_weight later = af_bnb_weight_outline(e->rows * e->cols, e->cols, s->o.compute);
    const bool made = cpu && !s->o.outline; /* a GPU makes its own */
    if (e->quantise && made) {
        const af_status st = af_entry_quantise(s, i, err);
        if (st != AF_OK)
            return st;
    }
    const af_bnb_weight *b = e->quantise && !made ? &later : &e->bnb;
    af_quant *q = af_arena_take(&l->arena, sizeof *q);
    if (!q)
        return af_fail_nomem(err, "scales of a 4-bit tensor", sizeof *q);
    char name[512];
    const int64_t blocks = af_bnb_weight_blocks(b);
    *q = (af_quant){
        .block = b->block, .nested_block = b->nested_block, .offset = b->offset, .round = b->round};
    snprintf(name, sizeof name, "%s.absmax", t->name);
    q->absmax =
        af_graph_weight(l->graph, name, b->nested_block ? AF_DTYPE_U8 : AF_DTYPE_F32, 1, &blocks);
    if (b->nested_block) {
        const int64_t outer = (blocks + b->nested_block - 1) / b->nested_block;
        snprintf(name, sizeof name, "%s.nested_absmax", t->name);
        q->nested = af_graph_weight(l->graph, name, AF_DTYPE_F32, 1, &outer);
    }
    t->quant = q;
    if (cpu && af_graph_status(l->graph, err) == AF_OK) {
        const bool there = b->codes != NULL; /* else any address: nothing reads it */
        af_tensor_bind(t, there ? (const void *)b->codes : q);
        af_tensor_bind(q->absmax, there ? (const void *)b->absmax : q);
        if (q->nested)
            af_tensor_bind(q->nested, there ? (const void *)b->nested : q);
    }
    return af_graph_status(l->graph, err);
}

/* The file's memory is the tensor, as it is. */
static bool is_direct(const af_source *s, int i)
{
    const af_entry *e = &s->entry[i];
    return e->kind == AF_ENTRY_ROWS && !e->quantise && e->pieces == 1 && e->heads == 0 &&
           e->add == 0 && af_entry_type(e) == s->dtype[i];
}

static bool is_ours(const af_model_leaves *l, int i)
{
    return !(l->adapter && l->adapter->saved[i]); /* those come from the adapter */
}

af_status af_source_bind(af_source *s, af_model_leaves *l, bool cpu, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < s->spec.tensors; i++) {
        if (l->tensor[i]->role != AF_ROLE_WEIGHT || !is_ours(l, i))
            continue;
        assert(l->tensor[i]->dtype == s->dtype[i]);
        if (af_dtype_is_block(s->dtype[i]) &&
            (s->entry[i].kind == AF_ENTRY_BNB || s->entry[i].quantise))
            AF_TRY(bind_codes(s, l, i, cpu, err));
        else if (cpu && is_direct(s, i))
            (af_weights_mapped(s->weights, s->entry[i].piece[0])
                 ? af_tensor_bind_file
                 : af_tensor_bind)(l->tensor[i], s->entry[i].piece[0]->data);
    }
done:
    return st;
}

/* ---- after prepare ---- */

/* What was read need not stay resident. */
static void forget(const af_source *s, const af_entry *e)
{
    for (int k = 0; k < e->pieces; k++)
        af_weights_forget(s->weights, e->piece[k]);
    const af_stored *codes =
        e->kind == AF_ENTRY_BNB && e->bnb.name ? af_weights_find(s->weights, e->bnb.name) : NULL;
    if (codes)
        af_weights_forget(s->weights, codes);
}

static bool forget_now(const af_entry *e, int64_t row, int64_t n)
{
    return row * e->cols / FORGET_VALUES != (row + n) * e->cols / FORGET_VALUES;
}

/* Rows as stored, in our order. */
static void copy_rows(const af_source *s, const af_entry *e, uint8_t *out)
{
    uint64_t bytes = 0;
    (void)af_dtype_bytes(af_entry_type(e), (uint64_t)e->cols, &bytes);
    for (int64_t r = 0; r < e->rows; r++) {
        memcpy(out + (uint64_t)r * bytes, af_entry_row(s, e, r), bytes);
        if (forget_now(e, r, 1))
            forget(s, e);
    }
}

static void convert_rows(const af_source *s, const af_entry *e, void *out, af_dtype to, float *tmp,
                         int64_t step)
{
    const uint64_t size = (uint64_t)af_dtype_get(to)->bytes;
    for (int64_t r = 0; r < e->rows; r += step) {
        const int64_t n = AF_MIN(step, e->rows - r);
        rows_f32(s, e, r, n, tmp);
        af_convert((uint8_t *)out + (uint64_t)(r * e->cols) * size, to, tmp, AF_DTYPE_F32,
                   (uint64_t)(n * e->cols));
        if (forget_now(e, r, n))
            forget(s, e);
    }
}

/* On the CPU in place: a copy of the largest tensor would be more than the plan says. */
static af_status write_converted(af_source *s, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    af_entry *e = &s->entry[i];
    af_tensor *t = l->tensor[i];
    const uint64_t bytes = af_tensor_bytes(t);
    const int64_t step = AF_MAX(CHUNK_VALUES / e->cols, 1);
    float *tmp = af_calloc((uint64_t)(step * e->cols), sizeof *tmp);
    const bool host = l->graph->device->ops->host && t->data;
    uint8_t *own = host ? NULL : af_calloc(bytes, 1), *out = host ? t->data : own;
    if (!tmp || !out)
        AF_TRY(af_fail_nomem(err, "a tensor to convert", bytes));
    if (e->quantise)
        AF_TRY(af_entry_quantise(s, i, err));
    if (e->kind == AF_ENTRY_ROWS && !e->quantise && e->add == 0 && t->dtype == af_entry_type(e))
        copy_rows(s, e, out);
    else
        convert_rows(s, e, out, t->dtype, tmp, step);
    if (own)
        AF_TRY(af_tensor_write(l->graph, t, out, bytes, err));
    if (e->quantise)
        af_bnb_weight_clear(&e->bnb); /* the dequantised copy stays; codes can be made again */
    forget(s, e);
done:
    free(tmp);
    free(own);
    return st;
}

/* Quantised by the device, from rows in bf16. */
static af_status write_nf4(af_source *s, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_entry *e = &s->entry[i];
    const af_backend_ops *ops = l->graph->device->ops;
    const bool direct = e->pieces == 1 && e->heads == 0 && e->add == 0 && !e->gate_up_split &&
                        af_entry_type(e) == AF_DTYPE_BF16;
    const int64_t step = AF_MAX(CHUNK_VALUES / e->cols, 1);
    float *tmp = NULL;
    uint16_t *rows = NULL;
    if (!direct) {
        tmp = af_calloc((uint64_t)(step * e->cols), sizeof *tmp);
        rows = af_calloc((uint64_t)(e->rows * e->cols), sizeof *rows);
        if (!tmp || !rows)
            AF_TRY(af_fail_nomem(err, "a tensor to quantise", (uint64_t)(e->rows * e->cols) * 2));
        convert_rows(s, e, rows, AF_DTYPE_BF16, tmp, step);
    }
    AF_TRY(ops->write_nf4(l->graph->device, l->graph, l->tensor[i],
                          direct ? e->piece[0]->data : rows, err));
    forget(s, e);
done:
    free(tmp);
    free(rows);
    return st;
}

static af_status write_codes(af_source *s, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_bnb_weight *b = &s->entry[i].bnb;
    af_quant *q = l->tensor[i]->quant;
    q->offset = b->offset; /* not known when it was bound, if it was quantised since */
    AF_TRY(af_tensor_write(l->graph, l->tensor[i], b->codes, af_tensor_bytes(l->tensor[i]), err));
    AF_TRY(af_tensor_write(l->graph, q->absmax, b->absmax, af_tensor_bytes(q->absmax), err));
    if (q->nested)
        AF_TRY(af_tensor_write(l->graph, q->nested, b->nested, af_tensor_bytes(q->nested), err));
done:
    return st;
}

af_status af_source_write(af_source *s, af_model_leaves *l, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < s->spec.tensors; i++) {
        af_tensor *t = l->tensor[i];
        if (t->bound || !is_ours(l, i))
            continue;
        if (s->entry[i].quantise && !s->entry[i].bnb.codes && l->graph->device->ops->write_nf4) {
            AF_TRY(write_nf4(s, l, i, err));
        } else if (t->quant) {
            AF_TRY(write_codes(s, l, i, err));
        } else if (t->dtype == s->dtype[i] && is_direct(s, i) && !l->graph->device->ops->host) {
            const af_stored *w = s->entry[i].piece[0];
            AF_TRY(af_tensor_write(l->graph, t, w->data, w->bytes, err));
            af_weights_forget(s->weights, w);
        } else {
            AF_TRY(write_converted(s, l, i, err));
        }
    }
done:
    return st;
}
