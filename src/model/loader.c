/* loader.c - types, bound memory and values of a model's weights in a graph; see loader.h. */
#include "model/loader.h"

#include "base/log.h"
#include "graph/backend.h"
#include "model/tensor_layout.h"
#include "tensor/codec.h"

enum { CHUNK_VALUES = 1 << 16 };  /* converted at a time */
enum { FORGET_VALUES = 1 << 22 }; /* after that many, pages of the file are given back */

static const af_tensor_layout *layout_of(const af_loader *s, int i)
{
    return &s->reader->layout[i];
}

/* ---- types ---- */

/* In which type a tensor is declared: as stored where ops can use that, so that the file's own
 * memory serves; vectors are f32 or bf16. */
static af_dtype choose_type(const af_loader *s, int i)
{
    const af_tensor_spec *t = &s->spec->tensor[i];
    const af_tensor_layout *e = layout_of(s, i);
    if (e->packed || s->quantise[i]) {
        if (s->o.quant_mode == AF_QUANT_SCRATCH &&
            (s->quantise[i] || af_bnb_weight_is_standard(&e->bnb)))
            return AF_DTYPE_NF4;
        return s->quantise[i] ? s->o.compute : e->bnb.round;
    }
    const af_dtype stored = af_tensor_layout_type(e);
    if (t->ndim == 1 || t->slot == AF_SLOT_ROUTER)
        return stored == AF_DTYPE_BF16 && e->add == 0 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    if (af_dtype_is_block(stored))
        return stored;
    if (s->o.compute == AF_DTYPE_BF16)
        return AF_DTYPE_BF16;
    return stored == AF_DTYPE_BF16 || stored == AF_DTYPE_F16 ? stored : AF_DTYPE_F32;
}

/* Linears that a bitsandbytes folder has as plain tensors were left so on purpose. */
static bool to_quantise(const af_loader *s, int i)
{
    const af_tensor_spec *t = &s->spec->tensor[i];
    const af_tensor_layout *e = layout_of(s, i);
    return s->o.load_in_4bit && s->reader->config.quant.method == AF_QUANT_NONE && !e->packed &&
           t->module >= 0 && t->layer >= 0 &&
           !(s->o.keep_blocks && af_dtype_is_block(af_tensor_layout_type(e)));
}

static void choose_types(af_loader *s)
{
    for (int i = 0; i < s->spec->tensors; i++) {
        s->quantise[i] = to_quantise(s, i);
        s->dtype[i] = choose_type(s, i);
    }
}

/* ---- open ---- */

static af_status open_parts(af_loader *s, const char *path, af_error *err)
{
    af_status st = AF_OK;
    bool any = false;
    AF_TRY(af_model_reader_open(&s->reader, path, err));
    s->reader->untie = s->o.untie;
    AF_TRY(af_model_reader_match(s->reader, err));
    s->spec = af_model_reader_spec(s->reader);
    const uint64_t n = (uint64_t)s->spec->tensors;
    s->quantise = af_arena_take(&s->arena, n * sizeof *s->quantise);
    s->made = af_arena_take(&s->arena, n * sizeof *s->made);
    s->dtype = af_arena_take(&s->arena, n * sizeof *s->dtype);
    if (!s->quantise || !s->made || !s->dtype)
        AF_TRY(af_fail_nomem(err, "the list of tensors", n * sizeof *s->made));
    choose_types(s);
    for (int i = 0; i < s->spec->tensors; i++)
        any |= s->quantise[i];
    if (any)
        af_say(AF_LOG_INFO, "%s: linear layers are quantised to nf4", path);
done:
    return st;
}

af_status af_loader_open(af_loader **out, const char *path, const af_loader_opts *o, af_error *err)
{
    af_loader *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "a model", sizeof *s);
    s->o = *o;
    const af_status st = open_parts(s, path, err);
    if (st != AF_OK) {
        af_loader_close(s);
        return st;
    }
    *out = s;
    return AF_OK;
}

void af_loader_close(af_loader *s)
{
    if (!s)
        return;
    for (int i = 0; s->made && i < s->spec->tensors; i++)
        af_bnb_weight_clear(&s->made[i]);
    af_model_reader_close(s->reader);
    af_arena_clear(&s->arena);
    free(s);
}

bool af_loader_packs(const af_loader *s)
{
    bool packs = false;
    for (int i = 0; i < s->spec->tensors; i++)
        packs |= s->quantise[i] ||
                 (layout_of(s, i)->packed && af_bnb_weight_is_standard(&layout_of(s, i)->bnb));
    return packs;
}

void af_loader_set_mode(af_loader *s, af_quant_mode mode)
{
    s->o.quant_mode = mode;
    choose_types(s);
}

