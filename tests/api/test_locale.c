/* test_locale.c - the library in a program that has set a locale, as every desktop program does.
 * The one here is Turkish: 1.5 is "1,5", and I is not the capital of i. */
#include "afinar/afinar.h"
#include "base/base.h"
#include "test.h"

#include <locale.h>
#include <unistd.h>

static char folder[] = "/tmp/afinar-locale-XXXXXX";

static void use_locale(void)
{
    char command[256], number[8];
    af_snprintf(command, sizeof command,
                "localedef -i tr_TR -f ISO-8859-9 %s/tr_TR >/dev/null 2>&1", folder);
    static bool made;
    made = made || (system(command) == 0 && setenv("LOCPATH", folder, 1) == 0);
    if (!made || !setlocale(LC_ALL, "tr_TR"))
        skip_because("localedef cannot make the locale tr_TR");
#undef snprintf
    snprintf(number, sizeof number, "%.1f", 1.5);
    assert_string_equal(number, "1,5");
}

static void test_numbers_and_letters(void **state)
{
    char text[32], *end;
    (void)state;
    use_locale();
    af_snprintf(text, sizeof text, "%.2f %g", 1.5, 1e-3);
    assert_string_equal(text, "1.50 0.001");
    assert_true(af_strtod("0.25x", &end) == 0.25 && *end == 'x');
    assert_int_equal(af_strcasecmp("IQ4_XS", "iq4_xs"), 0);
    assert_int_equal(af_strncasecmp("TITLE", "titles", 5), 0);
    assert_non_null(af_strcasestr("the IMATRIX", "imatrix"));
    assert_string_equal(setlocale(LC_NUMERIC, NULL), "tr_TR"); /* as the program left it */
}

static void test_public_functions(void **state)
{
    static const char row[] =
        "{\"messages\": [], \"raw\": true, \"extra\": {\"x\": 0.5}, \"template\": "
        "\"{{ 1.5 * 2.25 }} {{ x }} {{ '%.2f'|format(3.25) }} {{ '2.5'|float }}\"}";
    static const char schema[] = "{\"type\": \"number\", \"minimum\": 0.5, \"maximum\": 2.5}";
    af_run *run = NULL;
    af_grammar *g = NULL;
    char *text = NULL;
    uint64_t len = 0;
    bool fits = false;
    af_error err = {0};
    (void)state;
    use_locale();
    CHECK_OK(af_run_new(&run, &err), err); /* the default of every key is read */
    CHECK_OK(af_run_set(run, "learning_rate", "0.0005", &err), err);
    af_run_close(run);
    CHECK_OK(af_train_keys_json(&text, &err), err);
    assert_non_null(strstr(text, "0.999"));
    assert_null(strstr(text, "0,999"));
    free(text);
    CHECK_OK(af_template_render_row(NULL, row, sizeof row - 1, &text, &len, NULL, &err), err);
    assert_string_equal(text, "3.375 0.5 3.25 2.5");
    free(text);
    CHECK_OK(af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, schema, sizeof schema - 1, NULL, &err),
             err);
    CHECK_OK(af_grammar_matches(g, "1.75", 4, &fits, &err), err);
    assert_true(fits);
    CHECK_OK(af_grammar_matches(g, "0.25", 4, &fits, &err), err);
    assert_false(fits);
    af_grammar_close(g);
}

static int begin(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    char command[64];
    (void)state;
    setlocale(LC_ALL, "C");
    af_snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_and_letters),
        cmocka_unit_test(test_public_functions),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
