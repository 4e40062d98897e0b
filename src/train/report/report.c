/* report.c - the page: no scripts, no outside files; curves are SVG drawn here. */
#define _POSIX_C_SOURCE 200809L /* localtime_r */
#include "train/report/report.h"
#include "base/file.h"
#include "format/text/json_text.h"
#include "train/report/next_steps.h"
#include "train/report/report_chart.h"
#include "train/report/report_fp8.h"
#include "train/run/method.h"
#include "train/step/memory_fit.h"
#include "train/step/resident.h"

#include <jansson.h>
#include <math.h>
#include <time.h>

typedef struct curves {
    af_series loss, eval, accuracy, lr, norm, speed, aux;
    af_series margin, eval_margin, hits, eval_hits, chosen, rejected; /* of preferences */
} curves;

static void push(af_series *s, const json_t *x, const json_t *y)
{
    if (json_is_number(x) && json_is_number(y))
        af_series_add(s, json_number_value(x), json_number_value(y));
}

/* TRL's name of preference runs, or that of reward models and labels. */
static const json_t *either(const json_t *row, const char *a, const char *b)
{
    const json_t *v = json_object_get(row, a);
    return v ? v : json_object_get(row, b);
}

static void clear(curves *c)
{
    af_series *const all[] = {&c->loss,   &c->eval,     &c->accuracy,    &c->lr,   &c->norm,
                              &c->speed,  &c->margin,   &c->eval_margin, &c->hits, &c->eval_hits,
                              &c->chosen, &c->rejected, &c->aux};
    for (size_t i = 0; i < AF_LEN(all); i++)
        af_series_clear(all[i]);
}

static void read_curves(curves *c, const char *path)
{
    char *text;
    uint64_t size;
    *c = (curves){.loss.name = "loss",
                  .eval.name = "evaluation loss",
                  .accuracy.name = "accuracy",
                  .lr.name = "learning rate",
                  .norm.name = "norm",
                  .speed.name = "tokens/s",
                  .margin.name = "margin",
                  .eval_margin.name = "evaluation margin",
                  .hits.name = "accuracy",
                  .eval_hits.name = "evaluation accuracy",
                  .chosen.name = "chosen",
                  .rejected.name = "rejected",
                  .aux.name = "auxiliary loss"};
    if (!path || af_file_read(&text, &size, path, UINT64_MAX / 2, NULL) != AF_OK)
        return;
    for (char *line = text, *end; line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        json_t *r = af_json_load(line, end ? (size_t)(end - line) : strlen(line), 0, NULL);
        const json_t *step = json_object_get(r, "step");
        push(&c->loss, step, json_object_get(r, "loss"));
        push(&c->eval, step, json_object_get(r, "eval_loss"));
        push(&c->accuracy, step, json_object_get(r, "eval_accuracy"));
        push(&c->lr, step, json_object_get(r, "learning_rate"));
        push(&c->norm, step, json_object_get(r, "grad_norm"));
        push(&c->speed, step, json_object_get(r, "tok_s"));
        push(&c->aux, step, json_object_get(r, "aux_loss"));
        push(&c->margin, step, either(r, "rewards/margins", "margin"));
        push(&c->eval_margin, step, either(r, "eval_rewards/margins", "eval_margin"));
        push(&c->hits, step, either(r, "rewards/accuracies", "accuracy"));
        push(&c->eval_hits, step, json_object_get(r, "eval_rewards/accuracies"));
        push(&c->chosen, step, json_object_get(r, "rewards/chosen"));
        push(&c->rejected, step, json_object_get(r, "rewards/rejected"));
        json_decref(r);
    }
    free(text);
}

void af_html_put(af_buf *b, const char *text)
{
    for (const char *s = text ? text : ""; *s; s++)
        switch (*s) {
        case '<':
            af_buf_str(b, "&lt;");
            break;
        case '>':
            af_buf_str(b, "&gt;");
            break;
        case '&':
            af_buf_str(b, "&amp;");
            break;
        case '"':
            af_buf_str(b, "&quot;");
            break;
        default: /* HTML allows no other control characters */
            if ((unsigned char)*s >= 0x20 || *s == '\n' || *s == '\t')
                af_buf_char(b, *s);
            else
                af_buf_str(b, "\xE2\x90\xA6"); /* U+2426, symbol for substitute form two */
        }
}

