/* bench_model.c - see bench_model.h. */
#include "bench/bench_model.h"
#include "base/log.h"
#include "base/rng.h"
#include "graph/graph_access.h"
#include "ops/common/cpu_packs.h"
#include "train/run/freeze.h"
#include "train/run/method.h"

enum { NOISE = 1 << 16 };

static const af_bench_shape shapes[] = {
    {"tiny", 2, 128, 4, 2, 32, 256, 1024, true, true, 10000.0, 1e-6, 0, 0, false},
    {"135m", 30, 576, 9, 3, 64, 1536, 49152, true, false, 100000.0, 1e-5, 0, 0, false},
    {"0.5b", 24, 896, 14, 2, 64, 4864, 151936, true, true, 1000000.0, 1e-6, 0, 0, false},
    {"1.5b", 28, 1536, 12, 2, 128, 8960, 151936, true, true, 1000000.0, 1e-6, 0, 0, false},
    {"7b", 28, 3584, 28, 4, 128, 18944, 152064, false, true, 1000000.0, 1e-6, 0, 0, false},
    {"30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, false, false, 1000000.0, 1e-6, 128, 8, false},
    {"4b-delta", 32, 2560, 16, 4, 256, 9216, 248320, true, false, 10000000.0, 1e-6, 0, 0, true},
};

/* NULL when there is no such shape. */
static const af_bench_shape *find_shape(const char *name)
{
    for (size_t i = 0; i < AF_LEN(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

static af_status make_spec(af_bench_model *b, af_error *err)
{
    const af_bench_shape *s = b->shape;
    char text[1024];
    const int n = snprintf(
        text, sizeof text,
        "{\"model_type\": \"%s\", \"hidden_act\": \"silu\", \"hidden_size\": %d, "
        "\"intermediate_size\": %d, \"moe_intermediate_size\": %d, \"max_position_embeddings\": "
        "%" PRId64 ", "
        "\"num_attention_heads\": %d, \"num_hidden_layers\": %" PRId64
        ", \"num_key_value_heads\": %d, \"num_experts\": %d, \"num_experts_per_tok\": %d, "
        "\"norm_topk_prob\": true, \"rms_norm_eps\": %g, \"rope_theta\": %g, "
        "\"tie_word_embeddings\": %s, "
        "\"torch_dtype\": \"bfloat16\", \"vocab_size\": %d, \"head_dim\": %d}",
        s->delta     ? "qwen3_5_text"
        : s->experts ? "qwen3_moe"
        : s->bias    ? "qwen2"
                     : "llama",
        s->width, s->ffn, s->ffn, AF_MAX(b->o->seq, INT64_C(32768)), s->heads,
        b->o->layers > 0 ? b->o->layers : s->layers, s->kv_heads, s->experts, s->experts_used,
        s->eps, s->theta, s->tied ? "true" : "false", s->vocab, s->head_dim);
    af_status st = af_hf_config_parse(&b->model.config, text, (uint64_t)n, "bench", err);
    return st == AF_OK ? af_model_spec_init(&b->model.own_spec, &b->model.config, err) : st;
}

/* The shape of a model on disk: only its config is read, the weights are random too. */
static af_status take_model(af_bench_model *b, af_error *err)
{
    af_status st = AF_OK;
    char *path = NULL;
    af_error why = {0};
    if (b->o->layers > 0)
        return af_fail(err, AF_EUSAGE, "the number of layers of a model is its own");
    if (af_model_resolve_whole(&path, b->o->shape, &why) != AF_OK)
        return af_fail(
            err, AF_EUSAGE,
            "unknown shape '%s': tiny, 135m, 0.5b, 1.5b, 7b, 30b-a3b, 4b-delta, or a model (%s)",
            b->o->shape, why.msg);
    AF_TRY(af_model_config(&b->model.config, path, err));
    AF_TRY(af_model_spec_init(&b->model.own_spec, &b->model.config, err));
done:
    free(path);
    return st;
}

static af_status make_run(af_bench_model *b, af_error *err)
{
    const bool full = strcmp(b->o->method, "full") == 0, oft = strcmp(b->o->method, "oft") == 0;
    /* a mixture: attention alone, as its users do and its peers are measured */
    const char *targets = b->model.own_spec.experts
                              ? "\nlora_target_modules: "
                                "'.*\\.(q|k|v|o|q_a|q_b|kv_a|kv_b)_proj(_with_mqa)?'\n"
                              : "\nlora_target_linear: true\n";
    char text[1024];
    const int n =
        snprintf(text, sizeof text,
                 "base_model: bench\n%s%s%sdatasets:\n  - path: none\nsequence_len: %" PRId64
                 "\nmicro_batch_size: %" PRId64 "\nlearning_rate: 0.0001\nmax_grad_norm: 1.0\n"
                 "weight_decay: 0.01\noptimizer: adamw_torch\nbf16: %s\ndevice: %s\n%s",
                 full ? "" : "adapter: ", full ? "" : b->o->method, full ? "" : targets, b->o->seq,
                 b->o->batch, strcmp(b->o->dtype, "bf16") == 0 ? "true" : "false", b->o->device,
                 b->o->fp8 ? "fp8: true\n" : "");
    char rank[32];
    snprintf(rank, sizeof rank, "%s=%" PRId64, oft ? "oft_block_size" : "lora_r", b->o->rank);
    const char *overrides[] = {rank, "lora_alpha=32"};
    return af_run_config_parse(&b->run, text, (uint64_t)n, "bench", overrides,
                               full  ? 0
                               : oft ? 1
                                     : 2,
                               err);
}

/* Fills a tensor piece by piece: floats of size `scale`, bytes at random. On the CPU in place: a
 * copy of the largest tensor would be the peak of the whole run. */
static af_status fill(af_bench_model *b, const float *noise, af_tensor *t, const af_random_fill *n,
                      af_error *err)
{
    const uint64_t bytes = af_tensor_bytes(t);
    const af_dtype type = af_tensor_dtype(t);
    const uint64_t unit =
        af_dtype_is_float(type) ? (uint64_t)NOISE * af_dtype_get(type)->bytes : NOISE;
    uint8_t *const view = af_tensor_host_view(t);
    const int values = (int)AF_MIN((int64_t)NOISE, af_tensor_count(t));
    uint8_t *data = view ? view : af_calloc(1, bytes + unit);
    if (!data)
        return af_fail_nomem(err, "random weights", bytes);
    if (af_dtype_is_float(type)) {
        float part[NOISE];
        for (int i = 0; i < values; i++)
            part[i] = noise[((uint64_t)i + n->stream * 7919) % NOISE] * n->scale + n->offset;
        af_convert(data, type, part, AF_DTYPE_F32, (uint64_t)values);
    } else {
        for (uint64_t i = 0; i < AF_MIN(unit, bytes); i++)
            data[i] = (uint8_t)af_rng_u32(3, n->stream, i);
    }
    for (uint64_t at = unit; at < bytes; at += unit)
        memcpy(data + at, data, AF_MIN(unit, bytes - at));
    if (af_weight_is_bound(t)) /* as a checkpoint's pages, which are absent until they are read */
        af_map_forget_at(data, bytes);
    if (view)
        return AF_OK;
    const af_status st = af_tensor_write(b->step.graph, t, data, bytes, err);
    free(data);
    return st;
}

/* Fills one tensor; the device quantises 4-bit weights itself where it can. */
static af_status put(af_bench_model *b, const float *noise, af_tensor *t, const af_random_fill *n,
                     af_error *err)
{
    const af_quant *q = af_weight_quant(t);
    af_status st = AF_OK;
    if (af_graph_can_write_noise(b->step.graph))
        return af_weight_write_noise(b->step.graph, t, n, err);
    AF_TRY(fill(b, noise, t, n, err));
    if (q) {
        AF_TRY(fill(b, noise, q->absmax, &(af_random_fill){.stream = n->stream + 1}, err));
        AF_TRY(fill(b, noise, q->nested, &(af_random_fill){.offset = 0.04f}, err));
    }
done:
    return st;
}

static af_status fill_weights(af_bench_model *b, af_error *err)
{
    af_status st = AF_OK;
    const af_model_leaves *l = &b->step.leaves;
    const bool four = af_method_quantises(&b->run);
    float *noise = af_calloc(NOISE, sizeof *noise);
    if (!noise)
        return af_fail_nomem(err, "random weights", NOISE * sizeof *noise);
    for (int i = 0; i < NOISE; i++)
        noise[i] = (float)af_rng_normal(1, 2, (uint64_t)i);
    for (int i = 0; i < b->model.own_spec.tensors; i++) {
        const af_tensor_spec *s = &b->model.own_spec.tensor[i];
        const bool norm = strstr(s->name, "norm") != NULL;
        const af_random_fill n = {.stream = (uint64_t)i,
                                  .scale = norm ? 0.0f : 0.02f,
                                  .offset = norm ? 1.0f : 0.0f,
                                  .nf4 = four && af_tensor_is_linear(s)};
        AF_TRY(put(b, noise, l->tensor[i], &n, err));
    }
    for (int i = 0; i < b->model.own_spec.modules; i++) {
        if (l->module[i].triangle)
            AF_TRY(put(b, noise, l->module[i].triangle, &(af_random_fill){.scale = 0.02f}, err));
        if (l->module[i].a) {
            const af_random_fill n = {.stream = (uint64_t)(b->model.own_spec.tensors + i),
                                      .scale = 0.02f};
            AF_TRY(put(b, noise, l->module[i].a, &n, err));
            AF_TRY(put(b, noise, l->module[i].b, &(af_random_fill){0}, err));
        }
    }
    st = af_model_write_rope(&b->step.leaves, b->o->seq, err);
done:
    free(noise);
    return st;
}

/* Random ids, labels = the next id, whole sequences: no padding, every token but the last counts.
 */
static af_status fill_batch(af_bench_model *b, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *t = &b->step;
    const int64_t N = t->rows_max, T = b->o->seq;
    int32_t *ids = af_calloc((uint64_t)N * 3 + (uint64_t)t->bounds_len, sizeof *ids);
    if (!ids)
        return af_fail_nomem(err, "a batch", (uint64_t)N * 12);
    int32_t *positions = ids + N, *labels = positions + N, *bounds = labels + N;
    for (int64_t i = 0; i < N; i++) {
        ids[i] = (int32_t)af_rng_below(9, 9, (uint64_t)i, (uint64_t)b->model.own_spec.vocab);
        positions[i] = (int32_t)(i % T);
    }
    for (int64_t i = 0; i < N; i++)
        labels[i] = i % T == T - 1 ? -100 : ids[i + 1];
    for (int64_t i = 0; i < t->bounds_len; i++)
        bounds[i] = (int32_t)(AF_MIN(i, b->o->batch) * T);
    const float scale = 1.0f / (float)(N - b->o->batch);
    AF_TRY(af_tensor_write(t->graph, t->in.ids, ids, (uint64_t)N * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->in.positions, positions, (uint64_t)N * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->labels, labels, (uint64_t)N * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->in.bounds, bounds, (uint64_t)t->bounds_len * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->scale, &scale, sizeof scale, err));
    af_graph_set_live_rows(t->graph, N);
    af_graph_set_learning_rate(t->graph, 1e-4);
done:
    free(ids);
    return st;
}

af_status af_bench_model_init(af_bench_model *b, const af_bench_opts *o, af_error *err)
{
    af_status st = AF_OK;
    const af_bench_shape *own = b->shape;
    *b = (af_bench_model){.o = o, .shape = own ? own : find_shape(o->shape)};
    b->model.has_own_spec = true; /* also when what follows fails half-way */
    AF_TRY(b->shape ? make_spec(b, err) : take_model(b, err));
    AF_TRY(make_run(b, err));
    b->model.run = &b->run;
    b->model.spec = &b->model.own_spec;
    af_step_graph_init(&b->step, &b->run, &b->model);
    b->model.compute = b->model.plain =
        strcmp(o->dtype, "bf16") == 0 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
done:
    return st;
}

void af_bench_model_clear(af_bench_model *b)
{
    af_step_graph_close(&b->step);
    af_run_model_close(&b->model);
    af_run_config_clear(&b->run);
}

/* Where the CPU packs frozen weights, they are mapped from a file as those of a run are: only
 * mapped pages are returned once they are packed. */
static void use_file(af_bench_model *b)
{
    const af_model_spec *s = &b->model.own_spec;
    af_error why = {0};
    uint64_t bytes = 0;
    if (b->run.method != AF_METHOD_LORA || !af_run_model_on_cpu(&b->model) ||
        b->model.frozen.data || !af_cpu_packs_pay(b->model.compute))
        return;
    for (int i = 0; i < s->tensors; i++)
        if (s->tensor[i].ndim == 2)
            bytes += AF_ALIGN_UP((uint64_t)(s->tensor[i].dim[0] * s->tensor[i].dim[1]) *
                                     af_dtype_get(b->model.plain)->bytes,
                                 (uint64_t)AF_FROZEN_ALIGN);
    if (af_map_temp(&b->model.frozen, bytes, &why) != AF_OK)
        af_log_write(AF_LOG_INFO,
                     "bench: frozen weights stay in memory next to their packed copy: %s", why.msg);
}

af_status af_bench_model_plan(af_bench_model *b, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *t = &b->step;
    use_file(b);
    if (!af_method_trains_base(&b->run))
        AF_TRY(af_run_model_outline_adapter(&b->model, err));
    t->rows_max = b->o->batch * b->o->seq;
    t->sequences_max = b->o->batch;
    if (strcmp(b->o->memory, "min") != 0 && !b->o->recompute)
        return af_memory_fit(t, af_device_memory_free(b->model.device), err);
    af_memory_mode memory_mode[AF_MEMORY_MODES_MAX];
    const int n = af_memory_modes(t, memory_mode);
    int i = b->o->recompute ? 0 : n - 1; /* the named one, else the smallest */
    while (i < n && b->o->recompute &&
           strcmp(af_recompute_name(memory_mode[i].mode), b->o->recompute) != 0)
        i++;
    if (i == n)
        AF_TRY(af_fail(err, AF_EUSAGE, "unknown recompute '%s' on this device: none to %s",
                       b->o->recompute, af_recompute_name(memory_mode[n - 1].mode)));
    AF_TRY(af_memory_plan(t, memory_mode[i], err));
    if (!b->o->recompute)
        AF_TRY(af_memory_keep_last(t, af_device_memory_free(b->model.device), err));
done:
    return st;
}

af_status af_bench_model_fill(af_bench_model *b, af_error *err)
{
    const af_status st = fill_weights(b, err);
    return st == AF_OK ? fill_batch(b, err) : st;
}
