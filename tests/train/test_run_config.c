/* test_run_config.c - run files: defaults, aliases, overrides, and every kind of mistake. */
#include "test.h"

#include "afinar/graph.h"
#include "train/run/method.h"
#include "train/run/run_foreign.h"
#include "train/run/run_keys.h"

#define BASE "base_model: m\ndatasets:\n  - path: d.jsonl\noutput_dir: out\n"

static af_status parse(af_run_config *r, const char *text, const char *const *over, int n,
                       af_error *err)
{
    return af_run_config_parse(r, text, strlen(text), "run.yaml", over, n, err);
}

static void test_defaults_and_aliases(void **state)
{
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(
        parse(&r,
              "model_name_or_path: m\ndatasets: [{path: d.jsonl}]\noutput_dir: o\nfinetuning_type: "
              "lora\n"
              "lora_rank: 8\nlora_target: all\nper_device_train_batch_size: 3\noptim: adamw_torch\n"
              "lr_scheduler_type: linear\ncutoff_len: 77\nquantization_bit: 4\n",
              (const char *[]){"learning_rate=3e-4", "lora_r=4", "attention=own"}, 3, &err),
        err);
    assert_string_equal(r.base_model, "m");
    assert_int_equal(r.method, AF_METHOD_LORA);
    assert_int_equal(r.lora_r, 4);
    assert_true(r.lora_alpha == 8);
    assert_int_equal(r.lora_target_modules.count, 1);
    assert_string_equal(r.lora_target_modules.item[0], "all-linear");
    assert_int_equal(r.micro_batch_size, 3);
    assert_int_equal(r.sequence_len, 77);
    assert_int_equal(r.load_in_4bit, AF_TRI_YES);
    assert_true(r.learning_rate == 3e-4);
    assert_int_equal(r.attention, AF_ATTENTION_OWN);
    assert_true(r.max_grad_norm == 1.0);
    af_run_config_clear(&r);
}

/* Of two keys that say the same in two ways only one may be given; every pair is named. */
static void test_every_contradictory_pair_is_named(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"warmup_steps: 3", "warmup_ratio: 0.1"},
        {"cosine_min_lr_ratio: 0.1", "min_lr: 1e-5"},
        {"val_set_size: 4", "test_datasets: [{path: t.jsonl}]"},
        {"save_steps: 2", "saves_per_epoch: 2"},
        {"eval_steps: 2", "evals_per_epoch: 2"},
        {"train_on_inputs: true", "roles_to_train: [user]"},
        {"resume_from_checkpoint: auto", "auto_resume_from_checkpoints: true"},
        {"embedding_lr: 1e-4", "embedding_lr_scale: 2"},
    };
    for (size_t i = 0; i < AF_LEN(pairs); i++)
        for (int turn = 0; turn < 2; turn++) {
            char text[1024], a[64], b[64];
            af_run_config r = {0};
            af_error err = {0};
            snprintf(text, sizeof text, "%slr_scheduler: cosine\nval_set_size: 4\n%s\n%s\n", BASE,
                     pairs[i][turn], pairs[i][1 - turn]);
            if (strstr(pairs[i][0], "val_set_size"))
                snprintf(text, sizeof text, "%s%s\n%s\n", BASE, pairs[i][turn], pairs[i][1 - turn]);
            snprintf(a, sizeof a, "%.*s", (int)strcspn(pairs[i][0], ":"), pairs[i][0]);
            snprintf(b, sizeof b, "%.*s", (int)strcspn(pairs[i][1], ":"), pairs[i][1]);
            CHECK_MSG(parse(&r, text, NULL, 0, &err) == AF_EUSAGE, "%s and %s pass: %s", a, b,
                      err.msg);
            CHECK_MSG(strstr(err.msg, "contradict each other") && strstr(err.msg, a) &&
                          strstr(err.msg, b),
                      "%s and %s: %s", a, b, err.msg);
            af_run_config_clear(&r);
        }
}

