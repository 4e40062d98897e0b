/* samples.c - see samples.h. */
#include "train/report/samples.h"
#include "base/buf.h"
#include "base/file.h"
#include "data/render/renderer.h"
#include "model/model_state.h"
#include "train/checkpoint/checkpoint.h"
#include "train/report/report.h"

struct af_samples {
    af_tokenizer *tokenizer;
    int count;
    const char *const *prompt; /* as the run file has them */
    int32_t **ids;             /* [count] */
    int64_t *len;
};

void af_samples_free(af_samples *s)
{
    if (!s)
        return;
    for (int i = 0; s->ids && i < s->count; i++)
        free(s->ids[i]);
    free(s->ids);
    free(s->len);
    af_tokenizer_close(s->tokenizer);
    free(s);
}

/* One prompt: through the chat template where there is one, as plain text where there is none. */
static af_status encode(af_samples *s, af_renderer *scribe, int i, af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL;
    uint64_t len = 0;
    af_encoding e = {0};
    const char *prompt = s->prompt[i];
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", prompt);
    if (!messages)
        return af_fail_subject(err, AF_EUSAGE, "generate_samples",
                               "generate_samples: prompt %d is not UTF-8", i + 1);
    if (scribe->chat) {
        AF_TRY(af_renderer_prompt(scribe, &text, &len, &(af_conversation){.messages = messages}, 1,
                                  err));
        AF_TRY(af_tokenizer_encode(s->tokenizer, &e, text, len, false, err));
    } else {
        AF_TRY(af_tokenizer_encode(s->tokenizer, &e, prompt, strlen(prompt), true, err));
    }
    if (e.count == 0)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, "generate_samples",
                               "generate_samples: prompt %d has no tokens", i + 1));
    s->ids[i] = e.ids;
    s->len[i] = e.count;
    e.ids = NULL;
done:
    af_encoding_clear(&e);
    json_decref(messages);
    free(text);
    return st;
}

static af_status take_prompts(af_samples **out, const af_strings *list, af_error *err)
{
    af_samples *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "the samples", sizeof *s);
    *out = s;
    s->count = list->count;
    s->prompt = list->item;
    s->ids = af_calloc((uint64_t)s->count, sizeof *s->ids);
    s->len = af_calloc((uint64_t)s->count, sizeof *s->len);
    return s->ids && s->len ? AF_OK : af_fail_nomem(err, "the samples", (uint64_t)s->count * 16);
}

af_status af_samples_outline(af_samples **out, const af_trainer *t, af_error *err)
{
    enum { AROUND = 64 }; /* tokens of a template */
    af_samples *s = NULL;
    if (t->run->generate_samples.count == 0)
        return AF_OK;
    const af_status st = take_prompts(&s, &t->run->generate_samples, err);
    for (int i = 0; i < t->run->generate_samples.count && st == AF_OK; i++)
        s->len[i] = (int64_t)strlen(s->prompt[i]) + AROUND;
    if (st == AF_OK)
        *out = s;
    else
        af_samples_free(s);
    return st;
}

af_status af_samples_new(af_samples **out, const af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    af_renderer scribe = {0};
    af_samples *s = NULL;
    if (t->run->generate_samples.count == 0)
        return AF_OK;
    AF_TRY(take_prompts(&s, &t->run->generate_samples, err));
    AF_TRY(af_tokenizer_open(&s->tokenizer, t->model_path, err));
    /* a plan has read none */
    const char *template = t->chat_template ? t->chat_template : t->run->chat_template;
    AF_TRY(af_renderer_init(&scribe, s->tokenizer, t->model_path, template, err));
    for (int i = 0; i < s->count; i++)
        AF_TRY(encode(s, &scribe, i, err));
    *out = s;
    s = NULL;
done:
    if (st != AF_OK && !(err && strcmp(err->subject, "generate_samples") == 0))
        st = af_fail_prefix(st, err, "%s: generate_samples", t->run->path);
    af_renderer_clear(&scribe);
    af_samples_free(s);
    return st;
}

