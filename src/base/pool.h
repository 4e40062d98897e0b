/* pool.h - the one place with threads for computing.
 *
 * af_pool_run cuts `count` items into `threads` contiguous shares. A thread begins with the first
 * half of its own share, continues with small pieces of it, and then takes pieces of the others'
 * shares: cores are not alike (a neighbour, a slow kind of core), and a thread that sleeps is not
 * waited for. So a job may be called several times with the same `share`, and who gets which items
 * changes from run to run: results must not depend on it, and workspaces go by share. Workers spin
 * for a while, then sleep. */
#ifndef AF_POOL_H
#define AF_POOL_H

#include "base/base.h"

typedef struct af_pool af_pool;
/* Items [from, to) of the job; `share` is 0 .. threads-1: the thread number; no other thread has it
 * now. */
typedef void af_pool_job(void *arg, int64_t from, int64_t to, int share);

/* threads = 0: one for each core this process may use. */
AF_CHECKED af_status af_pool_new(af_pool **out, int threads, af_error *err);
void af_pool_free(af_pool *p);
int af_pool_threads(const af_pool *p); /* NULL counts as 1 */
/* Runs to completion. A NULL pool, one item, or one thread runs in the caller. Not reentrant. */
void af_pool_run(af_pool *p, int64_t count, af_pool_job *job, void *arg);
/* The same for jobs to which a call costs something: no piece is smaller than `least` items (but
 * the last of a share). */
void af_pool_run_least(af_pool *p, int64_t count, int64_t least, af_pool_job *job, void *arg);
/* For tests: the caller has the last number in place of 0, so that workspaces of other numbers are
 * used however late the workers come. */
void af_pool_caller_last(af_pool *p);
/* Cores this process may use. */
int af_cpu_count(void);
#endif
