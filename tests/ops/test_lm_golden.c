/* test_lm_golden.c - results and gradients of the language-model ops against values that PyTorch
 * computed in float64 (tests/golden/ops/make_lm_ops.py, make_moe_ops.py, make_oft.py). Leaves take
 * shape and type from the file: an f64 tensor with a stored gradient is a parameter. */
#include "ops/lm_block.h"
#include "test.h"

#include "backend/cpu/cpu.h"
#include "format/weights/safetensors.h"
#include "ops/oft/oft.h"

#include <math.h>

typedef struct golden {
    const char *name;
    af_safetensors *file;
    af_graph *g;
    af_tensor *rows; /* of a head */
} golden;

typedef af_tensor *golden_build(golden *c, int variant);

static const af_stored *find(const golden *c, const char *kind, const char *name)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s%s%s", c->name, kind, name[0] ? "." : "", name);
    return af_safetensors_find(c->file, key);
}

/* The leaf of that name, or NULL when the case has none. */
static af_tensor *leaf(golden *c, const char *name)
{
    const af_stored *s = find(c, "in", name);
    if (!s)
        return NULL;
    return find(c, "grad", name) ? af_graph_param(c->g, name, s->dtype, s->ndim, s->dim)
                                 : af_graph_input(c->g, name, s->dtype, s->ndim, s->dim);
}

static af_tensor *block_leaf(void *arg, const char *name) { return leaf(arg, name); }

static void compare(const char *what, const char *name, const af_tensor *t, const af_stored *s)
{
    double err2 = 0, ref2 = 0;
    CHECK_MSG(s && af_count(t) == af_weight_count(s), "%s: nothing stored for '%s'", what, name);
    for (int64_t i = 0; i < af_count(t); i++) {
        const double x = af_ld(t, i), y = af_load_f64(s->data, s->dtype, (uint64_t)i);
        err2 += (x - y) * (x - y);
        ref2 += y * y;
    }
    const double limit = t->dtype == AF_DTYPE_F64 ? 1e-11 : 1e-6;
    CHECK_MSG(sqrt(err2) <= limit * fmax(sqrt(ref2), 1e-6), "%s: '%s' differs by %.3g of %.3g",
              what, name, sqrt(err2), sqrt(ref2));
}

static void fill_leaves(golden *c)
{
    for (int i = 0; i < c->g->n_tensors; i++) {
        af_tensor *t = c->g->tensors[i];
        if (t->role != AF_ROLE_PARAM && t->role != AF_ROLE_INPUT)
            continue;
        const af_stored *s = find(c, "in", t->name);
        CHECK_MSG(s && s->bytes == af_tensor_bytes(t), "%s: no input '%s'", c->name, t->name);
        memcpy(t->data, s->data, s->bytes);
    }
}

static void compare_all(golden *c, const af_tensor *out)
{
    compare(c->name, "out", out, find(c, "out", ""));
    for (int i = 0; i < c->g->n_tensors; i++) {
        const af_tensor *t = c->g->tensors[i];
        if (t->role == AF_ROLE_PARAM && t->grad)
            compare(c->name, t->name, t->grad, find(c, "grad", t->name));
        else if (t->role == AF_ROLE_PARAM && c->g->differentiated)
            fail_msg("%s: '%s' has no gradient", c->name, t->name);
    }
    if (c->rows)
        compare(c->name, "rows", c->rows, find(c, "rows", ""));
}

static void check_case(const char *name, golden_build *build, int variant, int threads)
{
    af_error err = {0};
    af_device *device;
    char path[4096];
    golden c = {.name = name};
    snprintf(path, sizeof path, "%s/ops/%s_ops.safetensors", golden_dir(),
             strncmp(name, "experts", 7) == 0 ? "moe"
             : strncmp(name, "oft", 3) == 0   ? "oft"
                                              : "lm");
    CHECK_OK(af_safetensors_open(&c.file, path, &err), err);
    CHECK_OK(af_graph_new(&c.g, &err), err);
    CHECK_OK(af_cpu_open(&device, threads, &err), err);
    ((af_cpu *)device)->twins_only = true;
    ((af_cpu *)device)->poison = true;
    af_tensor *out = build(&c, variant), *mix = leaf(&c, "mix"), *loss = out;
    af_graph_output(c.g, out);
    if (mix)
        loss = af_sum_all(c.g, af_mul(c.g, out, mix));
    if (strcmp(name, "dora_norm") != 0) /* a constant for the gradient */
        af_graph_backward(c.g, loss);
    if (c.rows)
        af_graph_output(c.g, c.rows);
    if (af_graph_prepare(c.g, device, &err) != AF_OK)
        fail_msg("%s: %s", name, err.msg);
    fill_leaves(&c);
    CHECK_OK(af_graph_run(c.g, c.g->differentiated ? AF_RUN_GRAD : AF_RUN_FORWARD, &err), err);
    compare_all(&c, out);
    af_graph_free(c.g);
    af_device_close(device);
    af_safetensors_close(c.file);
}

