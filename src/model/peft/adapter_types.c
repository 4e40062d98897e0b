/* adapter_types.c - types of PEFT besides LoRA whose change of a weight is a product B A: they are
 * read as LoRA, whatever is then done with them. r and scale are those of the config. Not here:
 * those whose A and B would be far larger than what is stored (adapter_pairs.c).
 *
 *   ADALORA  B diag(E) A / (init_r + 1e-5): every module keeps a rank of its own, also 0
 *   VERA     diag(b) B diag(d) A: one B and A for all, of which a module has the first rows and
 *            columns
 *   MISS     a block [r][out] for columns c, c + r, c + 2 r, ...; BONE is its former name */
#include "model/adapter_config.h"

const af_peft_form af_peft_forms[AF_PEFT_TYPES] = {
    [AF_PEFT_LORA] = {"LORA", "r", 8, "lora_alpha", "lora_dropout", ".lora_"},
    [AF_PEFT_ADALORA] = {"ADALORA", "init_r", 12, "lora_alpha", "lora_dropout", ".lora_"},
    [AF_PEFT_VERA] = {"VERA", "r", 256, NULL, "vera_dropout", ".vera_lambda_"},
    [AF_PEFT_LOHA] = {"LOHA", "r", 8, "alpha", NULL, ".hada_", .pairs = true},
    [AF_PEFT_LOKR] = {"LOKR", "r", 8, "alpha", NULL, ".lokr_", .pairs = true},
    [AF_PEFT_MISS] = {"MISS", "r", 64, NULL, "miss_dropout", ".miss_block"},
    [AF_PEFT_BONE] = {"BONE", "r", 64, NULL, NULL, ".bone_block"},
    [AF_PEFT_IA3] = {"IA3", NULL, 1, NULL, NULL, ".ia3_l", .multiplies = true},
    [AF_PEFT_OFT] = {"OFT", NULL, 1, NULL, NULL, ".oft_R", .multiplies = true},
};

const char *af_adapter_part_at(const char *name)
{
    const char *at = NULL;
    for (int i = 0; !at && i < AF_PEFT_TYPES; i++)
        at = strstr(name, af_peft_forms[i].part);
    return at;
}

typedef struct module_source {
    af_adapter *a;
    const af_module_spec *m;
    af_adapter_module *am; /* on entry with the config's rank and alpha */
    const af_weights *w;
    int *used;
} module_source;

static void name_part(char name[AF_ADAPTER_NAME_BYTES], const module_source *s, const char *part)
{
    snprintf(name, AF_ADAPTER_NAME_BYTES, AF_ADAPTER_PREFIX "%s%s", s->m->path, part);
}

static const af_stored *find_part(const module_source *s, const char *part)
{
    char name[AF_ADAPTER_NAME_BYTES];
    name_part(name, s, part);
    return af_adapter_find(s->a, s->w, name);
}

static af_status read_part(const module_source *s, float **to, const char *part, int64_t rows,
                           int64_t cols, af_error *err)
{
    char name[AF_ADAPTER_NAME_BYTES];
    name_part(name, s, part);
    return af_adapter_read_tensor(s->a, to, s->w, name, rows, cols, s->used, err);
}

/* Room for A and B of this rank, whose product is multiplied by `scale`. */
static af_status take(const module_source *s, int64_t rank, double scale, af_error *err)
{
    if (rank < 1 || rank > AF_ADAPTER_RANK_MAX)
        return af_fail(err, AF_EUNSUPPORTED,
                       "the adapter of '%s' has rank %" PRId64 ", not 1 to %d", s->m->path, rank,
                       AF_ADAPTER_RANK_MAX);
    s->am->rank = (int)rank;
    s->am->alpha = scale * (double)rank;
    s->am->scale = (float)scale;
    const af_status st = s->am->a ? AF_OK : af_adapter_alloc(s->a, &s->am->a, rank * s->m->in, err);
    return st != AF_OK || s->am->b ? st : af_adapter_alloc(s->a, &s->am->b, s->m->out * rank, err);
}

static af_status read_adalora(const module_source *s, af_error *err)
{
    af_status st = AF_OK;
    const af_adapter_config *c = &s->a->config;
    const af_stored *t = find_part(s, ".lora_E");
    const int64_t rank = t && t->ndim > 0 ? t->dim[0] : s->am->rank;
    float *e = NULL;
    AF_TRY(read_part(s, &e, ".lora_E", rank, 1, err));
    AF_TRY(read_part(s, &s->am->a, ".lora_A", rank, s->m->in, err));
    AF_TRY(read_part(s, &s->am->b, ".lora_B", s->m->out, rank, err));
    s->am->rank = 0;
    if (rank == 0) /* all of it was pruned */
        return AF_OK;
    AF_TRY(take(s, rank, (c->alpha > 0 ? c->alpha : (double)rank) / (c->r + 1e-5), err));
    for (int64_t i = 0; i < rank * s->m->in; i++)
        s->am->a[i] *= e[i / s->m->in];
done:
    return st;
}