static void test_every_wrong_file_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *must[3];
    } cases[] = {
        {BASE "lora_rnak: 4\n", {"run.yaml:5", "lora_rnak", "did you mean 'lora_r"}},
        {BASE "zzzzzz: 4\n", {"run.yaml:5", "unknown key 'zzzzzz'", "--help"}},
        {BASE "adapter: lora\nlora_r: many\n",
         {"run.yaml:6", "lora_r must be a whole number", "'many'"}},
        {BASE "adapter: lora\nlora_r: 0\n", {"run.yaml:6", "lora_r is 0", "between 1"}},
        {BASE "adapter: peft\n", {"run.yaml:5", "adapter is 'peft'", "qlora"}},
        {BASE "lora_r: 8\n", {"run.yaml:5", "lora_r has no effect", "adapter: lora"}},
        {BASE "attention: flash\n", {"run.yaml:5", "attention is 'flash'", "cudnn"}},
        {BASE "learning_rate: fast\n", {"run.yaml:5", "must be a number", "'fast'"}},
        {BASE "learning_rate: -1\n", {"run.yaml:5", "learning_rate is -1", ""}},
        {BASE "learning_rate: .nan\n", {"run.yaml:5", "learning_rate", ".nan"}},
        {BASE "resume_from_checkpoint: true\noverwrite_output_dir: true\n",
         {"run.yaml:5", "contradict", "overwrite_output_dir"}},
        {BASE "warmup_steps: 3\nwarmup_ratio: 0.1\n", {"run.yaml:6", "contradict", "warmup_ratio"}},
        {BASE "adapter: qlora\nload_in_4bit: false\n", {"contradict", "qlora", ""}},
        {BASE "strict: true\ncosine_min_lr_ratio: 0.1\nlr_scheduler: linear\n",
         {"run.yaml:6", "no effect", "cosine"}},
        {BASE "strict: true\nsample_packing_sequentially: true\n",
         {"run.yaml:6", "sample_packing", ""}},
        {BASE "strict: true\neval_steps: 5\n", {"run.yaml:6", "val_set_size", ""}},
        {BASE "shuffle: maybe\n", {"run.yaml:5", "true or false", "'maybe'"}},
        {BASE "shuffle: true\nshuffle: false\n", {"run.yaml:6", "duplicate key", "line 5"}},
        {BASE "seed: 3\nseed: '3'\n", {"run.yaml:6", "duplicate key", "line 5"}},
        {BASE "eot_tokens: [a]\neot_tokens: [a]\n", {"run.yaml:6", "duplicate key", "line 5"}},
        {BASE "lr: 1e-3\nlearning_rate: 1e-4\n", {"run.yaml:6", "line 5", ""}},
        {BASE "seed: [1, 2]\n", {"run.yaml:5", "seed", "a list"}},
        {BASE "max_steps: 0\n", {"max_steps is 0", "", ""}},
        {"base_model: m\noutput_dir: o\n", {"datasets is missing", "", ""}},
        {"datasets: [{path: x}]\noutput_dir: o\n", {"base_model is missing", "", ""}},
        {"base_model: m\ndatasets: [{path: x}]\noutput_dir: ''\n",
         {"run.yaml:3", "output_dir is empty", ""}},
        {"- a\n- b\n", {"run.yaml:1", "map of keys", ""}},
        {"base_model: [m\n", {"run.yaml:", "", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_run_config r = {0};
        af_error err = {0};
        const af_status st = parse(&r, cases[i].text, NULL, 0, &err);
        CHECK_MSG(st != AF_OK, "accepted: %s", cases[i].text);
        for (int k = 0; k < 3 && cases[i].must[k]; k++)
            CHECK_MSG(strstr(err.msg, cases[i].must[k]), "'%s' lacks '%s'", err.msg,
                      cases[i].must[k]);
        af_run_config_clear(&r);
    }
}

/* One text with commas is a list of names; a pattern or a prompt is not. */
static void test_lists_in_one_text(void **state)
{
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r,
                   BASE "finetuning_type: lora\nlora_target: q_proj, v_proj\n"
                        "additional_target: embed_tokens,lm_head\nexclude_modules: .*x{1,2}\n"
                        "generate_samples: Hello, you\n",
                   NULL, 0, &err),
             err);
    assert_int_equal(r.lora_target_modules.count, 2);
    assert_string_equal(r.lora_target_modules.item[1], "v_proj");
    assert_int_equal(r.lora_modules_to_save.count, 2);
    assert_string_equal(r.lora_modules_to_save.item[0], "embed_tokens");
    assert_int_equal(r.lora_exclude_modules.count, 1);
    assert_int_equal(r.generate_samples.count, 1);
    assert_string_equal(r.generate_samples.item[0], "Hello, you");
    af_run_config_clear(&r);
}

