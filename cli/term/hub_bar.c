/* hub_bar.c - the progress of a transfer with the hub: one redrawn line on a terminal, a line every
 * ten seconds elsewhere. */
#define _DEFAULT_SOURCE
#include "term/table.h"

#include "afinar/hub.h"

#include <time.h>
#include <unistd.h>

static struct {
    bool quiet, tty, drawn;
    time_t last;
    af_hub_opts opts;
} bar; /* of the process, as the hook is */

static void eta_text(char out[32], const af_hub_progress *p)
{
    const double s = p->bytes_s > 0 ? (double)(p->total - p->done) / p->bytes_s : -1;
    if (s < 0 || s > 360000)
        snprintf(out, 32, "--:--");
    else if (s >= 3600)
        snprintf(out, 32, "%d:%02d:%02d", (int)s / 3600, (int)s / 60 % 60, (int)s % 60);
    else
        snprintf(out, 32, "%d:%02d", (int)s / 60, (int)s % 60);
}

static void blocks(char *out, int width, double share)
{
    const int full = (int)(share * width);
    for (int i = 0; i < width; i++)
        out[i] = i < full ? '#' : '.';
    out[width] = '\0';
}

static void draw(const af_hub_progress *p)
{
    char done[32], total[32], speed[32], eta[32], line[300], squares[24];
    const double share = p->total ? (double)p->done / (double)p->total : 1;
    af_format_bytes(done, p->done);
    af_format_bytes(total, p->total);
    af_format_bytes(speed, (uint64_t)p->bytes_s);
    eta_text(eta, p);
    blocks(squares, 20, share);
    snprintf(line, sizeof line, "%3d%% [%s] %s of %s, %s/s, %s left, %d of %d files",
             (int)(share * 100), squares, done, total, speed, eta, p->files_done, p->files);
    const int width = af_term_width(stderr); /* a wrapped line could not be erased */
    if (width > 0 && (size_t)width < strlen(line) + 1)
        line[width - 1] = '\0';
    fprintf(stderr, "\r\033[K%s", line);
    bar.drawn = true;
}

static bool show(void *user, const af_hub_progress *p)
{
    char done[32], total[32];
    (void)user;
    if (bar.quiet)
        return true;
    if (bar.tty && !p->finished)
        draw(p);
    if (p->finished && bar.drawn)
        fputs("\r\033[K", stderr);
    if (p->finished)
        bar.drawn = false;
    fflush(stderr);
    const time_t now = time(NULL);
    if (!bar.tty && !p->finished && now - bar.last >= 10) {
        if (bar.last)
            fprintf(stderr, "%s: %s of %s\n", p->repo, af_format_bytes(done, p->done),
                    af_format_bytes(total, p->total));
        bar.last = now;
    }
    return true;
}

void af_cli_hub(const af_common *c)
{
    bar.quiet = c->quiet;
    bar.tty = af_tty(stderr);
    bar.opts = (af_hub_opts){.offline = c->offline, .token_file = c->token_file, .progress = show};
    af_hub_set(&bar.opts);
}

const af_hub_opts *af_cli_hub_opts(void) { return &bar.opts; }