/* ---- asking ---- */

/* A folder with the weights of a full fine-tuning as they are now, for as long as it is asked. */
static af_status write_whole(af_trainer *t, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    char *from = af_path_join(t->model_path, "config.json"), *to = af_path_join(dir, "config.json");
    if (!from || !to)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    AF_TRY(af_path_remove(dir, err));
    AF_TRY(af_dir_make(dir, err));
    AF_TRY(af_file_copy(from, to, err));
    st = af_trainer_write_model(t, dir, err);
done:
    free(from);
    free(to);
    return st;
}

static bool on_cpu(const af_trainer *t) { return strcmp(af_device_kind(t->device), "cpu") == 0; }

/* `live`: read weights and adapter where they are being trained. */
static af_model model_of(const af_trainer *t, af_loader *source, af_adapter *adapter, bool live)
{
    return (af_model){.path = t->model_path,
                      .device = t->device,
                      .loader = source,
                      .adapter = adapter,
                      .compute = t->compute,
                      .live = live ? &t->leaves : NULL,
                      .tokenizer = t->samples->tokenizer};
}

static af_generate_opts opts_of(const af_trainer *t)
{
    const af_samples *s = t->samples;
    return (af_generate_opts){.prompt = (const int32_t *const *)s->ids,
                              .prompt_len = s->len,
                              .sequences = s->count,
                              .max_new = t->run->generate_samples_tokens,
                              .skip_special = true,
                              .once = true};
}

af_status af_samples_plan(const af_trainer *t, uint64_t *bytes, af_error *err)
{
    const bool live = on_cpu(t);
    *bytes = 0;
    if (!t->samples || (!live && !t->source))
        return AF_OK;
    const af_model m = model_of(t, t->source, t->adapter, live);
    const af_generate_opts o = opts_of(t);
    const af_status st = af_model_generate_plan(&m, &o, bytes, err);
    if (st == AF_OK || live)
        return st;
    *bytes = 0; /* a second graph that a GPU cannot have is said when it is asked for */
    return AF_OK;
}

static bool goes_on(void *user, int sequence, int32_t id, const char *text, uint64_t len)
{
    (void)sequence, (void)id, (void)text, (void)len;
    return !af_trainer_stop_asked(user);
}

static af_status generate(af_trainer *t, af_loader *source, af_adapter *adapter, bool live,
                          af_generated *out, af_error *err)
{
    af_model m = model_of(t, source, adapter, live);
    af_generate_opts o = opts_of(t);
    o.hook = goes_on;
    o.user = t;
    const af_status st = af_model_generate(&m, &o, out, err);
    af_engine_close(&m.engine); /* the rest is the trainer's */
    free(m.cached);
    return st;
}

static af_status ask_adapter(af_trainer *t, const char *dir, af_generated *out, af_error *err)
{
    af_adapter *own = NULL;
    af_status st = dir ? af_adapter_read(&own, t->spec, dir, err)
                       : af_adapter_download(t->adapter, &t->leaves, err);
    if (st == AF_OK)
        st = generate(t, t->source, own ? own : t->adapter, false, out, err);
    af_adapter_free(own);
    return st;
}

