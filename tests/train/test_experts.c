/* test_experts.c - runs on mixtures of experts against transformers + PEFT: adapters on experts,
 * full training with and without the router's loss; and what adapters on experts are on disk. */
#define _DEFAULT_SOURCE
#include "train/golden_run.h"

static void test_runs_follow_peft(void **state)
{
    (void)state;
    static const char *const runs[][2] = {{"qwen3_moe", "lora-experts"},
                                          {"mixtral", "lora-experts"},
                                          {"mixtral", "full"},
                                          {"mixtral", "full-aux"}};
    const char *shared = shared_dir();
    if (!shared)
        skip_because("no shared goldens");
    char root[512], data[600];
    snprintf(root, sizeof root, "%s/golden/families", shared);
    snprintf(data, sizeof data, "%s/golden/models/data/train.jsonl", shared);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        check_run(root, root, runs[i][0], runs[i][1], data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_peft),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
