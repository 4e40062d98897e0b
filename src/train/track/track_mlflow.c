#define _XOPEN_SOURCE 700 /* realpath */
/* track_mlflow.c - MLflow's file store: ROOT/EXPERIMENT/RUN with meta.yaml, one file per parameter
 * and tag, and one file per metric with lines "milliseconds value step". */
#include "base/file.h"
#include "base/log.h"
#include "format/text/json_text.h"
#include "train/run/run_keys.h"
#include "train/track/tracker.h"

#include <limits.h>

/* MLflow's numbers. */
enum {
    RUN_STATUS_RUNNING = 1,
    RUN_STATUS_FINISHED = 3,
    RUN_STATUS_FAILED = 4,
    RUN_STATUS_KILLED = 5
};
enum { SOURCE_TYPE_LOCAL = 4, PARAM_MAX = 6000 };

typedef struct mlflow {
    char dir[PATH_MAX]; /* of the run: its last two components are experiment and run */
    char *name;
    double start;
} mlflow;

static af_status write_in(const char *dir, const char *name, const char *text, uint64_t n,
                          af_error *err)
{
    char *path = af_path_join(dir, name);
    const af_status st =
        path ? af_file_write(path, text, n, err) : af_fail_nomem(err, "a path", strlen(dir));
    free(path);
    return st;
}

static af_status write_buf(const char *dir, const char *name, af_buf *b, af_error *err)
{
    const af_status st =
        b->bad ? af_fail_nomem(err, name, b->len) : write_in(dir, name, b->data, b->len, err);
    af_buf_clear(b);
    return st;
}

/* file:// and the path, with what a URI cannot have as %XX. */
static void put_uri(af_buf *b, const char *key, const char *dir, const char *below)
{
    af_buf_printf(b, "%s: \"file://", key);
    for (const char *s = dir; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || strchr("/-._~", c);
        af_buf_printf(b, plain ? "%c" : "%%%02X", c);
    }
    af_buf_printf(b, "%s\"\n", below);
}

/* ---- the store ---- */

/* The folder a tracking URI names; NULL when it is not a plain local folder. */
static const char *local_folder(const char *uri)
{
    const char *path = strncmp(uri, "file://", 7) == 0 ? uri + 7
                       : strncmp(uri, "file:", 5) == 0 ? uri + 5
                                                       : uri;
    const bool host = path == uri + 7 && path[0] != '/';
    const bool other = strchr(path, ':') || strchr(path, '%') || strcmp(path, "databricks") == 0;
    return *path && !host && !other ? path : NULL;
}

static af_status find_root(char root[PATH_MAX], const af_run_config *run, af_error *err)
{
    const char *uri =
        run->mlflow_tracking_uri ? run->mlflow_tracking_uri : getenv("MLFLOW_TRACKING_URI");
    const char *folder = uri && *uri ? local_folder(uri) : NULL;
    if (uri && *uri && !folder)
        af_log_write(AF_LOG_WARN,
                     "the MLflow store '%s' is not a local folder; the run is written to %s/mlruns",
                     uri, run->output_dir);
    char *path = folder ? strdup(folder) : af_path_join(run->output_dir, "mlruns");
    af_status st = path ? af_dir_make(path, err) : af_fail_nomem(err, "a path", PATH_MAX);
    if (st == AF_OK && !realpath(path, root))
        st = af_fail(err, AF_EIO, "%s: cannot be opened", path);
    free(path);
    return st;
}

/* Whether the meta.yaml of an experiment has this name, in one of the ways YAML writes it. */
static bool has_name(const char *root, const char *id, const char *name)
{
    char path[PATH_MAX], *text = NULL;
    uint64_t size;
    bool found = false;
    af_buf plain = {0}, quoted = {0};
    if (snprintf(path, sizeof path, "%s/%s/meta.yaml", root, id) >= (int)sizeof path ||
        !af_file_exists(path) || af_file_read(&text, &size, path, 1 << 20, NULL) != AF_OK)
        return false;
    af_buf_printf(&plain, "\nname: %s\n", name);
    af_buf_str(&quoted, "\nname: ");
    af_put_quoted(&quoted, name);
    af_buf_char(&quoted, '\n');
    if (!plain.bad && !quoted.bad)
        found = strstr(text, plain.data) || strstr(text, quoted.data);
    af_buf_clear(&plain);
    af_buf_clear(&quoted);
    free(text);
    return found;
}

