/* serve_engine.c - the queue of tasks and the loop around the decoder; see serve_engine.h. */
#include "serve/engine/serve_engine.h"

#include <pthread.h>
#include <time.h>

struct af_serve_engine {
    af_decoder *decoder;
    int parallel;
    bool has_thread, quit;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the queue, the counts and quit */
    pthread_cond_t changed;
    af_serve_task *first, **last;
    int running, waiting;
    af_serve_task *active; /* of the engine's thread alone */
    int sequences;         /* that the active ones take */
    void (*before)(void *user);
    void *user;
};

/* Takes the next task that fits; NULL when there is none. */
static af_serve_task *take(af_serve_engine *e)
{
    pthread_mutex_lock(&e->lock);
    af_serve_task *t = e->quit ? NULL : e->first;
    if (t && e->sequences > 0 && t->sequences + e->sequences > e->parallel)
        t = NULL; /* in order: a large task is not overtaken for ever */
    if (t) {
        e->first = t->next;
        if (!e->first)
            e->last = &e->first;
        e->waiting--;
        e->running++;
    }
    pthread_mutex_unlock(&e->lock);
    return t;
}

static void begin_tasks(af_serve_engine *e)
{
    af_serve_task *t;
    while ((t = take(e)) != NULL) {
        if (e->before)
            e->before(e->user);
        t->begin(t, e->decoder);
        t->next = e->active;
        e->active = t;
        e->sequences += t->sequences;
    }
}

/* Ends what is finished. */
static void end_tasks(af_serve_engine *e)
{
    for (af_serve_task **at = &e->active; *at;) {
        af_serve_task *t = *at;
        if (!t->poll(t, e->decoder)) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        e->sequences -= t->sequences;
        pthread_mutex_lock(&e->lock);
        e->running--; /* first: who has the answer must not be counted any more */
        pthread_mutex_unlock(&e->lock);
        t->end(t);
    }
}

static void fail_tasks(af_serve_engine *e, const af_error *why)
{
    for (af_serve_task *t = e->active; t; t = t->next)
        t->fail(t, e->decoder, why);
}

/* One turn; false when nothing is left to do. */
static bool turn(af_serve_engine *e)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    af_error err = {0};
    int64_t left = 0;
    begin_tasks(e);
    end_tasks(e);
    if (!e->active)
        return af_serve_engine_waiting(e) > 0;
    if (af_decoder_step(e->decoder, &left, &err) != AF_OK) {
        fail_tasks(e, &err);
        nanosleep(&pause, NULL); /* a device that is gone fails at once, every time */
    }
    end_tasks(e);
    return true;
}

static void *loop(void *arg)
{
    af_serve_engine *e = arg;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        while (!e->quit && !e->first && !e->active)
            pthread_cond_wait(&e->changed, &e->lock);
        const bool quit = e->quit;
        pthread_mutex_unlock(&e->lock);
        if (quit)
            return NULL;
        (void)turn(e);
    }
}

void af_serve_engine_work(af_serve_engine *e, double seconds)
{
    const double until = af_seconds_now() + seconds;
    while (turn(e) && af_seconds_now() < until)
        ;
}

void af_serve_engine_before(af_serve_engine *e, void (*before)(void *user), void *user)
{
    e->before = before;
    e->user = user;
}

af_decoder *af_serve_engine_decoder(af_serve_engine *e) { return e->decoder; }

void af_serve_engine_wait(af_serve_engine *e, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double at = (double)until.tv_sec + (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec = (time_t)at;
    until.tv_nsec = (long)((at - (double)until.tv_sec) * 1e9);
    pthread_mutex_lock(&e->lock);
    int code = 0;
    while (!e->quit && !e->first && !e->active && code == 0)
        code = pthread_cond_timedwait(&e->changed, &e->lock, &until);
    pthread_mutex_unlock(&e->lock);
}

bool af_serve_engine_add(af_serve_engine *e, af_serve_task *t)
{
    pthread_mutex_lock(&e->lock);
    const bool ok = !e->quit;
    if (ok) {
        t->next = NULL;
        *e->last = t;
        e->last = &t->next;
        e->waiting++;
        pthread_cond_signal(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return ok;
}

int af_serve_engine_running(af_serve_engine *e)
{
    pthread_mutex_lock(&e->lock);
    const int n = e->running;
    pthread_mutex_unlock(&e->lock);
    return n;
}

int af_serve_engine_waiting(af_serve_engine *e)
{
    pthread_mutex_lock(&e->lock);
    const int n = e->waiting;
    pthread_mutex_unlock(&e->lock);
    return n;
}

bool af_serve_engine_busy(af_serve_engine *e)
{
    pthread_mutex_lock(&e->lock);
    const bool busy = e->waiting + e->running > 0;
    pthread_mutex_unlock(&e->lock);
    return busy;
}

af_status af_serve_engine_open(af_serve_engine **out, af_decoder *d, int parallel, bool thread,
                               af_error *err)
{
    af_serve_engine *e = af_calloc(1, sizeof *e);
    if (!e)
        return af_fail_nomem(err, "the engine", sizeof *e);
    e->decoder = d;
    e->parallel = parallel;
    e->last = &e->first;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t steady; /* a clock that somebody sets must not make a wait longer */
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&e->changed, &steady);
    pthread_condattr_destroy(&steady);
    const int code = thread ? pthread_create(&e->thread, NULL, loop, e) : 0;
    if (code) {
        e->decoder = NULL; /* stays the caller's */
        af_serve_engine_close(e);
        return af_fail(err, AF_ENOMEM,
                       "cannot start a thread: not enough memory, or too many threads");
    }
    e->has_thread = thread;
    *out = e;
    return AF_OK;
}

void af_serve_engine_close(af_serve_engine *e)
{
    if (!e)
        return;
    af_error why = {0};
    (void)!af_fail(&why, AF_ESTOPPED, "the server is shutting down");
    pthread_mutex_lock(&e->lock);
    e->quit = true;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
    if (e->has_thread)
        pthread_join(e->thread, NULL);
    fail_tasks(e, &why);
    af_decoder_close(e->decoder); /* its last calls: nothing refers to the tasks afterwards */
    for (af_serve_task *t = e->active, *next; t; t = next) {
        next = t->next;
        t->end(t);
    }
    for (af_serve_task *t = e->first, *next; t; t = next) {
        next = t->next;
        t->fail(t, NULL, &why);
        t->end(t);
    }
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
