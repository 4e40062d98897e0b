/* test_apollo_targets.c - which matrices APOLLO projects: those of optim_target_modules, of a tiny
 * mixture with a head of its own. */
#define _DEFAULT_SOURCE
#include "train/run_folder.h"
#include "train/weight_files.h"

#include "afinar/train.h"

static af_status train(const char *lines, af_error *err)
{
    static const char row[] = "{\"input_ids\": [1, 2, 3, 4], \"labels\": [1, 2, 3, 4]}\n";
    char path[300], text[2000];
    af_train_result result;
    snprintf(path, sizeof path, "%s/rows.jsonl", dir);
    CHECK_OK(af_file_write(path, row, strlen(row), err), *err);
    snprintf(path, sizeof path, "%s/out", dir);
    CHECK_OK(af_path_remove(path, err), *err);
    snprintf(text, sizeof text,
             "base_model: %s/models/qwen3_moe\ndatasets: [{path: %s/rows.jsonl, type: tokens}]\n"
             "output_dir: %s/out\nmicro_batch_size: 1\nmax_steps: 2\nsave_steps: 1\ndevice: cpu\n"
             "optimizer: apollo\napollo_rank: 3\n%s\n",
             golden_dir(), dir, dir, lines);
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK_OK(af_file_write(path, text, strlen(text), err), *err);
    return af_train(path, NULL, 0, NULL, &result, err);
}

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* Projected matrices, which have a norm, and the values of their first moments. */
static int projected(int64_t *values)
{
    char path[400];
    int n = 0;
    *values = 0;
    snprintf(path, sizeof path, "%s/out/checkpoint-1/optimizer.safetensors", dir);
    af_safetensors *f = open_weights(path);
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const char *name = af_safetensors_at(f, i)->name;
        if (!ends_in(name, ".norm"))
            continue;
        char first[100]; /* 12.optimizer.4.norm, 10.optimizer.4.m */
        const char *at = strchr(name, '.');
        snprintf(first, sizeof first, "%.*s.m", (int)(strlen(at) - 5), at);
        for (int k = 0; k < af_safetensors_count(f); k++)
            if (ends_in(af_safetensors_at(f, k)->name, first))
                *values += (int64_t)(af_safetensors_at(f, k)->bytes / sizeof(float));
        n++;
    }
    af_safetensors_close(f);
    return n;
}

/* By text anywhere in the path, by expression from end to end; experts are no linears, routers are
 * AdamW's. Of a matrix [R][C] three times max(R, C) values are kept. */
static void test_targets(void **state)
{
    enum {
        ATTENTION = 2 * 3 * (32 + 16 + 16 + 32),
        DENSE = 3 * 3 * 16, /* one layer has no experts */
        HEAD = 3 * 32
    };
    static const struct {
        const char *line;
        int matrices;
        int64_t values;
    } cases[] = {
        {"", 11, ATTENTION + DENSE},
        {"apollo_target: all", 11, ATTENTION + DENSE},
        {"optim_target_modules: all-linear", 12, ATTENTION + DENSE + HEAD},
        {"optim_target_modules: all_linear", 12, ATTENTION + DENSE + HEAD},
        {"optim_target_modules: [q_proj, lm_head]", 3, INT64_C(3) * 96},
        {"optim_target_modules: [attn]", 8, ATTENTION},
        {"optim_target_modules: [mlp]", 3, DENSE},
        {"optim_target_modules: '.*layers\\.1\\.self_attn\\.[qk]_proj'", 2, 96 + 48},
        {"optim_target_modules: v_proj,layers.0.self_attn.o_proj", 3, 48 + 48 + 96},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        int64_t values;
        CHECK_OK(train(cases[i].line, &err), err);
        const int n = projected(&values);
        CHECK_MSG(n == cases[i].matrices && values == cases[i].values, "%s: %d, %d values",
                  cases[i].line, n, (int)values);
    }
}

static void test_texts_that_mean_nothing(void **state)
{
    static const char *const cases[][2] = {
        {"optim_target_modules: [q_proj, w1]", "optim_target_modules has 'w1', which no linear"},
        {"optim_target_modules: [experts]", "optim_target_modules has 'experts', which no linear"},
        {"optim_target_modules: 'self_attn\\.[qk]_proj'", "which no linear of the model has in"},
        {"optim_target_modules: '(q_proj'", "run.yaml:10: optim_target_modules: the"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        CHECK_MSG(train(cases[i][0], &err) != AF_OK && strstr(err.msg, cases[i][1]), "%s: '%s'",
                  cases[i][0], err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_texts_that_mean_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
