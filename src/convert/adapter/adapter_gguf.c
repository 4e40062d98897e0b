/* adapter_gguf.c - an adapter as GGUF LoRA; see adapter_gguf.h. */
#include "convert/adapter/adapter_gguf.h"

#include "convert/gguf/gguf_meta.h"
#include "model/adapter_config.h"
#include "model/arch/gguf_fold.h"
#include "model/arch/gguf_order.h"
#include "model/arch/gguf_parts.h"

enum { NAME_BYTES = 256 };

/* Architectures whose head llama.cpp multiplies without adapters. */
static bool has_plain_head(const char *gguf)
{
    static const char *const names[] = {"deepseek2", "mistral4", "kimi-linear", "bailingmoe3"};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i], gguf) == 0)
            return true;
    return false;
}

/* Modules that llama.cpp computes past an adapter: of latent attention, and of families with a
 * decay per channel, all but o_proj (of bailingmoe3 that, too), some heads, the projections around
 * latent experts, and those of gemma3n. */
static bool is_ignored(const af_model_spec *s, const af_module_spec *m)
{
    const af_group g = m->group;
    const bool latent = m->layer >= 0 && s->layer[m->layer].mixer == AF_MIXER_LATENT;
    if ((latent || s->state.channels) &&
        (g == AF_GROUP_QKV || g == AF_GROUP_ATTN_GATE || (g >= AF_GROUP_Q_A && g <= AF_GROUP_KV_B)))
        return true;
    if (s->state.channels && g >= AF_GROUP_Q_A && g <= AF_GROUP_STEP_OUT)
        return true;
    if ((g == AF_GROUP_HEAD && has_plain_head(s->gguf)) ||
        (g == AF_GROUP_O && strcmp(s->gguf, "bailingmoe3") == 0))
        return true;
    return g == AF_GROUP_EXPERTS_IN || g == AF_GROUP_EXPERTS_OUT || g == AF_GROUP_ALTUP_ROUTER ||
           g == AF_GROUP_PER_LAYER_MODEL ||
           (g >= AF_GROUP_ALTUP_OPEN && g <= AF_GROUP_ALTUP_CLOSE_3);
}

static af_status check(const af_adapter *a, af_error *err)
{
    if (!a->spec->arch->gguf)
        return af_fail(err, AF_EUNSUPPORTED,
                       "an adapter of model_type '%s' cannot be written as GGUF",
                       a->spec->arch->model_type);
    for (int i = 0; i < a->spec->tensors; i++)
        if (a->saved[i])
            return af_fail(
                err, AF_EUNSUPPORTED,
                "a GGUF adapter cannot hold '%s' (modules_to_save, bias); merge it instead",
                a->spec->tensor[i].name);
    for (int i = 0; i < a->spec->modules; i++) {
        if (a->module[i].rank && is_ignored(a->spec, &a->spec->module[i]))
            return af_fail(err, AF_EUNSUPPORTED,
                           "a GGUF adapter cannot hold '%s', which llama.cpp would ignore; merge "
                           "it instead",
                           a->spec->module[i].path);
    }
    if (a->spec->tied && a->module[a->spec->embed_module].rank)
        return af_fail(err, AF_EUNSUPPORTED,
                       "a GGUF adapter cannot hold '%s', which llama.cpp would use for the tied "
                       "head, too; merge it instead",
                       a->spec->module[a->spec->embed_module].path);
    const char *more = a->config.type != AF_PEFT_LORA     ? af_peft_forms[a->config.type].name
                       : a->config.dora                   ? "DoRA magnitudes"
                       : a->config.lora_bias              ? "a bias (lora_bias)"
                       : a->tokens[AF_TOKENS_EMBED].count ? "rows of tokens"
                       : a->tokens[AF_TOKENS_HEAD].count  ? "rows of tokens"
                                                          : NULL;
    if (more)
        return af_fail(err, AF_EUNSUPPORTED, "a GGUF adapter cannot hold %s; merge it instead",
                       more);
    return AF_OK;
}

/* The alpha to write: that of the first module that counts, so that alpha / rank is its scale. */
static double common_alpha(const af_adapter *a)
{
    for (int i = 0; i < a->spec->modules; i++)
        if (a->module[i].rank && a->module[i].scale != 0)
            return (double)a->module[i].scale * a->module[i].rank;
    return 1;
}

