/* test_alloc_each.c - parts of the library in which each allocation fails once: the call says that
 * memory ran out, or its result is right.
 *
 * malloc, calloc and realloc of everything that is linked statically come by here (--wrap). */
#include "test.h"

#include "base/buf.h"
#include "base/file.h"
#include "data/store/token_store.h"
#include "format/text/yaml_tree.h"
#include "format/weights/safetensors.h"
#include "serve/http/http_server.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t n);

static atomic_long calls, fail_at; /* 0 = none */
static bool sticky;                /* all later ones, too */

static bool fails(void)
{
    const long at = fail_at, n = at > 0 ? ++calls : 0;
    return n > 0 && (n == at || (sticky && n > at));
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }

static char folder[] = "/tmp/af_alloc_XXXXXX";

static const char *file_in(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

/* `work` returns a status, and checks its result itself when that is AF_OK. */
static void each_fails(af_status (*work)(af_error *err), long least)
{
    for (long n = 1;; n++) {
        af_error err = {0};
        calls = 0;
        fail_at = n;
        const af_status st = work(&err);
        const long seen = calls;
        fail_at = 0;
        af_memory_forget();
        CHECK_MSG(st == AF_OK || (st == AF_ENOMEM && strstr(err.msg, "memory")),
                  "allocation %ld: status %d, '%s'", n, st, err.msg);
        if (seen >= n)
            continue;
        CHECK_MSG(st == AF_OK && n > least, "%s after %ld allocations", err.msg, n);
        return;
    }
}

/* Of a check inside `work`: nothing more fails, and cmocka may allocate. */
static void over(void) { fail_at = 0; }

enum { VALUE = 100000 }; /* more than a chunk of an arena has left */

static char safetensors[3 * VALUE];
static uint64_t safetensors_size;

static af_status parse_safetensors(af_error *err)
{
    af_safetensors *s = NULL;
    const af_status st = af_safetensors_parse(&s, safetensors, safetensors_size, "x", err);
    const long kept = fail_at;
    if (st == AF_OK) {
        over();
        assert_int_equal(af_safetensors_meta_count(s), 2);
        assert_int_equal(strlen(af_safetensors_meta(s, "first")), VALUE);
        assert_string_equal(af_safetensors_meta(s, "second"), "b");
        assert_non_null(af_safetensors_find(s, "t"));
        fail_at = kept;
    }
    af_safetensors_close(s);
    return st;
}

static void test_a_safetensors_header(void **state)
{
    (void)state;
    af_buf b = {0};
    af_buf_str(&b, "{\"__metadata__\":{\"first\":\"");
    for (int i = 0; i < VALUE; i++)
        af_buf_char(&b, 'v');
    af_buf_str(&b, "\",\"second\":\"b\"},\"t\":{\"dtype\":\"F32\",\"shape\":[1],"
                   "\"data_offsets\":[0,4]}}");
    const uint64_t head = b.len;
    memcpy(safetensors, &head, 8); /* little-endian, as all machines it runs on */
    memcpy(safetensors + 8, b.data, b.len);
    safetensors_size = 8 + b.len + 4;
    af_buf_clear(&b);
    each_fails(parse_safetensors, 5);
}

/* Deep enough, and with keys long enough, that every stack and string of the parser grows. */
static char yaml[20000];

static af_status parse_yaml(af_error *err)
{
    af_arena mem = {0};
    af_yaml *root = NULL;
    const af_status st = af_yaml_parse(&root, &mem, yaml, strlen(yaml), "x.yaml", err);
    const long kept = fail_at;
    if (st == AF_OK) {
        over();
        assert_int_equal(root->count, 3);
        assert_int_equal(af_yaml_get(root, "list")->count, 40);
        assert_int_equal(strlen(af_yaml_get(root, "text")->text), 3000);
        assert_string_equal(af_yaml_get(root, "again")->item[0]->text, "x");
        fail_at = kept;
    }
    af_arena_clear(&mem);
    return st;
}

static void test_a_yaml_document(void **state)
{
    (void)state;
    int n = snprintf(yaml, sizeof yaml, "%%YAML 1.1\n---\nlist: &l\n");
    for (int i = 0; i < 40; i++)
        n += snprintf(yaml + n, sizeof yaml - (size_t)n, i ? "  - {k%d: [1, 'two']}\n" : "  - x\n",
                      i);
    n += snprintf(yaml + n, sizeof yaml - (size_t)n, "text: \"");
    memset(yaml + n, 't', 3000);
    snprintf(yaml + n + 3000, sizeof yaml - (size_t)n - 3000, "\" # a comment\nagain: *l\n");
    each_fails(parse_yaml, 40);
}

static af_status write_file(af_error *err)
{
    char path[256];
    af_out *o = NULL;
    af_status st = af_out_open(&o, file_in(path, "out"), err);
    if (st == AF_OK)
        st = af_out_write(o, "text", 4, err);
    if (st != AF_OK) {
        af_out_abandon(o);
        return st;
    }
    return af_out_commit(o, err);
}

static void test_an_output_file(void **state)
{
    (void)state;
    each_fails(write_file, 3);
}

static af_status write_tokens(af_error *err)
{
    static const int32_t ids[3] = {7, 8, 9}, labels[3] = {-100, 8, 9};
    enum { RECORDS = 600 };
    char path[256];
    af_token_writer *w = NULL;
    af_token_store s;
    af_status st = af_token_writer_open(&w, file_in(path, "tokens"), err);
    if (st != AF_OK)
        return st;
    for (int i = 0; i < RECORDS && st == AF_OK; i++)
        st = af_token_writer_add(w, ids, labels, 3, 0, i + 1, err);
    if (st != AF_OK) {
        af_token_writer_abandon(w);
        return st;
    }
    int64_t order[RECORDS];
    for (int i = 0; i < RECORDS; i++)
        order[i] = RECORDS - 1 - i;
    st = af_token_writer_order(w, order, RECORDS, err);
    if (st != AF_OK) {
        af_token_writer_abandon(w);
        return st;
    }
    AF_TRY(af_token_writer_commit(w, "{}", err));
    AF_TRY(af_token_store_open(&s, path, err));
    const long kept = fail_at;
    over();
    assert_int_equal(s.records, RECORDS);
    assert_int_equal(s.supervised, 2 * RECORDS);
    fail_at = kept;
    af_token_store_close(&s);
done:
    return st;
}

static void test_a_file_of_tokens(void **state)
{
    (void)state;
    each_fails(write_tokens, 6);
}

static af_httpd *server;

static void on_head(void *user, af_httpd_call *call)
{
    (void)user;
    (void)call;
}

static void on_request(void *user, af_httpd_call *call)
{
    (void)user;
    uint64_t n;
    const char *body = af_httpd_body(call, &n);
    af_httpd_answer(call, 200, "text/plain", body, n);
}

static char *error_body(int status, const char *why)
{
    (void)status;
    return af_strdup(why);
}

/* The whole request is sent before anything is read: an answer reaches such a client only when the
 * server takes what was sent. The one that has no memory for it answers, and lives on. */
static af_status ask_server(af_error *err)
{
    enum { BODY = 50000 };
    static char text[BODY + 200], answer[BODY + 4096];
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)af_httpd_port(server))};
    int n = snprintf(
        text, sizeof text,
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", BODY);
    memset(text + n, 'b', BODY);
    n += BODY;
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) != 0 ||
        send(fd, text, (size_t)n, MSG_NOSIGNAL) != n)
        snprintf(err->msg, sizeof err->msg, "the request cannot be sent");
    ssize_t got, len = 0;
    while ((got = recv(fd, answer + len, sizeof answer - 1 - (size_t)len, 0)) > 0)
        len += got;
    close(fd);
    answer[len] = '\0';
    const char *body = strstr(answer, "\r\n\r\n");
    if (strncmp(answer, "HTTP/1.1 200 ", 13) == 0 && body && strspn(body + 4, "b") == BODY)
        return AF_OK;
    if (strncmp(answer, "HTTP/1.1 500 ", 13) == 0 && strstr(answer, "out of memory"))
        return af_fail(err, AF_ENOMEM, "out of memory");
    return af_fail(err, AF_EIO, "recv gives %zd, the answer is '%.60s'", got, answer);
}

static void test_a_server(void **state)
{
    (void)state;
    const af_httpd_opts o = {.host = "127.0.0.1",
                             .header_timeout = 100,
                             .idle_timeout = 100,
                             .max_body = 1 << 20,
                             .head = on_head,
                             .request = on_request,
                             .error_body = error_body};
    assert_int_equal(af_httpd_open(&server, &o, NULL), AF_OK);
    each_fails(ask_server, 7);
    sticky = true;
    each_fails(ask_server, 7);
    sticky = false;
    af_httpd_close(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_safetensors_header),
        cmocka_unit_test(test_a_yaml_document),
        cmocka_unit_test(test_an_output_file),
        cmocka_unit_test(test_a_file_of_tokens),
        cmocka_unit_test(test_a_server),
    };
    if (!mkdtemp(folder))
        return 1;
    const int result = cmocka_run_group_tests(tests, NULL, NULL);
    (void)!af_path_remove(folder, NULL);
    return result;
}
