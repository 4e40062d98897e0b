/* gguf_list.c - which tensors a model has in GGUF: names, shapes, types, and which tensors of the
 * spec their values come from. */
#include "convert/gguf/gguf_export.h"
#include "convert/gguf/gguf_rope.h"

static gguf_target *add(gguf_export *j, const char *name, int ndim, int64_t a, int64_t b, int64_t c,
                        int layer)
{
    gguf_target *t = &j->list[j->count++];
    *t = (gguf_target){.ndim = ndim, .layer = layer, .dim = {a, b, c}, .spec = -1, .part = -1};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->cols = t->dim[ndim - 1];
    t->rows = ndim == 1 ? 1 : ndim == 2 ? a : a * b;
    t->vector = ndim == 1;
    t->dtype = af_mix_type(j->o->mix, &j->mix, name, ndim, t->cols, layer, &t->fell_back);
    return t;
}

/* [X][2F] as [X][F] of gates and of ups. */
static void list_gate_up_bias(gguf_export *j, int i)
{
    const af_tensor_spec *s = &j->spec->tensor[i];
    const int64_t X = s->dim[0], F = s->dim[1] / 2;
    float *all = af_arena_take(&j->arena, (uint64_t)(X * F) * 4 * sizeof *all), *both;
    if (!all) {
        j->no_memory = true;
        return;
    }
    both = all + 2 * X * F;
    af_model_reader_merged_rows(j->in, i, 0, X, both);
    for (int part = 0; part < 2; part++, all += X * F) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.bias", s->layer, part ? "up" : "gate");
        gguf_target *t = add(j, name, 2, X, F, 1, s->layer);
        t->spec = i;
        t->values = all;
        t->dtype = AF_DTYPE_F32;
        for (int64_t x = 0; x < X; x++)
            memcpy(all + x * F, both + (2 * x + part) * F, (size_t)F * sizeof *all);
    }
}

/* kv_b_proj as keys, transposed per head, and values: llama.cpp multiplies queries with the keys
 * first. A file that has it whole has the keys of that layout, too, and stays so. */
static void list_kv_split(gguf_export *j, int i)
{
    const af_tensor_spec *s = &j->spec->tensor[i];
    const af_latent_keys *k = &j->spec->latent;
    const int64_t heads = j->spec->layer[s->layer].heads, R = k->kv_lora_rank;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", s->layer);
    gguf_target *t = add(j, name, 3, heads, R, k->qk_nope_dim, s->layer);
    t->spec = i;
    t->keys = true;
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", s->layer);
    t = add(j, name, 3, heads, k->v_dim, R, s->layer);
    t->spec = i;
    t->latents = true;
}

/* Layers of gemma3n that use keys and values of others have their own in llama.cpp, too, which
 * nothing reads: zeros. */