/* Row r of the file's B is this row of PEFT's: q and k of llama are interleaved, value heads of
 * delta nets in another order. */
static int64_t source_row(const af_adapter *a, int module, int64_t r)
{
    const af_module_spec *m = &a->spec->module[module];
    const af_gguf_order order = af_gguf_order_of(a->spec, &a->spec->tensor[m->weight]);
    return order.columns ? r : af_gguf_order_here(&order, r);
}

static af_status write_a(const af_adapter *a, int i, af_gguf_writer *w, af_error *err)
{
    const af_module_spec *m = &a->spec->module[i];
    const af_adapter_module *am = &a->module[i];
    const uint64_t n = (uint64_t)(am->rank * m->in);
    const af_gguf_order order = af_gguf_order_of(a->spec, &a->spec->tensor[m->weight]);
    if (m->group != AF_GROUP_EMBED && !order.columns)
        return af_gguf_writer_data(w, am->a, n * 4, err);
    float *moved = af_calloc(n, sizeof *moved); /* of the embedding: one row per token */
    if (!moved)
        return af_fail_nomem(err, m->path, n * 4);
    for (int64_t v = 0; v < m->in; v++)
        for (int r = 0; r < am->rank; r++)
            moved[order.columns ? r * m->in + v : v * am->rank + r] = am->a[r * m->in + v];
    for (int r = 0; order.columns && r < am->rank; r++)
        af_gguf_order_to_file(&order, moved + r * m->in);
    const af_status st = af_gguf_writer_data(w, moved, n * 4, err);
    free(moved);
    return st;
}

/* What B takes of a module's own scale: a reader multiplies by alpha / rank. */
static float fold_of(const af_adapter_module *am, double alpha)
{
    return (float)((double)am->scale * am->rank / alpha);
}

static af_status write_b(const af_adapter *a, int i, double alpha, af_gguf_writer *w, af_error *err)
{
    const af_module_spec *m = &a->spec->module[i];
    const af_adapter_module *am = &a->module[i];
    const float fold = fold_of(am, alpha);
    float *rows = af_calloc((uint64_t)(m->out * am->rank), sizeof *rows);
    if (!rows)
        return af_fail_nomem(err, m->path, (uint64_t)(m->out * am->rank) * 4);
    for (int64_t r = 0; r < m->out; r++)
        for (int k = 0; k < am->rank; k++)
            rows[r * am->rank + k] = am->b[source_row(a, i, r) * am->rank + k] * fold;
    const af_gguf_fold own = af_gguf_fold_of(a->spec, &a->spec->tensor[m->weight]);
    af_gguf_fold_to_file(&own, rows, 0, m->out, am->rank); /* as the base */
    const af_status st =
        af_gguf_writer_data(w, rows, (uint64_t)(m->out * am->rank) * sizeof *rows, err);
    free(rows);
    return st;
}

/* ---- modules that llama.cpp has as several tensors: each has the A they share here ---- */

static af_gguf_parts parts_of(const af_adapter *a, int i)
{
    const af_module_spec *m = &a->spec->module[i];
    const af_tensor_spec *t = &a->spec->tensor[m->weight];
    af_gguf_parts p = af_gguf_parts_of(a->spec, t);
    if (p.count == 0 && af_module_is_experts(m)) /* one part, of all rows */
        p = (af_gguf_parts){.count = 1,
                            .name = {strchr(t->gguf + strlen("blk."), '.') + 1},
                            .rows = {m->copies * m->out}};
    return p;
}

static void part_name(char name[NAME_BYTES], const af_module_spec *m, const char *part, char which)
{
    snprintf(name, NAME_BYTES, "blk.%d.%s.lora_%c", m->layer, part, which);
}

static af_status put_parts(const af_adapter *a, int i, const af_gguf_parts *p, af_gguf_writer *w,
                           af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[i];
    const bool experts = af_module_is_experts(m);
    const int64_t R = a->module[i].rank, X = m->copies;
    char name[NAME_BYTES];
    for (int k = 0; k < p->count; k++) {
        const int64_t low[3] = {X, R, m->in}, high[3] = {X, p->rows[k] / X, R};
        part_name(name, m, p->name[k], 'a');
        AF_TRY(af_gguf_put_tensor(w, name, AF_DTYPE_F32, low + !experts, 2 + experts, err));
        part_name(name, m, p->name[k], 'b');
        AF_TRY(af_gguf_put_tensor(w, name, AF_DTYPE_F32, high + !experts, 2 + experts, err));
    }
done:
    return st;
}

