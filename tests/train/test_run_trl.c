/* test_run_trl.c - run files of TRL: what a value means there. */
#include "test.h"

#include "base/log.h"
#include "train/run/run_keys.h"

#define BASE "model_name_or_path: m\nuse_peft: true\ndatasets: [{path: d}]\n"

static af_status parse(af_run_config *r, const char *text, const char *const *overrides, int count,
                       af_error *err)
{
    char whole[600];
    snprintf(whole, sizeof whole, BASE "%s\n", text);
    return af_run_config_parse(r, whole, strlen(whole), "run.yaml", overrides, count, err);
}

/* TRL's files do not name their trainer: keys that one of them has, names, the usual one. */
static void test_trainer_of_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        af_rl rl;
        const char *must; /* of the message, where it is refused */
    } cases[] = {
        {"beta: 0.05\noutput_dir: data/zephyr-7b-dpo-full", AF_RL_DPO, ""},
        {"beta: 0.05\nhub_model_id: zephyr-ORPO-141b", AF_RL_ORPO, ""},
        {"max_prompt_length: 9\nrun_name: x_kto", AF_RL_KTO, ""},
        {"beta: 0.05\nloss_type: apo_zero\noutput_dir: x-orpo", AF_RL_DPO, ""},
        {"beta: 0.05\nloss_type: ipo", AF_RL_DPO, ""},
        {"beta: 0.05\nloss_type: ipo\noutput_dir: x/cpo", AF_RL_CPO, ""},
        {"cpo_alpha: 0\nloss_type: simpo\noutput_dir: x-simpo", AF_RL_CPO, ""},
        {"cpo_alpha: 0.5\nloss_type: alphapo\nalpha: 0.25", AF_RL_CPO, ""},
        {"rl: dpo\nloss_type: alphapo", AF_RL_NONE, "'alphapo' is not a loss of 'rl: dpo'"},
        {"desirable_weight: 2", AF_RL_KTO, ""},
        {"center_rewards_coefficient: 0.01", AF_RL_REWARD, ""},
        {"beta: 2.5\ngamma_beta_ratio: 0.5\noutput_dir: x-dpo", AF_RL_SIMPO, ""},
        {"rl: orpo\nbeta: 0.1\noutput_dir: x-dpo", AF_RL_ORPO, ""},
        {"output_dir: x-dpo", AF_RL_NONE, ""},
        {"beta: 0.05\noutput_dir: dpomix", AF_RL_NONE, "run.yaml:4 ('beta'): rl_beta is a key of"},
        {"beta: 0.05\noutput_dir: x-dpo-orpo", AF_RL_NONE, "add 'rl: dpo' (or orpo, cpo, kto)"},
        {"beta: 0.05\noutput_dir: x-orpo\nstrict: true", AF_RL_NONE, "add 'rl: orpo'"},
        {"loss_type: dft", AF_RL_NONE, ""},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        const af_status st = parse(&r, cases[i].text, NULL, 0, &err);
        CHECK_MSG((st != AF_OK) == !!cases[i].must[0] && strstr(err.msg, cases[i].must), "%s: %s",
                  cases[i].text, err.msg);
        CHECK_MSG(r.rl == cases[i].rl, "%s: %d", cases[i].text, (int)r.rl);
        CHECK_MSG(!strstr(cases[i].text, "alphapo") || st != AF_OK ||
                      (r.cpo_alpha == 0 && strcmp(r.dpo_loss_type.item[0], "simpo") == 0),
                  "cpo_alpha %g", r.cpo_alpha);
        CHECK_MSG(r.rl != AF_RL_SIMPO || r.simpo_gamma == 1.25, "gamma %g", r.simpo_gamma);
        af_run_config_clear(&r);
    }
}

/* A mean over passes there, a sum here; what the command line says is not translated. */
static void test_router_loss(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double coef;
    } cases[] = {{"router_aux_loss_coef: 0.3\ngradient_accumulation_steps: 3", 0.3 / 3},
                 {"router_aux_loss_coef: 0.3", 0.3},
                 {"router_aux_loss_coef: 0.3\ngradient_accumulation_steps: 3\nrl: dpo", 0.3}};
    const char *const set[] = {"router_aux_loss_coef=0.5"};
    af_run_config r = {0};
    af_error err = {0};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        CHECK_OK(parse(&r, cases[i].text, NULL, 0, &err), err);
        CHECK_MSG(r.router_loss_coef == cases[i].coef, "%s: %g", cases[i].text, r.router_loss_coef);
        af_run_config_clear(&r);
        CHECK_OK(parse(&r, cases[i].text, set, 1, &err), err);
        assert_true(r.router_loss_coef == 0.5);
        af_run_config_clear(&r);
    }
}