const af_model_spec *af_loader_spec(const af_loader *s) { return s->spec; }
const af_hf_config *af_loader_config(const af_loader *s) { return &s->reader->config; }
const af_dtype *af_loader_dtypes(const af_loader *s) { return s->dtype; }

/* ---- values ---- */

/* Rows as the graph will see them; codes that are to be made must be made. */
static void read_rows(const af_loader *s, int i, int64_t from, int64_t n, float *out)
{
    const af_tensor_layout *t = layout_of(s, i);
    if (s->quantise[i])
        af_bnb_weight_decode(&s->made[i], from * t->cols, n * t->cols, out);
    else
        af_tensor_layout_rows(s->reader, t, from, n, out);
}

/* Makes the codes of a tensor that is quantised at load. */
static af_status make_codes(af_loader *s, int i, af_error *err)
{
    const af_tensor_layout *t = layout_of(s, i);
    if (!s->quantise[i] || s->made[i].codes)
        return AF_OK;
    const int64_t n = t->rows * t->cols;
    float *x = af_calloc((uint64_t)n, sizeof *x);
    if (!x)
        return af_fail_nomem(err, "a tensor to quantise", (uint64_t)n * sizeof *x);
    af_tensor_layout_rows(s->reader, t, 0, t->rows, x);
    const af_status st = af_bnb_weight_make(&s->made[i], x, n, t->cols, s->o.compute, err);
    free(x);
    return st;
}

af_status af_loader_rows(af_loader *s, int tensor, int64_t from, int64_t n, float *out,
                         af_error *err)
{
    const af_status st = make_codes(s, tensor, err);
    if (st == AF_OK)
        read_rows(s, tensor, from, n, out);
    return st;
}

/* ---- before prepare ---- */

/* One allocation of ours serves codes and scales; on the CPU the graph reads them there. */
static af_status bind_codes(af_loader *s, af_model_leaves *l, int i, bool cpu, af_error *err)
{
    const af_tensor_layout *e = layout_of(s, i);
    af_tensor *t = l->tensor[i];
    const af_bnb_weight later = af_bnb_weight_outline(e->rows * e->cols, e->cols, s->o.compute);
    const bool made = cpu && !s->o.outline; /* a GPU makes its own */
    const af_status st = made ? make_codes(s, i, err) : AF_OK;
    if (st != AF_OK)
        return st;
    const af_bnb_weight *b = !s->quantise[i] ? &e->bnb : made ? &s->made[i] : &later;
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
static bool is_direct(const af_loader *s, int i)
{
    const af_tensor_layout *e = layout_of(s, i);
    return !e->packed && !s->quantise[i] && e->parts == 1 && e->heads == 0 && e->add == 0 &&
           af_tensor_layout_type(e) == s->dtype[i];
}

static bool is_ours(const af_model_leaves *l, int i)
{
    return !(l->adapter && l->adapter->saved[i]); /* those come from the adapter */
}

af_status af_loader_bind(af_loader *s, af_model_leaves *l, bool cpu, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < s->spec->tensors; i++) {
        if (l->tensor[i]->role != AF_ROLE_WEIGHT || !is_ours(l, i))
            continue;
        assert(l->tensor[i]->dtype == s->dtype[i]);
        if (af_dtype_is_block(s->dtype[i]) && (layout_of(s, i)->packed || s->quantise[i]))
            AF_TRY(bind_codes(s, l, i, cpu, err));
        else if (cpu && is_direct(s, i))
            (af_weights_mapped(s->reader->weights, layout_of(s, i)->part[0])
                 ? af_tensor_bind_file
                 : af_tensor_bind)(l->tensor[i], layout_of(s, i)->part[0]->data);
    }
done:
    return st;
}

/* ---- after prepare ---- */

static bool forget_now(const af_tensor_layout *e, int64_t row, int64_t n)
{
    return row * e->cols / FORGET_VALUES != (row + n) * e->cols / FORGET_VALUES;
}

/* Rows as stored, in our order. */
static void copy_rows(const af_loader *s, int i, uint8_t *out)
{
    const af_tensor_layout *e = layout_of(s, i);
    uint64_t bytes = 0;
    (void)af_dtype_bytes(af_tensor_layout_type(e), (uint64_t)e->cols, &bytes);
    for (int64_t r = 0; r < e->rows; r++) {
        memcpy(out + (uint64_t)r * bytes, af_tensor_layout_row(s->reader, e, r), bytes);
        if (forget_now(e, r, 1))
            af_model_reader_forget(s->reader, i);
    }
}

