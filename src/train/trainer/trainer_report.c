/* trainer_report.c - when a run writes report.html, and what it knows for it. */
#include "base/file.h"
#include "train/report/samples.h"
#include "train/trainer/trainer.h"

#include <time.h>

/* Seconds between two reports of a running run, and how many times as long as writing one. */
#define REPORT_SECONDS 15
#define REPORT_SHARE   50

bool af_trainer_is_chat(const af_trainer *t)
{
    const af_data_counts *c = &t->data.counts;
    af_template *own = NULL;
    if (c->of_text + c->of_tokens + c->of_segments + c->of_pairs >= c->records)
        return false;
    if (t->data.chat_template)
        return true;
    const bool yes = af_template_open(&own, t->model.path, NULL) == AF_OK;
    af_template_close(own);
    return yes;
}

af_status af_trainer_report(af_trainer *t, af_report_state state, const char *message,
                            af_error *err)
{
    const af_samples samples = {.step = &t->step, .progress = &t->progress, .hooks = t->hooks};
    const double start = af_seconds_now();
    char *html = NULL;
    af_status st = af_samples_table(&samples, &html, err);
    if (st == AF_OK)
        st = af_report_write(&(af_report_source){.run = t->run,
                                                 .data = &t->data,
                                                 .step = &t->step,
                                                 .progress = &t->progress,
                                                 .metrics_path = t->output.metrics.rows_path,
                                                 .samples_html = html,
                                                 .state = state,
                                                 .message = message,
                                                 .resume_command = t->resume_command,
                                                 .chat = af_trainer_is_chat(t),
                                                 .began = t->report.began},
                             err);
    t->report.written = af_seconds_now();
    t->report.cost = t->report.written - start;
    free(html);
    return st;
}

void af_trainer_report_due(af_trainer *t, bool event)
{
    const double age = af_seconds_now() - t->report.written;
    af_error why = {0};
    if (age < t->report.cost * REPORT_SHARE || (!event && age < REPORT_SECONDS))
        return;
    if (af_trainer_report(t, AF_REPORT_RUNNING, NULL, &why) == AF_OK || t->report.failed)
        return;
    af_run_log(t->hooks, "note: report.html is not written: %s", why.msg);
    t->report.failed = true;
}
