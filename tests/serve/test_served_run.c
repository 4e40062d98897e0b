#define _GNU_SOURCE /* mkdtemp, usleep */
/* Requests and a run that meet at every possible moment: the engine of a served run has no thread,
 * so the test takes its turns one by one. */
#include "serve/api/run_state.h"
#include "serve/http_ask.h"
#include "serve/server_state.h"

#include <sys/stat.h>

#define TEXT    "/v1/completions"
#define CURRENT "{\"model\":\"m:current\",\"prompt\":[5,6,7],\"max_tokens\":1}"

typedef struct scene {
    af_server *s;
    af_serve_engine *engine;
    int port, writes, fd;
    int64_t written; /* the last step that was written */
    bool fails;
    af_train_moment moment;
    char dir[64];
} scene;

static void copy(const char *folder, const char *name)
{
    char from[4096], to[4096], bytes[1 << 16];
    snprintf(from, sizeof from, "%s/gguf_models/llama/lora/%s", golden_dir(), name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_true(in && out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static af_status write_adapter(void *run, const char *dir, af_error *err)
{
    scene *s = run;
    if (s->fails)
        return af_fail(err, AF_EIO, "the disk is full");
    copy(dir, "adapter_config.json");
    copy(dir, "adapter_model.safetensors");
    s->writes++;
    s->written = s->moment.step;
    return AF_OK;
}

static bool never(void *run)
{
    (void)run;
    return false;
}

static void open_sized(scene *s, bool trains, int parallel, int64_t context)
{
    af_error err = {0};
    char model[4096], adapter[4096];
    *s = (scene){.dir = "/tmp/afinar-served-XXXXXX"};
    assert_non_null(mkdtemp(s->dir));
    snprintf(model, sizeof model, "%s/gguf_models/llama/hf", golden_dir());
    snprintf(adapter, sizeof adapter, "%s/gguf_models/llama/lora", golden_dir());
    const af_train_start start = {.output_dir = s->dir, .adapter = trains, .steps = 10};
    const af_serve_opts o = {.alias = "m",
                             .adapter_name = {"a"},
                             .adapter_path = {adapter},
                             .adapters = trains ? 0 : 1,
                             .parallel = parallel,
                             .context = context,
                             .run = &start,
                             .model = {.device = "cpu", .threads = 1}};
    CHECK_OK(af_server_open(&s->s, model, &o, &err), err);
    s->engine = s->s->api.engine;
    s->port = af_httpd_port(s->s->api.http);
    s->moment = (af_train_moment){.run = s, .steps = 10, .write = write_adapter, .stop = never};
}

static void open_scene(scene *s, bool trains) { open_sized(s, trains, 1, 0); }

static void close_scene(scene *s)
{
    af_server_close(s->s);
    rmdir(s->dir);
}

/* A request reaches the engine in a time of its own. */
static void wait_waiting(const scene *s, int tasks)
{
    while (af_serve_engine_waiting(s->engine) < tasks)
        usleep(1000);
}

static void between(scene *s, int64_t step)
{
    s->moment.step = step;
    af_server_run_between(s->s, &s->moment, 0.1);
}

static void turn(const scene *s) { af_serve_engine_work(s->engine, 0); }

static void finish(const scene *s)
{
    while (af_serve_engine_busy(s->engine))
        turn(s);
}

/* ---- tasks of the test ---- */

typedef struct probe {
    af_serve_task task; /* first */
    scene *scene;
    af_served *model;
    bool asks, begun, done;
} probe;

static void probe_begin(af_serve_task *t, af_decoder *d)
{
    (void)d;
    ((probe *)t)->begun = true;
}

/* While it runs, a request for the adapter of now comes. */
static bool probe_poll(af_serve_task *t, af_decoder *d)
{
    probe *p = (probe *)t;
    (void)d;
    if (p->asks) {
        p->scene->fd = ask(p->scene->port, "POST", TEXT, CURRENT);
        wait_waiting(p->scene, 1);
        p->asks = false;
    }
    return p->done;
}

static void probe_fail(af_serve_task *t, af_decoder *d, const af_error *why)
{
    (void)t, (void)d, (void)why;
}

static void probe_end(af_serve_task *t) { af_served_unref(((probe *)t)->model); }

static void add_probe(scene *s, probe *p)
{
    p->scene = s;
    p->task.begin = probe_begin;
    p->task.poll = probe_poll;
    p->task.fail = probe_fail;
    p->task.end = probe_end;
    assert_true(af_serve_engine_add(s->engine, &p->task));
}

/* ---- the adapter of now ---- */

/* A request that comes when the server had looked already whether somebody waits. */
static void test_current_is_of_now(void **state)
{
    scene s;
    probe p = {0};
    (void)state;
    open_scene(&s, true);
    add_probe(&s, &p);
    between(&s, 1);
    assert_true(p.begun);
    p.asks = true;
    p.done = false;
    while (p.asks || af_serve_engine_waiting(s.engine))
        between(&s, 2);
    p.done = true;
    between(&s, 2);
    expect_answer(s.fd, 200, "m:current");
    assert_int_equal(s.written, 2);
    close(s.fd);
    close_scene(&s);
}

/* Nobody gets the base under the name of the adapter: when it cannot be written, and when the run
 * has ended and its weights are gone. */
static void test_current_that_is_gone(void **state)
{
    (void)state;
    for (int ended = 0; ended < 2; ended++) {
        scene s;
        open_scene(&s, true);
        s.fails = true;
        const int fd = ask(s.port, "POST", TEXT, CURRENT);
        wait_waiting(&s, 1);
        if (ended)
            af_server_run_end(s.s, false, 10);
        else
            between(&s, 1);
        expect_answer(fd, 503, "'m:current' is not served any more");
        close(fd);
        close_scene(&s);
    }
}

static void test_current_is_not_unloaded(void **state)
{
    scene s;
    (void)state;
    open_scene(&s, true);
    const int fd = ask(s.port, "POST", "/v1/unload_lora_adapter", "{\"lora_name\":\"current\"}");
    expect_answer(fd, 400, "the adapter that the run trains");
    close(fd);
    close_scene(&s);
}

/* ---- an adapter that is unloaded while requests for it are on their way ---- */

static int unload(scene *s)
{
    const int before = af_serve_engine_waiting(s->engine);
    const int fd = ask(s->port, "POST", "/v1/unload_lora_adapter", "{\"lora_name\":\"a\"}");
    wait_waiting(s, before + 1);
    return fd;
}

/* A list of texts takes as many turns as it has texts. */
static void test_unload_and_embeddings(void **state)
{
    scene s;
    (void)state;
    open_scene(&s, false);
    const int fd = ask(s.port, "POST", "/v1/embeddings",
                       "{\"model\":\"m:a\",\"input\":[[5,6],[7,8],[9,10],[11,12],[13,14]]}");
    wait_waiting(&s, 1);
    turn(&s);
    const int other = unload(&s);
    finish(&s);
    expect_answer(fd, 200, "\"total_tokens\":10}}");
    expect_answer(other, 200, "removed successfully");
    close(fd);
    close(other);
    close_scene(&s);
}

/* A worker has found the name and is still reading its request, which takes more sequences than
 * there are. */
static void test_unload_and_a_request_being_read(void **state)
{
    scene s;
    int place;
    (void)state;
    open_scene(&s, false);
    probe p = {.done = true, .task.sequences = 2};
    p.model = af_api_find_model(&s.s->api, "m:a");
    const int fd = unload(&s);
    for (int i = 0; i < 3; i++)
        turn(&s);
    place = af_decoder_find_adapter(af_serve_engine_decoder(s.engine), "a");
    CHECK_MSG(place > 0, "the adapter of a request that is being read is gone");
    add_probe(&s, &p);
    for (int i = 0; i < 3; i++)
        turn(&s);
    assert_true(p.begun);
    finish(&s);
    expect_answer(fd, 200, "removed successfully");
    place = af_decoder_find_adapter(af_serve_engine_decoder(s.engine), "a");
    assert_true(place <= 0);
    close(fd);
    close_scene(&s);
}

/* ---- pages that others have ---- */

static bool third_is_last(void *user, const af_decoded *t)
{
    int *made = user;
    return t->prompt || ++*made < 3;
}

static void test_embeddings_wait_for_pages(void **state)
{
    enum { CONTEXT = 1 << 15 }; /* as many tokens as all pages have */
    scene s;
    af_error err = {0};
    int made = 0;
    uint64_t ticket;
    const int32_t ids[] = {5, 6, 7};
    (void)state;
    open_sized(&s, false, 2, CONTEXT);
    af_decoder *d = af_serve_engine_decoder(s.engine);
    const af_decode_request r = {.ids = ids,
                                 .count = 3,
                                 .ignore_eos = true,
                                 .top_logprobs = -1,
                                 .token = third_is_last,
                                 .user = &made};
    CHECK_OK(af_decoder_submit(d, &r, &ticket, &err), err);
    CHECK_OK(af_decoder_step(d, NULL, &err), err);
    assert_int_equal(af_decoder_count(d).pages_free, 0);
    const int fd = ask(s.port, "POST", "/v1/embeddings", "{\"input\":[[5,6]]}");
    wait_waiting(&s, 1);
    finish(&s);
    expect_answer(fd, 200, "\"total_tokens\":2}}");
    assert_int_equal(made, 3);
    close(fd);
    close_scene(&s);
}

/* ---- those who listen to a run that is paused ---- */

static void test_listeners_that_have_gone(void **state)
{
    scene s;
    (void)state;
    open_scene(&s, true);
    for (int i = 0; i < AF_RUN_LISTENERS; i++) {
        const int fd = ask(s.port, "GET", "/v1/run/events", "");
        expect_answer(fd, 200, "\r\n\r\n");
        close(fd);
    }
    while (af_httpd_connections(s.s->api.http) > 0)
        usleep(1000);
    const int fd = ask(s.port, "GET", "/v1/run/events", "");
    expect_answer(fd, 200, "\r\n\r\n");
    close(fd);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_current_is_of_now),
        cmocka_unit_test(test_current_that_is_gone),
        cmocka_unit_test(test_current_is_not_unloaded),
        cmocka_unit_test(test_unload_and_embeddings),
        cmocka_unit_test(test_unload_and_a_request_being_read),
        cmocka_unit_test(test_embeddings_wait_for_pages),
        cmocka_unit_test(test_listeners_that_have_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
