/* test_path.c - paths that environment variables name. */
#include "base/file.h"
#include "test.h"

static void test_paths_of_variables(void **state)
{
    (void)state;
    static const struct {
        const char *path, *want;
    } cases[] = {{"/a/b", "/a/b"},
                 {"~", "/users/x"},
                 {"~/a", "/users/x/a"},
                 {"~a/b", "~a/b"}, /* another user's */
                 {"a/~", "a/~"},
                 {"$AF_A/b", "one/b"},
                 {"/x/${AF_A}b$AF_A", "/x/onebone"},
                 {"$AF_AB/$AF_NONE${AF_NONE}", "two/$AF_NONE${AF_NONE}"},
                 {"a$", "a$"},
                 {"$/${}${AF_A", "$/${}${AF_A"},
                 {"$AF_EMPTY", ""},
                 {"", ""}};
    setenv("HOME", "/users/x", 1);
    setenv("AF_A", "one", 1);
    setenv("AF_AB", "two", 1);
    setenv("AF_EMPTY", "", 1);
    unsetenv("AF_NONE");
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char *got = af_path_expand(cases[i].path);
        CHECK_MSG(got && strcmp(got, cases[i].want) == 0, "'%s' is '%s'", cases[i].path,
                  got ? got : "");
        free(got);
    }
}

/* As huggingface_hub reads them: what it downloads with the same variables is found. */
static void test_where_the_hub_is(void **state)
{
    (void)state;
    static const struct {
        const char *cache, *old, *home, *xdg, *want;
    } cases[] = {{"/c", "/o", "/h", "/x", "/c"},
                 {"", "~/o", "/h", "/x", "/users/x/o"},
                 {NULL, NULL, "~/h", "/x", "/users/x/h/hub"},
                 {NULL, "", "$HOME/h", NULL, "/users/x/h/hub"},
                 {NULL, NULL, "", "~/x", "/users/x/x/huggingface/hub"},
                 {NULL, NULL, NULL, NULL, "/users/x/.cache/huggingface/hub"}};
    setenv("HOME", "/users/x", 1);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const char *const values[][2] = {{"HF_HUB_CACHE", cases[i].cache},
                                         {"HUGGINGFACE_HUB_CACHE", cases[i].old},
                                         {"HF_HOME", cases[i].home},
                                         {"XDG_CACHE_HOME", cases[i].xdg}};
        for (size_t k = 0; k < AF_LEN(values); k++)
            if (values[k][1])
                setenv(values[k][0], values[k][1], 1);
            else
                unsetenv(values[k][0]);
        char *got = af_hub_dir();
        CHECK_MSG(got && strcmp(got, cases[i].want) == 0, "case %zu is '%s'", i, got ? got : "");
        free(got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_of_variables),
        cmocka_unit_test(test_where_the_hub_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