static const char style[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
    "content=\"width=device-width\">\n";
static const char rules[] =
    "<style>:root{color-scheme:light "
    "dark;--ink:#1b1b1f;--dim:#6b6b75;--line:#8884;--a:#2f6fde;--b:#c8441c;--paper:#fff}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e8e8ee;--dim:#9a9aa5;--a:#7aa7ff;--b:#ff8f6b;--"
    "paper:#16161a}}\n"
    "body{font:15px/1.5 "
    "system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1180px;margin:2em "
    "auto;"
    "padding:0 1em}h1{font-size:1.4em;margin:0}h2{font-size:1.05em;margin:2em 0 "
    ".5em}p.sub{color:var(--dim);margin:.2em 0 1em}p.end{color:var(--b)}\n"
    "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:1em}"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:.6em 2em;"
    "margin:1em 0 1.5em}dt{color:var(--dim);font-size:13px}dd{margin:0;overflow-wrap:anywhere}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:0 2.5em}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.25em .8em .25em 0;text-align:left;"
    "vertical-align:top;border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:normal}"
    "td.n,th.n{text-align:right;padding-right:0;font-variant-numeric:tabular-nums}\n"
    "table.samples{table-layout:fixed}table.samples td{white-space:pre-wrap;overflow-wrap:anywhere;"
    "font-size:14px}\n"
    ".scroll{max-height:36em;overflow:auto}"
    "details{margin:2em 0}summary{cursor:pointer;color:var(--dim)}"
    "pre{background:#8881;padding:1em;overflow:auto;font-size:13px;border-radius:4px}\n";

static void put_row(af_buf *b, const char *name, const char *fmt, double v)
{
    af_buf_printf(b, "<tr><td>%s</td><td class=\"n\">", name);
    char text[64];
    snprintf(text, sizeof text, isnan(v) ? "-" : fmt, v); /* fmt is one of the literals below */
    af_buf_printf(b, "%s</td></tr>\n", text);
}

static void put_tables(af_buf *b, const af_report_source *r)
{
    const af_run_progress *p = r->progress;
    const af_run_data *d = r->data;
    const af_plan_info *q = &r->step->plan;
    af_buf_str(b, "<div class=\"cards\"><section><h2>Result</h2><table>");
    put_row(b, "steps", "%.0f", (double)p->step);
    put_row(b, "first logged loss", "%.5f", p->first_loss);
    put_row(b, "last logged loss", "%.5f", p->last_loss);
    if (!isnan(p->best_eval)) {
        char name[100];
        snprintf(name, sizeof name, "best evaluation %.60s", af_run_progress_metric(r->run));
        put_row(b, name, "%.5f", p->best_eval);
        put_row(b, "best evaluation at step", "%.0f", (double)p->best_step);
    }
    put_row(b, "training time, s", "%.1f", p->seconds);
    put_row(b, "tokens", "%.0f", (double)p->tokens);
    if (!af_run_scores(r->run))
        put_row(b, "tokens with loss", "%.0f", (double)p->supervised);
    put_row(b, "padding avoided, tokens", "%.0f", (double)p->padded);
    af_buf_str(b, "</table></section><section><h2>Data</h2><table>");
    put_row(b, "records", "%.0f", (double)d->store.records);
    put_row(b, "tokens", "%.0f", (double)af_run_data_tokens(d, r->run));
    if (!af_run_scores(r->run))
        put_row(b, "tokens with loss", "%.0f", (double)d->store.supervised);
    put_row(b, "truncated records", "%.0f", (double)d->counts.truncated);
    put_row(b, "dropped records", "%.0f", (double)d->counts.dropped);
    put_row(b, "evaluation records", "%.0f", (double)d->eval_items);
    af_buf_str(b, "</table></section><section><h2>Memory</h2><table>");
    put_row(b, "planned, MiB", "%.1f", (double)q->total / 0x1p20);
    put_row(b, "weights, MiB", "%.1f", (double)q->weights / 0x1p20);
    put_row(b, "mapped weights, MiB", "%.1f", (double)q->bound / 0x1p20);
    if (q->returned)
        put_row(b, "of those, returned after packing, MiB", "%.1f", (double)q->returned / 0x1p20);
    put_row(b, "trained values, gradients, optimizer, MiB", "%.1f",
            (double)(q->params + q->grads + q->state) / 0x1p20);
    put_row(b, "activations, MiB", "%.1f", (double)q->activations / 0x1p20);
    put_row(b, "workspace, MiB", "%.1f", (double)q->workspace / 0x1p20);
    if (af_run_model_on_cpu(r->step->model)) {
        put_row(b, "host copy of the adapter, MiB", "%.1f",
                (double)af_memory_copies(r->step) / 0x1p20);
        put_row(b, "resident, expected, MiB", "%.1f",
                (double)af_memory_resident(r->step, q) / 0x1p20);
    }
    put_row(b, "peak resident, measured, MiB", "%.1f", (double)af_resident_peak() / 0x1p20);
    af_buf_str(b, "</table></section></div>");
}

/* ---- above the fold: what was run, when, with which settings ---- */

static void put_clock(af_buf *b, int64_t when)
{
    const time_t t = (time_t)when;
    struct tm tm;
    char text[64] = "unknown";
    if (localtime_r(&t, &tm))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", &tm);
    af_buf_str(b, text);
}

static void put_duration(af_buf *b, double seconds)
{
    const int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        af_buf_printf(b, "%" PRId64 " h %02" PRId64 " min", s / 3600, s / 60 % 60);
    else if (s >= 60)
        af_buf_printf(b, "%" PRId64 " min %02" PRId64 " s", s / 60, s % 60);
    else
        af_buf_printf(b, "%.1f s", seconds);
}

static void put_times(af_buf *b, const af_report_source *r)
{
    const int64_t now = (int64_t)time(NULL);
    af_buf_str(b, "<dt>Date</dt><dd>");
    put_clock(b, r->began);
    af_buf_str(b, "</dd></div><div><dt>Duration</dt><dd>");
    put_duration(b, r->progress->seconds);
    af_buf_str(b, " of training");
    if (now > r->began) {
        af_buf_str(b, ", ");
        put_duration(b, (double)(now - r->began));
        af_buf_str(b, " since the start");
    }
}

static void put_method(af_buf *b, const af_run_model *m)
{
    const af_run_config *r = m->run;
    if (!m->adapter) {
        af_buf_str(b, "full fine-tuning");
        return;
    }
    const af_adapter_config *c = &m->adapter->config;
    if (c->type == AF_PEFT_OFT) {
        af_buf_printf(b, "%s, %" PRId64 " %s", af_method_quantises(r) == 4 ? "QOFT" : "OFT",
                      c->oft.block ? c->oft.block : c->oft.blocks,
                      c->oft.block ? "inputs per rotation" : "rotations per module");
        return;
    }
    af_buf_printf(b, "%s%s, rank %d, alpha %g", r->method == AF_METHOD_QLORA ? "QLoRA" : "LoRA",
                  c->dora ? " (DoRA)" : "", c->r, c->alpha);
    if (m->dropout > 0)
        af_buf_printf(b, ", dropout %g", m->dropout);
}

static void put_data(af_buf *b, const af_run_data *d)
{
    enum { NAMED = 3 };
    const int files = af_dataset_file_count(&d->store);
    for (int i = 0; i < AF_MIN(files, NAMED); i++) {
        af_buf_str(b, i ? ", " : "");
        af_html_put(b, af_path_name(af_dataset_file(&d->store, i)));
    }
    if (files > NAMED)
        af_buf_printf(b, " and %d more files", files - NAMED);
    af_buf_printf(b, "%s%" PRId64 " records", files ? "; " : "", d->store.records);
}

static void put_settings(af_buf *b, const af_report_source *s)
{
    const af_run_config *r = s->run;
    const af_run_progress *p = s->progress;
    af_buf_str(b, "<dl><div>");
    put_times(b, s);
    af_buf_str(b, "</dd></div><div><dt>Method</dt><dd>");
    put_method(b, s->step->model);
    af_buf_printf(b,
                  "</dd></div><div><dt>Learning rate</dt><dd>%g, %s</dd></div>"
                  "<div><dt>Batch</dt><dd>%" PRId64 " x %" PRId64 " = %" PRId64
                  " rows of at most %" PRId64 " tokens</dd></div>",
                  r->learning_rate, r->lr_scheduler, r->micro_batch_size, r->accumulation,
                  r->micro_batch_size * r->accumulation, r->sequence_len);
    af_buf_printf(b,
                  "<div><dt>Epochs</dt><dd>%.3g of %.3g, step %" PRId64 " of %" PRId64
                  "</dd></div><div><dt>Data</dt><dd>",
                  af_run_progress_epoch(p),
                  (double)(p->steps * r->accumulation * p->items_per_micro) /
                      (double)p->items_per_epoch,
                  p->step, p->steps);
    put_data(b, s->data);
    af_buf_str(b, "</dd></div></dl>\n");
}

/* ---- evaluations, and what comes next ---- */

static void put_evaluations(af_buf *b, const curves *c)
{
    enum { ROWS = 200 };
    const int n = c->eval.count, skip = (n + ROWS - 1) / ROWS;
    if (n == 0)
        return;
    af_buf_str(b, "<h2>Evaluations</h2><div class=\"scroll\"><table><tr><th>step</th><th "
                  "class=\"n\">loss</th><th class=\"n\">perplexity</th><th "
                  "class=\"n\">accuracy</th></tr>\n");
    for (int i = 0, k = 0; i < n; i = i == n - 1 ? n : AF_MIN(i + skip, n - 1)) { /* and the last */
        const double step = c->eval.x[i], loss = c->eval.y[i];
        af_buf_printf(b,
                      "<tr><td>%.0f%s</td><td class=\"n\">%.5f</td><td class=\"n\">%.4f</td>"
                      "<td class=\"n\">",
                      step, step == 0 ? " (before training)" : "", loss, exp(loss));
        while (k < c->accuracy.count && c->accuracy.x[k] < step)
            k++;
        if (k < c->accuracy.count && c->accuracy.x[k] == step)
            af_buf_printf(b, "%.2f %%", 100 * c->accuracy.y[k]);
        af_buf_str(b, "</td></tr>\n");
    }
    af_buf_str(b, "</table></div>");
}

static void put_next(af_buf *b, const af_report_source *r)
{
    af_buf commands = {0};
    if (r->state == AF_REPORT_DONE)
        af_next_commands(&commands, r->run, r->step->model, r->chat);
    else if (r->resume_command && r->state != AF_REPORT_RUNNING)
        af_buf_str(&commands, r->resume_command);
    b->bad |= commands.bad;
    if (commands.len) {
        af_buf_str(b, "<h2>Next steps</h2><pre>");
        af_html_put(b, commands.data);
        af_buf_str(b, "</pre>");
    }
    af_buf_clear(&commands);
}

static void put_head(af_buf *b, const af_report_source *r)
{
    static const char *const state[] = {"running", "done", "stopped", "failed"};
    const char *name = r->run->run_name ? r->run->run_name : af_path_name(r->run->output_dir);
    af_buf_str(b, style);
    if (r->state == AF_REPORT_RUNNING) /* an open page follows the run */
        af_buf_str(b, "<meta http-equiv=\"refresh\" content=\"15\">\n");
    af_buf_str(b, rules);
    af_buf_str(b, af_chart_style);
    af_buf_str(b, "</style>\n<title>");
    af_html_put(b, name);
    af_buf_str(b, "</title><h1>");
    af_html_put(b, name);
    af_buf_printf(b, ": %s</h1><p class=\"sub\">", state[r->state]);
    af_html_put(b, r->run->base_model);
    af_buf_printf(b, " &middot; afinar %s &middot; ", af_version());
    af_html_put(b, af_device_text(r->step->model->device));
    af_buf_str(b, "</p>\n");
    if (r->message) {
        af_buf_str(b, "<p class=\"end\">");
        af_html_put(b, r->message);
        af_buf_str(b, "</p>\n");
    }
}

static void put_charts(af_buf *b, const curves *c)
{
    af_buf_str(b, "<main>\n");
    af_chart_put(
        b,
        c->eval.count
            ? "<b class=\"a\">training loss</b> and <b class=\"b\">evaluation loss</b> per step"
            : "training loss per step",
        &c->loss, &c->eval, true);
    af_chart_put(b,
                 c->eval_margin.count
                     ? "<b class=\"a\">margin</b> of rewards, and in <b class=\"b\">evaluations</b>"
                     : "margin of rewards: chosen above rejected",
                 &c->margin, &c->eval_margin, true);
    af_chart_put(b,
                 c->eval_hits.count
                     ? "<b class=\"a\">accuracy</b>: share of pairs in the right order, and in "
                       "<b class=\"b\">evaluations</b>"
                 : c->margin.count ? "accuracy: share of pairs in the right order"
                                   : "accuracy: share of texts with the right labels",
                 &c->hits, &c->eval_hits, true);
    af_chart_put(b, "rewards: <b class=\"a\">chosen</b> and <b class=\"b\">rejected</b>",
                 &c->chosen, &c->rejected, true);
    af_chart_put(b, "learning rate", &c->lr, NULL, false);
    af_chart_put(b, "gradient norm, before clipping", &c->norm, NULL, true);
    af_chart_put(b, "tokens per second", &c->speed, NULL, true);
    if (c->aux.count)
        af_chart_put(b, "auxiliary loss of the routers, before its coefficient", &c->aux, NULL,
                     true);
    af_buf_str(b, "</main>\n");
}

af_status af_report_write(const af_report_source *from, af_error *err)
{
    af_status st = AF_OK;
    curves c = {0};
    af_buf b = {0};
    char *run_text = NULL, *path = af_path_join(from->run->output_dir, "report.html");
    AF_TRY(af_run_config_text(from->run, &run_text, err));
    read_curves(&c, from->metrics_path);
    put_head(&b, from);
    put_settings(&b, from);
    put_charts(&b, &c);
    put_evaluations(&b, &c);
    put_next(&b, from);
    put_tables(&b, from);
    af_report_put_fp8(&b, &from->step->fp8);
    if (from->samples_html) {
        af_buf_str(&b, "<h2>Answers before and after training</h2>");
        af_buf_str(&b, from->samples_html);
    }
    af_buf_str(&b, "<details><summary>Effective run file</summary><pre>");
    af_html_put(&b, run_text);
    af_buf_str(&b, "</pre></details></html>\n");
    st = b.bad || !path ? af_fail_nomem(err, "report.html", b.len)
                        : af_file_write(path, b.data, b.len, err);
done:
    clear(&c);
    af_buf_clear(&b);
    free(run_text);
    free(path);
    return st;
}
