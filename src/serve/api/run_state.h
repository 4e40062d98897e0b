/* run_state.h - what the server knows of a run that trains, and what clients want of it.
 *
 * Requests to pause, to go on, to write a checkpoint and to stop are tasks of the engine, so they
 * are done, and answered, between two steps. */
#ifndef AF_RUN_STATE_H
#define AF_RUN_STATE_H

#include "serve/api/api.h"

enum { AF_RUN_LISTENERS = 64 };

struct af_run_state {
    pthread_mutex_t lock;
    char *output_dir, *metrics_path;
    af_train_step last; /* of training */
    int64_t step, steps;
    bool paused;
    int ended; /* 1: done, 2: failed */
    atomic_bool stopping;
    af_httpd_call *listener[AF_RUN_LISTENERS]; /* of events */
    int listeners;
    uint64_t sent; /* bytes of metrics.jsonl */
    pthread_mutex_t data_lock;
    char *data; /* run_records.c: records as JSON, NULL = not asked for yet */
    /* of the thread that trains alone */
    const af_train_moment *moment; /* NULL while a step is computed */
    af_served *current;            /* BASE:current, or NULL */
    int64_t current_step;          /* whose weights it has; -1: none yet */
    bool current_ended;
    int stale[8]; /* adapters of earlier steps that requests still use */
    int stales;
};

AF_CHECKED af_status af_run_state_new(af_run_state **out, const af_train_start *s, af_error *err);
void af_run_state_free(af_run_state *r); /* NULL is allowed */
/* Sends new rows of metrics.jsonl to those who listen. */
void af_run_state_rows(af_run_state *r);
/* The listeners get no more. */
void af_run_state_end(af_run_state *r, bool failed);
#endif
