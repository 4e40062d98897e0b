/* test_run_switches.c - keys of other trainers that another key switches on, and older names. */
#include "test.h"

#include "train/run/method.h"
#include "train/run/run_keys.h"

#define AXOLOTL "base_model: m\ndatasets:\n  - path: d.jsonl\noutput_dir: out\n"
#define FACTORY "model_name_or_path: m\ntemplate: llama3\ndataset: d.jsonl\noutput_dir: out\n"
#define TRL     "model_name_or_path: m\ndataset_name: d.jsonl\noutput_dir: out\n"

static af_status parse(af_run_config *r, const char *begin, const char *rest, af_error *err)
{
    char text[600];
    *r = (af_run_config){0};
    *err = (af_error){0};
    snprintf(text, sizeof text, "%s%s\n", begin, rest);
    return af_run_config_parse(r, text, strlen(text), "run.yaml", NULL, 0, err);
}

/* Where the switch is off, or not there, nobody reads the others. */
static void test_left_over_keys_are_idle(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *rest;
        int idle;
    } cases[] = {
        {AXOLOTL, "rl:\ndpo_beta: 0.1\nsimpo_gamma: 0.5", 2},
        {AXOLOTL, "rl: null\nkto_desirable_weight: 0.3", 1},
        {AXOLOTL, "use_eaft: false\neaft_alpha: 0.5", 1},
        {AXOLOTL, "relora_prune_ratio: 0.9\nrelora_cpu_offload: true", 2},
        {AXOLOTL, "lisa_n_layers:\nlisa_step_interval: 20", 1},
        {AXOLOTL, "mixlora_top_k: 2", 1},
        {FACTORY, "stage: sft\npref_beta: 0.1\npref_loss: kto_pair\nsimpo_gamma: 0.5", 3},
        {FACTORY, "stage: sft\nreward_model: x\nppo_epochs: 4\nref_model: y", 3},
        {FACTORY, "use_galore: false\ngalore_rank: 128\ngalore_layerwise: true", 2},
        {FACTORY, "badam_mode: layer\napollo_rank: 16\ncreate_new_adapter: true", 3},
        {FACTORY, "use_asft_loss: false\nasft_alpha: 0.1", 1},
        {FACTORY, "quantization_method: hqq\nquantization_type: fp4", 2},
        {TRL, "bnb_4bit_quant_type: fp4", 1},
        {TRL, "rl: orpo\nmax_completion_length: 512\nmax_target_length: 100", 2},
        {TRL, "rl: dpo\ngenerate_during_eval: true", 1},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r;
        af_error err;
        char strict[600];
        CHECK_MSG(parse(&r, cases[i].begin, cases[i].rest, &err) == AF_OK, "%s: %s", cases[i].rest,
                  err.msg);
        CHECK_MSG(r.idle->count == cases[i].idle, "%s: %d", cases[i].rest, r.idle->count);
        assert_true(r.simpo_gamma == 0.5); /* its default */
        af_run_config_clear(&r);
        snprintf(strict, sizeof strict, "%s\nstrict: true", cases[i].rest);
        assert_int_equal(parse(&r, cases[i].begin, strict, &err), AF_EUSAGE);
    }
}

/* Where the switch is on, or was perhaps forgotten. */
static void test_what_is_switched_on_is_not_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *rest, *says;
    } cases[] = {
        {AXOLOTL, "dpo_beta: 0.1", "run.yaml:5 ('dpo_beta'): rl_beta has no effect without 'rl'"},
        {AXOLOTL, "relora: true\nrelora_prune_ratio: 0.9", "also not supported: 'relora_prune"},
        {AXOLOTL, "relora_steps: 150", "'relora_steps' with '150' is not supported"},
        {AXOLOTL, "lisa_n_layers: 4\nlisa_step_interval: 20", "'lisa_step_interval' (line 6)"},
        {AXOLOTL, "mixlora_num_experts: 8", "'mixlora_num_experts' with '8' is not supported"},
        {AXOLOTL, "adapter: qlora\nbnb_4bit_quant_type: fp4", "'bnb_4bit_quant_type' with 'fp4'"},
        {AXOLOTL, "adapter: qlora\nquantization_method: hqq", "'quantization_method' with 'hqq'"},
        {AXOLOTL, "reward_model: x", "'reward_model' with 'x' is not supported"},
        {AXOLOTL, "eaft_alpha: 0.5", "eaft_alpha has no effect without 'use_eaft'"},
        {FACTORY, "stage: dpo\nref_model: y", "'ref_model' with 'y' is not supported"},
        {FACTORY, "stage: dpo\npref_loss: kto_pair", "'pref_loss' with 'kto_pair'"},
        {FACTORY, "use_badam: true\nbadam_mode: layer", "also not supported: 'badam_mode'"},
        {FACTORY, "adapter_name_or_path: a\ncreate_new_adapter: true", "'create_new_adapter' with"},
        {FACTORY, "quantization_bit: 4\nquantization_type: fp4", "'quantization_type' with 'fp4'"},
        {TRL, "load_in_4bit: true\nbnb_4bit_quant_type: fp4", "'bnb_4bit_quant_type' with 'fp4'"},
        {TRL, "rl: dpo\nmax_completion_length: 512", "'max_completion_length' with '512' is not"},
        {TRL, "max_completion_length: 512", "'max_completion_length' with '512' is not"},
        {TRL, "beta: 0.1\nrun_name: x-dpo\nmax_completion_length: 512",
         "'max_completion_length' with '512' is not"},
        {TRL, "rl: dpo\nref_model: x", "'ref_model' with 'x' is not supported"},
        {AXOLOTL, "peft_layers_pattern: [encoder]", "'peft_layers_pattern' is not supported"},
        {AXOLOTL, "balance_labels: true", "'balance_labels' with 'true' is not supported"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r;
        af_error err;
        CHECK_MSG(parse(&r, cases[i].begin, cases[i].rest, &err) != AF_OK, "%s", cases[i].rest);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: says '%s'", cases[i].rest, err.msg);
    }
}