static void convert_rows(const af_loader *s, int i, void *out, af_dtype to, bool quantised,
                         float *tmp, int64_t step)
{
    const af_tensor_layout *e = layout_of(s, i);
    const uint64_t size = (uint64_t)af_dtype_get(to)->bytes;
    for (int64_t r = 0; r < e->rows; r += step) {
        const int64_t n = AF_MIN(step, e->rows - r);
        if (quantised)
            read_rows(s, i, r, n, tmp);
        else
            af_tensor_layout_rows(s->reader, e, r, n, tmp);
        af_convert((uint8_t *)out + (uint64_t)(r * e->cols) * size, to, tmp, AF_DTYPE_F32,
                   (uint64_t)(n * e->cols));
        if (forget_now(e, r, n))
            af_model_reader_forget(s->reader, i);
    }
}

/* On the CPU in place: a copy of the largest tensor would be more than the plan says. */
static af_status write_converted(af_loader *s, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_tensor_layout *e = layout_of(s, i);
    af_tensor *t = l->tensor[i];
    const uint64_t bytes = af_tensor_bytes(t);
    const int64_t step = AF_MAX(CHUNK_VALUES / e->cols, 1);
    float *tmp = af_calloc((uint64_t)(step * e->cols), sizeof *tmp);
    const bool host = l->graph->device->ops->host && t->data;
    uint8_t *own = host ? NULL : af_calloc(bytes, 1), *out = host ? t->data : own;
    if (!tmp || !out)
        AF_TRY(af_fail_nomem(err, "a tensor to convert", bytes));
    AF_TRY(make_codes(s, i, err));
    if (!e->packed && !s->quantise[i] && e->add == 0 && t->dtype == af_tensor_layout_type(e))
        copy_rows(s, i, out);
    else
        convert_rows(s, i, out, t->dtype, true, tmp, step);
    if (own)
        AF_TRY(af_tensor_write(l->graph, t, out, bytes, err));
    if (s->quantise[i])
        af_bnb_weight_clear(&s->made[i]); /* the dequantised copy stays; codes can be made again */
    af_model_reader_forget(s->reader, i);
done:
    free(tmp);
    free(own);
    return st;
}

/* Quantised by the device, from rows in bf16. */
static af_status write_nf4(af_loader *s, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_tensor_layout *e = layout_of(s, i);
    const af_backend_ops *ops = l->graph->device->ops;
    const bool direct = e->parts == 1 && e->heads == 0 && e->add == 0 && !e->gate_up_split &&
                        af_tensor_layout_type(e) == AF_DTYPE_BF16;
    const int64_t step = AF_MAX(CHUNK_VALUES / e->cols, 1);
    float *tmp = NULL;
    uint16_t *rows = NULL;
    if (!direct) {
        tmp = af_calloc((uint64_t)(step * e->cols), sizeof *tmp);
        rows = af_calloc((uint64_t)(e->rows * e->cols), sizeof *rows);
        if (!tmp || !rows)
            AF_TRY(af_fail_nomem(err, "a tensor to quantise", (uint64_t)(e->rows * e->cols) * 2));
        convert_rows(s, i, rows, AF_DTYPE_BF16, false, tmp, step);
    }
    AF_TRY(ops->write_nf4(l->graph->device, l->graph, l->tensor[i],
                          direct ? e->part[0]->data : rows, err));
    af_model_reader_forget(s->reader, i);
done:
    free(tmp);
    free(rows);
    return st;
}

static af_status write_codes(af_loader *s, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_bnb_weight *b = s->quantise[i] ? &s->made[i] : &layout_of(s, i)->bnb;
    af_quant *q = l->tensor[i]->quant;
    q->offset = b->offset; /* not known when it was bound, if it was quantised since */
    AF_TRY(af_tensor_write(l->graph, l->tensor[i], b->codes, af_tensor_bytes(l->tensor[i]), err));
    AF_TRY(af_tensor_write(l->graph, q->absmax, b->absmax, af_tensor_bytes(q->absmax), err));
    if (q->nested)
        AF_TRY(af_tensor_write(l->graph, q->nested, b->nested, af_tensor_bytes(q->nested), err));
done:
    return st;
}

af_status af_loader_write(af_loader *s, af_model_leaves *l, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < s->spec->tensors; i++) {
        af_tensor *t = l->tensor[i];
        if (t->bound || !is_ours(l, i))
            continue;
        if (s->quantise[i] && !s->made[i].codes && l->graph->device->ops->write_nf4) {
            AF_TRY(write_nf4(s, l, i, err));
        } else if (t->quant) {
            AF_TRY(write_codes(s, l, i, err));
        } else if (t->dtype == s->dtype[i] && is_direct(s, i) && !l->graph->device->ops->host) {
            const af_stored *w = layout_of(s, i)->part[0];
            AF_TRY(af_tensor_write(l->graph, t, w->data, w->bytes, err));
            af_weights_forget(s->reader->weights, w);
        } else {
            AF_TRY(write_converted(s, l, i, err));
        }
    }
done:
    return st;
}
