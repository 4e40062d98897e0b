/* test_null_error.c - `err` may be NULL at every public function: each one that takes an af_error
 * is called with NULL and bad input. The list of functions comes from the headers, so that a new
 * one without a case here fails the test. */
#include "afinar/afinar.h"
#include "test.h"

#include <unistd.h>

static const char *const nowhere = "/dev/null/thing";

/* Made once, by the first case that needs it; cleared at the end. */
static struct {
    af_model *model;
    af_tokenizer *tokenizer;
    af_device *cpu;
    af_observer *observer;
    af_model_graph *recording;
    af_grammar_vocab *vocab;
    af_grammar *grammar;
    af_grammar_state *grammar_state;
} made;

static af_model *model(void)
{
    char dir[4096];
    af_error err = {0};
    snprintf(dir, sizeof dir, "%s/models/qwen2_tiny", golden_dir());
    const af_model_opts opts = {.device = "cpu", .threads = 1};
    if (!made.model)
        CHECK_OK(af_model_open(&made.model, dir, &opts, &err), err);
    return made.model;
}

static const af_tokenizer *tokenizer(void)
{
    char dir[4096];
    af_error err = {0};
    snprintf(dir, sizeof dir, "%s/models/qwen2", golden_dir());
    if (!made.tokenizer)
        CHECK_OK(af_tokenizer_open(&made.tokenizer, dir, &err), err);
    return made.tokenizer;
}

/* A graph with a recording error, or one that is not prepared. */
static af_graph *graph(bool broken)
{
    af_graph *g;
    if (af_graph_new(&g, NULL) != AF_OK)
        fail_msg("no graph");
    af_tensor *a = af_graph_input(g, "a", AF_DTYPE_F32, 1, (int64_t[]){3});
    if (broken)
        af_add(g, a, af_graph_input(g, "b", AF_DTYPE_F32, 1, (int64_t[]){4}));
    return g;
}

static af_device *cpu(void)
{
    if (!made.cpu && af_device_open(&made.cpu, "cpu", 1, NULL) != AF_OK)
        fail_msg("no device");
    return made.cpu;
}

static af_observer *observer(void)
{
    const af_grid_opts opts = {.bits = 8};
    if (!made.observer && af_observer_new(&made.observer, 2, 2, &opts, NULL) != AF_OK)
        fail_msg("no observer");
    return made.observer;
}

static af_model_graph *recording(void)
{
    const af_record_opts opts = {.rows = 4};
    if (!made.recording && af_model_record(&made.recording, model(), &opts, NULL) != AF_OK)
        fail_msg("no recording");
    return made.recording;
}

static af_grammar *grammar(void)
{
    if (!made.grammar && (af_grammar_vocab_open(&made.vocab, tokenizer(), NULL) != AF_OK ||
                          af_grammar_open(&made.grammar, AF_GRAMMAR_GBNF, "root ::= \"a\"", 12,
                                          made.vocab, NULL) != AF_OK))
        fail_msg("no grammar");
    return made.grammar;
}

static af_grammar_state *grammar_state(void)
{
    if (!made.grammar_state && af_grammar_state_new(&made.grammar_state, grammar(), NULL) != AF_OK)
        fail_msg("no state");
    return made.grammar_state;
}

static int clear_made(void **state)
{
    (void)state;
    af_grammar_state_free(made.grammar_state);
    af_grammar_close(made.grammar);
    af_grammar_vocab_close(made.vocab);
    af_model_graph_free(made.recording);
    af_observer_free(made.observer);
    af_device_close(made.cpu);
    af_tokenizer_close(made.tokenizer);
    af_model_close(made.model);
    return 0;
}

/* ---- one case per function; true: it failed, as it must ---- */

#define FAILS(name, ...)                                                                           \
    static bool call_##name(void) { return name(__VA_ARGS__) != AF_OK; }

static bool ignore_line(void *user, const char *json, uint64_t len)
{
    (void)user;
    (void)json;
    (void)len;
    return true;
}

static bool ignore(void *user, const af_data_example *e)
{
    (void)user, (void)e;
    return true;
}
static void fault(void *user, const char *message) { (void)user, (void)message; }

FAILS(af_bench, &(af_bench_opts){.shape = "huge", .method = "x", .dtype = "x", .memory = "x"},
      &(af_bench_result){0}, NULL)
