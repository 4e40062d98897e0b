/* loader.c - types, bound memory and values of a model's weights in a graph; see loader.h. */
#include "model/loader.h"
#include "model/adapter_config.h"
#include "model/coded/fresh_weights.h"

#include "base/log.h"
#include "graph/graph_access.h"
#include "model/arch/arch_disk.h"
#include "model/tensor_layout.h"
#include "tensor/codec.h"

enum { CHUNK_VALUES = 1 << 16 };  /* converted at a time */
enum { FORGET_VALUES = 1 << 22 }; /* after that many, pages of the file are released */

static const af_tensor_layout *layout_of(const af_loader *ld, int i)
{
    return &ld->reader->layout[i];
}

/* ---- types ---- */

/* The codes that load-time quantisation makes. */
static af_dtype code_type(const af_loader *ld)
{
    return ld->o.load_in_8bit ? AF_DTYPE_I8 : AF_DTYPE_NF4;
}

/* The module's adapter that changes this tensor before it is used, or NULL. */
static const af_adapter_module *changed_by(const af_loader *ld, int i)
{
    const af_model_spec *s = ld->spec;
    const int m = s->tensor[i].module;
    if (!ld->change || m >= 0)
        return ld->change && ld->change->module[m].rank > 0 ? &ld->change->module[m] : NULL;
    for (int k = 0; k < s->modules; k++)
        if (s->module[k].bias == i && ld->change->module[k].factor)
            return &ld->change->module[k];
    return NULL;
}

/* Stored in blocks that ops compute with; others are decoded when they are read. */
static bool is_usable_block(const af_loader *ld, af_dtype stored)
{
    return af_dtype_is_block(stored) && (ld->o.on_cpu || af_codec_can_encode(stored));
}

/* In which type a tensor is declared: as stored where ops can use that, so that the file's own
 * memory serves; vectors are f32 or bf16. */
static af_dtype choose_type(const af_loader *ld, int i)
{
    const af_tensor_spec *t = &ld->spec->tensor[i];
    const af_tensor_layout *lay = layout_of(ld, i);
    if (lay->packed || ld->quantise[i]) {
        if (!lay->mean && ld->o.quant_mode == AF_QUANT_SCRATCH &&
            (ld->quantise[i] || af_bnb_weight_is_standard(&lay->bnb)))
            return ld->quantise[i] ? code_type(ld) : lay->bnb.type;
        return ld->quantise[i] ? ld->o.compute : lay->bnb.round;
    }
    if (changed_by(ld, i))
        return ld->o.compute;
    const af_dtype stored = af_tensor_layout_type(lay);
    if ((lay->mean || lay->order.columns || lay->fold.count) && af_dtype_is_block(stored))
        return ld->o.compute;
    if (t->ndim == 1 || af_slot_is_router(t->slot) || t->slot == AF_SLOT_EXPERTS_GATE_UP_BIAS ||
        t->slot == AF_SLOT_EXPERTS_DOWN_BIAS)
        return stored == AF_DTYPE_BF16 && af_tensor_layout_has_values(lay) ? AF_DTYPE_BF16
                                                                           : AF_DTYPE_F32;
    if (af_dtype_is_block(stored))
        return is_usable_block(ld, stored) ? stored : ld->o.compute;
    if (ld->o.compute == AF_DTYPE_BF16)
        return AF_DTYPE_BF16;
    const bool half = stored == AF_DTYPE_BF16 || stored == AF_DTYPE_F16;
    return half && !lay->fold.count ? stored : AF_DTYPE_F32;
}

/* Linears that a bitsandbytes folder has as plain tensors were left so on purpose; experts that it
 * has packed one by one are packed again, all in one. */
static bool to_quantise(const af_loader *ld, int i)
{
    const af_tensor_spec *t = &ld->spec->tensor[i];
    const af_tensor_layout *lay = layout_of(ld, i);
    return (ld->o.load_in_4bit || ld->o.load_in_8bit) &&
           (lay->coded || !af_quant_is_bnb(ld->reader->config.quant.method)) && !lay->packed &&
           af_tensor_is_linear(t) && !(ld->o.plain_experts && t->ndim == 3) &&
           !(ld->o.keep_blocks && is_usable_block(ld, af_tensor_layout_type(lay)));
}

static void choose_types(af_loader *ld)
{
    for (int i = 0; i < ld->spec->tensors; i++) {
        ld->quantise[i] = to_quantise(ld, i);
        ld->dtype[i] = choose_type(ld, i);
    }
}

