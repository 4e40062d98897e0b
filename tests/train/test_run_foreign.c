/* test_run_foreign.c - keys of other trainers: accepted without effect, not supported, unknown. */
#include "test.h"

#include "train/run/method.h"
#include "train/run/run_foreign.h"
#include "train/run/run_keys.h"

#define BASE "base_model: m\ndatasets:\n  - path: d.jsonl\noutput_dir: out\n"

static af_status parse(af_run_config *r, const char *text, af_error *err)
{
    return af_run_config_parse(r, text, strlen(text), "run.yaml", NULL, 0, err);
}

/* What asks for nothing is not even counted. */
static void test_keys_that_ask_for_nothing(void **state)
{
    (void)state;
    static const char *const text =
        BASE "stage: sft\nwandb_project:\nwandb_name: ~\nload_in_8bit: false\nfp16: no\n"
             "special_tokens:\nfuture_key_of_somebody:\ngptq: false\nlabel_smoothing: 0.0\n"
             "rl:\nmix_strategy: concat\nreport_to: none\nassistant_only_loss: true\nstrict: "
             "false\nload_in_4bit: false\n"
             "evals_per_epoch: 0\nrelora_steps: 0\nearly_stopping_threshold: 0\n"
             "bnb_config_kwargs: {bnb_4bit_use_double_quant: true}\nenable_thinking: true\n";
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r, text, &err), err);
    assert_int_equal(r.idle->count, 0);
    af_run_config_clear(&r);
}