FAILS(af_channels_new, NULL, "", 0, NULL, NULL)
FAILS(af_channels_add, NULL, "", 0, NULL)
FAILS(af_channels_finish, NULL, NULL)
FAILS(af_bench_gemm, "abacus", 1, &(double){0}, &(double){0}, NULL)
FAILS(af_data_check, nowhere, NULL, 0, false, fault, NULL, &(af_data_report){0}, NULL)
FAILS(af_data_records, nowhere, NULL, NULL, 0, ignore_line, NULL, NULL)
FAILS(af_data_preview, nowhere, NULL, 0, 1, ignore, NULL, NULL)
FAILS(af_device_open, &(af_device *){NULL}, "abacus", 1, NULL)
FAILS(af_eval_data_check, nowhere, &(af_eval_data_opts){.sequence_len = 8}, NULL)
FAILS(af_export, nowhere, "/dev/null/x.gguf", &(af_export_opts){0}, &(af_convert_report *){NULL},
      &(af_verify_result){0}, NULL)
FAILS(af_extract_lora, nowhere, nowhere, "/dev/null/x", &(af_extract_opts){.rank = 4}, NULL, NULL)
FAILS(af_grammar_open, &(af_grammar *){NULL}, AF_GRAMMAR_GBNF, "root", 4, NULL, NULL)
FAILS(af_grammar_state_accept, grammar_state(), -1, NULL)
FAILS(af_grammar_state_mask, grammar_state(), &(uint32_t){0}, 0, NULL)
FAILS(af_fail, NULL, AF_EIO, "%s", "x")
FAILS(af_fail_subject, NULL, AF_EIO, "x", "%s", "x")
FAILS(af_fail_prefix, AF_EIO, NULL, "%s", "x")
static bool call_af_memory_check(void) { return af_memory_check(NULL) == AF_OK; }
FAILS(af_json_tree, &(struct json_t *){NULL}, "{", 1, 0, NULL)
FAILS(af_inspect, &(af_inspect_report *){NULL}, nowhere, &(af_inspect_options){0}, NULL)
FAILS(af_inspect_diff, &(af_diff_report *){NULL}, nowhere, nowhere, &(af_inspect_options){0}, NULL)
FAILS(af_merge_adapters, nowhere, "/dev/null/x",
      &(af_merge_adapter_opts){.adapter = {nowhere}, .weight = {1}, .adapters = 1}, NULL, NULL)
FAILS(af_merge_file, nowhere, "/dev/null/x", &(af_merge_opts){0}, NULL, NULL)
FAILS(af_model_eval_dataset, model(), nowhere, &(af_eval_data_opts){.sequence_len = 8},
      &(af_eval_result){0}, NULL)
FAILS(af_model_eval_answers, model(), nowhere,
      &(af_answers_opts){.data = {.sequence_len = 8}, .max_new = 1}, &(af_answers_result){0}, NULL)
FAILS(af_model_classify, model(), &(int32_t){1}, 1, NULL, NULL, NULL)
FAILS(af_model_eval_labels, model(), nowhere, &(af_eval_data_opts){.sequence_len = 8},
      &(af_label_eval){0}, NULL)
FAILS(af_model_eval_text, model(), nowhere, 8, &(af_eval_result){0}, NULL)
FAILS(af_model_graph_feed, recording(), NULL, 1, NULL)
FAILS(af_model_graph_prepare, NULL, NULL)
FAILS(af_model_graph_save, recording(), "/dev/null/x", NULL)
FAILS(af_model_logits_file, model(), nowhere, "/dev/null/x", false, NULL)
FAILS(af_model_logits_of, model(), &(int32_t){-1}, 1, &(float){0}, NULL)
FAILS(af_model_open, &(af_model *){NULL}, nowhere, &(af_model_opts){.device = "cpu"}, NULL)
FAILS(af_output_check_file, "/dev/null/x", false, NULL)
FAILS(af_output_on_lost_file, NULL, NULL)
FAILS(af_output_write, "/dev/null/x", "x", 1, false, NULL)
FAILS(af_model_record, &(af_model_graph *){NULL}, model(), &(af_record_opts){.rows = -1}, NULL)
FAILS(af_model_template, model(), &(const af_template *){NULL}, NULL)
FAILS(af_model_tokenizer, model(), &(const af_tokenizer *){NULL}, NULL)
FAILS(af_observer_add, observer(), (float[4]){1, 2, __builtin_nanf(""), 4}, NULL)
FAILS(af_observer_finish, observer(), &(float){0}, &(int32_t){0}, NULL)
FAILS(af_observer_new, &(af_observer *){NULL}, 2, 2, &(af_grid_opts){.bits = 99}, NULL)
FAILS(af_observer_range, observer(), 99, &(float){0}, &(float){0}, NULL)
FAILS(af_quantize, &(af_convert_report *){NULL}, nowhere, "/dev/null/x",
      &(af_quantize_opts){.type = "nf4"}, NULL)
