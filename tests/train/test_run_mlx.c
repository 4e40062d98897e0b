/* test_run_mlx.c - run files of mlx-lm. */
#include "test.h"

#include "base/file.h"
#include "train/run/method.h"
#include "train/run/run_keys.h"

static char dir[256];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "%s/afinar-mlx-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    af_error err = {0};
    (void)state;
    return af_path_remove(dir, &err) == AF_OK ? 0 : -1;
}

static void put_file(const char *name, const char *text)
{
    char path[600];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
}

/* One record with a completion of so many bytes. */
static void put_long(const char *name, size_t bytes)
{
    char *text = calloc(bytes + 64, 1);
    assert_non_null(text);
    const int head = snprintf(text, 64, "{\"prompt\": \"a\", \"completion\": \"");
    memset(text + head, 'b', bytes);
    memcpy(text + head + bytes, "\"}\n", 3);
    put_file(name, text);
    free(text);
}

static af_status parse(af_run_config *r, const char *keys, af_error *err)
{
    char text[1000];
    snprintf(text, sizeof text, "model: m\niters: 5\n%s\n", keys);
    return af_run_config_parse(r, text, strlen(text), "run.yaml", NULL, 0, err);
}

/* The line of the effective file. */
static void check(const char *keys, const char *line)
{
    af_run_config r = {0};
    af_error err = {0};
    char *text;
    CHECK_OK(parse(&r, keys, &err), err);
    CHECK_OK(af_run_config_text(&r, &text, &err), err);
    CHECK_MSG(strstr(text, line), "%s: no %s in\n%.9000s", keys, line, text);
    free(text);
    af_run_config_clear(&r);
}

/* A folder with train.jsonl and valid.jsonl. Prompts and completions are turns there. */
static void test_data(void **state)
{
    char keys[400], line[600];
    af_run_config r = {0};
    af_error err = {0};
    (void)state;
    snprintf(keys, sizeof keys, "data: %s", dir);
    assert_int_equal(parse(&r, keys, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "run.yaml:3: data is '"));
    assert_non_null(strstr(err.msg, "which is not a folder with a file train.jsonl"));
    put_file("train.jsonl", "{\"messages\": []}\n");
    snprintf(line, sizeof line, "datasets: [{\"path\": \"%s/train.jsonl\"}]\n", dir);
    check(keys, line);
    put_file("train.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"text\": \"c\"}\n");
    snprintf(line, sizeof line,
             "datasets: [{\"path\": \"%s/train.jsonl\", \"field_instruction\": \"prompt\", "
             "\"field_output\": \"completion\"}]\n",
             dir);
    check(keys, line);
    put_long("train.jsonl", 2 << 20);
    check(keys, line);
    put_file("valid.jsonl", "{\"text\": \"c\"}\n");
    snprintf(line, sizeof line, "test_datasets: [{\"path\": \"%s/valid.jsonl\"}]\n", dir);
    check(keys, line);
    check(keys, "eval_steps: 200\n");
}

#define DATA "datasets: [{path: d}]\n"

