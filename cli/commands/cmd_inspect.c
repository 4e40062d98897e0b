/* cmd_inspect.c - `afinar inspect`: the contents of a file or folder, or the difference of two. */
#include "afinar/inspect.h"

#include "commands/commands.h"
#include "term/table.h"
#include "term/text_width.h"

#include <inttypes.h>

static void shape_text(char *buf, size_t size, const int64_t *dim, int ndim)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; i < ndim && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? " x " : "", dim[i]);
    if (ndim == 0)
        snprintf(buf, size, "scalar");
}

/* The first number that is a whole component of the name, or NULL: where layers differ. */
static const char *layer_number(const char *name, size_t *digits)
{
    for (const char *p = name; *p; p++) {
        if (p > name && p[-1] != '.')
            continue;
        const size_t n = strspn(p, "0123456789");
        if (n && (p[n] == '.' || p[n] == '\0')) {
            *digits = n;
            return p;
        }
    }
    return NULL;
}

/* Orders tensors so that the same tensor of all layers stands together: 0 = the same but for the
 * number of the layer. */
static int compare_kind(const af_inspect_tensor *a, const af_inspect_tensor *b)
{
    size_t na = 0, nb = 0;
    const char *la = layer_number(a->name, &na), *lb = layer_number(b->name, &nb);
    if (!la || !lb)
        return la ? 1 : lb ? -1 : strcmp(a->name, b->name);
    const size_t before = (size_t)(la - a->name);
    int c = (before > (size_t)(lb - b->name)) - (before < (size_t)(lb - b->name));
    c = c ? c : memcmp(a->name, b->name, before);
    c = c ? c : strcmp(la + na, lb + nb);
    c = c ? c : a->ndim - b->ndim;
    c = c ? c : strcmp(a->dtype, b->dtype);
    return c ? c : memcmp(a->dim, b->dim, sizeof a->dim);
}

static int compare_rows(const void *a, const void *b)
{
    const af_inspect_tensor *x = *(const af_inspect_tensor *const *)a,
                            *y = *(const af_inspect_tensor *const *)b;
    const int c = compare_kind(x, y);
    return c ? c : (x > y) - (x < y); /* in the order of the file */
}

/* The lines of the list: what a line stands for, at the first of its tensors; 0 layers elsewhere.
 */
typedef struct tensor_line {
    int layers;
    uint64_t bytes;
} tensor_line;

static tensor_line *group_layers(const af_inspect_report *r, bool all)
{
    const size_t n = (size_t)r->tensor_count;
    tensor_line *line = calloc(n + 1, sizeof *line);
    const af_inspect_tensor **row = calloc(n + 1, sizeof *row);
    for (size_t i = 0; row && i < n; i++)
        row[i] = &r->tensors[i];
    if (row && !all)
        qsort(row, n, sizeof *row, compare_rows);
    for (size_t i = 0, first = 0; line && row && i < n; i++) {
        first = i > 0 && !all && compare_kind(row[first], row[i]) == 0 ? first : i;
        tensor_line *l = &line[row[first] - r->tensors];
        l->layers++;
        l->bytes += row[i]->bytes;
    }
    if (!row) {
        free(line);
        line = NULL;
    }
    free(row);
    return line;
}

