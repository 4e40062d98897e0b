/* wire.h - what a communicator is made of: the launcher's answer, one wire (TCP or MPI) and the
 * watch. Internal to src/dist. */
#ifndef AF_WIRE_H
#define AF_WIRE_H

#include "dist/comm.h"
#include "dist/handshake.h"
#include "dist/launcher.h"

#include <stdatomic.h>

typedef struct af_watch af_watch;

/* One message each way at the same time; to or from is -1 where there is none. */
typedef struct af_transfer {
    int to, from;
    const void *send;
    void *recv;
    uint64_t send_bytes, recv_bytes;
} af_transfer;

typedef struct af_wire {
    AF_CHECKED af_status (*transfer)(af_comm *c, const af_transfer *t, af_error *err);
    /* orderly: every rank is here; else the others may be gone. */
    void (*close)(af_comm *c, bool orderly);
} af_wire;

struct af_comm {
    af_launcher launcher;
    af_comm_opts opts;
    int local_size;
    bool nccl;
    char name[128];
    const af_wire *wire;
    void *wire_state;
    af_watch *watch;
    uint64_t bytes;
    /* Read by the watch: collectives entered, progress inside them, and is this rank in one now. */
    atomic_uint_fast64_t entered, moved;
    atomic_bool inside;
};

AF_CHECKED af_status af_tcp_open(af_comm *c, af_error *err);
AF_CHECKED af_status af_mpi_open(af_comm *c, af_error *err);

/* Fails when the watch knows of a rank that failed; with its sentence. */
AF_CHECKED af_status af_comm_check(const af_comm *c, af_error *err);
/* The connection with `peer` broke: the sentence of the watch, which knows who went first, else one
 * of its own. Never AF_OK. */
af_status af_comm_lost(const af_comm *c, int peer, const char *what, af_error *err);
#endif