static void test_suggestions(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"lora_rnak", "lora_r"},
        {"steps", "max_steps"},
        {"neftune_alpha", "neftune_noise_alpha"},
        {"optimizer_type", "optimizer"},
        {"epochs", "num_epochs"},
        {"weight-decay", "weight_decay"},
        {"use_gradient_checkpointing", "gradient_checkpointing"},
        {"LORA_ALPHA", "lora_alpha"},
        {"learningRate", "learning_rate"},
        {"learning_rate_schedule", "lr_scheduler"},
        {"wandb_projct", "wandb_project"},
        {"context_parapllel_size", "context_parallel_size"},
        {"betas", "rl_beta"},
        {"tlr", NULL},
        {"zzz", NULL},
        {"a_key_longer_than_any_word_there_is_and_then_some_letters_more_to_be_sure", NULL},
        {"_", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got = af_key_suggest(cases[i][0]), *want = cases[i][1];
        CHECK_MSG(got == want || (got && want && strcmp(got, want) == 0), "%s: %s, not %s",
                  cases[i][0], got ? got : "none", want ? want : "none");
    }
}

static void test_null_takes_a_key_back(void **state)
{
    (void)state;
    static const char *const text =
        BASE "adapter: lora\nlora_r: 8\nlora_target_modules: [q_proj]\nmax_steps: 3\n";
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r, text,
                   (const char *[]){"adapter=null", "lora_r=null", "lora_target_modules=~",
                                    "max_steps=null"},
                   4, &err),
             err);
    assert_int_equal(r.method, AF_METHOD_FULL);
    assert_int_equal(r.lora_target_modules.count, 0);
    assert_int_equal(r.max_steps, -1);
    af_run_config_clear(&r);
    assert_int_equal(parse(&r, text, (const char *[]){"datasets=null"}, 1, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "datasets is missing"));
    assert_int_equal(parse(&r, text, (const char *[]){"lora_target_modules=[]"}, 1, &err),
                     AF_EUSAGE);
    assert_non_null(strstr(err.msg, "lora_target_modules is an empty list"));
}

static void test_effective_file_reads_back(void **state)
{
    (void)state;
    af_run_config r = {0}, again = {0};
    af_error err = {0};
    char *text, *text2;
    CHECK_OK(parse(&r,
                   BASE
                   "adapter: qlora\nlora_target_modules: [q_proj, 'v\"x']\nlearning_rate: 0.00031\n"
                   "warmup_ratio: 0.03\nval_set_size: 0.05\neval_steps: 7\nrun_name: \"1\"\n",
                   NULL, 0, &err),
             err);
    CHECK_OK(af_run_config_text(&r, &text, &err), err);
    CHECK_OK(parse(&again, text, NULL, 0, &err), err);
    CHECK_OK(af_run_config_text(&again, &text2, &err), err);
    assert_string_equal(text, text2);
    assert_true(again.learning_rate == r.learning_rate);
    assert_string_equal(again.lora_target_modules.item[1], "v\"x");
    assert_string_equal(again.run_name, "1");
    free(text);
    free(text2);
    af_run_config_clear(&r);
    af_run_config_clear(&again);
}

/* A text that needs no quotes in a block would be split inside the brackets it is written in. */
static void test_effective_file_keeps_paths(void **state)
{
    static const char *const paths[] = {"a, b.jsonl", "a] b.jsonl", "{a}.jsonl", "a: b.jsonl",
                                        "it's \"a\".jsonl"};
    (void)state;
    for (size_t i = 0; i < AF_LEN(paths); i++) {
        af_run_config r = {0}, again = {0};
        af_error err = {0};
        char file[300], *text;
        af_buf quoted = {0};
        af_put_quoted(&quoted, paths[i]);
        const bool block = i < 2; /* the others need quotes there, too */
        snprintf(file, sizeof file,
                 "base_model: m\noutput_dir: o\ndatasets:\n  - path: %.*s\n    split: train\n",
                 block ? 100 : (int)quoted.len, block ? paths[i] : quoted.data);
        CHECK_OK(parse(&r, file, NULL, 0, &err), err);
        CHECK_OK(af_run_config_text(&r, &text, &err), err);
        CHECK_OK(parse(&again, text, NULL, 0, &err), err);
        assert_string_equal(af_yaml_get(again.datasets->item[0], "path")->text, paths[i]);
        free(text);
        af_buf_clear(&quoted);
        af_run_config_clear(&r);
        af_run_config_clear(&again);
    }
}

