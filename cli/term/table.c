/* table.c - see table.h. */
#define _DEFAULT_SOURCE
#include "term/table.h"

#include "term/text_width.h"

#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

void af_table_init(af_table *t, const char *const *titles)
{
    *t = (af_table){0};
    for (; titles[t->columns] && t->columns < AF_TABLE_COLUMNS; t->columns++)
        t->title[t->columns] = titles[t->columns];
}

void af_table_cell(af_table *t, const char *fmt, ...)
{
    if (t->rows == t->cap) {
        const int cap = t->cap ? t->cap * 2 : 256;
        char **more = realloc(t->cell, (size_t)cap * sizeof *more);
        if (!more) {
            af_cli_note_memory();
            return;
        }
        t->cell = more;
        t->cap = cap;
    }
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = n < 0 ? NULL : malloc((size_t)n + 1);
    if (!s) {
        af_cli_note_memory();
        return;
    }
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->cell[t->rows++] = s; /* `rows` counts cells; whole rows are rows/columns */
}

static int width_of(const char *s) { return af_text_width(s, strlen(s)); }

/* A name that is too long loses its middle: the ends tell tensors apart. */
static void print_cut(FILE *f, const char *s, int width)
{
    const size_t n = strlen(s);
    const int wide = width_of(s), tail = (width - 1) / 2;
    if (wide <= width || width < 8) {
        fprintf(f, "%s%*s", s, width > wide ? width - wide : 0, "");
        return;
    }
    size_t head = 0, len;
    while (af_text_char(s + head, n - head, &len), af_text_width(s, head + len) < width - tail)
        head += len;
    size_t from = head;
    for (; af_text_width(s + from, n - from) > tail; from += len)
        af_text_char(s + from, n - from, &len);
    fprintf(f, "%.*s…%s", (int)head, s, s + from);
}

/* The row of these cells, or the titles for NULL. */
static void print_row(const af_table *t, FILE *f, const int *wide, char *const *cell)
{
    for (int c = 0; c < t->columns; c++) {
        const bool right = t->title[c][0] == '>';
        const char *s = cell ? cell[c] : t->title[c] + right;
        const int pad = wide[c] - width_of(s);
        if (c == t->columns - 1 && !*s)
            break; /* nothing at the end of the line */
        if (c)
            fputs("  ", f);
        if (right)
            fprintf(f, "%*s%s", pad > 0 ? pad : 0, "", s);
        else if (c == t->columns - 1)
            fputs(s, f);
        else
            print_cut(f, s, wide[c]);
    }
    fputc('\n', f);
}

void af_table_print(const af_table *t, FILE *f, int width)
{
    int wide[AF_TABLE_COLUMNS] = {0}, total = 2 * (t->columns - 1);
    const int rows = t->columns ? t->rows / t->columns : 0;
    for (int c = 0; c < t->columns; c++) {
        wide[c] = width_of(t->title[c] + (t->title[c][0] == '>'));
        for (int r = 0; r < rows; r++) {
            const int n = width_of(t->cell[r * t->columns + c]);
            wide[c] = n > wide[c] ? n : wide[c];
        }
        total += wide[c];
    }
    if (width > 0 && total > width) {
        const int least = 16, want = wide[0] - (total - width);
        wide[0] = want > least ? want : wide[0] < least ? wide[0] : least;
    }
    print_row(t, f, wide, NULL);
    for (int r = 0; r < rows; r++)
        print_row(t, f, wide, t->cell + r * t->columns);
}

void af_table_clear(af_table *t)
{
    for (int i = 0; i < t->rows; i++)
        free(t->cell[i]);
    free(t->cell);
    *t = (af_table){0};
}

int af_term_width(FILE *f)
{
    struct winsize w;
    if (!isatty(fileno(f)))
        return 0;
    return ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

const char *af_format_bytes(char buf[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    int u = 0;
    for (; v >= 1024 && u < 5; u++)
        v /= 1024;
    snprintf(buf, 32, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return buf;
}

const char *af_format_count(char buf[32], int64_t n)
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    double v = (double)n;
    int u = 0;
    for (; v >= 1000 && u < 4; u++)
        v /= 1000;
    snprintf(buf, 32, "%.*f%s", !u ? 0 : v < 10 ? 2 : 1, v, units[u]);
    return buf;
}
