/* test_apollo_keys.c - the keys of APOLLO: ours, transformers' optim_args, LLaMA-Factory's. */
#include "test.h"

#include "train/run/run_keys.h"

#define BASE "base_model: m\ndatasets:\n  - path: d.jsonl\noutput_dir: out\nadapter: full\n"
#define HF   "optim: apollo_adamw\n"

static void test_settings(void **state)
{
    static const struct {
        const char *file;
        int64_t rank, gap;
        double scale;
        bool tensor, front;
        int targets, idle, instead;
    } cases[] = {
        {"optimizer: apollo", 128, 200, 1, false, false, 0, 0, 0},
        {"optimizer: apollo\napollo_rank: 1\napollo_scale: 128\napollo_scale_type: tensor\n"
         "apollo_update_interval: 7\napollo_scale_front: true\noptim_target_modules: [q_proj, mlp]",
         1, 7, 128, true, true, 2, 0, 0},
        {HF "optim_target_modules: all-linear", 128, 200, 1, false, false, 1, 0, 0},
        {HF "optim_args: proj=random,rank=256,scale_type=channel,scale=0.5,update_proj_gap=50,"
            "proj_type=std",
         256, 50, 0.5, false, false, 0, 0, 0},
        {"optimizer: apollo_adamw\noptim_target_modules:\n  - attn\n  - mlp\n"
         "optim_args: {rank: 1, scale: 128, scale_type: tensor}",
         1, 200, 128, true, false, 2, 0, 0},
        {"optim: apollo_adamw_layerwise\noptim_args: rank=8", 8, 200, 1, false, false, 0, 0, 0},
        {"use_apollo: true", 16, 200, 32, false, false, 0, 0, 0},
        {"optim: lion\nuse_apollo: true", 16, 200, 32, false, false, 0, 0, 0},
        {"use_apollo: true\noptim: adamw_torch\napollo_target: all\napollo_proj: random\n"
         "apollo_proj_type: std\napollo_layerwise: false",
         16, 200, 32, false, false, 0, 0, 0},
        {"use_apollo: true\napollo_target: q_proj,v_proj\napollo_rank: 4\napollo_scale: 2\n"
         "apollo_update_interval: 9\napollo_scale_type: tensor\napollo_scale_front: true\n"
         "apollo_layerwise: true",
         4, 9, 2, true, true, 2, 0, 0},
        {"use_apollo: false\napollo_rank: 4\napollo_proj: svd", 128, 200, 1, false, false, 0, 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[600];
        snprintf(text, sizeof text, BASE "%s\n", cases[i].file);
        CHECK_OK(af_run_config_parse(&r, text, strlen(text), "run.yaml", NULL, 0, &err), err);
        CHECK_MSG((r.optimizer == AF_OPTIMIZER_APOLLO) == (cases[i].idle == 0), "%s", text);
        CHECK_MSG(
            r.apollo_rank == cases[i].rank && r.apollo_gap == cases[i].gap &&
                r.apollo_scale == cases[i].scale &&
                (r.apollo_scale_type == AF_APOLLO_TENSOR) == cases[i].tensor &&
                r.apollo_scale_front == cases[i].front && r.optim_targets.count == cases[i].targets,
            "%s: %d %d %g", cases[i].file, (int)r.apollo_rank, (int)r.apollo_gap, r.apollo_scale);
        CHECK_MSG(r.idle->count == cases[i].idle && r.instead->count == cases[i].instead,
                  "%s: %d idle, %d instead", cases[i].file, r.idle->count, r.instead->count);
        af_run_config_clear(&r);
    }
}

static void test_what_is_refused(void **state)
{
    static const struct {
        const char *file, *why;
    } cases[] = {
        {"optimizer: apollo\napollo_rank: 0", "run.yaml:7: apollo_rank is 0"},
        {"optimizer: apollo\napollo_scale_type: row", "run.yaml:7: apollo_scale_type is 'row'"},
        {"optimizer: apollo\noptim_target_modules: []", "run.yaml:7: optim_target_modules is an"},
        {"optimizer: apollo\napollo_proj: svd",
         "run.yaml:7: 'apollo_proj' with 'svd' is not supported: gradients are projected at"},
        {"use_apollo: true\napollo_proj_type: left", "'apollo_proj_type' with 'left' is not supp"},
        {HF "optim_args: rank=8,proj=svd",
         "run.yaml:7: 'proj' of optim_args is 'svd'; supported: random"},
        {HF "optim_args: proj_type=right", "'proj_type' of optim_args is 'right'; supported: std"},
        {HF "optim_args: scale_type=row", "is 'row'; supported: channel tensor"},
        {HF "optim_args: rank=2.5", "'rank' of optim_args is 2.5, not a whole number"},
        {HF "optim_args: rank=0", "'rank' of optim_args is 0, it must be from 1 up to below"},
        {HF "optim_args: alpha=1", "it has rank, scale, update_proj_gap, scale_type, proj, proj_t"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[600];
        snprintf(text, sizeof text, BASE "%s\n", cases[i].file);
        CHECK_MSG(af_run_config_parse(&r, text, strlen(text), "run.yaml", NULL, 0, &err) != AF_OK,
                  "taken: %s", cases[i].file);
        CHECK_MSG(strstr(err.msg, cases[i].why), "%s: '%s'", cases[i].file, err.msg);
        af_run_config_clear(&r);
    }
}

/* Keys of the command line count for a file that has the others; adapters are not its matrices. */
static void test_other_keys(void **state)
{
    static const char text[] = BASE "use_apollo: true\n";
    static const char *const rank[] = {"apollo_rank=3"}, *const lora[] = {"adapter=lora"},
                             *const other[] = {"optimizer=adamw"};
    af_run_config r = {0};
    af_error err = {0};
    (void)state;
    CHECK_OK(af_run_config_parse(&r, text, strlen(text), "run.yaml", rank, 1, &err), err);
    assert_true(r.apollo_rank == 3 && r.apollo_scale == 32);
    af_run_config_clear(&r);
    CHECK_OK(af_run_config_parse(&r, text, strlen(text), "run.yaml", other, 1, &err), err);
    assert_true(r.optimizer == AF_OPTIMIZER_ADAMW);
    af_run_config_clear(&r);
    CHECK_MSG(af_run_config_parse(&r, text, strlen(text), "run.yaml", lora, 1, &err) != AF_OK &&
                  strstr(err.msg, "run.yaml:6 ('use_apollo'): optimizer apollo is for full "
                                  "fine-tuning, not for 'adapter: lora'"),
              "'%s'", err.msg);
    af_run_config_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_other_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
