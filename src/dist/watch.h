/* watch.h - a thread per rank that notices when another one dies, hangs or fails.
 *
 * Every rank holds one connection to rank 0, apart from the data. Rank 0 decides, so that all ranks
 * name the same one: the first whose connection ended without a goodbye, that said why it fails, or
 * that all others wait for since the timeout. It sends the sentence to everybody. Rank 0 itself is
 * judged by each: its connection ends, or it is silent. */
#ifndef AF_WATCH_H
#define AF_WATCH_H

#include "dist/wire.h"

/* Starts the thread of c. fd [size]: the connections of the watch channel, all on rank 0, the one
 * to rank 0 elsewhere; they are taken over (set to -1). */
AF_CHECKED af_status af_watch_start(af_comm *c, int *fd, af_error *err);
/* The sentence of the first failure; NULL while all is well. Valid until af_watch_stop. */
const char *af_watch_failure(af_watch *w);
/* Waits until there is one, at most `seconds`. */
const char *af_watch_await(af_watch *w, double seconds);
/* Has a failure been reported that is not the abort of this rank? */
bool af_watch_lost(const af_watch *w);
/* Tells the others why this rank fails, unless another one went first. */
void af_watch_abort(af_watch *w, const char *why);
/* Ends the thread; goodbye: this rank leaves in order. NULL is allowed. */
void af_watch_stop(af_watch *w, bool goodbye);
#endif