/* ---- open ---- */

static af_status open_parts(af_loader *ld, const char *path, af_error *err)
{
    af_status st = AF_OK;
    bool any = false;
    AF_TRY(af_model_reader_open(&ld->reader, path, err));
    ld->reader->untie = ld->o.untie;
    ld->reader->headless = ld->o.headless;
    ld->reader->vocab = ld->o.vocab;
    ld->reader->labels = ld->o.labels;
    ld->reader->rope = ld->o.rope;
    ld->reader->label_seed = ld->o.label_seed;
    ld->reader->no_values = ld->o.outline;
    ld->reader->train_base = ld->o.train_base;
    if (ld->o.vocab_dir)
        AF_TRY(af_adapter_open_values(&ld->reader->vocab_weights, ld->o.vocab_dir, err));
    AF_TRY(af_model_reader_match(ld->reader, err));
    ld->spec = af_model_reader_spec(ld->reader);
    const uint64_t n = (uint64_t)ld->spec->tensors;
    ld->quantise = af_arena_take(&ld->arena, n * sizeof *ld->quantise);
    ld->made = af_arena_take(&ld->arena, n * sizeof *ld->made);
    ld->dtype = af_arena_take(&ld->arena, n * sizeof *ld->dtype);
    if (!ld->quantise || !ld->made || !ld->dtype)
        AF_TRY(af_fail_nomem(err, "the list of tensors", n * sizeof *ld->made));
    choose_types(ld);
    for (int i = 0; i < ld->spec->tensors; i++)
        any |= ld->quantise[i];
    if (any)
        af_log_write(AF_LOG_INFO, "%s: linear layers are quantised to %s", path,
                     ld->o.load_in_8bit ? "int8" : "nf4");
done:
    return st;
}

af_status af_loader_open(af_loader **out, const char *path, const af_loader_opts *o, af_error *err)
{
    af_loader *ld = af_calloc(1, sizeof *ld);
    if (!ld)
        return af_fail_nomem(err, "a model", sizeof *ld);
    ld->o = *o;
    const af_status st = open_parts(ld, path, err);
    if (st != AF_OK) {
        af_loader_close(ld);
        return st;
    }
    *out = ld;
    return AF_OK;
}

void af_loader_close(af_loader *ld)
{
    if (!ld)
        return;
    for (int i = 0; ld->made && i < ld->spec->tensors; i++)
        af_bnb_weight_clear(&ld->made[i]);
    af_model_reader_close(ld->reader);
    af_arena_clear(&ld->arena);
    free(ld);
}

bool af_loader_is_grown(const af_loader *ld)
{
    for (int i = 0; i < ld->spec->tensors; i++)
        if (af_reader_vocab_own(ld->reader, i))
            return true;
    return ld->spec->vocab != ld->reader->stored_vocab;
}

int af_loader_packed_bits(const af_loader *ld)
{
    for (int i = 0; i < ld->spec->tensors; i++) {
        const af_tensor_layout *lay = layout_of(ld, i);
        if (ld->quantise[i])
            return code_type(ld) == AF_DTYPE_I8 ? 8 : 4;
        if (lay->packed && af_bnb_weight_is_standard(&lay->bnb))
            return lay->bnb.type == AF_DTYPE_I8 ? 8 : 4;
    }
    return 0;
}

void af_loader_set_mode(af_loader *ld, af_quant_mode mode)
{
    ld->o.quant_mode = mode;
    choose_types(ld);
}

const af_model_spec *af_loader_spec(const af_loader *ld) { return ld->spec; }
const af_hf_config *af_loader_config(const af_loader *ld) { return &ld->reader->config; }
const af_dtype *af_loader_dtypes(const af_loader *ld) { return ld->dtype; }

/* ---- values ---- */

static bool is_fresh(const af_loader *ld, int i)
{
    return ld->o.fresh && !ld->spec->tensor[i].buffer;
}

/* Rows as the graph will see them, once the codes to be made are made. */
static void read_rows(const af_loader *ld, int i, int64_t from, int64_t n, float *out)
{
    const af_tensor_layout *t = layout_of(ld, i);
    if (is_fresh(ld, i)) {
        const double range = ld->reader->config.initializer_range;
        af_fresh_rows(ld->spec, i, range > 0 ? range : 0.02, ld->o.fresh_seed, from, n, t->cols,
                      out);
        return;
    }
    if (ld->made[i].codes) {
        af_bnb_weight_decode(&ld->made[i], from * t->cols, n * t->cols, out);
        return;
    }
    af_tensor_layout_rows(t, from, n, out);
    const af_adapter_module *by = changed_by(ld, i);
    if (by && !by->a)
        af_adapter_multiply(by, out, from, n, t->cols, ld->spec->tensor[i].ndim == 1);
    for (int64_t r = 0; by && by->a0 && r < n; r++)
        for (int k = 0; k < by->rank; k++) {
            const float f = by->scale * by->b0[(from + r) * by->rank + k];
            for (int64_t c = 0; c < t->cols; c++)
                out[r * t->cols + c] -= f * by->a0[k * t->cols + c];
        }
}

