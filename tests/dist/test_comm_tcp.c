/* Ranks over TCP, as processes of this test. */
#define _GNU_SOURCE
#include "test.h"

#include "dist/rank_work.h"

#include "dist/rank_env.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { RANKS_MAX = 8 };
static int late_rank = -1;                   /* comes when it is let in */
static int reporting_rank = -1;              /* fails before it opens */
static const char *wrong_name, *wrong_value; /* a variable of rank 1 */

typedef int rank_main(af_comm *c, int rank, char *said, size_t size);

typedef struct ranks {
    int n, port;
    int stopped; /* waits for nobody, and is ended when the others are; -1 = none */
    double timeout;
    int come[2], gate[2]; /* pipes: a byte of each rank that has opened; closed: the late one may */
    pid_t pid[RANKS_MAX];
    int out[RANKS_MAX]; /* what each says at its end */
    int status[RANKS_MAX];
    double seconds[RANKS_MAX]; /* from `begun` to its end */
    char said[RANKS_MAX][1200];
    double begun;
} ranks;

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* What the program does when another rank is gone and it does not look. */
static void print_and_exit(void *user, const char *why)
{
    (void)!write(*(int *)user, why, strlen(why));
    _exit(1);
}

static void child(const ranks *s, int rank, int size, int port, int out, rank_main *work)
{
    af_comm *c = NULL;
    af_error err = {0};
    char said[1200] = "";
    set_number("RANK", rank);
    set_number("WORLD_SIZE", size);
    set_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("AFINAR_RUN_TOKEN", "token of the test", 1);
    if (wrong_name && rank == 1)
        setenv(wrong_name, wrong_value, 1);
    close(s->gate[1]);
    char byte = 0;
    if (rank == late_rank)
        (void)!read(s->gate[0], &byte, 1);
    const af_comm_opts o = {
        .backend = AF_COMM_TCP, .timeout = s->timeout, .lost = print_and_exit, .user = &out};
    int rc = 1;
    if (rank == reporting_rank) {
        af_comm_report("run.yaml: no such file");
        _exit(1);
    }
    if (af_comm_open(&c, &o, &err) != AF_OK)
        snprintf(said, sizeof said, "%s", err.msg);
    else if (write(s->come[1], &byte, 1) == 1)
        rc = work(c, rank, said, sizeof said);
    (void)!write(out, said, strlen(said));
    af_comm_close(c);
    _exit(rc);
}

static void begin(ranks *s, int n, double timeout, rank_main *work)
{
    const int port = free_port();
    *s =
        (ranks){.n = n, .port = port, .stopped = -1, .timeout = timeout, .begun = af_seconds_now()};
    assert_int_equal(pipe(s->come), 0);
    assert_int_equal(pipe(s->gate), 0);
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        int p[2];
        assert_int_equal(pipe(p), 0);
        s->pid[r] = fork();
        assert_true(s->pid[r] >= 0);
        if (s->pid[r] == 0) {
            close(p[0]);
            child(s, r, n, port, p[1], work);
        }
        close(p[1]);
        s->out[r] = p[0];
    }
}

static void let_in(ranks *s)
{
    if (s->gate[1] >= 0)
        close(s->gate[1]);
    s->gate[1] = -1;
}

static void finish(ranks *s)
{
    let_in(s);
    for (int left = s->n; left > 0;) {
        int status;
        if (left == 1 && s->stopped >= 0)
            kill(s->pid[s->stopped], SIGKILL);
        const pid_t pid = waitpid(-1, &status, 0);
        for (int r = 0; r < s->n; r++)
            if (s->pid[r] == pid) {
                s->status[r] = status;
                s->seconds[r] = af_seconds_now() - s->begun;
                left--;
            }
    }
    for (int r = 0; r < s->n; r++) {
        const ssize_t k = read(s->out[r], s->said[r], sizeof s->said[r] - 1);
        s->said[r][k > 0 ? k : 0] = '\0';
        close(s->out[r]);
    }
    close(s->come[0]);
    close(s->come[1]);
    close(s->gate[0]);
}

