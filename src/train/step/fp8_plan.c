/* fp8_plan.c - see fp8_plan.h. */
#include "train/step/fp8_plan.h"
#include "graph/graph_access.h"

/* Routers, gates of a few columns and what gemma4 adds to a layer are small, and their values are
 * decisions: they stay as they are. */
static bool eligible(af_group g)
{
    return g <= AF_GROUP_IN_Z || g == AF_GROUP_OUT || g == AF_GROUP_SHARED_GATE_UP ||
           g == AF_GROUP_SHARED_DOWN || g == AF_GROUP_EXPERTS_IN || g == AF_GROUP_EXPERTS_OUT;
}

static af_status list_groups(af_fp8_plan *p, const af_model_spec *s, af_error *err)
{
    const uint64_t most = (uint64_t)s->layers * AF_GROUP_LAYER_COUNT;
    p->group = af_calloc(most, sizeof *p->group);
    p->use = af_calloc(most, sizeof *p->use);
    if (!p->group || !p->use)
        return af_fail_nomem(err, "the plan of FP8", most * sizeof *p->group);
    for (int l = 0; l < s->layers; l++)
        for (int g = 0; g < AF_GROUP_LAYER_COUNT; g++)
            if (s->layer[l].pieces[g] && eligible((af_group)g))
                p->group[p->count++] =
                    (af_fp8_group){.layer = l,
                                   .group = (af_group)g,
                                   .name = s->module[s->layer[l].module[g][0]].path};
    return AF_OK;
}

/* Codes of GGUF blocks are smaller than e4m3 already, and their tools do not dequantise twice. */
static af_status check_base(const af_fp8_plan *p, const af_run_model *m, af_error *err)
{
    char at[300];
    const af_dtype *type = m->loader ? af_loader_dtypes(m->loader) : NULL;
    for (int i = 0; type && i < p->count; i++) {
        const af_layer_spec *l = &m->spec->layer[p->group[i].layer];
        const int w = m->spec->module[l->module[p->group[i].group][0]].weight;
        if (af_dtype_is_block(type[w]) && type[w] != AF_DTYPE_NF4 && type[w] != AF_DTYPE_FP4)
            return af_fail(err, AF_EUSAGE,
                           "%s: fp8: '%s' of the base is %s; FP8 is for bases in bf16, f16, f32, "
                           "FP8 or 4 bits of bitsandbytes",
                           af_run_key_loc(m->run, "fp8", at, sizeof at), p->group[i].name,
                           af_dtype_name(type[w]));
    }
    return AF_OK;
}

static af_status check_device(const af_run_model *m, af_error *err)
{
    char at[300];
    const bool has = af_device_fp8_gain(m->device, 1 << 20, 1 << 14, 1 << 14) > 0;
    if (has && (m->compute == AF_DTYPE_BF16 || af_device_is_cpu(m->device)))
        return AF_OK;
    if (has)
        return af_fail(err, AF_EUSAGE, "%s: fp8 on a GPU needs a run that computes in bf16",
                       af_run_key_loc(m->run, "fp8", at, sizeof at));
    return af_fail(err, AF_EUSAGE,
                   "%s: fp8 needs a GPU of compute capability 8.9 or newer, not %s; on a CPU it is "
                   "emulated",
                   af_run_key_loc(m->run, "fp8", at, sizeof at), af_device_text(m->device));
}

static int64_t out_rows(const af_model_spec *s, const af_fp8_group *g)
{
    const af_layer_spec *l = &s->layer[g->layer];
    int64_t n = 0;
    for (int k = 0; k < l->pieces[g->group]; k++)
        n += s->module[l->module[g->group][k]].out;
    return n;
}

static af_status make(af_fp8_plan *p, const af_run_model *m, int64_t rows, af_error *err)
{
    af_status st = AF_OK;
    if (!p->group) {
        AF_TRY(list_groups(p, m->spec, err));
        AF_TRY(check_base(p, m, err));
        AF_TRY(check_device(m, err));
    }
    for (int i = 0; i < p->count; i++) {
        af_fp8_group *g = &p->group[i];
        const af_module_spec *first =
            &m->spec->module[m->spec->layer[g->layer].module[g->group][0]];
        const double gain = af_device_fp8_gain(m->device, rows, out_rows(m->spec, g), first->in);
        if (g->state < AF_FP8_BROKE)
            g->state = gain > 1 || af_device_is_cpu(m->device) ? AF_FP8_USED : AF_FP8_SLOWER;
        p->use[g->layer * AF_GROUP_LAYER_COUNT + (int)g->group] = g->state == AF_FP8_USED;
    }
done:
    return st;
}

af_status af_fp8_plan_make(af_fp8_plan *p, const af_run_model *m, int64_t rows, af_error *err)
{
    return m->run->fp8 ? make(p, m, rows, err) : AF_OK;
}

void af_fp8_plan_clear(af_fp8_plan *p)
{
    free(p->group);
    free(p->use);
    *p = (af_fp8_plan){0};
}

int af_fp8_plan_in(const af_fp8_plan *p, af_fp8_state state)
{
    int n = 0;
    for (int i = 0; i < p->count; i++)
        n += p->group[i].state == state;
    return n;
}

double af_fp8_plan_error(const af_fp8_plan *p, int pass)
{
    double most = 0;
    for (int i = 0; i < p->count; i++)
        if (p->group[i].state == AF_FP8_USED)
            most = AF_MAX(most, p->group[i].error[pass]);
    return most;
}