void af_loader_plain_rows(af_loader *ld, int tensor, int64_t from, int64_t n, float *out)
{
    af_tensor_layout_rows(layout_of(ld, tensor), from, n, out);
}

void af_loader_change(af_loader *ld, const af_adapter *a)
{
    ld->change = a;
    for (int i = 0; i < ld->spec->tensors; i++)
        af_bnb_weight_clear(&ld->made[i]);
    choose_types(ld);
}

bool af_loader_is_packed(const af_loader *ld, int tensor) { return layout_of(ld, tensor)->packed; }

/* Makes the codes of a tensor that is quantised at load. */
static af_status make_codes(af_loader *ld, int i, af_error *err)
{
    const af_tensor_layout *t = layout_of(ld, i);
    if (!ld->quantise[i] || ld->made[i].codes)
        return AF_OK;
    const int64_t n = t->rows * t->cols;
    float *x = af_calloc((uint64_t)n, sizeof *x);
    if (!x)
        return af_fail_nomem(err, "a tensor to quantise", (uint64_t)n * sizeof *x);
    read_rows(ld, i, 0, t->rows, x);
    const af_status st =
        af_bnb_weight_make(&ld->made[i], code_type(ld), x, n, t->cols, ld->o.compute, err);
    free(x);
    return st;
}

af_status af_loader_rows(af_loader *ld, int tensor, int64_t from, int64_t n, float *out,
                         af_error *err)
{
    const af_status st = make_codes(ld, tensor, err);
    if (st == AF_OK)
        read_rows(ld, tensor, from, n, out);
    return st;
}

/* ---- before prepare ---- */

/* One allocation of ours serves codes and scales; on the CPU the graph reads them there. */
static af_status bind_codes(af_loader *ld, af_model_leaves *l, int i, bool cpu, af_error *err)
{
    const af_tensor_layout *lay = layout_of(ld, i);
    af_tensor *t = l->tensor[i];
    const af_bnb_weight later =
        af_bnb_weight_outline(code_type(ld), lay->rows * lay->cols, lay->cols, ld->o.compute);
    const bool made = cpu && !ld->o.outline; /* a GPU makes its own, or they are written later */
    const af_status st = made ? make_codes(ld, i, err) : AF_OK;
    if (st != AF_OK)
        return st;
    const af_bnb_weight *b = !ld->quantise[i] ? &lay->bnb : made ? &ld->made[i] : &later;
    char name[512];
    const int64_t blocks = af_bnb_weight_blocks(b);
    af_quant q = {
        .block = b->block, .nested_block = b->nested_block, .offset = b->offset, .round = b->round};
    snprintf(name, sizeof name, "%s.absmax", af_tensor_name(t));
    q.absmax =
        af_graph_weight(l->graph, name, b->nested_block ? AF_DTYPE_U8 : AF_DTYPE_F32, 1, &blocks);
    if (b->nested_block) {
        const int64_t outer = (blocks + b->nested_block - 1) / b->nested_block;
        snprintf(name, sizeof name, "%s.nested_absmax", af_tensor_name(t));
        q.nested = af_graph_weight(l->graph, name, AF_DTYPE_F32, 1, &outer);
    }
    af_weight_set_quant(t, &q);
    if (cpu && af_graph_status(l->graph, err) == AF_OK) {
        const bool there = b->codes != NULL; /* else any address: nothing reads it */
        af_tensor_bind(t, there ? (const void *)b->codes : l);
        af_tensor_bind(q.absmax, there ? b->absmax : l);
        if (q.nested)
            af_tensor_bind(q.nested, there ? (const void *)b->nested : l);
    }
    return af_graph_status(l->graph, err);
}

