/* test_graph_errors.c - what a user of the public interface can get wrong: the first mistake is
 * kept, later calls accept its handle, and prepare returns AF_EUSAGE with both values. */
#include "test.h"

#include "afinar/graph.h"

#include <math.h>

#define LEN(a) (int)(sizeof(a) / sizeof((a)[0]))

static af_device *device;

static int open_device(void **state)
{
    (void)state;
    return af_device_open(&device, "cpu", 1, NULL) != AF_OK;
}

static int close_device(void **state)
{
    (void)state;
    af_device_close(device);
    return 0;
}

static af_tensor *leaf(af_graph *g, af_dtype t, int64_t a, int64_t b)
{
    return af_graph_input(g, "x", t, b ? 2 : 1, (int64_t[]){a, b});
}
#define F32(a, b) leaf(g, AF_DTYPE_F32, a, b)
#define F64(a, b) leaf(g, AF_DTYPE_F64, a, b)
#define I32(a, b) leaf(g, AF_DTYPE_I32, a, b)

static void add_shapes(af_graph *g) { af_add(g, F32(3, 4), F32(3, 5)); }
static void add_types(af_graph *g) { af_add(g, F32(3, 4), F64(3, 4)); }
static void unary_type(af_graph *g) { af_exp(g, I32(3, 4)); }
static void matmul_inner(af_graph *g) { af_matmul(g, F32(3, 4), F32(5, 6), AF_MATMUL_NN); }
static void matmul_transposed(af_graph *g) { af_matmul(g, F32(3, 4), F32(4, 6), AF_MATMUL_NT); }
static void matmul_vector(af_graph *g) { af_matmul(g, F32(3, 4), F32(4, 0), AF_MATMUL_NN); }
static void matmul_batches(af_graph *g)
{
    af_tensor *a = af_graph_input(g, "a", AF_DTYPE_F32, 3, (int64_t[]){2, 3, 4});
    af_tensor *b = af_graph_input(g, "b", AF_DTYPE_F32, 3, (int64_t[]){5, 4, 6});
    af_matmul(g, a, b, AF_MATMUL_NN);
}
static void transpose_twice(af_graph *g) { af_transpose(g, F32(3, 4), (int[]){1, 1}); }
static void reshape_count(af_graph *g) { af_reshape(g, F32(3, 4), 1, (int64_t[]){13}); }
static void slice_end(af_graph *g) { af_slice(g, F32(3, 4), 1, 2, 3); }
static void slice_axis(af_graph *g) { af_slice(g, F32(3, 4), 2, 0, 1); }
static void concat_shape(af_graph *g) { af_concat(g, (af_tensor *[]){F32(3, 4), F32(4, 5)}, 2, 0); }
static void sum_axis(af_graph *g) { af_sum(g, F32(3, 4), -3, false); }
static void norm_width(af_graph *g) { af_layernorm(g, F32(3, 4), F32(4, 0), F32(5, 0), 1e-5); }
static void dropout_p(af_graph *g) { af_dropout(g, F32(3, 4), 1.5, 0); }
static void mse_shape(af_graph *g) { af_mse(g, F32(3, 4), F32(4, 3)); }
static void ce_labels(af_graph *g) { af_cross_entropy(g, F32(3, 4), I32(5, 0), 0); }
static void ce_type(af_graph *g) { af_cross_entropy(g, F32(3, 4), F32(3, 0), 0); }
static void ce_smoothing(af_graph *g) { af_cross_entropy(g, F32(3, 4), I32(3, 0), 1.25); }
static void quant_group(af_graph *g) { af_fake_quant(g, F32(3, 4), 4, 3, true); }
static void quant_bits(af_graph *g) { af_fake_quant(g, F32(3, 4), 33, 0, true); }
static void expert_rows(af_graph *g)
{
    const af_expert_linear o = {.weight = F32(3, 4)};
    af_moe_project(g, F32(3, 4), F32(3, 1), I32(3, 1), &o);
}
static void bad_dims(af_graph *g) { af_graph_input(g, "many", AF_DTYPE_F32, 5, (int64_t[5]){1}); }
static void bad_dim(af_graph *g) { af_graph_input(g, "huge", AF_DTYPE_F32, 1, (int64_t[]){-7}); }
static void bad_param(af_graph *g) { af_graph_param(g, "w", AF_DTYPE_F16, 1, (int64_t[]){3}); }
static void block_cast(af_graph *g)
{
    af_cast(g, af_graph_weight(g, "w", AF_DTYPE_Q4_0, 1, (int64_t[]){64}), AF_DTYPE_F32);
}
static void loss_shape(af_graph *g)
{
    af_graph_backward(g, af_graph_param(g, "w", AF_DTYPE_F32, 2, (int64_t[]){3, 4}));
}
static void loss_without_path(af_graph *g)
{
    af_graph_param(g, "w", AF_DTYPE_F32, 1, (int64_t[]){3});
    af_graph_backward(g, af_sum_all(g, F32(3, 4)));
}
static af_tensor *small_loss(af_graph *g)
{
    return af_sum_all(g, af_graph_param(g, "w", AF_DTYPE_F32, 1, (int64_t[]){3}));
}
static void backward_twice(af_graph *g)
{
    af_tensor *loss = small_loss(g);
    af_graph_backward(g, loss);
    af_graph_backward(g, loss);
}
static void optimizer_first(af_graph *g)
{
    small_loss(g);
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_SGD});
}
static void optimizer_beta(af_graph *g)
{
    af_graph_backward(g, small_loss(g));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAM, .beta1 = 1.5});
}
static void optimizer_types(af_graph *g)
{
    af_tensor *d = af_graph_param(g, "second", AF_DTYPE_F64, 1, (int64_t[]){3});
    af_graph_backward(g, af_add(g, small_loss(g), af_cast(g, af_sum_all(g, d), AF_DTYPE_F32)));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_SGD});
}
static void null_input(af_graph *g) { af_add(g, F32(3, 4), NULL); }
static void null_in_a_list(af_graph *g) { af_concat(g, (af_tensor *[]){F32(3, 4), NULL}, 2, 0); }
static void null_loss(af_graph *g) { af_graph_backward(g, NULL); }
static void null_output(af_graph *g) { af_graph_output(g, NULL); }
static void null_shape(af_graph *g) { af_graph_input(g, "odd", AF_DTYPE_F32, 2, NULL); }
static void null_options(af_graph *g) { af_linear(g, F32(3, 4), NULL); }
static void null_piece(af_graph *g) { af_linear(g, F32(3, 4), &(af_linear_opts){.pieces = 1}); }
static void null_heads(af_graph *g) { af_attention(g, F32(3, 4), I32(2, 0), NULL); }
static void no_dtype(af_graph *g) { af_graph_input(g, "odd", (af_dtype)999, 1, (int64_t[]){3}); }
static void no_cast(af_graph *g) { af_cast(g, F32(3, 4), (af_dtype)-1); }
static void no_act(af_graph *g) { af_glu(g, F32(3, 4), (af_act)9); }
static void no_recompute(af_graph *g) { af_graph_set_recompute(g, (af_recompute)7, 1); }
static void all_rebuilt(af_graph *g) { af_graph_set_rebuilt(g, 0); }
static void no_rows(af_graph *g) { af_graph_set_rows(g, -4); }
static void live_rows(af_graph *g)
{
    af_graph_set_rows(g, 4);
    af_graph_set_live_rows(g, 5);
}
static void group_of_an_input(af_graph *g) { af_tensor_set_group(F32(3, 4), 2, true); }
static void bind_an_input(af_graph *g) { af_tensor_bind(F32(3, 4), g); }
static void frozen_row(af_graph *g)
{
    af_embedding_frozen_row(g, af_embedding(g, I32(3, 0), F32(8, 2), AF_DTYPE_F32), 8);
}
static void frozen_row_of_nothing(af_graph *g) { af_embedding_frozen_row(g, F32(3, 4), 1); }
/* Sizes whose sums and products do not fit, and what is not a number. */
static void rope_heads(af_graph *g)
{
    af_rope(g, F32(3, 24), I32(3, 0), NULL,
            &(af_rope_opts){.heads = INT32_MAX, .kv_heads = INT32_MAX, .head_dim = INT32_MAX});
}
static void rope_negative(af_graph *g)
{
    af_rope(g, F32(3, 24), I32(3, 0), NULL,
            &(af_rope_opts){.heads = -1, .kv_heads = 2, .head_dim = 8});
}
static void attention_heads(af_graph *g)
{
    af_attention(
        g, F32(3, 24), I32(2, 0),
        &(af_attention_opts){.heads = INT32_MAX, .kv_heads = INT32_MAX, .head_dim = INT32_MAX});
}
static void attention_cap(af_graph *g)
{
    af_attention(g, F32(3, 24), I32(2, 0),
                 &(af_attention_opts){.heads = 1, .kv_heads = 1, .head_dim = 8, .softcap = NAN});
}
static void adapter_part(af_graph *g, af_adapter_part part)
{
    af_tensor *b = af_graph_param(g, "b", AF_DTYPE_F32, 1, (int64_t[]){16});
    af_linear(g, F32(3, 4),
              &(af_linear_opts){.weight = {F32(8, 4)},
                                .pieces = 1,
                                .a = F32(2, 4),
                                .b = b,
                                .part = {part},
                                .parts = 1});
}
static void adapter_rank(af_graph *g) { adapter_part(g, (af_adapter_part){0, 8, INT32_MAX, 2, 1}); }
static void adapter_rows(af_graph *g)
{
    adapter_part(g, (af_adapter_part){INT64_MAX, INT64_MAX, 0, 2, 1});
}
static void head_smoothing(af_graph *g)
{
    af_head_loss(g, F32(3, 4), F32(8, 4), I32(3, 0), &(af_head_opts){.smoothing = NAN});
}
static void group_factor(af_graph *g)
{
    af_tensor_set_group(af_graph_param(g, "w", AF_DTYPE_F32, 1, (int64_t[]){3}), NAN, true);
}
static void another_graph(af_graph *g)
{
    af_graph *other;
    if (af_graph_new(&other, NULL) != AF_OK)
        return;
    af_tensor *w = af_graph_param(other, "strange", AF_DTYPE_F32, 1, (int64_t[]){4});
    af_mul(g, F32(3, 4), w);
    af_graph_free(other);
}

