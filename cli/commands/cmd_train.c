/* cmd_train.c - `afinar train RUN.yaml [key=value ...]`. */
#define _POSIX_C_SOURCE 200809L
#include "commands/commands.h"
#include "commands/model_opts.h"
#include "term/progress.h"

#include "afinar/serve.h"
#include "afinar/train.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_requested, quiet; /* the signal that asked for it, or 0 */
static volatile double stop_time;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The first Ctrl-C requests a checkpoint and a clean exit; the second kills the process. Other
 * signals may come from a launcher and from the scheduler at about the same time: one request.
 * Warnings of a limit are repeated (SIGXCPU with every second that the process computes): they
 * never kill it. */
static void on_interrupt(int sig)
{
    static const char text[] =
        "\nsaving a checkpoint and stopping; press Ctrl-C again to quit now\n";
    static const double together = 0.3;
    const bool warns = sig == SIGXCPU || sig == SIGUSR1 || sig == SIGUSR2;
    if (stop_requested && (warns || (sig != SIGINT && seconds_now() < stop_time + together)))
        return;
    if (stop_requested) {
        signal(sig, SIG_DFL);
        raise(sig); /* delivered after this handler returns */
        return;
    }
    stop_time = seconds_now();
    stop_requested = sig;
    const int saved = errno; /* of the interrupted call */
    if (!quiet)
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
    errno = saved;
}

/* The progress line, which the hooks of progress.h get, and the server that shows the run. */
typedef struct train_session {
    af_progress_line line; /* first */
    af_server *server;
    const char *api_key;
    bool json, verbose;
    char host[256];
    double began; /* the last step */
} train_session;

static bool wants_stop(void *user)
{
    const train_session *s = user;
    return stop_requested != 0 || (s->server && af_server_run_stopping(s->server));
}

static void on_step(void *user, const af_train_step *row)
{
    train_session *s = user;
    af_progress_step(&s->line, row);
    if (s->server)
        af_server_run_step(s->server, row);
}

static void log_request(void *user, const char *method, const char *path, int status,
                        double seconds)
{
    (void)user;
    fprintf(stderr, "%.10s %.200s %d %.3f s\n", method, path, status, seconds);
}

/* Opens the server when the run is about to begin. */
static af_status on_start(void *user, const af_train_start *start, af_error *err)
{
    train_session *s = user;
    if (start->serve_port < 0)
        return AF_OK;
    snprintf(s->host, sizeof s->host, "%s", start->serve_host);
    af_serve_opts o = {.host = s->host,
                       .port = start->serve_port,
                       .api_keys = s->api_key ? s->api_key : getenv("AFINAR_API_KEY"),
                       .run = start,
                       .log = s->verbose ? log_request : NULL};
    o.model = (af_model_opts){.device = start->device,
                              .threads = start->threads,
                              .compute = start->compute,
                              .load_in_4bit = start->load_in_4bit,
                              .few_tokens = true};
    const af_status st = af_server_open(&s->server, start->base_model, &o, err);
    if (st == AF_OK)
        af_cli_announce(s->server, s->json);
    s->began = seconds_now();
    return st;
}

/* Requests get at most as much time as the last step took. */
static void on_between(void *user, const af_train_moment *m)
{
    train_session *s = user;
    const double took = seconds_now() - s->began;
    if (s->server)
        af_server_run_between(s->server, m, took > 0.1 ? took : 0.1);
    s->began = seconds_now();
}

/* Another rank is gone, and this one waits for it or computes. */
static void end_lost(void *user, const char *why)
{
    (void)user;
    fprintf(stderr, "afinar: %s\n", why);
    _exit(1);
}

