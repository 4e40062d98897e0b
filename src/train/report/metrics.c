/* metrics.c - rows of metrics.jsonl, the same as TensorBoard scalars, and the trainer_state.json
 * other tools read. */
#include "train/report/metrics.h"
#include "base/buf.h"
#include "base/file.h"
#include "format/text/json_text.h"
#include "format/text/tfevents.h"

#include <jansson.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

static double wall_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Shortest text that reads back to the same double; JSON has no NaN. */
static void put_number(af_buf *b, const char *key, double v)
{
    char text[40] = "null";
    if (v == floor(v) && fabs(v) < 1e15) /* a count stays one: no exponent */
        snprintf(text, sizeof text, "%.0f", v);
    else
        for (int digits = 6; isfinite(v) && digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, v);
            if (strtod(text, NULL) == v)
                break;
        }
    af_buf_printf(b, "%s\"%s\": %s", b->len > 1 ? ", " : "", key, text);
}

static void put_ranks(af_buf *b, const af_rank_memory *r)
{
    for (int i = 0; i < r->n; i++)
        af_buf_printf(b, "%s%" PRIu64, i ? ", " : ", \"rank_memory_bytes\": [", r->bytes[i]);
    if (r->n)
        af_buf_char(b, ']');
}

static af_status append_row(af_metrics *m, int64_t step, const char *const *name,
                            const double *value, int n, const af_rank_memory *ranks, af_error *err)
{
    af_buf b = {0};
    af_buf_char(&b, '{');
    put_number(&b, "step", (double)step);
    for (int i = 0; i < n; i++)
        put_number(&b, name[i], value[i]);
    put_ranks(&b, ranks);
    af_buf_str(&b, "}\n");
    const af_status st = b.bad ? af_fail_nomem(err, "a metrics row", b.len)
                               : af_file_append(m->rows_path, b.data, b.len, false, err);
    if (st == AF_OK) {
        m->progress->metrics_bytes += b.len;
        af_trackers_row(
            m->trackers,
            &(af_track_row){
                .step = step, .time = wall_time(), .name = name, .value = value, .count = n});
    }
    af_buf_clear(&b);
    return st;
}

af_status af_metrics_fp8(af_metrics *m, const af_fp8_plan *p, af_error *err)
{
    static const char *const field[] = {"fp8_forward_error", "fp8_backward_error"};
    static const char *const list[] = {
        [AF_FP8_SLOWER] = "fp8_slower", [AF_FP8_BROKE] = "fp8_over_limit"};
    json_t *row = json_pack("{s:i, s:i, s:i, s:f}", "step", 0, "fp8_groups", p->count, "fp8_used",
                            af_fp8_plan_in(p, AF_FP8_USED), "fp8_error_limit", AF_FP8_ERROR_MAX);
    for (int pass = 0; pass < 2; pass++)
        json_object_set_new(row, field[pass], json_real(af_fp8_plan_error(p, pass)));
    for (int state = AF_FP8_SLOWER; state <= AF_FP8_BROKE; state++) {
        json_t *names = json_array();
        for (int i = 0; i < p->count; i++)
            if (p->group[i].state == (af_fp8_state)state)
                json_array_append_new(names, json_string(p->group[i].name));
        json_object_set_new(row, list[state], names);
    }
    char *text = row ? af_json_dump(row, JSON_REAL_PRECISION(6)) : NULL;
    af_buf b = {0};
    af_buf_printf(&b, "%s\n", text ? text : "");
    const af_status st = b.bad || !text ? af_fail_nomem(err, "a metrics row", b.len)
                                        : af_file_append(m->rows_path, b.data, b.len, false, err);
    m->progress->metrics_bytes += st == AF_OK ? b.len : 0;
    af_buf_clear(&b);
    free(text);
    json_decref(row);
    return st;
}

/* Names and values of one row, and the same as tags of TensorBoard. */
enum { COLUMNS_MAX = 40 };
typedef struct metric_row {
    const char *name[COLUMNS_MAX];
    double value[COLUMNS_MAX];
    int count;
    char text[COLUMNS_MAX][48]; /* names that were made */
} metric_row;

static void add_columns(metric_row *r, const char *prefix, const char *const *name,
                        const double *value, int n)
{
    for (int i = 0; i < n && r->count < COLUMNS_MAX; i++) {
        snprintf(r->text[r->count], sizeof r->text[0], "%s%s", prefix, name[i]);
        r->name[r->count] = r->text[r->count];
        r->value[r->count++] = value[i];
    }
}