FAILS(af_hub_pull, &(char *){NULL}, "../x", &(af_pull_opts){0}, NULL)
FAILS(af_hub_push, &(char *){NULL}, nowhere, "../x", &(af_push_opts){0}, NULL)
FAILS(af_schedule_init, &(af_schedule){0}, &(af_schedule_opts){.name = "zigzag"}, NULL)
FAILS(af_template_open, &(af_template *){NULL}, nowhere, NULL)
FAILS(af_template_open_named, &(af_template *){NULL}, nowhere, "x", NULL)
FAILS(af_template_parse, &(af_template *){NULL}, "{% if", 5, NULL)
FAILS(af_template_render_row, NULL, "nonsense", 8, &(char *){NULL}, &(uint64_t){0}, NULL, NULL)
FAILS(af_tokenizer_encode, tokenizer(), &(af_encoding){0}, "\xff\xfe", 2, true, NULL)
FAILS(af_tokenizer_from_json, &(af_tokenizer *){NULL}, "{", 1, NULL)
FAILS(af_tokenizer_open, &(af_tokenizer *){NULL}, nowhere, NULL)
FAILS(af_train, nowhere, NULL, 0, NULL, &(af_train_result){0}, NULL)
FAILS(af_train_eval, nowhere, NULL, 0, &(af_eval_result){0}, NULL)
FAILS(af_train_init, nowhere, nowhere, &(char *){NULL}, NULL)
FAILS(af_distill_capture, nowhere, NULL, 0, nowhere, false, NULL, NULL, NULL)
FAILS(af_train_plan, nowhere, NULL, 0, 0, false, &(char *){NULL}, NULL)
FAILS(af_train_plan_ranks, nowhere, NULL, 0, 0, NULL, false, &(char *){NULL}, NULL)

/* A run that is not open. */
static bool on_run(af_status (*call)(af_run *run))
{
    af_run *run = NULL;
    if (af_run_new(&run, NULL) != AF_OK)
        return false;
    const af_status st = call(run);
    af_run_close(run);
    return st != AF_OK;
}

#define FAILS_ON_RUN(name, ...)                                                                    \
    static af_status run_##name(af_run *run) { return name(__VA_ARGS__); }                         \
    static bool call_##name(void) { return on_run(run_##name); }

FAILS_ON_RUN(af_run_set, run, "no_such_key", "1", NULL)
FAILS_ON_RUN(af_run_open, run, NULL, NULL)
FAILS_ON_RUN(af_run_step, run, NULL, NULL)
FAILS_ON_RUN(af_run_evaluate, run, NULL, NULL, NULL)
FAILS_ON_RUN(af_run_save, run, NULL, NULL)
FAILS_ON_RUN(af_run_checkpoint, run, NULL)
static bool on_graph(bool broken, af_status (*call)(af_graph *g))
{
    af_graph *g = graph(broken);
    const af_status st = call(g);
    af_graph_free(g);
    return st != AF_OK;
}

#define FAILS_ON_GRAPH(name, broken, ...)                                                          \
    static af_status graph_##name(af_graph *g) { return name(__VA_ARGS__); }                       \
    static bool call_##name(void) { return on_graph(broken, graph_##name); }

