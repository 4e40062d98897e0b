/* report.c - the page: no scripts, no outside files; curves are SVG drawn here. */
#include "train/report/report.h"
#include "base/buf.h"
#include "base/file.h"
#include "train/step/memory_fit.h"
#include "train/step/resident.h"

#include <jansson.h>
#include <math.h>

typedef struct series {
    double *x, *y;
    int count, cap;
} series;

typedef struct curves {
    series loss, eval, lr, norm, speed;
} curves;

static void add_point(series *s, double x, double y)
{
    if (s->count == s->cap) {
        const int cap = s->cap ? s->cap * 2 : 256;
        double *px = af_realloc(s->x, (uint64_t)cap, sizeof *px);
        s->x = px ? px : s->x;
        double *py = af_realloc(s->y, (uint64_t)cap, sizeof *py);
        s->y = py ? py : s->y;
        if (!px || !py)
            return; /* a shorter curve, not a failed run */
        s->cap = cap;
    }
    s->x[s->count] = x;
    s->y[s->count++] = y;
}

static void push(series *s, const json_t *x, const json_t *y)
{
    if (json_is_number(x) && json_is_number(y))
        add_point(s, json_number_value(x), json_number_value(y));
}

static void clear(series *s)
{
    free(s->x);
    free(s->y);
}

