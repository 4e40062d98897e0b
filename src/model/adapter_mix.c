/* adapter_mix.c - sums of adapters, see adapter.h. */
#include "model/adapter_config.h"

/* B of every adapter, scaled, side by side; A of every adapter, stacked: their sum exactly. */
static af_status mix_module(af_adapter *a, int i, const af_adapter *const *in, const double *weight,
                            int n, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[i];
    af_adapter_module *to = &a->module[i];
    for (int k = 0; k < n; k++)
        to->rank += in[k]->module[i].rank;
    if (to->rank == 0)
        return AF_OK;
    to->scale = 1;
    to->alpha = to->rank;
    AF_TRY(af_adapter_alloc(a, &to->a, af_adapter_a_count(m, to->rank), err));
    AF_TRY(af_adapter_alloc(a, &to->b, af_adapter_b_count(m, to->rank), err));
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        const af_adapter_module *from = &in[k]->module[i];
        const float w = (float)(weight[k] * from->scale);
        if (from->rank == 0)
            continue;
        for (int64_t e = 0; e < m->copies; e++)
            memcpy(to->a + (e * to->rank + at) * m->in, from->a + e * from->rank * m->in,
                   (size_t)(from->rank * m->in) * sizeof *to->a);
        for (int64_t o = 0; o < m->copies * m->out; o++)
            for (int r = 0; r < from->rank; r++)
                to->b[o * to->rank + at + r] = w * from->b[o * from->rank + r];
        at += from->rank;
    }
done:
    return st;
}

static bool has_tokens(const af_adapter *a)
{
    return a->tokens[AF_TOKENS_EMBED].count || a->tokens[AF_TOKENS_HEAD].count;
}

af_status af_adapter_mix(af_adapter **out, const af_adapter *const *in, const double *weight, int n,
                         af_error *err)
{
    af_status st = AF_OK;
    af_adapter *a = NULL;
    const af_model_spec *s = in[0]->spec;
    AF_TRY(af_adapter_create(&a, s, err));
    AF_TRY(af_adapter_config_copy(&a->config, &in[0]->config, &a->arena, err));
    a->config.rslora = false;
    for (int k = 0; k < n; k++)
        if (in[k]->config.dora || in[k]->config.lora_bias || in[k]->config.save_count ||
            in[k]->config.bias || has_tokens(in[k]))
            AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                           "adapter %d has %s and cannot be mixed with others", k + 1,
                           in[k]->config.dora         ? "DoRA magnitudes"
                           : in[k]->config.lora_bias  ? "a bias"
                           : in[k]->config.bias       ? "trained biases"
                           : in[k]->config.save_count ? "modules_to_save"
                                                      : "trained tokens"));
    for (int i = 0; i < s->modules; i++)
        AF_TRY(mix_module(a, i, in, weight, n, err));
    *out = a;
    a = NULL;
done:
    af_adapter_free(a);
    return st;
}