FAILS_ON_GRAPH(af_graph_status, true, g, NULL)
FAILS_ON_GRAPH(af_graph_plan, true, g, cpu(), NULL, NULL)
FAILS_ON_GRAPH(af_graph_prepare, true, g, cpu(), NULL)
FAILS_ON_GRAPH(af_graph_run, false, g, AF_RUN_STEP, NULL)
FAILS_ON_GRAPH(af_graph_average, false, g, true, NULL)
FAILS_ON_GRAPH(af_graph_grad_norm, false, g, NULL, NULL, NULL)
FAILS_ON_GRAPH(af_tensor_write, false, g, NULL, "x", 1, NULL)
FAILS_ON_GRAPH(af_tensor_read, false, g, NULL, &(char){0}, 1, NULL)
FAILS_ON_GRAPH(af_tensor_read_later, false, g, NULL, &(char){0}, 1, NULL)

static bool call_af_eval_add(void)
{
    af_eval *e;
    const int32_t bad[] = {1, -5, 1 << 30};
    if (af_eval_new(&e, model(), 8, NULL) != AF_OK)
        return false;
    const af_status st = af_eval_add(e, (af_token_row){bad, bad, 3}, NULL);
    af_eval_free(e);
    return st != AF_OK;
}

static bool call_af_model_generate(void)
{
    const int32_t bad = -1, *const prompt = &bad;
    const int64_t len = 1;
    af_generated r = {0};
    const af_generate_opts o = {
        .prompt = &prompt, .prompt_len = &len, .sequences = 1, .max_new = 1, .ids_only = true};
    return af_model_generate(model(), &o, &r, NULL) != AF_OK;
}

FAILS(af_decoder_open, &(af_decoder *){NULL}, NULL, NULL, NULL)
FAILS(af_decoder_add_adapter, NULL, "a", "b", &(int){0}, NULL)
FAILS(af_decoder_remove_adapter, NULL, 1, NULL)
FAILS(af_decoder_submit, NULL, NULL, &(uint64_t){0}, NULL)
FAILS(af_decoder_step, NULL, NULL, NULL)
FAILS(af_decoder_embed, NULL, NULL, 0, 0, AF_POOLING_LAST, &(float){0}, NULL)
FAILS(af_server_open, &(af_server *){NULL}, "/dev/null/x", NULL, NULL)

/* ---- functions without input that could be bad: they succeed with NULL ---- */

static bool call_af_graph_new(void)
{
    af_graph_free(graph(false));
    return true;
}

static bool call_af_run_new(void)
{
    af_run *run = NULL;
    const bool good = af_run_new(&run, NULL) == AF_OK;
    af_run_close(run);
    return good;
}

static bool call_af_eval_new(void)
{
    af_eval *e;
    const bool good = af_eval_new(&e, model(), 8, NULL) == AF_OK;
    if (good)
        af_eval_free(e);
    return good;
}

static bool call_af_eval_finish(void) /* nothing was added: an error or zeros, not a crash */
{
    af_eval *e;
    af_eval_result r = {0};
    if (af_eval_new(&e, model(), 8, NULL) != AF_OK)
        return false;
    const af_status st = af_eval_finish(e, &r, NULL);
    af_eval_free(e);
    return st != AF_OK || r.tokens == 0;
}

static bool call_af_grammar_matches(void) /* these fail when memory runs out alone */
{
    bool fits = true;
    return af_grammar_matches(grammar(), "b", 1, &fits, NULL) == AF_OK && !fits;
}
static bool call_af_grammar_state_new(void) { return grammar_state() != NULL; }
static bool call_af_grammar_vocab_open(void) { return grammar() != NULL; }
static bool call_af_grammar_vocab_add_stop(void)
{
    af_grammar_vocab *v;
    if (af_grammar_vocab_open(&v, tokenizer(), NULL) != AF_OK)
        return false;
    const af_status st = af_grammar_vocab_add_stop(v, -1, NULL);
    af_grammar_vocab_close(v);
    return st == AF_EUSAGE;
}

static bool call_af_decode_stream_next(void) /* ids outside the vocabulary are skipped */
{
    af_decode_stream s;
    const char *text;
    uint64_t len;
    af_decode_stream_init(&s, tokenizer(), false);
    const bool good = af_decode_stream_next(&s, -1, &text, &len, NULL) == AF_OK && len == 0;
    af_decode_stream_clear(&s);
    return good;
}

static bool call_af_tokenizer_decode(void)
{
    char *text = NULL;
    const int32_t bad = -1;
    const af_status st = af_tokenizer_decode(tokenizer(), &text, NULL, &bad, 1, false, NULL);
    const bool good = st == AF_OK && !*text;
    free(text);
    return good;
}