/* Every value in effect is in the file, also the defaults. */
static void test_effective_file_has_the_defaults(void **state)
{
    static const char *const want[] = {"adam_beta2: 0.999\n", "warmup_steps: 0\n",
                                       "eval_steps: 0\n", "save_steps: 0\n",
                                       "cosine_min_lr_ratio: 0\n"};
    static const char *const absent[] = {"sgd_momentum", "lora_r", "lr_power",
                                         "generate_samples_tokens"};
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    char *text;
    CHECK_OK(parse(&r, BASE "val_set_size: 3\n", NULL, 0, &err), err);
    CHECK_OK(af_run_config_text(&r, &text, &err), err);
    for (size_t i = 0; i < AF_LEN(want); i++)
        CHECK_MSG(strstr(text, want[i]), "no %s", want[i]);
    for (size_t i = 0; i < AF_LEN(absent); i++)
        CHECK_MSG(!strstr(text, absent[i]), "%s has no effect, and is there", absent[i]);
    free(text);
    af_run_config_clear(&r);
}

/* An effective run file has every key with an effect: one override may remove the effect of many
 * of them, which is not an error. A key that had no effect before is, and so is a conflicting one.
 */
static void test_an_override_takes_the_effect_of_others(void **state)
{
    static const char *const takes[] = {"optimizer=lion", "optimizer=sgd", "adapter=full",
                                        "lr_scheduler=linear", "val_set_size=0"};
    static const char *const rival[] = {"warmup_ratio=0.1"};
    (void)state;
    af_run_config r = {0}, again = {0};
    af_error err = {0};
    char *text;
    CHECK_OK(parse(&r,
                   BASE "adapter: lora\nlora_r: 8\nval_set_size: 3\neval_steps: 2\n"
                        "adam_epsilon: 1e-6\nwarmup_steps: 3\n",
                   NULL, 0, &err),
             err);
    CHECK_OK(af_run_config_text(&r, &text, &err), err);
    for (size_t i = 0; i < AF_LEN(takes); i++) {
        CHECK_OK(parse(&again, text, &takes[i], 1, &err), err);
        af_run_config_clear(&again);
    }
    assert_int_equal(parse(&again, text, rival, 1, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "warmup_steps=null takes the file's back"), "%s", err.msg);
    assert_int_equal(parse(&again, BASE "lora_r: 8\n", takes, 1, &err), AF_EUSAGE);
    free(text);
    af_run_config_clear(&r);
}

/* As PyYAML reads them: own keys win, an earlier map of a list wins over a later one. */
static void test_merge_keys(void **state)
{
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(
        parse(&r,
              "base_model: m\noutput_dir: o\ndatasets:\n  - &a\n    path: a\n    type: alpaca\n"
              "  - &b {path: b, split: train}\n  - {<<: *a, path: c}\n  - <<: [*b, *a]\n",
              NULL, 0, &err),
        err);
    const af_yaml *c = r.datasets->item[2], *d = r.datasets->item[3];
    assert_int_equal(c->count, 2);
    assert_string_equal(af_yaml_get(c, "path")->text, "c");
    assert_string_equal(af_yaml_get(c, "type")->text, "alpaca");
    assert_int_equal(d->count, 3);
    assert_string_equal(af_yaml_get(d, "path")->text, "b");
    assert_string_equal(af_yaml_get(d, "type")->text, "alpaca");
    af_run_config_clear(&r);
    assert_int_not_equal(parse(&r, BASE "<<: 3\n", NULL, 0, &err), AF_OK);
    assert_non_null(strstr(err.msg, "run.yaml:5: '<<' expects a map or a list of maps"));
}

