/* pool.h - the one place with threads for computing.
 *
 * af_pool_run splits `count` items into `threads` fixed, contiguous shares and runs them; share i
 * is always the same items for the same thread count, and kernels are written so that results do
 * not depend on the split. Workers spin briefly, then sleep, so that a stolen core costs little. */
#ifndef AF_POOL_H
#define AF_POOL_H

#include "base/base.h"

typedef struct af_pool af_pool;
/* Items [from, to) of the job; `share` is 0 .. threads-1. */
typedef void af_pool_job(void *arg, int64_t from, int64_t to, int share);

/* threads = 0: one for each core this process may use. */
AF_CHECKED af_status af_pool_new(af_pool **out, int threads, af_error *err);
void af_pool_free(af_pool *p);
int af_pool_threads(const af_pool *p); /* NULL counts as 1 */
/* Runs to completion. A NULL pool, one item, or one thread runs in the caller. Not reentrant. */
void af_pool_run(af_pool *p, int64_t count, af_pool_job *job, void *arg);
/* Cores this process may use. */
int af_cpu_count(void);
#endif
