/* reader_match.c - matches every tensor of a model's spec with what is stored; see model_reader.h.
 * Nothing large is touched here: names, shapes and types only. */
#include "model/tensor_layout.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/word.h"
#include "format/config/config_rope.h"
#include "format/weights/bnb_state.h"
#include "model/arch/arch_disk.h"
#include "model/arch/arch_list.h"
#include "tensor/codec.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>

enum { NAME_MAX_BYTES = 512, LISTED_MAX = 12 };
enum { SCORE_STREAM = 0x5c0e }; /* of the random numbers */

/* Every mismatch, collected into one message. */
typedef struct faults {
    af_buf missing, surplus, shape;
    int n_missing, n_surplus, n_shape;
} faults;

AF_PRINTF(3, 4)
static void add_fault(af_buf *b, int *n, const char *fmt, ...)
{
    char text[NAME_MAX_BYTES * 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if ((*n)++ < LISTED_MAX)
        af_buf_printf(b, "%s%s", *n > 1 ? ", " : "", text);
}

static void finish_list(af_buf *out, const char *what, const af_buf *list, int n)
{
    if (n == 0)
        return;
    af_buf_printf(out, "%s%d %s (%s", out->len ? "; " : "", n, what, list->data ? list->data : "");
    if (n > LISTED_MAX)
        af_buf_printf(out, " and %d more", n - LISTED_MAX);
    af_buf_str(out, ")");
}

static af_status report_faults(const af_model_reader *in, faults *f, af_error *err)
{
    af_status st = AF_OK;
    af_buf text = {0};
    finish_list(&text, "missing", &f->missing, f->n_missing);
    finish_list(&text, "of another shape", &f->shape, f->n_shape);
    finish_list(&text, "not of this model", &f->surplus, f->n_surplus);
    if (text.len)
        st = af_fail(err, AF_EFORMAT, "%s: tensors do not fit the config: %s", in->path, text.data);
    af_buf_clear(&text);
    af_buf_clear(&f->missing);
    af_buf_clear(&f->surplus);
    af_buf_clear(&f->shape);
    return st;
}

/* ---- shapes ---- */

/* `loose`: GGUF files may have more axes of 1 before the others. */
static bool same_dims(const af_stored *w, const int64_t *dim, int ndim, bool loose)
{
    int more = 0;
    while (loose && w->ndim - more > ndim && w->dim[more] == 1)
        more++;
    if (w->ndim - more != ndim)
        return false;
    for (int i = 0; i < ndim; i++)
        if (w->dim[more + i] != dim[i])
            return false;
    return true;
}

static void shape_text(char *out, size_t size, const int64_t *dim, int ndim)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRId64, i ? "x" : "", dim[i]);
}

/* Finds a stored tensor, NULL after noting that it is missing; one of another shape is noted and
 * still returned, so that it does not count as left over. */
static const af_stored *find(const af_model_reader *in, faults *f, const char *name,
                             const int64_t *dim, int ndim)
{
    const af_stored *w = af_weights_find(in->weights, name);
    if (!w) {
        add_fault(&f->missing, &f->n_missing, "%s", name);
        return NULL;
    }
    if (!same_dims(w, dim, ndim, af_weights_gguf(in->weights) != NULL)) {
        char has[128], want[128];
        shape_text(has, sizeof has, w->dim, w->ndim);
        shape_text(want, sizeof want, dim, ndim);
        add_fault(&f->shape, &f->n_shape, "%s is %s, not %s", name, has, want);
    }
    return w;
}

/* ---- layouts ---- */

static af_status take_parts(af_model_reader *in, af_tensor_layout *e, int n, af_error *err)
{
    e->parts = n;
    e->part = af_arena_take(&in->arena, (uint64_t)n * sizeof *e->part);
    return e->part ? AF_OK : af_fail_nomem(err, "the list of tensors", (uint64_t)n * 8);
}

/* Keys and values of latent attention apart, as newer files have them. */
static af_status match_kv_split(af_model_reader *in, faults *f, int i, af_error *err)
{
    const af_tensor_spec *t = &in->spec.tensor[i];
    const af_latent_keys *k = &in->spec.latent;
    af_tensor_layout *e = &in->layout[i];
    const af_status st = take_parts(in, e, 2, err);
    for (int p = 0; p < 2 && st == AF_OK; p++) {
        const int64_t dim[3] = {in->spec.layer[t->layer].heads, p ? k->v_dim : k->kv_lora_rank,
                                p ? k->kv_lora_rank : k->qk_nope_dim};
        char name[NAME_MAX_BYTES];
        snprintf(name, sizeof name, "blk.%d.attn_%s_b.weight", t->layer, p ? "v" : "k");
        e->part[p] = find(in, f, name, dim, 3);
    }
    e->kv_split = k;
    return st;
}

