/* data_case.h - a temporary folder, files in it, and what `data preview` and `data check` make of
 * them. */
#ifndef AF_DATA_CASE_H
#define AF_DATA_CASE_H

#include "test.h"

#include "afinar/data.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "data/store/dataset.h"
#include "format/text/yaml_tree.h"

#include <jansson.h>
#include <zlib.h>

typedef struct data_case {
    char dir[256];
    af_buf log; /* warnings and faults */
    json_t *rows;
    af_data_report report;
    af_error err;
} data_case;

static inline void case_open(data_case *c)
{
    *c = (data_case){0};
    snprintf(c->dir, sizeof c->dir, "%s/afinar-data-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(c->dir));
    setenv("XDG_CACHE_HOME", c->dir, 1);
}

static inline void case_close(data_case *c)
{
    af_error err;
    af_log_set(NULL, NULL);
    json_decref(c->rows);
    af_buf_clear(&c->log);
    CHECK_OK(af_path_remove(c->dir, &err), err);
}

static inline const char *case_path(const data_case *c, const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", c->dir, name);
    return path;
}

static inline void case_write(const data_case *c, const char *name, const void *bytes, uint64_t n)
{
    af_error err;
    CHECK_OK(af_file_write(case_path(c, name), bytes, n, &err), err);
}

static inline void case_hear(void *user, af_log_level level, const char *line)
{
    if (level == AF_LOG_WARN) {
        af_buf_str(user, line);
        af_buf_char(user, '\n');
    }
}

static inline void case_fault(void *user, const char *message)
{
    case_hear(user, AF_LOG_WARN, message);
}

static inline bool case_row(void *user, const af_data_example *e)
{
    json_error_t why;
    char *line = af_data_example_json(e);
    json_t *v = line ? json_loads(line, 0, &why) : NULL;
    if (!v)
        fail_msg("not JSON: %s", line ? line : "(none)");
    json_array_append_new(user, v);
    free(line);
    return true;
}

/* Writes run.yaml: the model, then `more` (with the datasets). */
static inline void case_run(const data_case *c, const char *model, const char *more)
{
    af_buf b = {0};
    af_buf_printf(&b, "base_model: %s\n%s", model, more);
    case_write(c, "run.yaml", b.data, b.len);
    af_buf_clear(&b);
}

static inline void case_listen(data_case *c)
{
    c->log.len = 0;
    af_buf_str(&c->log, "");
    c->err = (af_error){0};
    af_log_set(case_hear, &c->log);
}

static inline af_status case_preview(data_case *c)
{
    case_listen(c);
    json_decref(c->rows);
    c->rows = json_array();
    return af_data_preview(case_path(c, "run.yaml"), NULL, 0, 0, case_row, c->rows, &c->err);
}

static inline af_status case_check(data_case *c)
{
    case_listen(c);
    return af_data_check(case_path(c, "run.yaml"), NULL, 0, false, case_fault, &c->log, &c->report,
                         &c->err);
}

/* What case_preview answered: `why` is in the message, or nothing is wrong. */
static inline bool case_refused(const data_case *c, af_status st, const char *why)
{
    if (!why)
        CHECK_OK(st, c->err);
    else if (st == AF_OK || !strstr(c->err.msg, why))
        fail_msg("'%s' should say '%s'", c->err.msg, why);
    return why != NULL;
}

/* A dataset of one file, by its path. */
static inline void case_dataset(const data_case *c, const char *model, const char *path,
                                const char *keys)
{
    char text[4096];
    snprintf(text, sizeof text, "%sdatasets:\n  - path: %s\n", keys, path);
    case_run(c, model, text);
}

/* The options of a training run over the datasets of a YAML list. */
static inline af_data_opts case_training(const char *model, af_arena *mem, const char *yaml,
                                         int64_t length)
{
    af_yaml *list;
    af_error err;
    CHECK_OK(af_yaml_parse(&list, mem, yaml, strlen(yaml), "run.yaml", &err), err);
    return (af_data_opts){.datasets = list,
                          .run_path = "run.yaml",
                          .model = model,
                          .excess = AF_EXCESS_TRUNCATE,
                          .sequence_len = length};
}

/* The objects of a .jsonl file. */
static inline json_t *case_lines(const char *path)
{
    enum { MOST = 16 << 20 };
    json_error_t why;
    json_t *out = json_array();
    char *text = calloc(1, MOST);
    gzFile f = gzopen(path, "rb"); /* a plain file is read as it is */
    assert_non_null(text);
    assert_non_null(f);
    assert_in_range(gzread(f, text, MOST - 1), 1, MOST - 2);
    gzclose(f);
    for (char *at = text, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_non_null(end);
        json_t *v = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, &why);
        assert_non_null(v);
        json_array_append_new(out, v);
    }
    free(text);
    return out;
}
#endif