/* The matrices of all modules. */
static af_status find_shared(const module_source *s, const af_stored **a, const af_stored **b,
                             af_error *err)
{
    *a = af_weights_find(s->w, "base_model.vera_A");
    *b = af_weights_find(s->w, "base_model.vera_B");
    if (!*a || !*b)
        return af_fail(err, AF_EUNSUPPORTED,
                       "the adapter has no tensor '%s': it was saved without its random matrices "
                       "(save_projection: false), which PEFT alone can draw again",
                       *a ? "base_model.vera_B" : "base_model.vera_A");
    if ((*a)->ndim != 2 || (*b)->ndim != 2 || (*a)->dim[0] != (*b)->dim[1] ||
        (*a)->dim[1] < s->m->in || (*b)->dim[0] < s->m->out || !af_dtype_is_float((*a)->dtype) ||
        !af_dtype_is_float((*b)->dtype))
        return af_fail(err, AF_EFORMAT,
                       "'%s' and '%s' are not matrices of one rank for the %" PRId64 " x %" PRId64
                       " of '%s'",
                       (*b)->name, (*a)->name, s->m->out, s->m->in, s->m->path);
    return AF_OK;
}

static af_status read_vera(const module_source *s, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = s->m;
    const af_stored *a, *b;
    float *by_row = NULL, *by_rank = NULL;
    AF_TRY(find_shared(s, &a, &b, err));
    const int64_t R = a->dim[0];
    const uint64_t bytes = (uint64_t)af_dtype_get(a->dtype)->bytes;
    AF_TRY(read_part(s, &by_row, ".vera_lambda_b", m->out, 1, err));
    AF_TRY(read_part(s, &by_rank, ".vera_lambda_d", R, 1, err));
    AF_TRY(take(s, R, 1, err));
    for (int64_t r = 0; r < R; r++) {
        float *row = s->am->a + r * m->in;
        const uint8_t *from = (const uint8_t *)a->data + (uint64_t)(r * a->dim[1]) * bytes;
        af_convert(row, AF_DTYPE_F32, from, a->dtype, (uint64_t)m->in);
        for (int64_t i = 0; i < m->in; i++)
            row[i] *= by_rank[r];
    }
    af_convert(s->am->b, AF_DTYPE_F32, b->data, b->dtype, (uint64_t)(m->out * R));
    for (int64_t i = 0; i < m->out * R; i++)
        s->am->b[i] *= by_row[i / R];
done:
    return st;
}

/* A block of fewer columns than outputs is repeated (init_weights: mini). */
static af_status read_block(const module_source *s, const char *part, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = s->m;
    const af_stored *t = find_part(s, part);
    const bool fits = t && t->ndim == 2 && t->dim[1] > 0 && m->out % t->dim[1] == 0;
    const int64_t R = fits ? t->dim[0] : s->am->rank, cols = fits ? t->dim[1] : m->out;
    float *block = NULL;
    AF_TRY(read_part(s, &block, part, R, cols, err));
    AF_TRY(take(s, R, 1, err));
    for (int64_t i = 0; i < m->in; i++)
        s->am->a[i % R * m->in + i] = 1;
    for (int64_t o = 0; o < m->out; o++)
        for (int64_t r = 0; r < R; r++)
            s->am->b[o * R + r] = block[r * cols + o % cols];
done:
    return st;
}

af_status af_adapter_type_read(af_adapter *a, int module, const af_weights *w, int *used,
                               af_error *err)
{
    const module_source s = {a, &a->spec->module[module], &a->module[module], w, used};
    const af_peft_form *form = &af_peft_forms[a->config.type];
    if (af_module_is_experts(s.m) || s.m->group == AF_GROUP_EMBED)
        return af_fail(err, AF_EUNSUPPORTED, "an adapter of type %s on '%s' is not supported",
                       form->name, s.m->path);
    if (form->multiplies)
        return af_adapter_multiply_read(a, module, w, used, err);
    if (form->pairs)
        return af_adapter_pair_read(a, module, w, used, err);
    switch (a->config.type) {
    case AF_PEFT_ADALORA:
        return read_adalora(&s, err);
    case AF_PEFT_VERA:
        return read_vera(&s, err);
    default:
        return read_block(&s, form->part, err);
    }
}
