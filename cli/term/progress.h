/* progress.h - the progress of a run: one redrawn line on a terminal, plain lines elsewhere. */
#ifndef AF_CLI_PROGRESS_H
#define AF_CLI_PROGRESS_H

#include "term/cli.h"

#include "afinar/log.h"
#include "afinar/train.h"

enum { AF_SPARK = 24 };

typedef struct af_progress_line {
    bool quiet, verbose, tty, drawn;
    double loss[AF_SPARK]; /* the last ones */
    int losses;
    bool evaluated;
    double eval_loss; /* of the last evaluation */
} af_progress_line;

void af_progress_init(af_progress_line *p, bool quiet);
void af_progress_step(void *user, const af_train_step *s);
void af_progress_message(void *user, const char *line);
/* An af_log_hook: prints warnings always, the rest when verbose. */
void af_progress_log(void *user, af_log_level level, const char *line);
/* Called before each record of an evaluation. */
void af_progress_evaluating(void *user, int64_t done, int64_t records);
void af_progress_end(af_progress_line *p);
/* Shortest text that reads back to the same double, or null. */
void af_print_number(FILE *f, double v);
#endif
