/* samples.c - see samples.h. */
#include "train/report/samples.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/temps.h"
#include "format/text/json_text.h"
#include "train/checkpoint/checkpoint.h"
#include "train/report/report.h"

#include <jansson.h>

/* A temporary folder with the weights of a full fine-tuning as they are now. */
static af_status write_whole(const af_step_graph *step, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    char *from = af_path_join(step->model->texts, "config.json"),
         *to = af_path_join(dir, "config.json");
    if (!from || !to)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    AF_TRY(af_file_copy(from, to, err));
    st = af_trained_write(step, dir, err);
done:
    free(from);
    free(to);
    return st;
}

static bool keep_going(void *user, int sequence, int32_t id, const char *text, uint64_t len)
{
    (void)sequence, (void)id, (void)text, (void)len;
    return !af_run_stop_requested(user);
}

static af_status generate(const af_samples *s, af_loader *loader, af_adapter *adapter, bool live,
                          af_generated *out, af_error *err)
{
    const af_prompts *p = s->step->prompts;
    af_model m =
        af_prompts_model(p, s->step->model, loader, adapter, live ? &s->step->leaves : NULL);
    af_generate_opts o = af_prompts_opts(p);
    o.hook = keep_going;
    o.user = (void *)s->hooks;
    const af_status st = af_model_generate(&m, &o, out, err);
    af_model_drop_decoder(&m); /* the rest is borrowed */
    return st;
}

static af_status ask_adapter(const af_samples *s, const char *dir, af_generated *out, af_error *err)
{
    const af_run_model *m = s->step->model;
    af_adapter *own = NULL;
    af_status st = dir ? af_adapter_read_to_train(&own, m->spec, dir, err)
                       : af_adapter_download(m->adapter, &s->step->leaves, err);
    if (dir)
        af_loader_change(m->loader, NULL); /* what is in the folder is for the base as it is */
    if (st == AF_OK)
        st = generate(s, m->loader, own ? own : m->adapter, false, out, err);
    af_adapter_free(own);
    return st;
}

static af_status ask_whole(const af_samples *s, const char *dir, af_generated *out, af_error *err)
{
    af_status st = AF_OK;
    af_loader *loader = NULL;
    af_temp *listed = NULL;
    char *tmp = NULL, *inside = af_path_join(s->step->run->output_dir, AF_TEMP_NAME);
    if (!inside)
        return af_fail_nomem(err, "a path", 16);
    if (!dir) {
        AF_TRY(af_temp_dir_make(&tmp, &listed, inside, err));
        AF_TRY(write_whole(s->step, tmp, err));
    }
    const af_loader_opts o = {.compute = s->step->model->compute};
    AF_TRY(af_loader_open(&loader, tmp ? tmp : dir, &o, err));
    st = generate(s, loader, NULL, false, out, err);
done:
    af_loader_close(loader);
    af_temp_dir_remove(tmp, listed);
    free(inside);
    return st;
}