/* max_length: null cuts nothing there; in other files an empty key is the default. */
static void test_length(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t length;
    } cases[] = {
        {"", 1024},
        {"max_length: 64", 64},
        {"max_length: null", AF_SEQUENCE_UNLIMITED},
        {"max_length:", AF_SEQUENCE_UNLIMITED},
        {"max_seq_length: null", 1024},
        {"max_length: null\nbase_model: m", 2048},
    };
    const char *const set[] = {"max_length=128"};
    af_run_config r = {0};
    af_error err = {0};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        CHECK_OK(parse(&r, cases[i].text, NULL, 0, &err), err);
        CHECK_MSG(r.sequence_len == cases[i].length, "%s: %d", cases[i].text, (int)r.sequence_len);
        af_run_config_clear(&r);
    }
    CHECK_OK(parse(&r, "max_length: null\npacking: true", set, 1, &err), err);
    assert_int_equal(r.sequence_len, 128);
    af_run_config_clear(&r);
    assert_int_equal(parse(&r, "max_length: null\npacking: true", NULL, 0, &err), AF_EUSAGE);
    assert_string_equal(err.msg, "run.yaml:4 ('max_length'): sample_packing needs a sequence_len: "
                                 "give the tokens of a row");
}

/* `plan` says what would be learnt, by the names of the file. */
static void test_method_text(void **state)
{
    static const char *const cases[][2] = {
        {"loss_type: dft", "use_dft_loss true ('loss_type')"},
        {"rl: reward\nnum_labels: 1", "rl reward, num_labels 1"},
        {"rl: dpo\nloss_type: apo_zero", "rl dpo, loss_type [\"apo_zero\"]"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        af_buf b = {0};
        CHECK_OK(parse(&r, cases[i][0], NULL, 0, &err), err);
        assert_int_equal(r.idle->count, 0);
        af_run_method_text(&r, &b);
        char *text = af_buf_take(&b);
        CHECK_MSG(text && strstr(text, cases[i][1]), "%s: %s", cases[i][0], text);
        free(text);
        af_run_config_clear(&r);
    }
}

/* The last answers are compared anyway. */
static void test_mask_history_with_rl(void **state)
{
    (void)state;
    static const char *const set[] = {"mask_history=true"};
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r, "rl: dpo\nmask_history: true\nsplit_turns: true", NULL, 0, &err), err);
    assert_true(r.idle->count == 2 && !r.mask_history && !r.split_turns);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r, "rl: dpo\nroles_to_train: [user]\ntrain_on_eos: all", NULL, 0, &err), err);
    assert_true(r.idle->count == 2 && !r.roles_to_train.count);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r, "task_type: SEQ_CLS\nmask_history: true\ntrain_on_eot: all", NULL, 0, &err),
             err);
    assert_true(r.idle->count == 2 && !r.mask_history);
    af_run_config_clear(&r);
    assert_int_equal(parse(&r, "rl: dpo", set, 1, &err), AF_EUSAGE);
}

/* A strategy for data that the file does not have, next to another key without effect. */
static void test_strategy_without_data(void **state)
{
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r, "attn_implementation: sdpa\neval_strategy: steps\nlog_level: info", NULL, 0,
                   &err),
             err);
    assert_int_equal(r.idle->count, 3);
    assert_string_equal(r.idle->last->key, "eval_strategy");
    af_run_config_clear(&r);
}

