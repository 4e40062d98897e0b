/* test_oft_runs.c - orthogonal fine-tuning against PEFT step by step, what it writes, and what it
 * refuses. */
#define _DEFAULT_SOURCE
#include "train/method_runs.h"
#include "train/weight_files.h"

#include "afinar/convert.h"
#include "format/weights/safetensors.h"

static void test_runs_follow_peft(void **state)
{
    (void)state;
    check_run("oft");
    check_run("oft-exact"); /* four rotations per module */
    check_run("oft-share"); /* blocks of 10, where PEFT takes 8 */
    check_run("oft-continued");
    check_run_within("oft-4bit", 1e-4, 2e-4); /* as qlora in golden_run.h */
}

static void expect_shape(const af_safetensors *f, const char *module, int64_t rows, int64_t cols)
{
    char name[200];
    snprintf(name, sizeof name, "base_model.model.model.layers.1.%s.oft_R.weight", module);
    const af_stored *t = af_safetensors_find(f, name);
    CHECK_MSG(t && t->ndim == 2 && t->dim[0] == rows && t->dim[1] == cols, "%s", name);
}

static json_t *written_config(void)
{
    uint64_t size;
    char *text = read_output("out", "adapter_config.json", &size);
    json_t *config = json_loadb(text, size, 0, NULL);
    free(text);
    return config;
}

/* The loss of a first step from what the last run left, and from the weights it is merged into. */
static void merged_computes_the_same(void)
{
    char path[300], adapter[300], merged[300], base[600], lines[400];
    af_error err = {0};
    af_train_result result;
    snprintf(adapter, sizeof adapter, "%s/adapter", dir);
    snprintf(path, sizeof path, "%s/out", dir);
    snprintf(merged, sizeof merged, "%s/merged", dir);
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    assert_int_equal(rename(path, adapter), 0);
    const af_merge_adapter_opts o = {
        .adapter = {adapter}, .weight = {1}, .adapters = 1, .threads = 1};
    CHECK_OK(af_merge_adapters(base, merged, &o, NULL, &err), err);
    snprintf(lines, sizeof lines, "adapter: oft\nlora_model_dir: %s\nmax_steps: 1\n", adapter);
    CHECK_OK(train(lines, &err), err);
    const double loss = first_metric("out", "loss");
    CHECK_OK(train("adapter: oft\nmax_steps: 1\n", &err), err);
    const double plain = first_metric("out", "loss");
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(lines, sizeof lines, "base_model=%s", merged);
    CHECK_OK(af_train(path, (const char *const[]){lines, "overwrite_output_dir=true"}, 2, NULL,
                      &result, &err),
             err);
    CHECK_MSG(fabs(first_metric("out", "loss") - loss) < 1e-5, "%.9g, merged %.9g", loss,
              first_metric("out", "loss"));
    CHECK_MSG(fabs(plain - loss) > 1e-2, "%g and %g", plain, loss);
}

/* Names, shapes and settings as PEFT has them; merged, the weights compute what was trained. */
static void test_what_is_written(void **state)
{
    (void)state;
    char path[300];
    af_error err = {0};
    CHECK_OK(train("adapter: oft\noft_block_size: 16\noft_target: [q_proj, down_proj]\n"
                   "num_cayley_neumann_terms: 4\nlearning_rate: 1e-2\nmax_steps: 8\n",
                   &err),
             err);
    snprintf(path, sizeof path, "%s/out/adapter_model.safetensors", dir);
    af_safetensors *f = open_weights(path);
    assert_int_equal(af_safetensors_count(f), 4);
    expect_shape(f, "self_attn.q_proj", 4, 120);
    expect_shape(f, "mlp.down_proj", 6, 120);
    af_safetensors_close(f);
    json_t *config = written_config();
    assert_string_equal(json_string_value(json_object_get(config, "peft_type")), "OFT");
    assert_int_equal(json_integer_value(json_object_get(config, "oft_block_size")), 16);
    assert_int_equal(json_integer_value(json_object_get(config, "r")), 0);
    assert_int_equal(json_integer_value(json_object_get(config, "num_cayley_neumann_terms")), 4);
    assert_true(json_is_true(json_object_get(config, "use_cayley_neumann")));
    assert_true(json_is_false(json_object_get(config, "block_share")));
    assert_null(json_object_get(config, "lora_alpha"));
    json_decref(config);

    merged_computes_the_same();
}

