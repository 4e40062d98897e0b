/* test_model_graph.c - a custom loss on a loaded model, with public headers alone: the
 * recorded logits are those of the model, the adapter learns, and the saved adapter computes the
 * same. */
#include "afinar/afinar.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

enum { TOKENS = 12, STEPS = 8 };

static const int32_t text[2][TOKENS] = {{5, 9, 17, 4, 8, 30, 2, 11, 5, 9, 17, 4},
                                        {7, 3, 3, 21, 6, 12, 31, 1, 7, 3, 3, 21}};

static af_model *open_tiny(const char *adapter)
{
    char dir[4096];
    af_model *m = NULL;
    af_error err = {0};
    const af_model_opts o = {.device = "cpu",
                             .threads = 2,
                             .adapters = adapter ? 1 : 0,
                             .adapter = {adapter},
                             .adapter_weight = {1}};
    snprintf(dir, sizeof dir, "%s/models/qwen2_tiny", golden_dir());
    CHECK_OK(af_model_open(&m, dir, &o, &err), err);
    return m;
}

static void batch(af_token_row out[2])
{
    for (int i = 0; i < 2; i++)
        out[i] = (af_token_row){text[i], text[i], TOKENS};
}

/* Records cross-entropy plus a z-loss, mean(log(sum(exp(logits)))^2). */
static af_tensor *record_loss(af_model_graph *r)
{
    af_graph *g = af_model_graph_graph(r);
    af_tensor *x = af_model_graph_logits(r), *one;
    one = af_slice(g, af_sub(g, x, af_log_softmax(g, x)), 1, 0, 1); /* [N][1]: the log-sum-exp */
    af_tensor *z = af_scale(g, af_mean_all(g, af_mul(g, one, one)), 1e-3);
    af_tensor *loss = af_add(g, af_cross_entropy(g, x, af_model_graph_labels(r), 0), z);
    af_graph_output(g, loss);
    af_graph_output(g, x);
    return loss;
}

static float run_and_read(af_model_graph *r, af_tensor *loss, int what)
{
    float v;
    af_error err = {0};
    af_graph *g = af_model_graph_graph(r);
    CHECK_OK(af_graph_run(g, what, &err), err);
    CHECK_OK(af_tensor_read(g, loss, &v, sizeof v, &err), err);
    return v;
}

static void test_recorded_logits_are_the_models(void **state)
{
    (void)state;
    af_error err = {0};
    af_token_row rows[2];
    af_model_graph *r;
    af_model *m = open_tiny(NULL);
    const int64_t V = af_model_vocab(m);
    float *want = calloc((size_t)(TOKENS * V), sizeof *want);
    float *have = calloc((size_t)(2 * TOKENS * V), sizeof *have);
    batch(rows);
    CHECK_OK(af_model_record(&r, m, &(af_record_opts){.rows = 2 * TOKENS, .sequences = 2}, &err),
             err);
    assert_int_equal(af_model_graph_param_count(r), 0);
    af_tensor *x = af_model_graph_logits(r);
    af_graph_output(af_model_graph_graph(r), x);
    CHECK_OK(af_model_graph_prepare(r, &err), err);
    CHECK_OK(af_model_graph_feed(r, rows, 2, &err), err);
    CHECK_OK(af_graph_run(af_model_graph_graph(r), AF_RUN_FORWARD, &err), err);
    CHECK_OK(af_tensor_read(af_model_graph_graph(r), x, have, af_tensor_bytes(x), &err), err);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(af_model_logits_of(m, text[i], TOKENS, want, &err), err);
        for (int64_t k = 0; k < TOKENS * V; k++)
            CHECK_MSG(fabsf(have[i * TOKENS * V + k] - want[k]) < 1e-4f,
                      "sequence %d, logit %lld: %g, not %g", i, (long long)k,
                      (double)have[i * TOKENS * V + k], (double)want[k]);
    }
    af_model_graph_free(r);
    af_model_close(m);
    free(want);
    free(have);
}