static void install_handlers(void)
{
    /* the terminal was closed, or a scheduler warns of the time limit; ignored under nohup */
    static const int warnings[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
    struct sigaction a = {.sa_handler = on_interrupt}, old;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    for (size_t i = 0; i < sizeof warnings / sizeof warnings[0]; i++)
        if (sigaction(warnings[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(warnings[i], &a, NULL);
    signal(SIGPIPE, SIG_IGN); /* the run continues when the reader of its output exits */
}

static void report_json(const af_train_result *r)
{
    printf("{\"steps\": %lld, \"first_loss\": ", (long long)r->steps);
    af_print_number(stdout, r->first_loss);
    printf(", \"last_loss\": ");
    af_print_number(stdout, r->last_loss);
    printf(", \"best_eval_loss\": ");
    af_print_number(stdout, r->best_eval_loss);
    printf(", \"stopped\": %s, \"nothing_to_do\": %s", r->stopped ? "true" : "false",
           r->nothing_to_do ? "true" : "false");
    if (*r->resume) {
        printf(", \"resume\": ");
        af_cli_json_message(r->resume);
    }
    printf("}\n");
}

/* How the run ended, for people; the exit code. A stop is not a success: `train && merge` must not
 * go on with half a run. The code is the shell's for the signal: 130 after Ctrl-C, 143 after
 * SIGTERM. */
static int report_end(af_status st, const af_train_result *r, const af_error *err, bool is_quiet)
{
    int code = AF_EXIT_OK;
    if (st == AF_ESTOPPED) {
        fprintf(stderr, "afinar train: %s\n", err->msg);
        code = 128 + (stop_requested ? stop_requested : SIGINT);
    } else if (st != AF_OK) {
        code = af_report("train", err);
    }
    if (*r->resume && !is_quiet)
        fprintf(stderr, "resume with: %s\n", r->resume);
    if (r->nothing_to_do && !is_quiet)
        fprintf(stderr, "afinar train: the run is already complete; nothing to do\n");
    return code;
}

/* One of several processes: only why it failed. */
static int rank_end(af_status st, const af_train_result *r, const af_error *err)
{
    if (st == AF_ESTOPPED)
        return 128 + (stop_requested ? stop_requested : SIGINT);
    return st == AF_OK ? AF_EXIT_OK
                       : af_cli_error(r->ranks_differ ? AF_EXIT_USAGE : AF_EXIT_FAILED, NULL, "%s",
                                      err->msg);
}

static void print_keys(void)
{
    char *keys = NULL;
    if (af_train_help(&keys, NULL) == AF_OK)
        printf("\nrun file keys [default]:\n%s", keys);
    else
        af_cli_note_memory();
    free(keys);
}

enum { ARGS_MAX = 120, ARGS_MORE = 6 };

/* The command line: options become overrides of the run file. */
typedef struct train_args {
    const char *arg[ARGS_MAX + ARGS_MORE];
    int count;
    af_common common;
    bool force, strict;
    const char *serve, *serve_host, *api_key;
    char text[ARGS_MORE][300];
} train_args;

static void override(train_args *a, const char *key, const char *value)
{
    char *text = a->text[a->count % ARGS_MORE]; /* at most ARGS_MORE in a row */
    snprintf(text, sizeof a->text[0], "%s=%s", key, value);
    a->arg[a->count++] = text;
}

static af_parsed parse(train_args *a, int argc, char **argv)
{
    const af_opt opts[] = {
        {0, "force", AF_OPT_FLAG, &a->force, NULL,
         "replace the files of an earlier run in output_dir; other files are kept"},
        {0, "strict", AF_OPT_FLAG, &a->strict, NULL, "refuse keys of the file that have no effect"},
        {0, "serve", AF_OPT_STR, &a->serve, "PORT",
         "show the run on a page and serve the model while it trains (key serve_port)"},
        {0, "serve-host", AF_OPT_STR, &a->serve_host, "HOST",
         "address to listen on (key serve_host) [127.0.0.1]"},
        {0, "api-key", AF_OPT_STR, &a->api_key, "KEY",
         "key that requests must have (also AFINAR_API_KEY)"},
        {0},
    };
    const af_usage usage = {"train",
                            "Trains a model from a run file (- = stdin). Every key of the run file "
                            "can be given\nas key=value; it then overrides the file.",
                            "RUN.yaml [key=value ...]",
                            opts,
                            1,
                            ARGS_MAX,
                            print_keys};
    const af_parsed p = af_opts_parse(&usage, &a->common, argc, argv, a->arg, &a->count);
    if (p != AF_PARSED_OK)
        return p;
    char threads[32];
    snprintf(threads, sizeof threads, "%lld", (long long)a->common.threads);
    if (a->common.device_is_set)
        override(a, "device", a->common.device);
    if (a->common.threads)
        override(a, "threads", threads);
    if (a->force)
        override(a, "overwrite_output_dir", "true");
    if (a->strict)
        override(a, "strict", "true");
    if (a->serve)
        override(a, "serve_port", a->serve);
    if (a->serve_host)
        override(a, "serve_host", a->serve_host);
    return p;
}

int cmd_train(int argc, char **argv)
{
    static train_args a;
    const af_parsed p = parse(&a, argc, argv);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    if (a.api_key && !af_cli_has_key(a.api_key))
        return af_cli_error(AF_EXIT_USAGE, "train", "--api-key is empty");
    train_session s = {.api_key = a.api_key, .json = a.common.json, .verbose = a.common.verbose};
    af_progress_init(&s.line, a.common.quiet);
    s.line.verbose = a.common.verbose;
    af_log_set(af_progress_log, &s.line);
    const af_train_hooks hooks = {.user = &s,
                                  .step = on_step,
                                  .log = af_progress_message,
                                  .stop = wants_stop,
                                  .evaluating = af_progress_evaluating,
                                  .start = on_start,
                                  .between = on_between,
                                  .lost = end_lost};
    af_train_result result;
    af_error err = {0};
    quiet = a.common.quiet;
    install_handlers();
    const af_status st = af_train(a.arg[0], a.arg + 1, a.count - 1, &hooks, &result, &err);
    const bool asked = s.server && af_server_run_stopping(s.server);
    if (s.server)
        af_server_run_end(s.server, st != AF_OK && st != AF_ESTOPPED, 10);
    af_server_close(s.server);
    af_log_set(NULL, NULL);
    af_progress_end(&s.line);
    if (result.rank > 0 || (result.ranks > 1 && st != AF_OK && st != AF_ESTOPPED))
        return rank_end(st, &result, &err);
    if (a.common.json && (st == AF_OK || st == AF_ESTOPPED))
        report_json(&result);
    const int code = report_end(st, &result, &err, a.common.quiet);
    return st == AF_ESTOPPED && asked && !stop_requested ? AF_EXIT_OK : code;
}
