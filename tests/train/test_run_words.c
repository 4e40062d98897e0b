/* test_run_words.c - run files as their users write them: maps as text, keys of the launcher, files
 * that hardly name their trainer. */
#include "test.h"

#include "base/log.h"
#include "train/run/run_keys.h"

static af_status parse(af_run_config *r, const char *text, af_error *err)
{
    return af_run_config_parse(r, text, strlen(text), "run.yaml", NULL, 0, err);
}

#define AX  "base_model: m\ndatasets: [{path: d}]\noutput_dir: out\n"
#define TRL "model_name_or_path: m\ndatasets: [{path: d}]\noutput_dir: out\n"

/* A line of the effective file for each text. */
static void check_lines(const char *const (*cases)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        af_run_config r = {0};
        af_error err = {0};
        char *effective;
        CHECK_MSG(parse(&r, cases[i][0], &err) == AF_OK, "%s: %s", cases[i][0], err.msg);
        CHECK_OK(af_run_config_text(&r, &effective, &err), err);
        CHECK_MSG(strstr(effective, cases[i][1]), "%s: no %s in\n%.3000s", cases[i][0], cases[i][1],
                  effective);
        free(effective);
        af_run_config_clear(&r);
    }
}

static void check_refusals(const char *const (*cases)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        af_run_config r = {0};
        af_error err = {0};
        CHECK_MSG(parse(&r, cases[i][0], &err) != AF_OK, "accepted: %s", cases[i][0]);
        CHECK_MSG(strstr(err.msg, cases[i][1]), "'%s' lacks '%s'", err.msg, cases[i][1]);
        af_run_config_clear(&r);
    }
}

static void test_maps_as_text(void **state)
{
    static const char *const cases[][2] = {
        {TRL "use_peft: false\nlr_scheduler_type: cosine_with_min_lr\n"
             "lr_scheduler_kwargs: '{\"min_lr_rate\": 0.25}'",
         "cosine_min_lr_ratio: 0.25\n"},
        {TRL "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: \"{'min_lr': 1e-6}\"",
         "min_lr: 1e-06\n"},
        {TRL "dtype: auto\nmodel_init_kwargs: '{\"torch_dtype\": \"bfloat16\"}'\n"
             "dataset_kwargs: ' {\"add_special_tokens\": false}'\n"
             "gradient_checkpointing_kwargs: '{\"use_reentrant\": false}'",
         "output_dir: \"out\"\n"},
    };
    static const char *const bad[][2] = {
        {TRL "use_peft: true\nlr_scheduler_kwargs: '{\"min_lr\": '",
         "run.yaml:5: the text of 'lr_scheduler_kwargs' is not a map of JSON"},
        {TRL "use_peft: true\nmodel_init_kwargs: '{\"num_experts\": 3}'",
         "unknown key 'num_experts'"},
        {TRL "use_peft: true\nlr_scheduler_kwargs: min_lr", "'lr_scheduler_kwargs' with 'min_lr'"},
        {TRL "use_peft: true\ndataset_kwargs: '{\"add_special_tokens\": true}'",
         "run.yaml:5: 'dataset_kwargs'"},
    };
    (void)state;
    check_lines(cases, AF_LEN(cases));
    check_refusals(bad, AF_LEN(bad));
}

/* Arguments of transformers' schedules. */
static void test_arguments_of_schedules(void **state)
{
    static const char *const cases[][2] = {
        {TRL "lr_scheduler_type: reduce_lr_on_plateau\nval_set_size: 0.1\nlr_scheduler_kwargs: "
             "{threshold_mode: abs}",
         "lr_threshold_mode: abs\n"},
        {TRL "lr_scheduler_type: greedy\nval_set_size: 0.1\nlr_scheduler_kwargs: {factor: 0.9, "
             "warmup: 2, max_lr: 0.5, smooth: true, window_size: 9, reset_start: 7, mode: max, "
             "verbose: false}",
         "lr_rise_cooldown: 2\nlr_max: 0.5\nlr_smooth: true\nlr_window: 9\nlr_reset: 7\n"},
        {TRL "lr_scheduler_type: greedy\nval_set_size: 0.1", "min_lr: 0.001\n"},
        {TRL "lr_scheduler_type: greedy\nval_set_size: 0.1",
         "lr_gamma: 0.95\nlr_patience: 10\nlr_threshold: 1e-06\nlr_threshold_mode: abs\n"},
        {TRL "lr_scheduler_type: greedy\nval_set_size: 0.1\nlr_scheduler_kwargs: {min_lr: 0}",
         "min_lr: 0\n"},
        {TRL "lr_scheduler_type: inverse_sqrt\nlr_scheduler_kwargs: {timescale: 30}",
         "lr_timescale: 30\n"},
        {TRL "lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 4, "
             "num_stable_steps: 0, warmup_type: cosine}",
         "lr_stable_steps: 0\nlr_warmup_type: cosine\n"},
        {TRL "lr_scheduler_type: cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1.0e-6, "
             "warmup_lr_rate: 0}",
         "warmup_lr_rate: 0\n"},
    };
    static const char *const bad[][2] = {
        {TRL "lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {warmup_type: sine}",
         "run.yaml:5"},
        {TRL "lr_scheduler_type: greedy", "'greedy' needs evaluations"},
        {TRL "lr_scheduler_type: greedy\nval_set_size: 0.1\nlr_scheduler_kwargs: {factor: 1.0}",
         "lr_gamma 1 is not below 1"},
        {TRL "lr_scheduler_type: greedy\nval_set_size: 0.1\nlr_scheduler_kwargs: {max_lr: 1e-5}",
         "lr_max 1e-05 is below learning_rate"},
        {TRL "lr_scheduler_type: greedy\nval_set_size: 0.1\nlr_scheduler_kwargs: {eps: 1e-9}",
         "run.yaml:6"},
    };
    (void)state;
    check_lines(cases, AF_LEN(cases));
    check_refusals(bad, AF_LEN(bad));
}