static af_status create_experiment(const char *root, const char *id, const char *name, double time,
                                   af_error *err)
{
    char dir[PATH_MAX];
    const int64_t ms = (int64_t)(time * 1e3);
    if (snprintf(dir, sizeof dir, "%s/%s", root, id) >= (int)sizeof dir)
        return af_fail(err, AF_EIO, "%s: the path is too long", root);
    af_status st = af_dir_make(dir, err);
    af_buf b = {0};
    put_uri(&b, "artifact_location", dir, "");
    af_buf_printf(&b, "creation_time: %" PRId64 "\nexperiment_id: '%s'\n", ms, id);
    af_buf_printf(&b, "last_update_time: %" PRId64 "\nlifecycle_stage: active\nname: ", ms);
    af_put_quoted(&b, name);
    af_buf_char(&b, '\n');
    if (st == AF_OK)
        return write_buf(dir, "meta.yaml", &b, err);
    af_buf_clear(&b);
    return st;
}

/* The experiment of this name, created when there is none. */
static af_status find_experiment(char id[32], const char *root, const af_track_start *s,
                                 af_error *err)
{
    const char *name = s->run->mlflow_experiment, *env = getenv("MLFLOW_EXPERIMENT_NAME");
    char **names = NULL;
    int n = 0;
    if (!name)
        name = env && *env ? env : "Default";
    af_status st = af_dir_list(&names, &n, root, err);
    if (st != AF_OK)
        return st;
    bool found = false;
    for (int i = 0; i < n && !found; i++)
        if (strlen(names[i]) < 32 && has_name(root, names[i], name)) {
            snprintf(id, 32, "%s", names[i]);
            found = true;
        }
    af_names_free(names, n);
    if (found)
        return AF_OK;
    char hex[16];
    af_track_new_id(hex, 14, root);
    if (strcmp(name, "Default") == 0)
        snprintf(id, 32, "0");
    else /* 18 digits, as MLflow's own */
        snprintf(id, 32, "%" PRIu64,
                 UINT64_C(100000000000000000) + (uint64_t)strtoull(hex, NULL, 16));
    return create_experiment(root, id, name, s->time, err);
}

/* ---- the run ---- */

static af_status write_meta(const mlflow *m, int status, double end, af_error *err)
{
    const char *run = af_path_name(m->dir), *user = getenv("USER");
    char experiment[PATH_MAX];
    snprintf(experiment, sizeof experiment, "%.*s", (int)(run - m->dir - 1), m->dir);
    af_buf b = {0};
    put_uri(&b, "artifact_uri", m->dir, "/artifacts");
    if (status == RUN_STATUS_RUNNING)
        af_buf_str(&b, "end_time: null\n");
    else
        af_buf_printf(&b, "end_time: %" PRId64 "\n", (int64_t)(end * 1e3));
    af_buf_printf(&b, "entry_point_name: ''\nexperiment_id: '%s'\nlifecycle_stage: active\n",
                  af_path_name(experiment));
    af_buf_printf(&b, "run_id: '%s'\nrun_name: ", run);
    af_put_quoted(&b, m->name);
    af_buf_printf(&b, "\nsource_name: ''\nsource_type: %d\nsource_version: ''\n",
                  SOURCE_TYPE_LOCAL);
    af_buf_printf(&b, "start_time: %" PRId64 "\nstatus: %d\ntags: []\nuser_id: ",
                  (int64_t)(m->start * 1e3), status);
    af_put_quoted(&b, user ? user : "");
    af_buf_char(&b, '\n');
    return write_buf(m->dir, "meta.yaml", &b, err);
}

static af_status write_params(const mlflow *m, const json_t *keys, af_error *err)
{
    char dir[PATH_MAX + 16];
    const char *key;
    json_t *value;
    af_status st = AF_OK;
    snprintf(dir, sizeof dir, "%s/params", m->dir);
    json_object_foreach((json_t *)keys, key, value)
    {
        char *text = af_track_text(value);
        size_t n = text ? strlen(text) : 0;
        if (n > PARAM_MAX) /* MLflow's limit, and no half character */
            for (n = PARAM_MAX; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
                n--;
        st = text ? write_in(dir, key, text, n, err) : af_fail_nomem(err, key, 64);
        free(text);
        if (st != AF_OK)
            break;
    }
    return st;
}

static af_status write_tags(const mlflow *m, const af_run_config *run, af_error *err)
{
    char dir[PATH_MAX + 16];
    const char *user = getenv("USER");
    const char *const tags[][2] = {{"mlflow.runName", m->name},
                                   {"mlflow.source.name", run->path ? run->path : "afinar"},
                                   {"mlflow.source.type", "LOCAL"},
                                   {"mlflow.user", user ? user : ""}};
    af_status st = AF_OK;
    snprintf(dir, sizeof dir, "%s/tags", m->dir);
    for (size_t i = 0; i < AF_LEN(tags) && st == AF_OK; i++)
        st = write_in(dir, tags[i][0], tags[i][1], strlen(tags[i][1]), err);
    return st;
}

static af_status create_run(mlflow *m, const af_track_start *s, af_error *err)
{
    static const char *const folders[] = {"artifacts", "metrics", "params", "tags"};
    char root[PATH_MAX], experiment[32], id[33];
    af_status st = find_root(root, s->run, err);
    if (st == AF_OK)
        st = find_experiment(experiment, root, s, err);
    if (st != AF_OK)
        return st;
    af_track_new_id(id, 32, root);
    if (snprintf(m->dir, sizeof m->dir, "%s/%s/%s", root, experiment, id) >= (int)sizeof m->dir)
        return af_fail(err, AF_EIO, "%s: the path is too long", root);
    for (size_t i = 0; i < AF_LEN(folders) && st == AF_OK; i++) {
        char *path = af_path_join(m->dir, folders[i]);
        st = path ? af_dir_make(path, err) : af_fail_nomem(err, "a path", PATH_MAX);
        free(path);
    }
    if (st == AF_OK)
        st = write_params(m, s->keys, err);
    return st == AF_OK ? write_tags(m, s->run, err) : st;
}

/* Removes the lines of later steps. */
static af_status cut_metric(const char *path, int64_t step, af_error *err)
{
    char *text = NULL;
    uint64_t size = 0;
    const af_status st = af_file_read(&text, &size, path, UINT64_MAX / 2, err);
    if (st != AF_OK)
        return st;
    uint64_t kept = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        long long ms, at;
        const size_t n = (size_t)(end - line) + 1;
        if (sscanf(line, "%lld %*s %lld", &ms, &at) != 2 || at > step)
            continue;
        memmove(text + kept, line, n);
        kept += n;
    }
    const af_status done = kept < size ? af_file_write(path, text, kept, err) : AF_OK;
    free(text);
    return done;
}

