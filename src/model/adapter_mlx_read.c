/* adapter_mlx_read.c - the folder of mlx-lm in place of PEFT's: adapters.safetensors has A and B
 * transposed (PATH.lora_a [in][rank], PATH.lora_b [rank][out]) and DoRA's magnitudes (PATH.m), one
 * scale for all is in adapter_config.json. Which modules it has, the tensors alone say. */
#include "base/word.h"
#include "model/adapter_config.h"

af_status af_adapter_mlx_targets(af_adapter *a, const af_weights *w, af_error *err)
{
    static const char tail[] = ".lora_a";
    const uint64_t n = (uint64_t)af_weights_count(w);
    const char **list = af_arena_take(&a->arena, (n + 1) * sizeof *list);
    int count = 0;
    for (uint64_t i = 0; list && i < n; i++) {
        const char *name = af_weights_at(w, (int)i)->name;
        if (!af_ends_with(name, tail))
            continue;
        list[count] = af_arena_strndup(&a->arena, name, strlen(name) - (sizeof tail - 1));
        if (!list[count++])
            list = NULL;
    }
    if (!list)
        return af_fail_nomem(err, "an adapter's settings", n * sizeof *list);
    a->config.target = list;
    a->config.target_count = count;
    return AF_OK;
}

/* *to [cols][rows] from PATH.TAIL [rows][cols]. */
static af_status read_turned(af_adapter *a, float **to, const af_weights *w, const char *path,
                             const char *tail, int64_t rows, int64_t cols, int *used, af_error *err)
{
    char name[AF_ADAPTER_NAME_BYTES];
    float *stored = NULL;
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.%s", path, tail);
    af_status st = af_adapter_read_tensor(a, &stored, w, name, rows, cols, used, err);
    if (st == AF_OK)
        st = af_adapter_alloc(a, to, rows * cols, err);
    for (int64_t r = 0; st == AF_OK && r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            (*to)[c * rows + r] = stored[r * cols + c];
    return st;
}

af_status af_adapter_mlx_read(af_adapter *a, int module, const af_weights *w, int *used,
                              af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[module];
    af_adapter_module *am = &a->module[module];
    char name[AF_ADAPTER_NAME_BYTES];
    AF_TRY(read_turned(a, &am->a, w, m->path, "lora_a", m->in, am->rank, used, err));
    AF_TRY(read_turned(a, &am->b, w, m->path, "lora_b", am->rank, m->out, used, err));
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.m", m->path);
    if (a->config.dora)
        AF_TRY(af_adapter_read_tensor(a, &am->magnitude, w, name, m->out, 1, used, err));
done:
    return st;
}
