/* adapter_experts.c - adapters on the parameters of experts, as PEFT's target_parameters has them.
 *
 * PEFT wraps a module once for every parameter of it, the first in the innermost wrapper, so the
 * names of its tensors depend on what else is adapted. A is [X * r][in], row e * r + j; B is
 * [out][r * X], column j * X + e. Here both are one matrix after another.
 *
 * Of llama4, whose experts are [X][in][out] without a word that they are, PEFT takes inputs for
 * outputs: its A is our B, and its B is our A. */
#include "model/adapter_config.h"
#include "model/arch/arch_disk.h"

#include <math.h>

/* ---- what can be adapted ---- */

af_status af_adapter_params_used(const af_adapter_config *c, const af_model_spec *s, af_error *err)
{
    for (int i = 0; i < c->param_count; i++) {
        const af_module_spec *first = NULL;
        bool used = false;
        for (int k = 0; k < s->modules; k++) {
            const af_module_spec *m = &s->module[k];
            first = first || !m->parameter ? first : m;
            used |= m->parameter && af_path_in_list(m->path, &c->param[i], 1);
        }
        if (!used)
            return af_fail_subject(
                err, AF_EUSAGE, "target_parameters",
                "target parameter '%.128s' matches nothing in this %s model, which has %s%s%s",
                c->param[i], s->arch->model_type, first ? "'" : "no experts",
                first ? first->path : "", first ? "' and others like it" : "");
    }
    return AF_OK;
}

af_status af_adapter_param_check(const af_adapter_config *c, const af_model_spec *s,
                                 const af_module_spec *m, af_error *err)
{
    if (s->tensor[m->weight].flat)
        return af_fail_subject(err, AF_EUNSUPPORTED, "target_parameters",
                               "'%s' cannot be adapted: PEFT takes all experts of such a model for "
                               "one matrix, with one A for all of them",
                               m->path);
    const char *what = c->dora          ? "DoRA"
                       : c->lora_bias   ? "lora_bias"
                       : c->dropout > 0 ? "lora_dropout above 0"
                                        : NULL;
    if (!what)
        return AF_OK;
    return af_fail_subject(
        err, AF_EUNSUPPORTED, "target_parameters",
        "%s is not possible on '%s': experts and routers take plain LoRA without "
        "dropout",
        what, m->path);
}

/* ---- names ---- */

/* Length of the path of the module that has the parameter. */
static size_t owner(const af_module_spec *m) { return (size_t)(strrchr(m->path, '.') - m->path); }

void af_adapter_experts_name(char name[AF_ADAPTER_NAME_BYTES], const af_adapter *a, int module,
                             char which)
{
    const af_module_spec *m = &a->spec->module[module];
    const af_layer_spec *l = &a->spec->layer[m->layer];
    const int down = l->module[AF_GROUP_EXPERTS_DOWN][0];
    const size_t n = owner(m);
    const bool inner = m->group == AF_GROUP_EXPERTS_GATE_UP && down >= 0 && a->module[down].rank &&
                       owner(&a->spec->module[down]) == n &&
                       strncmp(m->path, a->spec->module[down].path, n) == 0;
    snprintf(name, AF_ADAPTER_NAME_BYTES, AF_ADAPTER_PREFIX "%.*s%s.lora_%c.weight", (int)n,
             m->path, inner ? ".base_layer" : "", which);
}

/* ---- values ---- */

/* Our row of PEFT's row o of B. */
static int64_t own_row(const af_adapter *a, const af_module_spec *m, int64_t o)
{
    const bool pairs = a->spec->arch->experts_alternate && m->group == AF_GROUP_EXPERTS_GATE_UP;
    return pairs ? o % 2 * (m->out / 2) + o / 2 : o;
}

/* Columns of PEFT's A, or rows of its B. */
static int64_t width_of(const af_adapter *a, const af_module_spec *m, char which)
{
    return (which == 'A') != a->spec->arch->experts_swapped ? m->in : m->out;
}

