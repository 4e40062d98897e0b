/* test_columns.c - parquet and Arrow files of several writers give the records they were made of,
 * damaged ones an error that says where.
 *
 * tests/golden/columns holds a few of them, with the hash of their records; all of them, and the
 * damaged ones, are in the shared folder: without it (or xz) those tests skip and say so. */
#define _GNU_SOURCE
#include "afinar/data.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/read/read_records.h"
#include "format/text/json_text.h"
#include "test.h"

static bool keep_line(void *user, const char *json, uint64_t len)
{
    af_buf *b = user;
    af_buf_add(b, json, len);
    af_buf_char(b, '\n');
    return true;
}

/* tests/golden/columns/index.txt: file, split, config ('-': none), hash of the lines. */
static void test_files_give_their_records(void **state)
{
    char path[600], name[200], split[40], config[40], *text;
    uint64_t n, want;
    int used, cases = 0;
    af_error err;
    (void)state;
    snprintf(path, sizeof path, "%s/columns/index.txt", golden_dir());
    CHECK_OK(af_file_read(&text, &n, path, 1 << 20, &err), err);
    for (const char *at = text;
         sscanf(at, "%199s %39s %39s %" SCNx64 "%n", name, split, config, &want, &used) == 4;
         at += used) {
        af_buf got = {0};
        snprintf(path, sizeof path, "%s/columns/%s", golden_dir(), name);
        CHECK_OK(af_data_records(path, *config == '-' ? NULL : config, *split == '-' ? NULL : split,
                                 0, keep_line, &got, &err),
                 err);
        CHECK_MSG(af_fnv1a(AF_FNV_START, got.data, got.len) == want,
                  "%s: other records (%" PRIx64 "):\n%.2000s", name,
                  af_fnv1a(AF_FNV_START, got.data, got.len), got.len ? got.data : "");
        af_buf_clear(&got);
        cases++;
    }
    assert_true(cases > 25);
    free(text);
}

/* The lines of an .xz file, without blanks between their parts. */
static void unpacked(af_buf *out, const char *path)
{
    char command[800], *line = NULL;
    size_t room = 0;
    ssize_t n;
    af_buf one = {0};
    snprintf(command, sizeof command, "xz -dc '%s'", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while ((n = getline(&line, &room, f)) > 0) {
        af_record_compact(&one, line, (uint64_t)n);
        keep_line(out, one.data, one.len);
    }
    assert_int_equal(pclose(f), 0);
    af_buf_clear(&one);
    free(line);
}

static FILE *open_list(char path[600], const char *name)
{
    if (!shared_dir() || system("xz --version >/dev/null 2>&1") != 0)
        skip_because("no shared goldens, or no xz");
    snprintf(path, 600, "%s/golden/columns/%s", shared_dir(), name);
    FILE *f = fopen(path, "r");
    if (!f)
        skip_because("no shared goldens of columns");
    return f;
}

static json_t *next_case(FILE *f)
{
    char line[2000];
    return fgets(line, sizeof line, f) ? json_loads(line, 0, NULL) : NULL;
}

static const char *text_of(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static void test_all_files_give_their_records(void **state)
{
    char path[600];
    af_error err;
    json_t *row;
    int cases = 0;
    (void)state;
    FILE *f = open_list(path, "index.jsonl");
    for (; (row = next_case(f)); cases++) {
        af_buf got = {0}, want = {0};
        if (test_takes((size_t)cases)) {
            snprintf(path, sizeof path, "%s/golden/columns/%s", shared_dir(), text_of(row, "path"));
            CHECK_OK(af_data_records(path, text_of(row, "config"), text_of(row, "split"), 0,
                                     keep_line, &got, &err),
                     err);
            snprintf(path, sizeof path, "%s/golden/columns/%s", shared_dir(),
                     text_of(row, "expected"));
            unpacked(&want, path);
            CHECK_MSG(got.len == want.len &&
                          (!got.len || memcmp(got.data, want.data, got.len) == 0),
                      "%s: other records", text_of(row, "path"));
        }
        af_buf_clear(&got);
        af_buf_clear(&want);
        json_decref(row);
    }
    fclose(f);
    assert_true(cases > 110);
}

static void test_damaged_files_are_refused(void **state)
{
    char path[600], group[40];
    af_error err;
    json_t *row;
    int cases = 0;
    (void)state;
    FILE *f = open_list(path, "malformed/expected.jsonl");
    for (; (row = next_case(f)); cases++) {
        af_buf got = {0};
        const char *file = text_of(row, "file"), *column = text_of(row, "column");
        snprintf(path, sizeof path, "%s/golden/columns/malformed/%s", shared_dir(), file);
        const af_status st = af_data_records(path, NULL, NULL, 0, keep_line, &got, &err);
        af_buf_clear(&got);
        CHECK_MSG(st == AF_EFORMAT || st == AF_EUNSUPPORTED, "%s is read", file);
        const char *why = strstr(err.msg, file);
        assert_non_null(why);
        const json_t *number = json_object_get(row, "row_group");
        snprintf(group, sizeof group, "row group %d", (int)json_integer_value(number));
        CHECK_MSG(!number || strstr(why, group), "%s: no %s in '%s'", file, group, why);
        CHECK_MSG(!column || strstr(why, column), "%s: no %s in '%s'", file, column, why);
        json_decref(row);
    }
    fclose(f);
    assert_true(cases > 90);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_give_their_records),
        cmocka_unit_test(test_all_files_give_their_records),
        cmocka_unit_test(test_damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
