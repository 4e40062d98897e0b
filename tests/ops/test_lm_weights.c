/* test_lm_weights.c - a weight of any type acts exactly as its dequantised values do; and a
 * wrong call is reported with both values. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "tensor/codec.h"
#include "tensor/codec_bnb.h"

#include <math.h>

enum { ROWS = 5, N = 3 };

typedef struct type_case {
    af_dtype type;
    int64_t width;
    int block, nested_block; /* nf4 and fp4 */
    af_dtype round;
} type_case;

static const type_case cases[] = {
    {.type = AF_DTYPE_F32, .width = 17},
    {.type = AF_DTYPE_BF16, .width = 17},
    {.type = AF_DTYPE_F16, .width = 17},
    {.type = AF_DTYPE_E4M3, .width = 17},
    {.type = AF_DTYPE_E5M2, .width = 17},
    {.type = AF_DTYPE_Q4_0, .width = 96},
    {.type = AF_DTYPE_Q4_1, .width = 96},
    {.type = AF_DTYPE_Q5_0, .width = 96},
    {.type = AF_DTYPE_Q5_1, .width = 96},
    {.type = AF_DTYPE_Q8_0, .width = 288},
    {.type = AF_DTYPE_Q2_K, .width = 256},
    {.type = AF_DTYPE_Q3_K, .width = 256},
    {.type = AF_DTYPE_Q4_K, .width = 512},
    {.type = AF_DTYPE_Q5_K, .width = 256},
    {.type = AF_DTYPE_Q6_K, .width = 512},
    {.type = AF_DTYPE_IQ4_NL, .width = 96},
    {.type = AF_DTYPE_IQ4_XS, .width = 256}, /* nf4 and fp4: blocks ignore the ends of rows */
    {.type = AF_DTYPE_NF4, .width = 96, .block = 64, .round = AF_DTYPE_F32},
    {.type = AF_DTYPE_NF4, .width = 300, .block = 512, .round = AF_DTYPE_BF16},
    {.type = AF_DTYPE_FP4, .width = 33, .block = 64, .round = AF_DTYPE_F16},
    {.type = AF_DTYPE_NF4, .width = 33, .block = 64, .nested_block = 2, .round = AF_DTYPE_BF16},
};

typedef struct both {
    af_graph *g;
    af_device *d;
    const type_case *c;
    af_tensor *packed, *plain; /* the weight, and what it means, in f64 */
    af_quant quant;
} both;

static void add_weights(both *b)
{
    const int64_t dim[2] = {ROWS, b->c->width};
    b->packed = af_graph_weight(b->g, "packed", b->c->type, 2, dim);
    b->plain = af_graph_weight(b->g, "plain", AF_DTYPE_F64, 2, dim);
    if (b->c->block == 0)
        return;
    const int64_t blocks = af_bnb_blocks(ROWS * b->c->width, b->c->block);
    b->quant =
        (af_quant){.block = b->c->block, .nested_block = b->c->nested_block, .round = b->c->round};
    b->quant.absmax = af_graph_weight(b->g, "absmax",
                                      b->c->nested_block ? AF_DTYPE_U8 : AF_DTYPE_F32, 1, &blocks);
    const int64_t nested =
        b->c->nested_block ? (blocks + b->c->nested_block - 1) / b->c->nested_block : 1;
    b->quant.nested = af_graph_weight(b->g, "nested", AF_DTYPE_F32, 1, &nested);
    b->packed->quant = &b->quant;
}

/* 4-bit codes, and their meaning worked out here from the tables. */
static void fill_bnb(both *b, const float *x, int64_t n)
{
    const int64_t block = b->c->block, blocks = af_bnb_blocks(n, block);
    float absmax[64];
    uint8_t *codes = b->packed->data;
    assert_true(blocks <= 64);
    af_bnb_encode(b->c->type, x, n, block, codes, absmax);
    if (b->c->nested_block) { /* any codes and scales do: what they mean is the format's rule */
        uint8_t *q = b->quant.absmax->data;
        float *nested = b->quant.nested->data;
        b->quant.offset = 0.25f;
        for (int64_t i = 0; i < blocks; i++) {
            q[i] = (uint8_t)(200 + i);
            nested[i / b->c->nested_block] = 0.5f + (float)(i / b->c->nested_block);
        }
        for (int64_t i = 0; i < blocks; i++)
            absmax[i] = af_bnb_map(true)[q[i]] * nested[i / b->c->nested_block] + b->quant.offset;
    } else {
        memcpy(b->quant.absmax->data, absmax, (size_t)blocks * sizeof *absmax);
    }
    for (int64_t i = 0; i < n; i++) {
        const int code = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
        const float v = af_bnb_table(b->c->type)[code] * absmax[i / block];
        uint8_t rounded[4];
        af_convert(rounded, b->c->round, &v, AF_DTYPE_F32, 1);
        af_st(b->plain, i, af_load_f64(rounded, b->c->round, 0));
    }
}