static void the_first_one_counts(af_graph *g)
{
    af_tensor *bad = af_add(g, F32(3, 4), F32(3, 5));
    af_tensor *also = af_matmul(g, bad, af_tanh(g, bad), AF_MATMUL_NN);
    af_graph_output(g, also);
    af_graph_backward(g, af_mse(g, also, bad));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW});
}

static void test_a_wrong_call_gives_a_message_with_both_values(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        void (*build)(af_graph *g);
        const char *has[2];
    } cases[] = {
        {"shapes that do not broadcast", add_shapes, {"[3 x 4] f32", "[3 x 5] f32"}},
        {"two types", add_types, {"[3 x 4] f32", "[3 x 4] f64"}},
        {"exp of integers", unary_type, {"[3 x 4] i32", "f32"}},
        {"inner dimensions", matmul_inner, {"[3 x 4]", "[5 x 6]"}},
        {"inner dimensions, transposed", matmul_transposed, {"[3 x 4]", "[4 x 6]"}},
        {"a vector in a matmul", matmul_vector, {"[3 x 4]", "[4]"}},
        {"batches", matmul_batches, {"[2 x 3 x 4]", "[5 x 4 x 6]"}},
        {"an axis twice", transpose_twice, {"1", "2"}},
        {"element count", reshape_count, {"12", "13"}},
        {"slice past the end", slice_end, {"3 from 2", "[3 x 4]"}},
        {"slice of no axis", slice_axis, {"axis 2", "[3 x 4]"}},
        {"concat shapes", concat_shape, {"[3 x 4]", "[4 x 5]"}},
        {"no such axis", sum_axis, {"-3", "[3 x 4]"}},
        {"norm width", norm_width, {"[3 x 4]", "[5]"}},
        {"probability", dropout_p, {"1.5", "1"}},
        {"mse shapes", mse_shape, {"[3 x 4]", "[4 x 3]"}},
        {"label count", ce_labels, {"[3 x 4]", "[5] i32"}},
        {"label type", ce_type, {"[3 x 4]", "[3] f32"}},
        {"smoothing", ce_smoothing, {"1.25", "1"}},
        {"groups", quant_group, {"3", "[3 x 4]"}},
        {"bits", quant_bits, {"33", "16"}},
        {"experts", expert_rows, {"moe_project", "[3 x 4]"}},
        {"five dimensions", bad_dims, {"5", "4"}},
        {"negative dimension", bad_dim, {"-7", "huge"}},
        {"f16 parameter", bad_param, {"f16", "f32"}},
        {"cast of a block type", block_cast, {"q4_0", "f32"}},
        {"loss is not a scalar", loss_shape, {"[3 x 4]", "single number"}},
        {"no path to the loss", loss_without_path, {"no parameter", "differentiate"}},
        {"two backward passes", backward_twice, {"already", ""}},
        {"optimizer before backward", optimizer_first, {"af_graph_backward", "gradients"}},
        {"beta1", optimizer_beta, {"1.5", "1"}},
        {"two types of parameters", optimizer_types, {"(f64)", "(f32)"}},
        {"no handle", null_input, {"add: input 1 of 2", "NULL"}},
        {"no handle in a list", null_in_a_list, {"concat: input 1 of 2", "NULL"}},
        {"no loss", null_loss, {"backward", "NULL"}},
        {"no output", null_output, {"output", "NULL"}},
        {"no shape", null_shape, {"odd", "2 dimensions"}},
        {"no options", null_options, {"linear", "NULL"}},
        {"no weight", null_piece, {"linear: input 0 of 1", "NULL"}},
        {"no heads", null_heads, {"attention", "options"}},
        {"no such type", no_dtype, {"odd", "999"}},
        {"no such type to cast to", no_cast, {"-1", "[3 x 4]"}},
        {"no such activation", no_act, {"9", "3"}},
        {"no such recomputation", no_recompute, {"7", "6"}},
        {"no such block", all_rebuilt, {"block 0", "rebuilt"}},
        {"rows below zero", no_rows, {"-4", "rows"}},
        {"more live rows than rows", live_rows, {"5 live rows", "0 to 4"}},
        {"the group of an input", group_of_an_input, {"'x'", "not a parameter"}},
        {"an input bound", bind_an_input, {"'x'", "not a weight"}},
        {"a frozen row past the end", frozen_row, {"row 8", "table"}},
        {"a frozen row of no table", frozen_row_of_nothing, {"row 1", "'x'"}},
        {"rope: heads beyond all columns", rope_heads, {"2147483647", "[3 x 24]"}},
        {"rope: heads below zero", rope_negative, {"-1", "[3 x 24]"}},
        {"attention: heads beyond all columns", attention_heads, {"2147483647", "[3 x 24]"}},
        {"attention: a cap that is not a number", attention_cap, {"nan", "cap"}},
        {"adapter: ranks beyond the end", adapter_rank, {"2147483647", "of 2"}},
        {"adapter: rows beyond the end", adapter_rows, {"9223372036854775807", "of 8"}},
        {"smoothing that is not a number", head_smoothing, {"nan", "smoothing"}},
        {"a factor that is not a number", group_factor, {"nan", "'w'"}},
        {"another graph's tensor", another_graph, {"'strange'", "another graph"}},
        {"a chain of faults", the_first_one_counts, {"[3 x 4]", "[3 x 5]"}},
    };
    for (int i = 0; i < LEN(cases); i++) {
        af_error err = {0};
        af_graph *g;
        CHECK_OK(af_graph_new(&g, &err), err);
        cases[i].build(g);
        CHECK_MSG(af_graph_status(g, &err) == AF_EUSAGE, "%s: accepted", cases[i].why);
        err = (af_error){0};
        CHECK_MSG(af_graph_prepare(g, device, &err) == AF_EUSAGE, "%s: prepared", cases[i].why);
        for (int k = 0; k < 2; k++)
            CHECK_MSG(strstr(err.msg, cases[i].has[k]), "%s: '%s' does not say '%s'", cases[i].why,
                      err.msg, cases[i].has[k]);
        CHECK_MSG(af_graph_run(g, AF_RUN_FORWARD, &err) == AF_EUSAGE, "%s: ran", cases[i].why);
        af_graph_free(g);
    }
}