/* Schedules whose rate no warm-up changes; schedule-free optimizers have one of their own. */
static void test_schedules_without_a_warm_up(void **state)
{
    static const struct {
        const char *keys;
        int idle;
    } cases[] = {
        {"lr_scheduler: constant\nwarmup_steps: 5", 1},
        {"lr_scheduler: constant\nwarmup_ratio: 0.1", 1},
        {"lr_scheduler: reduce_lr_on_plateau\nwarmup_steps: 5\nval_set_size: 2", 1},
        {"lr_scheduler: greedy\nwarmup_steps: 5\nval_set_size: 2", 1},
        {"lr_scheduler: constant\nwarmup_steps: 0\nwarmup_ratio: 0", 0},
        {"lr_scheduler: constant_with_warmup\nwarmup_steps: 5", 0},
        {"lr_scheduler: linear\nwarmup_ratio: 0.1", 0},
        {"lr_scheduler: constant\nwarmup_steps: 5\noptimizer: schedule_free_adamw", 0},
        {"lr_scheduler: constant\nwarmup_ratio: 0.1\noptimizer: schedule_free_adamw", 1},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[400];
        af_run_config r = {0};
        af_error err = {0};
        snprintf(text, sizeof text, AX "%s\n", cases[i].keys);
        CHECK_OK(parse(&r, text, &err), err);
        CHECK_MSG(r.idle->count == cases[i].idle, "%s: %d idle", cases[i].keys, r.idle->count);
        af_run_config_clear(&r);
    }
}

/* Arguments of FastLanguageModel and get_peft_model, as scripts around them keep them in files. */
static void test_arguments_of_unsloth(void **state)
{
    static const char *const cases[][2] = {
        {TRL "use_peft: true\nr: 32\nmax_lora_rank: 64\nrandom_state: 7", "lora_r: 32\n"},
        {TRL "use_peft: true\nuse_gradient_checkpointing: unsloth",
         "gradient_checkpointing: true\n"},
        {TRL "use_peft: true\nuse_gradient_checkpointing: false",
         "gradient_checkpointing: false\n"},
        {TRL "full_finetuning: true", "adapter: full\n"},
        {TRL "full_finetuning: false\nuse_peft: true", "adapter: lora\n"},
    };
    static const char *const bad[][2] = {
        {TRL "use_peft: true\nfast_inference: true",
         "'fast_inference' with 'true' is not supported"},
        {TRL "use_peft: true\nqat_scheme: int4",
         "'qat_scheme' with 'int4' is not supported: see 'qat'"},
    };
    (void)state;
    check_lines(cases, AF_LEN(cases));
    check_refusals(bad, AF_LEN(bad));
}

/* A file with keys of Axolotl's own and no warm-up has Axolotl's; one of afinar's has none. */
static void test_warm_up_of_axolotl(void **state)
{
    static const char none[] = "warmup_steps: 0\nwarmup_ratio: 0\n",
                      theirs[] = "warmup_ratio: 0.03\nwarmup_max_steps: 100\n";
    static const char *const cases[][2] = {
        {AX, none},
        {AX "wandb_entity:", none},
        {AX "flash_attention: true", theirs},
        {AX "wandb_entity: me", theirs},
        {AX "flash_attention: true\nwarmup_steps: 0", "warmup_steps: 0\n"},
        {AX "flash_attention: true\nwarmup_steps: 7", "warmup_steps: 7\n"},
        {AX "flash_attention: true\nwarmup_ratio: 0.1",
         "warmup_ratio: 0.1\nwarmup_max_steps: 1000000000\n"},
        {AX "warmup_ratio: 0.1", "warmup_ratio: 0.1\nwarmup_max_steps: 0\n"},
        {AX "warmup_ratio: 0.1\nwarmup_max_steps: 3", "warmup_max_steps: 3\n"},
        {TRL "use_peft: true\nattn_implementation: sdpa", none},
    };
    static const char *const bad[][2] = {
        {AX "strict: true\nwarmup_max_steps: 3", "warmup_max_steps"}};
    (void)state;
    check_lines(cases, AF_LEN(cases));
    check_refusals(bad, AF_LEN(bad));
}

