/* test_fast_attention.c - blockwise attention and the chunked head loss against their twins. */
#include "fast_tables.h"
#include "fastcheck.h"

static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_BF16};

/* variants */
static const struct {
    int heads, kv_heads, window;
    double softcap;
    bool causal;
} kinds[] = {
    {2, 2, 0, 0, true},  {6, 2, 0, 0, true},    {4, 1, 7, 0, true},  {4, 2, 0, 5, true},
    {3, 3, 0, 0, false}, {4, 2, 100, 30, true}, {5, 1, 40, 0, true},
};

/* rows, head size, sequences (the last row or two belong to none where rows allow) */
static const int64_t shapes[][3] = {{1, 2, 1},    {9, 6, 3},    {70, 16, 2}, {333, 20, 1},
                                    {300, 64, 4}, {290, 96, 2}, {97, 80, 1}, {70, 256, 2}};

static void fill_bounds(fastcheck *c, af_tensor *t)
{
    if (strcmp(t->name, "bounds") != 0)
        return;
    int32_t *b = t->data;
    const int64_t S = c->shape[2], N = c->live ? c->live : c->shape[0];
    for (int64_t s = 0; s <= S; s++) /* uneven: the first sequences are short, one may be empty */
        b[s] = (int32_t)(N * s * s / (S * S));
    if (N > 4)
        b[S] = (int32_t)N - 2;
    if (b[S] < b[S - 1])
        b[S] = b[S - 1];
    b[0] = N > 8 ? 1 : 0;
    for (int64_t s = 1; s <= S; s++)
        b[s] = b[s] < b[s - 1] ? b[s - 1] : b[s];
}

static af_attention_opts opts_of(const fastcheck *c)
{
    return (af_attention_opts){.heads = kinds[c->variant].heads,
                               .kv_heads = kinds[c->variant].kv_heads,
                               .head_dim = (int)c->shape[1],
                               .window = kinds[c->variant].window,
                               .softcap = kinds[c->variant].softcap,
                               .causal = kinds[c->variant].causal};
}

static af_tensor *build_attention(fastcheck *c)
{
    const af_attention_opts o = opts_of(c);
    af_tensor *qkv = fc_rows(c, (int64_t)(o.heads + 2 * o.kv_heads) * o.head_dim);
    af_tensor *b = af_graph_input(c->g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){c->shape[2] + 1});
    return af_attention(c->g, qkv, b, &o);
}

static void test_attention(void **state)
{
    (void)state;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t s = 0; s < AF_LEN(shapes); s++)
            for (int v = 0; v < (int)AF_LEN(kinds); v++) {
                if (!test_takes_few(t + s + (size_t)v))
                    continue;
                fastcheck c = {.type = types[t], .shape = shapes[s], .variant = v};
                c.fill = fill_bounds;
                c.live = v == 1 ? (shapes[s][0] + 1) / 2 : 0;
                /* probabilities and their gradients are rounded to bf16 inside: two more roundings
                 * of 2^-9 than the twin makes, and dq, dk are differences of larger numbers */
                c.limit = types[t] == AF_DTYPE_BF16 ? 2e-2 : 2e-5;
                choose_form(af_fast_get(), s);
                fastcheck_run("attention", build_attention, c);
            }
}

/* Packed sequences of very different lengths: the long ones are cut into parts, one that ends
 * inside a block of queries, the others not. More threads than parts must not change a bit either.
 */
static const int32_t ragged[] = {0, 5, 5, 305, 369, 370, 521, 600};

static void fill_ragged(fastcheck *c, af_tensor *t)
{
    (void)c;
    if (strcmp(t->name, "bounds") == 0)
        memcpy(t->data, ragged, sizeof ragged);
}