static void test_more_than_the_memory_is_refused_with_the_plan(void **state)
{
    (void)state;
    af_error err = {0};
    af_graph *g;
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *w = af_graph_weight(g, "w", AF_DTYPE_F32, 2, (int64_t[]){1 << 24, 1 << 20});
    af_tensor *y = af_scale(g, w, 2);
    af_graph_output(g, y);
    af_plan_info info;
    CHECK_OK(af_graph_plan(g, device, &info, &err), err); /* planning allocates nothing */
    assert_true(info.weights == UINT64_C(1) << 46 && info.activations == info.weights);
    assert_true(info.total == info.weights + info.activations);
    const uint64_t before = af_device_counters(device).allocations;
    assert_int_equal(af_graph_prepare(g, device, &err), AF_ENOMEM);
    assert_non_null(strstr(err.msg, "131072.00 GiB"));
    assert_non_null(strstr(err.msg, "65536.00"));
    assert_non_null(strstr(err.msg, "free"));
    assert_true(af_device_counters(device).allocations == before);
    assert_int_equal(af_graph_run(g, AF_RUN_FORWARD, &err), AF_EUSAGE);
    af_graph_free(g);
}

static void test_runs_and_copies_are_checked(void **state)
{
    (void)state;
    af_error err = {0};
    af_graph *g;
    float v[4] = {0};
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 1, (int64_t[]){4});
    af_tensor *y = af_scale(g, x, 2), *unused = af_scale(g, x, 3);
    af_graph_output(g, y);
    assert_int_equal(af_graph_run(g, AF_RUN_FORWARD, &err), AF_EUSAGE);
    assert_int_equal(af_tensor_write(g, x, v, sizeof v, &err), AF_EUSAGE);
    CHECK_OK(af_graph_prepare(g, device, &err), err);
    assert_int_equal(af_graph_prepare(g, device, &err), AF_EUSAGE);
    assert_int_equal(af_tensor_write(g, x, v, 12, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "12"));
    assert_non_null(strstr(err.msg, "16"));
    assert_int_equal(af_tensor_read(g, unused, v, sizeof v, &err), AF_EUSAGE);
    assert_int_equal(af_graph_run(g, AF_RUN_GRAD, &err), AF_EUSAGE);
    assert_int_equal(af_graph_run(g, AF_RUN_UPDATE, &err), AF_EUSAGE);
    double norm;
    bool finite;
    assert_int_equal(af_graph_grad_norm(g, &norm, &finite, &err), AF_EUSAGE);
    CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, &err), err);
    assert_int_equal(af_graph_run(g, 16, &err), AF_EUSAGE);
    assert_int_equal(af_tensor_write(g, x, NULL, sizeof v, &err), AF_EUSAGE);
    assert_int_equal(af_tensor_read(g, NULL, v, sizeof v, &err), AF_EUSAGE);
    af_reshape(g, y, 2, (int64_t[]){2, 2}); /* recording is over */
    af_exp(g, y);
    assert_int_equal(af_graph_status(g, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "after the plan"));
    assert_int_equal(af_graph_run(g, AF_RUN_FORWARD, &err), AF_EUSAGE);
    af_graph_free(g);
    af_graph_free(NULL);
}

