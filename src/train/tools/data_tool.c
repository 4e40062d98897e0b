/* data_tool.c - previews and checks of the datasets a run file names. */
#define _GNU_SOURCE /* getpid */
#include "afinar/data.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "data/store/batch_stream.h"
#include "data/store/dataset_reader.h"
#include "format/config/hf_config.h"
#include "format/text/json_text.h"
#include "train/run/run_data_opts.h"
#include "train/step/run_data.h"
#include "train/step/run_tokens.h"
#include "train/step/start_labels.h"
#include "train/tools/fault_list.h"
#include "train/trainer/trainer.h"

#include <jansson.h>
#include <unistd.h>

typedef struct data_tool {
    af_run_config run;
    char *model;
    af_run_tokens tokens;
    af_data_opts o;
    af_data_pipeline pipeline;
    af_arena arena; /* names of labels */
} data_tool;

static void tool_close(data_tool *t)
{
    af_data_pipeline_close(&t->pipeline);
    af_run_tokens_close(&t->tokens);
    free(t->model);
    af_run_config_clear(&t->run);
    af_arena_clear(&t->arena);
}

static af_status tool_open(data_tool *t, const char *run_file, const char *const *overrides,
                           int count, af_error *err)
{
    af_status st = AF_OK;
    *t = (data_tool){0};
    AF_TRY(af_run_config_read(&t->run, run_file, overrides, count, err));
    st = af_model_resolve(&t->model, t->run.base_model, err);
    if (st != AF_OK) {
        char at[300];
        af_fail_prefix(st, err, "%s", af_run_key_loc(&t->run, "base_model", at, sizeof at));
        goto done;
    }
    AF_TRY(af_run_tokens_open(&t->tokens, &t->run, t->model, err));
    t->o = af_run_data_opts(&t->run, t->tokens.dir ? t->tokens.dir : t->model);
    AF_TRY(af_start_labels(&t->o.labels, &t->run, t->model, &t->arena, err));
    t->o.join_texts = false; /* records are shown and counted as they are */
    AF_TRY(af_data_pipeline_open(&t->pipeline, &t->o, err));
done:
    if (st != AF_OK)
        tool_close(t);
    return st;
}

/* What a run of this file would be refused for besides its records. A folder may have a tokenizer
 * and no model. */
static af_status check_run(const data_tool *t, af_error *err)
{
    af_run_model m = {0};
    char line[300], *config = af_path_join(t->model, "config.json");
    const bool whole = !af_dir_exists(t->model) || (config && af_file_exists(config));
    af_status st = AF_OK;
    free(config);
    if (!whole)
        return AF_OK;
    AF_TRY(af_run_model_open_outline(&m, &t->run, err));
    AF_TRY(af_trainer_check_best_metric(&t->run, &m, err));
    AF_TRY(af_run_data_check_types(&t->run, err));
    if (af_run_idle_text(&t->run, line, sizeof line))
        af_log_write(AF_LOG_INFO, "%s", line);
    af_run_idle_log(&t->run);
done:
    af_run_model_close(&m);
    return st;
}

/* --- preview ------------------------------------------------------------------------------- */

typedef struct viewer {
    const data_tool *t;
    af_data_hook *hook;
    void *user;
    int64_t left; /* 0 = no end */
    bool several;
} viewer;

static af_status view(void *user, const af_example *e, af_error *err)
{
    viewer *v = user;
    (void)err;
    af_data_example x = {
        .file = e->file,
        .line = e->line,
        .record = e->record,
        .several_files = v->several,
        .shape = af_shape_name(e->shape),
        .rows = e->rows,
        .prompt = e->prompt,
        .prompt_len = e->prompt_len,
        .has_label = e->shape == AF_SHAPE_KTO,
        .label = e->label,
        .target = e->target,
        .targets = e->targets,
        .sequence_len = v->t->o.sequence_len,
        .tokenizer = v->t->pipeline.tokenizer,
    };
    for (int i = 0; i < e->rows; i++) {
        const af_row *r = &e->row[i];
        x.row[i] = (af_data_row){r->text ? r->text : "", r->text ? r->len : 0, r->ids, r->labels,
                                 r->count};
    }
    if (!v->hook(v->user, &x))
        return AF_ESTOPPED;
    return v->left && --v->left == 0 ? AF_ESTOPPED : AF_OK;
}

static bool several_files(const data_tool *t)
{
    return t->pipeline.sources > 1 || af_dir_exists(t->pipeline.source[0].path);
}