/* One of the matrices of a tensor: a view of its own. */
static af_status match_stack(af_model_reader *in, faults *f, int i, int count, int index,
                             af_error *err)
{
    const af_tensor_spec *t = &in->spec.tensor[i];
    const int64_t dim[3] = {count, t->dim[0], t->dim[1]};
    const int missing = f->n_missing, shape = f->n_shape;
    const af_stored *all = find(in, f, t->gguf, dim, 3);
    af_stored *one = af_arena_take(&in->arena, sizeof *one);
    if (!one)
        return af_fail_nomem(err, t->gguf, sizeof *one);
    if (f->n_missing > missing || f->n_shape > shape)
        return AF_OK; /* noted */
    *one = *all;
    one->ndim = 2;
    one->dim[0] = dim[1];
    one->dim[1] = dim[2];
    one->dim[2] = 1;
    one->bytes = all->bytes / (uint64_t)count;
    one->data = (const uint8_t *)all->data + (uint64_t)index * one->bytes;
    in->layout[i].part[0] = one;
    return AF_OK;
}

/* Older files of qwen3_next have the projection as it is here. */
static bool is_uncut(const af_model_reader *in, const af_tensor_spec *t)
{
    return t->slot == AF_SLOT_IN && af_weights_find(in->weights, t->gguf);
}

/* A tensor of its own. */
static void match_alone(af_model_reader *in, faults *f, int i)
{
    const af_tensor_spec *t = &in->spec.tensor[i];
    af_tensor_layout *e = &in->layout[i];
    int64_t dim[4];
    af_reader_vocab_stored_dim(in, i, dim);
    const bool squeezed = af_slot_is_row(t);
    const bool conv = t->slot == AF_SLOT_CONV; /* [C][1][K] is a matrix there */
    const int64_t columns = af_gguf_vector_columns(&in->spec, t);
    const af_stored *table =
        t->slot == AF_SLOT_PER_LAYER_EMBED ? af_weights_find(in->weights, t->gguf) : NULL;
    if (table && table->ndim == 2 && table->dim[0] == in->spec.vocab)
        dim[0] = AF_MAX(dim[0], in->spec.vocab); /* gemma3n: filled up there */
    e->parts = 1;
    dim[1] = conv ? dim[2] : dim[1];
    if (columns) { /* a matrix there */
        dim[0] /= columns;
        dim[1] = columns;
    }
    e->part[0] = find(in, f, t->gguf, dim + squeezed, t->ndim - (squeezed || conv) + (columns > 0));
}

static af_status match_gguf(af_model_reader *in, faults *f, int i, af_error *err)
{
    const af_tensor_spec *t = &in->spec.tensor[i];
    const af_arch *arch = in->spec.arch;
    af_tensor_layout *e = &in->layout[i];
    const af_gguf_parts cut = af_gguf_parts_of(&in->spec, t);
    if (af_slot_is_xielu(t->slot))
        return af_reader_match_xielu(in, i, err);
    af_status st = take_parts(in, e, cut.count ? cut.count : 1, err);
    int index;
    const int stack = af_gguf_stack_of(&in->spec, t, &index);
    if (st != AF_OK)
        return st;
    if (stack)
        return match_stack(in, f, i, stack, index, err);
    if (cut.count && !is_uncut(in, t)) {
        for (int p = 0; p < cut.count; p++) {
            int64_t dim[3];
            char name[NAME_MAX_BYTES];
            af_gguf_part_dims(&cut, p, t, dim);
            snprintf(name, sizeof name, "blk.%d.%s", t->layer, cut.name[p]);
            e->part[p] = find(in, f, name, dim, t->ndim);
        }
        e->cut = cut;
    } else if (t->slot == AF_SLOT_EXPERTS_GATE_UP_BIAS) { /* halves of a row */
        const int64_t dim[2] = {t->dim[0], t->dim[1] / 2};
        char name[NAME_MAX_BYTES];
        st = take_parts(in, e, 2, err);
        for (int p = 0; p < 2 && st == AF_OK; p++) {
            snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.bias", t->layer, p ? "up" : "gate");
            e->part[p] = find(in, f, name, dim, 2);
        }
        e->row_halves = true;
        return st;
    } else if (t->slot == AF_SLOT_KV_B && !af_weights_find(in->weights, t->gguf)) {
        return match_kv_split(in, f, i, err);
    } else {
        match_alone(in, f, i);
    }
    const bool norm = t->slot != AF_SLOT_STATE_NORM && strstr(t->gguf, "norm.weight") != NULL;
    e->add = norm && t->ndim == 1 && arch->gguf_norm_one ? -1.0f : 0.0f;
    e->exp = af_gguf_exp_of(&in->spec, t);
    e->order = af_gguf_order_of(&in->spec, t);
    e->fold = af_gguf_fold_of(&in->spec, t);
    if (t->ndim == 1 && e->order.keys) {
        e->rows = t->dim[0];
        e->cols = 1;
    }
    return AF_OK;
}