/* A histogram as one line of bars. */
static void bars(char *buf, const int64_t *bins)
{
    static const char *const bar[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    int64_t most = 1;
    for (int i = 0; i < AF_INSPECT_BINS; i++)
        most = bins[i] > most ? bins[i] : most;
    for (int i = 0; i < AF_INSPECT_BINS; i++) {
        const int level = bins[i] ? (int)(bins[i] * 7 / most) : -1;
        const char *s = level < 0 ? " " : bar[level];
        memcpy(buf, s, strlen(s));
        buf += strlen(s);
    }
    *buf = '\0';
}

static void print_stats(const af_inspect_report *r, bool all)
{
    static const char *const titles[] = {"tensor", "type",  ">min",   ">max",      ">mean", ">std",
                                         ">l2",    ">zero", ">>6std", "histogram", NULL};
    af_table t;
    af_table_init(&t, titles);
    for (int i = 0; i < r->tensor_count; i++) {
        const af_inspect_tensor *x = &r->tensors[i];
        const af_inspect_stats *s = &x->stats;
        char line[AF_INSPECT_BINS * 4 + 32];
        if (!x->has_stats || (x->part && !all))
            continue;
        bars(line, s->bins);
        if (s->nans || s->infs)
            snprintf(line, sizeof line, "%" PRId64 " NaN, %" PRId64 " inf", s->nans, s->infs);
        af_table_cell(&t, "%s", x->name);
        af_table_cell(&t, "%s", x->dtype);
        af_table_cell(&t, "%.4g", s->min);
        af_table_cell(&t, "%.4g", s->max);
        af_table_cell(&t, "%.3g", s->mean);
        af_table_cell(&t, "%.4g", s->std);
        af_table_cell(&t, "%.4g", s->l2);
        af_table_cell(&t, "%.1f%%", x->count ? 100.0 * (double)s->zeros / (double)x->count : 0.0);
        af_table_cell(&t, "%" PRId64, s->outliers);
        af_table_cell(&t, "%s", line);
    }
    af_table_print(&t, stdout, af_term_width(stdout));
    af_table_clear(&t);
}

/* One line per tensor; the same tensor of all layers is one line unless `all`. */
static void print_tensors(const af_inspect_report *r, bool all)
{
    static const char *const titles[] = {"tensor", ">layers", "type", "shape", ">size", "", NULL};
    af_table t;
    af_table_init(&t, titles);
    tensor_line *lines = group_layers(r, all);
    if (!lines)
        af_cli_note_memory();
    for (int i = 0; lines && i < r->tensor_count; i++) {
        const af_inspect_tensor *x = &r->tensors[i];
        char shape[128], size[32], name[512];
        size_t digits = 0;
        const int layers = lines[i].layers;
        if (layers == 0 || (x->part && !all))
            continue;
        const char *at = layers > 1 ? layer_number(x->name, &digits) : NULL;
        if (at)
            snprintf(name, sizeof name, "%.*s*%s", (int)(at - x->name), x->name, at + digits);
        else
            snprintf(name, sizeof name, "%s", x->name);
        shape_text(shape, sizeof shape, x->dim, x->ndim);
        af_table_cell(&t, "%s", name);
        if (layers > 1)
            af_table_cell(&t, "%d", layers);
        else
            af_table_cell(&t, "%s", "");
        af_table_cell(&t, "%s", x->dtype);
        af_table_cell(&t, "%s", shape);
        af_table_cell(&t, "%s", af_format_bytes(size, lines[i].bytes));
        af_table_cell(&t, "%s", x->note);
    }
    free(lines);
    af_table_print(&t, stdout, af_term_width(stdout));
    af_table_clear(&t);
}

static void print_dtypes(const af_inspect_report *r)
{
    const char *name[64];
    int64_t count[64];
    uint64_t bytes[64];
    int n = 0;
    for (int i = 0; i < r->tensor_count; i++) {
        const af_inspect_tensor *x = &r->tensors[i];
        int k = 0;
        while (k < n && strcmp(name[k], x->dtype) != 0)
            k++;
        if (k == 64)
            continue;
        if (k == n) {
            name[n] = x->dtype;
            count[n] = 0;
            bytes[n++] = 0;
        }
        count[k]++;
        bytes[k] += x->bytes;
    }
    printf("  %-24s ", "types");
    for (int k = 0; k < n; k++) {
        char b[32];
        printf("%s%s %" PRId64 " tensors, %s", k ? "; " : "", name[k], count[k],
               af_format_bytes(b, bytes[k]));
    }
    printf("\n");
}

/* A value on one line, cut to the width of the terminal, without control characters. */
static void print_fact(const af_inspect_fact *f, int keys, int width)
{
    const int limit = width > keys + 16 ? width - keys - 4 : 200;
    printf("  %-*s ", keys, f->key);
    int n = 0;
    size_t len;
    for (const char *p = f->value, *end = p + strlen(p); *p && n < limit; p += len) {
        const unsigned c = af_text_char(p, (size_t)(end - p), &len);
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 0x20 || c == 0x7f)
            putchar('?');
        else
            fwrite(p, 1, len, stdout);
        n += af_text_width(p, len);
    }
    printf("%s\n", n >= limit ? "…" : "");
}

static void print_facts(const af_inspect_fact *f, int n, int width)
{
    int keys = 24;
    for (int i = 0; i < n; i++) {
        const int k = (int)strlen(f[i].key);
        keys = k > keys && k <= 44 ? k : keys;
    }
    for (int i = 0; i < n; i++)
        print_fact(&f[i], keys, width);
}

static void print_report(const af_inspect_report *r, bool stats, bool all)
{
    char params[32], bytes[32];
    const int width = af_term_width(stdout);
    printf("%s: %s\n", r->path, r->kind);
    print_facts(r->facts, r->fact_count, width);
    if (r->tensor_count) {
        printf("  %-24s %s (%" PRId64 "), %s in %d tensors", "parameters",
               af_format_count(params, r->parameters), r->parameters,
               af_format_bytes(bytes, r->bytes), r->tensor_count);
        if (r->parameters)
            printf(", %.2f bits per parameter", 8.0 * (double)r->bytes / (double)r->parameters);
        printf("\n");
        print_dtypes(r);
    }
    if (r->meta_count)
        printf("\nmetadata\n");
    print_facts(r->meta, r->meta_count, width);
    if (r->tensor_count) {
        printf("\n");
        if (stats)
            print_stats(r, all);
        else
            print_tensors(r, all);
    }
}

