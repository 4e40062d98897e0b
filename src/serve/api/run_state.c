/* run_state.c - /v1/run and what belongs to it; see run_state.h. */
#include "serve/api/run_state.h"

#include "base/file.h"
#include "format/text/json_text.h"

#include <math.h>

/* ---- state ---- */

af_status af_run_state_new(af_run_state **out, const af_train_start *s, af_error *err)
{
    af_run_state *r = af_calloc(1, sizeof *r);
    if (!r)
        return af_fail_nomem(err, "the run", sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->data_lock, NULL);
    r->output_dir = af_strdup(s->output_dir);
    r->metrics_path = af_path_join(s->output_dir, "metrics.jsonl");
    r->step = s->step;
    r->steps = s->steps;
    r->last = (af_train_step){.step = s->step,
                              .loss = NAN,
                              .epoch = NAN,
                              .learning_rate = NAN,
                              .tok_s = NAN,
                              .eta_s = NAN};
    r->current_step = -1;
    if (!r->output_dir || !r->metrics_path) {
        af_run_state_free(r);
        return af_fail_nomem(err, "the run", strlen(s->output_dir));
    }
    const int64_t size = af_file_size(r->metrics_path);
    r->sent = size > 0 ? (uint64_t)size : 0;
    *out = r;
    return AF_OK;
}

void af_run_state_free(af_run_state *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->listeners; i++)
        af_httpd_call_unref(r->listener[i]);
    af_served_unref(r->current);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->data_lock);
    free(r->data);
    free(r->output_dir);
    free(r->metrics_path);
    free(r);
}

static const char *state_name(const af_run_state *r)
{
    return r->ended == 2               ? "failed"
           : r->ended == 1             ? "done"
           : atomic_load(&r->stopping) ? "stopping"
           : r->paused                 ? "paused"
                                       : "running";
}

static void out_member(af_buf *b, const char *name, double v)
{
    af_buf_printf(b, ",\"%s\":", name);
    af_out_number(b, v);
}

static void answer_run(af_run_state *r, af_httpd_call *c)
{
    af_buf b = {0};
    pthread_mutex_lock(&r->lock);
    af_buf_printf(&b, "{\"state\":\"%s\",\"step\":%" PRId64 ",\"max_steps\":%" PRId64,
                  state_name(r), r->step, r->steps);
    out_member(&b, "epoch", r->last.epoch);
    out_member(&b, "loss", r->last.loss);
    out_member(&b, "learning_rate", r->last.learning_rate);
    out_member(&b, "tok_s", r->last.tok_s);
    out_member(&b, "eta_s", r->last.eta_s);
    af_buf_printf(&b, ",\"memory_bytes\":%" PRIu64 ",\"output_dir\":", r->last.memory);
    af_out_cstring(&b, r->output_dir);
    af_buf_char(&b, '}');
    pthread_mutex_unlock(&r->lock);
    af_api_answer(c, &b);
}

void af_api_run(af_api *a, af_httpd_call *c, const json_t *body)
{
    (void)body;
    answer_run(a->run, c);
}

/* ---- rows ---- */

/* The step of a row, or -1. */
static int64_t step_of(const char *line, uint64_t n)
{
    json_t *row = af_json_load(line, n, 0, NULL);
    const json_t *step = json_object_get(row, "step");
    const int64_t out = json_is_integer(step) ? (int64_t)json_integer_value(step) : -1;
    json_decref(row);
    return out;
}

void af_api_run_metrics(af_api *a, af_httpd_call *c, const json_t *body)
{
    char text[24];
    const bool given = af_request_query(af_httpd_head(c), "since", text, sizeof text);
    const int64_t since = given ? strtoll(text, NULL, 10) : -1;
    af_map map = {0};
    af_buf b = {0};
    (void)body;
    if (af_map_open(&map, a->run->metrics_path, NULL) == AF_OK) {
        const char *at = (const char *)map.data, *end = at + map.size;
        for (const char *lf; at < end && (lf = memchr(at, '\n', (size_t)(end - at))); at = lf + 1)
            if (since < 0 || step_of(at, (uint64_t)(lf - at)) > since)
                af_buf_add(&b, at, (uint64_t)(lf - at) + 1);
        af_map_close(&map);
    }
    if (b.bad)
        af_api_refuse(c, 500, NULL, NULL, "out of memory");
    else
        af_httpd_answer(c, 200, "application/jsonl; charset=utf-8", b.data ? b.data : "", b.len);
    af_buf_clear(&b);
}

/* Forgets those who have gone. The lock is held. */
static void drop_closed(af_run_state *r)
{
    for (int i = 0; i < r->listeners;) {
        if (!af_httpd_is_closed(r->listener[i])) {
            i++;
            continue;
        }
        af_httpd_call_unref(r->listener[i]);
        r->listener[i] = r->listener[--r->listeners];
    }
}

