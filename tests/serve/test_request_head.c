/* Heads of requests: what is read, and what is refused with which status. */
#include "test.h"

#include "serve/http/request_head.h"

static int parse(af_request_head *h, const char *text)
{
    static char copy[AF_HEAD_BYTES_MAX + 64];
    const char *why = NULL;
    const uint64_t n = strlen(text);
    memcpy(copy, text, n + 1);
    assert_int_equal(af_request_head_end(copy, n), n);
    const int status = af_request_head_parse(h, copy, n, &why);
    assert_true(status == 0 || (why && *why));
    return status;
}

static void test_a_head_is_read(void **state)
{
    (void)state;
    af_request_head h;
    assert_int_equal(parse(&h,
                           "POST /v1/x?since=3&b HTTP/1.1\r\nhost: a:80\r\nContent-Length: 12\r\n"
                           "X-Spaces: \t v w \t\r\nExpect: 100-Continue\r\n\r\n"),
                     0);
    assert_string_equal(h.method, "POST");
    assert_string_equal(h.path, "/v1/x");
    assert_string_equal(h.query, "since=3&b");
    assert_string_equal(af_request_field(&h, "HOST"), "a:80");
    assert_string_equal(af_request_field(&h, "x-spaces"), "v w");
    assert_null(af_request_field(&h, "x"));
    assert_true(h.body == 12 && h.has_body && !h.chunked && h.keep_alive && h.expects_continue);
    assert_int_equal(h.minor, 1);
}

static void test_who_closes(void **state)
{
    (void)state;
    af_request_head h;
    assert_int_equal(parse(&h, "GET / HTTP/1.0\r\n\r\n"), 0);
    assert_false(h.keep_alive);
    assert_int_equal(parse(&h, "GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n"), 0);
    assert_true(h.keep_alive);
    assert_int_equal(parse(&h, "GET / HTTP/1.1\r\nHost: a\r\nConnection: x,close\r\n\r\n"), 0);
    assert_false(h.keep_alive);
    assert_int_equal(parse(&h, "GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n"), 0);
    assert_true(h.keep_alive);
}

static void test_ends(void **state)
{
    (void)state;
    assert_int_equal(af_request_head_end("GET / HTTP/1.1\r\n", 16), 0);
    assert_int_equal(af_request_head_end("a\r\n\r\nbody", 9), 5);
    assert_int_equal(af_request_head_end("a\n\nbody", 7), 3);
    assert_int_equal(af_request_head_end("", 0), 0);
}

static void test_queries(void **state)
{
    (void)state;
    af_request_head h;
    char out[8];
    assert_int_equal(parse(&h, "GET /?a=1&after=x%20%26%zz&b=%4 HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
    assert_string_equal(af_request_query(&h, "after", out, sizeof out), "x &%zz");
    assert_string_equal(af_request_query(&h, "b", out, sizeof out), "%4");
    assert_string_equal(af_request_query(&h, "after", out, 3), "x ");
    assert_null(af_request_query(&h, "x", out, sizeof out));
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
        {400, "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET a HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nA B: c\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n: c\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: a\n\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n"},
        {400,
         "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"},
        {501, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {505, "GET / HTTP/1.2\r\nHost: a\r\n\r\n"},
        {505, "GET / HTTP/3\r\nHost: a\r\n\r\n"},
        {400, "GET / FTP/1.1\r\nHost: a\r\n\r\n"},
    };
    af_request_head h;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        assert_int_equal(parse(&h, cases[i].text), cases[i].status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_is_read),
        cmocka_unit_test(test_who_closes),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
