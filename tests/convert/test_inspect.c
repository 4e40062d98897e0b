/* test_inspect.c - what inspect prints about a file's metadata. */
#define _GNU_SOURCE /* mkdtemp */
#include "test.h"

#include "afinar/inspect.h"
#include "base/file.h"
#include "format/weights/gguf.h"

static const char *fact_of(const af_inspect_report *r, const char *key)
{
    for (int i = 0; i < r->meta_count; i++)
        if (strcmp(r->meta[i].key, key) == 0)
            return r->meta[i].value;
    return "(none)";
}

/* Cut texts end between two characters; numbers keep their sign. */
static void test_metadata_is_shown_as_it_is(void **state)
{
    (void)state;
    enum { LONG = 5001 };
    char dir[] = "/tmp/af_inspect_XXXXXX", path[64], text[LONG];
    af_error err = {0};
    af_gguf_writer *w = NULL;
    af_inspect_report *r = NULL;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.gguf", dir);
    for (int i = 1; i < LONG; i++)
        text[i] = i % 2 ? '\xc3' : '\xa9';
    text[0] = 'a';
    CHECK_OK(af_gguf_writer_new(&w, path, &err), err);
    CHECK_OK(af_gguf_put_str(w, "x.text", text, LONG, &err), err);
    CHECK_OK(af_gguf_put_int(w, "x.large", AF_GGUF_U64, -1, &err), err);
    CHECK_OK(af_gguf_put_int(w, "x.small", AF_GGUF_U64, 7, &err), err);
    CHECK_OK(af_gguf_writer_begin(w, &err), err);
    CHECK_OK(af_gguf_writer_commit(w, &err), err);
    CHECK_OK(af_inspect(&r, path, &(af_inspect_options){0}, &err), err);
    assert_int_equal(strlen(fact_of(r, "x.text")), 4095);
    assert_string_equal(fact_of(r, "x.large"), "18446744073709551615");
    assert_string_equal(fact_of(r, "x.small"), "7");
    af_inspect_free(r);
    CHECK_OK(af_path_remove(dir, &err), err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_metadata_is_shown_as_it_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