/* Moves A or B of PEFT between our order and theirs. */
static void move(float *theirs, const af_adapter *a, int module, char which, bool out)
{
    const af_module_spec *m = &a->spec->module[module];
    const af_adapter_module *am = &a->module[module];
    const bool first = (which == 'A') != a->spec->arch->experts_swapped; /* of ours */
    const int64_t R = am->rank, X = m->copies, width = width_of(a, m, which);
    for (int64_t w = 0; w < width; w++)
        for (int64_t j = 0; j < R; j++)
            for (int64_t e = 0; e < X; e++) {
                float *p = first ? am->a + (e * R + j) * m->in + w
                                 : am->b + (e * m->out + own_row(a, m, w)) * R + j;
                float *q = theirs + (which == 'A' ? (e * R + j) * width + w : (w * R + j) * X + e);
                *(out ? q : p) = *(out ? p : q);
            }
}

int64_t af_adapter_experts_width(const af_adapter *a, int module, char which)
{
    return width_of(a, &a->spec->module[module], which);
}

void af_adapter_experts_pack(float *to, const af_adapter *a, int module, char which)
{
    move(to, a, module, which, true);
}

/* Projections of one expert in a module of all: gate and up, or one. */
static int pieces_of(const af_model_spec *s, const af_module_spec *m)
{
    return s->tensor[m->weight].slot == AF_SLOT_EXPERTS_GATE_UP ? 2 : 1;
}

/* One projection of one expert among A and B of all: ranks [rank, rank + r) and rows [row, ..). */
static af_status read_one(af_adapter *a, int module, int e, int piece, const af_weights *w,
                          int *used, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[module];
    const af_adapter_module *am = &a->module[module];
    const int pieces = pieces_of(a->spec, m);
    const int64_t r = am->rank / pieces, out = m->out / pieces;
    char disk[256], name[AF_ADAPTER_NAME_BYTES];
    int64_t dim[AF_DISK_DIMS], from;
    int ndim;
    float *b = NULL, *at = am->a + (e * am->rank + piece * r) * m->in;
    af_disk_expert(a->spec, m->weight, e * pieces + piece, disk, sizeof disk, dim, &ndim, &from);
    *strrchr(disk, '.') = '\0';
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_A.weight", disk);
    AF_TRY(af_adapter_read_tensor(a, &at, w, name, r, m->in, used, err));
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_B.weight", disk);
    AF_TRY(af_adapter_read_tensor(a, &b, w, name, out, r, used, err));
    for (int64_t o = 0; o < out; o++)
        memcpy(am->b + (e * m->out + piece * out + o) * am->rank + piece * r, b + o * r,
               (size_t)r * sizeof *b);
done:
    return st;
}

af_status af_adapter_experts_read(af_adapter *a, int module, const af_weights *w, int *used,
                                  af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[module];
    af_adapter_module *am = &a->module[module];
    char name[AF_ADAPTER_NAME_BYTES];
    float *theirs[2] = {NULL, NULL};
    AF_TRY(af_adapter_alloc(a, &am->a, af_adapter_a_count(m, am->rank), err));
    AF_TRY(af_adapter_alloc(a, &am->b, af_adapter_b_count(m, am->rank), err));
    const int pieces = pieces_of(a->spec, m);
    for (int e = 0; e < m->copies && a->one_by_one; e++)
        for (int p = 0; p < pieces; p++)
            AF_TRY(read_one(a, module, e, p, w, used, err));
    if (a->one_by_one)
        goto done;
    af_adapter_experts_name(name, a, module, 'A');
    AF_TRY(af_adapter_read_tensor(a, &theirs[0], w, name, m->copies * am->rank, width_of(a, m, 'A'),
                                  used, err));
    move(theirs[0], a, module, 'A', false);
    af_adapter_experts_name(name, a, module, 'B');
    AF_TRY(af_adapter_read_tensor(a, &theirs[1], w, name, width_of(a, m, 'B'), am->rank * m->copies,
                                  used, err));
    move(theirs[1], a, module, 'B', false);
done:
    return st;
}

/* ---- folders with a module for every expert ---- */

/* Whether the folder has A of piece p of the first expert of some layer. */
static bool has_piece(const af_adapter *a, af_slot slot, int p, const af_weights *w)
{
    const af_model_spec *s = a->spec;
    char disk[256], name[AF_ADAPTER_NAME_BYTES];
    int64_t dim[AF_DISK_DIMS], from;
    int ndim;
    bool has = false;
    for (int i = 0; i < s->layers && !has; i++) {
        const int t = s->layer[i].tensor[slot];
        if (t < 0)
            continue;
        af_disk_expert(s, t, p, disk, sizeof disk, dim, &ndim, &from);
        *strrchr(disk, '.') = '\0';
        snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_A.weight", disk);
        has = af_weights_find(w, name) != NULL;
    }
    return has;
}

