/* adapter_outside.c - what PEFT's folders have of modules outside the text model, those of images
 * and sound. Text does not reach them: they count where such an adapter is merged. */
#include "base/log.h"
#include "base/word.h"
#include "model/adapter_config.h"
#include "model/arch/arch_place.h"

/* Of a layer that sees images alone: mllama's. `rest`: after the prefix of the text model. */
static bool is_left_out(const af_model_spec *s, const char *rest)
{
    static const char layers[] = "layers.";
    if (!s->folder_layers || strncmp(rest, layers, sizeof layers - 1) != 0)
        return false;
    const long number = strtol(rest + sizeof layers - 1, NULL, 10);
    for (int i = 0; i < s->layers; i++)
        if (s->folder_layers[i] == number)
            return false;
    return true;
}

static bool is_outside(const af_model_spec *s, const char *name)
{
    const char *rest = name + strlen(AF_ADAPTER_PREFIX);
    if (strncmp(name, AF_ADAPTER_PREFIX, strlen(AF_ADAPTER_PREFIX)) != 0 ||
        strstr(name, "lm_head."))
        return false;
    const size_t len = af_adapter_prefix_length(s, rest);
    return len == 0 || !af_spec_has_part(s, rest + len) || is_left_out(s, rest + len);
}

/* A and B of a module whose B is `b`; others than two matrices are only noticed. */
static af_status read_pair(af_adapter *a, const af_weights *w, const af_stored *b, af_error *err)
{
    static const char tail[] = ".lora_B.weight";
    af_status st = AF_OK;
    const af_adapter_config *c = &a->config;
    const size_t before = strlen(AF_ADAPTER_PREFIX), n = strlen(b->name) - (sizeof tail - 1);
    af_adapter_other *o = &a->other[a->others];
    char name[AF_ADAPTER_NAME_BYTES];
    double alpha;
    int unused = 0;
    snprintf(name, sizeof name, "%.*s.lora_A.weight", (int)n, b->name);
    const af_stored *low = af_weights_find(w, name);
    a->other_forms |= !low || low->ndim != 2 || b->ndim != 2 || low->dim[0] != b->dim[1] ||
                      b->dim[1] < 1 || b->dim[1] > AF_ADAPTER_RANK_MAX;
    if (a->other_forms)
        return AF_OK;
    *o = (af_adapter_other){.out = b->dim[0], .in = low->dim[1], .low = {.rank = (int)b->dim[1]}};
    o->path = af_arena_strndup(&a->arena, b->name + before, n - before);
    if (!o->path)
        return af_fail_nomem(err, "an adapter", n);
    AF_TRY(af_adapter_pattern_value(&alpha, c->alpha_pattern, c->alpha_patterns, o->path, c->alpha,
                                    err));
    const size_t len = af_adapter_prefix_length(a->spec, o->path);
    if (is_left_out(a->spec, o->path + len))
        o->path = af_arena_printf(&a->arena, "%s%s", af_arch_stem(a->spec->arch), o->path + len);
    if (!o->path)
        return af_fail_nomem(err, "an adapter", n);
    o->low.alpha = alpha;
    o->low.scale = af_adapter_scale(c, alpha, o->low.rank);
    AF_TRY(af_adapter_read_tensor(a, &o->low.a, w, name, o->low.rank, o->in, &unused, err));
    AF_TRY(af_adapter_read_tensor(a, &o->low.b, w, b->name, o->out, o->low.rank, &unused, err));
    a->others++;
done:
    return st;
}

af_status af_adapter_read_outside(af_adapter *a, const af_weights *w, int *used, af_error *err)
{
    const int n = af_weights_count(w);
    if (!a->spec->outside)
        return AF_OK;
    a->other = af_arena_take(&a->arena, (uint64_t)AF_MAX(n, 1) * sizeof *a->other);
    if (!a->other)
        return af_fail_nomem(err, "an adapter", (uint64_t)n * sizeof *a->other);
    for (int i = 0; i < n; i++) {
        const af_stored *t = af_weights_at(w, i);
        if (!is_outside(a->spec, t->name))
            continue;
        (*used)++;
        const bool b = af_ends_with(t->name, ".lora_B.weight");
        const af_status st = b && af_adapter_is_moved(t) ? read_pair(a, w, t, err) : AF_OK;
        if (st != AF_OK)
            return st;
        a->other_forms |= !b && !af_ends_with(t->name, ".lora_A.weight");
    }
    if (a->others || a->other_forms)
        af_log_write(AF_LOG_WARN, "the adapter also changes modules outside of the text model, "
                                  "which do nothing for text");
    return AF_OK;
}

const af_adapter_other *af_adapter_other_of(const af_adapter *a, const char *stored,
                                            const int64_t *dim, int ndim)
{
    static const char before[] = "model.";
    for (int i = 0; i < a->others; i++) {
        const af_adapter_other *o = &a->other[i];
        const char *path = o->path;
        if (strncmp(stored, before, sizeof before - 1) != 0 &&
            strncmp(path, before, sizeof before - 1) == 0)
            path += sizeof before - 1; /* older folders are without it */
        const size_t n = strlen(path);
        if (strncmp(stored, path, n) == 0 && strcmp(stored + n, ".weight") == 0 && ndim == 2 &&
            dim[0] == o->out && dim[1] == o->in)
            return o;
    }
    return NULL;
}