/* A switch of the command line is not in the file: its keys are not left over. */
static void test_keys_of_the_command_line(void **state)
{
    (void)state;
    static const char *const add[] = {"badam_mode=layer"};
    af_run_config r = {0};
    af_error err = {0};
    assert_int_equal(af_run_config_parse(&r, AXOLOTL, strlen(AXOLOTL), "run.yaml", add, 1, &err),
                     AF_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "'badam_mode' with 'layer' is not supported"));
}

/* Names that keys had in other versions, and values that ask for what there is. */
static void test_names_of_other_versions(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *rest, *show;
        int idle, instead;
    } cases[] = {
        {AXOLOTL, "sequence_len_overflow_handling: drop", "excess_length_strategy: drop\n", 0, 0},
        {AXOLOTL, "rl: dpo\ndpo_ld_alpha: 0.5", "ld_alpha: 0.5\n", 0, 0},
        {AXOLOTL, "use_dft: true", "use_dft_loss: true\n", 0, 0},
        {AXOLOTL, "bf16: full", "bf16: true\n", 0, 0},
        {AXOLOTL, "adapter: lora\npeft_layers_to_transform: [0]\npeft_layers_pattern: [layers]",
         "lora_layers_to_transform: [\"0\"]\n", 0, 0},
        {AXOLOTL, "sync_profiler_steps: 3\nexport: {quantize: [q4]}\nautotune_cache_path: a",
         "rl: none\n", 3, 0},
        {AXOLOTL, "default_system_message: Be brief.", "rl: none\n", 0, 1},
        {AXOLOTL, "nf4_backend: bitsandbytes", "rl: none\n", 0, 0},
        {FACTORY, "finetuning_type: freeze\nnum_layer_trainable: 3\nname_module_trainable: mlp",
         "freeze_trainable_layers: 3\n", 0, 0},
        {FACTORY, "finetuning_type: freeze\nname_module_trainable: mlp",
         "freeze_trainable_modules: [\"mlp\"]\n", 0, 0},
        {FACTORY, "sft_packing: true", "sample_packing: true\n", 0, 0},
        {FACTORY, "reserved_label_len: 1", "rl: none\n", 0, 1},
        {TRL, "adafactor: true", "optimizer: adafactor\n", 0, 0},
        {TRL, "adafactor: false", "optimizer: adamw\n", 0, 0},
        {TRL, "per_gpu_train_batch_size: 5\nper_gpu_eval_batch_size: 2", "micro_batch_size: 5\n", 1,
         0},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r;
        af_error err;
        char *effective;
        CHECK_MSG(parse(&r, cases[i].begin, cases[i].rest, &err) == AF_OK, "%s: %s", cases[i].rest,
                  err.msg);
        CHECK_OK(af_run_config_text(&r, &effective, &err), err);
        CHECK_MSG(strstr(effective, cases[i].show), "%s: no %s in\n%.3000s", cases[i].rest,
                  cases[i].show, effective);
        CHECK_MSG(r.idle->count == cases[i].idle && r.instead->count == cases[i].instead,
                  "%s: %d idle, %d instead", cases[i].rest, r.idle->count, r.instead->count);
        free(effective);
        af_run_config_clear(&r);
    }
}

static void test_older_names_of_data(void **state)
{
    (void)state;
    af_run_config r;
    af_error err;
    CHECK_OK(parse(&r, "model_name_or_path: m\nuse_peft: true\noutput_dir: out\n",
                   "dataset_id_or_path: d\ndataset_train_name: a", &err),
             err);
    assert_string_equal(af_yaml_get(r.datasets->item[0], "path")->text, "d");
    assert_string_equal(af_yaml_get(r.datasets->item[0], "split")->text, "a");
    af_run_config_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_over_keys_are_idle),
        cmocka_unit_test(test_what_is_switched_on_is_not_left_out),
        cmocka_unit_test(test_keys_of_the_command_line),
        cmocka_unit_test(test_names_of_other_versions),
        cmocka_unit_test(test_older_names_of_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
