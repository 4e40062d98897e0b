/* test_hub_ask.c - one question through redirects, waits and repetitions, over a transport without
 * a network: where the token goes, how long is waited, when it ends. */
#include "hub/fake_net.h"
#include "hub/hub_ask.h"
#include "test.h"

typedef struct script {
    const char *answer[12]; /* in turn; "!..." breaks after it */
    int count;
} script;

static bool play(fake_net *n, const af_http_call *c, af_buf *out)
{
    const script *s = n->user;
    (void)c;
    const int i = AF_MIN(n->requests - 1, s->count - 1);
    const char *text = s->answer[i];
    const bool broken = *text == '!';
    af_buf_str(out, text + broken);
    return broken;
}

typedef struct result {
    af_ask ask;
    char *log;
    double seconds;
    int requests;
} result;

static void run(result *r, script *s, bool for_file)
{
    static fake_net net;
    static char endpoint[] = "https://hub.co", token[] = "hf_secret";
    af_hub_client c = {.net = &net.base, .endpoint = endpoint, .token = token, .stall_s = 10};
    assert_true(af_url_origin(c.origin, endpoint));
    fake_init(&net, play);
    net.user = s;
    r->ask = (af_ask){.method = "GET", .url = "https://hub.co/a", .for_file = for_file};
    af_ask_run(&r->ask, &c);
    r->log = af_buf_take(&net.log);
    r->seconds = net.clock;
    r->requests = net.requests;
}

static void done(result *r)
{
    af_buf_clear(&r->ask.text);
    free(r->log);
}

static void test_token_stays_at_the_hub(void **state)
{
    (void)state;
    script s = {{"HTTP/1.1 302 x\r\nLocation: https://hub.co/b\r\n\r\n",
                 "HTTP/1.1 302 x\r\nLocation: https://cdn.co/c\r\n\r\n",
                 "HTTP/1.1 307 x\r\nLocation: https://hub.co:8443/d\r\n\r\n",
                 "HTTP/1.1 200 x\r\n\r\nbytes"},
                4};
    result r;
    run(&r, &s, true);
    assert_int_equal(r.ask.state, AF_ASK_DONE);
    assert_string_equal(r.ask.text.data, "bytes");
    assert_non_null(strstr(r.log, "GET https://hub.co/a|Authorization: Bearer hf_secret|"));
    assert_non_null(strstr(r.log, "GET https://hub.co/b|Authorization: Bearer hf_secret|"));
    assert_non_null(strstr(r.log, "GET https://cdn.co/c|Accept-Encoding"));
    assert_non_null(strstr(r.log, "GET https://hub.co:8443/d|Accept-Encoding"));
    done(&r);
}

static void fails(script s, bool for_file, int requests, const char *says)
{
    result r;
    run(&r, &s, for_file);
    assert_int_equal(r.ask.state, AF_ASK_FAILED);
    CHECK_MSG(strstr(r.ask.why.msg, says), "'%s' is not in '%s'", says, r.ask.why.msg);
    CHECK_MSG(r.requests == requests, "%d requests, not %d: %s", r.requests, requests, says);
    done(&r);
}

static void test_redirects_that_are_refused(void **state)
{
    (void)state;
    fails((script){{"HTTP/1.1 302 x\r\nLocation: https://o.co/b\r\n\r\n"}, 1}, false, 1,
          "redirects a question about a repository to https://o.co:443");
    fails((script){{"HTTP/1.1 302 x\r\nLocation: http://hub.co/b\r\n\r\n"}, 1}, true, 1,
          "redirects to http://hub.co:80, which is not encrypted");
    fails((script){{"HTTP/1.1 302 x\r\nLocation: gopher://x\r\n\r\n"}, 1}, true, 1,
          "redirects to an address that is none");
    fails((script){{"HTTP/1.1 302 x\r\nLocation: /a\r\n\r\n"}, 1}, true, 9,
          "redirects more than 8 times");
}

static void test_addresses_without_encryption(void **state)
{
    (void)state;
    static fake_net net;
    static char endpoint[] = "https://hub.co";
    script s = {{"HTTP/1.1 200 x\r\n\r\n"}, 1};
    af_hub_client c = {.net = &net.base, .endpoint = endpoint};
    af_ask a = {.method = "PUT", .url = "http://cdn.co/upload", .for_file = true};
    assert_true(af_url_origin(c.origin, endpoint));
    fake_init(&net, play);
    net.user = &s;
    af_ask_run(&a, &c); /* an address that the hub's answer names, not a redirect */
    assert_int_equal(a.state, AF_ASK_FAILED);
    assert_string_equal(a.why.msg,
                        "https://hub.co:443 names http://cdn.co:80, which is not encrypted");
    assert_int_equal(net.requests, 0);
    af_ask_clear(&a, &c);
}

