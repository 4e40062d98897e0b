/* progress.c - the progress line. */
#define _DEFAULT_SOURCE /* struct winsize */
#include "term/progress.h"

#include <math.h>
#include <sys/ioctl.h>
#include <unistd.h>

void af_print_number(FILE *f, double v)
{
    char text[40] = "null";
    for (int digits = 6; isfinite(v) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    fputs(text, f);
}

void af_progress_init(af_progress_line *p, bool quiet)
{
    *p = (af_progress_line){.quiet = quiet, .tty = af_term_has_cursor(stderr)};
}

static void erase(af_progress_line *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

void af_progress_message(void *user, const char *line)
{
    af_progress_line *p = user;
    if (p->quiet)
        return;
    erase(p);
    fprintf(stderr, "%s\n", line);
}

void af_progress_log(void *user, af_log_level level, const char *line)
{
    af_progress_line *p = user;
    if (level != AF_LOG_WARN && !p->verbose)
        return;
    erase(p);
    af_cli_put_line(level == AF_LOG_WARN ? "warning: " : "", line);
}

static void clock_text(char *out, size_t size, double seconds)
{
    const long s = (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%ld:%02ld", s / 60, s % 60);
}

/* The last losses as bars between their own extremes. */
static void spark(const af_progress_line *p, int most, char *out)
{
    static const char *const bar[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int n = p->losses < most ? p->losses : most;
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < n; i++) {
        low = fmin(low, p->loss[(p->losses - n + i) % AF_SPARK]);
        high = fmax(high, p->loss[(p->losses - n + i) % AF_SPARK]);
    }
    *out = '\0';
    for (int i = 0; i < n; i++) { /* n may be negative: no space for bars */
        const double v = p->loss[(p->losses - n + i) % AF_SPARK];
        const int level = high > low ? (int)((v - low) / (high - low) * 7.999) : 0;
        memcpy(out, bar[level], strlen(bar[level]) + 1);
        out += strlen(bar[level]);
    }
}

static int columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

enum { PARTS = 8 };

/* Appends how far chosen answers are above rejected ones, and how often. */
static void preferences(char *text, size_t size, const af_train_step *s)
{
    size_t used = strlen(text);
    if (!isnan(s->margin))
        used += (size_t)snprintf(text + used, size - used, " margin %.4f", s->margin);
    if (!isnan(s->accuracy))
        snprintf(text + used, size - used, " accuracy %.3f", s->accuracy);
}

/* One line, never wider than the terminal: a wrapped line could not be erased. The parts are in
 * order of importance, the last ones are dropped first; the bars get the remaining width. */
static void draw(af_progress_line *p, const af_train_step *s)
{
    char part[PARTS][64], eta[32], bars[AF_SPARK * 4 + 1];
    int space = columns() - 1, shown = 0;
    clock_text(eta, sizeof eta, s->eta_s);
    snprintf(part[0], sizeof part[0], "%lld/%lld", (long long)s->step, (long long)s->steps);
    snprintf(part[1], sizeof part[1], " loss %.4f", s->loss);
    *part[2] = '\0';
    if (p->evaluated)
        snprintf(part[2], sizeof part[2], " eval %.4f", p->eval_loss);
    preferences(part[2], sizeof part[2], s);
    snprintf(part[3], sizeof part[3], " %s left", eta);
    snprintf(part[4], sizeof part[4], " %.0f tok/s", s->tok_s);
    snprintf(part[5], sizeof part[5], " epoch %.2f", s->epoch);
    snprintf(part[6], sizeof part[6], " lr %.2e norm %.3f", s->learning_rate, s->grad_norm);
    snprintf(part[7], sizeof part[7], " %.0f MiB", (double)s->memory / 0x1p20);
    for (; shown < PARTS && (int)strlen(part[shown]) <= space; shown++)
        space -= (int)strlen(part[shown]);
    spark(p, space - 1 < AF_SPARK ? space - 1 : AF_SPARK, bars);
    erase(p);
    for (int i = 0; i < shown; i++) {
        fputs(part[i], stderr);
        if (i == 1 && *bars)
            fprintf(stderr, " %s", bars);
    }
    fflush(stderr);
    p->drawn = true;
}

void af_progress_step(void *user, const af_train_step *s)
{
    af_progress_line *p = user;
    char more[64] = "";
    if (p->quiet)
        return;
    if (!isnan(s->eval_loss)) {
        p->evaluated = true;
        p->eval_loss = s->eval_loss;
        erase(p);
        preferences(more, sizeof more, s);
        fprintf(stderr, "step %lld/%lld: eval_loss %.5f%s\n", (long long)s->step,
                (long long)s->steps, s->eval_loss, more);
        return;
    }
    p->loss[p->losses++ % AF_SPARK] = s->loss;
    if (p->tty) {
        draw(p, s);
        return;
    }
    preferences(more, sizeof more, s);
    fprintf(
        stderr,
        "step %lld/%lld epoch %.3f loss %.5f%s grad_norm %.4f lr %.3e tokens %lld (%.0f tok/s)\n",
        (long long)s->step, (long long)s->steps, s->epoch, s->loss, more, s->grad_norm,
        s->learning_rate, (long long)s->tokens, s->tok_s);
}

void af_progress_evaluating(void *user, int64_t done, int64_t records)
{
    af_progress_line *p = user;
    if (p->quiet || !p->tty)
        return;
    erase(p);
    fprintf(stderr, "evaluating: record %lld of %lld", (long long)done + 1, (long long)records);
    fflush(stderr);
    p->drawn = true;
}

void af_progress_end(af_progress_line *p)
{
    if (p->drawn)
        fputc('\n', stderr);
    p->drawn = false;
}