static af_status append_scalars(af_metrics *m, int64_t step, const metric_row *r, af_error *err)
{
    return af_tfevents_scalars(m->events_path, wall_time(), step, r->name, r->value, r->count, err);
}

af_status af_metrics_step(af_metrics *m, const af_train_step *s, int64_t padded,
                          const af_rank_memory *ranks, const af_metric_list *more, af_error *err)
{
    static const char *const names[] = {
        "epoch",         "loss",  "grad_norm", "learning_rate", "tokens", "supervised_tokens",
        "padded_tokens", "tok_s", "step_ms",   "memory_bytes"};
    const double values[] = {s->epoch,         s->loss,           s->grad_norm,
                             s->learning_rate, (double)s->tokens, (double)s->supervised,
                             (double)padded,   s->tok_s,          s->step_ms,
                             (double)s->memory};
    static const char *const tags[] = {"loss", "grad_norm", "learning_rate", "epoch", "tok_s"};
    const double tagged[] = {s->loss, s->grad_norm, s->learning_rate, s->epoch, s->tok_s};
    metric_row row = {0}, scalars = {0};
    add_columns(&row, "", names, values, (int)AF_LEN(names));
    add_columns(&row, "", more->name, more->value, more->count);
    add_columns(&scalars, "train/", tags, tagged, (int)AF_LEN(tags));
    add_columns(&scalars, "train/", more->name, more->value, more->count);
    const af_status st = append_row(m, s->step, row.name, row.value, row.count, ranks, err);
    return st == AF_OK ? append_scalars(m, s->step, &scalars, err) : st;
}

af_status af_metrics_eval(af_metrics *m, double loss, double accuracy, double seconds,
                          int64_t items, const af_metric_list *more, af_error *err)
{
    const double rate = seconds > 0 ? (double)items / seconds : 0;
    const double epoch = af_run_progress_epoch(m->progress);
    static const char *const names[] = {"loss", "accuracy"}; /* numbers have no accuracy */
    const double values[] = {loss, accuracy};
    static const char *const speed[] = {"runtime", "samples_per_second",
                                        "steps_per_second"}; /* a record is a step */
    const double speeds[] = {seconds, rate, rate};
    const int n = isnan(accuracy) ? 1 : 2;
    metric_row row = {0}, scalars = {0};
    add_columns(&row, "", (const char *const[]){"epoch"}, &epoch, 1);
    add_columns(&row, "eval_", names, values, n);
    add_columns(&row, "eval_", speed, speeds, (int)AF_LEN(speed));
    add_columns(&row, "eval_", more->name, more->value, more->count);
    add_columns(&scalars, "eval/", names, values, n);
    add_columns(&scalars, "eval/", speed, speeds, 1);
    add_columns(&scalars, "eval/", more->name, more->value, more->count);
    const af_status st =
        append_row(m, m->progress->step, row.name, row.value, row.count, &(af_rank_memory){0}, err);
    return st == AF_OK ? append_scalars(m, m->progress->step, &scalars, err) : st;
}

/* Rows are missing that the checkpoint counted. A run that continues in another folder finds them
 * next to the checkpoint; else the complete ones of `text` remain, which is no reason to fail. */
static af_status fetch_metrics(af_metrics *m, const af_train_hooks *hooks, const char *checkpoint,
                               const char *text, uint64_t size, af_error *err)
{
    char *path = af_path_join(checkpoint, "../metrics.jsonl"), *other = NULL;
    uint64_t other_size = 0;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(checkpoint));
    if (af_file_exists(path) &&
        af_file_read(&other, &other_size, path, UINT64_MAX / 2, NULL) == AF_OK &&
        other_size >= m->progress->metrics_bytes) {
        text = other;
        size = m->progress->metrics_bytes;
    } else {
        af_run_log(hooks, "note: rows of metrics.jsonl before step %" PRId64 " are missing",
                   m->progress->step + 1);
        while (size > 0 && text[size - 1] != '\n')
            size--;
    }
    m->progress->metrics_bytes = size;
    const af_status st = af_file_write(m->rows_path, size ? text : "", size, err);
    free(path);
    free(other);
    return st;
}

/* The bytes of the rows up to a step: what a checkpoint counted, unless the rows are those of
 * another branch, which was as long but not to the byte. */
static uint64_t rows_until(const char *text, int64_t step)
{
    static const char begin[] = "{\"step\": ";
    const char *at = text;
    for (const char *end; (end = strchr(at, '\n')); at = end + 1)
        if (strncmp(at, begin, sizeof begin - 1) != 0 ||
            strtoll(at + sizeof begin - 1, NULL, 10) > step)
            break;
    return (uint64_t)(at - text);
}