static void test_idle_keys_are_counted(void **state)
{
    (void)state;
    static const char *const text =
        BASE "adapter:\nattn_implementation: flash_attention_2\nwandb_entity: x\nlora_r: 8\n"
             "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nfsdp_version: 2\n"
             "liger_rope: true\nevals_per_epoch: 4\ntrust_remote_code: true\n"
             "env: {WANDB_DISABLED: true}\nmodel_init_kwargs: {dtype: bfloat16}\n" /* TRL's */
             "overrides_of_model_kwargs: {use_cache: true}\ncontext_parallel: {size: 8}\n";
    static const char *const keys[] = {
        "attn_implementation", "wandb_entity", "fsdp_version",   "liger_rope",
        "trust_remote_code",   "env",          "dtype",          "use_cache",
        "context_parallel",    "lora_r",       "evals_per_epoch"};
    af_run_config r = {0};
    af_error err = {0};
    char line[200], strict[1000];
    CHECK_OK(parse(&r, text, &err), err);
    assert_int_equal(r.idle->count, AF_LEN(keys));
    const af_idle_key *k = r.idle->first;
    for (size_t i = 0; i < AF_LEN(keys); i++, k = k->next)
        assert_string_equal(k->key, keys[i]);
    assert_null(k);
    assert_int_equal(r.lora_r, 16); /* as if it were not there */
    assert_int_equal(r.evals_per_epoch, 0);
    assert_true(af_run_idle_text(&r, line, sizeof line));
    assert_string_equal(line, "11 keys have no effect here; -v lists them");
    af_run_config_clear(&r);
    snprintf(strict, sizeof strict, "%sstrict: true\n", text);
    assert_int_equal(parse(&r, strict, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "run.yaml:6: 'attn_implementation' has no effect here"));
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *must[3];
    } cases[] = {
        {"rl: grpo", {"rl is 'grpo', which is not supported", "dpo", ""}},
        {"beta: 0.1", {"('beta'): rl_beta has no effect without 'rl': dpo", "", ""}},
        {"reward_model: x", {"'reward_model' with 'x' is not supported", "", ""}},
        {"qat: {weight_dtype: int8}", {"'int8' is not supported", "weights are int4, nvfp4", ""}},
        {"use_badam: true",
         {"run.yaml:5: 'use_badam' with 'true' is not supported: a run trains the same parameters",
          "'optimizer: apollo'", ""}},
        {"relora: true", {"'relora' with 'true' is not supported", "adapter", ""}},
        {"lisa_n_layers: 4", {"is not supported", "lisa_n_layers", ""}},
        {"id2label: {0: a}", {"is not supported", "num_labels", ""}},
        {"diffusion: true", {"'diffusion' with 'true'", "the plain cross-entropy", ""}},
        {"plugins: [axolotl.integrations.kd.KDPlugin]", {"'plugins", "is not supported", ""}},
        {"loss_type: hinge", {"dpo_loss_type has no effect without 'rl'", "", ""}},
        {"optimizer: adalomo",
         {"optimizer is 'adalomo', which is not supported", "one of: adamw, adam, adamw_8bit, ",
          "adafactor, sgd"}},
        {"finetuning_type: vera", {"adapter is 'vera', which is not supported", "lora", ""}},
        {"zz: 1\nvllm: true\nx_y: 2\ngptq: true",
         {"run.yaml:6: 'vllm' with 'true' is", "also not supported: 'gptq' (line 8)",
          "also unknown: 'zz' (line 5), 'x_y' (line 7)"}},
        {"context_parapllel_size: 2", {"unknown key", "did you mean 'context_parallel_size'", ""}},
        {"model_init_kwargs: {dtype: auto, rope_theta: 1}", {"unknown key 'rope_theta'", "", ""}},
        {"model_config: {rope_theta: 1}", {"'model_config' is not supported", "", ""}},
        {"use_kt: true\nkt_config: {kt_expert_weight_format: int8}",
         {"'kt_expert_weight_format' with 'int8' is not supported", "", ""}},
        {"chat_template: chatml\nenable_thinking: false", {"without 'template'", "", ""}},
        {"train_on_inputs: true\nmask_history: true", {"contradict each other", "", ""}},
        {"train_on_inputs: true\nsplit_turns: true", {"contradict each other", "", ""}},
        {"template: qwen\nsplit_turns: true", {"split_turns goes with", "not with 'template'", ""}},
        {"chat_template_kwargs: low", {"chat_template_kwargs must be a map, not 'low'", "", ""}},
        {"chat_template_kwargs: {tools: []}", {"'tools' cannot be set in", "", ""}},
        {"template: qwen\nchat_template_kwargs: {a: 1}", {"not with 'template'", "", ""}},
        {"peft: {loftq_config: {loftq_bits: 2}}", {"'peft' is not supported", "", ""}},
        {"peft: {loftq_config: {loftq_bits: 4, loftq_iter: 5}}", {"'peft' is not supp", "", ""}},
        {"training_mode: dpo", {"'training_mode' with 'dpo' is not supported", "'rl'", ""}},
        {"bias: all", {"'bias' with 'all' is not supported", "", ""}},
        {"lora_bias: all", {"lora_bias must be true or false, not 'all'", "", ""}},
        {"tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer}",
         {"run.yaml:5: 'tokenizer' has a '_component_'", "files of torchtune", ""}},
        {"model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained}",
         {"run.yaml:5: 'model' has a '_target_'", "NeMo AutoModel", "'step_scheduler'"}},
        {"data: {class_path: litgpt.data.Alpaca2k}",
         {"run.yaml:5: 'data' has a 'class_path'", "files of LitGPT", ""}},
        {"training: {batch_size: 2}",
         {"run.yaml:5: sections", "are Unsloth's", "'model' in place of 'base_model'"}},
        {"my_own_key: 2", {"unknown key 'my_own_key' (afinar", "", ""}},
        {"lora_r: 8", {"lora_r has no effect", "adapter: lora", ""}}, /* a forgotten line */
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[500];
        snprintf(text, sizeof text, BASE "%s\n", cases[i].text);
        CHECK_MSG(parse(&r, text, &err) != AF_OK, "accepted: %s", cases[i].text);
        for (int k = 0; k < 3; k++)
            CHECK_MSG(strstr(err.msg, cases[i].must[k]), "'%s' lacks '%s'", err.msg,
                      cases[i].must[k]);
        af_run_config_clear(&r);
    }
}