static void check(const char *name, golden_build *build, int variant)
{
    for (int threads = 1; threads <= 3; threads++)
        check_case(name, build, variant, threads);
}

static af_tensor *embedding(golden *c, int variant)
{
    (void)variant;
    return af_embedding(c->g, leaf(c, "ids"), leaf(c, "table"), AF_DTYPE_F64);
}

static af_tensor *rmsnorm(golden *c, int plus_one)
{
    return af_rmsnorm(c->g, leaf(c, "x"), leaf(c, "w"), 1e-5, plus_one);
}

static af_tensor *rmsnorm_add(golden *c, int plus_one)
{
    af_tensor *sum, *x = leaf(c, "x"), *r = leaf(c, "r"), *w = leaf(c, "w");
    af_tensor *y = af_rmsnorm_add(c->g, x, r, w, 1e-6, plus_one, &sum);
    return af_add(c->g, af_scale(c->g, y, 2), sum);
}

static void test_embedding_and_norms(void **state)
{
    (void)state;
    check("embedding", embedding, 0);
    check("rmsnorm", rmsnorm, 0);
    check("rmsnorm_one", rmsnorm, 1);
    check("rmsnorm_add", rmsnorm_add, 0);
    check("rmsnorm_add_one", rmsnorm_add, 1);
}

static const af_rope_opts rope_cases[] = {
    {.rotary_dim = 0}, {.rotary_dim = 4, .scale = 1.25},      {.rotary_dim = 6},
    {.rotary_dim = 4}, {.scale = 1.1, .norm_plus_one = true}, {.rotary_dim = 0},
};

static af_tensor *rope(golden *c, int variant)
{
    af_rope_opts o = rope_cases[variant];
    o.heads = 4, o.kv_heads = 2, o.head_dim = 6, o.norm_eps = 1e-6;
    o.q_norm = leaf(c, "q_norm");
    o.k_norm = leaf(c, "k_norm");
    return af_rope(c->g, leaf(c, "qkv"), leaf(c, "positions"), leaf(c, "freq"), &o);
}

static void test_rope(void **state)
{
    (void)state;
    static const char *const name[] = {"rope",       "rope_partial", "rope_heads",
                                       "rope_whole", "rope_one",     "rope_none"};
    for (int i = 0; i < (int)AF_LEN(name); i++)
        check(name[i], rope, i);
}

static const struct {
    const char *name;
    af_attention_opts o;
} attention_cases[] = {
    {"attention", {.heads = 4, .kv_heads = 2, .causal = true}},
    {"attention_mha", {.heads = 3, .kv_heads = 3, .causal = true, .scale = 0.4}},
    {"attention_mqa", {.heads = 4, .kv_heads = 1, .causal = true, .window = 4}},
    {"attention_cap", {.heads = 4, .kv_heads = 2, .causal = true, .window = 7, .softcap = 1.5}},
    {"attention_full", {.heads = 2, .kv_heads = 1}},
    {"attention_full_cap", {.heads = 2, .kv_heads = 2, .softcap = 2.0}},
};

static af_tensor *attention(golden *c, int variant)
{
    af_attention_opts o = attention_cases[variant].o;
    o.head_dim = 5;
    return af_attention(c->g, leaf(c, "qkv"), leaf(c, "bounds"), &o);
}

static void test_attention_over_packed_sequences(void **state)
{
    (void)state;
    for (int i = 0; i < (int)AF_LEN(attention_cases); i++)
        check(attention_cases[i].name, attention, i);
}

static af_tensor *glu(golden *c, int act) { return af_glu(c->g, leaf(c, "x"), (af_act)act); }

static void test_glu(void **state)
{
    (void)state;
    check("glu_silu", glu, AF_ACT_SILU);
    check("glu_gelu_tanh", glu, AF_ACT_GELU_TANH);
    check("glu_gelu", glu, AF_ACT_GELU);
    check("glu_relu", glu, AF_ACT_RELU);
}

enum { LINEAR_PLAIN, LINEAR_LORA, LINEAR_ONLY, LINEAR_DORA };

static af_tensor *linear(golden *c, int variant)
{
    static const af_adapter_part parts[][2] = {
        [LINEAR_LORA] = {{0, 5, 0, 3, 0.5f}, {7, 4, 3, 2, 2.0f}},
        [LINEAR_ONLY] = {{2, 4, 0, 2, 0.25f}},
        [LINEAR_DORA] = {{0, 5, 0, 2, 0.5f}, {6, 2, 2, 3, 1.5f}},
    };
    static const int count[] = {0, 2, 1, 2};
    static const char *const w[] = {"w0", "w1", "w2"}, *const b[] = {"bias0", "bias1", "bias2"};
    af_linear_opts o = {.parts = count[variant], .out = variant == LINEAR_ONLY ? 7 : 0};
    af_tensor *x = leaf(c, "x");
    for (int i = 0; i < 3; i++) {
        o.weight[i] = leaf(c, w[i]);
        o.bias[i] = leaf(c, b[i]);
        o.pieces += o.weight[i] != NULL;
    }
    o.a = leaf(c, "a");
    o.b = leaf(c, "b");
    memcpy(o.part, parts[variant], (size_t)o.parts * sizeof o.part[0]);
    return variant == LINEAR_DORA ? af_dora_norm(c->g, &o) : af_linear(c->g, x, &o);
}

