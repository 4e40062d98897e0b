/* launcher.h - which process of how many this is, from the variables that mpirun, srun, torchrun
 * and job files set. Nothing is opened here. */
#ifndef AF_LAUNCHER_H
#define AF_LAUNCHER_H

#include "base/base.h"

enum { AF_RANKS_MAX = 4096, AF_LAUNCHER_TEXT = 256 };

typedef enum af_launcher_kind {
    AF_LAUNCHER_NONE,  /* one process */
    AF_LAUNCHER_TORCH, /* RANK, WORLD_SIZE, LOCAL_RANK */
    AF_LAUNCHER_OMPI,  /* Open MPI's mpirun: OMPI_COMM_WORLD_* */
    AF_LAUNCHER_PMI,   /* MPICH's and Intel's mpirun, srun --mpi=pmi2: PMI_RANK, PMI_SIZE */
    AF_LAUNCHER_SLURM, /* srun: SLURM_PROCID, SLURM_NTASKS */
} af_launcher_kind;

typedef struct af_launcher {
    af_launcher_kind kind;
    int rank, size, local_rank;     /* 0, 1, 0 for one process */
    bool mpi;                       /* it started the process for an MPI library */
    char address[AF_LAUNCHER_TEXT]; /* MASTER_ADDR; "" = not set */
    int port;                       /* MASTER_PORT, with torchrun the one after it; 0 = not set */
    char job[AF_LAUNCHER_TEXT]; /* equal in all processes of a run and in no other run; "" = unknown
                                 */
} af_launcher;

typedef const char *af_launcher_env(const char *name);

/* Reads the variables; the first launcher whose rank is set counts. A value that is not a number,
 * out of range, or missing next to its relatives is AF_EUSAGE and one sentence. */
AF_CHECKED af_status af_launcher_find(af_launcher *out, af_error *err);
/* The same from another source of variables, for tests. */
AF_CHECKED af_status af_launcher_find_in(af_launcher *out, af_launcher_env *env, af_error *err);
#endif
