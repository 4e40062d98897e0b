/* optim_targets.c - see optim_targets.h. */
#include "train/step/optim_targets.h"

#include "model/adapter_config.h"
#include "ops/optim/optimizer.h"

static bool is_all(const char *text)
{
    return strcmp(text, "all-linear") == 0 || strcmp(text, "all_linear") == 0;
}

/* The weight of one linear: not experts, which are parameters of their module, nor a router. The
 * head is its own where it does not share the embedding. */
static bool is_linear(const af_model_spec *spec, int i)
{
    const af_tensor_spec *t = &spec->tensor[i];
    const bool inner = t->module >= 0 && spec->module[t->module].group < AF_GROUP_HEAD &&
                       !af_slot_is_router(t->slot);
    return t->ndim == 2 && (af_tensor_is_linear(t) || inner || t->slot == AF_SLOT_HEAD);
}

/* Whether the text means this tensor; names are those of the folder without ".weight". */
static af_status means(bool *out, const char *text, const af_model_spec *spec, int i, af_error *err)
{
    char name[512];
    af_spec_whole_name(spec, spec->tensor[i].name, name, sizeof name);
    char *end = strrchr(name, '.');
    if (end && strcmp(end, ".weight") == 0)
        *end = '\0';
    *out = is_all(text) || strstr(name, text) != NULL;
    return *out || !strpbrk(text, "*()[]|\\^$+?") ? AF_OK
                                                  : af_pattern_matches(out, text, name, true, err);
}

/* Whether one of the texts means this linear. */
static af_status is_target(bool *out, const af_strings *texts, const af_model_spec *spec, int i,
                           af_error *err)
{
    af_status st = AF_OK;
    *out = texts->count == 0 && af_tensor_is_linear(&spec->tensor[i]) && spec->tensor[i].ndim == 2;
    for (int k = 0; k < texts->count && is_linear(spec, i) && !*out && st == AF_OK; k++)
        st = means(out, texts->item[k], spec, i, err);
    return st;
}

/* Each text is there for something. */
static af_status check_used(const char *at, const char *text, const af_model_spec *spec,
                            af_error *err)
{
    af_status st = AF_OK;
    bool hit = false;
    for (int i = 0; i < spec->tensors && !hit && st == AF_OK; i++)
        if (is_linear(spec, i))
            st = means(&hit, text, spec, i, err);
    if (st != AF_OK)
        return af_fail_prefix(st, err, "%s: optim_target_modules", at);
    return hit ? AF_OK
               : af_fail(err, AF_EUSAGE,
                         "%s: optim_target_modules has '%s', which no linear of the model has in "
                         "its path",
                         at, text);
}

af_status af_optim_targets_mark(const af_step_graph *s, af_error *err)
{
    const af_strings *texts = &s->run->optim_targets;
    const af_model_spec *spec = s->model->spec;
    af_status st = AF_OK;
    char at[300];
    af_run_key_loc(s->run, "optim_target_modules", at, sizeof at);
    for (int k = 0; k < texts->count; k++)
        AF_TRY(check_used(at, texts->item[k], spec, err));
    for (int i = 0; i < spec->tensors; i++) {
        bool target;
        AF_TRY(is_target(&target, texts, spec, i, err));
        if (s->leaves.tensor[i] && !target)
            af_param_outside(s->leaves.tensor[i]);
    }
done:
    return st;
}