static void print_diff(const af_diff_report *r, bool all)
{
    static const char *const titles[] = {"tensor",    "type",      "shape", ">changed", ">largest",
                                         ">relative", ">1-cosine", "",      NULL};
    static const char *const labels[] = {"same",   "",       "shapes differ",
                                         "only A", "only B", "type not supported"};
    af_table t;
    af_table_init(&t, titles);
    for (int i = 0; i < r->row_count; i++) {
        const af_diff_row *d = &r->rows[i];
        char shape[128];
        const bool measured = d->kind == AF_DIFF_CHANGED;
        if (d->kind == AF_DIFF_SAME && !all)
            continue;
        shape_text(shape, sizeof shape, d->dim, d->ndim);
        af_table_cell(&t, "%s", d->name);
        af_table_cell(&t, "%s%s%s", d->dtype_a,
                      strcmp(d->dtype_a, d->dtype_b) && *d->dtype_a && *d->dtype_b ? "/" : "",
                      strcmp(d->dtype_a, d->dtype_b) ? d->dtype_b : "");
        af_table_cell(&t, "%s", shape);
        if (measured) {
            af_table_cell(&t, "%.1f%%", 100.0 * (double)d->changed / (double)d->count);
            af_table_cell(&t, "%.3g", d->max_abs);
            af_table_cell(&t, "%.3g", d->relative);
            af_table_cell(&t, "%.3g", 1 - d->cosine);
        }
        for (int k = 0; k < 4 && !measured; k++)
            af_table_cell(&t, "%s", "");
        af_table_cell(&t, "%s", labels[d->kind]);
    }
    printf("A %s\nB %s\n%d tensors are equal, %d differ, %d are in one only or cannot be "
           "compared\n",
           r->path_a, r->path_b, r->same, r->changed, r->other);
    if (t.rows) {
        printf("\n");
        af_table_print(&t, stdout, af_term_width(stdout));
    }
    af_table_clear(&t);
}

static int run_diff(const char *a, const char *b, const af_common *common,
                    const af_inspect_options *o, bool all)
{
    af_error err = {0};
    af_diff_report *r = NULL;
    char *json = NULL;
    if (af_inspect_diff(&r, a, b, o, &err) != AF_OK)
        return af_report("inspect", &err);
    int code = AF_EXIT_OK;
    if (!common->json)
        print_diff(r, all);
    else if (af_inspect_diff_json(&json, r, &err) == AF_OK)
        puts(json);
    else
        code = af_report("inspect", &err);
    free(json);
    af_inspect_diff_free(r);
    return code;
}

static int run_inspect(const char *path, const af_common *common, const af_inspect_options *o,
                       bool all)
{
    af_error err = {0};
    af_inspect_report *r = NULL;
    char *json = NULL;
    if (af_inspect(&r, path, o, &err) != AF_OK)
        return af_report("inspect", &err);
    int code = AF_EXIT_OK;
    if (!common->json)
        print_report(r, o->stats, all);
    else if (af_inspect_json(&json, r, &err) == AF_OK)
        puts(json);
    else
        code = af_report("inspect", &err);
    free(json);
    af_inspect_free(r);
    return code;
}

int cmd_inspect(int argc, char **argv)
{
    bool stats = false, diff = false, all = false;
    const char *arg[2];
    int count = 0;
    af_common common = {0};
    const af_opt opts[] = {
        {0, "stats", AF_OPT_FLAG, &stats, NULL,
         "print range, mean, norm, zeros, outliers and histogram"},
        {0, "diff", AF_OPT_FLAG, &diff, NULL,
         "compare two models: which tensors differ, and by how much"},
        {'a', "all", AF_OPT_FLAG, &all, NULL, "print every tensor on its own line"},
        {0},
    };
    const af_usage usage = {
        "inspect",
        "Shows the architecture, tensors and metadata of a model, adapter or checkpoint.",
        "FILE|DIR | --diff A B",
        opts,
        1,
        2,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    const af_inspect_options o = {.stats = stats, .threads = (int)common.threads};
    if (diff != (count == 2))
        return af_cli_error(AF_EXIT_USAGE, "inspect", "%s",
                            diff ? "--diff needs two files or folders"
                                 : "use --diff to compare two paths");
    return diff ? run_diff(arg[0], arg[1], &common, &o, all)
                : run_inspect(arg[0], &common, &o, all);
}