af_status af_data_preview(const char *run_file, const char *const *overrides, int count,
                          int64_t most, af_data_hook *hook, void *user, af_error *err)
{
    AF_NEED(err, run_file, overrides || !count, hook);
    if (most < 0)
        return af_fail(err, AF_EUSAGE, "at most %" PRId64 " records are not possible", most);
    data_tool t;
    af_error unread;
    err = af_error_or(err, &unread);
    af_status st = tool_open(&t, run_file, overrides, count, err);
    if (st != AF_OK)
        return st;
    viewer v = {&t, hook, user, most, several_files(&t)};
    st = af_dataset_read(&t.pipeline, AF_READ_PREVIEW, view, &v, NULL, NULL, err);
    tool_close(&t);
    return st;
}

/* --- JSON ---------------------------------------------------------------------------------- */

static void put_text(af_buf *b, const char *text, uint64_t len)
{
    json_t *v = json_stringn(text, len);
    char *shown = v ? af_json_dump(v, JSON_ENCODE_ANY) : NULL;
    if (shown)
        af_buf_str(b, shown);
    else
        b->bad = true;
    free(shown);
    json_decref(v);
}

static void put_ids(af_buf *b, const char *name, const int32_t *v, int64_t n)
{
    af_buf_printf(b, ", \"%s\": [", name);
    for (int64_t i = 0; i < n; i++)
        af_buf_printf(b, i ? ", %" PRId32 : "%" PRId32, v[i]);
    af_buf_char(b, ']');
}

static void put_row(af_buf *b, const af_data_row *r)
{
    af_buf_str(b, "\"text\": ");
    put_text(b, r->text, r->len);
    put_ids(b, "ids", r->ids, r->count);
    put_ids(b, "labels", r->labels, r->count);
}

char *af_data_example_json(const af_data_example *e)
{
    af_buf b = {0};
    if (!e)
        return NULL;
    af_buf_printf(&b, "{\"record\": %" PRId64 ", \"line\": %" PRId64 ", ", e->record, e->line);
    if (e->several_files) {
        af_buf_str(&b, "\"file\": ");
        put_text(&b, e->file, strlen(e->file));
        af_buf_str(&b, ", ");
    }
    if (e->rows == 2) {
        af_buf_str(&b, "\"prompt_text\": ");
        put_text(&b, e->prompt ? e->prompt : "", e->prompt_len);
        af_buf_str(&b, ", \"chosen\": {");
        put_row(&b, &e->row[0]);
        af_buf_str(&b, "}, \"rejected\": {");
        put_row(&b, &e->row[1]);
        af_buf_char(&b, '}');
    } else {
        put_row(&b, &e->row[0]);
        if (e->has_label)
            af_buf_printf(&b, ", \"label\": %s", e->label ? "true" : "false");
        for (int i = 0; i < e->targets; i++)
            af_buf_printf(&b, "%s%.9g",
                          i                ? ", "
                          : e->targets > 1 ? ", \"label\": ["
                                           : ", \"label\": ",
                          (double)e->target[i]);
        if (e->targets > 1)
            af_buf_char(&b, ']');
    }
    af_buf_char(&b, '}');
    char *out = af_buf_take(&b);
    af_buf_clear(&b);
    return out;
}

/* --- check --------------------------------------------------------------------------------- */

static void fill(af_data_report *out, const af_data_counts *c, const af_read_times *t)
{
    *out = (af_data_report){
        .records = c->records,
        .tokens = c->tokens,
        .supervised = c->supervised,
        .truncated = c->truncated,
        .dropped = c->dropped,
        .left_out = c->left_out,
        .lost_eot = c->lost_eot,
        .split_rows = c->split_rows,
        .empty_answers = c->empty_answers,
        .double_bos = c->double_bos,
        .missing_eot = c->missing_eot,
        .nothing_to_learn = c->nothing_to_learn,
        .test_records = -1,
        .warnings = c->warnings,
        .errors = c->errors,
        .read_s = t->read,
        .convert_s = t->convert,
        .render_s = t->render,
        .encode_s = t->encode,
        .write_s = t->emit,
        .all_s = t->all,
    };
}

static af_status keep(void *user, const af_example *e, af_error *err)
{
    const af_row *r = &e->row[0];
    if (e->pair)
        return af_pair_writer_add(user, e->pair, e->source, e->line, err);
    return af_token_writer_add(user, r->ids, r->labels, r->count, e->source, e->line, err);
}

