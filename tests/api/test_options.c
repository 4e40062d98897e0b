/* test_options.c - options of public functions that are left out: NULL and zeros mean the
 * documented defaults, and what has none is an error. */
#include "afinar/afinar.h"
#include "test.h"

#include <math.h>

static const char *golden(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/models/%s", golden_dir(), name);
    return path;
}

static void test_options_without_a_name_are_errors(void **state)
{
    af_model *m;
    af_convert_report *c;
    af_error err = {0};
    (void)state;
    const af_model_opts nameless = {.device = "cpu", .threads = 1, .adapters = 1};
    assert_int_equal(af_model_open(&m, golden("qwen2_tiny"), &nameless, &err), AF_EUSAGE);
    CHECK_MSG(strcmp(err.msg, "'adapter': string 1 of 1 is NULL") == 0, "%s", err.msg);
    assert_int_equal(af_quantize(&c, golden("qwen2_tiny"), "out", &(af_quantize_opts){0}, &err),
                     AF_EUSAGE);
    CHECK_MSG(strncmp(err.msg, "no type is named: nf4", 21) == 0, "%s", err.msg);
}

#define REFUSED(part, call)                                                                        \
    do {                                                                                           \
        err = (af_error){0};                                                                       \
        CHECK_MSG((call) == AF_EUSAGE && strstr(err.msg, part), "%s: %s", #call, err.msg);         \
    } while (0)

static bool line_hook(void *user, const char *json, uint64_t len)
{
    (void)user;
    return json && len;
}

/* Lists and numbers in options, and what the message must say. */
static void test_options_that_cannot_be_are_errors(void **state)
{
    const int32_t id = 1, *const prompt = &id, *const no_ids = NULL;
    const int64_t one = 1;
    const char *const nothing = NULL;
    af_model *m = NULL;
    af_decoder *d = NULL;
    af_server *s;
    af_observer *o;
    af_eval *e;
    af_generated g = {0};
    uint64_t ticket;
    char *text;
    float *embedding;
    af_error err = {0};
    (void)state;
    const af_model_opts cpu = {.device = "cpu", .threads = 1};
    CHECK_OK(af_model_open(&m, golden("qwen2"), &cpu, &err), err);
    CHECK_OK(af_decoder_open(&d, m, &(af_decoder_opts){.context = 16}, &err), err);
    embedding = calloc((size_t)af_decoder_width(d), sizeof *embedding);
    const af_generate_opts ok = {.prompt = &prompt, .prompt_len = &one, .sequences = 1};
    af_generate_opts negative = ok, empty = ok, no_prompt = ok, no_stop = ok, stops = ok;
    negative.sequences = -1;
    empty.prompt = &no_ids;
    no_prompt.prompt = NULL;
    no_stop.stops = 1;
    stops.stops = AF_STOPS_MAX + 1;
    const af_decode_request bias = {.ids = &id, .count = 1, .biases = 1};
    const af_model_opts nan = {.adapter = {"x"}, .adapter_weight = {NAN}, .adapters = 1};
    const af_merge_adapter_opts merge = {.adapter = {"x"}, .weight = {NAN}, .adapters = 1};
    const af_schedule_opts decay = {.name = "cosine", .decay = (af_schedule_decay)9};
    const af_serve_opts origin = {.cors_origins = 1}, host = {.allowed_hosts = 1},
                        adapters = {.adapters = AF_SERVE_LIST_MAX + 1};
    const af_pull_opts pull = {.hub = {.offline = true}, .includes = 1};
    CHECK_OK(af_eval_new(&e, m, 8, &err), err);
    REFUSED("-1 tokens", af_eval_add(e, (af_token_row){&id, &id, -1}, &err));
    af_eval_free(e);
    REFUSED("-1 tokens", af_model_logits_of(m, &id, -1, embedding, &err));
    REFUSED("-1 sequences", af_model_generate(m, &negative, &g, &err));
    REFUSED("prompt 1 has no tokens", af_model_generate(m, &empty, &g, &err));
    REFUSED("prompt 1 has no tokens", af_model_generate(m, &no_prompt, &g, &err));
    REFUSED("'stop': string 1 of 1", af_model_generate(m, &no_stop, &g, &err));
    REFUSED("'stop' has 65 strings", af_model_generate(m, &stops, &g, &err));
    REFUSED("1 biases", af_decoder_submit(d, &bias, &ticket, &err));
    REFUSED("pooling 9", af_decoder_embed(d, &id, 1, 0, (af_pooling)9, embedding, &err));
    REFUSED("'cors_origin'", af_server_open(&s, golden("qwen2"), &origin, &err));
    REFUSED("'allowed_host'", af_server_open(&s, golden("qwen2"), &host, &err));
    REFUSED("has 65 strings", af_server_open(&s, golden("qwen2"), &adapters, &err));
    REFUSED("'include'", af_hub_pull(&text, "a/b", &pull, &err));
    REFUSED("'overrides'", af_train_plan("run.yaml", &nothing, 1, 0, true, &text, &err));
    REFUSED("is not possible", af_observer_new(&o, INT64_MAX, 2, &(af_grid_opts){.bits = 8}, &err));
    REFUSED("decay 9", af_schedule_init(&(af_schedule){0}, &decay, &err));
    REFUSED("is nan", af_merge_adapters(golden("qwen2"), "out", &merge, NULL, &err));
    REFUSED("is nan", af_model_open(&m, golden("qwen2"), &nan, &err));
    free(embedding);
    af_decoder_close(d);
    af_model_close(m);
}

/* Counts and lengths below 0 or too large to compute with, and what is not a number. */
static void test_numbers_that_cannot_be_are_errors(void **state)
{
    const int32_t id = 1;
    af_model *m = NULL;
    af_decoder *d = NULL;
    af_eval *e;
    af_eval_result r;
    af_server *s;
    af_device *dev;
    const af_tokenizer *t;
    af_grammar_vocab *v = NULL;
    uint64_t ticket;
    char *text, data[4096];
    float x[4] = {0};
    af_error err = {0};
    (void)state;
    snprintf(data, sizeof data, "%s", golden("data/train.jsonl"));
    const af_model_opts cpu = {.device = "cpu", .threads = 1}, kind = {.compute = (af_compute)9};
    const af_eval_data_opts shorter = {.sequence_len = -1};
    CHECK_OK(af_model_open(&m, golden("qwen2"), &cpu, &err), err);
    CHECK_OK(af_decoder_open(&d, m, &(af_decoder_opts){.context = 16}, &err), err);
    CHECK_OK(af_model_tokenizer(m, &t, &err), err);
    CHECK_OK(af_grammar_vocab_open(&v, t, &err), err);
    CHECK_OK(af_model_logits_of(m, &id, 0, x, &err), err);
    REFUSED("-1 tokens are not possible", af_model_logits_of(m, &id, -1, x, &err));
    REFUSED("batches of 0 tokens", af_eval_new(&e, m, 0, &err));
    CHECK_OK(af_eval_new(&e, m, 16, &err), err);
    REFUSED("-2 tokens are not possible", af_eval_add(e, (af_token_row){&id, &id, -2}, &err));
    REFUSED("sequence_len is -1", af_model_eval_dataset(m, data, &shorter, &r, &err));
    REFUSED("sequence_len is -1", af_eval_data_check(data, &shorter, &err));
    REFUSED("longer than the context", af_decoder_embed(d, &id, INT64_MAX, 0, 0, x, &err));
    const af_logit_bias nan = {1, NAN};
    const af_decode_request biased = {.ids = &id, .count = 1, .bias = &nan, .biases = 1},
                            least = {.ids = &id, .count = 1, .min_tokens = -1};
    REFUSED("the bias of token 1 is nan", af_decoder_submit(d, &biased, &ticket, &err));
    REFUSED("at least -1 new tokens", af_decoder_submit(d, &least, &ticket, &err));
    REFUSED("a text of -1 tokens", af_tokenizer_decode(t, &text, NULL, &id, -1, false, &err));
    REFUSED("token -1 is not", af_grammar_vocab_add_stop(v, -1, &err));
    REFUSED("at most -1 records", af_data_records(data, NULL, NULL, -1, line_hook, NULL, &err));
    REFUSED("threads is -1; it must be 0 to 4096", af_device_open(&dev, "cpu", -1, &err));
    REFUSED("compute 9", af_model_open(&m, golden("qwen2"), &kind, &err));
    REFUSED("none may be below 0",
            af_server_open(&s, golden("qwen2"), &(af_serve_opts){.timeout = -1}, &err));
    REFUSED("pooling 7", af_server_open(&s, golden("qwen2"), &(af_serve_opts){.pooling = 7}, &err));
    af_eval_free(e);
    af_grammar_vocab_close(v);
    af_decoder_close(d);
    af_model_close(m);
}

static void test_schedules_of_impossible_numbers(void **state)
{
    af_schedule s;
    int8_t code[4] = {0};
    float x[4] = {1, 2, 3, 4}, scale[4] = {1, 1, 1, 1};
    const int32_t zero[4] = {0};
    af_error err = {0};
    (void)state;
    const af_schedule_opts power = {.name = "polynomial", .peak = 1, .steps = 9, .power = NAN},
                           cycles = {.name = "cosine_with_restarts", .peak = 1, .cycles = -1},
                           gamma = {.name = "step", .peak = 1, .steps = 9, .gamma = INFINITY},
                           far = {.name = "rex", .peak = 1, .steps = INT64_MAX},
                           ok = {.name = "rex", .peak = 1, .steps = 9, .warmup = 2};
    REFUSED("power nan", af_schedule_init(&s, &power, &err));
    REFUSED("-1 cycles", af_schedule_init(&s, &cycles, &err));
    REFUSED("gamma inf", af_schedule_init(&s, &gamma, &err));
    REFUSED("none may be above", af_schedule_init(&s, &far, &err));
    CHECK_OK(af_schedule_init(&s, &ok, &err), err);
    assert_true(af_schedule_lr(&s, INT64_MAX) == 0 && af_schedule_lr(&s, INT64_MIN) > 0);
    /* grids that cannot be: nothing is written */
    af_grid_encode(2, 2, &(af_grid_opts){.bits = 99}, scale, zero, x, code);
    af_grid_encode(2, 2, &(af_grid_opts){.bits = 8, .split = AF_SPLIT_GROUP}, scale, zero, x, code);
    assert_int_equal(code[3], 0);
    af_grid_decode(2, 2, &(af_grid_opts){.bits = 8, .split = AF_SPLIT_GROUP, .group = -1}, scale,
                   zero, code, x);
    assert_true(x[3] == 4);
}

/* What a C++ program passes for an empty string_view. */
static void test_a_text_of_no_bytes_may_be_null(void **state)
{
    af_tokenizer *t = NULL, *none;
    af_template *empty = NULL;
    af_grammar *any = NULL, *no;
    af_encoding e = {0};
    char *text = NULL;
    uint64_t len;
    bool fits = true;
    char dir[] = "/tmp/afinar-options-XXXXXX", path[64], command[160];
    af_error err = {0};
    (void)state;
    CHECK_OK(af_tokenizer_open(&t, golden("qwen2"), &err), err);
    CHECK_OK(af_tokenizer_encode(t, &e, NULL, 0, false, &err), err);
    assert_int_equal(e.count, 0);
    CHECK_OK(af_tokenizer_decode(t, &text, NULL, NULL, 0, false, &err), err);
    assert_string_equal(text, "");
    free(text);
    CHECK_OK(af_template_parse(&empty, NULL, 0, &err), err);
    CHECK_OK(af_grammar_open(&any, AF_GRAMMAR_JSON_OBJECT, NULL, 0, NULL, &err), err);
    CHECK_OK(af_grammar_matches(any, NULL, 0, &fits, &err), err);
    assert_false(fits);
    assert_int_equal(af_grammar_open(&no, AF_GRAMMAR_JSON_SCHEMA, NULL, 0, NULL, &err), AF_EFORMAT);
    assert_int_equal(af_grammar_open(&no, AF_GRAMMAR_GBNF, NULL, 0, NULL, &err), AF_EFORMAT);
    assert_int_equal(af_tokenizer_from_json(&none, NULL, 0, &err), AF_EFORMAT);
    assert_int_equal(af_template_render_row(empty, NULL, 0, &text, &len, NULL, &err), AF_EFORMAT);
    assert_int_equal(af_json_tree(&(struct json_t *){NULL}, NULL, 0, 0, &err), AF_EFORMAT);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/empty.txt", dir);
    CHECK_OK(af_output_write(path, NULL, 0, false, &err), err);
    snprintf(command, sizeof command, "test -f %s && rm -rf %s", path, dir);
    assert_int_equal(system(command), 0);
    af_grammar_close(any);
    af_template_close(empty);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
}

static void test_inspect_needs_no_options(void **state)
{
    af_inspect_report *r = NULL;
    af_diff_report *d = NULL;
    af_error err = {0};
    char model[4096];
    (void)state;
    snprintf(model, sizeof model, "%s", golden("qwen2_tiny"));
    CHECK_OK(af_inspect(&r, model, NULL, &err), err);
    assert_true(r->tensor_count > 0 && !r->tensors[0].has_stats);
    CHECK_OK(af_inspect_diff(&d, model, model, NULL, &err), err);
    assert_int_equal(d->changed, 0);
    af_inspect_diff_free(d);
    af_inspect_free(r);
}

/* A length of 0 is the default, not the shortest. */
static void test_records_are_whole_without_a_length(void **state)
{
    af_model *m = NULL;
    af_error err = {0};
    af_eval_result none, zeros, asked;
    char data[4096];
    (void)state;
    snprintf(data, sizeof data, "%s", golden("data/train.jsonl"));
    const af_model_opts cpu = {.device = "cpu", .threads = 1};
    const af_eval_data_opts opts = {0}, len = {.sequence_len = 2048};
    CHECK_OK(af_model_open(&m, golden("qwen2"), &cpu, &err), err);
    CHECK_OK(af_model_eval_dataset(m, data, NULL, &none, &err), err);
    CHECK_OK(af_model_eval_dataset(m, data, &opts, &zeros, &err), err);
    CHECK_OK(af_model_eval_dataset(m, data, &len, &asked, &err), err);
    assert_true(asked.tokens > asked.rows);
    assert_true(none.tokens == asked.tokens && zeros.tokens == asked.tokens);
    assert_true(none.loss == asked.loss && zeros.loss == asked.loss);
    af_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_without_a_name_are_errors),
        cmocka_unit_test(test_options_that_cannot_be_are_errors),
        cmocka_unit_test(test_numbers_that_cannot_be_are_errors),
        cmocka_unit_test(test_schedules_of_impossible_numbers),
        cmocka_unit_test(test_a_text_of_no_bytes_may_be_null),
        cmocka_unit_test(test_inspect_needs_no_options),
        cmocka_unit_test(test_records_are_whole_without_a_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