/* Numbers and booleans in quotes, where the key can have nothing else. */
static void test_values_as_text(void **state)
{
    static const char *const cases[][2] = {
        {AX "learning_rate: \"2e-4\"", "learning_rate: 0.0002\n"},
        {AX "micro_batch_size: '3'\nbf16: \"true\"", "micro_batch_size: 3\n"},
        {AX "sample_packing: \"True\"", "sample_packing: true\n"},
        {TRL "use_peft: \"true\"\nlora_r: \"4\"", "adapter: lora\n"},
        {AX "seed: 3\nrun_name: \"17\"", "seed: 3\n"},
        {AX "adapter: lora\npeft_init_lora_weights: True", "peft_init_lora_weights: \"true\"\n"},
        {TRL "use_peft: true\ninit_lora_weights: True", "peft_init_lora_weights: \"true\"\n"},
        {AX "resume_from_checkpoint: True", "resume_from_checkpoint: \"auto\"\n"},
        {AX "resume_from_checkpoint: False\nseed: 5", "seed: 5\n"},
    };
    static const char *const bad[][2] = {
        {AX "learning_rate: \"fast\"", "learning_rate must be a number, not 'fast' in quotes"},
        {AX "micro_batch_size: '2.5'", "micro_batch_size must be a whole number, not '2.5'"},
    };
    (void)state;
    check_lines(cases, AF_LEN(cases));
    check_refusals(bad, AF_LEN(bad));
}

/* Keys of `accelerate launch`, which TRL hands on, and of Megatron: where, not what is learnt. */
static void test_keys_of_launchers(void **state)
{
    static const char *const cases[][2] = {
        {TRL "use_peft: false\nnum_processes: 4\naccelerate_config: zero2\nmixed_precision: fp16\n"
             "num_machines: 2\nmachine_rank: 0\nmain_process_port: 29500",
         "adapter: full\n"},
        {"model_name_or_path: m\ndatasets: [{path: d}]\nfinetuning_type: full\n"
         "tensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\nsequence_parallel: true\n"
         "expert_model_parallel_size: 2\nbias_activation_fusion: true\nuse_mca: true\n"
         "recompute_granularity: full\noverlap_grad_reduce: true\nmoe_token_dispatcher_type: "
         "alltoall\nmoe_grouped_gemm: true",
         "adapter: full\n"},
    };
    (void)state;
    check_lines(cases, AF_LEN(cases));
}

/* One key of TRL is enough to have its defaults. */
static void test_files_with_few_keys(void **state)
{
    static const char *const keys[] = {"max_length: 64",
                                       "lr_scheduler_type: linear",
                                       "dtype: bfloat16",
                                       "attn_implementation: sdpa",
                                       "assistant_only_loss: true",
                                       "dataset_num_proc: 4",
                                       "per_device_eval_batch_size: 4"};
    (void)state;
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[300];
        snprintf(text, sizeof text, TRL "%s\n", keys[i]);
        CHECK_OK(parse(&r, text, &err), err);
        CHECK_MSG(r.dialect == AF_DIALECT_TRL && r.micro_batch_size == 8, "%s", keys[i]);
        af_run_config_clear(&r);
    }
}

#define OUMI(more)                                                                                 \
    "model: {model_name: m, " more "}\ntraining: {trainer_type: TRL_SFT}\n"                        \
    "data: {train: {datasets: [{dataset_name: a/b}]}}"

