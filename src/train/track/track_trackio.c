/* track_trackio.c - trackio's store: one SQLite database per project in TRACKIO_DIR. The library
 * is loaded when it is asked for. */
#define _GNU_SOURCE
#include "base/file.h"
#include "format/text/json_text.h"
#include "train/track/tracker.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <time.h>

/* The few calls of sqlite3.h that are used; its values SQLITE_OK and SQLITE_DONE. */
enum { DB_OK = 0, DB_DONE = 101, BUSY_MS = 10000 };
typedef struct db_calls {
    int (*open)(const char *path, void **db);
    int (*close)(void *db);
    int (*exec)(void *db, const char *sql, void *callback, void *user, char **message);
    int (*prepare)(void *db, const char *sql, int n, void **statement, const char **tail);
    int (*bind_text)(void *statement, int at, const char *text, int n, void *destructor);
    int (*bind_int64)(void *statement, int at, int64_t v);
    int (*step)(void *statement);
    int (*finalize)(void *statement);
    const char *(*errmsg)(void *db);
    int (*busy_timeout)(void *db, int ms);
} db_calls;

typedef struct trackio {
    void *library, *db;
    db_calls call;
    char path[PATH_MAX], id[33], *name;
} trackio;

static const char tables[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
    "CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT "
    "NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT "
    "NOT NULL, log_id TEXT, space_id TEXT);"
    "CREATE TABLE IF NOT EXISTS configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT "
    "NULL, run_name TEXT NOT NULL, config TEXT NOT NULL, created_at TEXT NOT NULL, "
    "UNIQUE(run_id));"
    "CREATE TABLE IF NOT EXISTS system_metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT "
    "NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, metrics TEXT NOT NULL, log_id "
    "TEXT, space_id TEXT);";

static af_status load(trackio *t, af_error *err)
{
    static const char *const names[] = {
        "sqlite3_open",      "sqlite3_close",       "sqlite3_exec", "sqlite3_prepare_v2",
        "sqlite3_bind_text", "sqlite3_bind_int64",  "sqlite3_step", "sqlite3_finalize",
        "sqlite3_errmsg",    "sqlite3_busy_timeout"};
    void *found[AF_LEN(names)];
    _Static_assert(sizeof found == sizeof t->call, "one name per call");
    t->library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (!t->library || !(found[i] = dlsym(t->library, names[i])))
            return af_fail(err, AF_EIO,
                           "libsqlite3.so.0 is not there; the package libsqlite3-0 (Debian, "
                           "Ubuntu) or sqlite-libs (Fedora) brings it");
    memcpy(&t->call, found, sizeof found);
    return AF_OK;
}

static af_status fail_db(const trackio *t, af_error *err)
{
    return af_fail(err, AF_EIO, "%s: %s", t->path, t->db ? t->call.errmsg(t->db) : "no memory");
}

/* Runs a statement with texts, NULL being the number. */
static af_status run_sql(const trackio *t, const char *sql, const char *const *text, int n,
                         int64_t number, af_error *err)
{
    void *s = NULL;
    bool good = t->call.prepare(t->db, sql, -1, &s, NULL) == DB_OK;
    for (int i = 0; i < n && good; i++)
        good = (text[i] ? t->call.bind_text(s, i + 1, text[i], -1, NULL)
                        : t->call.bind_int64(s, i + 1, number)) == DB_OK;
    good = good && t->call.step(s) == DB_DONE;
    const af_status st = good ? AF_OK : fail_db(t, err);
    t->call.finalize(s);
    return st;
}

/* "2026-01-31T12:00:00.000000+00:00" */
static void put_time(char out[64], double time)
{
    const time_t t = (time_t)time;
    struct tm utc;
    char date[32];
    gmtime_r(&t, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, 64, "%s.%06d+00:00", date, (int)((time - floor(time)) * 1e6));
}

/* DIR/PROJECT.db, with the letters of the name that trackio keeps. */
static af_status find_path(trackio *t, const af_run_config *run, af_error *err)
{
    char dir[PATH_MAX - 300], file[256];
    const char *own = getenv("TRACKIO_DIR");
    char *home = af_hf_home();
    size_t n = 0;
    if (!home)
        return af_fail_nomem(err, "a path", 0);
    if (own && *own)
        snprintf(dir, sizeof dir, "%s", own);
    else
        snprintf(dir, sizeof dir, "%s/trackio", home);
    free(home);
    const char *project = run->trackio_project ? run->trackio_project : "huggingface";
    for (const char *s = project; *s && n < sizeof file - 1; s++) {
        const unsigned char c = (unsigned char)*s;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '-' || c == '_' || c >= 0x80)
            file[n++] = *s;
    }
    file[n] = '\0';
    snprintf(t->path, sizeof t->path, "%s/%s.db", dir, n ? file : "default");
    return af_dir_make(dir, err);
}