/* Cuts metrics.jsonl to the rows of the steps that the resumed state has done. */
static af_status cut_metrics(af_metrics *m, const af_train_hooks *hooks, const char *checkpoint,
                             af_error *err)
{
    char *text = NULL;
    uint64_t size = 0;
    af_status st = AF_OK;
    const uint64_t want = m->progress->metrics_bytes;
    if (af_file_exists(m->rows_path))
        st = af_file_read(&text, &size, m->rows_path, UINT64_MAX / 2, err);
    if (st == AF_OK && size < want)
        st = fetch_metrics(m, hooks, checkpoint, text, size, err);
    else if (st == AF_OK && size > want) {
        const uint64_t rows = rows_until(text, m->progress->step);
        /* fewer where the step's evaluation was still pending */
        const bool fewer = want < rows && (want == 0 || text[want - 1] == '\n');
        m->progress->metrics_bytes = fewer ? want : rows;
        st = af_file_write(m->rows_path, text, m->progress->metrics_bytes, err);
    }
    free(text);
    return st;
}

af_status af_metrics_open(af_metrics *m, const af_run_config *run, af_run_progress *progress,
                          double flops, const char *checkpoint, const af_train_hooks *hooks,
                          af_error *err)
{
    *m = (af_metrics){.run = run, .progress = progress, .flops = flops};
    char name[160], host[64] = "host";
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "events.out.tfevents.%lld.%s.%ld.0", (long long)time(NULL), host,
             (long)getpid());
    m->rows_path = af_path_join(run->output_dir, "metrics.jsonl");
    m->events_path = af_path_join(run->output_dir, name);
    if (!m->rows_path || !m->events_path)
        return af_fail_nomem(err, "a path", strlen(name));
    af_status st = cut_metrics(m, hooks, checkpoint, err);
    if (st == AF_OK)
        st = af_tfevents_start(m->events_path, wall_time(), err);
    if (st == AF_OK && checkpoint)
        st = af_tfevents_resume(m->events_path, wall_time(), progress->step + 1, err);
    if (st == AF_OK)
        st = af_trackers_open(&m->trackers, run, progress->step, checkpoint != NULL, wall_time(),
                              err);
    return st;
}

void af_metrics_failed(af_metrics *m)
{
    af_trackers_end(m->trackers, AF_TRACK_FAILED, wall_time());
}

void af_metrics_close(af_metrics *m)
{
    af_trackers_close(m->trackers, wall_time());
    free(m->rows_path);
    free(m->events_path);
    *m = (af_metrics){0};
}

/* The rows written so far, under the names HF's log_history has. */
static af_status log_history(json_t **out, const af_metrics *m, af_error *err)
{
    char *text = NULL;
    uint64_t size = 0;
    af_status st = AF_OK;
    if (m->rows_path && af_file_exists(m->rows_path))
        st = af_file_read(&text, &size, m->rows_path, UINT64_MAX / 2, err);
    if (st != AF_OK)
        return st;
    json_t *list = json_array();
    for (char *line = text, *end; line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        json_t *row =
            af_json_load(line, end ? (size_t)(end - line) : strlen(line), JSON_DECODE_ANY, NULL);
        static const char *const ours[] = {"tokens", "supervised_tokens", "padded_tokens",
                                           "tok_s",  "step_ms",           "memory_bytes"};
        for (size_t i = 0; i < AF_LEN(ours); i++)
            json_object_del(row, ours[i]);
        if (row)
            json_array_append_new(list, row);
    }
    free(text);
    *out = list;
    return AF_OK;
}

/* Totals under HF's names; the loss is the mean over all steps (a row stands for those since the
 * last one). */
static json_t *final_record(const af_metrics *m, const json_t *history)
{
    const af_run_progress *p = m->progress;
    double sum = 0, before = 0;
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *row = json_array_get(history, i), *loss = json_object_get(row, "loss");
        const double step = json_number_value(json_object_get(row, "step"));
        if (!json_is_number(loss))
            continue;
        sum += json_number_value(loss) * (step - before);
        before = step;
    }
    const double s = p->seconds > 0 ? p->seconds : 1e-9;
    const double samples = (double)(p->micro * p->items_per_micro);
    return json_pack("{s:f,s:I,s:f,s:f,s:f,s:f,s:f}", "epoch", af_run_progress_epoch(p), "step",
                     (json_int_t)p->step, "total_flos", m->flops * (double)p->micro, "train_loss",
                     before > 0 ? sum / before : 0.0, "train_runtime", p->seconds,
                     "train_samples_per_second", samples / s, "train_steps_per_second",
                     (double)p->step / s);
}