void af_api_run_events(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_run_state *r = a->run;
    (void)body;
    pthread_mutex_lock(&r->lock);
    drop_closed(r); /* a run that is paused has no rows to notice them by */
    const bool full = r->listeners == AF_RUN_LISTENERS, ended = r->ended != 0;
    if (!full) {
        af_httpd_stream_begin(c, 200, "text/event-stream; charset=utf-8");
        if (ended)
            af_httpd_stream_end(c);
        else
            r->listener[r->listeners++] = af_httpd_call_ref(c);
    }
    pthread_mutex_unlock(&r->lock);
    if (full)
        af_api_refuse(c, 503, NULL, NULL, "%d clients listen already", AF_RUN_LISTENERS);
}

void af_run_state_rows(af_run_state *r)
{
    af_map map = {0};
    af_buf b = {0};
    pthread_mutex_lock(&r->lock);
    drop_closed(r);
    if (af_map_open(&map, r->metrics_path, NULL) == AF_OK) {
        const char *at = (const char *)map.data + AF_MIN(r->sent, map.size);
        const char *end = (const char *)map.data + map.size;
        for (const char *lf; at < end && (lf = memchr(at, '\n', (size_t)(end - at))); at = lf + 1) {
            af_buf_str(&b, "data: ");
            af_buf_add(&b, at, (uint64_t)(lf - at));
            af_buf_str(&b, "\n\n");
        }
        r->sent = (uint64_t)(at - (const char *)map.data);
        af_map_close(&map);
    }
    for (int i = 0; i < r->listeners && !b.bad && b.len; i++)
        af_httpd_stream_send(r->listener[i], b.data, b.len);
    pthread_mutex_unlock(&r->lock);
    af_buf_clear(&b);
}

void af_run_state_end(af_run_state *r, bool failed)
{
    af_run_state_rows(r);
    pthread_mutex_lock(&r->lock);
    r->ended = failed ? 2 : 1;
    for (int i = 0; i < r->listeners; i++) {
        af_httpd_stream_end(r->listener[i]);
        af_httpd_call_unref(r->listener[i]);
    }
    r->listeners = 0;
    pthread_mutex_unlock(&r->lock);
}

/* ---- what clients want ---- */

typedef enum run_wish { WISH_PAUSE, WISH_RESUME, WISH_CHECKPOINT, WISH_STOP } run_wish;

typedef struct af_run_task {
    af_serve_task task; /* first */
    af_run_state *run;
    af_httpd_call *call;
    run_wish wish;
} af_run_task;

static void begin(af_serve_task *task, af_decoder *d)
{
    af_run_task *t = (af_run_task *)task;
    af_run_state *r = t->run;
    af_api_fault f = {0};
    af_status st = AF_OK;
    (void)d;
    if (t->wish == WISH_CHECKPOINT && (!r->moment || r->moment->step == 0))
        st = af_fail(&f.err, AF_EUSAGE, "there is no finished step to write a checkpoint of");
    else if (t->wish == WISH_CHECKPOINT)
        st = r->moment->checkpoint(r->moment->run, &f.err);
    pthread_mutex_lock(&r->lock);
    if (t->wish == WISH_PAUSE || t->wish == WISH_RESUME)
        r->paused = t->wish == WISH_PAUSE;
    pthread_mutex_unlock(&r->lock);
    if (t->wish == WISH_STOP)
        atomic_store(&r->stopping, true);
    if (st == AF_OK)
        answer_run(r, t->call);
    else
        af_api_refuse_fault(t->call, &f);
}

static bool poll(af_serve_task *task, af_decoder *d)
{
    (void)task, (void)d;
    return true;
}

static void fail(af_serve_task *task, af_decoder *d, const af_error *why)
{
    (void)d;
    af_api_refuse_fault(((af_run_task *)task)->call, &(af_api_fault){.err = *why});
}

static void end(af_serve_task *task)
{
    af_run_task *t = (af_run_task *)task;
    af_httpd_call_unref(t->call);
    free(t);
}

static void wish(af_api *a, af_httpd_call *c, run_wish w)
{
    pthread_mutex_lock(&a->run->lock);
    const bool ended = a->run->ended != 0;
    pthread_mutex_unlock(&a->run->lock);
    af_run_task *t = ended ? NULL : af_calloc(1, sizeof *t);
    if (!t) {
        af_api_refuse(c, ended ? 400 : 500, NULL, NULL,
                      ended ? "the run has ended" : "out of memory");
        return;
    }
    *t = (af_run_task){.run = a->run, .call = af_httpd_call_ref(c), .wish = w};
    t->task = (af_serve_task){.begin = begin, .poll = poll, .fail = fail, .end = end};
    if (af_serve_engine_add(a->engine, &t->task))
        return;
    af_api_refuse(c, 503, NULL, NULL, "the server is shutting down");
    end(&t->task);
}

void af_api_run_pause(af_api *a, af_httpd_call *c, const json_t *body)
{
    (void)body;
    wish(a, c, WISH_PAUSE);
}

void af_api_run_resume(af_api *a, af_httpd_call *c, const json_t *body)
{
    (void)body;
    wish(a, c, WISH_RESUME);
}

void af_api_run_checkpoint(af_api *a, af_httpd_call *c, const json_t *body)
{
    (void)body;
    wish(a, c, WISH_CHECKPOINT);
}

void af_api_run_stop(af_api *a, af_httpd_call *c, const json_t *body)
{
    (void)body;
    wish(a, c, WISH_STOP);
}
