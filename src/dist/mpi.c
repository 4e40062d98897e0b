/* mpi.c - MPI as a wire: not yet. */
#include "dist/wire.h"

af_status af_mpi_open(af_comm *c, af_error *err)
{
    (void)c;
    return af_fail_subject(err, AF_EUNSUPPORTED, "dist_backend",
                           "MPI is not supported yet: use dist_backend: tcp");
}
