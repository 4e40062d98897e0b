/* test_pref_shared.c - a prompt computed once for both answers gives what two copies give:
 * log-probabilities of every answer and gradients of every adapter matrix. */
#define _DEFAULT_SOURCE
#include "train/run_folder.h"

#include "base/buf.h"
#include "base/file.h"
#include "graph/graph_access.h"
#include "train/preference/pref_batch.h"
#include "train/step/run_data.h"
#include "train/step/step_graph.h"
#include "worse.h"

#include <math.h>

enum { PAIRS = 5, GRADS = 1 << 15 };

typedef struct outcome {
    af_pair_sums sums[PAIRS];
    int64_t rows;
    float grad[GRADS];
    int64_t grads;
} outcome;

static void read_config(af_run_config *run, const char *model, const char *rl)
{
    af_buf b = {0};
    af_error err = {0};
    af_buf_printf(&b,
                  "base_model: %s/models/%s\ndatasets: [{path: %s/preference/data/%s.jsonl}]\n"
                  "output_dir: %s/out\nrl: %s\nadapter: lora\nlora_r: 4\ndevice: cpu\n"
                  "chat_template: chatml\nmicro_batch_size: %d\n",
                  golden_dir(), model, golden_dir(), strcmp(rl, "kto") == 0 ? "kto" : "preferences",
                  dir, rl, PAIRS);
    CHECK_OK(af_run_config_parse(run, b.data, b.len, "run.yaml", NULL, 0, &err), err);
    af_buf_clear(&b);
}

/* Different for every token of an answer, whichever row predicts it. */
static void weigh(const af_answer_rows *a, int64_t number, float *weight)
{
    for (int64_t i = 0; i < a->terms; i++)
        weight[a->from + i] = sinf((float)(number * 131 + i));
}

static void read_gradients(af_step_graph *s, outcome *o)
{
    af_error err = {0};
    for (int i = 0; i < s->model->spec->modules; i++) {
        af_tensor *b = s->leaves.module[i].b, *g = b ? af_tensor_gradient(b) : NULL;
        if (!g || s->leaves.module[i].b_from)
            continue;
        assert_true(o->grads + af_tensor_count(g) <= GRADS);
        CHECK_OK(af_tensor_read(s->graph, g, o->grad + o->grads, af_tensor_bytes(g), &err), err);
        o->grads += af_tensor_count(g);
    }
}

static void run_batch(af_step_graph *s, const af_batch *b, outcome *o)
{
    af_error err = {0};
    CHECK_OK(af_step_graph_upload(s, b, 0, &err), err);
    CHECK_OK(af_graph_run(s->graph, AF_RUN_FORWARD | AF_RUN_KEEP, &err), err);
    CHECK_OK(af_tensor_read(s->graph, s->rows, s->row_stats, af_tensor_bytes(s->rows), &err), err);
    o->rows = b->rows;
    memset(s->row_weights, 0, (size_t)s->rows_max * sizeof *s->row_weights);
    for (int64_t k = 0; k < b->pairs; k++) {
        o->sums[k] = af_pair_sums_of(&b->pair[k], s->row_stats);
        weigh(&b->pair[k].first, 2 * k, s->row_weights);
        weigh(&b->pair[k].second, 2 * k + 1, s->row_weights);
    }
    CHECK_OK(af_step_graph_upload_weights(s, b->rows, &err), err);
    CHECK_OK(af_graph_run(s->graph, AF_RUN_BACKWARD, &err), err);
    read_gradients(s, o);
}

static void compute(const char *model, const char *rl, bool shared, outcome *o)
{
    af_run_config run = {0};
    af_run_model m = {0};
    af_run_data d = {0};
    af_step_graph s;
    af_stream *stream = NULL;
    const af_batch *b;
    af_error err = {0};
    *o = (outcome){0};
    read_config(&run, model, rl);
    af_step_graph_init(&s, &run, &m);
    CHECK_OK(af_run_model_open(&m, &run, NULL, &err), err);
    CHECK_OK(af_run_data_open(&d, &run, &m, &err), err);
    CHECK_OK(af_run_model_open_adapter(&m, &err), err);
    assert_true(af_run_data_shares(&run, m.spec));
    const af_stream_opts opts = {.count = d.store.records,
                                 .micro_batch = PAIRS,
                                 .sequence_len = 160,
                                 .pairs = {.rl = run.rl, .shared = shared, .kl_batch = PAIRS}};
    CHECK_OK(af_stream_open(&stream, &d.store, &opts, &err), err);
    s.rows_max = PAIRS * af_stream_rows_max(stream);
    s.sequences_max = af_stream_sequences_max(stream);
    s.attention_max = shared ? PAIRS * af_stream_attention_max(stream) : 0;
    CHECK_OK(af_step_graph_record(&s, (af_memory_mode){.mode = AF_RECOMPUTE_NONE}, &err), err);
    CHECK_OK(af_step_graph_load(&s, &err), err);
    CHECK_OK(af_stream_get(stream, 1, &b, &err), err);
    run_batch(&s, b, o);
    af_stream_close(stream);
    af_step_graph_close(&s);
    af_run_data_close(&d);
    af_run_model_close(&m);
    af_run_config_clear(&run);
}

static void check_answer(const af_answer_sums *a, const af_answer_sums *b)
{
    assert_int_equal(a->terms, b->terms);
    assert_int_equal(a->tokens, b->tokens);
    assert_true(fabs(a->shared + a->tail - b->shared - b->tail) < 1e-4);
    assert_true(fabs(a->entropy - b->entropy) < 1e-4 && a->hits == b->hits);
}

static void check_model(const char *model, const char *rl)
{
    static outcome once, twice;
    compute(model, rl, true, &once);
    compute(model, rl, false, &twice);
    assert_true(once.rows < twice.rows && once.grads > 0);
    assert_int_equal(once.grads, twice.grads);
    for (int i = 0; i < PAIRS; i++) {
        check_answer(&once.sums[i].first, &twice.sums[i].first);
        check_answer(&once.sums[i].second, &twice.sums[i].second);
    }
    double most = 0, largest = 0;
    for (int64_t i = 0; i < once.grads; i++) {
        most = worse(most, fabs((double)once.grad[i] - (double)twice.grad[i]));
        largest = worse(largest, fabs((double)twice.grad[i]));
    }
    CHECK_MSG(largest > 0 && most < 2e-5 * largest, "%s: gradients of %g differ by %g", model,
              largest, most);
}

static void test_a_shared_prompt_is_two_copies(void **state)
{
    (void)state;
    check_model("qwen2", "dpo");
    check_model("qwen2", "kto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_shared_prompt_is_two_copies)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
