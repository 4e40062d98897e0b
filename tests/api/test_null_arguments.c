/* test_null_arguments.c - the rule of afinar.h: NULL for an argument that must be there gives an
 * error with one sentence or does nothing, and never crashes. Each public function is called once
 * per such argument, with NULL for that one. The lists of functions and of their pointers come from
 * the headers: a function without a line here, or a line that lacks a pointer, fails the test. */
#include "afinar/afinar.h"
#include "test.h"

/* What the calls below write instead of values: N is a pointer that must not be NULL, F(type) one
 * to a function, X a handle of the graph G, O one that may be NULL. No call reads what a pointer
 * that is not NULL points to, so that `any` will do for all of them. */
#define N       (null_here() ? NULL : (void *)any)
#define F(type) (null_here() ? NULL : (type)any_function)
#define G       (null_here() ? no_graph() : now.graph)
#define X       (null_here() ? NULL : now.tensor)
#define O       NULL

enum { FUNCTIONS_MAX = 512 };

static _Alignas(max_align_t) char any[1 << 16];
static void any_function(void) {}
static af_error unread;

static struct {
    const char *name[FUNCTIONS_MAX];
    int pointers[FUNCTIONS_MAX], count;
    int wrong;
} seen;

static struct {
    const char *name;
    int call, calls, at; /* of this function; required arguments of the running call so far */
    bool graph_is_null;
    af_graph *graph;
    af_tensor *tensor;
} now;

/* Is this the argument that is NULL in this call? Arguments may be evaluated in any order. */
static bool null_here(void) { return now.at++ == now.call; }

static af_graph *no_graph(void)
{
    now.graph_is_null = true;
    return NULL;
}

static bool is_mark(const char *p, const char *args)
{
    const bool begins = p == args || p[-1] == ' ';
    return begins && strchr("NGXOF", *p) && (p[1] == ',' || p[1] == '\0' || p[1] == '(');
}

static void begin(const char *name, const char *args)
{
    assert_true(seen.count < FUNCTIONS_MAX);
    seen.name[seen.count] = name;
    for (const char *p = args; *p; p++)
        seen.pointers[seen.count] += is_mark(p, args);
    seen.count++;
    now.name = name;
    now.call = -1;
    now.calls = 1;
}

static bool next(void)
{
    now.calls = now.at > now.calls ? now.at : now.calls;
    now.at = 0;
    now.graph_is_null = false;
    return ++now.call < now.calls;
}

static void expect(bool right, const char *what)
{
    if (right)
        return;
    print_error("%s, call %d: %s\n", now.name, now.call, what);
    seen.wrong++;
}

/* A function that returns a status: AF_EUSAGE that names the argument. */
static void check_status(af_status st, const af_error *err)
{
    expect(st == AF_EUSAGE && strstr(err->msg, " is NULL"), err->msg);
}

/* A function that records into a graph: the graph has the error. */
static void check_recording(void)
{
    af_error err = {0};
    const af_status st = af_graph_status(now.graph, &err);
    expect(now.graph_is_null || (st == AF_EUSAGE && strstr(err.msg, "NULL")), err.msg);
    af_graph_free(now.graph);
}

static void new_graph(void)
{
    af_error err = {0};
    CHECK_OK(af_graph_new(&now.graph, &err), err);
    now.tensor = af_graph_input(now.graph, "x", AF_DTYPE_F32, 2, (int64_t[]){4, 8});
}

