/* progress.c - the progress line. */
#define _POSIX_C_SOURCE 200809L
#include "progress.h"

#include <math.h>
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
    *p = (af_progress_line){.quiet = quiet, .tty = isatty(STDERR_FILENO) != 0};
}

static void erase(af_progress_line *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

void af_progress_say(void *user, const char *line)
{
    af_progress_line *p = user;
    if (p->quiet)
        return;
    erase(p);
    fprintf(stderr, "%s\n", line);
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
static void spark(const af_progress_line *p, char *out)
{
    static const char *const bar[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int n = p->losses < AF_SPARK ? p->losses : AF_SPARK;
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < n; i++) {
        low = fmin(low, p->loss[i]);
        high = fmax(high, p->loss[i]);
    }
    *out = '\0';
    for (int i = 0; i < n; i++) {
        const double v = p->loss[(p->losses - n + i) % AF_SPARK];
        const int level = high > low ? (int)((v - low) / (high - low) * 7.999) : 0;
        memcpy(out, bar[level], strlen(bar[level]) + 1);
        out += strlen(bar[level]);
    }
}

static void draw(af_progress_line *p, const af_train_step *s)
{
    char eta[32], bars[AF_SPARK * 4 + 1];
    clock_text(eta, sizeof eta, s->eta_s);
    spark(p, bars);
    erase(p);
    fprintf(stderr, "%lld/%lld %s loss %.4f  lr %.2e  norm %.3f  %.0f tok/s  %.0f MiB  %s left",
            (long long)s->step, (long long)s->steps, bars, s->loss, s->learning_rate, s->grad_norm,
            s->tok_s, (double)s->memory / 0x1p20, eta);
    fflush(stderr);
    p->drawn = true;
}

void af_progress_step(void *user, const af_train_step *s)
{
    af_progress_line *p = user;
    if (p->quiet)
        return;
    if (!isnan(s->eval_loss)) {
        erase(p);
        fprintf(stderr, "step %lld/%lld: eval_loss %.5f\n", (long long)s->step, (long long)s->steps,
                s->eval_loss);
        return;
    }
    p->loss[p->losses++ % AF_SPARK] = s->loss;
    if (p->tty)
        draw(p, s);
    else
        fprintf(
            stderr,
            "step %lld/%lld epoch %.3f loss %.5f grad_norm %.4f lr %.3e tokens %lld (%.0f tok/s)\n",
            (long long)s->step, (long long)s->steps, s->epoch, s->loss, s->grad_norm,
            s->learning_rate, (long long)s->tokens, s->tok_s);
}

void af_progress_end(af_progress_line *p)
{
    if (p->drawn)
        fputc('\n', stderr);
    p->drawn = false;
}