static af_status check_packed(const af_bnb_weight *b, const int64_t dim[2], af_error *err)
{
    if (b->ndim == 2 && b->dim[0] == dim[0] && b->dim[1] == dim[1])
        return AF_OK;
    return af_fail(err, AF_EFORMAT,
                   "'%s': the shape in its quant state is not %" PRId64 "x%" PRId64, b->name,
                   dim[0], dim[1]);
}

/* Codes (coded_weight.h) under this name, as part p of the tensor. */
static af_status match_coded(af_model_reader *in, af_tensor_layout *e, int p, int parts,
                             const char *name, const int64_t *dim, int ndim, bool *found,
                             af_error *err)
{
    af_coded_weight c;
    char *kept;
    const af_status st = af_coded_weight_read_part(&c, found, in->weights, &in->config, name, err);
    if (st != AF_OK || !*found)
        return st;
    if (!e->coded)
        e->coded = af_arena_take(&in->arena, (uint64_t)parts * sizeof *e->coded);
    if (!e->coded || !(kept = af_arena_strdup(&in->arena, name)))
        return af_fail_nomem(err, "the list of tensors", (uint64_t)parts * sizeof c);
    c.name = kept;
    bool same = c.ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = c.dim[i] == dim[i];
    if (!same) {
        char has[128], want[128];
        shape_text(has, sizeof has, c.dim, c.ndim);
        shape_text(want, sizeof want, dim, ndim);
        return af_fail(err, AF_EFORMAT, "'%s': its codes make %s, not %s", name, has, want);
    }
    e->coded[p] = c;
    e->part[p] = c.codes;
    return AF_OK;
}

/* What tensor i is called in the folder. */
static void folder_name(const af_model_reader *in, int i, char name[NAME_MAX_BYTES])
{
    const af_tensor_spec *t = &in->spec.tensor[i];
    char ours[NAME_MAX_BYTES];
    af_model_reader_disk_name(in, t->name, name, NAME_MAX_BYTES);
    if (t->slot == AF_SLOT_ROUTER && in->spec.arch->router &&
        !af_weights_find(in->weights, name)) { /* folders of older versions have their own name */
        snprintf(ours, sizeof ours, "model.layers.%d.%s", t->layer, in->spec.arch->router);
        af_model_reader_disk_name(in, ours, name, NAME_MAX_BYTES);
    }
    if (t->slot == AF_SLOT_EMBED && in->head_only)
        af_model_reader_disk_name(in, af_slot_hf_name(in->spec.arch, AF_SLOT_HEAD), name,
                                  NAME_MAX_BYTES);
}

/* The pieces of tensor i, which the folder has one by one. */
static af_status match_pieces(af_model_reader *in, faults *f, int i, af_error *err)
{
    af_tensor_layout *e = &in->layout[i];
    char name[NAME_MAX_BYTES], ours[NAME_MAX_BYTES];
    int ndim;
    bool coded = false;
    af_status st = AF_OK;
    for (int p = 0; p < e->parts; p++) {
        int64_t dim[AF_DISK_DIMS], from;
        af_disk_piece(&in->spec, i, p, ours, sizeof ours, dim, &ndim, &from);
        af_model_reader_disk_name(in, ours, name, sizeof name);
        AF_TRY(match_coded(in, e, p, e->parts, name, dim, ndim, &coded, err));
        if (coded && af_disk_is_flat(&in->spec, i))
            return af_fail(err, AF_EUNSUPPORTED, "'%s': codes of such experts are not supported",
                           name);
        if (!coded && e->coded)
            return af_fail(err, AF_EUNSUPPORTED, "'%s' is stored plain, but '%s' as codes", name,
                           e->coded[0].name);
        if (!coded)
            e->part[p] = find(in, f, name, dim, ndim);
    }
done:
    return st;
}