static void test_template_file(void **state)
{
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r, "chat_template_path: a/t.jinja", NULL, 0, &err), err);
    assert_string_equal(r.chat_template, "a/t.jinja");
    af_run_config_clear(&r);
    const char *file[] = {"chat_template_path=t.j2"}, *model[] = {"chat_template_path=a/b"};
    CHECK_OK(parse(&r, "chat_template_path: org/model", file, 1, &err), err);
    assert_string_equal(r.chat_template, "t.j2");
    assert_null(r.chat_template_path);
    af_run_config_clear(&r);
    CHECK_OK(parse(&r, "chat_template_path: org/model", NULL, 0, &err), err);
    assert_true(!r.chat_template && !strcmp(r.chat_template_path, "org/model"));
    af_run_config_clear(&r);
    assert_int_equal(parse(&r, "chat_template: chatml", model, 1, &err), AF_EUSAGE);
    assert_string_equal(err.msg, "command line: chat_template_path and chat_template contradict "
                                 "each other: give one");
}

/* Mixtures of the alignment handbook imply setup_chat_format; TRL's own ways to name data do not.
 */
static void test_chat_format(void **state)
{
    static const struct {
        const char *data;
        bool chat;
    } cases[] = {{"dataset_mixer: {a: 1}", true},
                 {"dataset_mixture: {datasets: [{id: a}]}", true},
                 {"dataset_name: a", false},
                 {"dataset_name: a\nsetup_chat_format: true", true},
                 {"datasets: [{path: a}]", false}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[200];
        af_run_config r = {0};
        af_error err = {0};
        snprintf(text, sizeof text, "model_name_or_path: m\nuse_peft: true\n%s\n", cases[i].data);
        CHECK_OK(af_run_config_parse(&r, text, strlen(text), "run.yaml", NULL, 0, &err), err);
        CHECK_MSG(r.setup_chat_format == cases[i].chat, "%s", cases[i].data);
        af_run_config_clear(&r);
    }
}

/* Splits of a mixer to train on and to evaluate on. */
static void test_mixer(void **state)
{
    (void)state;
    static const char *const text = "model_name_or_path: m\nuse_peft: true\n"
                                    "dataset_mixer: {a: 0.5, b: 1}\n"
                                    "dataset_splits: [train_x, test_x, train_y]\n";
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(af_run_config_parse(&r, text, strlen(text), "run.yaml", NULL, 0, &err), err);
    assert_int_equal(r.datasets->count, 4);
    assert_string_equal(af_yaml_get(r.datasets->item[1], "split")->text, "train_y");
    assert_string_equal(af_yaml_get(r.datasets->item[1], "first_share")->text, "0.5");
    assert_null(af_yaml_get(r.datasets->item[2], "first_share"));
    assert_int_equal(r.test_datasets->count, 2);
    assert_string_equal(af_yaml_get(r.test_datasets->item[1], "path")->text, "b");
    assert_null(af_yaml_get(r.test_datasets->item[0], "first_share"));
    af_run_config_clear(&r);
    static const char *const none = "model_name_or_path: m\nuse_peft: true\n"
                                    "dataset_mixer: {a: 0.0, b: 0.25}\n";
    CHECK_OK(af_run_config_parse(&r, none, strlen(none), "run.yaml", NULL, 0, &err), err);
    assert_int_equal(r.datasets->count, 1); /* nothing of a */
    assert_string_equal(af_yaml_get(r.datasets->item[0], "path")->text, "b");
    af_run_config_clear(&r);
    static const char *const more = "model_name_or_path: m\nuse_peft: true\n"
                                    "dataset_mixer: {a: 1.5}\n";
    assert_int_equal(af_run_config_parse(&r, more, strlen(more), "run.yaml", NULL, 0, &err),
                     AF_EUSAGE);
    assert_non_null(
        strstr(err.msg, "run.yaml:3: a share of dataset_mixer must be between 0 and 1"));
    CHECK_OK(parse(&r, "dataset_splits: [train_x]", NULL, 0, &err), err);
    assert_int_equal(r.idle->count, 1);
    af_run_config_clear(&r);
}

/* Keys of its versions since 0.8 that ask for nothing here, and one that does. */
static void test_older_keys(void **state)
{
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r,
                   "rl: dpo\nlabel_pad_token_id: -100\nforce_use_ref_model: false\n"
                   "use_num_logits_to_keep: true\ngradient_checkpointing_use_reentrant: true\n"
                   "ref_adapter_name: null\nsanity_check: false",
                   NULL, 0, &err),
             err);
    assert_int_equal(r.idle->count, 3);
    af_run_config_clear(&r);
    assert_int_equal(parse(&r, "sanity_check: true", NULL, 0, &err), AF_EUNSUPPORTED);
    CHECK_OK(parse(&r,
                   "callbacks: [push_to_hub_revision]\nbenchmarks: [aime24]\n" /* open-r1 */
                   "hub_model_revision: v1\noverwrite_hub_revision: true",
                   NULL, 0, &err),
             err);
    assert_int_equal(r.idle->count, 3);
    af_run_config_clear(&r);
    assert_int_equal(parse(&r, "system_prompt: Think.", NULL, 0, &err), AF_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "'default_system' is the system text"));
    assert_int_equal(parse(&r, "callbacks: [own]", NULL, 0, &err), AF_EUNSUPPORTED);
}