/* Every key that other tools have to change what is learnt, set to something: never idle. */
static void test_what_matters_is_never_idle(void **state)
{
    (void)state;
    static const char *const keys[] = {"rl",
                                       "loss_type",
                                       "reward_model",
                                       "process_reward_model",
                                       "id2label",
                                       "qat",
                                       "relora",
                                       "relora_steps",
                                       "lisa_n_layers",
                                       "llmcompressor",
                                       "lora_target_parameters",
                                       "use_badam",

                                       "use_dft_loss",
                                       "use_eaft_loss",
                                       "use_asft_loss",
                                       "use_llama_pro",
                                       "mixture_of_depths",
                                       "label_smoothing",
                                       "rope_scaling",
                                       "kd_alpha",
                                       "shift_attn",
                                       "use_pose",
                                       "module_dropout",
                                       "gptq",
                                       "task_type"};
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const af_yaml n = {.kind = AF_YAML_SCALAR, .text = "7"};
        const char *reason;
        const af_foreign_kind kind = af_foreign_judge(keys[i], &n, &reason);
        CHECK_MSG(af_key_find(keys[i]) || kind == AF_FOREIGN_REFUSED || kind == AF_FOREIGN_EXACT,
                  "%s is %d", keys[i], kind);
    }
}

/* No key is in two groups: the first would hide the second. */
static void test_groups_are_disjoint(void **state)
{
    (void)state;
    const char *keys, *reason, *found;
    af_foreign_kind kind;
    for (int i = 0; af_foreign_at(i, &keys, &kind, &reason); i++) {
        size_t n;
        for (; *(keys += strspn(keys, " ")); keys += n) {
            char key[64];
            n = strcspn(keys, " ");
            snprintf(key, sizeof key, "%.*s", (int)n, keys);
            if (key[n - 1] == '*')
                key[n - 1] = 'x';
            const af_yaml v = {.kind = AF_YAML_SCALAR, .text = "7"};
            af_foreign_judge(key, &v, &found);
            CHECK_MSG(found == reason, "%s is in two groups", key);
        }
    }
}

static void test_targets_are_a_union(void **state)
{
    (void)state;
    char path[512];
    af_run_config r = {0};
    af_error err = {0};
    af_hf_config config;
    af_model_spec spec;
    af_adapter_config c;
    af_method_lists lists;
    snprintf(path, sizeof path, "%s/models/qwen2", golden_dir());
    CHECK_OK(af_model_config(&config, path, &err), err);
    CHECK_OK(af_model_spec_init(&spec, &config, &err), err);
    CHECK_OK(parse(&r,
                   BASE "adapter: lora\nlora_target_linear: true\n"
                        "lora_target_modules: [q_proj, lm_head]\n",
                   &err),
             err);
    CHECK_OK(af_method_adapter(&c, &lists, &r, &spec, &err), err);
    assert_int_equal(c.target_count, 8); /* seven linears of a layer, and the head */
    assert_string_equal(c.target[7], "lm_head");
    af_run_config_clear(&r);
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
}