static af_status match_folder(af_model_reader *in, faults *f, int i, af_error *err)
{
    const af_tensor_spec *t = &in->spec.tensor[i];
    af_tensor_layout *e = &in->layout[i];
    char name[NAME_MAX_BYTES], ours[NAME_MAX_BYTES];
    int64_t stored[4];
    af_status st = AF_OK;
    int ndim = t->ndim;
    const bool flat = af_disk_is_flat(&in->spec, i);
    af_reader_vocab_stored_dim(in, i, stored);
    if (af_disk_is_turned(&in->spec, i) && !flat) {
        int64_t from;
        e->turned = t;
        af_disk_piece(&in->spec, i, 0, ours, sizeof ours, stored, &ndim, &from);
    }
    if (af_disk_has_axes(&in->spec, i)) {
        int64_t from;
        af_disk_piece(&in->spec, i, 0, ours, sizeof ours, stored, &ndim, &from);
    }
    folder_name(in, i, name);
    if (t->ndim == 2 && af_quant_is_bnb(in->config.quant.method)) {
        AF_TRY(af_bnb_weight_read(&e->bnb, &e->packed, in->weights, name, in->config.dtype, err));
        if (e->packed) { /* a Conv1D is turned back before it is packed */
            const bool turned = e->turned != NULL;
            e->turned = NULL;
            return check_packed(&e->bnb, turned ? t->dim : stored, err);
        }
    }
    /* Experts are one tensor each, or all in one. */
    const bool whole = !flat && ((t->ndim < 3 && !af_disk_is_apart(&in->spec, i)) ||
                                 af_weights_find(in->weights, name) != NULL);
    if (flat)
        e->cut = af_gguf_parts_of(&in->spec, t);
    if (!whole && af_disk_is_conv(&in->spec, i))
        e->uneven = in->spec.conv_rows;
    bool coded = false;
    AF_TRY(take_parts(in, e, whole ? 1 : af_disk_count(&in->spec, i), err));
    if (whole) {
        AF_TRY(match_coded(in, e, 0, 1, name, stored, ndim, &coded, err));
        if (coded && e->turned && t->ndim == 2)
            return af_fail(err, AF_EUNSUPPORTED, "'%s': codes of a Conv1D are not supported", name);
        if (!coded)
            e->part[0] = find(in, f, name, stored, t->scalar ? 0 : ndim);
        return AF_OK;
    }
    st = match_pieces(in, f, i, err);
done:
    return st;
}

/* ---- the head of a model that classifies ---- */

/* A model of tokens has none: first values as transformers draws them. */
static af_status new_score(af_model_reader *in, int i, af_error *err)
{
    const af_tensor_spec *t = &in->spec.tensor[i];
    af_tensor_layout *e = &in->layout[i];
    const uint64_t n = (uint64_t)(t->dim[0] * t->dim[1]);
    af_stored *made = af_arena_take(&in->arena, sizeof *made);
    float *values = af_arena_take(&in->arena, n * sizeof *values);
    const af_stored **part = af_arena_take(&in->arena, sizeof *part);
    const double spread = in->config.initializer_range > 0 ? in->config.initializer_range : 0.02;
    if (!made || !values || !part)
        return af_fail_nomem(err, "the score head", n * sizeof *values);
    for (uint64_t k = 0; k < n; k++)
        values[k] = (float)(spread * af_rng_normal(in->label_seed, SCORE_STREAM, k));
    *made = (af_stored){.name = t->name,
                        .dtype = AF_DTYPE_F32,
                        .ndim = 2,
                        .dim = {t->dim[0], t->dim[1]},
                        .data = values,
                        .bytes = n * sizeof *values};
    part[0] = made;
    *e = (af_tensor_layout){
        .rows = t->dim[0], .cols = t->dim[1], .part = part, .parts = 1, .part_rows = t->dim[0]};
    return AF_OK;
}