static void test_threads_on_ragged_sequences(void **state)
{
    static const int64_t shape[3] = {600, 32, AF_LEN(ragged) - 1};
    static const int threads[] = {2, 3, 16};
    (void)state;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (int v = 0; v < (int)AF_LEN(kinds); v++) {
            if (!test_takes(t + (size_t)v))
                continue;
            const double limit = types[t] == AF_DTYPE_BF16 ? 2e-2 : 2e-5; /* as above */
            const fastcheck c = {
                .type = types[t], .shape = shape, .variant = v, .steps = 1, .fill = fill_ragged};
            fastcheck twin = fc_run(c, build_attention, 1, true),
                      one = fc_run(c, build_attention, 1, false);
            fc_compare(&twin, &one, limit, "ragged sequences");
            for (size_t i = 0; i < AF_LEN(threads) && test_takes(i); i++) {
                choose_form(af_fast_get(), i + 1);
                fastcheck more = fc_run(c, build_attention, threads[i], false);
                choose_form(af_fast_get(), 0);
                fc_compare(&one, &more, 0, "threads change the result");
                fc_clear(&more);
            }
            fc_clear(&twin);
            fc_clear(&one);
        }
}

/* One query is not a number: neither is its result, and no other one changes. */
enum { BAD_ROW = 40 };

static af_tensor *build_direct(fastcheck *c)
{
    const af_attention_opts o = {
        .heads = 2, .kv_heads = 1, .head_dim = (int)c->shape[1], .causal = true};
    af_tensor *p = fc_param(c, "qkv", c->shape[0], 4 * c->shape[1]),
              *b = af_graph_input(c->g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    return af_attention(c->g, c->type == AF_DTYPE_F32 ? p : af_cast(c->g, p, c->type), b, &o);
}

static void fill_bad_row(fastcheck *c, af_tensor *t)
{
    if (strcmp(t->name, "bounds") == 0)
        ((int32_t *)t->data)[1] = (int32_t)c->shape[0];
    if (strcmp(t->name, "qkv") == 0)
        ((float *)t->data)[BAD_ROW * 4 * c->shape[1]] = NAN;
}

static void test_what_is_not_a_number_stays_so(void **state)
{
    static const int64_t shape[3] = {70, 32, 1};
    (void)state;
    for (size_t t = 0; t < AF_LEN(types) && af_fast_get()->attention; t++) {
        fastcheck c = {.type = types[t], .shape = shape, .steps = 1, .fill = fill_bad_row};
        c = fc_run(c, build_direct, 1, false);
        for (int64_t i = 0; i < c.count[0]; i++) {
            const bool bad = i / 32 == 2 * BAD_ROW; /* rows of two heads of 32 */
            CHECK_MSG(isfinite(c.value[0][i]) == !bad, "type %d: %g at %d", (int)t, c.value[0][i],
                      (int)i);
        }
        fc_clear(&c);
    }
}

static void fill_large(fastcheck *c, af_tensor *t)
{
    if (strcmp(t->name, "bounds") == 0)
        ((int32_t *)t->data)[1] = (int32_t)c->shape[0];
    for (int64_t i = 0; strcmp(t->name, "qkv") == 0 && i < af_count(t); i++)
        ((float *)t->data)[i] *= 1e6f;
}

/* Rounding alone changes scores beyond 10^9 by more than a float's exponent holds. */
static void test_large_scores_stay_finite(void **state)
{
    static const int64_t shape[3] = {70, 32, 1};
    (void)state;
    if (!af_fast_get()->attention)
        return;
    fastcheck c = {.type = AF_DTYPE_F32, .shape = shape, .steps = 1, .fill = fill_large};
    c = fc_run(c, build_direct, 1, false);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < c.count[k]; i++)
            CHECK_MSG(isfinite(c.value[k][i]), "%s: %g at %d", k ? "gradient" : "result",
                      c.value[k][i], (int)i);
    fc_clear(&c);
}