static void read_curves(curves *c, const char *path)
{
    char *text;
    uint64_t size;
    af_error ignored;
    if (af_file_read(&text, &size, path, UINT64_MAX / 2, &ignored) != AF_OK)
        return;
    for (char *line = text, *end; line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        json_t *r = json_loadb(line, end ? (size_t)(end - line) : strlen(line), 0, NULL);
        const json_t *step = json_object_get(r, "step");
        push(&c->loss, step, json_object_get(r, "loss"));
        push(&c->eval, step, json_object_get(r, "eval_loss"));
        push(&c->lr, step, json_object_get(r, "learning_rate"));
        push(&c->norm, step, json_object_get(r, "grad_norm"));
        push(&c->speed, step, json_object_get(r, "tok_s"));
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

enum { W = 560, H = 220, LEFT = 64, RIGHT = 12, TOP = 12, BOTTOM = 30, EDGE = 20 };

static void widen(const series *s, double *x0, double *x1, double *y0, double *y1)
{
    for (int i = 0; i < s->count; i++) {
        *x0 = AF_MIN(*x0, s->x[i]);
        *x1 = AF_MAX(*x1, s->x[i]);
        *y0 = AF_MIN(*y0, s->y[i]);
        *y1 = AF_MAX(*y1, s->y[i]);
    }
}

static void put_line(af_buf *b, const series *s, const char *class, double x0, double x1, double y0,
                     double y1)
{
    if (s->count == 0)
        return;
    af_buf_printf(b, "<polyline class=\"%s\" points=\"", class);
    const int skip = AF_MAX(1, s->count / 2000);
    for (int i = 0; i < s->count; i += skip)
        af_buf_printf(b, "%.1f,%.1f ", LEFT + (s->x[i] - x0) / (x1 - x0) * (W - LEFT - RIGHT),
                      TOP + (1 - (s->y[i] - y0) / (y1 - y0)) * (H - TOP - BOTTOM));
    af_buf_str(b, "\"/>");
    for (int i = 0; s->count <= 40 && i < s->count; i++)
        af_buf_printf(b, "<circle class=\"%s\" r=\"2\" cx=\"%.1f\" cy=\"%.1f\"/>", class,
                      LEFT + (s->x[i] - x0) / (x1 - x0) * (W - LEFT - RIGHT),
                      TOP + (1 - (s->y[i] - y0) / (y1 - y0)) * (H - TOP - BOTTOM));
}

/* An exponential mean over about a thirtieth of the curve, corrected for its start. */
static void smooth(series *out, const series *s)
{
    const double keep = 1.0 - 1.0 / AF_MAX(1.0, (double)s->count / 30);
    double sum = 0, weight = 0;
    for (int i = 0; i < s->count; i++) {
        sum = keep * sum + (1 - keep) * s->y[i];
        weight = keep * weight + (1 - keep);
        add_point(out, s->x[i], sum / weight);
    }
}

/* A step of 1, 2 or 5 times a power of ten that cuts the range in about four. */
static double tick(double range)
{
    const double p = pow(10, floor(log10(range / 4)));
    const double q = range / 4 / p;
    return p * (q < 1.5 ? 1 : q < 3.5 ? 2 : q < 7.5 ? 5 : 10);
}

/* 12000 as 12k: axis labels stay short. */
static void put_label(af_buf *b, double v)
{
    if (fabs(v) >= 1e9)
        af_buf_printf(b, "%.4gG", v / 1e9);
    else if (fabs(v) >= 1e6)
        af_buf_printf(b, "%.4gM", v / 1e6);
    else if (fabs(v) >= 1e4)
        af_buf_printf(b, "%.4gk", v / 1e3);
    else
        af_buf_printf(b, "%.4g", v);
}

static void put_axes(af_buf *b, double x0, double x1, double y0, double y1)
{
    const double ty = tick(y1 - y0), tx = AF_MAX(1.0, tick(x1 - x0));
    for (double y = ceil(y0 / ty) * ty; y <= y1 + ty * 1e-9; y += ty) {
        const double at = TOP + (1 - (y - y0) / (y1 - y0)) * (H - TOP - BOTTOM);
        af_buf_printf(b,
                      "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text "
                      "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                      LEFT, W - RIGHT, at, at, LEFT - 6, at + 4);
        put_label(b, fabs(y) < ty * 1e-6 ? 0.0 : y);
        af_buf_str(b, "</text>");
    }
    for (double x = ceil(x0 / tx) * tx; x <= x1 + tx * 1e-9; x += tx) {
        const double at = LEFT + (x - x0) / (x1 - x0) * (W - LEFT - RIGHT);
        af_buf_printf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", at, H - 10,
                      at > W - EDGE ? "end" : "middle"); /* a long number would be cut off */
        put_label(b, x);
        af_buf_str(b, "</text>");
    }
}

/* `noisy`: the raw curve is drawn faintly under its running mean. */
static void put_chart(af_buf *b, const char *title, const series *a, const series *second,
                      bool noisy)
{
    series mean = {0};
    double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;
    widen(a, &x0, &x1, &y0, &y1);
    if (second)
        widen(second, &x0, &x1, &y0, &y1);
    if (!(x1 >= x0))
        return;
    if (x1 == x0)
        x1 = x0 + 1;
    const double pad = y1 > y0 ? (y1 - y0) * 0.05 : AF_MAX(fabs(y0) * 0.05, 1e-12);
    y0 -= pad;
    y1 += pad;
    af_buf_printf(b, "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\">",
                  title, W, H);
    put_axes(b, x0, x1, y0, y1);
    const bool both = noisy && a->count > 40;
    put_line(b, a, both ? "a faint" : "a", x0, x1, y0, y1);
    if (both) {
        smooth(&mean, a);
        put_line(b, &mean, "a", x0, x1, y0, y1);
        clear(&mean);
    }
    if (second)
        put_line(b, second, "b", x0, x1, y0, y1);
    af_buf_str(b, "</svg></figure>\n");
}

static const char style[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
    "content=\"width=device-width\">\n"
    "<style>:root{color-scheme:light "
    "dark;--ink:#1b1b1f;--dim:#77777f;--line:#8884;--a:#2f6fde;--b:#d9542b;--paper:#fff}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e8e8ee;--dim:#9a9aa5;--a:#7aa7ff;--b:#ff8f6b;--"
    "paper:#16161a}}\n"
    "body{font:15px/1.5 "
    "system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1180px;margin:2em "
    "auto;"
    "padding:0 1em}h1{font-size:1.4em;margin:0}h2{font-size:1.05em;margin:2em 0 "
    ".5em}p.sub{color:var(--dim);margin:.2em 0 "
    "1.5em}\nmain{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1em}"
    "figure{margin:0}"
    "figcaption{color:var(--dim)}svg{width:100%}svg text{font-size:11px;fill:var(--dim)}"
    "polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}polyline.a{stroke:var(--a)}"
    "polyline.b{stroke:var(--b)}polyline.faint{opacity:.3;stroke-width:1}circle.a{fill:var(--a)}"
    "circle.b{fill:var(--b)}b.a{color:var(--a)}b.b{color:var(--b)}line.grid{stroke:var(--line);"
    "stroke-width:1}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:0 2.5em}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.25em .8em .25em 0;text-align:left;"
    "vertical-align:top;border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:normal}"
    "td.n{text-align:right;padding-right:0;font-variant-numeric:tabular-nums}\n"
    "table.samples{table-layout:fixed}table.samples td{white-space:pre-wrap;overflow-wrap:anywhere;"
    "font-size:14px}\n"
    "details{margin:2em 0}summary{cursor:pointer;color:var(--dim)}"
    "pre{background:#8881;padding:1em;overflow:auto;font-size:13px;border-radius:4px}</style>\n";

static void put_row(af_buf *b, const char *name, const char *fmt, double v)
{
    af_buf_printf(b, "<tr><td>%s</td><td class=\"n\">", name);
    char text[64];
    snprintf(text, sizeof text, fmt, v); /* fmt is one of the literals below */
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
    if (!isnan(p->best_eval))
        put_row(b, "best evaluation loss", "%.5f", p->best_eval);
    put_row(b, "training time, s", "%.1f", p->seconds);
    put_row(b, "tokens", "%.0f", (double)p->tokens);
    put_row(b, "tokens with loss", "%.0f", (double)p->supervised);
    put_row(b, "padding avoided, tokens", "%.0f", (double)p->padded);
    af_buf_str(b, "</table></section><section><h2>Data</h2><table>");
    put_row(b, "records", "%.0f", (double)d->store.records);
    put_row(b, "tokens", "%.0f", (double)d->store.tokens);
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

af_status af_report_write(const af_report_source *from, af_error *err)
{
    af_status st = AF_OK;
    curves c = {0};
    af_buf b = {0};
    const af_run_config *run = from->run;
    char *run_text = NULL, *path = af_path_join(run->output_dir, "report.html");
    const char *name = run->run_name ? run->run_name : af_path_name(run->output_dir);
    AF_TRY(af_run_config_text(run, &run_text, err));
    read_curves(&c, from->metrics_path);
    af_buf_str(&b, style);
    af_buf_str(&b, "<title>");
    af_html_put(&b, name);
    af_buf_str(&b, "</title><h1>");
    af_html_put(&b, name);
    af_buf_str(&b, "</h1><p class=\"sub\">");
    af_html_put(&b, run->base_model);
    af_buf_printf(&b, " &middot; afinar %s &middot; ", af_version());
    af_html_put(&b, af_device_text(from->step->model->device));
    af_buf_str(&b, "</p><main>\n");
    put_chart(
        &b,
        c.eval.count
            ? "<b class=\"a\">training loss</b> and <b class=\"b\">evaluation loss</b> per step"
            : "training loss per step",
        &c.loss, &c.eval, true);
    put_chart(&b, "learning rate", &c.lr, NULL, false);
    put_chart(&b, "gradient norm, before clipping", &c.norm, NULL, true);
    put_chart(&b, "tokens per second", &c.speed, NULL, true);
    af_buf_str(&b, "</main>\n");
    put_tables(&b, from);
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
    clear(&c.loss);
    clear(&c.eval);
    clear(&c.lr);
    clear(&c.norm);
    clear(&c.speed);
    af_buf_clear(&b);
    free(run_text);
    free(path);
    return st;
}