static void trackio_free(void *state)
{
    trackio *t = state;
    if (t->db)
        t->call.close(t->db);
    if (t->library)
        dlclose(t->library);
    free(t->name);
    free(t);
}

static af_status write_config(const trackio *t, const af_track_start *s, af_error *err)
{
    char now[64], *config = af_json_dump(s->keys, JSON_COMPACT | JSON_REAL_PRECISION(17));
    put_time(now, s->time);
    const af_status st =
        config ? run_sql(t,
                         "INSERT OR REPLACE INTO configs (run_id, run_name, config, created_at) "
                         "VALUES (?, ?, ?, ?)",
                         (const char *[]){t->id, t->name, config, now}, 4, 0, err)
               : af_fail_nomem(err, "the settings", 4096);
    free(config);
    return st;
}

static af_status start_run(trackio *t, const af_track_start *s, af_error *err)
{
    af_status st = load(t, err);
    if (st == AF_OK)
        st = find_path(t, s->run, err);
    if (st != AF_OK)
        return st;
    if (t->call.open(t->path, &t->db) != DB_OK)
        return fail_db(t, err);
    t->call.busy_timeout(t->db, BUSY_MS);
    if (t->call.exec(t->db, tables, NULL, NULL, NULL) != DB_OK)
        return fail_db(t, err);
    if (s->id)
        snprintf(t->id, sizeof t->id, "%s", s->id);
    else
        af_track_new_id(t->id, 32, t->path);
    st = run_sql(t, "DELETE FROM metrics WHERE run_id = ? AND step > ?",
                 (const char *[]){t->id, NULL}, 2, s->step, err);
    return st == AF_OK ? write_config(t, s, err) : st;
}

static af_status trackio_open(void **state, char **id, const af_track_start *s, af_error *err)
{
    trackio *t = calloc(1, sizeof *t);
    if (!t || !(t->name = strdup(s->name))) {
        free(t);
        return af_fail_nomem(err, "trackio's run", sizeof *t);
    }
    af_status st = start_run(t, s, err);
    if (st == AF_OK && !(*id = strdup(t->id)))
        st = af_fail_nomem(err, "a name", sizeof t->id);
    if (st == AF_OK)
        *state = t;
    else
        trackio_free(t);
    return st;
}

static af_status trackio_row(void *state, const af_track_row *row, af_error *err)
{
    const trackio *t = state;
    char now[64], name[128];
    json_t *o = json_object();
    for (int i = 0; i < row->count; i++) {
        const double v = row->value[i];
        af_track_name(name, sizeof name, row->name[i]);
        json_object_set_new(o, name,
                            isfinite(v) ? json_real(v)
                            : isnan(v)  ? json_string("NaN")
                                        : json_string(v > 0 ? "Infinity" : "-Infinity"));
    }
    put_time(now, row->time);
    char *text = af_json_dump(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    const af_status st =
        text ? run_sql(t,
                       "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) "
                       "VALUES (?, ?, ?, ?, ?)",
                       (const char *[]){t->id, now, t->name, NULL, text}, 5, row->step, err)
             : af_fail_nomem(err, "a row", 1024);
    json_decref(o);
    free(text);
    return st;
}

/* The store has no end of a run. */
static af_status trackio_end(void *state, af_track_end how, double time, af_error *err)
{
    (void)state, (void)how, (void)time, (void)err;
    return AF_OK;
}

const af_tracker_kind af_track_trackio = {
    .which = AF_TRACKER_TRACKIO,
    .name = "trackio",
    .open = trackio_open,
    .row = trackio_row,
    .end = trackio_end,
    .free = trackio_free,
};
