/* Errors: the status survives a prefix, with and without an af_error; subjects. */
#include "base/base.h"

#include "test.h"

static void test_prefix_keeps_the_status(void **state)
{
    (void)state;
    static const af_status all[] = {AF_EUSAGE,  AF_ENOMEM,       AF_EIO,
                                    AF_EFORMAT, AF_EUNSUPPORTED, AF_EDEVICE};
    for (size_t i = 0; i < AF_LEN(all); i++) {
        af_error err = {0};
        af_fail(&err, all[i], "no such file");
        assert_int_equal(af_fail_prefix(all[i], &err, "%s:%d", "run.yaml", 3), all[i]);
        assert_int_equal(err.code, all[i]);
        assert_string_equal(err.msg, "run.yaml:3: no such file");
        assert_int_equal(af_fail_prefix(all[i], NULL, "prefix"), all[i]);
    }
}

static void test_prefix_of_a_long_message_is_kept_whole(void **state)
{
    (void)state;
    af_error err = {0};
    char text[2 * sizeof err.msg];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    af_fail(&err, AF_EIO, "%s", text);
    af_fail_prefix(AF_EIO, &err, "start");
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    assert_memory_equal(err.msg, "start: xxx", 10);
    af_fail_prefix(AF_EIO, &err, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

static void test_subject_is_set_and_cleared(void **state)
{
    (void)state;
    af_error err = {0};
    assert_int_equal(af_fail_subject(&err, AF_EUSAGE, "device", "unknown device '%s'", "x"),
                     AF_EUSAGE);
    assert_string_equal(err.subject, "device");
    assert_string_equal(err.msg, "unknown device 'x'");
    af_fail_prefix(AF_EUSAGE, &err, "run.yaml:1");
    assert_string_equal(err.subject, "device");
    af_fail(&err, AF_EIO, "disk full");
    assert_string_equal(err.subject, "");
    assert_int_equal(af_fail_subject(NULL, AF_EIO, "x", "y"), AF_EIO);
}

/* Whatever an error says, it is AF_ENOMEM when an allocation has failed before. */
static void test_an_error_after_a_failed_allocation(void **state)
{
    (void)state;
    af_error err = {0};
    assert_null(af_calloc(UINT64_MAX, 2));
    assert_int_equal(af_fail(&err, AF_EFORMAT, "x.json:1: not JSON"), AF_ENOMEM);
    assert_int_equal(err.code, AF_ENOMEM);
    assert_string_equal(err.msg, "not enough memory: x.json:1: not JSON");
    assert_int_equal(af_fail(&err, AF_EFORMAT, "x"), AF_EFORMAT); /* it is reported once */

    assert_null(af_realloc(NULL, UINT64_MAX, 2));
    assert_int_equal(af_fail(&err, AF_ENOMEM, "out of memory: x"), AF_ENOMEM);
    assert_string_equal(err.msg, "out of memory: x");
    assert_int_equal(af_memory_check(&err), AF_OK);

    af_memory_note(); /* an error that nobody reads is no report */
    assert_int_equal(af_fail(NULL, AF_EIO, "x"), AF_ENOMEM);
    assert_true(af_memory_failed());
    assert_int_equal(af_memory_check(&err), AF_ENOMEM);
    assert_string_equal(err.msg, "not enough memory");
    assert_int_equal(af_memory_check(&err), AF_OK);

    af_memory_note();
    assert_int_equal(af_fail(&err, AF_ESTOPPED, "stopped"), AF_ESTOPPED);
    af_memory_note();
    af_memory_forget();
    assert_false(af_memory_failed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix_keeps_the_status),
        cmocka_unit_test(test_prefix_of_a_long_message_is_kept_whole),
        cmocka_unit_test(test_subject_is_set_and_cleared),
        cmocka_unit_test(test_an_error_after_a_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
