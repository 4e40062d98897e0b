/* model.c - opens a model for inference and keeps its parts; see afinar/model.h. */
#include "model/model_state.h"

#include "base/file.h"
#include "base/log.h"
#include "format/chat/chat_template.h"
#include "format/hub/hub_name.h"
#include "graph/graph_access.h"
#include "model/adapter_config.h"
#include "model/adapter_texts.h"

#include <jansson.h>
#include <math.h>

/* An adapter that multiplies becomes part of the weights, which are then not those of a file. */
static af_status take_multiplied(af_model *m, const af_model_opts *o, af_error *err)
{
    const af_model_spec *s = af_loader_spec(m->loader);
    const af_adapter *a = m->multiplied;
    bool packed = false;
    for (int i = 0; i < s->modules; i++) {
        const int w = s->module[i].weight;
        if (!a->module[i].rank)
            continue;
        packed |= af_loader_is_packed(m->loader, w);
        if (s->tensor[w].module != i || af_module_is_shared(s, i))
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%s' changes '%s', whose weight another module uses, too: merge it "
                           "into its base first (afinar merge)",
                           o->adapter[0], s->module[i].path);
    }
    if (o->load_in_4bit || packed)
        return af_fail(
            err, AF_EUNSUPPORTED,
            "'%s' is an adapter of type %s, which changes weights that %s: merge it into "
            "its base first (afinar merge)",
            o->adapter[0], af_peft_forms[a->config.type].name,
            o->load_in_4bit ? "--load-in-4bit rounds to 4 bits" : "are stored quantised");
    if (o->adapters > 1 || o->adapter_weight[0] != 1 || a->config.save_count || a->config.bias)
        return af_adapter_check_adds(&a->config, o->adapter[0], err);
    af_loader_change(m->loader, a);
    return AF_OK;
}

static af_status open_adapters(af_model *m, const af_model_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_adapter *one[AF_MODEL_ADAPTERS_MAX] = {0};
    for (int i = 0; i < o->adapters; i++) {
        AF_TRY(af_adapter_read_to_merge(&one[i], af_loader_spec(m->loader), o->adapter[i],
                                        AF_TABLES_OF_BASE, err));
        AF_TRY(af_adapter_expand(one[i], o->adapter[i], 0, err));
        if (one[i]->config.type == AF_PEFT_LORA)
            continue;
        af_adapter_free(m->multiplied);
        m->multiplied = one[i];
        one[i] = NULL;
        AF_TRY(take_multiplied(m, o, err));
    }
    if (m->multiplied) {
        af_log_write(AF_LOG_INFO, "the adapter is merged into the weights in memory");
    } else if (o->adapters == 1 && o->adapter_weight[0] == 1) {
        m->adapter = one[0];
        one[0] = NULL;
    } else if (o->adapters > 0) {
        AF_TRY(af_adapter_mix(&m->adapter, (const af_adapter *const *)one, o->adapter_weight,
                              o->adapters, err));
    }
    if (o->adapters == 1) {
        m->adapter_dir = af_strdup(o->adapter[0]);
        if (!m->adapter_dir)
            AF_TRY(af_fail_nomem(err, "a path", strlen(o->adapter[0])));
    }
done:
    for (int i = 0; i < AF_MODEL_ADAPTERS_MAX; i++)
        af_adapter_free(one[i]);
    return st;
}

static af_status open_parts(af_model *m, const char *model, const af_model_opts *o, af_error *err)
{
    af_status st = AF_OK;
    if ((unsigned)o->compute > AF_COMPUTE_BF16)
        return af_fail(err, AF_EUSAGE, "compute %d is not one of 0 to %d", (int)o->compute,
                       AF_COMPUTE_BF16);
    AF_TRY(af_model_resolve_whole(&m->path, model, err));
    AF_TRY(af_device_open(&m->device, o->device ? o->device : "auto", o->threads, err));
    const bool cpu = af_device_is_cpu(m->device);
    const bool bf16 = o->compute == AF_COMPUTE_AUTO ? !cpu : o->compute == AF_COMPUTE_BF16;
    m->compute = bf16 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    bool untie = false;
    int64_t vocab = 0;
    for (int i = 0; i < o->adapters && i < AF_MODEL_ADAPTERS_MAX && !untie; i++)
        AF_TRY(af_adapter_unties(&untie, o->adapter[i], err));
    int64_t labels = 0;
    if (o->adapters == 1)
        AF_TRY(af_adapter_vocab(&vocab, o->adapter[0], err));
    for (int i = 0; i < o->adapters && i < AF_MODEL_ADAPTERS_MAX && !labels; i++)
        AF_TRY(af_adapter_labels(&labels, o->adapter[i], err));
    const af_loader_opts so = {.untie = untie,
                               .headless = o->headless,
                               .on_cpu = cpu,
                               .labels = labels,
                               .vocab = vocab,
                               .vocab_dir = vocab ? o->adapter[0] : NULL,
                               .compute = m->compute,
                               .load_in_4bit = o->load_in_4bit,
                               .quant_mode = o->quant_scratch || (o->few_tokens && !cpu)
                                                 ? AF_QUANT_SCRATCH
                                                 : AF_QUANT_SHADOW};
    AF_TRY(af_loader_open(&m->loader, m->path, &so, err));
    AF_TRY(open_adapters(m, o, err));
    AF_TRY(af_model_read_labels(m, err));
    af_log_write(AF_LOG_INFO, "device: %s, computing in %s", af_device_text(m->device),
                 af_dtype_name(m->compute));
done:
    return st;
}