/* The file's memory is the tensor, as it is. */
static bool is_direct(const af_loader *ld, int i)
{
    const af_tensor_layout *lay = layout_of(ld, i);
    return !is_fresh(ld, i) && !changed_by(ld, i) && !lay->packed && !lay->mean &&
           !ld->quantise[i] && !lay->coded && !lay->turned && lay->parts == 1 &&
           af_tensor_layout_is_plain(lay) && af_tensor_layout_type(lay) == ld->dtype[i];
}

static bool is_ours(const af_model_leaves *l, int i)
{
    return !(l->adapter && l->adapter->saved[i]); /* those come from the adapter */
}

static bool is_coded(af_dtype t) { return af_dtype_is_block(t) || t == AF_DTYPE_I8; }

af_status af_loader_bind(af_loader *ld, af_model_leaves *l, bool cpu, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < ld->spec->tensors; i++) {
        if (af_tensor_role(l->tensor[i]) != AF_ROLE_WEIGHT || !is_ours(l, i) ||
            af_adapter_token_table(l->adapter, i) >= 0)
            continue;
        if (af_tensor_dtype(l->tensor[i]) != ld->dtype[i]) { /* a head decoded for its columns */
            assert(is_coded(ld->dtype[i]) && af_dtype_is_float(af_tensor_dtype(l->tensor[i])));
            continue;
        }
        if (is_coded(ld->dtype[i]) && (layout_of(ld, i)->packed || ld->quantise[i]))
            AF_TRY(bind_codes(ld, l, i, cpu, err));
        else if (cpu && is_direct(ld, i))
            (af_weights_mapped(ld->reader->weights, layout_of(ld, i)->part[0])
                 ? af_tensor_bind_file
                 : af_tensor_bind)(l->tensor[i], layout_of(ld, i)->part[0]->data);
    }
done:
    return st;
}

/* ---- after prepare ---- */

/* Rows that are converted at a time. */
static int64_t chunk_rows(const af_tensor_layout *lay)
{
    return AF_MAX(CHUNK_VALUES / lay->cols, INT64_C(1));
}

static bool forget_now(const af_tensor_layout *lay, int64_t row, int64_t n)
{
    return row * lay->cols / FORGET_VALUES != (row + n) * lay->cols / FORGET_VALUES;
}

/* Rows [from, from + n) as stored, in our order. */
static void copy_rows(const af_loader *ld, int i, int64_t from, int64_t n, uint8_t *out)
{
    const af_tensor_layout *lay = layout_of(ld, i);
    uint64_t bytes = 0;
    (void)af_dtype_bytes(af_tensor_layout_type(lay), (uint64_t)lay->cols, &bytes);
    for (int64_t r = from; r < from + n; r++) {
        uint8_t *to = out + (uint64_t)(r - from) * bytes;
        if (lay->turned)
            af_coded_weight_mxfp4_row(lay->coded, af_disk_out_row(lay->turned, r), to);
        else if (lay->coded)
            af_coded_weight_mxfp4_row(&lay->coded[r / lay->part_rows], r % lay->part_rows, to);
        else
            memcpy(to, af_tensor_layout_row(lay, r), bytes);
        if (forget_now(lay, r, 1))
            af_model_reader_forget(ld->reader, i);
    }
}

static void convert_rows(const af_loader *ld, int i, int64_t from, int64_t count, void *out,
                         af_dtype to, float *tmp)
{
    const af_tensor_layout *lay = layout_of(ld, i);
    const int64_t step = chunk_rows(lay);
    const uint64_t size = (uint64_t)af_dtype_get(to)->bytes;
    for (int64_t r = from; r < from + count; r += step) {
        const int64_t n = AF_MIN(step, from + count - r);
        read_rows(ld, i, r, n, tmp);
        af_convert((uint8_t *)out + (uint64_t)((r - from) * lay->cols) * size, to, tmp,
                   AF_DTYPE_F32, (uint64_t)(n * lay->cols));
        if (forget_now(lay, r, n))
            af_model_reader_forget(ld->reader, i);
    }
}

/* Rows in the type of the graph's tensor; tmp: chunk_rows of floats. */
static void put_rows(const af_loader *ld, int i, int64_t from, int64_t n, uint8_t *out,
                     af_dtype type, float *tmp)
{
    const af_tensor_layout *lay = layout_of(ld, i);
    if (!is_fresh(ld, i) && !changed_by(ld, i) && !lay->packed && !lay->mean && !ld->quantise[i] &&
        af_tensor_layout_has_values(lay) && !lay->order.columns &&
        type == af_tensor_layout_type(lay) &&
        (lay->coded ? type == AF_DTYPE_MXFP4 : !lay->turned && !lay->row_halves && !lay->kv_split))
        copy_rows(ld, i, from, n, out);
    else
        convert_rows(ld, i, from, n, out, type, tmp);
}