static af_status ask_whole(af_trainer *t, const char *dir, af_generated *out, af_error *err)
{
    af_status st = AF_OK;
    af_loader *source = NULL;
    char *tmp = dir ? NULL : af_path_join(t->run->output_dir, "samples.tmp");
    if (!dir && !tmp)
        return af_fail_nomem(err, "a path", 16);
    if (tmp)
        AF_TRY(write_whole(t, tmp, err));
    AF_TRY(af_loader_open(&source, tmp ? tmp : dir, &(af_loader_opts){.compute = t->compute}, err));
    st = generate(t, source, NULL, false, out, err);
done:
    af_loader_close(source);
    if (tmp)
        (void)!af_path_remove(tmp, NULL);
    free(tmp);
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

static af_status keep(const af_trainer *t, int i, const af_generated *g, af_error *err)
{
    af_buf line = {0};
    const char *prompt = t->samples->prompt[i];
    af_buf_printf(&line, "sample at step %" PRId64 ": ", t->progress.step);
    put_line(&line, prompt, strlen(prompt), 200);
    af_buf_str(&line, " -> ");
    put_line(&line, g->text, g->text_len, 500);
    if (!line.bad)
        af_trainer_log(t, "%s", line.data);
    af_buf_clear(&line);

    json_t *row =
        json_pack("{s:I,s:s,s:o?,s:s}", "step", (json_int_t)t->progress.step, "prompt", prompt,
                  "answer", json_stringn(g->text, g->text_len), "stop", af_stop_name(g->stop));
    char *text = row ? json_dumps(row, JSON_COMPACT) : NULL;
    char *path = af_path_join(t->run->output_dir, "samples.jsonl");
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
    json_t *row = json_loadb(*line, *len - 1, 0, NULL);
    return row ? row : json_object(); /* a damaged row is nobody's */
}

static af_status read_rows(const af_trainer *t, char **path, char **text, af_error *err)
{
    uint64_t size;
    *path = af_path_join(t->run->output_dir, "samples.jsonl");
    if (!*path)
        return af_fail_nomem(err, "a path", 16);
    return af_file_exists(*path) ? af_file_read(text, &size, *path, UINT64_MAX / 2, err) : AF_OK;
}

/* Keeps the rows of steps before `from`. */
static af_status keep_before(const af_trainer *t, int64_t from, af_error *err)
{
    char *path = NULL, *text = NULL;
    af_buf kept = {0};
    const char *line;
    uint64_t len;
    af_status st = t->samples ? read_rows(t, &path, &text, err) : AF_OK;
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

af_status af_samples_open(const af_trainer *t, af_error *err)
{
    return keep_before(t, t->progress.step + (t->progress.pending == AF_PENDING_NOTHING), err);
}

af_status af_samples_ask(af_trainer *t, const char *dir, bool *whole, af_error *err)
{
    const af_samples *s = t->samples;
    *whole = true;
    if (!s)
        return AF_OK;
    af_generated *out = af_calloc((uint64_t)s->count, sizeof *out);
    if (!out)
        return af_fail_nomem(err, "the samples", (uint64_t)s->count * sizeof *out);
    af_status st = !dir && on_cpu(t) ? generate(t, t->source, t->adapter, true, out, err)
                   : t->adapter      ? ask_adapter(t, dir, out, err)
                                     : ask_whole(t, dir, out, err);
    if (st == AF_ENOMEM) {
        af_trainer_log(t, "no samples at step %" PRId64 ": %s", t->progress.step, err->msg);
        free(out);
        return AF_OK;
    }
    *whole = !af_trainer_stop_asked(t);
    if (st == AF_OK && *whole &&
        dir) /* the last answers stand for their step, also after a resume */
        st = keep_before(t, t->progress.step, err);
    for (int i = 0; i < s->count && st == AF_OK && *whole; i++)
        st = keep(t, i, &out[i], err);
    for (int i = 0; i < s->count; i++)
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

af_status af_samples_table(af_trainer *t, af_error *err)
{
    char *path = NULL, *text = NULL;
    af_buf b = {0};
    af_status st = t->samples ? read_rows(t, &path, &text, err) : AF_OK;
    if (st == AF_OK && text) {
        af_buf_str(&b, "<table class=\"samples\"><tr><th>prompt</th><th>before</th><th>after</th>"
                       "</tr>\n");
        for (int i = 0; i < t->samples->count; i++)
            put_pair(&b, text, t->samples->prompt[i]);
        af_buf_str(&b, "</table>");
        free(t->samples_html);
        t->samples_html = af_buf_take(&b);
        st = t->samples_html ? AF_OK : af_fail_nomem(err, "the samples", 0);
    }
    af_buf_clear(&b);
    free(path);
    free(text);
    return st;
}
