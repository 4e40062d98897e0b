/* Ranks over MPI: this program starts itself under the mpirun of each library that is installed. */
#define _GNU_SOURCE
#include "test.h"

#include "dist/rank_work.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

typedef struct library {
    const char *launcher, *options, *name;
    const char *patient; /* leave the other ranks alone when one is gone */
    int aborted, killed; /* how many of the two other ranks live long enough to say why */
} library;

static const library openmpi = {
    "mpirun.openmpi", "--allow-run-as-root --oversubscribe", "Open MPI", "--enable-recovery", 2, 2};
static const library mpich = {"mpirun.mpich", "", "MPICH", "-disable-auto-cleanup", 1, 0};
static const char *self;

/* mpirun may end before it has passed on what a rank printed: ranks say it in files. */
static char folder[64];

static void says(int rank, const char *what)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%d", getenv("AF_TEST_SAYS"), rank);
    FILE *f = fopen(path, "w");
    if (f) {
        fputs(what, f);
        fclose(f);
    }
}

/* ---- a rank ---- */

static void print_and_exit(void *user, const char *why)
{
    says(*(int *)user, why);
    _exit(1);
}

static int rank_fails(af_comm *c, const char *how)
{
    af_error err = {0};
    const int rank = af_comm_rank(c);
    for (int round = 0;; round++) {
        if (rank == 1 && round == 20 && strcmp(how, "kill") == 0)
            raise(SIGKILL);
        if (rank == 1 && round == 20 && strcmp(how, "abort") == 0) {
            af_comm_abort(c, "no space left");
            return 1;
        }
        if (rank_round(c, 5000, round % 7, &err))
            break;
    }
    says(rank, err.msg);
    return 1;
}

static const char *large_message(af_comm *c, af_error *err)
{
    const uint64_t n = (UINT64_C(64) << 20) + 5;
    uint8_t *p = calloc(n, 1);
    if (p && af_comm_rank(c) == 0)
        memset(p, 7, n);
    const bool ok = p && af_comm_broadcast(c, p, n, 0, err) == AF_OK && p[0] == 7 && p[n - 1] == 7;
    free(p);
    return ok ? NULL : "large broadcast";
}

static int run_rank(const char *how)
{
    af_comm *c = NULL;
    af_error err = {0};
    int rank = 0;
    const af_comm_opts o = {.timeout = 30, .lost = print_and_exit, .user = &rank};
    if (af_comm_open(&c, &o, &err) != AF_OK) {
        dprintf(2, "cannot open: %s\n", err.msg);
        return 3;
    }
    rank = af_comm_rank(c);
    int rc = 0;
    if (strcmp(how, "rounds") == 0) {
        const char *wrong = rank_rounds(c, &err);
        /* more than one chunk of a message */
        if (!wrong && af_comm_size(c) == 2)
            wrong = large_message(c, &err);
        if (wrong)
            dprintf(2, "%s: %s\n", wrong, err.msg);
        if (af_comm_rank(c) == 0)
            printf("by %s\n", af_comm_name(c));
        rc = wrong != NULL;
    } else {
        rc = rank_fails(c, how);
    }
    af_comm_close(c);
    return rc;
}

/* ---- the test ---- */

static int start(const library *l, const char *option, int n, const char *how, char *out,
                 size_t size)
{
    char command[1024];
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 timeout 300 %s %s %s -n %d %s %s 2>&1", l->launcher,
             l->options, option, n, self, how);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t got = fread(out, 1, size - 1, f);
    out[got] = '\0';
    while (fgetc(f) != EOF)
        continue;
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static bool is_there(const library *l)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", l->launcher);
    return system(command) == 0;
}

/* What ranks 0 and 2 said last time; "" = nothing. */
static void read_say(int rank, char out[1200])
{
    char path[128];
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(out, 1, 1199, f) : 0;
    out[n] = '\0';
    if (f)
        fclose(f);
    unlink(path);
}

/* At least `least` of ranks 0 and 2 said why, and neither said anything else. */
static void check_say(const char *why, int least)
{
    int n = 0;
    for (int rank = 0; rank <= 2; rank += 2) {
        char said[1200];
        /* mpirun may end before they do */
        for (int tries = 0; read_say(rank, said), !said[0] && n < least && tries < 1000; tries++)
            nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        CHECK_MSG(!said[0] || strstr(said, why), "rank %d said '%s', not '%s'", rank, said, why);
        n += said[0] != 0;
    }
    CHECK_MSG(n >= least, "%d ranks said '%s', not %d", n, why, least);
}

static void check_library(const library *l)
{
    char out[8192];
    for (int n = 2; n <= 4; n += 2) { /* 2: with a large message */
        const int rc = start(l, "", n, "rounds", out, sizeof out);
        CHECK_MSG(rc == 0 && strstr(out, l->name), "%d ranks of %s: %d, %s", n, l->name, rc, out);
    }
    int rc = start(l, l->patient, 3, "abort", out, sizeof out);
    CHECK_MSG(rc != 124, "%s", out); /* with this option mpirun itself ends with 0 */
    check_say("rank 1: no space left", l->aborted);
    rc = start(l, l->patient, 3, "kill", out, sizeof out);
    CHECK_MSG(rc != 124, "%d, %s", rc, out);
    check_say("rank 1 is gone", l->killed);
}

static void test_openmpi(void **state)
{
    (void)state;
    if (!is_there(&openmpi))
        skip_because("mpirun.openmpi (Open MPI) is not installed");
    check_library(&openmpi);
}

static void test_mpich(void **state)
{
    (void)state;
    if (!is_there(&mpich))
        skip_because("mpirun.mpich (MPICH) is not installed");
    check_library(&mpich);
}

int main(int argc, char **argv)
{
    self = argv[0];
    signal(SIGUSR1, SIG_IGN); /* how MPICH tells the others when it leaves them alone */
    if (argc > 1)
        return run_rank(argv[1]);
    snprintf(folder, sizeof folder, "/tmp/afinar-mpi-XXXXXX");
    if (!mkdtemp(folder) || setenv("AF_TEST_SAYS", folder, 1) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openmpi),
        cmocka_unit_test(test_mpich),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return rc;
}