/* The router's parameter, where the folder has an adapter of it: in older versions it was a module,
 * which target_modules named. */
static const char *router_adapted(const af_adapter *a, const af_weights *w)
{
    const af_model_spec *s = a->spec;
    char name[AF_ADAPTER_NAME_BYTES];
    for (int i = 0; i < s->layers; i++) {
        const int m =
            s->layer[i].pieces[AF_GROUP_ROUTER] ? s->layer[i].module[AF_GROUP_ROUTER][0] : -1;
        if (m < 0 || !s->module[m].parameter)
            continue;
        af_adapter_low_name(name, &s->module[m], 'A');
        if (af_weights_find(w, name)) { /* "mlp.gate.weight" */
            const char *path = strstr(s->module[m].path, "layers.");
            path = path ? strchr(path + strlen("layers."), '.') : NULL;
            return path ? path + 1 : s->module[m].path;
        }
    }
    return NULL;
}

/* gate and up have ranks of their own, which lie one after another in the fused parameter. */
static af_status double_rank(af_adapter *a, const char *key, af_error *err)
{
    af_adapter_config *c = &a->config;
    const uint64_t n = (uint64_t)AF_MAX(c->rank_patterns, c->alpha_patterns) + 1;
    af_adapter_pattern *list = af_arena_take(&a->arena, 2 * n * sizeof *list);
    if (!list)
        return af_fail_nomem(err, "an adapter's settings", 2 * n * sizeof *list);
    list[0] = (af_adapter_pattern){key, 2.0 * c->r};
    list[n] = (af_adapter_pattern){key, c->rslora ? sqrt(2) * c->alpha : 2 * c->alpha};
    for (int i = 0; i < c->rank_patterns; i++)
        list[1 + i] = c->rank_pattern[i];
    for (int i = 0; i < c->alpha_patterns; i++)
        list[n + 1 + (uint64_t)i] = c->alpha_pattern[i];
    c->rank_pattern = list;
    c->alpha_pattern = list + n;
    c->rank_patterns++;
    c->alpha_patterns++;
    return AF_OK;
}

af_status af_adapter_experts_convert(af_adapter *a, const af_weights *w, af_error *err)
{
    const bool gate = has_piece(a, AF_SLOT_EXPERTS_GATE_UP, 0, w);
    const bool up = has_piece(a, AF_SLOT_EXPERTS_GATE_UP, 1, w);
    const bool alone = has_piece(a, AF_SLOT_EXPERTS_UP, 0, w);
    const bool down = has_piece(a, AF_SLOT_EXPERTS_DOWN, 0, w);
    const char *router = router_adapted(a, w);
    if (!gate && !up && !alone && !down && !router)
        return AF_OK;
    if (gate != up)
        return af_fail(err, AF_EUNSUPPORTED,
                       "the adapter changes only one of the experts' gate and up projections, "
                       "which are one parameter here");
    const uint64_t n = (uint64_t)a->config.param_count;
    const char **list = af_arena_take(&a->arena, (n + 4) * sizeof *list);
    if (!list)
        return af_fail_nomem(err, "an adapter's settings", 0);
    a->one_by_one = gate || alone || down;
    for (uint64_t i = 0; i < n && !a->one_by_one; i++)
        list[i] = a->config.param[i];
    a->config.param = list;
    a->config.param_count = a->one_by_one ? 0 : (int)n;
    if (router)
        list[a->config.param_count++] = router;
    if (gate)
        list[a->config.param_count++] = "mlp.experts.gate_up_proj";
    if (alone)
        list[a->config.param_count++] = "experts.up_proj";
    if (down)
        list[a->config.param_count++] =
            a->spec->arch->plain_mlp ? "experts.down_proj" : "mlp.experts.down_proj";
    return gate ? double_rank(a, "mlp\\.experts\\.gate_up_proj", err) : AF_OK;
}