static void test_older_and_rarer_keys(void **state)
{
    static const char *const cases[][2] = {
        {AX "rl: dpo\nref_model: m", "rl: dpo\n"},
        {OUMI("model_kwargs: {quantization_config: {quant_method: mxfp4}}"), "adapter: full\n"},
        {AX "distributed_type: ddp\ndata_processes: 24\nmodel_card: false\ntrain_batch_size: 68\n"
            "total_train_batch_size: 32768\nmicro_batch_size: 4",
         "micro_batch_size: 4\ngradient_accumulation_steps: 1\n"},
        {AX "adapter: lora\nload_in_8bit: true\nbnb_8bit_compute_dtype: float16\nuse_bnb: true\n"
            "peft_type: LORA\nllm_int8_enable_fp32_cpu_offload: true\nllm_int8_threshold: 6.0",
         "load_in_8bit: true\n"},
        {AX "load_in_4bit: true\nadapter: qlora\n"
            "bnb_config: {bnb_4bit_use_double_quant: true, bnb_4bit_quant_type: nf4}",
         "adapter: qlora\n"},
        {AX "eval_steps: 5000000000\ntest_datasets: [{path: t}]\nsave_steps: 5000000000",
         "rl: none\n"},
        {"model: m\ntuner_type: lora\ndataset: a.jsonl\nvera_rank: 256\nuse_chat_template: true\n"
         "stop_words: []\nload_args: true\nmax_epochs:",
         "adapter: lora\n"},
    };
    static const char *const bad[][2] = {
        {AX "rl: dpo\nref_model: other", "'ref_model' with 'other' is not supported"},
        {OUMI("model_kwargs: {quantization_config: {quant_method: gptq}}"),
         "'model_kwargs' is not supported"},
        {AX "llm_int8_skip_modules: [lm_head]", "'llm_int8_skip_modules' is not supported"},
        {AX "bnb_config: {bnb_4bit_quant_type: fp4}", "'bnb_config' is not supported"},
        {"model: m\ntuner_type: lora\ndataset: a.jsonl\nuse_chat_template: false",
         "'use_chat_template' with 'false' is not supported"},
        {"model: m\ntuner_type: lora\ndataset: a.jsonl\nmax_epochs: 2",
         "'max_epochs' with '2' is not supported"},
    };
    (void)state;
    check_lines(cases, AF_LEN(cases));
    check_refusals(bad, AF_LEN(bad));
}

/* What another key of TRL decides. */
static void test_keys_that_others_decide(void **state)
{
#define NAMED "model_name_or_path: m\nuse_peft: true\noutput_dir: "
    static const char *const cases[][2] = {
        {NAMED "out\ndataset_name: b\ndataset_train_split: x\ndatasets: [{path: d}]",
         "datasets: [{\"path\": d}]\n"},
        {NAMED "out\ndataset_name: b\ndataset_config: c\ndataset_mixture: {datasets: [{id: d}]}",
         "datasets: [{\"path\": d}]\n"},
        {NAMED "out\ndataset_name: b\nlora_task_type: SEQ_CLS", "rl: reward\n"},
        {NAMED "x-orpo\ndataset_name: b\nbeta: 0.1\nmax_completion_length: 9", "rl: orpo\n"},
        {NAMED "x-kto\ndataset_name: b\nbeta: 0.1\nmax_completion_length: 9", "rl: kto\n"},
        {NAMED "out\ndataset_name: b\nuse_4bit: true\nuse_nested_quant: true",
         "load_in_4bit: true\n"},
        {NAMED "out\ndataset_name: b\nuse_4bit: false\noptim: flash_sgd", "optimizer: sgd\n"},
    };
    (void)state;
    check_lines(cases, AF_LEN(cases));
}

/* Files that were put together from others. */
static void test_keys_that_are_there_twice(void **state)
{
    static const char *const cases[][2] = {
        {AX "adapter: lora\nlora_target_modules:\nlora_target_modules: [q_proj]",
         "lora_target_modules: [\"q_proj\"]\n"},
        {AX "adapter: lora\nlora_dropout: 0.5\nlora_r: 4\nlora_dropout:", "lora_dropout: 0\n"},
        {AX "seed: 3\nseed: 3", "seed: 3\n"},
        {AX "adapter: lora\nlora_fan_in_fan_out: false\nlora_fan_in_fan_out: ~", "lora_r: 16\n"},
    };
    static const char *const bad[][2] = {
        {AX "seed: 3\nseed:\nseed: 4\nseed: 5",
         "run.yaml:7: duplicate key 'seed', first in line 6"},
        {AX "tokens: [a]\ntokens: [b]", "run.yaml:5: duplicate key 'tokens', first in line 4"},
    };
    (void)state;
    check_lines(cases, AF_LEN(cases));
    check_refusals(bad, AF_LEN(bad));
}

int main(void)
{
    af_log_mute(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_as_text),
        cmocka_unit_test(test_arguments_of_schedules),
        cmocka_unit_test(test_schedules_without_a_warm_up),
        cmocka_unit_test(test_warm_up_of_axolotl),
        cmocka_unit_test(test_arguments_of_unsloth),
        cmocka_unit_test(test_values_as_text),
        cmocka_unit_test(test_keys_of_launchers),
        cmocka_unit_test(test_files_with_few_keys),
        cmocka_unit_test(test_older_and_rarer_keys),
        cmocka_unit_test(test_keys_that_are_there_twice),
        cmocka_unit_test(test_keys_that_others_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