/* Adapters may be names of the hub; owned[i] is the folder of such a one. */
static af_status find_adapters(af_model_opts *o, char **owned, af_error *err)
{
    af_status st = af_need_strings(o->adapter, o->adapters, AF_MODEL_ADAPTERS_MAX, "adapter", err);
    for (int i = 0; i < o->adapters && st == AF_OK; i++) {
        if (!isfinite(o->adapter_weight[i]))
            return af_fail(err, AF_EUSAGE, "the weight of adapter '%s' is %g", o->adapter[i],
                           o->adapter_weight[i]);
        if (af_path_is_taken(o->adapter[i]) || !af_hub_is_name(o->adapter[i]))
            continue;
        st = af_hub_snapshot(&owned[i], AF_HUB_MODEL, o->adapter[i], NULL, NULL, 0, err);
        o->adapter[i] = owned[i];
    }
    return st;
}

af_status af_model_open(af_model **out, const char *model, const af_model_opts *o, af_error *err)
{
    AF_NEED(err, out, model);
    af_model_opts own = o ? *o : (af_model_opts){0};
    char *owned[AF_MODEL_ADAPTERS_MAX] = {0};
    af_model *m = af_calloc(1, sizeof *m);
    if (!m)
        return af_fail_nomem(err, "a model", sizeof *m);
    af_status st = find_adapters(&own, owned, err);
    if (st == AF_OK)
        st = open_parts(m, model, &own, err);
    for (int i = 0; i < AF_MODEL_ADAPTERS_MAX; i++)
        free(owned[i]);
    if (st != AF_OK) {
        af_model_close(m);
        return st;
    }
    *out = m;
    return AF_OK;
}

void af_model_close(af_model *m)
{
    if (!m)
        return;
    af_model_drop_decoder(m);
    af_engine_close(&m->engine);
    af_adapter_free(m->adapter);
    af_adapter_free(m->multiplied);
    af_loader_close(m->loader);
    af_tokenizer_close(m->tokenizer);
    af_template_close(m->template);
    af_device_close(m->device);
    free(m->path);
    free(m->adapter_dir);
    json_decref(m->label_json);
    free(m);
}

bool af_model_has_head(const af_model *m) { return m && !m->loader->reader->headless; }

/* Regular tokens must have a row; some models have added tokens beyond the last one. */
static af_status check_vocab(const af_model *m, const af_tokenizer *t, af_error *err)
{
    const int64_t V = af_loader_spec(m->loader)->vocab, n = af_tokenizer_vocab_size(t);
    for (int64_t id = V; id < n; id++)
        if (af_tokenizer_token(t, (int32_t)id, NULL) && !af_tokenizer_is_added(t, (int32_t)id))
            return af_fail(err, AF_EFORMAT,
                           "%s: the tokenizer has token %" PRId64 ", but vocab_size is %" PRId64,
                           m->path, id, V);
    if (n > V)
        af_log_write(AF_LOG_WARN, "%s: %" PRId64 " added tokens lie beyond vocab_size %" PRId64,
                     m->path, n - V, V);
    return AF_OK;
}

const char *af_model_tokenizer_path(const af_model *m)
{
    return m->adapter_dir && af_adapter_own_tokenizer(m->adapter_dir, m->path, af_model_vocab(m))
               ? m->adapter_dir
               : m->path;
}

af_status af_model_tokenizer(af_model *m, const af_tokenizer **out, af_error *err)
{
    AF_NEED(err, m, out);
    if (!m->tokenizer) {
        af_tokenizer *t = NULL;
        const char *path = af_model_tokenizer_path(m);
        af_status st = af_tokenizer_open(&t, path, err);
        if (st == AF_OK)
            st = check_vocab(m, t, err);
        if (st == AF_OK && path != m->path)
            st = af_adapter_add_stops(t, m->path, err);
        if (st != AF_OK) {
            af_tokenizer_close(t);
            return st;
        }
        m->tokenizer = t;
    }
    *out = m->tokenizer;
    return AF_OK;
}

