/* run_server.c - a server while a run trains: requests between two steps, the adapter of now. */
#include "serve/api/run_state.h"
#include "serve/server_state.h"

#include "base/file.h"
#include "base/log.h"
#include "base/temps.h"

void af_server_run_step(af_server *s, const af_train_step *row)
{
    af_run_state *r = s ? s->api.run : NULL;
    if (!r || !row)
        return;
    pthread_mutex_lock(&r->lock);
    r->step = row->step;
    r->steps = row->steps;
    if (row->loss == row->loss) /* not a row of an evaluation */
        r->last = *row;
    pthread_mutex_unlock(&r->lock);
    af_run_state_rows(r);
}

bool af_server_run_stopping(const af_server *s)
{
    return s && s->api.run && atomic_load(&s->api.run->stopping);
}

/* Adapters of earlier steps go when no request uses them. */
static void drop_stale(af_run_state *r, af_decoder *d)
{
    for (int i = 0; i < r->stales;) {
        if (af_decoder_remove_adapter(d, r->stale[i], NULL) == AF_OK)
            r->stale[i] = r->stale[--r->stales];
        else
            i++;
    }
}

/* Writes the adapter as it is now and reads it into the decoder. */
static af_status take_current(af_run_state *r, af_decoder *d, int *id, af_error *err)
{
    af_status st = AF_OK;
    af_temp *listed = NULL;
    char name[40], *dir = NULL, *inside = af_path_join(r->output_dir, AF_TEMP_NAME);
    if (!inside)
        AF_TRY(af_fail_nomem(err, "a path", strlen(r->output_dir)));
    snprintf(name, sizeof name, "current@%" PRId64, r->moment->step);
    AF_TRY(af_temp_dir_make(&dir, &listed, inside, err));
    AF_TRY(r->moment->write(r->moment->run, dir, err));
    st = af_decoder_add_adapter(d, name, dir, id, err);
done:
    af_temp_dir_remove(dir, listed);
    free(inside);
    return st;
}

/* Nobody gets other weights under its name, also those who found it before. */
static void end_current(af_api *a)
{
    af_run_state *r = a->run;
    af_served_unref(af_api_remove_model(a, r->current->name));
    atomic_store(&r->current->adapter, AF_SERVED_GONE);
    r->current_ended = true;
}

/* Before a request begins: BASE:current gets the weights of the last step. */
static void refresh(void *user)
{
    af_api *a = user;
    af_run_state *r = a->run;
    af_decoder *d = af_serve_engine_decoder(a->engine);
    af_error why = {0};
    int id = 0;
    if (!r->current || r->current_ended || r->current_step == r->step)
        return;
    drop_stale(r, d);
    if (r->stales == (int)AF_LEN(r->stale))
        return;
    if (!r->moment) { /* the run has ended, and these weights are not in memory any more */
        end_current(a);
        return;
    }
    if (take_current(r, d, &id, &why) != AF_OK) {
        af_log_write(AF_LOG_WARN, "%s is not served: %s", r->current->name, why.msg);
        end_current(a);
        return;
    }
    const int old = atomic_exchange(&r->current->adapter, id);
    if (r->current_step >= 0)
        r->stale[r->stales++] = old;
    r->current_step = r->moment->step;
}

void af_server_run_between(af_server *s, const af_train_moment *m, double seconds)
{
    af_run_state *r = s ? s->api.run : NULL;
    if (!r || !m)
        return;
    af_serve_engine *e = s->api.engine;
    const double until = af_seconds_now() + seconds;
    r->moment = m;
    pthread_mutex_lock(&r->lock);
    r->step = m->step;
    r->steps = m->steps;
    pthread_mutex_unlock(&r->lock);
    af_serve_engine_before(e, refresh, &s->api);
    drop_stale(r, af_serve_engine_decoder(e));
    for (;;) {
        if (af_serve_engine_busy(e))
            af_serve_engine_work(e, 0.05);
        pthread_mutex_lock(&r->lock);
        const bool paused = r->paused;
        pthread_mutex_unlock(&r->lock);
        if (m->stop(m->run) || (!paused && (!af_serve_engine_busy(e) || af_seconds_now() >= until)))
            break;
        if (paused)
            af_serve_engine_wait(e, 0.1);
    }
    r->moment = NULL;
}

void af_server_run_end(af_server *s, bool failed, double seconds)
{
    const double until = af_seconds_now() + seconds;
    if (!s || !s->api.run)
        return;
    af_run_state_end(s->api.run, failed);
    af_serve_engine_before(s->api.engine, refresh, &s->api);
    while (!af_httpd_drain(s->api.http, 0.02) && af_seconds_now() < until)
        af_serve_engine_work(s->api.engine, 0.1);
}
