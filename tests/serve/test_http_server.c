/* Connections and answers from other places than the one that asked, over real sockets. */
#include "test.h"

#include "serve/http/http_server.h"

#include <arpa/inet.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

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

static int ask(const af_httpd *h, const char *path)
{
    char text[128];
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)af_httpd_port(h)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    const int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
    assert_int_equal(send(fd, text, (size_t)n, 0), n);
    return fd;
}

/* What the server sent, up to and with `last`. */
static void expect_answer(int fd, const char *last)
{
    char got[4096];
    size_t n = 0;
    const struct timeval limit = {.tv_sec = 30};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    do {
        const ssize_t more = recv(fd, got + n, sizeof got - 1 - n, 0);
        CHECK_MSG(more > 0, "the answer ended before '%s'", last);
        n += (size_t)more;
        got[n] = '\0';
    } while (!strstr(got, last));
    assert_int_equal(strncmp(got, "HTTP/1.1 200 OK\r\n", 17), 0);
}

/* An answer gets output, is sent by a turn of its connection, and gets output again before the
 * server looks at its list of answers with output: it must be in that list once. */
static void test_output_twice_in_a_turn(void **state)
{
    (void)state;
    af_error err;
    af_httpd *h = NULL;
    scene s = {0};
    sem_init(&s.held, 0, 0);
    sem_init(&s.go, 0, 0);
    const af_httpd_opts o = {.host = "127.0.0.1",
                             .header_timeout = 30,
                             .idle_timeout = 30,
                             .max_body = 1024,
                             .head = head,
                             .request = request,
                             .error_body = error_body,
                             .user = &s};
    CHECK_OK(af_httpd_open(&h, &o, &err), err);
    const char *one_turn[] = {"/stream", "/send", "/send", "/end"};
    int fds[4];
    for (int i = 0; i < 4; i++) { /* connections that exist already give their requests in order */
        fds[i] = ask(h, "/ready");
        expect_answer(fds[i], "ok");
    }
    const int hold = ask(h, "/hold");
    sem_wait(&s.held);
    for (int i = 0; i < 4; i++) {
        char text[64];
        const int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", one_turn[i]);
        assert_int_equal(send(fds[i], text, (size_t)n, 0), n);
    }
    sem_post(&s.go);
    for (int i = 1; i < 4; i++)
        expect_answer(fds[i], "ok");
    expect_answer(fds[0], "4\r\nmore\r\n4\r\nmore\r\n0\r\n\r\n");
    expect_answer(hold, "ok");
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    close(hold);
    assert_true(af_httpd_drain(h, 30));
    af_httpd_close(h);
    sem_destroy(&s.held);
    sem_destroy(&s.go);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_output_twice_in_a_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