static void test_linear(void **state)
{
    (void)state;
    check("linear", linear, LINEAR_PLAIN);
    check("linear_bias", linear, LINEAR_PLAIN);
    check("linear_lora", linear, LINEAR_LORA);
    check("linear_only", linear, LINEAR_ONLY);
    check("dora_norm", linear, LINEAR_DORA);
}

static af_tensor *head(golden *c, int variant)
{
    af_head_opts o = {.scale = leaf(c, "scale"), .rows = &c->rows};
    if (variant)
        o.softcap = 2.5, o.logit_scale = 0.75, o.smoothing = 0.125;
    af_tensor *h = leaf(c, "h"), *w = leaf(c, "w");
    return af_head_loss(c->g, h, w, leaf(c, "labels"), &o);
}

static void test_head_loss(void **state)
{
    (void)state;
    check("head", head, 0);
    check("head_full", head, 1);
}

static af_tensor *moe(golden *c, int variant)
{
    const af_route_opts route = {.used = 2, .norm = variant > 0};
    af_tensor *index, *w = af_moe_route(c->g, leaf(c, "logits"), &route, &index), *x = leaf(c, "x");
    const af_experts_opts o = {.gate_up.weight = leaf(c, "gate_up"),
                               .down.weight = leaf(c, "down"),
                               .act = variant == 1 ? AF_ACT_GELU : AF_ACT_SILU};
    return af_moe_ffn(c->g, x, w, index, &o);
}

/* Groups, adapters; variant: as DeepSeek V3, with biases and the clamped unit, else as V2 */
static af_tensor *experts(golden *c, int v3)
{
    const af_route_opts route = {.used = 3,
                                 .score = v3 ? AF_ROUTE_SIGMOID : AF_ROUTE_SOFTMAX,
                                 .bias = leaf(c, "choice"),
                                 .norm = v3,
                                 .eps = 1e-20,
                                 .scale = 1.75,
                                 .groups = 4,
                                 .groups_used = 2,
                                 .group_best = v3 ? 2 : 1};
    af_tensor *index, *w = af_moe_route(c->g, leaf(c, "logits"), &route, &index), *x = leaf(c, "x");
    const af_experts_opts o = {
        .gate_up = {leaf(c, "gate_up"), leaf(c, "gu_bias"), leaf(c, "gu_a"), leaf(c, "gu_b"), 0.5},
        .down = {leaf(c, "down"), leaf(c, "d_bias"), leaf(c, "d_a"), leaf(c, "d_b"), 0.5},
        .clamp = v3 ? 0.75 : 0};
    return af_moe_ffn(c->g, x, w, index, &o);
}

static void test_moe(void **state)
{
    (void)state;
    check("moe", moe, 0);
    check("moe_norm", moe, 1);
    check("moe_frozen", moe, 2);
    check("experts_v3", experts, 1);
    check("experts_v2", experts, 0);
}

/* terms: 0 = exact */
static af_tensor *oft(golden *c, int terms)
{
    af_tensor *q = leaf(c, "q"), *x = leaf(c, "x");
    int64_t n = 2;
    while (n * (n - 1) / 2 < q->dim[1])
        n++;
    return af_oft_rotate(c->g, x,
                         af_oft_blocks(c->g, q, &(af_oft_opts){n, terms, .exact = terms == 0}));
}

static void test_rotations_of_peft(void **state)
{
    (void)state;
    check("oft", oft, 5);
    check("oft_exact", oft, 0);
    check("oft_share", oft, 5);
    check("oft_2", oft, 2);
    check("oft_3", oft, 3);
    check("oft_7", oft, 7);
}

static af_tensor *block(golden *c, int recompute)
{
    af_graph_set_recompute(c->g, (af_recompute)recompute, 2);
    return lm_block_build(c->g, block_leaf, c);
}

static void test_two_layer_decoder_in_every_recompute_mode(void **state)
{
    (void)state;
    for (int mode = AF_RECOMPUTE_NONE; mode <= AF_RECOMPUTE_BLOCK; mode++)
        check("block", block, mode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_and_norms),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_attention_over_packed_sequences),
        cmocka_unit_test(test_glu),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_head_loss),
        cmocka_unit_test(test_moe),
        cmocka_unit_test(test_rotations_of_peft),
        cmocka_unit_test(test_two_layer_decoder_in_every_recompute_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