static bool gives_text(af_status st, char *text, const char *part)
{
    const bool good = st == AF_OK && text && strstr(text, part);
    free(text);
    return good;
}

static bool call_af_train_help(void)
{
    char *text = NULL;
    const af_status st = af_train_help(&text, NULL);
    return gives_text(st, text, "base_model");
}

static bool call_af_train_keys_json(void)
{
    char *text = NULL;
    const af_status st = af_train_keys_json(&text, NULL);
    return gives_text(st, text, "\"base_model\"");
}

static bool call_af_template_answer_row(void) /* the error is the answer */
{
    char *text = NULL;
    const af_status st = af_template_answer_row(NULL, "nonsense", 8, &text, NULL);
    return gives_text(st, text, "\"error\"");
}

static bool call_af_model_sampling(void)
{
    af_sample_opts s;
    return af_model_sampling(model(), &s, NULL) == AF_OK;
}

static bool call_af_inspect_json(void)
{
    char dir[4096], *text = NULL;
    af_inspect_report *r;
    snprintf(dir, sizeof dir, "%s/models/qwen2_tiny", golden_dir());
    if (af_inspect(&r, dir, &(af_inspect_options){.threads = 1}, NULL) != AF_OK)
        return false;
    const af_status st = af_inspect_json(&text, r, NULL);
    af_inspect_free(r);
    return gives_text(st, text, "tensors");
}

static bool call_af_inspect_diff_json(void)
{
    char dir[4096], *text = NULL;
    af_diff_report *r;
    snprintf(dir, sizeof dir, "%s/models/qwen2_tiny", golden_dir());
    if (af_inspect_diff(&r, dir, dir, &(af_inspect_options){.threads = 1}, NULL) != AF_OK)
        return false;
    const af_status st = af_inspect_diff_json(&text, r, NULL);
    af_inspect_diff_free(r);
    return gives_text(st, text, "same");
}

#define CASE(name)                                                                                 \
    {                                                                                              \
#name, call_##name                                                                         \
    }

static const struct {
    const char *name;
    bool (*call)(void);
} cases[] = {
    CASE(af_bench),
    CASE(af_grammar_matches),
    CASE(af_grammar_open),
    CASE(af_grammar_state_accept),
    CASE(af_grammar_state_mask),
    CASE(af_grammar_state_new),
    CASE(af_grammar_vocab_add_stop),
    CASE(af_grammar_vocab_open),
    CASE(af_bench_gemm),
    CASE(af_channels_new),
    CASE(af_channels_add),
    CASE(af_channels_finish),
    CASE(af_data_check),
    CASE(af_data_preview),
    CASE(af_data_records),
    CASE(af_decode_stream_next),
    CASE(af_device_open),
    CASE(af_eval_add),
    CASE(af_eval_data_check),
    CASE(af_eval_finish),
    CASE(af_eval_new),
    CASE(af_export),
    CASE(af_extract_lora),
    CASE(af_fail),
    CASE(af_fail_prefix),
    CASE(af_fail_subject),
    CASE(af_graph_average),
    CASE(af_graph_grad_norm),
    CASE(af_graph_new),
    CASE(af_graph_plan),
    CASE(af_graph_prepare),
    CASE(af_graph_run),
    CASE(af_graph_status),
    CASE(af_inspect),
    CASE(af_inspect_diff),
    CASE(af_inspect_diff_json),
    CASE(af_inspect_json),
    CASE(af_json_tree),
    CASE(af_memory_check),
    CASE(af_merge_adapters),
    CASE(af_merge_file),
    CASE(af_model_classify),
    CASE(af_model_eval_answers),
    CASE(af_model_eval_dataset),
    CASE(af_model_eval_labels),
    CASE(af_model_eval_text),
    CASE(af_model_generate),
    CASE(af_decoder_open),
    CASE(af_decoder_add_adapter),
    CASE(af_decoder_remove_adapter),
    CASE(af_decoder_submit),
    CASE(af_decoder_step),
    CASE(af_decoder_embed),
    CASE(af_server_open),
    CASE(af_model_graph_feed),
    CASE(af_model_graph_prepare),
    CASE(af_model_graph_save),
    CASE(af_model_logits_file),
    CASE(af_model_logits_of),
    CASE(af_model_open),
    CASE(af_model_record),
    CASE(af_model_sampling),
    CASE(af_model_template),
    CASE(af_model_tokenizer),
    CASE(af_observer_add),
    CASE(af_observer_finish),
    CASE(af_output_check_file),
    CASE(af_output_on_lost_file),
    CASE(af_output_write),
    CASE(af_observer_new),
    CASE(af_observer_range),
    CASE(af_hub_pull),
    CASE(af_hub_push),
    CASE(af_quantize),
    CASE(af_run_checkpoint),
    CASE(af_run_evaluate),
    CASE(af_run_new),
    CASE(af_run_open),
    CASE(af_run_save),
    CASE(af_run_set),
    CASE(af_run_step),
    CASE(af_schedule_init),
    CASE(af_template_answer_row),
    CASE(af_template_open),
    CASE(af_template_open_named),
    CASE(af_template_parse),
    CASE(af_template_render_row),
    CASE(af_tensor_read),
    CASE(af_tensor_read_later),
    CASE(af_tensor_write),
    CASE(af_tokenizer_decode),
    CASE(af_tokenizer_encode),
    CASE(af_tokenizer_from_json),
    CASE(af_tokenizer_open),
    CASE(af_train),
    CASE(af_train_eval),
    CASE(af_train_help),
    CASE(af_train_init),
    CASE(af_train_keys_json),
    CASE(af_distill_capture),
    CASE(af_train_plan),
    CASE(af_train_plan_ranks),
};

