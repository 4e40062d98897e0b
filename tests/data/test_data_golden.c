/* test_data_golden.c - datasets and loss masks with real tokenizers and chat templates. Third-party
 * files are not part of the tree: without the shared folder (or xz) the tests skip and say so. */
#define _GNU_SOURCE
#include "data_case.h"

static bool have_shared(void)
{
    if (shared_dir() && system("xz --version >/dev/null 2>&1") == 0)
        return true;
    print_message("shared goldens or xz not found: skipped\n");
    return false;
}

/* Unpacks a tokenizer into the case's folder, once; its path. */
static const char *unpacked(const data_case *c, const char *name)
{
    static char dir[600];
    char command[4096];
    snprintf(dir, sizeof dir, "%s/%s", c->dir, name);
    if (af_dir_exists(dir))
        return dir;
    snprintf(command, sizeof command,
             "mkdir '%s' && cd '%s' && for d in '%s/tokenizers/%s' '%s/golden/text/tokenizers/%s'; "
             "do [ -d \"$d\" ] || continue; for f in \"$d\"/*; do n=$(basename \"$f\" .xz); case "
             "\"$f\" in *.xz) xz -dc \"$f\" >\"$n\";; *) cat \"$f\" >\"$n\";; esac; done; done",
             dir, dir, shared_dir(), name, shared_dir(), name);
    assert_int_equal(system(command), 0);
    return dir;
}

static void test_files_with_real_tokenizers(void **state)
{
    static const char *const names[] = {"qwen2_5", "llama3_1"};
    data_case c;
    char path[2048], **files;
    int n;
    af_error err;
    (void)state;
    if (!have_shared())
        skip_because("no shared goldens, or no xz");
    case_open(&c);
    snprintf(path, sizeof path, "%s/golden/text/data/files", shared_dir());
    CHECK_OK(af_dir_list(&files, &n, path, &err), err);
    assert_true(n >= 15);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < AF_LEN(names); k++) {
            snprintf(path, sizeof path, "%s/golden/text/data/files/%s", shared_dir(), files[i]);
            case_dataset(&c, unpacked(&c, names[k]), path, "");
            CHECK_OK(case_preview(&c), c.err);
            snprintf(path, sizeof path, "%s/golden/text/data/expected/%s.%s.jsonl", shared_dir(),
                     files[i], names[k]);
            json_t *want = case_lines(path);
            CHECK_MSG(json_equal(want, c.rows), "%s with %s differs", files[i], names[k]);
            json_decref(want);
        }
    }
    af_names_free(files, n);
    case_close(&c);
}

static void check_mask(data_case *c, const json_t *row)
{
    char keys[2048];
    const char *name = json_string_value(json_object_get(row, "name"));
    const char *dialogue = json_string_value(json_object_get(row, "dialogue"));
    json_t *record = json_object(), *tools = json_object_get(row, "tools");
    json_object_set(record, "messages", json_object_get(row, "messages"));
    if (tools)
        json_object_set(record, "tools", tools);
    char *text = json_dumps(record, 0);
    case_write(c, "mask.jsonl", text, strlen(text));
    snprintf(keys, sizeof keys, "chat_template: %s/golden/text/%s\n", shared_dir(),
             json_string_value(json_object_get(row, "template")));
    case_dataset(c, unpacked(c, json_string_value(json_object_get(row, "tokenizer"))),
                 case_path(c, "mask.jsonl"), keys);
    CHECK_OK(case_preview(c), c->err);
    const json_t *got = json_array_get(c->rows, 0), *labels = json_object_get(got, "labels");
    const json_t *mask = json_object_get(row, "mask");
    CHECK_MSG(json_equal(json_object_get(got, "ids"), json_object_get(row, "ids")), "%s %s: ids",
              name, dialogue);
    for (size_t i = 0; i < json_array_size(mask); i++)
        CHECK_MSG((json_integer_value(json_array_get(labels, i)) != -100) ==
                      (json_integer_value(json_array_get(mask, i)) == 1),
                  "%s %s: mask of token %zu", name, dialogue, i);
    free(text);
    json_decref(record);
}

static void test_masks_of_real_templates(void **state)
{
    data_case c;
    char path[2048], **files;
    int n, rows = 0;
    af_error err;
    (void)state;
    if (!have_shared())
        skip_because("no shared goldens, or no xz");
    case_open(&c);
    snprintf(path, sizeof path, "%s/golden/text/masks", shared_dir());
    CHECK_OK(af_dir_list(&files, &n, path, &err), err);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/golden/text/masks/%s", shared_dir(), files[i]);
        json_t *list = case_lines(path);
        for (size_t k = 0; k < json_array_size(list); k++, rows++)
            check_mask(&c, json_array_get(list, k));
        json_decref(list);
    }
    assert_true(rows >= 35);
    af_names_free(files, n);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_with_real_tokenizers),
        cmocka_unit_test(test_masks_of_real_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
