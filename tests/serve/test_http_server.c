/* Connections and answers from other places than the one that asked, over real sockets; text of
 * answers. */
#include "serve/api/fields.h"
#include "serve/http/http_server.h"
#include "serve/http_ask.h"

#include <semaphore.h>
#include <sys/resource.h>

typedef struct scene {
    sem_t held, go;
    af_httpd_call *stream;
} scene;

static void head(void *user, af_httpd_call *call)
{
    (void)user;
    (void)call;
}

/* /hold keeps the server's thread until the test lets it go; /stream begins an answer; /send adds
 * to that answer from another request, /end ends it. */
static void request(void *user, af_httpd_call *call)
{
    scene *s = user;
    const char *path = af_httpd_head(call)->path;
    if (strcmp(path, "/stream") == 0) {
        s->stream = af_httpd_call_ref(call);
        af_httpd_stream_begin(call, 200, "text/plain");
        return;
    }
    if (strcmp(path, "/hold") == 0) {
        sem_post(&s->held);
        sem_wait(&s->go);
    } else if (strcmp(path, "/send") == 0) {
        af_httpd_stream_send(s->stream, "more", 4);
    } else if (strcmp(path, "/end") == 0) {
        af_httpd_stream_end(s->stream);
        af_httpd_call_unref(s->stream);
    }
    af_httpd_answer(call, 200, "text/plain", "ok", 2);
}

static char *error_body(int status, const char *why)
{
    (void)status;
    return strdup(why);
}

static af_httpd *open_server(scene *s)
{
    af_error err;
    af_httpd *h = NULL;
    const af_httpd_opts o = {.host = "127.0.0.1",
                             .header_timeout = 30,
                             .idle_timeout = 30,
                             .max_body = 1024,
                             .head = head,
                             .request = request,
                             .error_body = error_body,
                             .user = s};
    CHECK_OK(af_httpd_open(&h, &o, &err), err);
    return h;
}

/* An answer gets output, is sent by a turn of its connection, and gets output again before the
 * server looks at its list of answers with output: it must be in that list once. */
static void test_output_twice_in_a_turn(void **state)
{
    (void)state;
    scene s = {0};
    sem_init(&s.held, 0, 0);
    sem_init(&s.go, 0, 0);
    af_httpd *h = open_server(&s);
    const char *one_turn[] = {"/stream", "/send", "/send", "/end"};
    int fds[4];
    for (int i = 0; i < 4; i++) { /* connections that exist already give their requests in order */
        fds[i] = ask(af_httpd_port(h), "GET", "/ready", "");
        expect_answer(fds[i], 200, "ok");
    }
    const int hold = ask(af_httpd_port(h), "GET", "/hold", "");
    sem_wait(&s.held);
    for (int i = 0; i < 4; i++)
        send_request(fds[i], "GET", one_turn[i], "");
    sem_post(&s.go);
    for (int i = 1; i < 4; i++)
        expect_answer(fds[i], 200, "ok");
    expect_answer(fds[0], 200, "4\r\nmore\r\n4\r\nmore\r\n0\r\n\r\n");
    expect_answer(hold, 200, "ok");
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    close(hold);
    assert_true(af_httpd_drain(h, 30));
    af_httpd_close(h);
    sem_destroy(&s.held);
    sem_destroy(&s.go);
}

/* One U+FFFD for each part of a character that nothing continues, as in decoded tokens. */
static void test_text_that_is_not_utf8(void **state)
{
#define BAD "\xef\xbf\xbd"
    static const char *const cases[][2] = {
        {"a\"\\\n\x01\x7f", "\"a\\\"\\\\\\n\\u0001\\u007f\""},
        {"\xc3\xa9\xf0\x9f\x99\x82", "\"\xc3\xa9\xf0\x9f\x99\x82\""},
        {"\xe2\x82x", "\"" BAD "x\""},
        {"\xf0\x9f\x99x", "\"" BAD "x\""},
        {"\xe2\x82", "\"" BAD "\""},
        {"\xff\xfe", "\"" BAD BAD "\""},
        {"\xed\xa0\x80", "\"" BAD BAD BAD "\""}, /* a surrogate */
    };
#undef BAD
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_buf b = {0};
        af_out_string(&b, cases[i][0], strlen(cases[i][0]));
        assert_string_equal(b.data, cases[i][1]);
        af_buf_clear(&b);
    }
}

/* Descriptors that others of the process have: far fewer connections than the server allows. */
static void test_no_descriptor_is_free(void **state)
{
    (void)state;
    scene s = {0};
    af_httpd *h = open_server(&s);
    struct rlimit all;
    char end;
    const int idle = ask(af_httpd_port(h), "GET", "/ready", "");
    expect_answer(idle, 200, "ok");
    const int next = new_socket(), free_one = dup(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    close(free_one); /* the lowest that is free */
    const struct rlimit few = {.rlim_cur = (rlim_t)free_one, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    connect_to(next, af_httpd_port(h));
    send_request(next, "GET", "/ready", "");
    expect_answer(next, 200, "ok");
    assert_int_equal(recv(idle, &end, 1, 0), 0); /* it waited longest */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    close(idle);
    close(next);
    assert_true(af_httpd_drain(h, 30));
    af_httpd_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_twice_in_a_turn),
        cmocka_unit_test(test_text_that_is_not_utf8),
        cmocka_unit_test(test_no_descriptor_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