const char *af_model_template_path(const af_model *m)
{
    return m->adapter_dir && af_adapter_has_template(m->adapter_dir) ? m->adapter_dir : m->path;
}

af_status af_model_template(af_model *m, const af_template **out, af_error *err)
{
    AF_NEED(err, m, out);
    af_status st = AF_OK;
    const af_tokenizer *base;
    const char *path = af_model_template_path(m);
    af_template *t = NULL;
    if (!m->template) {
        AF_TRY(af_template_open(&t, path, err));
        if (path != m->path) { /* an adapter need not have a tokenizer */
            AF_TRY(af_model_tokenizer(m, &base, err));
            AF_TRY(af_template_set_tokens(t, base, err));
        }
        m->template = t;
        t = NULL;
    }
    *out = m->template;
done:
    af_template_close(t);
    return st;
}

const char *af_model_arch(const af_model *m)
{
    return m ? af_loader_spec(m->loader)->arch->model_type : "";
}
int64_t af_model_vocab(const af_model *m) { return m ? af_loader_spec(m->loader)->vocab : 0; }
int64_t af_model_params(const af_model *m) { return m ? af_loader_spec(m->loader)->params : 0; }
const char *af_model_device_text(const af_model *m) { return af_device_text(m ? m->device : NULL); }
af_generate_times af_model_times(const af_model *m)
{
    return m ? m->times : (af_generate_times){0};
}

void af_model_drop_decoder(af_model *m)
{
    if (m->decoder)
        m->decoder_close(m->decoder);
    m->decoder = NULL;
}

af_status af_model_engine(af_model *m, af_engine_kind kind, int64_t N, int64_t S, af_error *err)
{
    af_engine *e = &m->engine;
    if (e->graph && e->kind == kind && e->N >= N && e->S >= S)
        return AF_OK;
    af_engine_close(e); /* first: two graphs need not fit */
    af_model_drop_decoder(m);
    return af_engine_open(e, kind, m->device,
                          &(af_engine_from){m->loader, m->adapter, m->compute, m->live}, N, S, err);
}

af_status af_model_check_ids(const af_model *m, const int32_t *ids, int64_t n, af_error *err)
{
    const int64_t V = af_loader_spec(m->loader)->vocab;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= V)
            return af_fail(err, AF_EUSAGE,
                           "token %" PRId32 " at %" PRId64 " is outside the vocabulary of %" PRId64,
                           ids[i], i, V);
    return AF_OK;
}

void af_model_watch_length(af_model *m, int64_t tokens)
{
    const int64_t context = af_spec_context(af_loader_spec(m->loader));
    if (m->warned_long || context == 0 || tokens <= context)
        return;
    m->warned_long = true;
    af_log_write(AF_LOG_WARN, "a text is longer than the model's context of %" PRId64 " tokens",
                 context);
}

af_status af_model_logits_of(af_model *m, const int32_t *ids, int64_t n, float *out, af_error *err)
{
    AF_NEED(err, m, ids, out);
    if (n < 0)
        return af_fail(err, AF_EUSAGE, "%" PRId64 " tokens are not possible", n);
    return af_model_logits_in(m, ids, n, n, out, err);
}

af_status af_model_logits_in(af_model *m, const int32_t *ids, int64_t n, int64_t length, float *out,
                             af_error *err)
{
    af_status st = AF_OK;
    const int64_t V = af_model_vocab(m);
    const float *logits;
    if (n < 1)
        return AF_OK;
    AF_TRY(af_model_need_tokens(m, err));
    AF_TRY(af_model_check_ids(m, ids, n, err));
    AF_TRY(af_model_engine(m, AF_ENGINE_LOGITS, n, 1, err));
    AF_TRY(af_engine_run(&m->engine, &(af_feed){.ids = ids, .n = n, .length = length}, 1, &logits,
                         err));
    memcpy(out, logits, (size_t)(n * V) * sizeof *out);
done:
    return st;
}

af_status af_model_sampling(af_model *m, af_sample_opts *out, af_error *err)
{
    AF_NEED(err, m, out);
    af_generation_config c = {0};
    bool found = false;
    *out = (af_sample_opts){0};
    if (!af_dir_exists(m->path))
        return AF_OK;
    const af_status st = af_generation_config_read(&c, &found, m->path, err);
    if (st == AF_OK && found && c.do_sample)
        *out = (af_sample_opts){.temperature = c.temperature,
                                .top_p = c.top_p,
                                .top_k = c.top_k,
                                .min_p = c.min_p,
                                .repeat_penalty = c.repetition_penalty};
    return st;
}
