/* opts_help.c - help texts, the JSON of the option tables, and "did you mean". */
#include "term/opts_help.h"

static void help_rows(const af_opt *o)
{
    for (; o->name; o++) {
        char left[64];
        const char *value = o->value ? o->value : "";
        if (o->letter)
            snprintf(left, sizeof left, "-%c, --%s %s", o->letter, o->name, value);
        else
            snprintf(left, sizeof left, "    --%s %s", o->name, value);
        printf("  %-28s %s\n", left, o->help);
    }
}

void af_opts_help(const af_usage *u, const af_opt *common)
{
    printf("usage: afinar %s [options]%s%s\n\n%s\n", u->command, *u->synopsis ? " " : "",
           u->synopsis, u->about);
    if (u->opts->name) {
        printf("\noptions:\n");
        help_rows(u->opts);
    }
    printf("\ncommon options:\n");
    help_rows(common);
    if (u->after_help)
        u->after_help();
}

static void json_text(FILE *f, const char *s)
{
    if (s)
        af_cli_json_text(f, s, strlen(s));
    else
        fputs("null", f);
}

void af_opts_dump_rows(const af_opt *o, FILE *f)
{
    fputc('[', f);
    for (const char *between = ""; o->name; o++, between = ", ") {
        const char letter[2] = {o->letter, '\0'};
        fprintf(f, "%s{\"letter\": ", between);
        json_text(f, o->letter ? letter : NULL);
        fputs(", \"name\": ", f);
        json_text(f, o->name);
        fputs(", \"value\": ", f);
        json_text(f, o->value);
        fputs(", \"help\": ", f);
        json_text(f, o->help);
        fprintf(f, ", \"repeat\": %s}", o->kind == AF_OPT_LIST ? "true" : "false");
    }
    fputc(']', f);
}

void af_opts_dump(const af_usage *u, FILE *f)
{
    fputs("{\"text\": ", f);
    json_text(f, u->about);
    fputs(", \"usage\": ", f);
    json_text(f, u->synopsis);
    fputs(", \"options\": ", f);
    af_opts_dump_rows(u->opts, f);
    fputc('}', f);
}

/* ---- did you mean ---- */

static int min2(int a, int b) { return a < b ? a : b; }

/* Edits (insert, delete, replace, swap neighbours) from a to b. The library has the same for run
 * file keys; it is not part of the public API, so the program has its own dozen lines. */
static int edit_distance(const char *a, const char *b)
{
    enum { LENGTH_MAX = 40 };
    int d[LENGTH_MAX + 1][LENGTH_MAX + 1];
    const int n = min2((int)strlen(a), LENGTH_MAX), m = min2((int)strlen(b), LENGTH_MAX);
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] =
                min2(d[i - 1][j - 1] + (a[i - 1] != b[j - 1]), min2(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = min2(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

/* One is an abbreviation of the other. */
static bool is_prefix(const char *a, const char *b)
{
    const size_t n = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
    return n >= 3 && strncmp(a, b, n) == 0;
}

const char *af_cli_suggest(const char *name, const char *const *known)
{
    const char *best = NULL;
    const int limit = 1 + (int)strlen(name) / 3;
    for (int least = limit + 1; *known; known++) {
        int d = edit_distance(name, *known);
        if (is_prefix(name, *known))
            d = min2(d, limit);
        if (d < least) {
            least = d;
            best = *known;
        }
    }
    return best;
}