/* Every rank but `gone` ended with status 1 and said `text`. */
static void check_ended(const ranks *s, int gone, const char *text)
{
    for (int r = 0; r < s->n; r++) {
        if (r == gone)
            continue;
        CHECK_MSG(WIFEXITED(s->status[r]) && WEXITSTATUS(s->status[r]) == 1,
                  "rank %d: status %x, '%s'", r, s->status[r], s->said[r]);
        CHECK_MSG(strstr(s->said[r], text), "rank %d said '%s', not '%s'", r, s->said[r], text);
        CHECK_MSG(s->seconds[r] < 60, "rank %d ended after %.1f s", r, s->seconds[r]);
    }
}

/* ---- all is well ---- */

static int work_rounds(af_comm *c, int rank, char *said, size_t size)
{
    af_error err = {0};
    const char *wrong = rank_rounds(c, &err);
    if (!wrong && (af_comm_rank(c) != rank || af_comm_local_size(c) != af_comm_size(c)))
        wrong = "rank or local size";
    if (wrong)
        snprintf(said, size, "%s: %s", wrong, err.msg);
    return wrong != NULL;
}

static void test_collectives(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 8};
    for (size_t i = 0; i < AF_LEN(sizes); i++) {
        ranks s;
        begin(&s, sizes[i], 120, work_rounds);
        finish(&s);
        for (int r = 0; r < s.n; r++)
            CHECK_MSG(s.status[r] == 0, "%d ranks, rank %d: %s", s.n, r, s.said[r]);
    }
}

static void test_one_process(void **state)
{
    (void)state;
    uint8_t a[4] = "abc", b[4] = "";
    af_error err = {0};
    af_comm *c = (af_comm *)a;
    const af_comm_opts o = {0};
    unsetenv("RANK");
    CHECK_OK(af_comm_open(&c, &o, &err), err);
    assert_null(c);
    CHECK_OK(af_comm_all_gather(c, a, b, 4, &err), err);
    assert_string_equal((char *)b, "abc");
    CHECK_OK(af_comm_barrier(c, &err), err);
    CHECK_OK(af_comm_agree(c, "seed", a, 4, &err), err);
    assert_int_equal(af_comm_size(c), 1);
    af_comm_abort(c, "x");
    af_comm_close(c);
}

/* ---- disagreement and failure ---- */

static int work_agree(af_comm *c, int rank, char *said, size_t size)
{
    af_error err = {0};
    const char *seed = rank == 2 ? "43" : "42";
    if (af_comm_agree(c, "version", "1", 1, &err) != AF_OK)
        return 3;
    const af_status st = af_comm_agree(c, "seed", seed, 2, &err);
    snprintf(said, size, "%s", err.msg);
    return st == AF_EUSAGE ? 1 : 4;
}

static void test_disagreement_names_key_and_ranks(void **state)
{
    (void)state;
    ranks s;
    begin(&s, 4, 120, work_agree);
    finish(&s);
    check_ended(&s, -1, "seed differs: rank 0 has 42, rank 2 has 43");
}

static const char *say_error(af_comm *c, const af_error *err, char *said, size_t size)
{
    snprintf(said, size, "%s%s", err->msg, af_comm_failed(c) ? "" : " (own)");
    return said;
}

static int work_abort(af_comm *c, int rank, char *said, size_t size)
{
    af_error err = {0};
    if (rank == 1) {
        af_comm_abort(c, "no space left");
        return 1;
    }
    while (af_comm_barrier(c, &err) == AF_OK)
        continue;
    say_error(c, &err, said, size);
    return 1;
}

static int work_abort_none(af_comm *c, int rank, char *said, size_t size)
{
    return work_abort(c, rank == 1 ? 0 : rank, said, size);
}

static void test_what_a_rank_said_reaches_all(void **state)
{
    (void)state;
    ranks s;
    begin(&s, 4, 120, work_abort);
    finish(&s);
    check_ended(&s, 1, "rank 1: no space left");
}

