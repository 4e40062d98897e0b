/* merge_series.c - a merge file with several documents, as mergekit-multi has them: each is a merge
 * of its own, and later ones name the results of earlier ones among their models. */
#include "base/file.h"
#include "base/log.h"
#include "convert/merge/merge_run.h"

enum { STAGES_MAX = 64 };

typedef struct stage {
    const char *name, *out_path; /* in the file; or NULL */
    const char *path;            /* of its result */
} stage;

typedef struct series {
    const char *file, *out;
    const af_merge_opts *o;
    stage done[STAGES_MAX];
    int count;
    af_arena mem;
    af_error *err;
} series;

static bool is_separator(const char *line)
{
    return strncmp(line, "---", 3) == 0 && (!line[3] || strchr(" \t\r\n#", line[3]));
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* Whether there is more than blanks and comments. */
static bool has_content(const char *from, const char *to)
{
    for (; from < to; from = next_line(from)) {
        const char *at = from + strspn(from, " \t\r");
        if (at < to && *at && *at != '\n' && *at != '#')
            return true;
    }
    return false;
}

/* The document that begins at *at, of which *to is the end; NULL after the last one. */
static const char *next_document(const char **at, const char **to)
{
    while (**at) {
        const char *from = is_separator(*at) ? next_line(*at) : *at, *end = from;
        while (*end && !is_separator(end))
            end = next_line(end);
        *at = *to = end;
        if (has_content(from, end))
            return from;
    }
    return NULL;
}

static int count_documents(const char *text)
{
    int n = 0;
    for (const char *to; next_document(&text, &to);)
        n++;
    return n;
}

static bool names(const char *model, size_t len, const char *name)
{
    return name && strlen(name) == len && strncmp(model, name, len) == 0;
}

/* A model that is the result of an earlier document, also NAME+ADAPTER. */
static af_status set_results(series *s, af_merge_config *c)
{
    for (int i = 0; i < c->models; i++) {
        const size_t len = strcspn(c->model[i], "+");
        for (int k = 0; k < s->count; k++) {
            if (!names(c->model[i], len, s->done[k].name) &&
                !names(c->model[i], len, s->done[k].out_path))
                continue;
            c->model[i] = af_arena_printf(&s->mem, "%s%s", s->done[k].path, c->model[i] + len);
            if (!c->model[i])
                return af_fail_nomem(s->err, "a path", len);
            break;
        }
    }
    return AF_OK;
}

/* The text of one document after as many newlines as stand before it: lines keep their numbers. */
static char *alone(const char *text, const char *from, const char *to)
{
    uint64_t lines = 0;
    for (const char *at = text; at < from; at++)
        lines += *at == '\n';
    const uint64_t size = lines + (uint64_t)(to - from);
    char *out = af_calloc(size + 1, 1);
    if (out) {
        memset(out, '\n', lines);
        memcpy(out + lines, from, (size_t)(to - from));
        out[size] = 0;
    }
    return out;
}

/* All documents are read before the first merge runs. */
static af_status read_all(af_merge_config *c, const series *s, const char *text)
{
    const char *at = text, *to, *from;
    af_status st = AF_OK;
    for (int i = 0; st == AF_OK && (from = next_document(&at, &to)) != NULL; i++) {
        char *one = alone(text, from, to);
        st = one ? af_merge_config_parse(&c[i], one, strlen(one), s->file, s->err)
                 : af_fail_nomem(s->err, s->file, (uint64_t)(to - from));
        free(one);
    }
    return st;
}

static af_status merge_one(series *s, af_merge_config *c, bool last, af_merge_plan *plan)
{
    stage *d = &s->done[s->count];
    af_merge_opts o = *s->o;
    af_status st = set_results(s, c);
    if (st != AF_OK)
        return st;
    *d = (stage){.name = c->name,
                 .out_path = c->out_path,
                 .path =
                     last ? s->out : af_arena_printf(&s->mem, "%s.parts/%d", s->out, s->count + 1)};
    if (!d->path)
        return af_fail_nomem(s->err, "a path", strlen(s->out));
    o.force |= !last; /* of an earlier try */
    s->count++;
    return af_merge_config_run(c, d->path, &o, plan, s->err);
}

/* What is in the place of the last result is refused before the first merge runs. */
static af_status check_output(const series *s)
{
    af_output f = {0};
    const af_status st = af_folder_open(&f, s->out, NULL, 0, s->o->force, s->err);
    af_output_abandon(&f);
    return st;
}

static af_status merge_all(series *s, const char *text, int n, af_merge_plan *plan)
{
    af_merge_config *c = af_calloc((uint64_t)n, sizeof *c);
    char *parts = s->o->plan ? NULL : af_arena_printf(&s->mem, "%s.parts", s->out);
    af_status st = c && (parts || s->o->plan) ? AF_OK : af_fail_nomem(s->err, "a merge", sizeof *c);
    AF_TRY(st);
    if (s->o->plan)
        AF_TRY(af_fail(s->err, AF_EUNSUPPORTED,
                       "%s: the plan of a file with %d merges is not supported: their models are "
                       "not there before they run",
                       s->file, n));
    AF_TRY(read_all(c, s, text));
    AF_TRY(check_output(s));
    AF_TRY(af_dir_make(parts, s->err));
    for (int i = 0; i < n; i++) {
        af_log_write(AF_LOG_INFO, "merge %d of %d", i + 1, n);
        AF_TRY(merge_one(s, &c[i], i + 1 == n, plan));
    }
    af_log_write(AF_LOG_INFO, "the results before the last one are in %s", parts);
done:
    for (int i = 0; c && i < n; i++)
        af_merge_config_clear(&c[i]);
    free(c);
    return st;
}

af_status af_merge_file(const char *config, const char *out, const af_merge_opts *o,
                        af_merge_plan *plan, af_error *err)
{
    AF_NEED(err, config, o, out || (o && o->plan));
    series s = {.file = config, .out = out, .o = o, .err = err};
    af_merge_config c = {0};
    char *text = NULL;
    uint64_t size = 0;
    af_status st = AF_OK;
    if (!af_dir_exists(config))
        AF_TRY(af_file_read(&text, &size, config, AF_YAML_BYTES_MAX, err));
    const int n = text && strlen(text) == size ? count_documents(text) : 0;
    if (n > STAGES_MAX)
        AF_TRY(af_fail(err, AF_EUSAGE, "%s: more than %d documents", config, STAGES_MAX));
    if (n > 1) {
        st = merge_all(&s, text, n, plan);
        goto done;
    }
    AF_TRY(af_merge_config_read(&c, config, err));
    AF_TRY(af_merge_config_run(&c, out, o, plan, err));
done:
    af_merge_config_clear(&c);
    af_arena_clear(&s.mem);
    free(text);
    return st;
}