static bool has_case(const char *name)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!strcmp(cases[i].name, name))
            return true;
    return false;
}

static void test_every_function_that_takes_an_error_has_a_case(void **state)
{
    (void)state;
    const char *source = getenv("AF_SOURCE");
    char command[4200], name[128];
    int functions = 0, missing = 0;
    snprintf(command, sizeof command, "python3 '%s/tools/check-headers' --null-list",
             source ? source : ".");
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (; fscanf(f, "%127s", name) == 1; functions++)
        if (!has_case(name)) {
            print_error("%s has no case in %s\n", name, __FILE__);
            missing++;
        }
    assert_int_equal(pclose(f), 0);
    assert_true(functions > 50);
    assert_int_equal(missing, 0);
}

static void test_null_is_safe_at_every_function(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!cases[i].call()) {
            print_error("%s with a NULL error: wrong result\n", cases[i].name);
            bad++;
        }
    assert_int_equal(bad, 0);
}

/* Failures deep inside a run, where an error passes through many functions. */
static void test_null_is_safe_where_a_run_fails_late(void **state)
{
    (void)state;
    static const char *const overrides[] = {"lora_target_modules=[nothing_like_it]",
                                            "lora_modules_to_save=[nothing_like_it]",
                                            "device=abacus",
                                            "lr_scheduler=zigzag",
                                            "chat_template=/dev/null/x.jinja",
                                            "generate_samples_steps=5",
                                            "lora_model_dir=/dev/null/x",
                                            "resume_from_checkpoint=/dev/null/x"};
    char file[] = "/tmp/afinar-run-XXXXXX", out[] = "/tmp/afinar-out-XXXXXX";
    const int fd = mkstemp(file);
    assert_true(fd >= 0);
    assert_non_null(mkdtemp(out));
    FILE *f = fdopen(fd, "w");
    fprintf(
        f,
        "base_model: %s/models/qwen2\nadapter: lora\noutput_dir: %s\ndevice: cpu\n"
        "max_steps: 1\ndatasets:\n  - {path: %s/models/data/train.jsonl, type: chat_template}\n",
        golden_dir(), out, golden_dir());
    fclose(f);
    for (size_t i = 0; i < sizeof overrides / sizeof overrides[0]; i++) {
        af_train_result r;
        af_error err = {0};
        const af_status st = af_train(file, &overrides[i], 1, NULL, &r, NULL);
        CHECK_MSG(st != AF_OK, "%s passes", overrides[i]);
        assert_int_equal(af_train(file, &overrides[i], 1, NULL, &r, &err), st);
    }
    remove(file);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", out);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_function_that_takes_an_error_has_a_case),
        cmocka_unit_test(test_null_is_safe_at_every_function),
        cmocka_unit_test(test_null_is_safe_where_a_run_fails_late),
    };
    return cmocka_run_group_tests(tests, NULL, clear_made);
}