/* What a key of another trainer sets here. `show`: the line of the effective file. */
static void test_translations(void **state)
{
    (void)state;
    static const struct {
        const char *text, *show;
    } cases[] = {
        {"micro_batch_size: 2\nbatch_size: 8", "gradient_accumulation_steps: 4\n"},
        {"batch_size: 8", "micro_batch_size: 8\n"},
        {"curriculum_sampling: true", "shuffle: false\n"},
        {"optim: paged_lion_8bit", "optimizer: lion_8bit\n"},
        {"optimizer: ademamix_8bit", "optimizer: ademamix_8bit\n"},
        {"adapter: lora\npissa_init: true\npissa_iter: 4",
         "peft_init_lora_weights: \"pissa_niter_4\"\n"},
        {"adapter: lora\npissa_init: true\npissa_iter: -1", "lora_weights: \"pissa\"\n"},
        {"model_config: {rope_scaling: {type: linear, factor: 2.0}}",
         "rope_scaling: {\"type\": linear, \"factor\": 2.0}\n"},
        {"overrides_of_model_config: {attention_dropout: 0.0, rope_scaling: {type: linear, factor: "
         "2}}",
         "rope_scaling: {\"type\": linear, \"factor\": 2}\n"},
        {"optimizer: rmsprop_bnb_8bit", "optimizer: rmsprop_8bit\n"},
        {"optimizer: flash_lion", "optimizer: lion\n"},
        {"optimizer: flash_adamw", "optimizer: adamw\n"},
        {"disable_shuffling: true", "shuffle: false\n"},
        {"assistant_only_loss: false", "train_on_inputs: auto\n"},
        {"completion_only_loss: true\nassistant_only_loss: false", "train_on_inputs: false\n"},
        {"completion_only_loss: false\nassistant_only_loss: true", "train_on_inputs: false\n"},
        {"assistant_only_loss: false\ncompletion_only_loss: false", "train_on_inputs: true\n"},
        {"mask_prompt: true", "train_on_inputs: false\n"},
        {"gradient_checkpointing: offload", "activation_offloading: true\n"},
        {"activation_offloading: hidden_states", "activation_offloading: true\n"},
        {"disable_gradient_checkpointing: true", "gradient_checkpointing: false\n"},
        {"use_peft: true\nlora_r: 4", "lora_r: 4\n"},
        {"adapter: qlora\nuse_peft: true", "adapter: qlora\n"},
        {"adapter: lora\nquantization_bit: 8", "load_in_8bit: true\n"},
        {"lr_scheduler: cosine\nlr_scheduler_kwargs: {min_lr_rate: 0.1}",
         "cosine_min_lr_ratio: 0.1\n"},
        {"lr_scheduler: cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 3}",
         "lr_cycles: 3\n"},
        {"lr_scheduler: cosine\nlr_scheduler_kwargs: {num_cycles: 1.5}", "lr_cycles: 1.5\n"},
        {"lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 4, "
         "decay_type: 1-sqrt, warmup_type: linear}",
         "lr_decay_steps: 4\nlr_decay_type: 1-sqrt\n"},
        {"lr_scheduler_type: reduce_lr_on_plateau\nval_set_size: 0.1\nlr_scheduler_kwargs: "
         "{factor: "
         "0.5, patience: 3, threshold: 0.01, threshold_mode: rel, cooldown: 2, mode: max}",
         "lr_gamma: 0.5\nlr_patience: 3\nlr_threshold: 0.01\nlr_threshold_mode: rel\n"
         "lr_cooldown: 2\n"},
        {"lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {lr_end: 1.0e-6, power: 2}",
         "min_lr: 1e-06\n"},
        {"peft_config: {name: lora, r: 4, target_modules: all}",
         "lora_target_modules: [\"all-linear\"]\n"},
        {"adapter: lora\nquant_config: {name: bnb, quantization_bit: 4}", "load_in_4bit: true\n"},
        {"adapter: lora\npeft: {loftq_config: {loftq_bits: 4}}",
         "peft_init_lora_weights: \"loftq\"\n"},
        {"adapter: lora\nload_in_4bit: false\npeft: {loftq_config: {loftq_bits: 4}}",
         "load_in_4bit: true\n"},
        {"adapter: lora\nlora_bias: none\nbias: none", "lora_bias: false\n"},
        {"peft_config: {peft_type: LORA, r: 4, bias: none, use_qalora: false, loftq_config: {}}",
         "lora_r: 4\n"},
        {"optim_args: {bf16_stochastic_round: true}", "bf16_stochastic_round: true\n"},
        {"lora_parameters: {rank: 4, scale: 10}\nadapter: lora", "lora_alpha: 40\n"},
        {"loss_type: dft", "use_dft_loss: true\n"},
        {"activation_checkpointing: true", "gradient_checkpointing: true\n"},
        {"loss_type: nll\nlabel_smoothing_factor: 0.1", "label_smoothing_factor: 0.1\n"},
        {"save_strategy: epoch", "saves_per_epoch: 1\n"},
        {"save_strategy: 'no'\nsave_steps: 7", "save_steps: 7\n"}, /* Axolotl: the number wins */
        {"save_strategy: 'no'", "save_strategy: no\n"},
        {"save_strategy: best\nval_set_size: 2", "save_strategy: best\n"},
        {"save_strategy: steps", "save_steps: 500\n"},
        {"save_steps: 0.25", "save_steps: 0.25\n"},
        {"eval_strategy: no\nval_set_size: 2", "eval_strategy: no\n"},
        {"evaluation_strategy: steps\nval_set_size: 2\nlogging_steps: 5", "eval_steps: 5\n"},
        {"eval_strategy: epoch\nval_set_size: 2", "eval_steps: 0\n"},
        {"noisy_embedding_alpha: 5", "neftune_noise_alpha: 5\n"},
        {"new_special_tokens: <a>,<b>", "add_special_tokens: [\"<a>\", \"<b>\"]\n"},
        {"tokens: {pad_token: '<pad>'}", "special_tokens: {\"pad_token\": \"<pad>\"}\n"},
        {"model_config: {output_router_logits: true}", "output_router_logits: true\n"},
        {"train_on_eos: none", "train_on_eot: none\n"},
        {"chat_template_kwargs: {a: high, b: '1'}",
         "chat_template_kwargs: {\"a\": high, \"b\": \"1\"}\n"},
        {"tokenizer_config: m", "base_model: \"m\"\n"},
        {"seed: 3\nwandb_name:\nseed: 3\nwandb_name:", "seed: 3\n"}, /* Python takes the last */
        {"training_type: lora\nrandom_seed: 5\nuse_loftq: false\nfinetune_mlp_modules: true",
         "seed: 5\n"}, /* Unsloth */
        {"rl: dpo\ntrl: {beta: 0.3}", "rl_beta: 0.3\n"},
        {"adam_eps: 1e-6", "adam_epsilon: 1e-06\n"},
        {"packing: true\nneat_packing: false", "sample_packing: true\n"},
        {"neat_packing: true", "sample_packing: true\n"},
        {"packing_strategy: bfd\nloss_type: chunked_nll", "rl: none\n"},
        {"train_sampling_strategy: sequential", "shuffle: false\n"},
        {"val_set_size: 2\nmetric_for_best_model: eval_accuracy\nearly_stopping_threshold: 0.01",
         "early_stopping_threshold: 0.01\n"},
        {"test_split_size: 0.1", "val_set_size: 0.1\n"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[500], *effective;
        snprintf(text, sizeof text, BASE "%s\n", cases[i].text);
        CHECK_OK(parse(&r, text, &err), err);
        CHECK_OK(af_run_config_text(&r, &effective, &err), err);
        CHECK_MSG(strstr(effective, cases[i].show), "%s: no %s in\n%.3000s", cases[i].text,
                  cases[i].show, effective);
        assert_int_equal(r.idle->count, 0);
        af_run_config_clear(&r);
        CHECK_OK(af_run_config_parse(&r, effective, strlen(effective), "run.yaml", NULL, 0, &err),
                 err); /* and reads back */
        free(effective);
        af_run_config_clear(&r);
    }
}

/* What a missing key means depends on the trainer. */
static void test_defaults_of_dialects(void **state)
{
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r,
                   "model_name_or_path: m\nstage: sft\ncutoff_len: 64\n"
                   "datasets: [{path: d.jsonl}]\nlora_target: all\n",
                   &err),
             err);
    assert_int_equal(r.dialect, AF_DIALECT_LLAMA_FACTORY);
    assert_int_equal(r.method, AF_METHOD_LORA);
    assert_int_equal(r.lora_r, 8);
    assert_true(r.lora_alpha == 16);
    assert_true(r.num_epochs == 3 && r.learning_rate == 5e-5 && r.save_steps == 500);
    assert_string_equal(r.lr_scheduler, "linear");
    assert_int_equal(r.train_on_inputs, AF_TRI_NO);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r,
                   "model_name_or_path: m\nuse_peft: true\n"
                   "datasets: [{path: d}]\neval_strategy: epoch\nsave_strategy: 'no'\n"
                   "save_steps: 7\neval_steps: 9\n",
                   &err),
             err);
    assert_int_equal(r.dialect, AF_DIALECT_TRL);
    assert_int_equal(r.method, AF_METHOD_LORA);
    assert_true(r.lora_r == 16 && r.lora_alpha == 32 && r.lora_dropout == 0.05);
    assert_string_equal(r.lora_target_modules.item[0], "peft-default");
    assert_true(r.train_on_inputs == AF_TRI_AUTO && r.learning_rate == 2e-5);
    assert_true(r.save_steps == 0 && r.eval_steps == 0); /* the strategy decides */
    af_run_config_clear(&r);
    CHECK_OK(parse(&r,
                   "model_name_or_path: m\nuse_peft: true\ndatasets: [{path: d}]\n"
                   "completion_only_loss: true\nassistant_only_loss: false\n",
                   &err),
             err); /* there it is about prompt and completion, not about conversations */
    assert_int_equal(r.train_on_inputs, AF_TRI_AUTO);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r,
                   "model_name_or_path: m\nuse_peft: true\nwarmup_steps: 5\nwarmup_ratio: 0.1\n"
                   "datasets: [{path: d}]\n",
                   &err),
             err); /* steps win over the share */
    assert_true(r.warmup_steps == 5 && r.warmup_ratio == 0 && r.idle->count == 1);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r, "model: m\nkernel_config: {name: auto}\ndatasets: [{path: d}]\n", &err),
             err);
    assert_int_equal(r.dialect, AF_DIALECT_LLAMA_FACTORY_V1);
    assert_int_equal(r.method, AF_METHOD_FULL);
    assert_true(r.weight_decay == 0.01 && r.micro_batch_size == 1 && r.decay_on == AF_DECAY_ALL);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r, "model: m\npeft_config: {name: lora}\ndatasets: [{path: d}]\n", &err), err);
    assert_true(r.lora_r == 8 && r.lora_alpha == 16 && r.lora_dropout == 0.05);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r, "model: m\niters: 5\ndatasets: [{path: d}]\n", &err), err);
    assert_int_equal(r.dialect, AF_DIALECT_MLX);
    assert_true(r.max_steps == 5 && r.train_on_inputs == AF_TRI_YES && r.max_grad_norm == 0);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r, "model_name_or_path: m\ndatasets: [{path: d}]\n", &err), err);
    assert_int_equal(r.dialect, AF_DIALECT_NONE);
    assert_true(r.num_epochs == 1);
    af_run_config_clear(&r);
}