static void fill_weights(both *b)
{
    const int64_t W = b->c->width, n = ROWS * W;
    float x[ROWS * 512], back[512];
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(2 * af_rng_f64(5, 1, (uint64_t)i) - 1);
    if (b->c->block) {
        fill_bnb(b, x, n);
        return;
    }
    for (int64_t r = 0; r < ROWS; r++) {
        uint64_t bytes = 0;
        assert_true(af_dtype_bytes(b->c->type, (uint64_t)W, &bytes));
        uint8_t *row = (uint8_t *)b->packed->data + (uint64_t)r * bytes;
        if (af_dtype_is_block(b->c->type)) {
            af_codec_encode_row(b->c->type, x + r * W, row, W, NULL);
            af_codec_decode_row(b->c->type, row, back, W);
        } else {
            af_convert(row, b->c->type, x + r * W, AF_DTYPE_F32, (uint64_t)W);
            af_convert(back, AF_DTYPE_F32, row, b->c->type, (uint64_t)W);
        }
        for (int64_t i = 0; i < W; i++)
            af_st(b->plain, r * W + i, back[i]);
    }
}

/* Everything that reads weights, on the packed and on the plain one; values and gradients. */
typedef struct results {
    af_tensor *x, *linear, *loss, *rows;
} results;

static results record(both *b, af_tensor *w, af_tensor *ids, const char *name)
{
    results r = {.x = af_graph_param(b->g, name, AF_DTYPE_F64, 2, (int64_t[]){N, b->c->width})};
    r.linear = af_linear(b->g, r.x, &(af_linear_opts){.weight[0] = w, .pieces = 1});
    r.loss = af_head_loss(b->g, r.x, w, ids, &(af_head_opts){0});
    r.rows = af_embedding(b->g, ids, w, AF_DTYPE_F64);
    af_graph_output(b->g, r.linear);
    af_graph_output(b->g, r.rows);
    af_graph_output(b->g, r.loss);
    return r;
}

static void check_type(const type_case *c)
{
    af_error err = {0};
    both b = {.c = c};
    CHECK_OK(af_graph_new(&b.g, &err), err);
    CHECK_OK(af_cpu_open(&b.d, 2, &err), err);
    ((af_cpu *)b.d)->twins_only = true;
    add_weights(&b);
    af_tensor *ids = af_graph_input(b.g, "ids", AF_DTYPE_I32, 1, (int64_t[]){N});
    const results p = record(&b, b.packed, ids, "xp"), q = record(&b, b.plain, ids, "xq");
    af_tensor *total = af_add(b.g, af_sum_all(b.g, p.linear), af_sum_all(b.g, q.linear));
    total = af_add(b.g, total, af_add(b.g, p.loss, q.loss));
    af_graph_backward(b.g, total);
    CHECK_OK(af_graph_prepare(b.g, b.d, &err), err);
    fill_weights(&b);
    memcpy(ids->data, (int32_t[]){4, 0, 3}, N * sizeof(int32_t));
    for (int64_t i = 0; i < N * c->width; i++)
        ((double *)p.x->data)[i] = ((double *)q.x->data)[i] = 2 * af_rng_f64(6, 1, (uint64_t)i) - 1;
    CHECK_OK(af_graph_run(b.g, AF_RUN_GRAD, &err), err);
    const af_tensor *const pairs[][2] = {
        {p.linear, q.linear}, {p.loss, q.loss}, {p.rows, q.rows}, {p.x->grad, q.x->grad}};
    for (size_t k = 0; k < AF_LEN(pairs); k++)
        for (int64_t i = 0; i < af_count(pairs[k][0]); i++)
            CHECK_MSG(af_ld(pairs[k][0], i) == af_ld(pairs[k][1], i),
                      "%s: result %zu, element %d: %.17g, dequantised %.17g",
                      af_dtype_name(c->type), k, (int)i, af_ld(pairs[k][0], i),
                      af_ld(pairs[k][1], i));
    CHECK_MSG(af_ld_weight(b.packed, 7) == af_ld(b.plain, 7), "single value");
    af_graph_free(b.g);
    af_device_close(b.d);
}

static void test_packed_weights_are_their_dequantised_selves(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        check_type(&cases[i]);
}

/* ---- wrong calls ---- */

typedef struct leaves {
    af_tensor *x, *w, *i32, *norm, *block, *cache;
} leaves;