/* Every named value goes through its typed setter and comes back from the getter. */
static void check_row(void *user, const af_key *k)
{
    af_run_config r = {0};
    int *rows = user;
    CHECK_MSG(&af_keys[(*rows)++] == k, "%s is out of order", k->name);
    CHECK_MSG(k->help[0] && af_key_kind_name(k), "%s has no help", k->name);
    for (const af_key_choice *c = k->choices ? k->choices->names : NULL; c && c->name; c++) {
        af_key_set(&r, k, (af_key_value){.choice = c->value});
        CHECK_MSG(af_key_get(&r, k).choice == c->value, "%s: %s", k->name, c->name);
    }
}

static void test_table_is_sound(void **state)
{
    (void)state;
    int rows = 0;
    af_run_keys_each(check_row, &rows);
    assert_int_equal(rows, af_keys_count);
    for (int i = 0; i < af_keys_count; i++) {
        const af_key *k = &af_keys[i];
        CHECK_MSG(af_key_find(k->name) == k, "%s is shadowed", k->name);
        for (size_t a = 0; a < 5 && k->alias[a]; a++)
            CHECK_MSG(af_key_find(k->alias[a]) == k && !af_foreign_knows(k->alias[a]),
                      "alias %s is shadowed", k->alias[a]);
        CHECK_MSG(!af_foreign_knows(k->name), "%s is a key and a foreign one", k->name);
    }
    char *help;
    af_error err = {0};
    CHECK_OK(af_run_keys_help(&help, &err), err);
    assert_non_null(strstr(help, "gradient_accumulation_steps"));
    assert_non_null(strstr(help, " inverse_sqrt, ")); /* what a schedule may be called */
    free(help);
}

static void test_resume_is_also_yes_and_no(void **state)
{
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r, BASE "resume_from_checkpoint: true\n", NULL, 0, &err), err);
    assert_string_equal(r.resume, "auto");
    af_run_config_clear(&r);
    CHECK_OK(parse(&r, BASE "resume_from_checkpoint: false\noverwrite_output_dir: true\n", NULL, 0,
                   &err),
             err);
    assert_null(r.resume);
    af_run_config_clear(&r);
}

/* One layer of this model is dense: PEFT takes the names of its mlp for the experts'. */
static void test_targets_of_a_mixture_are_pefts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int targets, params;
        const char *first;
        double rank; /* of gate_up_proj */
    } cases[] = {
        {"", 4, 0, NULL, 0},
        {"lora_target_modules: all-linear\n", 4, 3, "gate_up_proj", 32},
        {"lora_target_linear: true\n", 4, 3, "gate_up_proj", 32},
        {"lora_target_modules: [q_proj, gate_proj, up_proj]\n", 1, 1, "gate_up_proj", 32},
        {"lora_target_modules: [q_proj, mlp.gate]\n", 1, 1, "gate.weight", 0},
        {"lora_target_modules: [v_proj, down_proj]\nlora_target_parameters: [mlp.gate.weight]\n", 1,
         2, "mlp.gate.weight", 0},
    };
    char path[512];
    af_run_config r = {0};
    af_error err = {0};
    af_hf_config config;
    af_model_spec spec;
    af_adapter_config c;
    af_method_lists lists;
    snprintf(path, sizeof path, "%s/models/qwen3_moe", golden_dir());
    CHECK_OK(af_model_config(&config, path, &err), err);
    CHECK_OK(af_model_spec_init(&spec, &config, &err), err);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[512];
        snprintf(text, sizeof text, BASE "adapter: lora\nlora_r: 16\n%s", cases[i].text);
        CHECK_OK(parse(&r, text, NULL, 0, &err), err);
        CHECK_OK(af_method_adapter(&c, &lists, &r, &spec, &err), err);
        CHECK_MSG(c.target_count == cases[i].targets && c.param_count == cases[i].params,
                  "%s: %d modules, %d parameters", cases[i].text, c.target_count, c.param_count);
        if (cases[i].first)
            assert_string_equal(c.param[0], cases[i].first);
        CHECK_MSG(c.rank_patterns == (cases[i].rank > 0) &&
                      (!c.rank_patterns || c.rank_pattern[0].value == cases[i].rank),
                  "rank of %s", cases[i].text);
        af_run_config_clear(&r);
    }
    CHECK_OK(parse(&r, BASE "adapter: lora\nlora_target_modules: [gate_proj]\n", NULL, 0, &err),
             err);
    assert_int_equal(af_method_adapter(&c, &lists, &r, &spec, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "'gate_proj' without 'up_proj'"), "%s", err.msg);
    af_run_config_clear(&r);
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
}