/* Which end of a text, or of a prompt, stays. */
static void test_truncation_mode(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int idle;
        const char *must; /* of the message; "" = accepted */
    } cases[] = {
        {"truncation_mode: keep_start", 0, ""},
        {"truncation_mode: keep_end", 0, ""},
        {"rl: dpo\ntruncation_mode: keep_end", 0, ""},
        {"rl: reward\ntruncation_mode: keep_end", 0,
         "'keep_end' is not supported here: texts are cut"},
        {"rl: dpo\nmax_prompt_length: 8\ntruncation_mode: keep_start", 0, ""},
        {"rl: dpo\nmax_prompt_length: 8\ntruncation_mode: keep_end", 0, ""},
        {"rl: orpo\nmax_prompt_length: 8\ntruncation_mode: keep_end", 0, ""},
        {"rl: orpo\nmax_prompt_length: 8\ntruncation_mode: keep_start", 0,
         "run.yaml:6: truncation_mode 'keep_start' is not supported with max_prompt_length"},
        {"rl: cpo\ntruncation_mode: keep_start", 1, ""},
        {"rl: kto\ntruncation_mode: keep_start", 0, ""},
        {"rl: kto\ntruncation_mode: keep_end", 0, "is not supported"},
        {"rl: kto\nmax_prompt_length: 8\ntruncation_mode: keep_end", 0, ""},
        {"truncation_mode: middle", 0, "must be one of: auto, keep_start, keep_end"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        const af_status st = parse(&r, cases[i].text, NULL, 0, &err);
        CHECK_MSG((st != AF_OK) == !!cases[i].must[0] && strstr(err.msg, cases[i].must), "%s: %s",
                  cases[i].text, err.msg);
        CHECK_MSG(st != AF_OK || r.idle->count == cases[i].idle, "%s", cases[i].text);
        af_run_config_clear(&r);
    }
}

/* What is done otherwise than asked for is a warning, where it is done at all. */
static void test_instead(void **state)
{
    (void)state;
    static const struct {
        const char *text, *set;
        int idle;
        bool warns;
    } cases[] = {
        {"packing_strategy: wrapped", "seed=1", 1, false},
        {"packing_strategy: wrapped", "packing=true", 0, true},
        {"packing_strategy: bfd\npacking: true", "seed=1", 0, false},
        {"use_bnb_nested_quant: false", "seed=1", 1, false},
        {"use_bnb_nested_quant: false\nload_in_4bit: true", "seed=1", 0, true},
        {"fp16: true", "seed=1", 0, true},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        const char *const sets[] = {cases[i].set, "strict=true"};
        CHECK_OK(parse(&r, cases[i].text, sets, 1, &err), err);
        CHECK_MSG(r.idle->count == cases[i].idle, "%s: %d", cases[i].text, r.idle->count);
        af_run_config_clear(&r);
        const af_status strict = parse(&r, cases[i].text, sets, 2, &err);
        const char *must = cases[i].warns ? "is not supported: " : "has no effect here: without";
        CHECK_MSG((strict == AF_OK) == !(cases[i].warns || cases[i].idle) &&
                      (strict == AF_OK || strstr(err.msg, must)),
                  "%s: %s", cases[i].text, err.msg);
        af_run_config_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trainer_of_a_file),
        cmocka_unit_test(test_router_loss),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_method_text),
        cmocka_unit_test(test_older_keys),
        cmocka_unit_test(test_mask_history_with_rl),
        cmocka_unit_test(test_strategy_without_data),
        cmocka_unit_test(test_template_file),
        cmocka_unit_test(test_chat_format),
        cmocka_unit_test(test_mixer),
        cmocka_unit_test(test_truncation_mode),
        cmocka_unit_test(test_instead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
