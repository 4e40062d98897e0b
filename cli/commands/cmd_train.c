/* cmd_train.c - `afinar train RUN.yaml [key=value ...]`. */
#define _POSIX_C_SOURCE 200809L
#include "commands/commands.h"
#include "term/progress.h"

#include "afinar/train.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t stop_requested, silent;

/* The first Ctrl-C asks for a checkpoint and a clean end; the second ends at once. */
static void on_interrupt(int sig)
{
    static const char word[] = "\nstopping with a checkpoint (once more: at once)\n";
    if (stop_requested) {
        signal(sig, SIG_DFL);
        raise(sig); /* comes when this has returned */
        return;
    }
    stop_requested = 1;
    const int was = errno; /* of whatever was interrupted */
    if (!silent)
        (void)!write(STDERR_FILENO, word, sizeof word - 1);
    errno = was;
}

static bool wants_stop(void *user)
{
    (void)user;
    return stop_requested != 0;
}

static void listen_for_interrupts(void)
{
    struct sigaction a = {.sa_handler = on_interrupt};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    struct sigaction old; /* a terminal that went away; nohup has it ignored */
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
    signal(SIGPIPE, SIG_IGN); /* who reads the lines may leave, the run goes on */
}

static void report_json(const af_train_result *r)
{
    printf("{\"steps\": %lld, \"first_loss\": ", (long long)r->steps);
    af_print_number(stdout, r->first_loss);
    printf(", \"last_loss\": ");
    af_print_number(stdout, r->last_loss);
    printf(", \"best_eval_loss\": ");
    af_print_number(stdout, r->best_eval_loss);
    printf(", \"stopped\": %s, \"nothing_to_do\": %s}\n", r->stopped ? "true" : "false",
           r->nothing_to_do ? "true" : "false");
}

static int help(const af_opt *opts, af_common *common)
{
    char *keys;
    af_error err = {0};
    const char *words[1];
    int count;
    char *argv[] = {(char *)"train", (char *)"--help"};
    af_opts_parse(
        "train",
        "Trains a model from a run file (- = stdin). Every key of it can be given as key=value.",
        "RUN.yaml [key=value ...]", opts, common, 2, argv, words, 0, 0, &count);
    if (af_train_help(&keys, &err) != AF_OK)
        return af_report("train", &err);
    printf("\nrun file keys [default]:\n%s", keys);
    free(keys);
    return AF_EXIT_OK;
}

int cmd_train(int argc, char **argv)
{
    const char *arg[128];
    int count;
    af_common common = {0};
    bool stats = false;
    const af_opt opts[] = {
        {0, "stats", AF_OPT_FLAG, &stats, "print the device's counters at the end"},
        {0},
    };
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return help(opts, &common);
    const af_parsed p = af_opts_parse("train", "", "RUN.yaml [key=value ...]", opts, &common, argc,
                                      argv, arg, 1, 120, &count);
    if (p != AF_PARSED_OK)
        return p == AF_PARSED_HELP ? AF_EXIT_OK : AF_EXIT_USAGE;
    char device[64], threads[64];
    if (common.device_given) {
        snprintf(device, sizeof device, "device=%s", common.device);
        arg[count++] = device;
    }
    if (common.threads) {
        snprintf(threads, sizeof threads, "threads=%lld", (long long)common.threads);
        arg[count++] = threads;
    }
    af_progress_line line;
    af_progress_init(&line, common.quiet);
    line.verbose = common.verbose;
    af_log_set(af_progress_log, &line);
    const af_train_hooks hooks = {&line, af_progress_step, af_progress_say, wants_stop};
    af_train_result result;
    af_error err = {0};
    silent = common.quiet;
    listen_for_interrupts();
    const af_status st = af_train(arg[0], arg + 1, count - 1, &hooks, &result, &err);
    af_log_set(NULL, NULL);
    af_progress_end(&line);
    if (common.json && (st == AF_OK || st == AF_ESTOPPED))
        report_json(&result);
    if (st == AF_ESTOPPED) {
        fprintf(stderr, "afinar train: %s\n", err.msg);
        return AF_EXIT_OK;
    }
    if (st != AF_OK)
        return af_report("train", &err);
    if (result.nothing_to_do && !common.quiet)
        fprintf(stderr, "afinar train: the run is finished; there is nothing to do\n");
    return AF_EXIT_OK;
}