/* Where transformers has dropout, and how much where config.json is silent. */
static void test_dropout_of_configs(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double attention, mlp, embed;
    } cases[] = {{"{\"model_type\": \"seed_oss\"%s}", 0.1, 0.1, 0},
                 {"{\"model_type\": \"seed_oss\", \"residual_dropout\": 0%s}", 0, 0, 0},
                 {"{\"model_type\": \"starcoder2\"%s}", 0, 0, 0},
                 {"{\"model_type\": \"starcoder2\", \"embedding_dropout\": 0.25%s}", 0, 0, 0.25},
                 {"{\"model_type\": \"gpt2\"%s}", 0.1, 0.1, 0.1},
                 {"{\"model_type\": \"opt\", \"dropout\": 0.3%s}", 0.3, 0.3, 0},
                 {"{\"model_type\": \"gptj\", \"rotary_dim\": 2%s}", 0, 0, 0},
                 {"{\"model_type\": \"gpt_neox\", \"hidden_dropout\": 0.5%s}", 0.5, 0.5, 0.5},
                 {"{\"model_type\": \"stablelm\", \"hidden_dropout\": 0.5%s}", 0, 0.5, 0},
                 {"{\"model_type\": \"persimmon\", \"hidden_dropout\": 0.5%s}", 0, 0.5, 0},
                 {"{\"model_type\": \"falcon\", \"hidden_dropout\": 0.5%s}", 0, 0.5, 0},
                 {"{\"model_type\": \"llama\", \"residual_dropout\": 0.5%s}", 0, 0, 0}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[600];
        af_hf_config c;
        af_error err = {0};
        snprintf(text, sizeof text, cases[i].config,
                 ", \"hidden_size\": 16, \"intermediate_size\": 12, \"num_hidden_layers\": 2, "
                 "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 32, "
                 "\"max_position_embeddings\": 64");
        CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "config.json", &err), err);
        const af_branch_dropout d = af_method_residual_dropout(&c, &(af_model_spec){0});
        CHECK_MSG(d.attention == cases[i].attention && d.mlp == cases[i].mlp && !d.sum &&
                      af_method_embed_dropout(&c) == cases[i].embed,
                  "%s", text);
        const af_branch_dropout one =
            af_method_residual_dropout(&c, &(af_model_spec){.parallel = true});
        assert_true(one.sum == (strcmp(c.model_type, "falcon") == 0));
        assert_true(one.mlp == d.mlp && one.attention == (one.sum ? d.mlp : d.attention));
        af_hf_config_clear(&c);
    }
}

/* The run file says it, else the model's config where that asks for it. */
static void test_the_share_of_the_router_loss(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool config;
        double want;
    } cases[] = {
        {"", false, 0},
        {"", true, 0.001},
        {"output_router_logits: true\n", false, 0.001},
        {"output_router_logits: false\n", true, 0},
        {"router_aux_loss_coef: 0.5\n", false, 0.5},
        {"router_aux_loss_coef: 0.5\n", true, 0.5},
        {"router_aux_loss_coef: 0\n", true, 0},
        {"output_router_logits: false\nrouter_aux_loss_coef: 0.5\n", true, 0},
        {"moe_aux_loss_coef: 0.25\n", false, 0.25},
    };
    char path[512], text[512];
    af_error err = {0};
    af_hf_config config;
    af_model_spec spec;
    snprintf(path, sizeof path, "%s/models/qwen3_moe", golden_dir());
    CHECK_OK(af_model_config(&config, path, &err), err);
    CHECK_OK(af_model_spec_init(&spec, &config, &err), err);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        snprintf(text, sizeof text, BASE "%s", cases[i].text);
        CHECK_OK(parse(&r, text, NULL, 0, &err), err);
        config.output_router_logits = cases[i].config;
        const double got = af_method_router_coef(&r, &config, &spec);
        CHECK_MSG(got == cases[i].want, "case %zu: %g, not %g", i, got, cases[i].want);
        af_run_config_clear(&r);
    }
    spec.layers = 0; /* no layer with a router */
    af_run_config r = {0};
    CHECK_OK(parse(&r, BASE "router_aux_loss_coef: 0.5\n", NULL, 0, &err), err);
    CHECK_MSG(af_method_router_coef(&r, &config, &spec) == 0, "without experts");
    af_run_config_clear(&r);
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
}