static void test_a_custom_loss_trains_the_adapter(void **state)
{
    (void)state;
    af_error err = {0};
    af_token_row rows[2];
    af_model_graph *r;
    char dir[] = "/tmp/afinar-adapter-XXXXXX";
    assert_non_null(mkdtemp(dir));
    af_model *m = open_tiny(NULL);
    batch(rows);
    const af_record_opts o = {.rows = 2 * TOKENS, .sequences = 2, .lora_r = 4, .seed = 1};
    CHECK_OK(af_model_record(&r, m, &o, &err), err);
    af_graph *g = af_model_graph_graph(r);
    af_tensor *loss = record_loss(r);
    assert_true(af_model_graph_param_count(r) > 0);
    assert_null(af_model_graph_param(r, af_model_graph_param_count(r)));
    af_graph_backward(g, loss);
    assert_non_null(af_tensor_gradient(af_model_graph_param(r, 0)));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW});
    CHECK_OK(af_model_graph_prepare(r, &err), err);
    af_graph_set_learning_rate(g, 5e-3);
    CHECK_OK(af_model_graph_feed(r, rows, 2, &err), err);
    float first = 0, last = 0;
    for (int i = 0; i < STEPS; i++) {
        last = run_and_read(r, loss, AF_RUN_STEP);
        first = i == 0 ? last : first;
    }
    CHECK_MSG(last < first - 0.1f, "loss %g -> %g", (double)first, (double)last);
    last = run_and_read(r, loss, AF_RUN_FORWARD);
    CHECK_OK(af_model_graph_save(r, dir, &err), err);
    af_model_graph_free(r);
    af_model_close(m);

    m = open_tiny(dir); /* resumes from the saved adapter: lora_r 0 takes the model's own */
    CHECK_OK(af_model_record(&r, m, &(af_record_opts){.rows = 2 * TOKENS, .sequences = 2}, &err),
             err);
    assert_true(af_model_graph_param_count(r) > 0);
    loss = record_loss(r);
    CHECK_OK(af_model_graph_prepare(r, &err), err);
    CHECK_OK(af_model_graph_feed(r, rows, 2, &err), err);
    const float again = run_and_read(r, loss, AF_RUN_FORWARD);
    CHECK_MSG(fabsf(again - last) < 1e-4f, "loss %g, reloaded %g", (double)last, (double)again);
    af_model_graph_free(r);
    af_model_close(m);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void test_wrong_use_is_an_error(void **state)
{
    (void)state;
    af_error err = {0};
    af_token_row rows[2];
    af_model_graph *r;
    af_model *m = open_tiny(NULL);
    static const af_record_opts bad[] = {{.rows = 0},
                                         {.rows = 4, .sequences = 5},
                                         {.rows = 4, .lora_r = -1},
                                         {.rows = 4, .lora_r = 4, .lora_dropout = 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(af_model_record(&r, m, &bad[i], &err), AF_EUSAGE);
    CHECK_OK(af_model_record(&r, m, &(af_record_opts){.rows = TOKENS}, &err), err);
    batch(rows);
    assert_int_equal(af_model_graph_feed(r, rows, 1, &err), AF_EUSAGE); /* not prepared */
    assert_int_equal(af_model_graph_save(r, "x", &err), AF_EUSAGE);     /* no adapter */
    CHECK_OK(af_model_graph_prepare(r, &err), err);
    assert_int_equal(af_model_graph_prepare(r, &err), AF_EUSAGE);
    assert_int_equal(af_model_graph_feed(r, rows, 2, &err), AF_EUSAGE); /* one sequence */
    assert_int_equal(af_model_graph_feed(r, &(af_token_row){.count = 1}, 1, &err), AF_EUSAGE);
    rows[0].count = 0;
    assert_int_equal(af_model_graph_feed(r, rows, 1, &err), AF_EUSAGE);
    const int32_t outside = (int32_t)af_model_vocab(m);
    rows[0] = (af_token_row){&outside, NULL, 1};
    assert_int_equal(af_model_graph_feed(r, rows, 1, &err), AF_EUSAGE);
    af_model_graph_free(r);
    af_model_graph_free(NULL);
    af_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_logits_are_the_models),
        cmocka_unit_test(test_a_custom_loss_trains_the_adapter),
        cmocka_unit_test(test_wrong_use_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