/* Numbers that ops use as indices are checked before an op reads them. */
static void test_written_indices_are_checked(void **state)
{
    (void)state;
    enum { N = 4, V = 8 };
    static const struct {
        int which; /* ids, labels, bounds */
        int32_t v[N];
        const char *has; /* NULL = accepted */
    } cases[] = {
        {0, {0, 7, 3, 3}, NULL},
        {0, {0, 8, 3, 3}, "element 1 of tensor 'ids' is 8; it must be 0 to 7"},
        {0, {0, 1, -1, 3}, "element 2 of tensor 'ids' is -1; it must be 0 to 7"},
        {1, {-100, 7, 0, -100}, NULL},
        {1, {-100, 7, 0, -99}, "element 3 of tensor 'labels' is -99; it must be 0 to 7"},
        {1, {1 << 30, 7, 0, 0}, "element 0 of tensor 'labels' is 1073741824; it must be 0 to 7"},
        {2, {0, 0, 4, 4}, NULL},
        {2, {0, 3, 2, 4}, "element 2 of tensor 'bounds' is 2; it must be 3 to 4"},
        {2, {0, 3, 4, 5}, "element 3 of tensor 'bounds' is 5; it must be 4 to 4"},
        {2, {-1, 3, 4, 4}, "element 0 of tensor 'bounds' is -1; it must be 0 to 4"},
    };
    af_error err = {0};
    af_graph *g;
    CHECK_OK(af_graph_new(&g, &err), err);
    static const char *const names[] = {"ids", "labels", "bounds"};
    af_tensor *in[3];
    for (int i = 0; i < 3; i++)
        in[i] = af_graph_input(g, names[i], AF_DTYPE_I32, 1, (int64_t[]){N});
    af_tensor *table = af_graph_param(g, "table", AF_DTYPE_F32, 2, (int64_t[]){V, V});
    af_tensor *h = af_embedding(g, in[0], table, AF_DTYPE_F32);
    h = af_attention(g, af_concat(g, (af_tensor *[]){h, h, h}, 3, 1), in[2],
                     &(af_attention_opts){.heads = 2, .kv_heads = 2, .head_dim = 4});
    af_graph_backward(g, af_head_loss(g, h, table, in[1], NULL));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW});
    CHECK_OK(af_graph_prepare(g, device, &err), err);
    for (int i = 0; i < LEN(cases); i++) {
        err = (af_error){0};
        const af_status st =
            af_tensor_write(g, in[cases[i].which], cases[i].v, sizeof cases[i].v, &err);
        CHECK_MSG(st == (cases[i].has ? AF_EUSAGE : AF_OK), "case %d: %s", i, err.msg);
        CHECK_MSG(!cases[i].has || strcmp(err.msg, cases[i].has) == 0, "case %d: %s", i, err.msg);
        CHECK_OK(af_graph_run(g, AF_RUN_STEP, &err), err);
    }
    af_tensor_set_group(table, 2, true);
    assert_int_equal(af_graph_run(g, AF_RUN_STEP, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "'table' comes after af_graph_optimizer"));
    af_graph_free(g);
}

static void test_a_graph_stays_with_its_device(void **state)
{
    (void)state;
    af_error err = {0};
    af_graph *g;
    af_device *other;
    CHECK_OK(af_device_open(&other, "cpu", 1, &err), err);
    CHECK_OK(af_graph_new(&g, &err), err);
    af_graph_output(g, af_scale(g, af_graph_input(g, "x", AF_DTYPE_F32, 1, (int64_t[]){4}), 2));
    CHECK_OK(af_graph_plan(g, device, NULL, &err), err);
    assert_int_equal(af_graph_prepare(g, other, &err), AF_EUSAGE);
    CHECK_OK(af_graph_prepare(g, device, &err), err);
    af_graph_free(g);
    af_device_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_call_gives_a_message_with_both_values),
        cmocka_unit_test(test_more_than_the_memory_is_refused_with_the_plan),
        cmocka_unit_test(test_runs_and_copies_are_checked),
        cmocka_unit_test(test_written_indices_are_checked),
        cmocka_unit_test(test_a_graph_stays_with_its_device),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
