/* track.c - the table of trackers, and trackers.json, which names the run each one writes. */
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "format/text/json_text.h"
#include "train/track/tracker.h"

#include <time.h>
#include <unistd.h>

static const af_tracker_kind *const kinds[] = {&af_track_mlflow, &af_track_wandb,
                                               &af_track_trackio};

typedef struct tracker {
    void *state; /* NULL = not asked for, or failed */
    bool ended;
} tracker;

struct af_trackers {
    tracker of[AF_LEN(kinds)];
};

void af_track_new_id(char *out, int n, const char *seed)
{
    struct timespec t;
    char hex[65];
    af_sha256 s;
    const long pid = (long)getpid();
    clock_gettime(CLOCK_REALTIME, &t);
    af_sha256_init(&s);
    af_sha256_add(&s, &t, sizeof t);
    af_sha256_add(&s, &pid, sizeof pid);
    af_sha256_add(&s, seed, strlen(seed));
    af_sha256_hex(&s, hex);
    snprintf(out, (size_t)n + 1, "%s", hex);
}

void af_track_name(char *out, size_t size, const char *name)
{
    const bool eval = strncmp(name, "eval_", 5) == 0;
    snprintf(out, size, "%s/%s", eval ? "eval" : "train", eval ? name + 5 : name);
}

char *af_track_text(const json_t *value)
{
    return json_is_string(value) ? strdup(json_string_value(value))
                                 : af_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
}

/* The effective run file as JSON: a value that is not JSON is a bare word. */
static af_status settings(json_t **out, const af_run_config *run, af_error *err)
{
    char *text = NULL;
    const af_status st = af_run_config_text(run, &text, err);
    if (st != AF_OK)
        return st;
    json_t *o = json_object();
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *value = strstr(line, ": ");
        *end = '\0';
        if (!value)
            continue;
        *value = '\0';
        value += 2;
        json_t *v = af_json_load(value, strlen(value), JSON_DECODE_ANY, NULL);
        json_object_set_new(o, line, v ? v : json_string(value));
    }
    free(text);
    *out = o;
    return o ? AF_OK : af_fail_nomem(err, "the settings", 4096);
}

/* Says what failed and leaves the tracker alone from now on. */
static void give_up(const af_tracker_kind *kind, tracker *t, const af_error *err)
{
    af_log_write(AF_LOG_WARN, "%s does not get the metrics of this run any more: %s", kind->name,
                 err->msg);
    if (t->state)
        kind->free(t->state);
    t->state = NULL;
}

static void open_one(const af_tracker_kind *kind, tracker *t, json_t *ids, af_track_start start)
{
    af_error why = {0};
    char *id = NULL;
    start.id = json_string_value(json_object_get(ids, kind->name));
    if (kind->open(&t->state, &id, &start, &why) != AF_OK)
        give_up(kind, t, &why);
    else if (id)
        json_object_set_new(ids, kind->name, json_string(id));
    free(id);
}

static af_status write_ids(const char *path, const json_t *ids, af_error *err)
{
    char *text = af_json_dump(ids, JSON_INDENT(2) | JSON_SORT_KEYS);
    const af_status st = text ? af_file_write(path, text, strlen(text), err)
                              : af_fail_nomem(err, "trackers.json", 256);
    free(text);
    return st;
}

af_status af_trackers_open(af_trackers **out, const af_run_config *run, int64_t step, bool resumes,
                           double time, af_error *err)
{
    af_status st = AF_OK;
    json_t *keys = NULL, *ids = NULL;
    char *path = NULL;
    *out = NULL;
    if (!run->trackers)
        return AF_OK;
    af_trackers *t = calloc(1, sizeof *t);
    path = af_path_join(run->output_dir, "trackers.json");
    if (!t || !path)
        AF_TRY(af_fail_nomem(err, "the trackers", sizeof *t));
    AF_TRY(settings(&keys, run, err));
    if (resumes && af_file_exists(path) && af_json_read_file(&ids, path, NULL) != AF_OK)
        af_log_write(AF_LOG_WARN, "%s cannot be read: the trackers get a new run", path);
    if (!json_is_object(ids)) {
        json_decref(ids);
        ids = json_object();
    }
    const char *name = run->run_name && run->run_name[0] ? run->run_name : run->output_dir;
    for (size_t i = 0; i < AF_LEN(kinds); i++)
        if (run->trackers & (unsigned)kinds[i]->which)
            open_one(kinds[i], &t->of[i], ids,
                     (af_track_start){
                         .run = run, .name = name, .keys = keys, .step = step, .time = time});
    AF_TRY(write_ids(path, ids, err));
    *out = t;
    t = NULL;
done:
    af_trackers_close(t, time);
    json_decref(keys);
    json_decref(ids);
    free(path);
    return st;
}

void af_trackers_row(af_trackers *t, const af_track_row *row)
{
    for (size_t i = 0; t && i < AF_LEN(kinds); i++) {
        af_error why = {0};
        if (t->of[i].state && kinds[i]->row(t->of[i].state, row, &why) != AF_OK)
            give_up(kinds[i], &t->of[i], &why);
    }
}

void af_trackers_end(af_trackers *t, af_track_end how, double time)
{
    for (size_t i = 0; t && i < AF_LEN(kinds); i++) {
        af_error why = {0};
        tracker *one = &t->of[i];
        if (!one->state || one->ended)
            continue;
        one->ended = true;
        if (kinds[i]->end(one->state, how, time, &why) != AF_OK)
            give_up(kinds[i], one, &why);
    }
}

void af_trackers_close(af_trackers *t, double time)
{
    af_trackers_end(t, AF_TRACK_STOPPED, time);
    for (size_t i = 0; t && i < AF_LEN(kinds); i++)
        if (t->of[i].state)
            kinds[i]->free(t->of[i].state);
    free(t);
}