/* Learning rates of TRL's other trainers, beta of LLaMA-Factory's SimPO. */
static void test_defaults_of_preferences(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double rate, beta;
    } cases[] = {
        {"rl: dpo\nuse_peft: true", 1e-6, 0.1},
        {"rl: kto\nuse_peft: true", 1e-6, 0.1},
        {"rl: reward\nuse_peft: true", 1e-4, 0},
        {"rl: dpo\nuse_peft: true\nlearning_rate: 3e-5", 3e-5, 0.1},
        {"stage: dpo\npref_loss: simpo", 5e-5, 0.1},
        {"stage: dpo\npref_loss: simpo\npref_beta: 3", 5e-5, 3},
        {"stage: kto\nper_device_train_batch_size: 1", 5e-5, 0.1},
        {"rl: simpo", 2e-4, 2}, /* our own */
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        af_pref_opts o = {0};
        char text[500];
        snprintf(text, sizeof text, "model_name_or_path: m\ndatasets: [{path: d}]\n%s\n",
                 cases[i].text);
        CHECK_OK(parse(&r, text, &err), err);
        CHECK_MSG(r.learning_rate == cases[i].rate, "%s: rate %g", cases[i].text, r.learning_rate);
        if (cases[i].beta > 0)
            CHECK_OK(af_run_pref_opts(&o, &r, &err), err);
        CHECK_MSG(o.beta == cases[i].beta, "%s: beta %g", cases[i].text, o.beta);
        af_run_config_clear(&r);
    }
}

