/* mpi_library.h - an MPI library opened at run time, of either ABI.
 *
 * Open MPI's handles are addresses of objects in the library (ompi_mpi_comm_world), those of MPICH
 * and its relatives (Intel MPI, MVAPICH, Cray: libmpi.so.12) are integers with fixed values. Nine
 * functions are enough, so each is declared for both and called through one of the two: no header,
 * no shim and no second binary (docs/decisions/0048). */
#ifndef AF_MPI_LIBRARY_H
#define AF_MPI_LIBRARY_H

#include "dist/launcher.h"

typedef struct af_mpi af_mpi;

/* A request of either ABI. */
typedef union af_mpi_request {
    int number;
    void *object;
} af_mpi_request;

/* Opens the library the launcher belongs to and initialises it. $AFINAR_MPI_LIB names another file.
 * AF_EUNSUPPORTED when there is none: the sentence says what was looked for. */
AF_CHECKED af_status af_mpi_library_open(af_mpi **out, const af_launcher *l, af_error *err);
/* finalize: every rank is here. The library stays in memory: unloading one is not safe. */
void af_mpi_library_close(af_mpi *m, bool finalize);
/* The first line of MPI_Get_library_version. */
const char *af_mpi_library_name(const af_mpi *m);

/* Begin to send or receive at most INT_MAX bytes. */
bool af_mpi_send(af_mpi *m, const void *from, int bytes, int to, af_mpi_request *r);
bool af_mpi_receive(af_mpi *m, void *to, int bytes, int from, af_mpi_request *r);
/* *done, and how many bytes came (where it was a receive). False: MPI reports an error. */
bool af_mpi_test(af_mpi *m, af_mpi_request *r, bool *done, int *bytes);
#endif
