/* test_galore_keys.c - the keys of GaLore: ours, transformers' optim_args, LLaMA-Factory's and
 * ms-swift's. */
#include "test.h"

#include "train/run/run_keys.h"

#include <math.h>

#define BASE  "base_model: m\ndatasets:\n  - path: d.jsonl\noutput_dir: out\nadapter: full\n"
#define HF    "optim: galore_adamw\n"
#define SWIFT "model: m\ndataset: d.jsonl\noutput_dir: out\ntrain_type: full\nuse_galore: true\n"

static void test_settings(void **state)
{
    static const struct {
        const char *file;
        int64_t rank, gap;
        double scale;
        af_projection projection;
        int targets, idle, instead;
    } cases[] = {
        {BASE "optimizer: galore", 128, 200, 0.25, AF_PROJECTION_STD, 0, 0, 0},
        {BASE "optimizer: galore\ngalore_rank: 1\ngalore_scale: 2\ngalore_proj_type: full\n"
              "galore_update_interval: 7\noptim_target_modules: [q_proj, mlp]",
         1, 7, 2, AF_PROJECTION_FULL, 2, 0, 0},
        {BASE HF "optim_target_modules: all-linear", 128, 200, 0.25, AF_PROJECTION_STD, 1, 0, 0},
        {BASE HF "optim_args: rank=64,scale=0.5,update_proj_gap=50,proj_type=reverse_std", 64, 50,
         0.5, AF_PROJECTION_REVERSE_STD, 0, 0, 0},
        {BASE "optimizer: galore_adamw_8bit\noptim_target_modules:\n  - attn\n  - mlp\n"
              "optim_args: {rank: 8, proj_type: left}",
         8, 200, 0.25, AF_PROJECTION_LEFT, 2, 0, 1},
        {BASE "optim: galore_adamw_layerwise", 128, 200, 0.25, AF_PROJECTION_STD, 0, 0, 0},
        {BASE "optim: galore_adamw_8bit_layerwise", 128, 200, 0.25, AF_PROJECTION_STD, 0, 0, 1},
        {BASE "use_galore: true", 16, 200, 2, AF_PROJECTION_STD, 0, 0, 0},
        {BASE "use_galore: true\noptim: adamw_torch\ngalore_target: all\ngalore_layerwise: false",
         16, 200, 2, AF_PROJECTION_STD, 0, 0, 0},
        {BASE "use_galore: true\noptim: adamw_8bit", 16, 200, 2, AF_PROJECTION_STD, 0, 0, 1},
        {BASE "use_galore: true\ngalore_target: q_proj,v_proj\ngalore_rank: 4\ngalore_scale: 0.5\n"
              "galore_update_interval: 9\ngalore_proj_type: right\ngalore_layerwise: true",
         4, 9, 0.5, AF_PROJECTION_RIGHT, 2, 0, 0},
        {SWIFT, 128, 50, 1, AF_PROJECTION_STD, 0, 0, 0},
        {SWIFT "galore_rank: 3\ngalore_update_proj_gap: 5\ngalore_target_modules: [q_proj]", 3, 5,
         1, AF_PROJECTION_STD, 1, 0, 0},
        {BASE "optimizer: apollo\ngalore_rank: 4", 128, 200, 0.25, AF_PROJECTION_STD, 0, 1, 0},
        {BASE "optim_target_modules: [q_proj]", 128, 200, 0.25, AF_PROJECTION_STD, 0, 1, 0},
        {BASE "use_galore: false\ngalore_rank: 4\ngalore_layerwise: true", 128, 200, 0.25,
         AF_PROJECTION_STD, 0, 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[600];
        snprintf(text, sizeof text, "%s\n", cases[i].file);
        CHECK_MSG(af_run_config_parse(&r, text, strlen(text), "run.yaml", NULL, 0, &err) == AF_OK,
                  "%s: %s", text, err.msg);
        CHECK_MSG((r.optimizer == AF_OPTIMIZER_GALORE) == (cases[i].idle == 0), "%s", text);
        CHECK_MSG(
            r.galore_rank == cases[i].rank && r.galore_gap == cases[i].gap &&
                r.galore_scale == cases[i].scale && r.galore_proj_type == cases[i].projection &&
                r.optim_targets.count == cases[i].targets,
            "%s: %d %d %g %d, %d targets", cases[i].file, (int)r.galore_rank, (int)r.galore_gap,
            r.galore_scale, (int)r.galore_proj_type, r.optim_targets.count);
        CHECK_MSG(r.idle->count == cases[i].idle && r.instead->count == cases[i].instead,
                  "%s: %d idle, %d instead", cases[i].file, r.idle->count, r.instead->count);
        af_run_config_clear(&r);
    }
}

/* Layer by layer nothing is clipped; the command line wins. */
static void test_clipping(void **state)
{
    static const char *const more[] = {"max_grad_norm=0.5"};
    static const struct {
        const char *file;
        double clip;
        int idle;
        bool more;
    } cases[] = {{BASE "optimizer: galore", 1, 0, false},
                 {BASE "optim: galore_adamw", 1, 0, false},
                 {BASE "optim: galore_adamw_layerwise", 0, 0, false},
                 {BASE "optim: galore_adamw_layerwise\nmax_grad_norm: 1", 0, 1, false},
                 {BASE "optim: galore_adamw_layerwise\nmax_grad_norm: 0", 0, 0, false},
                 {BASE "optim: galore_adamw_layerwise\nmax_grad_norm: 1", 0.5, 1, true},
                 {BASE "optim: galore_adamw_8bit_layerwise", 0, 0, false},
                 {BASE "optim: apollo_adamw_layerwise", 0, 0, false},
                 {BASE "use_galore: true\ngalore_layerwise: true\nmax_grad_norm: 2", 0, 1, false},
                 {BASE "use_apollo: true\napollo_layerwise: true", 0, 0, false},
                 {BASE "use_galore: true\ngalore_layerwise: false", 1, 0, false}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[600];
        snprintf(text, sizeof text, "%s\n", cases[i].file);
        CHECK_MSG(af_run_config_parse(&r, text, strlen(text), "run.yaml", more, cases[i].more,
                                      &err) == AF_OK,
                  "%s: %s", text, err.msg);
        CHECK_MSG(fabs(r.max_grad_norm - cases[i].clip) < 1e-12 && r.idle->count == cases[i].idle,
                  "%s: %g, %d idle", text, r.max_grad_norm, r.idle->count);
        af_run_config_clear(&r);
    }
}

static void test_what_is_refused(void **state)
{
    static const struct {
        const char *file, *why;
    } cases[] = {
        {BASE "optimizer: galore\ngalore_rank: 0", "run.yaml:7: galore_rank is 0"},
        {BASE "optimizer: galore\ngalore_proj_type: random",
         "run.yaml:7: galore_proj_type is 'random'"},
        {BASE HF "optim_args: proj_type=random",
         "'proj_type' of optim_args is 'random'; supported: std reverse_std right left full"},
        {BASE HF "optim_args: rank=2.5", "'rank' of optim_args is 2.5, not a whole number"},
        {BASE HF "optim_args: alpha=1", "it has rank, scale, update_proj_gap, proj_type"},
        {BASE "optim: galore_adafactor",
         "run.yaml:6: 'galore_adafactor' is not supported: GaLore has moments of AdamW here; use "
         "galore_adamw, or adafactor, which projects nothing"},
        {BASE "optimizer: galore_adafactor_layerwise",
         "'galore_adafactor_layerwise' is not supported: GaLore has moments of AdamW here"},
        {BASE "use_galore: true\noptim: adafactor",
         "run.yaml:7: 'use_galore' with 'optim: adafactor' is not supported: GaLore has moments"},
        {SWIFT "galore_quantization: true", "'galore_quantization' with 'true' is not supported"},
        {"base_model: m\ndatasets:\n  - path: d.jsonl\nadapter: lora\noptimizer: galore",
         "run.yaml:5: optimizer galore is for full fine-tuning, not for 'adapter: lora'"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[600];
        snprintf(text, sizeof text, "%s\n", cases[i].file);
        CHECK_MSG(af_run_config_parse(&r, text, strlen(text), "run.yaml", NULL, 0, &err) != AF_OK,
                  "taken: %s", cases[i].file);
        CHECK_MSG(strstr(err.msg, cases[i].why), "%s: '%s'", cases[i].file, err.msg);
        af_run_config_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