static af_status match(af_model_reader *in, faults *f, int i, af_error *err)
{
    const af_tensor_spec *t = &in->spec.tensor[i];
    af_tensor_layout *e = &in->layout[i];
    af_status st = AF_OK;
    if (t->slot == AF_SLOT_HEAD && in->head_copied) { /* listed last, so the embedding is known */
        *e = in->layout[in->spec.embed];
        return AF_OK;
    }
    if (t->slot == AF_SLOT_SCORE && in->new_labels)
        return new_score(in, i, err);
    e->cols = t->dim[t->ndim - 1];
    e->rows = t->ndim == 1 ? 1 : t->ndim == 2 ? t->dim[0] : t->dim[0] * t->dim[1];
    AF_TRY(af_weights_gguf(in->weights) ? match_gguf(in, f, i, err) : match_folder(in, f, i, err));
    if (af_reader_vocab_own(in, i)) {
        AF_TRY(take_parts(in, e, 1, err));
        e->packed = false;
        e->part[0] = af_reader_vocab_own(in, i);
    }
    e->part_rows = e->parts ? e->rows / e->parts : e->rows;
    for (int p = 0; p < e->parts && !e->coded; p++) {
        const af_stored *w = e->part[p];
        if (w && w->dtype != e->part[0]->dtype && !e->kv_split)
            return af_fail(err, AF_EUNSUPPORTED, "%s: tensor '%s' is %s, but its neighbour is %s",
                           in->path, w->name, af_dtype_name(w->dtype),
                           af_dtype_name(e->part[0]->dtype));
        if (w && !af_codec_can_decode(w->dtype))
            return af_fail(err, AF_EUNSUPPORTED,
                           "%s: tensor '%s' has type %s, which this build "
                           "cannot read",
                           in->path, w->name, af_dtype_name(w->dtype));
        if (w && !af_dtype_is_block(w->dtype) && !af_dtype_is_float(w->dtype) &&
            w->dtype != AF_DTYPE_E4M3 && w->dtype != AF_DTYPE_E5M2)
            return af_fail(err, AF_EUNSUPPORTED,
                           "%s: tensor '%s' has type %s, but weights are floating point or "
                           "quantised in a known way",
                           in->path, w->name, af_dtype_name(w->dtype));
        if (!w)
            break; /* noted already */
    }
done:
    return st;
}

/* ---- what is left over ---- */