/* A tensor that ranks split: the rows of this rank's piece, a few at a time. */
static af_status write_split(af_loader *ld, af_model_leaves *l, int i, float *tmp, af_error *err)
{
    const af_tensor_layout *lay = layout_of(ld, i);
    af_tensor *t = l->tensor[i];
    const int64_t step = chunk_rows(lay);
    uint64_t row = 0, from, to;
    af_status st = AF_OK;
    (void)af_dtype_bytes(af_tensor_dtype(t), (uint64_t)lay->cols, &row);
    af_tensor_piece(t, &from, &to);
    uint8_t *chunk = af_calloc((uint64_t)step, row);
    if (!chunk)
        return af_fail_nomem(err, "a tensor to convert", (uint64_t)step * row);
    for (int64_t r = (int64_t)(from / row); (uint64_t)r * row < to && st == AF_OK; r += step) {
        const int64_t n = AF_MIN(step, lay->rows - r);
        put_rows(ld, i, r, n, chunk, af_tensor_dtype(t), tmp);
        st = af_tensor_write_part(l->graph, t, (uint64_t)r * row, chunk, (uint64_t)n * row, err);
    }
    free(chunk);
    return st;
}

/* On the CPU in place: a copy of the largest tensor would be more than the plan has. */
static af_status write_converted(af_loader *ld, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_tensor_layout *lay = layout_of(ld, i);
    af_tensor *t = l->tensor[i];
    const uint64_t bytes = af_tensor_bytes(t);
    const bool split = af_tensor_cuts(t) != NULL;
    float *tmp = af_calloc((uint64_t)(chunk_rows(lay) * lay->cols), sizeof *tmp);
    uint8_t *host = af_tensor_host_view(t), *own = host || split ? NULL : af_calloc(bytes, 1);
    uint8_t *out = host ? host : own;
    if (!tmp || (!out && !split))
        AF_TRY(af_fail_nomem(err, "a tensor to convert", bytes));
    AF_TRY(make_codes(ld, i, err));
    if (split)
        AF_TRY(write_split(ld, l, i, tmp, err));
    else
        put_rows(ld, i, 0, lay->rows, out, af_tensor_dtype(t), tmp);
    if (own)
        AF_TRY(af_tensor_write(l->graph, t, out, bytes, err));
    if (ld->quantise[i])
        af_bnb_weight_clear(&ld->made[i]); /* the dequantised copy stays; codes can be made again */
    af_model_reader_forget(ld->reader, i);
done:
    free(tmp);
    free(own);
    return st;
}

/* Quantised by the device, from rows in bf16. */
static af_status write_nf4(af_loader *ld, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_tensor_layout *lay = layout_of(ld, i);
    const bool direct = !changed_by(ld, i) && !lay->coded && !lay->turned && lay->parts == 1 &&
                        af_tensor_layout_is_plain(lay) &&
                        af_tensor_layout_type(lay) == AF_DTYPE_BF16;
    float *tmp = NULL;
    uint16_t *rows = NULL;
    if (!direct) {
        tmp = af_calloc((uint64_t)(chunk_rows(lay) * lay->cols), sizeof *tmp);
        rows = af_calloc((uint64_t)(lay->rows * lay->cols), sizeof *rows);
        if (!tmp || !rows)
            AF_TRY(
                af_fail_nomem(err, "a tensor to quantise", (uint64_t)(lay->rows * lay->cols) * 2));
        convert_rows(ld, i, 0, lay->rows, rows, AF_DTYPE_BF16, tmp);
    }
    AF_TRY(af_weight_write_nf4(l->graph, l->tensor[i], direct ? lay->part[0]->data : rows, err));
    af_model_reader_forget(ld->reader, i);
done:
    free(tmp);
    free(rows);
    return st;
}

static af_status write_codes(af_loader *ld, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(make_codes(ld, i, err));
    const af_bnb_weight *b = ld->quantise[i] ? &ld->made[i] : &layout_of(ld, i)->bnb;
    af_quant *q = af_weight_quant(l->tensor[i]);
    q->offset = b->offset; /* not known when it was bound, if it was quantised since */
    AF_TRY(af_tensor_write(l->graph, l->tensor[i], b->codes, af_tensor_bytes(l->tensor[i]), err));
    AF_TRY(af_tensor_write(l->graph, q->absmax, b->absmax, af_tensor_bytes(q->absmax), err));
    if (q->nested)
        AF_TRY(af_tensor_write(l->graph, q->nested, b->nested, af_tensor_bytes(q->nested), err));
    if (ld->quantise[i])
        af_bnb_weight_clear(&ld->made[i]); /* the device has them */
    af_model_reader_forget(ld->reader, i);
done:
    return st;
}