static void test_waits_grow_and_end(void **state)
{
    (void)state;
    fails((script){{"HTTP/1.1 503 x\r\n\r\n"}, 1}, true, 6, "does not answer (status 503)");
    fails((script){{"!"}, 1}, true, 6, "does not answer (the connection broke)");
    fails((script){{"HTTP/1.1 429 x\r\nRetry-After: 3600\r\n\r\n"}, 1}, true, 1,
          "asks to wait longer than ten minutes");
    script s = {{"HTTP/1.1 503 x\r\n\r\n", "!", "HTTP/1.1 500 x\r\n\r\n", "HTTP/1.1 200 x\r\n\r\n"},
                4};
    result r;
    run(&r, &s, true);
    assert_int_equal(r.ask.state, AF_ASK_DONE);
    CHECK_MSG(r.seconds > 3.49 && r.seconds < 3.6, "0.5 + 1 + 2 s, not %f", r.seconds);
    done(&r);
    s = (script){{"HTTP/1.1 429 x\r\nRetry-After: 40\r\n\r\n", "HTTP/1.1 200 x\r\n\r\n"}, 2};
    run(&r, &s, true);
    CHECK_MSG(r.seconds > 39.9 && r.seconds < 40.1, "40 s, not %f", r.seconds);
    done(&r);
    s = (script){{"HTTP/1.1 429 x\r\nRetry-After: Thu, 01 Jan 1970 00:00:01 GMT\r\n\r\n",
                  "HTTP/1.1 429 x\r\nRetry-After: 0\r\n\r\n", "HTTP/1.1 200 x\r\n\r\n"},
                 3};
    run(&r, &s, true);
    CHECK_MSG(r.seconds > 1.49 && r.seconds < 1.6, "0.5 + 1 s, not %f", r.seconds);
    done(&r);
}

static void test_an_expired_address_is_asked_for_again(void **state)
{
    (void)state;
    script s = {
        {"HTTP/1.1 302 x\r\nLocation: https://cdn.co/old\r\n\r\n", "HTTP/1.1 403 x\r\n\r\nexpired",
         "HTTP/1.1 302 x\r\nLocation: https://cdn.co/new\r\n\r\n", "HTTP/1.1 200 x\r\n\r\n"},
        4};
    result r;
    run(&r, &s, true);
    assert_int_equal(r.ask.state, AF_ASK_DONE);
    assert_non_null(strstr(r.log, "https://cdn.co/new"));
    done(&r);
    s = (script){{"HTTP/1.1 403 x\r\n\r\n"}, 1}; /* the hub's own refusal is final */
    run(&r, &s, true);
    assert_true(r.ask.state == AF_ASK_FAILED && r.ask.status == 403 && r.requests == 1);
    done(&r);
}

static void test_too_much_of_everything(void **state)
{
    (void)state;
    static char flood[100000], body[(1 << 20) + 100];
    memcpy(flood, "HTTP/1.1 200 x\r\nX: ", 19);
    memset(flood + 19, 'y', sizeof flood - 20);
    fails((script){{flood}, 1}, true, 1, "bytes of headers");
    memcpy(body, "HTTP/1.1 200 x\r\n\r\n", 18);
    memset(body + 18, 'y', sizeof body - 19);
    fails((script){{body}, 1}, true, 1, "sends an answer of more than 1048576 bytes");
    memcpy(body, "HTTP/1.1 404", 12); /* a long error is still that error */
    script s = {{body}, 1};
    result r;
    run(&r, &s, true);
    assert_true(r.ask.state == AF_ASK_FAILED && r.ask.status == 404 && r.ask.why.code == AF_OK);
    done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_stays_at_the_hub),
        cmocka_unit_test(test_redirects_that_are_refused),
        cmocka_unit_test(test_addresses_without_encryption),
        cmocka_unit_test(test_waits_grow_and_end),
        cmocka_unit_test(test_an_expired_address_is_asked_for_again),
        cmocka_unit_test(test_too_much_of_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