/* The third checkpoint is the best of four and is read again: its answer after the last step is
 * that of the weights after the third. */
static void test_samples_of_a_checkpoint(void **state)
{
    (void)state;
    enum { STEPS = 5 };
    af_error err = {0};
    uint64_t size;
    CHECK_OK(train("adapter: oft\nlearning_rate: 0.02\nmax_steps: 4\nval_set_size: 8\n"
                   "eval_steps: 1\nsave_steps: 1\nload_best_model_at_end: true\n"
                   "generate_samples: [hello]\ngenerate_samples_steps: 1\n"
                   "generate_samples_tokens: 8\n",
                   &err),
             err);
    char *text = read_output("out", "samples.jsonl", &size), *at = text;
    json_t *row[STEPS];
    for (int i = 0; i < STEPS; i++, at = strchr(at, '\n') + 1) {
        row[i] = json_loadb(at, strcspn(at, "\n"), 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(row[i], "step")), i);
    }
    assert_true(json_equal(json_object_get(row[3], "answer"), json_object_get(row[4], "answer")));
    assert_false(json_equal(json_object_get(row[1], "answer"), json_object_get(row[4], "answer")));
    for (int i = 0; i < STEPS; i++)
        json_decref(row[i]);
    free(text);
}

static void test_a_run_resumes(void **state)
{
    (void)state;
    check_resumes("adapter: oft\noft_r: 4\n", "adapter_model.safetensors");
    check_resumes("adapter: oft\noft_block_share: true\nuse_cayley_neumann: false\n"
                  "gradient_checkpointing: true\n",
                  "adapter_model.safetensors");
}

static void test_what_the_keys_refuse(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *must;
    } cases[] = {
        {"adapter: oft\noft_block_size: 8\noft_r: 4\n", "oft_block_size and oft_r contradict"},
        {"adapter: oft\noft_block_size: 0\n", "oft_block_size and oft_r are 0"},
        {"adapter: oft\noft_block_size: 1\n", "would have 1, not 2 to 8192"},
        {"adapter: oft\noft_r: 64\n", "would have 1, not 2 to 8192"},
        {"adapter: oft\nnum_cayley_neumann_terms: 1\n", "num_cayley_neumann_terms"},
        {"adapter: oft\ncoft: true\n", "rotations of OFT are not constrained"},
        {"adapter: oft\nmodule_dropout: 0.1\n", "a rotation of OFT is never left out"},
        {"adapter: oft\nlora_target_modules: [lm_head]\n", "OFT on 'lm_head' is not supported"},
        {"adapter: oft\nlora_target_modules: [embed_tokens]\n", "OFT on 'model.embed_tokens' is"},
        {"adapter: oft\nstrict: true\nlora_r: 8\n",
         "'lora_r' has no effect here: without 'adapter: lora' or"},
        {"adapter: lora\nstrict: true\noft_r: 8\n",
         "'oft_r' has no effect here: without 'adapter: oft'"},
        {"adapter: oft\ntokens: [<q>]\n", "OFT trains no rows of single tokens"},
        {"adapter: oft\ntrainable_token_indices: [3]\nstrict: true\n",
         "'trainable_token_indices' has no effect here"},
        {"oft_block_size: 8\n", "oft_block_size has no effect without 'adapter: oft'"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        CHECK_MSG(train(cases[i].lines, &err) != AF_OK, "accepted: %s", cases[i].lines);
        CHECK_MSG(strstr(err.msg, cases[i].must), "%s\nnot: %s", err.msg, cases[i].must);
    }
}