static void test_keys(void **state)
{
    (void)state;
    check(DATA "mask_prompt: true", "mask_history: true\n");
    check(DATA "mask_prompt: true", "train_on_inputs: false\n");
    check(DATA "lora_parameters: {rank: 4, scale: 10}", "lora_alpha: 40\n");
    check(DATA "lora_parameters: {rank: 4, scale: 10, alpha: 16}", "lora_alpha: 40\n");
    check(DATA, "lora_alpha: 160\n");
    check(DATA "grad_accumulation_steps: 2", "max_steps: 2\n"); /* of 5 passes */
    check(DATA "grad_accumulation_steps: 2", "save_steps: 50\n");
    check(DATA "grad_accumulation_steps: 2\nsave_every: 1", "save_steps: 1\n");
    check(DATA "grad_accumulation_steps: 2\nsteps_per_report: 10", "logging_steps: 5\n");
    check(DATA "grad_accumulation_steps: 1", "max_steps: 5\n");
    check(DATA "resume_adapter_file: a/b/adapters.safetensors", "lora_model_dir: \"a/b\"\n");
    check(DATA "resume_adapter_file: adapters.safetensors", "lora_model_dir: \".\"\n");
    check(DATA "resume_adapter_file: /adapters.safetensors", "lora_model_dir: \"/\"\n");
    check(DATA "resume_adapter_file:", "lora_r: 8\n");
    check(DATA "wandb: x", "report_to: [\"wandb\"]\n");
    check(DATA "wandb: x", "wandb_project: \"x\"\n");
    check(DATA "report_to: wandb\nproject_name: x", "wandb_project: \"x\"\n");
    check(DATA, "num_layers: 16\n");
    check(DATA "num_layers: 4", "num_layers: 4\n");
    check(DATA "lora_layers: 4", "num_layers: 4\n"); /* its older name */
    check(DATA "fine_tune_type: full\nlora_layers: 3", "freeze_trainable_layers: 3\n");
    check(DATA "fine_tune_type: full\nnum_layers: 4", "freeze_trainable_layers: 4\n");
    check(DATA "fine_tune_type: full", "adapter: freeze\n");
    check(DATA "fine_tune_type: full\nnum_layers: -1",
          "unfrozen_parameters: [\"[a-z_.]*layers.\"]\n");
    check(DATA "optimizer: adamw", "weight_decay: 0.01\n");
    check(DATA "optimizer: adamw", "weight_decay_on: all\n");
    check(DATA "optimizer: adam", "weight_decay: 0\n");
    check(DATA "optimizer: adam", "adam_bias_correction: false\n");
    check(DATA "optimizer: adam\noptimizer_config: {adam: {bias_correction: true}}",
          "adam_bias_correction: true\n");
    check(DATA "optimizer: adamw\noptimizer_config: {adam: {eps: 1}, adamw: {betas: [0.8, 0.98], "
               "eps: 1e-6, weight_decay: 0.05, bias_correction: true}}",
          "adam_beta1: 0.8\nadam_beta2: 0.98\nadam_bias_correction: true\nadam_epsilon: 1e-06\n");
}

static void test_schedules(void **state)
{
    (void)state;
    check(DATA "training_mode: normal\nwarmup_steps: 9\nlr_scheduler: cosine\nwarmup_init_lr: 1e-7",
          "warmup_init_lr: 1e-07\n");
    af_run_config r = {0};
    af_error err = {0};
    assert_int_equal(
        parse(&r, DATA "strict: true\nwarmup_init_lr: 1e-7\nlr_scheduler: one_cycle", &err),
        AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "'warmup_init_lr' has no effect here"), "%s", err.msg);
    check(DATA "lr_schedule: {name: cosine_decay, warmup: 100, warmup_init: 1e-7, arguments: "
               "[1e-5, 1000, 1e-7]}\nlearning_rate: 3",
          "lr_scheduler: \"cosine_decay\"\nwarmup_steps: 100\n");
    check(DATA "lr_schedule: {name: cosine_decay, arguments: [2e-5, 1000, 1e-7]}\nlearning_rate: 3",
          "learning_rate: 2e-05\n");
    check(DATA "lr_schedule: {name: cosine_decay, warmup: 9, warmup_init: 1e-7, arguments: [1e-5, "
               "1000, 1e-7]}",
          "min_lr: 1e-07\n");
    check(DATA "lr_schedule: {name: linear_schedule, arguments: [1e-5, 0, 900]}",
          "lr_decay_steps: 900\n");
    check(DATA "lr_schedule: {name: step_decay, arguments: [1e-5, 0.5, 90]}",
          "lr_gamma: 0.5\nlr_step_size: 90\n");
    check(DATA "lr_schedule: {name: exponential_decay, arguments: [1e-5, 0.9]}",
          "lr_scheduler: \"exponential_decay\"\n");
    check(DATA "lr_schedule: null", "lr_scheduler: \"constant\"\n");
}

static void test_hub_datasets(void **state)
{
    (void)state;
    check("data: unused\nhf_dataset: {path: a/b, train_split: 'train[:1000]', valid_split: "
          "'train[-100:]', prompt_feature: text, completion_feature: summary}",
          "datasets: [{\"path\": \"a/b\", \"split\": \"train[:1000]\", \"field_instruction\": "
          "\"text\", \"field_output\": \"summary\"}]\n");
    check("hf_dataset: {name: a/b, text_feature: body}",
          "test_datasets: [{\"path\": \"a/b\", \"split\": \"train[-10%:]\", \"field_text\": "
          "\"body\"}]\n");
    check("hf_dataset: [{path: a/b, config: {name: c}, chat_feature: turns}, {path: c/d}]",
          "datasets: [{\"path\": \"a/b\", \"split\": \"train[:80%]\", \"name\": \"c\", "
          "\"field_messages\": \"turns\"}, {\"path\": \"c/d\", \"split\": \"train[:80%]\"}]\n");
}