static void list_unread_kv(gguf_export *j)
{
    const af_model_spec *s = j->spec;
    static const char *const names[] = {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"};
    const int64_t E = s->head_dim, rows = s->kv_heads * E;
    float *zeros = s->altup.streams
                       ? af_arena_take(&j->arena, (uint64_t)(rows * s->width) * sizeof *zeros)
                       : NULL;
    j->no_memory |= s->altup.streams && !zeros;
    for (int i = 0; zeros && i < s->layers; i++)
        for (size_t k = 0; s->layer[i].kv_from != i && k < AF_LEN(names); k++) {
            char name[NAME_BYTES];
            snprintf(name, sizeof name, "blk.%d.%s", i, names[k]);
            gguf_target *t =
                k < 2 ? add(j, name, 2, rows, s->width, 1, i) : add(j, name, 1, E, 1, 1, i);
            t->spec = s->layer[i].tensor[AF_SLOT_Q];
            t->values = zeros;
        }
}

/* Several tensors there. */
static void list_parts(gguf_export *j, int i, const af_gguf_parts *cut)
{
    const af_tensor_spec *s = &j->spec->tensor[i];
    char name[NAME_BYTES];
    for (int part = 0; part < cut->count; part++) {
        int64_t dim[3];
        af_gguf_part_dims(cut, part, s, dim);
        snprintf(name, sizeof name, "blk.%d.%s", s->layer, cut->name[part]);
        gguf_target *t = add(j, name, s->ndim, dim[0], dim[1], dim[2], s->layer);
        t->spec = i;
        t->part = part;
        t->cut = *cut;
        if (j->o->keep_mxfp4 && af_model_reader_is_mxfp4(j->in, i))
            t->dtype = AF_DTYPE_MXFP4;
    }
}

/* One tensor of one of ours. */
static void list_alone(gguf_export *j, int i)
{
    const af_tensor_spec *s = &j->spec->tensor[i];
    const af_arch *arch = j->spec->arch;
    const int squeezed = af_slot_is_row(s);
    const bool conv = s->slot == AF_SLOT_CONV; /* [C][1][K] is a matrix there */
    gguf_target *t = add(j, s->gguf, s->ndim - (squeezed || conv), s->dim[squeezed],
                         s->dim[conv ? 2 : 1 + squeezed], s->dim[2], s->layer);
    t->spec = i;
    if (s->slot == AF_SLOT_PER_LAYER_EMBED && j->spec->altup.streams)
        t->rows = t->dim[0] =
            j->spec->vocab; /* of tokens without one, the first, as in the model */
    if (j->o->keep_mxfp4 && af_model_reader_is_mxfp4(j->in, i))
        t->dtype = AF_DTYPE_MXFP4;
    if (s->slot == AF_SLOT_EXPERTS_DOWN_BIAS)
        t->dtype = AF_DTYPE_F32;
    const int64_t columns = af_gguf_vector_columns(j->spec, s);
    if (columns) { /* the values of a vector */
        t->ndim = 2;
        t->dim[0] = s->dim[0] / columns;
        t->dim[1] = columns;
    }
    const bool norm = s->slot != AF_SLOT_STATE_NORM && strstr(s->gguf, "norm.weight");
    t->add = norm && s->ndim == 1 && arch->gguf_norm_one ? 1.0f : 0.0f;
    t->order = af_gguf_order_of(j->spec, s);
    t->fold = af_gguf_fold_of(j->spec, s);
    t->unit = s->slot == AF_SLOT_HEAD && j->spec->head_normed;
    t->exp = af_gguf_exp_of(j->spec, s);
    if (t->exp && s->ndim == 2) { /* of Mamba-1 a matrix, whose values stay f32 */
        t->vector = true;
        t->cols *= t->rows;
        t->rows = 1;
        t->dtype = AF_DTYPE_F32;
        t->fell_back = false;
    }
    if (t->exp && af_model_reader_is_gguf(j->in) && !j->in->adapter) /* to the bit */
        t->raw = af_weights_find(j->in->weights, s->gguf);
}

static void list_tensor(gguf_export *j, int i)
{
    const af_tensor_spec *s = &j->spec->tensor[i];
    const af_gguf_parts cut = af_gguf_parts_of(j->spec, s);
    int index;
    const int stack = af_gguf_stack_of(j->spec, s, &index);
    if (af_slot_is_xielu(s->slot)) /* among the metadata */
        return;
    if (cut.count) {
        list_parts(j, i, &cut);
    } else if (s->slot == AF_SLOT_EXPERTS_GATE_UP_BIAS) {
        list_gate_up_bias(j, i);
    } else if (s->slot == AF_SLOT_KV_B && !j->spec->arch->gguf_kv_whole &&
               !af_weights_find(j->in->weights, s->gguf)) {
        list_kv_split(j, i);
    } else if (!stack) {
        list_alone(j, i);
    } else if (index == 0) {
        gguf_target *t = add(j, s->gguf, 3, stack, s->dim[0], s->dim[1], -1);
        t->spec = i;
        t->stack = stack;
    }
}

static af_status add_factors(gguf_export *j, const char *name, const double *from, int n,
                             af_error *err)
{
    float *v = af_arena_take(&j->arena, (uint64_t)n * sizeof *v);
    if (!v)
        return af_fail_nomem(err, name, (uint64_t)n * 4);
    for (int i = 0; from && i < n; i++)
        v[i] = (float)from[i];
    if (!from)
        af_gguf_rope_factors(&j->in->config.rope, j->spec->rope[0].rotary_dim, v);
    add(j, name, 1, n, 1, 1, -1)->values = v;
    return AF_OK;
}

static af_status list_rope(gguf_export *j, af_error *err)
{
    af_status st = AF_OK;
    const af_rope_config *r = &j->in->config.rope;
    if (af_model_reader_is_gguf(j->in)) { /* as they are */
        for (int i = 0; i < af_weights_count(j->in->weights); i++) {
            const af_stored *s = af_weights_at(j->in->weights, i);
            if (strncmp(s->name, "rope_", 5) == 0 && s->ndim == 1) {
                gguf_target *t = add(j, s->name, 1, s->dim[0], 1, 1, -1);
                t->raw = s;
                t->dtype = s->dtype;
            }
        }
        return AF_OK;
    }
    if (r->type == AF_ROPE_LLAMA3 || r->type == AF_ROPE_PROPORTIONAL)
        AF_TRY(add_factors(j, "rope_freqs.weight", NULL, j->spec->rope[0].rotary_dim / 2, err));
    if (r->type == AF_ROPE_LONGROPE && r->short_factor && r->long_factor) {
        AF_TRY(add_factors(j, "rope_factors_long.weight", r->long_factor, r->long_count, err));
        AF_TRY(add_factors(j, "rope_factors_short.weight", r->short_factor, r->short_count, err));
    }
done:
    return st;
}

af_status af_gguf_list_tensors(gguf_export *j, af_error *err)
{
    const af_model_spec *s = j->spec;
    const uint64_t most =
        (uint64_t)s->tensors * 2 + 8 +
        (uint64_t)(af_model_reader_is_gguf(j->in) ? af_weights_count(j->in->weights) : 0);
    j->list = af_arena_take(&j->arena, most * sizeof *j->list);
    if (!j->list)
        return af_fail_nomem(err, "the tensor list", most * sizeof *j->list);
    j->mix = (af_mix_model){.layers = s->layers,
                            .experts = s->experts,
                            .gqa = s->kv_heads ? s->heads / s->kv_heads : 1,
                            .tied = s->tied,
                            .has_imatrix = j->o->imatrix != NULL,
                            .pure = j->o->pure};
    for (int i = 0; i < s->tensors; i++)
        list_tensor(j, i);
    list_unread_kv(j);
    if (j->no_memory)
        return af_fail_nomem(err, "values of tensors", (uint64_t)s->expert_ffn);
    return list_rope(j, err);
}