/* A prompt, then single tokens, through the cache; both devices must agree. */
static void cached_outputs(const int64_t *shape, af_dtype type, int variant, int threads,
                           int64_t page, double *out)
{
    const bool twins = page == 0; /* whose cache is one page */
    fastcheck c = {.type = type, .shape = shape, .variant = variant};
    af_attention_opts o = opts_of(&c);
    const int64_t M = page ? (shape[0] + 3 + page) / page : 1;
    const int64_t T = shape[0], W = (int64_t)(o.heads + 2 * o.kv_heads) * o.head_dim,
                  Y = (int64_t)o.heads * o.head_dim;
    af_error err = {0};
    CHECK_OK(af_graph_new(&c.g, &err), err);
    CHECK_OK(af_cpu_open(&c.device, threads, &err), err);
    ((af_cpu *)c.device)->twins_only = twins;
    af_graph_set_rows(c.g, T);
    af_tensor *x = af_graph_input(c.g, "x", type, 2, (int64_t[]){T, W});
    af_tensor *cache = af_graph_state(
        c.g, "cache", type, 3, (int64_t[]){M, page ? page : T + 4, 2 * o.kv_heads * o.head_dim});
    af_tensor *b = af_graph_input(c.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    af_tensor *start = af_graph_input(c.g, "start", AF_DTYPE_I32, 1, (int64_t[]){1});
    if (page)
        o.pages = af_graph_input(c.g, "pages", AF_DTYPE_I32, 2, (int64_t[]){1, M});
    af_tensor *y = af_attention_cached(c.g, x, cache, b, start, &o);
    af_graph_output(c.g, y);
    CHECK_OK(af_graph_prepare(c.g, c.device, &err), err);
    for (int64_t i = 0; i < M && page; i++) /* from the last to the first */
        ((int32_t *)o.pages->data)[i] = (int32_t)(M - 1 - i);
    for (int step = 0; step < 4; step++) {
        af_graph_set_one_token(c.g, step > 0 && variant % 2, 1);
        const int64_t live = step == 0 ? T : 1;
        fc_fill_floats(&c, x);
        for (int64_t i = 0; step > 0 && i < W; i++)
            af_store_f64(x->data, type, (uint64_t)i, af_rng_normal(5, (uint64_t)step, (uint64_t)i));
        af_graph_set_live_rows(c.g, live);
        ((int32_t *)b->data)[0] = 0;
        ((int32_t *)b->data)[1] = (int32_t)live;
        ((int32_t *)start->data)[0] = step == 0 ? 0 : (int32_t)(T + step - 1);
        CHECK_OK(af_graph_run(c.g, AF_RUN_FORWARD, &err), err);
        af_ld_row(y, (live - 1) * Y, Y, out + step * Y);
    }
    af_graph_free(c.g);
    af_device_close(c.device);
}

static void test_attention_cached(void **state)
{
    (void)state;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t s = 0; s < AF_LEN(shapes); s++)
            for (int v = 0; v < (int)AF_LEN(kinds); v++) {
                if (!test_takes_few(t + s + (size_t)v))
                    continue;
                const int64_t n = 4 * kinds[v].heads * shapes[s][1];
                double *a = calloc((size_t)n, sizeof *a), *b = calloc((size_t)n, sizeof *b),
                       err2 = 0, ref2 = 0;
                cached_outputs(shapes[s], types[t], v, 1, 0, a);
                cached_outputs(shapes[s], types[t], v, 2, v % 3 == 0 ? 7 : 128, b);
                for (int64_t i = 0; i < n; i++) {
                    err2 += (a[i] - b[i]) * (a[i] - b[i]);
                    ref2 += a[i] * a[i];
                }
                CHECK_MSG(sqrt(err2) <= (t ? 1e-2 : 1e-5) * sqrt(ref2),
                          "cached attention: %.3g of %.3g (type %d, shape %d, variant %d)",
                          sqrt(err2), sqrt(ref2), (int)t, (int)s, v);
                free(a);
                free(b);
            }
}

static void fill_labels(fastcheck *c, af_tensor *t)
{
    if (strcmp(t->name, "labels") == 0)
        for (int64_t i = 0; i < af_count(t); i++)
            ((int32_t *)t->data)[i] = (i + c->variant) % 3 == 0 || c->variant == 3
                                          ? -100
                                          : (int32_t)(i * 31 % c->shape[2]);
    if (strcmp(t->name, "scale") == 0)
        ((float *)t->data)[0] = 0.125f;
}