/* Stored, not ours, and known to be harmless. */
static bool may_be_unused(const af_model_reader *in, const char *name)
{
    const char *head = af_slot_hf_name(in->spec.arch, AF_SLOT_HEAD);
    if (in->vocab_weights &&
        (af_ends_with(name, af_slot_hf_name(in->spec.arch, AF_SLOT_EMBED)) ||
         af_ends_with(name, "embed_tokens.weight") || af_ends_with(name, head) ||
         strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output.weight") == 0))
        return true; /* an adapter has its own */
    if (in->new_labels && (strncmp(name, head, strlen(head) - strlen("weight")) == 0 ||
                           strcmp(name, "output.weight") == 0))
        return true; /* it predicts tokens */
    if (af_weights_gguf(in->weights))
        return strncmp(name, "rope_", 5) == 0 || /* later blocks predict further tokens */
               (strncmp(name, "blk.", 4) == 0 && strtol(name + 4, NULL, 10) >= in->spec.layers) ||
               af_reader_is_unread_kv(&in->spec, name);
    if (af_ends_with(name, "rotary_emb.inv_freq") ||
        af_ends_with(name, "rotary_pos_emb.inv_freq") || af_ends_with(name, ".masked_bias") ||
        af_ends_with(name, "embed_positions.weights") || af_reader_is_shared_copy(in, name))
        return true;
    if (in->spec.arch->stem &&
        (af_ends_with(name, ".attention.bias") || af_ends_with(name, ".attn.bias") ||
         af_ends_with(name, ".attn.causal_mask")))
        return true; /* a mask of old files */
    if ((in->spec.tied || in->head_copied) && af_ends_with(name, head))
        return true; /* the same values, or unused ones */
    return af_model_reader_keeps(in, name) || af_reader_is_unread_kv(&in->spec, name);
}

static int by_pointer(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    return x < y ? -1 : x > y;
}

static af_status find_surplus(const af_model_reader *in, faults *f, af_error *err)
{
    uint64_t n = 0, k = 0;
    for (int i = 0; i < in->spec.tensors; i++)
        n += (uint64_t)AF_MAX(in->layout[i].parts, 1);
    const char **used = af_calloc(n, sizeof *used);
    if (!used)
        return af_fail_nomem(err, "the list of tensors", n * sizeof *used);
    for (int i = 0; i < in->spec.tensors; i++) {
        const af_tensor_layout *e = &in->layout[i];
        for (int p = 0; p < e->parts; p++)
            if (e->part[p])
                used[k++] = e->part[p]->name;
        if (e->packed)
            used[k++] = e->bnb.name;
    }
    qsort(used, k, sizeof *used, by_pointer);
    const bool bnb = af_quant_is_bnb(in->config.quant.method);
    char weight[NAME_MAX_BYTES];
    for (int i = 0; i < af_weights_count(in->weights); i++) {
        const char *name = af_weights_at(in->weights, i)->name;
        if (!bsearch(&name, used, k, sizeof *used, by_pointer) && !may_be_unused(in, name) &&
            !(bnb && af_bnb_is_part(in->weights, name)) &&
            !(af_coded_part(in->weights, &in->config, name, weight, sizeof weight) && !weight[0]))
            add_fault(&f->surplus, &f->n_surplus, "%s", name);
    }
    free(used);
    return AF_OK;
}

static void report(const af_model_reader *in)
{
    int64_t count[AF_DTYPE_COUNT] = {0};
    af_buf text = {0};
    for (int i = 0; i < in->spec.tensors; i++) {
        const af_tensor_layout *e = &in->layout[i];
        count[e->packed ? e->bnb.type : af_tensor_layout_type(e)]++;
    }
    for (int t = 0; t < AF_DTYPE_COUNT; t++)
        if (count[t])
            af_buf_printf(&text, "%s%" PRId64 " tensor%s %s", text.len ? ", " : "", count[t],
                          count[t] == 1 ? "" : "s", af_dtype_name((af_dtype)t));
    af_log_write(AF_LOG_INFO, "%s: %s, %.1fM parameters: %s", in->path, in->config.model_type,
                 (double)in->spec.params / 1e6, text.data ? text.data : "");
    af_buf_clear(&text);
}

static af_status match_all(af_model_reader *in, af_error *err)
{
    const uint64_t n = (uint64_t)in->spec.tensors;
    faults f = {0};
    af_status st = AF_OK;
    in->layout = af_arena_take(&in->arena, n * sizeof *in->layout);
    if (!in->layout)
        return af_fail_nomem(err, "the list of tensors", n * sizeof *in->layout);
    for (int i = 0; i < in->spec.tensors && st == AF_OK; i++)
        st = match(in, &f, i, err);
    if (st == AF_OK)
        st = find_surplus(in, &f, err);
    const af_status bad = report_faults(in, &f, st == AF_OK ? err : NULL);
    st = st == AF_OK ? bad : st;
    for (int i = 0; i < in->spec.tensors && st == AF_OK; i++)
        st = af_reader_vocab_grow(in, i, err);
    return st;
}

/* A model of tokens becomes one of labels; one that has labels keeps its own. */
static af_status set_labels(af_model_reader *in, af_error *err)
{
    if (!in->labels || in->new_labels)
        return AF_OK;
    if (in->config.labels && in->config.labels != in->labels)
        return af_fail_subject(err, AF_EUSAGE, "labels",
                               "'%s' has %" PRId64 " labels, not %" PRId64, in->path,
                               in->config.labels, in->labels);
    in->new_labels = in->config.labels == 0;
    in->config.labels = in->labels;
    return AF_OK;
}

af_status af_model_reader_match(af_model_reader *in, af_error *err)
{
    af_status st = AF_OK;
    if (in->matched)
        return AF_OK;
    if (!in->has_config)
        AF_TRY(af_model_config(&in->config, in->path, err));
    in->has_config = true;
    AF_TRY(af_rope_change_config(&in->config, in->rope, err));
    in->config.quant.trained = in->train_base && in->config.quant.online;
    if (!in->stored_vocab)
        af_reader_vocab_set(in);
    AF_TRY(set_labels(in, err));
    in->head_copied = !in->config.labels && in->untie && in->config.tie_word_embeddings;
    AF_TRY(af_reader_make_spec(in, in->config.tie_word_embeddings && !in->head_copied, err));
    AF_TRY(af_reader_vocab_check(in, err));
    if (!in->weights)
        AF_TRY(af_weights_open(&in->weights, in->path, err));
    AF_TRY(af_reader_find_prefix(in, err));
    AF_TRY(af_reader_match_head(in, err));
    AF_TRY(af_reader_find_choice(in, err));
    af_reader_find_experts(in);
    AF_TRY(af_reader_find_conv(in, err));
    AF_TRY(af_reader_check_decays(in, err));
    AF_TRY(match_all(in, err));
    in->matched = true;
    report(in);
done:
    if (st != AF_OK)
        af_model_spec_clear(&in->spec);
    return st;
}

const af_model_spec *af_model_reader_spec(const af_model_reader *in)
{
    assert(in->matched);
    return in->resized ? &in->new_vocab : &in->spec;
}