#define NEEDS(function, ...)                                                                       \
    for (begin(#function, #__VA_ARGS__); next();) {                                                \
        af_error err = {0};                                                                        \
        check_status(function(__VA_ARGS__, &err), &err);                                           \
    }
#define RECORDS(function, ...)                                                                     \
    for (begin(#function, #__VA_ARGS__); next();) {                                                \
        new_graph();                                                                               \
        (void)function(__VA_ARGS__);                                                               \
        check_recording();                                                                         \
    }
#define IGNORES(function, ...)                                                                     \
    for (begin(#function, #__VA_ARGS__ ""); next();)                                               \
        (void)function(__VA_ARGS__);

static void test_general(void **state)
{
    (void)state;
    IGNORES(af_fail, &unread, AF_EIO, N, 0);
    IGNORES(af_fail_subject, &unread, AF_EIO, N, N, 0);
    IGNORES(af_fail_prefix, AF_EIO, &unread, N, 0);
    IGNORES(af_memory_check, &unread);
    IGNORES(af_status_name, AF_OK);
    IGNORES(af_version);
    IGNORES(af_log_set, O, O);
    IGNORES(af_dtype_name, (af_dtype)0);
    NEEDS(af_device_open, N, N, 0);
    IGNORES(af_device_close, O);
    IGNORES(af_device_kind, N);
    IGNORES(af_device_text, N);
    IGNORES(af_device_no_gpu, N);
    IGNORES(af_device_memory_free, N);
    IGNORES(af_device_allow_tf32, N, false);
    IGNORES(af_device_set_attention, N, (af_attention_by)0);
    IGNORES(af_device_set_gemm, N, (af_gemm_by)0);
    IGNORES(af_device_counters, N);
    NEEDS(af_schedule_init, N, N);
    IGNORES(af_schedule_lr, N, 0);
    IGNORES(af_schedule_names);
    IGNORES(af_doctor, N);
    NEEDS(af_bench, N, N);
    NEEDS(af_bench_gemm, N, 0, N, N);
    NEEDS(af_output_write, N, N, 1, false);
    NEEDS(af_output_check_file, N, false);
    IGNORES(af_output_abort);
    NEEDS(af_output_on_lost_file, F(void (*)(const char *file, const af_error *why)));
}

static void test_graph(void **state)
{
    (void)state;
    NEEDS(af_graph_new, N);
    IGNORES(af_graph_free, O);
    NEEDS(af_graph_status, N);
    RECORDS(af_graph_input, G, O, (af_dtype)0, 1, N);
    RECORDS(af_graph_weight, G, O, (af_dtype)0, 1, N);
    RECORDS(af_graph_param, G, O, (af_dtype)0, 1, N);
    RECORDS(af_graph_state, G, O, (af_dtype)0, 1, N);
    RECORDS(af_graph_constant, G, (af_dtype)0, 1, N, 0);
    RECORDS(af_graph_output, G, X);
    IGNORES(af_tensor_dtype, N);
    IGNORES(af_tensor_ndim, N);
    IGNORES(af_tensor_dim, N, 0);
    IGNORES(af_tensor_count, N);
    IGNORES(af_tensor_bytes, N);
    IGNORES(af_tensor_name, N);
    IGNORES(af_tensor_gradient, N);
    RECORDS(af_graph_backward, G, X);
    RECORDS(af_graph_optimizer, G, N);
    IGNORES(af_tensor_set_group, N, 0, false);
    RECORDS(af_graph_set_learning_rate, G, 0);
    RECORDS(af_graph_set_step, G, 0);
    RECORDS(af_graph_set_seed, G, 0);
    RECORDS(af_graph_set_training, G, false);
    IGNORES(af_graph_clock, N);
    RECORDS(af_graph_set_clock, G, 1);
    IGNORES(af_recompute_name, (af_recompute)0);
    RECORDS(af_graph_set_block, G, 0);
    RECORDS(af_graph_set_recompute, G, (af_recompute)0, 0);
    RECORDS(af_graph_set_recompute_rest, G, (af_recompute)0);
    RECORDS(af_graph_set_rebuilt, G, 0);
    RECORDS(af_graph_set_one_pass, G);
    RECORDS(af_graph_set_rows, G, 0);
    RECORDS(af_graph_set_live_rows, G, 0);
    NEEDS(af_graph_plan, N, N, O);
    NEEDS(af_graph_prepare, N, N);
    NEEDS(af_graph_run, N, AF_RUN_STEP);
    NEEDS(af_graph_average, N, true);
    NEEDS(af_tensor_write, N, N, N, 1);
    NEEDS(af_tensor_read, N, N, N, 1);
    NEEDS(af_tensor_read_later, N, N, N, 1);
    IGNORES(af_tensor_bind, N, N);
    IGNORES(af_tensor_bind_file, N, N);
    NEEDS(af_graph_grad_norm, N, O, O);
}

static void test_general_ops(void **state)
{
    (void)state;
    RECORDS(af_add, G, X, X);
    RECORDS(af_sub, G, X, X);
    RECORDS(af_mul, G, X, X);
    RECORDS(af_div, G, X, X);
    RECORDS(af_scale, G, X, 0);
    RECORDS(af_neg, G, X);
    RECORDS(af_exp, G, X);
    RECORDS(af_log, G, X);
    RECORDS(af_sqrt, G, X);
    RECORDS(af_tanh, G, X);
    RECORDS(af_sigmoid, G, X);
    RECORDS(af_relu, G, X);
    RECORDS(af_gelu, G, X);
    RECORDS(af_gelu_tanh, G, X);
    RECORDS(af_silu, G, X);
    RECORDS(af_softcap, G, X, 1);
    RECORDS(af_clip, G, X, 1);
    RECORDS(af_cast, G, X, (af_dtype)0);
    RECORDS(af_matmul, G, X, X, (af_matmul_kind)0);
    RECORDS(af_transpose, G, X, N);
    RECORDS(af_reshape, G, X, 1, N);
    RECORDS(af_detach, G, X);
    RECORDS(af_slice, G, X, 0, 0, 1);
    RECORDS(af_concat, G, N, 1, 0);
    RECORDS(af_sum, G, X, 0, false);
    RECORDS(af_mean, G, X, 0, false);
    RECORDS(af_max, G, X, 0, false);
    RECORDS(af_sum_all, G, X);
    RECORDS(af_mean_all, G, X);
    RECORDS(af_softmax, G, X);
    RECORDS(af_log_softmax, G, X);
    RECORDS(af_layernorm, G, X, X, X, 0);
    RECORDS(af_rmsnorm, G, X, X, 0, false);
    RECORDS(af_embedding, G, X, X, (af_dtype)0);
    RECORDS(af_embedding_frozen_row, G, X, 0);
    RECORDS(af_dropout, G, X, 0, 0);
    RECORDS(af_neftune_noise, G, X, X, 0, 0);
    RECORDS(af_mse, G, X, X);
    RECORDS(af_l1, G, X, X);
    RECORDS(af_huber, G, X, X, 1);
    RECORDS(af_bce_with_logits, G, X, X);
    RECORDS(af_cross_entropy, G, X, X, 0);
    RECORDS(af_kl, G, X, X);
    RECORDS(af_fake_quant, G, X, 0, 0, false);
    RECORDS(af_ternary, G, X, (af_dtype)0);
}

static void test_fused_ops(void **state)
{
    (void)state;
    RECORDS(af_rmsnorm_add, G, X, X, X, 0, false, O);
    RECORDS(af_rope, G, X, X, O, N);
    RECORDS(af_attention, G, X, X, N);
    RECORDS(af_bounds_cut, G, X, 0, 0);
    RECORDS(af_row_pick, G, X, X, X);
    RECORDS(af_expand_topk, G, X, X, 0, 0);
    RECORDS(af_attention_cached, G, X, X, X, X, N);
    RECORDS(af_conv, G, X, X, O, X, false);
    RECORDS(af_conv_cached, G, X, X, O, X, X, X, false);
    RECORDS(af_selective, G, N);
    RECORDS(af_selective_cached, G, N, X, X);
    RECORDS(af_scan, G, X, X, X, O, X, N);
    RECORDS(af_scan_cached, G, X, X, X, O, X, X, X, N);
    RECORDS(af_softplus, G, X, X, O);
    RECORDS(af_gated_norm, G, X, X, X, 0, false);
    RECORDS(af_glu, G, X, (af_act)0);
    RECORDS(af_glu_clamped, G, X, 1);
    RECORDS(af_xielu, G, X, X, X, X, X);
    RECORDS(af_linear, G, X, N);
    RECORDS(af_head_loss, G, X, X, X, O);
    RECORDS(af_dora_norm, G, N);
    RECORDS(af_moe_route, G, X, N, O);
    RECORDS(af_moe_ffn, G, X, X, X, N);
    RECORDS(af_moe_project, G, X, X, X, N);
}

static void test_text(void **state)
{
    (void)state;
    NEEDS(af_tokenizer_open, N, N);
    NEEDS(af_tokenizer_from_json, N, N, 1);
    IGNORES(af_tokenizer_close, O);
    NEEDS(af_tokenizer_encode, N, N, N, 1, false);
    IGNORES(af_encoding_clear, O);
    NEEDS(af_tokenizer_decode, N, N, O, N, 1, false);
    IGNORES(af_decode_stream_init, N, N, false);
    NEEDS(af_decode_stream_next, N, 0, N, N);
    IGNORES(af_decode_stream_clear, O);
    IGNORES(af_tokenizer_id, N, N, 1);
    IGNORES(af_tokenizer_token, N, 0, O);
    IGNORES(af_tokenizer_vocab_size, N);
    IGNORES(af_tokenizer_is_special, N, 0);
    IGNORES(af_tokenizer_is_added, N, 0);
    IGNORES(af_tokenizer_bos, N);
    IGNORES(af_tokenizer_eos, N);
    IGNORES(af_tokenizer_pad, N);
    IGNORES(af_tokenizer_unk, N);
    IGNORES(af_tokenizer_bos_text, N);
    IGNORES(af_tokenizer_eos_text, N);
    IGNORES(af_tokenizer_pad_text, N);
    IGNORES(af_tokenizer_unk_text, N);
    IGNORES(af_tokenizer_stops, N, O);
    NEEDS(af_json_tree, N, N, 1, 0);
    IGNORES(af_spans_clear, O);
    NEEDS(af_template_parse, N, N, 1);
    NEEDS(af_template_open, N, N);
    NEEDS(af_template_open_named, N, N, O);
    IGNORES(af_template_close, O);
    IGNORES(af_template_source, N, O);
    IGNORES(af_template_marks_generation, N);
    IGNORES(af_template_mentions, N, N);
    NEEDS(af_template_render_row, O, N, 1, N, N, O);
    NEEDS(af_template_answer_row, O, N, 1, N);
    IGNORES(af_template_has_channels, N);
    NEEDS(af_channels_new, N, N, 1, N);
    NEEDS(af_channels_add, N, N, 1);
    NEEDS(af_channels_finish, N);
    IGNORES(af_channels_free, O);
    NEEDS(af_grammar_vocab_open, N, N);
    NEEDS(af_grammar_vocab_add_stop, N, 0);
    IGNORES(af_grammar_vocab_close, O);
    NEEDS(af_grammar_open, N, (af_grammar_kind)0, N, 1, O);
    IGNORES(af_grammar_close, O);
    NEEDS(af_grammar_matches, N, N, 1, N);
    NEEDS(af_grammar_state_new, N, N);
    IGNORES(af_grammar_state_free, O);
    NEEDS(af_grammar_state_accept, N, 0);
    NEEDS(af_grammar_state_mask, N, N, 0);
    IGNORES(af_grammar_state_can_end, N);
    IGNORES(af_grammar_state_must_end, N);
}

static void test_model(void **state)
{
    (void)state;
    NEEDS(af_model_open, N, N, O);
    IGNORES(af_model_close, O);
    NEEDS(af_model_tokenizer, N, N);
    NEEDS(af_model_template, N, N);
    IGNORES(af_model_arch, N);
    IGNORES(af_model_vocab, N);
    IGNORES(af_model_params, N);
    IGNORES(af_model_device_text, N);
    IGNORES(af_model_has_head, N);
    NEEDS(af_model_logits_of, N, N, 1, N);
    NEEDS(af_model_logits_file, N, N, N, false);
    NEEDS(af_eval_new, N, N, 0);
    NEEDS(af_eval_add, N, (af_token_row){0});
    NEEDS(af_eval_finish, N, N);
    IGNORES(af_eval_free, O);
    NEEDS(af_model_eval_text, N, N, 0, N);
    NEEDS(af_model_eval_dataset, N, N, O, N);
    NEEDS(af_eval_data_check, N, O);
    IGNORES(af_model_labels, N);
    IGNORES(af_model_label, N, 0);
    IGNORES(af_model_label_kind, N);
    NEEDS(af_model_classify, N, N, 1, O, O);
    NEEDS(af_model_eval_labels, N, N, O, N);
    IGNORES(af_stop_name, (af_stop)0);
    NEEDS(af_model_sampling, N, N);
    NEEDS(af_model_generate, N, N, N);
    IGNORES(af_generated_clear, O);
    IGNORES(af_model_times, N);
    NEEDS(af_model_eval_answers, N, N, N, N);
    NEEDS(af_model_record, N, N, N);
    IGNORES(af_model_graph_free, O);
    IGNORES(af_model_graph_graph, N);
    IGNORES(af_model_graph_hidden, N);
    IGNORES(af_model_graph_logits, N);
    IGNORES(af_model_graph_labels, N);
    IGNORES(af_model_graph_param, N, 0);
    IGNORES(af_model_graph_param_count, N);
    NEEDS(af_model_graph_prepare, N);
    NEEDS(af_model_graph_feed, N, N, 1);
    NEEDS(af_model_graph_save, N, N);
    NEEDS(af_decoder_open, N, N, O);
    IGNORES(af_decoder_close, O);
    NEEDS(af_decoder_add_adapter, N, N, N, N);
    NEEDS(af_decoder_remove_adapter, N, 0);
    IGNORES(af_decoder_find_adapter, N, N);
    NEEDS(af_decoder_submit, N, N, N);
    IGNORES(af_decoder_cancel, N, 0);
    NEEDS(af_decoder_step, N, O);
    IGNORES(af_decoder_width, N);
    NEEDS(af_decoder_embed, N, N, 1, 0, (af_pooling)0, N);
    IGNORES(af_decoder_count, N);
}

static void test_train(void **state)
{
    (void)state;
    NEEDS(af_train, N, N, 1, O, O);
    NEEDS(af_run_new, N);
    NEEDS(af_run_set, N, N, N);
    NEEDS(af_run_open, N, O);
    NEEDS(af_run_step, N, O);
    NEEDS(af_run_evaluate, N, O, O);
    NEEDS(af_run_save, N, O);
    NEEDS(af_run_checkpoint, N);
    IGNORES(af_run_close, O);
    NEEDS(af_train_help, N);
    NEEDS(af_train_keys_json, N);
    NEEDS(af_distill_capture, N, N, 1, N, false, O, O);
    NEEDS(af_train_plan, N, N, 1, 0, false, N);
    NEEDS(af_train_plan_ranks, N, N, 1, 0, O, false, N);
    NEEDS(af_train_eval, N, N, 1, N);
    NEEDS(af_train_init, N, N, N);
    NEEDS(af_data_preview, N, N, 1, 0, F(af_data_hook *), O);
    IGNORES(af_data_example_json, N);
    NEEDS(af_data_records, N, O, O, 0, F(af_data_line_hook *), O);
    NEEDS(af_data_check, N, N, 1, false, O, O, N);
    NEEDS(af_server_open, N, N, O);
    IGNORES(af_server_url, N);
    IGNORES(af_server_model_name, N, 0);
    IGNORES(af_server_drain, N, 0);
    IGNORES(af_server_close, O);
    IGNORES(af_server_run_step, N, N);
    IGNORES(af_server_run_between, N, N, 0);
    IGNORES(af_server_run_stopping, N);
    IGNORES(af_server_run_end, N, false, 0);
}

static void test_files(void **state)
{
    (void)state;
    IGNORES(af_convert_report_free, O);
    NEEDS(af_quantize, N, N, N, N);
    NEEDS(af_merge_file, N, N, N, O);
    NEEDS(af_merge_adapters, N, N, N, O);
    NEEDS(af_extract_lora, N, N, N, N, O);
    NEEDS(af_export, N, N, N, N, N);
    NEEDS(af_inspect, N, N, O);
    IGNORES(af_inspect_free, O);
    NEEDS(af_inspect_json, N, N);
    NEEDS(af_inspect_diff, N, N, N, O);
    IGNORES(af_inspect_diff_free, O);
    NEEDS(af_inspect_diff_json, N, N);
    IGNORES(af_grid_count, 0, 0, N);
    NEEDS(af_observer_new, N, 0, 0, N);
    IGNORES(af_observer_free, O);
    NEEDS(af_observer_add, N, N);
    NEEDS(af_observer_range, N, 0, N, N);
    NEEDS(af_observer_finish, N, N, N);
    IGNORES(af_grid_encode, 0, 0, N, N, N, N, N);
    IGNORES(af_grid_decode, 0, 0, N, N, N, N, N);
    IGNORES(af_grid_measure, N, N, 1);
    NEEDS(af_hub_pull, N, N, N);
    NEEDS(af_hub_push, N, N, N, N);
    IGNORES(af_hub_set, O);
    IGNORES(af_hub_library, N, 1);
}

/* The last test: what the others have called is what the headers have. */
static void test_every_function_and_pointer_has_its_place(void **state)
{
    (void)state;
    const char *source = getenv("AF_SOURCE");
    char command[4200], name[128];
    int pointers, functions = 0;
    snprintf(command, sizeof command, "python3 '%s/tools/check-headers' --pointers",
             source ? source : ".");
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (; fscanf(f, "%127s %d", name, &pointers) == 2; functions++) {
        int i = 0;
        while (i < seen.count && strcmp(seen.name[i], name) != 0)
            i++;
        now.name = name;
        now.call = pointers;
        expect(i < seen.count, "the function has no line in this test");
        expect(i == seen.count || seen.pointers[i] == pointers, "its pointers are more or fewer");
    }
    assert_int_equal(pclose(f), 0);
    assert_true(functions > 250);
    assert_int_equal(seen.wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_general),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_general_ops),
        cmocka_unit_test(test_fused_ops),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_train),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_every_function_and_pointer_has_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
