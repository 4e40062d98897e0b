/* launcher.c - one table of variables, read in order. */
#include "dist/launcher.h"

#include <errno.h>

typedef struct row {
    af_launcher_kind kind;
    const char *rank, *size, *local, *job;
    const char *step; /* must be a number, else the row does not count */
    bool mpi;
} row;

/* The order is the contract: a launcher inside another one sets the variables that come first. */
static const row rows[] = {
    {AF_LAUNCHER_TORCH, "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", NULL, false},
    {AF_LAUNCHER_OMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "PMIX_NAMESPACE", NULL, true},
    {AF_LAUNCHER_PMI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_JOBID", NULL, true},
    {AF_LAUNCHER_SLURM, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID",
     "SLURM_STEP_ID", false},
};

static bool number(const char *text, int64_t low, int64_t high, int *out)
{
    char *end = NULL;
    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (errno || *end || v < low || v > high)
        return false;
    *out = (int)v;
    return true;
}

static bool copy_text(char out[AF_LAUNCHER_TEXT], const char *text)
{
    return (size_t)snprintf(out, AF_LAUNCHER_TEXT, "%s", text ? text : "") < AF_LAUNCHER_TEXT;
}

static const char *set_value(af_launcher_env *env, const char *name)
{
    const char *v = env(name);
    return v && v[0] ? v : NULL;
}

static af_status read_row(af_launcher *l, const row *r, af_launcher_env *env, af_error *err)
{
    const char *rank = set_value(env, r->rank), *size = set_value(env, r->size),
               *local = set_value(env, r->local);
    if (!size)
        return af_fail(err, AF_EUSAGE, "%s is set, %s is not: set both or neither", r->rank,
                       r->size);
    if (!number(size, 1, AF_RANKS_MAX, &l->size))
        return af_fail(err, AF_EUSAGE, "%s is '%.40s'; expected a number from 1 to %d", r->size,
                       size, AF_RANKS_MAX);
    if (!number(rank, 0, l->size - 1, &l->rank))
        return af_fail(err, AF_EUSAGE, "%s is '%.40s'; expected a number from 0 to %d (%s is %d)",
                       r->rank, rank, l->size - 1, r->size, l->size);
    if (local && !number(local, 0, l->size - 1, &l->local_rank))
        return af_fail(err, AF_EUSAGE, "%s is '%.40s'; expected a number from 0 to %d (%s is %d)",
                       r->local, local, l->size - 1, r->size, l->size);
    if (!local)
        l->local_rank = l->rank;
    return AF_OK;
}

/* srun --mpi=pmix or pmi2 serves MPI libraries, a plain srun does not. */
static bool slurm_serves_mpi(af_launcher_env *env)
{
    return set_value(env, "PMIX_RANK") || set_value(env, "PMI_RANK");
}

static af_status read_master(af_launcher *l, af_launcher_env *env, af_error *err)
{
    const char *port = set_value(env, "MASTER_PORT");
    if (!copy_text(l->address, set_value(env, "MASTER_ADDR")))
        return af_fail(err, AF_EUSAGE, "MASTER_ADDR is longer than %d characters",
                       AF_LAUNCHER_TEXT - 1);
    if (port && !number(port, 1, 65535, &l->port))
        return af_fail(err, AF_EUSAGE, "MASTER_PORT is '%.40s'; expected a number from 1 to 65535",
                       port);
    const char *agent = set_value(env, "TORCHELASTIC_USE_AGENT_STORE");
    if (port && agent && strcmp(agent, "True") == 0) /* torchrun itself listens there */
        l->port += l->port < 65535 ? 1 : -1;
    return AF_OK;
}

/* Each of several processes whose RANK was forgotten would compute the whole run. */
static af_status check_alone(af_launcher_env *env, af_error *err)
{
    const char *size = set_value(env, "WORLD_SIZE");
    return !size || strcmp(size, "1") == 0
               ? AF_OK
               : af_fail(err, AF_EUSAGE,
                         "WORLD_SIZE is '%.40s', RANK is not set: set both or neither", size);
}

af_status af_launcher_find_in(af_launcher *out, af_launcher_env *env, af_error *err)
{
    af_launcher l = {.size = 1};
    af_status st = AF_OK;
    int step = 0;
    for (size_t i = 0; i < AF_LEN(rows) && l.kind == AF_LAUNCHER_NONE; i++) {
        const row *r = &rows[i];
        if (!set_value(env, r->rank) || (r->step && !number(env(r->step), 0, INT32_MAX, &step)))
            continue;
        AF_TRY(read_row(&l, r, env, err));
        l.kind = r->kind;
        l.mpi = r->mpi || (r->kind == AF_LAUNCHER_SLURM && slurm_serves_mpi(env));
        const char *job = set_value(env, r->job);
        if (job)
            snprintf(l.job, sizeof l.job, "%.200s.%d", job, step);
    }
    if (l.kind == AF_LAUNCHER_NONE)
        AF_TRY(check_alone(env, err));
    if (l.size > 1)
        AF_TRY(read_master(&l, env, err));
    *out = l;
done:
    return st;
}

static const char *of_process(const char *name) { return getenv(name); }

af_status af_launcher_find(af_launcher *out, af_error *err)
{
    return af_launcher_find_in(out, of_process, err);
}
