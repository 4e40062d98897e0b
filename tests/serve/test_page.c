/* test_page.c - the page without a browser: its files are in the program, the ids that scripts rely
 * on are there, and nothing in it names another host or needs what the policy forbids. */
#include "serve/page/page.h"
#include "test.h"

static char *text_of(const char *path)
{
    const af_page_file *f = af_page_find(path);
    CHECK_MSG(f, "the page has no %s", path);
    char *text = malloc(f->size + 1);
    assert_non_null(text);
    memcpy(text, f->data, f->size);
    text[f->size] = '\0';
    return text;
}

static void test_files(void **state)
{
    (void)state;
    assert_null(af_page_find("/nothing"));
    assert_null(af_page_find("/../etc/passwd"));
    assert_string_equal(af_page_find("/")->type, "text/html; charset=utf-8");
    assert_string_equal(af_page_find("/app.js")->type, "text/javascript; charset=utf-8");
    for (int i = 0; i < af_page_file_count; i++) /* the files of the tree, byte for byte */
        assert_true(af_page_files[i].size > 100);
    const char *source = getenv("AF_SOURCE");
    char path[4096];
    snprintf(path, sizeof path, "%s/src/serve/page/app.js", source ? source : ".");
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const af_page_file *js = af_page_find("/app.js");
    for (uint64_t i = 0; i < js->size; i++)
        assert_int_equal(fgetc(f), js->data[i]);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

static void test_ids(void **state)
{
    (void)state;
    static const char *const ids[] = {"state",      "step",      "loss",         "loss-chart",
                                      "pause",      "stop",      "stop-confirm", "chat-model",
                                      "chat-input", "chat-send", "chat-log",     "chat-stop"};
    char *html = text_of("/");
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char want[64];
        snprintf(want, sizeof want, "id=\"%s\"", ids[i]);
        const char *at = strstr(html, want);
        CHECK_MSG(at, "the page has no %s", want);
        CHECK_MSG(!strstr(at + 1, want), "the page has %s twice", want);
    }
    assert_non_null(strstr(html, "id=\"loss-chart\" class=\"chart tall\" role=\"img\""));
    assert_non_null(strstr(html, "id=\"chat-log\" role=\"log\""));
    assert_non_null(strstr(html, "name=\"viewport\""));
    free(html);
}

/* Every id that the script asks for is in the document. */
static void test_script_finds_its_ids(void **state)
{
    (void)state;
    char *html = text_of("/"), *js = text_of("/app.js");
    int found = 0;
    for (const char *at = js; (at = strstr(at, "$(\"")); found++) {
        at += 3;
        const size_t n = strcspn(at, "\"");
        char want[96];
        if (at[n + 1] != ')') /* a name that is put together */
            continue;
        snprintf(want, sizeof want, "id=\"%.*s\"", (int)n, at);
        CHECK_MSG(strstr(html, want), "app.js wants %s", want);
    }
    assert_true(found > 40);
    free(html);
    free(js);
}

static void test_nothing_leaves(void **state)
{
    (void)state;
    for (int i = 0; i < af_page_file_count; i++) {
        char *text = text_of(af_page_files[i].path);
        for (const char *at = text; (at = strstr(at, "//"));) {
            const bool url = at > text && at[-1] == ':';
            CHECK_MSG(!url || strncmp(at, "//www.w3.org/2000/svg", 21) == 0, "%s names %.60s",
                      af_page_files[i].path, at - 6);
            at += 2;
        }
        static const char *const never[] = {
            "@import",   "innerHTML",   "eval(",         " onclick=\"",
            " style=\"", "javascript:", "document.write"};
        for (size_t k = 0; k < sizeof never / sizeof *never; k++)
            CHECK_MSG(!strstr(text, never[k]), "%s has %s", af_page_files[i].path, never[k]);
        free(text);
    }
    char *html = text_of("/");
    for (const char *at = html; (at = strstr(at, "<script")); at++)
        CHECK_MSG(strncmp(at, "<script src=\"app.js\"", 20) == 0, "a script in the document");
    assert_null(strstr(html, "<style"));
    free(html);
    assert_non_null(strstr(AF_PAGE_POLICY, "default-src 'self'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_script_finds_its_ids),
        cmocka_unit_test(test_nothing_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
