/* rendezvous.h - how the processes of a run find each other: rank 0 listens, the others come.
 *
 * Each rank r > 0 makes one connection per channel to rank 0. When all are there rank 0 sends the
 * list of places, or the reason why the run cannot start. Strangers (port scanners, another run)
 * are turned away and cost nothing but their connection. */
#ifndef AF_RENDEZVOUS_H
#define AF_RENDEZVOUS_H

#include "dist/wire.h"

typedef struct af_rendezvous {
    int rank, size;
    af_token token;
    double deadline; /* af_seconds_now */
    bool wants[AF_CHANNELS];
    int *fd[AF_CHANNELS];   /* [size], -1 = no connection; owned */
    af_rank_address *place; /* [size] where each listens for the others; owned */
    int strangers;          /* turned away so far */
    const af_comm *watched; /* whose failure or stop ends a wait; or NULL */
} af_rendezvous;

AF_CHECKED af_status af_rendezvous_init(af_rendezvous *m, const af_launcher *l, double timeout,
                                        af_error *err);
/* Closes what is still in fd. */
void af_rendezvous_clear(af_rendezvous *m);

/* Takes connections until every rank above m->rank has one on each wanted channel. */
AF_CHECKED af_status af_rendezvous_accept(af_rendezvous *m, int listener, af_error *err);
/* After accept on rank 0: the places, or (reason != NULL) why the run cannot begin. */
AF_CHECKED af_status af_rendezvous_begin(af_rendezvous *m, const af_error *reason, af_error *err);
/* The run cannot begin: tells those who are here, and those who come within the next seconds. */
void af_rendezvous_cancel(af_rendezvous *m, int listener, const af_error *reason);
/* Connects one channel with rank `peer`; `port` is where this process listens. `attempt` makes one
 * attempt to connect and is asked again until the deadline: the peer may not be there yet. */
typedef int af_rendezvous_open(void *user, double seconds);
AF_CHECKED af_status af_rendezvous_join(af_rendezvous *m, af_channel ch, int peer, int port,
                                        af_rendezvous_open *attempt, void *user, af_error *err);
/* On ranks above 0, when all channels are joined: waits for the places. */
AF_CHECKED af_status af_rendezvous_wait(af_rendezvous *m, af_error *err);
#endif