/* variants: plain, smoothing and a scale, soft cap with small chunks, no label at all */
static af_tensor *build_head(fastcheck *c)
{
    const int v = c->variant;
    af_tensor *h = fc_rows(c, c->shape[1]);
    af_tensor *labels = af_graph_input(c->g, "labels", AF_DTYPE_I32, 1, (int64_t[]){c->shape[0]});
    af_head_opts o = {.smoothing = v == 1 ? 0.1 : 0, .softcap = v == 2 ? 4 : 0};
    o.logit_scale = v == 2 ? 0.5 : 0;
    o.chunk_rows = v == 2 ? 16 : 0;
    o.scale = v == 1 ? af_graph_input(c->g, "scale", AF_DTYPE_F32, 1, (int64_t[]){1}) : NULL;
    return af_head_loss(c->g, h, fc_param(c, "head", c->shape[2], c->shape[1]), labels, &o);
}

static void test_head(void **state)
{
    static const int64_t sizes[][3] = {{1, 4, 3},      {7, 16, 65},    {65, 33, 130},
                                       {90, 64, 1030}, {300, 8, 9001}, {1100, 8, 33}};
    (void)state;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t s = 0; s < AF_LEN(sizes); s++)
            for (int v = 0; v < 4; v++) {
                if (!test_takes(t + s + (size_t)v))
                    continue;
                fastcheck c = {.type = types[t], .shape = sizes[s], .variant = v};
                c.fill = fill_labels;
                c.live = v == 1 ? (sizes[s][0] + 1) / 2 : 0;
                c.limit = types[t] == AF_DTYPE_BF16 ? 1e-2 : 2e-5; /* logits' gradients in bf16 */
                fastcheck_run("head_loss", build_head, c);
            }
}

/* Of equal logits the first is the prediction, in the fast version as in its twin. */
static void test_the_first_of_equal_logits_is_predicted(void **state)
{
    enum { ROWS = 140, WIDTH = 8, VOCAB = 70 };
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        af_error err = {0};
        fastcheck c = {.type = AF_DTYPE_F32};
        af_tensor *rows = NULL;
        CHECK_OK(af_graph_new(&c.g, &err), err);
        CHECK_OK(af_cpu_open(&c.device, 1, &err), err);
        ((af_cpu *)c.device)->twins_only = !fast;
        af_tensor *h = af_graph_input(c.g, "h", c.type, 2, (int64_t[]){ROWS, WIDTH}),
                  *labels = af_graph_input(c.g, "labels", AF_DTYPE_I32, 1, (int64_t[]){ROWS}),
                  *head = fc_param(&c, "head", VOCAB, WIDTH);
        af_graph_output(c.g, af_head_loss(c.g, h, head, labels, &(af_head_opts){.rows = &rows}));
        af_graph_output(c.g, rows);
        CHECK_OK(af_graph_prepare(c.g, c.device, &err), err);
        fc_fill_floats(&c, h);
        memset(head->data, 0, VOCAB * WIDTH * sizeof(float)); /* every logit is 0 */
        for (int32_t i = 0; i < ROWS; i++)
            ((int32_t *)labels->data)[i] = i % VOCAB;
        CHECK_OK(af_graph_run(c.g, AF_RUN_FORWARD, &err), err);
        double got[2 * ROWS];
        af_ld_row(rows, 0, 2 * ROWS, got);
        for (int i = 0; i < ROWS; i++)
            CHECK_MSG(got[2 * i + 1] == (i % VOCAB == 0), "%s, row %d", fast ? "fast" : "twin", i);
        af_graph_free(c.g);
        af_device_close(c.device);
    }
}

/* A quarter of a million small terms: a denominator summed one by one in f32 is off by 1e-4. */
static void test_head_of_a_wide_vocabulary(void **state)
{
    static const int64_t size[3] = {4, 8, 250001};
    (void)state;
    fastcheck c = {.type = AF_DTYPE_F32, .shape = size, .fill = fill_labels, .limit = 2e-6};
    fastcheck_run("head_loss", build_head, c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_threads_on_ragged_sequences),
        cmocka_unit_test(test_what_is_not_a_number_stays_so),
        cmocka_unit_test(test_large_scores_stay_finite),
        cmocka_unit_test(test_attention_cached),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_the_first_of_equal_logits_is_predicted),
        cmocka_unit_test(test_head_of_a_wide_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