static void test_a_failure_before_opening_reaches_all(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank += 2) {
        ranks s;
        reporting_rank = rank;
        begin(&s, 3, 120, work_abort_none);
        reporting_rank = -1;
        finish(&s);
        check_ended(&s, rank,
                    rank == 0 ? "rank 0: run.yaml: no such file"
                              : "rank 2: run.yaml: no such file");
    }
}

static int work_forever(af_comm *c, int rank, char *said, size_t size)
{
    af_error err = {0};
    int round = 0;
    (void)rank;
    while (!rank_round(c, 5000, round++ % 7, &err))
        continue;
    say_error(c, &err, said, size);
    return 1;
}

/* Computes and never looks. */
static int work_deaf(af_comm *c, int rank, char *said, size_t size)
{
    (void)c, (void)rank, (void)said, (void)size;
    for (int forever = 1; forever;)
        pause();
    return 0;
}

static void kill_one(rank_main *work, int n, int victim, int sig, double timeout, const char *text)
{
    ranks s;
    begin(&s, n, timeout, work);
    char byte;
    if (late_rank >= 0)
        sleep_ms(500); /* long enough to connect, and nobody opens before all have come */
    else
        for (int r = 0; r < n; r++)
            assert_int_equal(read(s.come[0], &byte, 1), 1);
    kill(s.pid[victim], sig);
    s.stopped = sig == SIGSTOP ? victim : -1;
    finish(&s);
    check_ended(&s, victim, text);
}

static void test_death_in_collectives(void **state)
{
    (void)state;
    kill_one(work_forever, 4, 2, SIGKILL, 120, "rank 2 is gone");
    kill_one(work_forever, 4, 0, SIGKILL, 120, "rank 0 is gone");
    kill_one(work_forever, 2, 1, SIGKILL, 120, "rank 1 is gone");
}

/* Rank 1 computes and computes; the others wait for it. */
static int work_hang(af_comm *c, int rank, char *said, size_t size)
{
    return rank == 1 ? work_deaf(c, rank, said, size) : work_forever(c, rank, said, size);
}

/* Rank 0 hangs, and has entered more collectives than the others: two with one of them alone. */
static int work_hang_ahead(af_comm *c, int rank, char *said, size_t size)
{
    af_error err = {0};
    char mine = 0, theirs = 0;
    for (int r = 1; r < 3; r++)
        if ((rank == 0 || rank == r) &&
            af_comm_swap(c, rank ? 0 : r, &mine, 1, &theirs, 1, &err) != AF_OK)
            return 2;
    return rank == 0 ? work_deaf(c, rank, said, size) : work_forever(c, rank, said, size);
}

static void test_a_rank_that_hangs_is_named(void **state)
{
    (void)state;
    ranks s;
    begin(&s, 3, 3, work_hang_ahead);
    finish(&s);
    check_ended(&s, 0, "rank 0 is gone (the others have waited for it for 3 seconds");
    begin(&s, 3, 3, work_hang);
    finish(&s);
    check_ended(&s, -1, "rank 1 is gone (the others have waited for it for 3 seconds");
}

static void test_a_stopped_rank_is_named(void **state)
{
    (void)state;
    kill_one(work_deaf, 2, 1, SIGSTOP, 3, "rank 1 is gone (silent for 3 seconds)");
    kill_one(work_deaf, 2, 0, SIGSTOP, 3, "rank 0 is gone (silent for 3 seconds)");
}

/* ---- strangers ---- */

static int port_of_run;

static int connect_stranger(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port_of_run)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int tries = 0; connect(fd, (struct sockaddr *)&a, sizeof a) != 0; tries++) {
        assert_true(tries < 3000);
        sleep_ms(10);
    }
    return fd;
}

