/* serve_engine.h - the one thread that uses the decoder, and the queue before it.
 *
 * Other threads add tasks; the engine begins them in order, as many as its batch has space for,
 * runs decoder steps while any of them is unfinished, and lets each end itself. Nobody else calls
 * the decoder. An engine without a thread of its own works when af_serve_engine_work is called:
 * between the steps of a training run. */
#ifndef AF_SERVE_ENGINE_H
#define AF_SERVE_ENGINE_H

#include "afinar/decode.h"
#include "base/base.h"

typedef struct af_serve_engine af_serve_engine;
typedef struct af_serve_task af_serve_task;

/* Part of a larger struct, which the functions get. All are called by the engine's thread. */
struct af_serve_task {
    af_serve_task *next;
    int sequences; /* of the decoder's batch that it takes; 0: works at once */
    /* Begins: submits to the decoder, or does all of its work. */
    void (*begin)(af_serve_task *t, af_decoder *d);
    /* Called before every step: cancels what nobody waits for. True when all of it is done. */
    bool (*poll)(af_serve_task *t, af_decoder *d);
    /* Answers with an error now and cancels; the task is done when poll says so. */
    void (*fail)(af_serve_task *t, af_decoder *d, const af_error *why);
    /* Answers, unless that is done, and frees the task. */
    void (*end)(af_serve_task *t);
};

enum { AF_SERVE_QUEUE_MAX = 1024 };

/* `parallel` sequences are decoded in one batch. With `thread`, it works by itself. On success *out
 * is the caller's, and the decoder is the engine's. */
AF_CHECKED af_status af_serve_engine_open(af_serve_engine **out, af_decoder *d, int parallel,
                                          bool thread, af_error *err);
/* Fails all tasks that are not finished, and closes the decoder. NULL is allowed. */
void af_serve_engine_close(af_serve_engine *e);
/* Adds a task, which is the engine's then; false when it is closing (the task stays the caller's).
 */
bool af_serve_engine_add(af_serve_engine *e, af_serve_task *t);
/* Works for at most about `seconds`, as long as there is something to do. */
void af_serve_engine_work(af_serve_engine *e, double seconds);
/* `before` is called before a task begins, by the thread that works: what the task will use may
 * have changed since it was added. Without a thread of its own only. */
void af_serve_engine_before(af_serve_engine *e, void (*before)(void *user), void *user);
/* Waits until there is something to do, or `seconds` have passed. */
void af_serve_engine_wait(af_serve_engine *e, double seconds);
/* The decoder, for the thread that works. */
af_decoder *af_serve_engine_decoder(af_serve_engine *e);
/* Is there something to do? */
bool af_serve_engine_busy(af_serve_engine *e);
/* Tasks that have begun, and tasks that wait. */
int af_serve_engine_running(af_serve_engine *e);
int af_serve_engine_waiting(af_serve_engine *e);
#endif