static void test_what_is_wrong(void **state)
{
    static const char *const cases[][2] = {
        {"fine_tune_type: full\nnum_layers: x", "run.yaml:5"},
        {"lora_parameters: {rank: 4, alpha: 16}", "run.yaml:4: lora_parameters has an 'alpha' and"},
        {"lora_parameters: {rank: 4, scale: x}", "lora_alpha must be a number, not 'x'"},
        {"lr_schedule: {name: cosine_decay, arguments: [1e-5]}", "run.yaml:4: lr_schedule must "},
        {"lr_schedule: {name: exponential_decay, arguments: [1, 0.5, 3]}", "lr_schedule must "},
        {"lr_schedule: {name: linear_schedule, arguments: [0, 1, 9]}", "rises from 0 to 1"},
        {"lr_schedule: {name: cosine_decay, warm: 3, arguments: [1, 9]}",
         "'warm' of lr_schedule is not supported"},
        {"hf_dataset: {path: a/b, config: {data_dir: x}}", "'data_dir' of its config is not"},
        {"hf_dataset: a/b", "run.yaml:4: hf_dataset must be a map with a 'path'"},
        {"optimizer: muon", "run.yaml:4: optimizer 'muon' of MLX is not the one here"},
        {"optimizer: adafactor", "there it does not read learning_rate"},
        {"grad_accumulation_steps: 8", "run.yaml:2 ('iters'): iters is 5, and the weights change"},
        {"optimizer_config: {adam: 3}", "unknown key 'optimizer_config'"},
        {"optimizer_config: {adam: {nesterov: true}}", "unknown key 'nesterov'"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char keys[200];
        snprintf(keys, sizeof keys, DATA "%s", cases[i][0]);
        CHECK_MSG(parse(&r, keys, &err) != AF_OK, "accepted: %s", cases[i][0]);
        CHECK_MSG(strstr(err.msg, cases[i][1]), "'%s' lacks '%s'", err.msg, cases[i][1]);
    }
}

/* Ranks share the rows of a batch. */
static void test_ranks(void **state)
{
    af_run_config r = {0};
    af_error err = {0};
    (void)state;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    check(DATA, "micro_batch_size: 2\n");
    check(DATA "batch_size: 6", "micro_batch_size: 3\n");
    CHECK_MSG(parse(&r, DATA "batch_size: 3", &err) != AF_OK, "accepted: 3 rows");
    CHECK_MSG(strstr(err.msg, "batch_size 3 of mlx-lm is not a multiple of the 2 ranks"), "%s",
              err.msg);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

static void test_last_layers(void **state)
{
    static const struct {
        const char *keys;
        int count, first;
    } cases[] = {{"num_layers: 1", 1, 1}, {"num_layers: 0", 0, 0}, {"num_layers: 9", 0, 0}};
    char path[512];
    af_error err = {0};
    af_hf_config config;
    af_model_spec spec;
    (void)state;
    snprintf(path, sizeof path, "%s/models/qwen2", golden_dir());
    CHECK_OK(af_model_config(&config, path, &err), err);
    CHECK_OK(af_model_spec_init(&spec, &config, &err), err);
    assert_int_equal(spec.layers, 2);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_adapter_config c;
        af_method_lists lists;
        char keys[200];
        snprintf(keys, sizeof keys, DATA "%s", cases[i].keys);
        CHECK_OK(parse(&r, keys, &err), err);
        CHECK_OK(af_method_adapter(&c, &lists, &r, &spec, &err), err);
        assert_int_equal(c.layer_count, cases[i].count);
        assert_int_equal(c.layers ? c.layers[0] : 0, cases[i].first);
        af_run_config_clear(&r);
    }
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_data, make_dir, remove_dir),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_hub_datasets),
        cmocka_unit_test(test_what_is_wrong),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_last_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
