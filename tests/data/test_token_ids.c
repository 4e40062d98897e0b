/* Records of token ids: where their loss comes from. */
#include "data_case.h"

static char model[1024];

static int find_model(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

/* TRL's masks say what carries loss where there are no labels; both, where both are there. */
static void test_masks_of_token_ids(void **state)
{
#define IDS "{\"input_ids\": [10, 11, 12]"
    static const struct {
        const char *record, *labels, *why;
    } cases[] = {
        {IDS "}", "[10, 11, 12]", NULL},
        {IDS ", \"completion_mask\": [0, 1, 1]}", "[-100, 11, 12]", NULL},
        {IDS ", \"assistant_masks\": [false, true, false]}", "[-100, 11, -100]", NULL},
        {IDS ", \"completion_mask\": [0, 1, 1], \"assistant_masks\": [1, 0, 1]}",
         "[-100, -100, 12]", NULL},
        {IDS ", \"completion_mask\": null}", "[10, 11, 12]", NULL},
        {IDS ", \"labels\": [10, -100, 12], \"completion_mask\": [0, 1, 1]}", "[10, -100, 12]",
         NULL},
        {IDS ", \"completion_mask\": [0, 1]}", NULL,
         "\"completion_mask\" has 2 values for 3 input_ids"},
        {IDS ", \"completion_mask\": 1}", NULL,
         "\"completion_mask\" should be a list, got a number"},
        {IDS ", \"assistant_masks\": [0, 1, 2]}", NULL,
         "assistant_masks[2] should be 0 or 1, got another number"},
        {IDS ", \"assistant_masks\": [0, \"1\", 1]}", NULL,
         "assistant_masks[1] should be 0 or 1, got a string"},
    };
#undef IDS
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        data_case c;
        case_open(&c);
        case_write(&c, "d.jsonl", cases[i].record, strlen(cases[i].record));
        case_dataset(&c, model, case_path(&c, "d.jsonl"), "");
        if (!case_refused(&c, case_preview(&c), cases[i].why)) {
            json_t *want = json_loads(cases[i].labels, 0, NULL);
            CHECK_MSG(json_equal(json_object_get(json_array_get(c.rows, 0), "labels"), want),
                      "labels of case %zu", i);
            json_decref(want);
        }
        case_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_of_token_ids),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