/* LLaMA-Factory: label smoothing of the sigmoid, KL over blocks of its preprocessing, ftx. */
static void test_losses_of_llama_factory(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        af_pref_type type;
        double smoothing;
        int idle;
    } cases[] = {
        {"stage: dpo\ndpo_label_smoothing: 0.1", AF_PREF_CDPO, 0.1, 0},
        {"stage: dpo\npref_loss: sigmoid\ndpo_label_smoothing: 0.1", AF_PREF_CDPO, 0.1, 0},
        {"stage: dpo\npref_loss: sigmoid", AF_PREF_SIGMOID, 0, 0},
        {"stage: dpo\ndpo_loss: ipo\nsplit: train", AF_PREF_IPO, 0, 0}, /* 0.7 */
        {"stage: dpo\npref_loss: hinge\ndpo_label_smoothing: 0.1", AF_PREF_HINGE, 0.1, 1},
        {"stage: dpo\npref_loss: simpo\ndpo_label_smoothing: 0.1", AF_PREF_SIMPO, 0, 1},
        {"stage: kto", AF_PREF_KTO, 0, 0},
    };
    af_run_config r = {0};
    af_error err = {0};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_pref_opts o;
        char text[500];
        snprintf(text, sizeof text, "model_name_or_path: m\ndatasets: [{path: d}]\n%s\n",
                 cases[i].text);
        CHECK_OK(parse(&r, text, &err), err);
        CHECK_OK(af_run_pref_opts(&o, &r, &err), err);
        CHECK_MSG(o.type[0] == cases[i].type && o.smoothing == cases[i].smoothing, "%s: %s %g",
                  cases[i].text, af_pref_type_name(o.type[0]), o.smoothing);
        CHECK_MSG(r.idle->count == cases[i].idle, "%s: %d", cases[i].text, r.idle->count);
        assert_int_equal(af_run_kl_batch(&r), 1000);
        af_run_config_clear(&r);
    }
    assert_int_not_equal(parse(&r,
                               "model_name_or_path: m\ndatasets: [{path: d}]\nstage: kto\n"
                               "pref_ftx: 0.1\n",
                               &err),
                         AF_OK);
    assert_non_null(strstr(err.msg, "pref_ftx 0.1 is not supported with 'rl: kto'"));
}