/* The folder of the best evaluation, where there is one: it is there, or being written. */
static json_t *best_checkpoint(const af_metrics *m, bool final)
{
    const af_run_progress *p = m->progress;
    char path[4096];
    snprintf(path, sizeof path, "%s/checkpoint-%" PRId64, m->run->output_dir, p->best_step);
    const bool there =
        p->best_step > 0 && (af_dir_exists(path) || (!final && p->best_step == p->step));
    return there ? json_string(path) : json_null();
}

af_status af_metrics_state_text(const af_metrics *m, bool final, char **out, af_error *err)
{
    const af_run_progress *p = m->progress;
    const af_run_config *r = m->run;
    json_t *o = json_object();
    json_object_set_new(o, "best_global_step",
                        p->best_step ? json_integer(p->best_step) : json_null());
    json_object_set_new(o, "best_metric",
                        isnan(p->best_eval) ? json_null() : json_real(p->best_eval));
    json_object_set_new(o, "best_model_checkpoint", best_checkpoint(m, final));
    json_object_set_new(o, "epoch", json_real(af_run_progress_epoch(p)));
    json_object_set_new(o, "eval_steps", json_integer(af_run_progress_every(p, r->eval_steps)));
    json_object_set_new(o, "global_step", json_integer(p->step));
    json_object_set_new(o, "is_hyper_param_search", json_false());
    json_object_set_new(o, "is_local_process_zero", json_true());
    json_object_set_new(o, "is_world_process_zero", json_true());
    json_t *history = NULL;
    const af_status st = log_history(&history, m, err);
    if (st != AF_OK) {
        json_decref(o);
        return st;
    }
    if (final)
        json_array_append_new(history, final_record(m, history));
    json_object_set_new(o, "log_history", history);
    json_object_set_new(o, "logging_steps",
                        json_integer(af_run_progress_every(p, r->logging_steps)));
    json_object_set_new(o, "max_steps", json_integer(p->steps));
    json_object_set_new(o, "num_input_tokens_seen", json_integer(p->tokens));
    json_object_set_new(o, "num_train_epochs", json_real(r->num_epochs));
    json_object_set_new(o, "save_steps", json_integer(af_run_progress_every(p, r->save_steps)));
    json_object_set_new(o, "stateful_callbacks", json_object());
    json_object_set_new(o, "total_flos", json_real(m->flops * (double)p->micro));
    json_object_set_new(o, "train_batch_size", json_integer(r->micro_batch_size));
    json_object_set_new(o, "trial_name", json_null());
    json_object_set_new(o, "trial_params", json_null());
    *out = o ? af_json_dump(o, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    return *out ? AF_OK : af_fail_nomem(err, "trainer_state.json", 4096);
}

/* The totals again, in the files HF's scripts write. */
static af_status write_results(const af_metrics *m, const char *name, const json_t *o,
                               af_error *err)
{
    char *path = af_path_join(m->run->output_dir, name);
    char *text = af_json_dump(o, JSON_INDENT(4) | JSON_REAL_PRECISION(17));
    const af_status st = path && text ? af_file_write(path, text, strlen(text), err)
                                      : af_fail_nomem(err, name, 1024);
    free(path);
    free(text);
    return st;
}

af_status af_metrics_results(const af_metrics *m, af_error *err)
{
    af_status st = AF_OK;
    const af_run_progress *p = m->progress;
    json_t *history = NULL, *eval = NULL;
    st = log_history(&history, m, err);
    if (st != AF_OK)
        return st;
    json_t *train = final_record(m, history), *all = json_object();
    json_object_del(train, "step");
    const bool best = m->run->load_best && p->best_step > 0; /* that is what was written */
    for (size_t i = 0; i < json_array_size(history); i++) {
        json_t *row = json_array_get(history, i);
        if (json_object_get(row, "eval_loss") &&
            (!best || json_integer_value(json_object_get(row, "step")) == p->best_step))
            eval = row;
    }
    json_object_del(eval, "step");
    if (!train || !all || (eval && json_object_update(all, eval) != 0) ||
        json_object_update(all, train) != 0)
        AF_TRY(af_fail_nomem(err, "the results", 1024));
    AF_TRY(write_results(m, "train_results.json", train, err));
    if (eval)
        AF_TRY(write_results(m, "eval_results.json", eval, err));
    st = write_results(m, "all_results.json", all, err);
    af_trackers_end(m->trackers, AF_TRACK_DONE, wall_time());
done:
    json_decref(train);
    json_decref(all);
    json_decref(history);
    return st;
}