/* LLaMA-Factory: an adapter that a run would not continue. */
static void test_adapter_to_continue(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"full\nadapter_name_or_path: a", "run.yaml:4 ('adapter_name_or_path'): an adapter"},
        {"freeze\nadapter_name_or_path: a", "continued with 'finetuning_type: lora' alone"},
        {"lora\nadapter_name_or_path: a,b", "several adapters are not supported: put all"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[200];
        snprintf(text, sizeof text,
                 "model_name_or_path: m\ndatasets: [{path: d}]\nfinetuning_type: %s\n",
                 cases[i][0]);
        CHECK_MSG(parse(&r, text, NULL, 0, &err) != AF_OK, "accepted: %s", cases[i][0]);
        CHECK_MSG(strstr(err.msg, cases[i][1]), "'%s' lacks '%s'", err.msg, cases[i][1]);
    }
}

/* LLaMA-Factory's use_adam_mini and use_muon decide over optim, but not over optimizer. */
static void test_choices_of_an_optimizer(void **state)
{
    static const struct {
        const char *file, *override[2];
        int optimizer;
        const char *why;
    } cases[] = {
        {"use_adam_mini: true\noptim: adamw_torch", {0}, AF_OPTIMIZER_ADAM_MINI, NULL},
        {"optim: lion_8bit\nuse_muon: true", {0}, AF_OPTIMIZER_MUON, NULL},
        {"optim: lion", {"use_muon=true"}, AF_OPTIMIZER_MUON, NULL},
        {"use_muon: true", {"optim=lion"}, AF_OPTIMIZER_MUON, NULL},
        {"use_muon: true", {"optimizer=lion"}, AF_OPTIMIZER_LION, NULL},
        {"", {"use_muon=true", "optim=lion"}, AF_OPTIMIZER_MUON, NULL},
        {"", {"optim=lion", "use_muon=true"}, AF_OPTIMIZER_MUON, NULL},
        {"use_muon: true\noptimizer: lion", {0}, 0, "'optimizer' is the same key as use_muon in"},
        {"optimizer: lion\nuse_muon: true", {0}, 0, "'use_muon' is the same key as optimizer in"},
        {"", {"use_muon=true", "optimizer=lion"}, 0, "'optimizer' is the same key as use_muon:"},
        {"", {"optimizer=lion", "use_muon=true"}, 0, "'use_muon' is the same key as optimizer:"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[400];
        const char *const *o = cases[i].override;
        snprintf(text, sizeof text, BASE "adapter: full\n%s\n", cases[i].file);
        const af_status st = af_run_config_parse(&r, text, strlen(text), "run.yaml", o,
                                                 (o[0] != NULL) + (o[1] != NULL), &err);
        if (!cases[i].why) {
            CHECK_OK(st, err);
            assert_int_equal(r.optimizer, cases[i].optimizer);
        } else {
            CHECK_MSG(st == AF_EUSAGE && strstr(err.msg, cases[i].why), "'%s'", err.msg);
        }
        af_run_config_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout_of_configs),
        cmocka_unit_test(test_defaults_and_aliases),
        cmocka_unit_test(test_adapter_to_continue),
        cmocka_unit_test(test_every_contradictory_pair_is_named),
        cmocka_unit_test(test_every_wrong_file_is_named),
        cmocka_unit_test(test_lists_in_one_text),
        cmocka_unit_test(test_suggestions),
        cmocka_unit_test(test_null_takes_a_key_back),
        cmocka_unit_test(test_effective_file_reads_back),
        cmocka_unit_test(test_effective_file_keeps_paths),
        cmocka_unit_test(test_effective_file_has_the_defaults),
        cmocka_unit_test(test_an_override_takes_the_effect_of_others),
        cmocka_unit_test(test_merge_keys),
        cmocka_unit_test(test_table_is_sound),
        cmocka_unit_test(test_resume_is_also_yes_and_no),
        cmocka_unit_test(test_targets_of_a_mixture_are_pefts),
        cmocka_unit_test(test_the_share_of_the_router_loss),
        cmocka_unit_test(test_choices_of_an_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