static void bad_norm(af_graph *g, const leaves *l) { af_rmsnorm(g, l->x, l->w, 1e-5, false); }
static void bad_add(af_graph *g, const leaves *l)
{
    af_tensor *sum;
    af_rmsnorm_add(g, l->x, l->w, l->norm, 1e-5, false, &sum);
}
static void bad_embedding(af_graph *g, const leaves *l)
{
    af_embedding(g, l->x, l->w, AF_DTYPE_F32);
}
static void bad_glu(af_graph *g, const leaves *l) { af_glu(g, l->x, AF_ACT_SILU); }
static void bad_linear(af_graph *g, const leaves *l)
{
    af_linear(g, l->w, &(af_linear_opts){.weight[0] = l->x, .pieces = 1});
}
static void bad_type(af_graph *g, const leaves *l)
{
    af_linear(g, l->x, &(af_linear_opts){.weight[0] = l->block, .pieces = 1});
}
static void bad_rank(af_graph *g, const leaves *l)
{
    af_linear_opts o = {.weight[0] = l->x, .pieces = 1, .a = l->x, .b = l->norm, .parts = 1};
    o.part[0] = (af_adapter_part){0, 3, 1, 3, 1.0f};
    af_linear(g, l->x, &o);
}
static void bad_rope(af_graph *g, const leaves *l)
{
    const af_rope_opts o = {.heads = 2, .kv_heads = 1, .head_dim = 4};
    af_rope(g, l->x, l->i32, NULL, &o);
}
static void bad_attention(af_graph *g, const leaves *l)
{
    const af_attention_opts o = {.heads = 3, .kv_heads = 2, .head_dim = 1};
    af_attention(g, l->x, l->i32, &o);
}
static void bad_cache(af_graph *g, const leaves *l)
{
    const af_attention_opts o = {.heads = 3, .kv_heads = 1, .head_dim = 1, .causal = true};
    af_attention_cached(g, l->x, l->cache, l->i32, l->i32, &o);
}
static void bad_head(af_graph *g, const leaves *l)
{
    af_head_loss(g, l->x, l->w, l->i32, &(af_head_opts){0});
}
static void bad_route(af_graph *g, const leaves *l)
{
    af_tensor *index;
    af_moe_route(g, l->x, &(af_route_opts){.used = 9, .norm = true}, &index);
}

static void test_wrong_calls_name_both_values(void **state)
{
    (void)state;
    static const struct {
        void (*call)(af_graph *g, const leaves *l);
        const char *first, *second;
    } wrong[] = {
        {bad_norm, "[3 x 5] f32", "[4 x 6] f32"},      {bad_add, "[3 x 5] f32", "[4 x 6] f32"},
        {bad_embedding, "[3 x 5] f32", "[4 x 6] f32"}, {bad_glu, "[3 x 5] f32", "5 columns"},
        {bad_linear, "[3 x 5] f32", "6 columns"},      {bad_type, "e8m0", "5 columns"},
        {bad_rank, "3 ranks from 1 on", "of 3"},       {bad_rope, "[3 x 5] f32", "16 columns"},
        {bad_attention, "3 heads", "2 kv heads"},      {bad_cache, "[3] i32", "[3] i32"},
        {bad_head, "[3 x 5] f32", "[4 x 6] f32"},      {bad_route, "9 experts", "[3 x 5] f32"},
    };
    for (size_t i = 0; i < AF_LEN(wrong); i++) {
        af_error err = {0};
        af_graph *g;
        CHECK_OK(af_graph_new(&g, &err), err);
        leaves l = {.x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){3, 5})};
        l.w = af_graph_weight(g, "w", AF_DTYPE_F32, 2, (int64_t[]){4, 6});
        l.norm = af_graph_weight(g, "n", AF_DTYPE_F32, 1, (int64_t[]){5});
        l.i32 = af_graph_input(g, "i", AF_DTYPE_I32, 1, (int64_t[]){3});
        l.block = af_graph_weight(g, "q", AF_DTYPE_E8M0, 2, (int64_t[]){256, 5});
        l.cache = af_graph_state(g, "cache", AF_DTYPE_F32, 3, (int64_t[]){2, 7, 4});
        wrong[i].call(g, &l);
        CHECK_MSG(af_graph_status(g, &err) == AF_EUSAGE, "case %zu was accepted", i);
        CHECK_MSG(strstr(err.msg, wrong[i].first) && strstr(err.msg, wrong[i].second),
                  "case %zu says: %s", i, err.msg);
        af_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_weights_are_their_dequantised_selves),
        cmocka_unit_test(test_wrong_calls_name_both_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