/* Whether there is dropout depends on the training; one that is asked for in vain is noted. */
static void test_dropout(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool has;
        int idle;
    } cases[] = {
        {"use_peft: true\nlora_dropout: 0.1", true, 0},
        {"use_peft: true\nlora_dropout: 0.1\ndisable_dropout: true", false, 1},
        {"use_peft: true\nlora_dropout: 0.1\nrl: dpo", false, 1},
        {"use_peft: true\nrl: dpo", false, 0},
        {"use_peft: true\nlora_dropout: 0.1\nrl: kto\ndisable_dropout: false", true, 0},
        {"lora_dropout: 0.1\nstage: dpo", false, 1},
        {"lora_dropout: 0.1\nstage: rm", true, 0}, /* not TRL's trainer */
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[500];
        snprintf(text, sizeof text, "model_name_or_path: m\ndatasets: [{path: d}]\n%s\n",
                 cases[i].text);
        CHECK_OK(parse(&r, text, &err), err);
        CHECK_MSG(af_method_has_dropout(&r) == cases[i].has, "%s", cases[i].text);
        CHECK_MSG(r.idle->count == cases[i].idle, "%s: %d", cases[i].text, r.idle->count);
        af_run_config_clear(&r);
    }
}

/* Messages and the text of the method have the names of the file. */
static void test_names_of_the_file(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"stage: rm", "rl", "run.yaml:3 ('stage')"},
        {"reward_model: true", "rl", "run.yaml:3 ('reward_model')"},
        {"rl: reward", "rl", "run.yaml:3"},
        {"batch_size: 4", "micro_batch_size", "run.yaml:3 ('batch_size')"},
        {"lr_scheduler_kwargs: {min_lr: 1.0e-6}", "min_lr", "run.yaml:3 ('lr_scheduler_kwargs')"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[500], at[300];
        snprintf(text, sizeof text, "base_model: m\ndatasets: [{path: d}]\n%s\n", cases[i][0]);
        CHECK_OK(parse(&r, text, &err), err);
        assert_string_equal(af_run_key_loc(&r, cases[i][1], at, sizeof at), cases[i][2]);
        af_run_config_clear(&r);
    }
}