/* Packs a whole epoch, as training would. */
static af_status pack_all(const data_tool *t, const char *path, af_data_report *out, af_error *err)
{
    af_status st = AF_OK;
    af_token_store store = {0};
    af_stream *s = NULL;
    int64_t rows = 0;
    const double began = af_seconds_now();
    AF_TRY(af_token_store_open(&store, path, err));
    const af_stream_opts o = {.count = store.records,
                              .micro_batch = 1,
                              .sequence_len = t->o.sequence_len,
                              .packing = true,
                              .sequential = t->run.packing_sequentially,
                              .shuffle = t->run.shuffle,
                              .seed = (uint64_t)t->run.seed};
    AF_TRY(af_stream_open(&s, &store, &o, err));
    out->packs = af_stream_items(s);
    for (int64_t m = 0; m < out->packs; m++) {
        const af_batch *b;
        AF_TRY(af_stream_get(s, m, &b, err));
        rows += b->rows;
    }
    if (out->packs)
        out->pack_fill = (double)rows / ((double)out->packs * (double)AF_MAX(t->o.sequence_len, 1));
done:
    af_stream_close(s);
    af_token_store_close(&store);
    out->pack_s = af_seconds_now() - began;
    return st;
}

static af_status measure(data_tool *t, af_data_report *out, af_error *err)
{
    af_status st = AF_OK;
    char *dir = NULL;
    af_buf path = {0};
    af_token_writer *w = NULL;
    af_data_counts counts = {0};
    af_read_times times = {0};
    const double began = af_seconds_now();
    AF_TRY(af_cache_dir(&dir, "tokens", err));
    af_buf_printf(&path, "%s/measure-%ld.tokens", dir, (long)getpid());
    if (path.bad) {
        st = af_fail_nomem(err, "a path", 0);
        goto done;
    }
    AF_TRY(af_token_writer_open(&w, path.data, err));
    AF_TRY(af_dataset_read(&t->pipeline, AF_READ_TRAIN, keep, w, &counts, &times, err));
    const double commit = af_seconds_now();
    st = af_token_writer_commit(w, "{}", err);
    w = NULL;
    times.emit += af_seconds_now() - commit;
    fill(out, &counts, &times);
    if (st == AF_OK && counts.records && !t->o.rl)
        AF_TRY(pack_all(t, path.data, out, err));
    out->all_s = af_seconds_now() - began;
done:
    af_token_writer_abandon(w);
    if (path.data)
        (void)!af_path_remove(path.data, NULL);
    af_buf_clear(&path);
    free(dir);
    return st;
}

/* A run reads its evaluation data at the start, too. */
static af_status check_tests(const data_tool *t, af_fault_list *faults, af_data_report *out,
                             af_error *err)
{
    af_data_opts o = t->o;
    af_data_pipeline pipeline = {0};
    af_data_counts counts = {0};
    o.datasets = t->run.test_datasets;
    o.mix = AF_MIX_CONCAT;
    if (!o.datasets)
        return AF_OK;
    af_status st = af_data_pipeline_open(&pipeline, &o, err);
    if (st != AF_OK)
        return st;
    pipeline.fault = af_fault_add;
    pipeline.fault_user = faults;
    st = af_dataset_read(&pipeline, AF_READ_CHECK, NULL, NULL, &counts, NULL, err);
    out->test_records = counts.records;
    out->warnings += counts.warnings;
    out->errors += counts.errors;
    af_data_pipeline_close(&pipeline);
    return st;
}

af_status af_data_check(const char *run_file, const char *const *overrides, int count, bool stats,
                        void (*fault)(void *user, const char *message), void *user,
                        af_data_report *out, af_error *err)
{
    AF_NEED(err, run_file, overrides || !count, out);
    data_tool t;
    af_data_counts counts = {0};
    af_read_times times = {0};
    af_fault_list faults = {.pass = fault, .user = user};
    af_error unread;
    err = af_error_or(err, &unread);
    int64_t held;
    *out = (af_data_report){0};
    af_status st = tool_open(&t, run_file, overrides, count, err);
    if (st != AF_OK)
        return st;
    st = check_run(&t, err);
    if (st != AF_OK) {
        tool_close(&t);
        return st;
    }
    if (stats) {
        st = measure(&t, out, err);
    } else {
        t.pipeline.fault = af_fault_add;
        t.pipeline.fault_user = &faults;
        st = af_dataset_read(&t.pipeline, AF_READ_CHECK, NULL, NULL, &counts, &times, err);
        fill(out, &counts, &times);
    }
    if (st == AF_OK)
        st = check_tests(&t, &faults, out, err);
    af_fault_end(&faults);
    if (st == AF_OK && out->errors)
        st = af_fail(err, AF_EFORMAT, "%s: %" PRId64 " record%s of the datasets cannot be used",
                     run_file, out->errors, out->errors == 1 ? "" : "s");
    else if (st == AF_OK && (out->records == 0 || out->test_records == 0))
        st = af_fail(err, AF_EFORMAT, "%s: no record of %s carries loss", run_file,
                     out->records == 0 ? "the datasets" : "test_datasets");
    else if (st == AF_OK && t.run.val_set_size > 0)
        st = af_run_data_hold_out(&t.run, out->records, &held, err);
    tool_close(&t);
    return st;
}