static af_status continue_run(mlflow *m, const af_track_start *s, af_error *err)
{
    char dir[PATH_MAX + 16], path[PATH_MAX + 300], **names = NULL, *text = NULL;
    uint64_t size;
    int n = 0;
    snprintf(m->dir, sizeof m->dir, "%s", s->id);
    snprintf(path, sizeof path, "%s/meta.yaml", m->dir);
    af_status st = af_file_read(&text, &size, path, 1 << 20, err);
    const char *start = st == AF_OK ? strstr(text, "start_time: ") : NULL;
    if (start)
        m->start = strtod(start + strlen("start_time: "), NULL) * 1e-3;
    free(text);
    snprintf(dir, sizeof dir, "%s/metrics", m->dir);
    if (st == AF_OK)
        st = af_dir_list(&names, &n, dir, err);
    for (int i = 0; i < n && st == AF_OK; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        st = cut_metric(path, s->step, err);
    }
    af_names_free(names, n);
    return st;
}

static void mlflow_free(void *state)
{
    mlflow *m = state;
    free(m->name);
    free(m);
}

static af_status mlflow_open(void **state, char **id, const af_track_start *s, af_error *err)
{
    mlflow *m = calloc(1, sizeof *m);
    if (!m || !(m->name = strdup(s->name))) {
        free(m);
        return af_fail_nomem(err, "MLflow's run", sizeof *m);
    }
    m->start = s->time;
    const bool there = s->id && af_dir_exists(s->id);
    af_status st = there ? continue_run(m, s, err) : create_run(m, s, err);
    if (st == AF_OK)
        st = write_meta(m, RUN_STATUS_RUNNING, 0, err);
    if (st == AF_OK && !(*id = strdup(m->dir)))
        st = af_fail_nomem(err, "a path", strlen(m->dir));
    if (st == AF_OK)
        *state = m;
    else
        mlflow_free(m);
    return st;
}

static af_status mlflow_row(void *state, const af_track_row *row, af_error *err)
{
    const mlflow *m = state;
    char path[PATH_MAX + 300], line[100];
    af_status st = AF_OK;
    for (int i = 0; i < row->count && st == AF_OK; i++) {
        snprintf(path, sizeof path, "%s/metrics/%s", m->dir, row->name[i]);
        const int n = snprintf(line, sizeof line, "%" PRId64 " %.17g %" PRId64 "\n",
                               (int64_t)(row->time * 1e3), row->value[i], row->step);
        st = af_file_append(path, line, (uint64_t)n, false, err);
    }
    return st;
}

static af_status mlflow_end(void *state, af_track_end how, double time, af_error *err)
{
    static const int status[] = {[AF_TRACK_DONE] = RUN_STATUS_FINISHED,
                                 [AF_TRACK_STOPPED] = RUN_STATUS_KILLED,
                                 [AF_TRACK_FAILED] = RUN_STATUS_FAILED};
    return write_meta(state, status[how], time, err);
}

const af_tracker_kind af_track_mlflow = {
    .which = AF_TRACKER_MLFLOW,
    .name = "mlflow",
    .open = mlflow_open,
    .row = mlflow_row,
    .end = mlflow_end,
    .free = mlflow_free,
};