/* Rank 1 comes late: strangers are there first. One is silent, one sends noise, one leaves. */
static void test_strangers_are_turned_away(void **state)
{
    (void)state;
    ranks s;
    late_rank = 1;
    begin(&s, 2, 120, work_rounds);
    late_rank = -1;
    port_of_run = s.port;
    const int silent = connect_stranger(), noise = connect_stranger(), leaves = connect_stranger();
    char bytes[400];
    memset(bytes, 'x', sizeof bytes);
    assert_true(send(noise, bytes, sizeof bytes, MSG_NOSIGNAL) > 0);
    close(leaves);
    finish(&s);
    close(silent);
    close(noise);
    for (int r = 0; r < s.n; r++)
        CHECK_MSG(s.status[r] == 0, "rank %d: %s", r, s.said[r]);
}

/* What rank 1 was started with is not what rank 0 was. */
static void start_wrong(const char *variable, const char *value, const char *rank0,
                        const char *rank1)
{
    ranks s;
    wrong_name = variable;
    wrong_value = value;
    begin(&s, 2, 3, work_rounds);
    wrong_name = NULL;
    finish(&s);
    CHECK_MSG(s.status[0] != 0 && strstr(s.said[0], rank0), "rank 0 said '%s'", s.said[0]);
    CHECK_MSG(s.status[1] != 0 && strstr(s.said[1], rank1), "rank 1 said '%s'", s.said[1]);
}

static void test_ranks_of_different_runs(void **state)
{
    (void)state;
    start_wrong("WORLD_SIZE", "3", "rank 1 was started as one of 3 ranks, rank 0 as one of 2",
                "rank 0 was started as one of another number of ranks than 3");
    start_wrong("AFINAR_RUN_TOKEN", "other",
                "rank 1 did not come in time (1 of 2 ranks are missing); connections with another "
                "run token were refused",
                "rank 0 refuses this process: it belongs to another run");
}

/* Rank 1 dies while rank 2 has not come yet: rank 2, too, hears who it was. */
static void test_death_before_all_have_come(void **state)
{
    (void)state;
    late_rank = 2;
    kill_one(work_forever, 3, 1, SIGKILL, 10, "rank 1 is gone");
    late_rank = -1;
}

static void test_death_while_others_compute(void **state)
{
    (void)state;
    kill_one(work_deaf, 3, 1, SIGKILL, 120, "rank 1 is gone");
}

/* test_comm_tcp kills N: kill -9 of a random rank at a random moment, the start included, N times.
 * AF_KILL_SEED repeats a run. */
static int kills;

static void test_random_kills(void **state)
{
    (void)state;
    const char *given = getenv("AF_KILL_SEED");
    const unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    double worst = 0;
    print_message("AF_KILL_SEED=%u\n", seed);
    srand(seed);
    for (int i = 0; i < kills; i++) {
        static const char *const names[] = {"rank 0 ", "rank 1 ", "rank 2 ", "rank 3 "};
        ranks s;
        const int n = 2 + rand() % 3, victim = rand() % n, ms = rand() % 1500;
        begin(&s, n, 10, rand() % 4 ? work_forever : work_deaf);
        sleep_ms(ms);
        kill(s.pid[victim], SIGKILL);
        s.begun = af_seconds_now();
        finish(&s);
        check_ended(&s, victim, names[victim]);
        for (int r = 0; r < n; r++)
            worst = s.seconds[r] > worst ? s.seconds[r] : worst;
    }
    print_message("%d kills: all ranks ended within %.2f s and named the one\n", kills, worst);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "kills") == 0) {
        kills = (int)strtol(argv[2], NULL, 10);
        const struct CMUnitTest long_test[] = {cmocka_unit_test(test_random_kills)};
        return cmocka_run_group_tests(long_test, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_one_process),
        cmocka_unit_test(test_disagreement_names_key_and_ranks),
        cmocka_unit_test(test_what_a_rank_said_reaches_all),
        cmocka_unit_test(test_a_failure_before_opening_reaches_all),
        cmocka_unit_test(test_death_in_collectives),
        cmocka_unit_test(test_death_before_all_have_come),
        cmocka_unit_test(test_death_while_others_compute),
        cmocka_unit_test(test_a_rank_that_hangs_is_named),
        cmocka_unit_test(test_a_stopped_rank_is_named),
        cmocka_unit_test(test_strangers_are_turned_away),
        cmocka_unit_test(test_ranks_of_different_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