/* A row of a table with trained rows (adapter_tokens.c): its values and no mark, or none and the
 * mark of its place among the trained ones. */
static void mark_row(float *row, int64_t cols, const af_token_rows *tokens, int64_t id)
{
    for (int i = 0; i < tokens->count; i++)
        if (tokens->index[i] == id) {
            memset(row, 0, (size_t)cols * sizeof *row);
            row[cols + i] = 1;
        }
}

static af_status write_wide(af_loader *ld, af_model_leaves *l, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_tensor_layout *lay = layout_of(ld, i);
    af_tensor *t = l->tensor[i];
    const af_token_rows *tokens = &l->adapter->tokens[af_adapter_token_table(l->adapter, i)];
    const int64_t wide = af_tensor_dim(t, 1);
    const uint64_t bytes = af_tensor_bytes(t);
    const uint64_t row_bytes = (uint64_t)wide * (uint64_t)af_dtype_get(af_tensor_dtype(t))->bytes;
    float *row = af_calloc((uint64_t)wide, sizeof *row);
    uint8_t *host = af_tensor_host_view(t), *own = host ? NULL : af_calloc(bytes, 1);
    uint8_t *out = host ? host : own;
    if (!row || !out)
        AF_TRY(af_fail_nomem(err, "a table of tokens", bytes));
    for (int64_t r = 0; r < lay->rows; r++) {
        memset(row + lay->cols, 0, (size_t)(wide - lay->cols) * sizeof *row);
        read_rows(ld, i, r, 1, row);
        mark_row(row, lay->cols, tokens, r);
        af_convert(out + (uint64_t)r * row_bytes, af_tensor_dtype(t), row, AF_DTYPE_F32,
                   (uint64_t)wide);
        if (forget_now(lay, r, 1))
            af_model_reader_forget(ld->reader, i);
    }
    if (own)
        AF_TRY(af_tensor_write(l->graph, t, out, bytes, err));
    af_model_reader_forget(ld->reader, i);
done:
    free(row);
    free(own);
    return st;
}

af_status af_loader_write(af_loader *ld, af_model_leaves *l, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < ld->spec->tensors; i++) {
        af_tensor *t = l->tensor[i];
        if (af_weight_is_bound(t) || !is_ours(l, i))
            continue;
        if (af_adapter_token_table(l->adapter, i) >= 0) {
            AF_TRY(write_wide(ld, l, i, err));
            continue;
        }
        if (ld->quantise[i] && !ld->made[i].codes && !ld->o.load_in_8bit &&
            af_graph_can_write_nf4(l->graph) && (!af_tensor_cuts(t) || af_weight_quant(t))) {
            AF_TRY(write_nf4(ld, l, i, err));
        } else if (af_weight_quant(t)) {
            AF_TRY(write_codes(ld, l, i, err));
        } else if (af_tensor_dtype(t) == ld->dtype[i] && is_direct(ld, i) &&
                   !af_tensor_host_view(t)) {
            const af_stored *w = layout_of(ld, i)->part[0];
            AF_TRY(af_tensor_write(l->graph, t, w->data, w->bytes, err));
            af_weights_forget(ld->reader->weights, w);
        } else {
            AF_TRY(write_converted(ld, l, i, err));
        }
    }
done:
    return st;
}

uint64_t af_loader_window(const af_loader *l)
{
    const uint64_t values = AF_MIN((uint64_t)FORGET_VALUES, (uint64_t)l->spec->params);
    return values * af_dtype_get(af_loader_config(l)->dtype)->bytes;
}

static uint64_t items_of(const af_gguf *g, const char *key)
{
    const af_gguf_kv *kv = af_gguf_find_kv(g, key);
    return kv ? kv->count : 0;
}

uint64_t af_loader_text_bytes(const af_loader *l)
{
    enum { TOKEN_BYTES = 208, MERGE_BYTES = 360 }; /* a JSON number with its name; a list of two */
    const af_gguf *g = af_weights_gguf(l->reader->weights);
    return !g ? 0
              : items_of(g, "tokenizer.ggml.tokens") * TOKEN_BYTES +
                    items_of(g, "tokenizer.ggml.merges") * MERGE_BYTES;
}