/* Of an adapter that is continued. */
static void test_continued_adapters_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *folder, *must;
    } cases[] = {
        {"adapter: lora\n", "runs/qwen2/oft-continued", "adapter is not oft, the one in"},
        {"adapter: oft\n", "runs/qwen2/lora", "adapter is oft, the one in"},
        {"adapter: oft\noft_block_size: 16\n", "runs/qwen2/oft-continued",
         "oft_block_size is not that of the adapter in"},
        {"adapter: oft\nuse_cayley_neumann: false\n", "runs/qwen2/oft-continued",
         "use_cayley_neumann is not that of the adapter in"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char lines[900];
        af_error err = {0};
        snprintf(lines, sizeof lines, "%slora_model_dir: %s/%s/initial_adapter\n", cases[i].lines,
                 golden_dir(), cases[i].folder);
        CHECK_MSG(train(lines, &err) == AF_EUSAGE, "accepted: %s", lines);
        CHECK_MSG(strstr(err.msg, cases[i].must), "%s\nnot: %s", err.msg, cases[i].must);
    }
}

/* The adapter of oft-continued with another config. */
static void write_changed(const char *from, const char *to)
{
    char path[700], *text;
    uint64_t size;
    af_error err = {0};
    af_buf b = {0};
    snprintf(path, sizeof path, "%s/changed", dir);
    CHECK_OK(af_dir_make(path, &err), err);
    snprintf(path, sizeof path, "%s/runs/qwen2/oft-continued/initial_adapter/adapter_config.json",
             golden_dir());
    CHECK_OK(af_file_read(&text, &size, path, 1 << 20, &err), err);
    const char *at = strstr(text, from);
    CHECK_MSG(at, "no %s", from);
    af_buf_printf(&b, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    snprintf(path, sizeof path, "%s/changed/adapter_config.json", dir);
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
    free(text);
    snprintf(path, sizeof path,
             "%s/runs/qwen2/oft-continued/initial_adapter/adapter_model.safetensors", golden_dir());
    CHECK_OK(af_file_read(&text, &size, path, 1 << 20, &err), err);
    snprintf(path, sizeof path, "%s/changed/adapter_model.safetensors", dir);
    CHECK_OK(af_file_write(path, text, size, &err), err);
    free(text);
}

static void test_configs_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *must;
    } cases[] = {
        {"\"oft_block_size\": 8", "\"oft_block_size\": 16", "config says 4 of 16"},
        {"\"block_share\": false", "\"block_share\": true", "config says 1 of 8"},
        {"\"oft_block_size\": 8", "\"oft_block_size\": 0", "no oft_block_size, and no r"},
        {"\"oft_block_size\": 8", "\"oft_block_size\": -1", "oft_block_size is not a number"},
        {"\"coft\": false", "\"coft\": true", "an OFT adapter of coft cannot be trained here"},
        {"\"coft\": false", "\"coft\": 0", "coft is not true or false"},
        {"\"0.21.2\"", "\"0.17.1\"", "an OFT adapter of a PEFT before 0.18 cannot be"},
        {"\"0.21.2\"", "null", "an OFT adapter of a PEFT before 0.18 cannot be"},
        {"\"OFT\"", "\"IA3\"", "is an adapter of type IA3, which is not possible here"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char lines[400];
        af_error err = {0};
        write_changed(cases[i].from, cases[i].to);
        snprintf(lines, sizeof lines, "adapter: oft\nlora_model_dir: %s/changed\n", dir);
        CHECK_MSG(train(lines, &err) != AF_OK, "accepted: %s", cases[i].to);
        CHECK_MSG(strstr(err.msg, cases[i].must), "%s\nnot: %s", err.msg, cases[i].must);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_peft),
        cmocka_unit_test(test_what_is_written),
        cmocka_unit_test(test_samples_of_a_checkpoint),
        cmocka_unit_test(test_a_run_resumes),
        cmocka_unit_test(test_what_the_keys_refuse),
        cmocka_unit_test(test_continued_adapters_are_checked),
        cmocka_unit_test(test_configs_are_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
