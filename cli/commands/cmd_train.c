/* cmd_train.c - `afinar train RUN.yaml [key=value ...]`. */
#define _POSIX_C_SOURCE 200809L
#include "commands/commands.h"
#include "term/progress.h"

#include "afinar/train.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t stop_requested, quiet; /* the signal that asked for it, or 0 */

/* The first Ctrl-C requests a checkpoint and a clean exit; the second kills the process. */
static void on_interrupt(int sig)
{
    static const char text[] =
        "\nsaving a checkpoint and stopping; press Ctrl-C again to quit now\n";
    if (stop_requested) {
        signal(sig, SIG_DFL);
        raise(sig); /* delivered after this handler returns */
        return;
    }
    stop_requested = sig;
    const int saved = errno; /* of the interrupted call */
    if (!quiet)
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
    errno = saved;
}

static bool wants_stop(void *user)
{
    (void)user;
    return stop_requested != 0;
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
    struct sigaction a = {.sa_handler = on_interrupt};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    struct sigaction old; /* the terminal was closed; ignored under nohup */
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
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

int cmd_train(int argc, char **argv)
{
    enum { ARGS_MAX = 120 };
    const char *arg[ARGS_MAX + 4]; /* and device=, threads=, overwrite_output_dir=, strict= */
    int count;
    af_common common = {0};
    bool force = false, strict = false;
    const af_opt opts[] = {
        {0, "force", AF_OPT_FLAG, &force, NULL,
         "replace the files of an earlier run in output_dir; other files are kept"},
        {0, "strict", AF_OPT_FLAG, &strict, NULL, "refuse keys of the file that have no effect"},
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
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    char device[64], threads[64];
    if (common.device_is_set) {
        snprintf(device, sizeof device, "device=%s", common.device);
        arg[count++] = device;
    }
    if (common.threads) {
        snprintf(threads, sizeof threads, "threads=%lld", (long long)common.threads);
        arg[count++] = threads;
    }
    if (force)
        arg[count++] = "overwrite_output_dir=true";
    if (strict)
        arg[count++] = "strict=true";
    af_progress_line line;
    af_progress_init(&line, common.quiet);
    line.verbose = common.verbose;
    af_log_set(af_progress_log, &line);
    const af_train_hooks hooks = {&line,      af_progress_step,       af_progress_message,
                                  wants_stop, af_progress_evaluating, end_lost};
    af_train_result result;
    af_error err = {0};
    quiet = common.quiet;
    install_handlers();
    const af_status st = af_train(arg[0], arg + 1, count - 1, &hooks, &result, &err);
    af_log_set(NULL, NULL);
    af_progress_end(&line);
    if (result.rank > 0 || (result.ranks > 1 && st != AF_OK && st != AF_ESTOPPED))
        return rank_end(st, &result, &err);
    if (common.json && (st == AF_OK || st == AF_ESTOPPED))
        report_json(&result);
    return report_end(st, &result, &err, common.quiet);
}