/* A revision belongs to a name of the hub, not to a folder. */
static void test_revisions(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"base_model: org/m\nrevision_of_model: v2", "org/m@v2"},
        {"model_revision: v2\nmodel_name_or_path: org/m", "org/m@v2"},
        {"model_name_or_path: org/m\nmodel_revision: main", "org/m"},
        {"model_name_or_path: org/m@v1\nmodel_revision: v2", "org/m@v1"},
        {"model_name_or_path: ./m\nmodel_revision: v2", "./m"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[500];
        snprintf(text, sizeof text, "datasets: [{path: d}]\n%s\n", cases[i][0]);
        CHECK_OK(parse(&r, text, &err), err);
        assert_string_equal(r.base_model, cases[i][1]);
        assert_int_equal(r.idle->count, i < 2 ? 0 : 1);
        af_run_config_clear(&r);
    }
}

static void test_what_contradicts(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"batch_size: 8\nmicro_batch_size: 2\ngradient_accumulation_steps: 2", "contradict"},
        {"batch_size: 1\nmicro_batch_size: 2", "less than micro_batch_size"},
        {"save_steps: 2.5", "neither a share below 1 nor a whole number"},
        {"logging_steps: 0", "logging_steps is 0"},
        {"seed: 1\ndata_seed: 2", "is the same key as seed"},
        {"lr_scheduler_kwargs: {gamma: 2}", "unknown key 'gamma'"},
        {"use_dft_loss: true\nlabel_smoothing_factor: 0.1", "contradict each other"},
        {"use_dft_loss: true\nteacher_model: t", "contradict each other"},
        {"use_dft_loss: true\nrl: dpo\nstrict: true", "has no effect here: with 'rl'"},
        {"rl: dpo\nadapter: full\nsync_ref_model: true\nkahan_sum: true", "does not go with"},
        {"lr_scheduler: linear\nlr_end: 1e-6\nstrict: true", "has no effect"},
        {"lr_scheduler: reduce_lr_on_plateau", "needs evaluations"},
        {"lr_scheduler: linear\nlr_patience: 3\nstrict: true", "has no effect"},
        {"optimizer: flash_lion\nstrict: true", "'flash_lion' is not supported: the state of this"},
        {"lr_scheduler: warmup_stable_decay\nlr_decay_steps: 4\nlr_decay_ratio: 0.2",
         "contradict each other"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[500];
        snprintf(text, sizeof text, BASE "%s\n", cases[i][0]);
        CHECK_MSG(parse(&r, text, &err) != AF_OK, "accepted: %s", cases[i][0]);
        CHECK_MSG(strstr(err.msg, cases[i][1]), "'%s' lacks '%s'", err.msg, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_that_ask_for_nothing),
        cmocka_unit_test(test_idle_keys_are_counted),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_what_matters_is_never_idle),
        cmocka_unit_test(test_groups_are_disjoint),
        cmocka_unit_test(test_targets_are_a_union),
        cmocka_unit_test(test_translations),
        cmocka_unit_test(test_defaults_of_dialects),
        cmocka_unit_test(test_defaults_of_preferences),
        cmocka_unit_test(test_losses_of_llama_factory),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_names_of_the_file),
        cmocka_unit_test(test_revisions),
        cmocka_unit_test(test_what_contradicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