/* At most `most` bytes of a text, cut between characters, on one line. */
static void put_line(af_buf *b, const char *text, uint64_t len, uint64_t most)
{
    uint64_t n = AF_MIN(len, most);
    while (n < len && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    for (uint64_t i = 0; i < n; i++)
        if (text[i] == '\n')
            af_buf_str(b, "\\n");
        else if ((unsigned char)text[i] >= 0x20 && text[i] != 0x7f)
            af_buf_char(b, text[i]);
    if (n < len)
        af_buf_str(b, "...");
}

static af_status keep(const af_samples *s, int i, const af_generated *g, af_error *err)
{
    af_buf line = {0};
    const int64_t step = s->progress->step;
    const char *prompt = s->step->prompts->text[i];
    af_buf_printf(&line, "sample at step %" PRId64 ": ", step);
    put_line(&line, prompt, strlen(prompt), 200);
    af_buf_str(&line, " -> ");
    put_line(&line, g->text, g->text_len, 500);
    if (!line.bad)
        af_run_log(s->hooks, "%s", line.data);
    af_buf_clear(&line);

    json_t *row =
        json_pack("{s:I,s:s,s:o?,s:s}", "step", (json_int_t)step, "prompt", prompt, "answer",
                  json_stringn(g->text, g->text_len), "stop", af_stop_name(g->stop));
    char *text = row ? af_json_dump(row, JSON_COMPACT) : NULL;
    char *path = af_path_join(s->step->run->output_dir, "samples.jsonl");
    af_buf_printf(&line, "%s\n", text ? text : "");
    const af_status st = !text || !path || line.bad
                             ? af_fail_nomem(err, "a sample", g->text_len)
                             : af_file_append(path, line.data, line.len, false, err);
    af_buf_clear(&line);
    json_decref(row);
    free(text);
    free(path);
    return st;
}

/* ---- samples.jsonl ---- */

/* Rows of samples.jsonl, one after another: an object, or NULL at the end. */
static json_t *next_row(const char **at, const char **line, uint64_t *len)
{
    const char *end = strchr(*at, '\n');
    if (!**at || !end)
        return NULL;
    *line = *at;
    *len = (uint64_t)(end - *at) + 1;
    *at = end + 1;
    json_t *row = af_json_load(*line, *len - 1, 0, NULL);
    return row ? row : json_object(); /* a damaged row counts for no step */
}

static af_status read_rows(const af_samples *s, char **path, char **text, af_error *err)
{
    uint64_t size;
    *path = af_path_join(s->step->run->output_dir, "samples.jsonl");
    if (!*path)
        return af_fail_nomem(err, "a path", 16);
    return af_file_exists(*path) ? af_file_read(text, &size, *path, UINT64_MAX / 2, err) : AF_OK;
}

/* Keeps the rows of steps before `from`. */
static af_status keep_before(const af_samples *s, int64_t from, af_error *err)
{
    char *path = NULL, *text = NULL;
    af_buf kept = {0};
    const char *line;
    uint64_t len;
    af_status st = s->step->prompts ? read_rows(s, &path, &text, err) : AF_OK;
    if (st == AF_OK && text) {
        const char *at = text;
        for (json_t *row; (row = next_row(&at, &line, &len)); json_decref(row)) {
            const json_t *step = json_object_get(row, "step");
            if (json_is_integer(step) && json_integer_value(step) < from)
                af_buf_add(&kept, line, len);
        }
        st = kept.bad ? af_fail_nomem(err, "samples.jsonl", kept.len)
                      : af_file_write(path, kept.len ? kept.data : "", kept.len, err);
    }
    af_buf_clear(&kept);
    free(path);
    free(text);
    return st;
}

af_status af_samples_open(const af_samples *s, af_error *err)
{
    const af_run_progress *p = s->progress;
    return keep_before(s, p->step + (p->pending == AF_PENDING_NOTHING), err);
}

static af_status answer_all(const af_samples *s, const char *dir, af_generated *out, af_error *err)
{
    const af_run_model *m = s->step->model;
    if (!dir && af_run_model_on_cpu(m))
        return generate(s, m->loader, m->adapter, true, out, err);
    return m->adapter ? ask_adapter(s, dir, out, err) : ask_whole(s, dir, out, err);
}

af_status af_samples_ask(const af_samples *s, const char *dir, bool *whole, af_error *err)
{
    const af_prompts *p = s->step->prompts;
    af_error why = {0};
    *whole = true;
    if (!p)
        return AF_OK;
    af_generated *out = af_calloc((uint64_t)p->count, sizeof *out);
    if (!out)
        return af_fail_nomem(err, "the samples", (uint64_t)p->count * sizeof *out);
    af_status st = answer_all(s, dir, out, &why);
    if (st == AF_ENOMEM) {
        af_run_log(s->hooks, "no samples at step %" PRId64 ": %s", s->progress->step, why.msg);
        free(out);
        return AF_OK;
    }
    if (st != AF_OK)
        af_fail(err, st, "%s", why.msg);
    *whole = !af_run_stop_requested(s->hooks);
    if (st == AF_OK && *whole &&
        dir) /* the last answers replace those of the step after a resume */
        st = keep_before(s, s->progress->step, err);
    for (int i = 0; i < p->count && st == AF_OK && *whole; i++)
        st = keep(s, i, &out[i], err);
    for (int i = 0; i < p->count; i++)
        af_generated_clear(&out[i]);
    free(out);
    return st;
}

static void put_cell(af_buf *b, const json_t *row, const char *key)
{
    af_buf_str(b, "<td>");
    af_html_put(b, json_string_value(json_object_get(row, key)));
    af_buf_str(b, "</td>");
}

/* The rows of one prompt: the earliest and the latest answer. */
static void put_pair(af_buf *b, const char *text, const char *prompt)
{
    json_t *first = NULL, *last = NULL, *row;
    const char *line;
    uint64_t len;
    while ((row = next_row(&text, &line, &len))) {
        const char *p = json_string_value(json_object_get(row, "prompt"));
        if (p && strcmp(p, prompt) == 0) {
            if (!first)
                first = json_incref(row);
            json_decref(last);
            last = json_incref(row);
        }
        json_decref(row);
    }
    if (first) {
        af_buf_str(b, "<tr>");
        put_cell(b, first, "prompt");
        put_cell(b, first, "answer");
        put_cell(b, last, "answer");
        af_buf_str(b, "</tr>\n");
    }
    json_decref(first);
    json_decref(last);
}

af_status af_samples_table(const af_samples *s, char **html, af_error *err)
{
    char *path = NULL, *text = NULL;
    const af_prompts *p = s->step->prompts;
    af_buf b = {0};
    af_status st = p ? read_rows(s, &path, &text, err) : AF_OK;
    *html = NULL;
    if (st == AF_OK && text) {
        af_buf_str(&b, "<table class=\"samples\"><tr><th>prompt</th><th>before</th><th>after</th>"
                       "</tr>\n");
        for (int i = 0; i < p->count; i++)
            put_pair(&b, text, p->text[i]);
        af_buf_str(&b, "</table>");
        *html = af_buf_take(&b);
        st = *html ? AF_OK : af_fail_nomem(err, "the samples", 0);
    }
    af_buf_clear(&b);
    free(path);
    free(text);
    return st;
}