static af_status write_parts(const af_adapter *a, int i, const af_gguf_parts *p, double alpha,
                             af_gguf_writer *w, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[i];
    const af_adapter_module *am = &a->module[i];
    const float fold = fold_of(am, alpha);
    const int64_t R = am->rank, all = m->copies * m->out * R;
    float *rows = af_calloc((uint64_t)all, sizeof *rows);
    if (!rows)
        return af_fail_nomem(err, m->path, (uint64_t)all * sizeof *rows);
    for (int k = 0; k < p->count; k++) {
        for (int64_t r = 0; r < p->rows[k]; r++) {
            const int64_t from = p->count > 1 ? af_gguf_parts_here(p, k, r) : r;
            for (int64_t c = 0; c < R; c++)
                rows[r * R + c] = am->b[from * R + c] * fold;
        }
        AF_TRY(af_gguf_writer_data(w, am->a, (uint64_t)af_adapter_a_count(m, am->rank) * 4, err));
        AF_TRY(af_gguf_writer_data(w, rows, (uint64_t)(p->rows[k] * R) * 4, err));
    }
done:
    free(rows);
    return st;
}

static af_status put_module(const af_adapter *a, int i, af_gguf_writer *w, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[i];
    const af_gguf_parts parts = parts_of(a, i);
    if (parts.count)
        return put_parts(a, i, &parts, w, err);
    const char *base = a->spec->tensor[m->weight].gguf;
    const int64_t R = a->module[i].rank;
    const bool embed = m->group == AF_GROUP_EMBED;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.lora_a", base);
    AF_TRY(af_gguf_put_tensor(w, name, AF_DTYPE_F32,
                              (int64_t[]){embed ? m->in : R, embed ? R : m->in}, 2, err));
    snprintf(name, sizeof name, "%s.lora_b", base);
    AF_TRY(af_gguf_put_tensor(w, name, AF_DTYPE_F32, (int64_t[]){m->out, R}, 2, err));
done:
    return st;
}

af_status af_adapter_gguf_write(const af_adapter *a, const char *name, const char *out,
                                af_error *err)
{
    af_status st = AF_OK;
    af_gguf_writer *w = NULL;
    char title[256];
    const char *arch = a->spec->gguf;
    const double alpha = common_alpha(a);
    if (!arch)
        return af_fail(err, AF_EUNSUPPORTED,
                       "adapters of '%s' cannot be written as GGUF: this build knows no layout of "
                       "llama.cpp for that type",
                       a->spec->arch->model_type);
    AF_TRY(check(a, err));
    af_model_title(title, sizeof title, name);
    AF_TRY(af_gguf_writer_new(&w, out, err));
    AF_TRY(af_gguf_put_str(w, "general.architecture", arch, strlen(arch), err));
    AF_TRY(af_gguf_put_str(w, "general.type", "adapter", 7, err));
    AF_TRY(af_gguf_put_str(w, "adapter.type", "lora", 4, err));
    AF_TRY(af_gguf_put_str(w, "general.name", title, strlen(title), err));
    AF_TRY(af_gguf_put_f32(w, "adapter.lora.alpha", (float)alpha, err));
    AF_TRY(af_gguf_put_u32(w, "general.quantization_version", 2, err));
    for (int i = 0; i < a->spec->modules; i++)
        if (a->module[i].rank)
            AF_TRY(put_module(a, i, w, err));
    AF_TRY(af_gguf_writer_begin(w, err));
    for (int i = 0; i < a->spec->modules; i++) {
        const af_gguf_parts parts = parts_of(a, i);
        if (a->module[i].rank && parts.count) {
            AF_TRY(write_parts(a, i, &parts, alpha, w, err));
        } else if (a->module[i].rank) {
            AF_TRY(write_a(a, i, w, err));
            AF_TRY(write_b(a, i, alpha, w, err));
        }
    }
    st = af_gguf_writer_commit(w, err);
    w = NULL;
done:
    af_gguf_writer_abandon(w);
    return st;
}
