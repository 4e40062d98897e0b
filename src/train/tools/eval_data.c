/* eval_data.c - loss and accuracy of a model over a dataset of any shape the trainer reads. */
#include "train/tools/eval_data.h"

#include "base/buf.h"
#include "base/file.h"
#include "data/shape/data_source.h"
#include "data/store/dataset.h"
#include "data/store/pair_row.h"
#include "train/run/run_keys.h"

static const char location[] = "command line";
enum { SEQUENCE_LEN = 2048 }; /* where the options say nothing */

/* The list of one dataset, as a run file would have it. */
static af_status dataset_list(af_yaml **out, af_arena *mem, const char *path,
                              const af_eval_data_opts *o, af_error *err)
{
    af_buf text = {0};
    if (o && o->sequence_len < 0)
        return af_fail(err, AF_EUSAGE, "sequence_len is %" PRId64 "; it must be 0 or more",
                       o->sequence_len);
    if (*path == '{') { /* the entry itself, as in a run file */
        af_buf_printf(&text, "- %s\n", path);
    } else {
        af_buf_str(&text, "- path: ");
        af_put_quoted(&text, path);
        if (o && o->type) {
            af_buf_str(&text, "\n  type: ");
            af_put_quoted(&text, o->type);
        }
        af_buf_char(&text, '\n');
    }
    const af_status st = text.bad ? af_fail_nomem(err, "a path", strlen(path))
                                  : af_yaml_parse(out, mem, text.data, text.len, location, err);
    if (st == AF_OK)
        af_yaml_forget_lines(*out);
    af_buf_clear(&text);
    return st;
}

af_status af_eval_data_check(const char *path, const af_eval_data_opts *o, af_error *err)
{
    AF_NEED(err, path);
    af_status st = AF_OK;
    af_arena mem = {0};
    af_yaml *list = NULL;
    af_data_source *source = NULL;
    int sources = 0;
    AF_TRY(dataset_list(&list, &mem, path, o, err));
    const af_data_opts data = {.datasets = list, .run_path = location};
    AF_TRY(af_data_sources_read(&source, &sources, &data, &mem, err));
    for (int i = 0; i < sources; i++) {
        char **files = NULL;
        int n = 0, held_out;
        AF_TRY(af_data_source_files(&source[i], data.run_path, &files, &n, &held_out, err));
        af_names_free(files, n);
    }
done:
    af_arena_clear(&mem);
    return st;
}

static af_status add_record(af_eval *e, const af_token_store *s, int64_t i, int32_t *buf,
                            af_error *err)
{
    const uint32_t *w = af_token_words(s, i);
    const int64_t n = s->index[i].count;
    for (int64_t t = 0; t < n; t++) {
        buf[t] = (int32_t)(w[t] & ~AF_TOKEN_NO_LOSS);
        buf[n + t] = w[t] & AF_TOKEN_NO_LOSS ? -100 : buf[t];
    }
    return af_eval_add(e, (af_token_row){buf, buf + n, n}, err);
}

/* The adapter's own: the file, or its text where it is in tokenizer_config.json. */
static af_status own_template(const char **out, af_arena *mem, const char *dir, af_error *err)
{
    af_template *t = NULL;
    *out = af_arena_printf(mem, "%s/chat_template.jinja", dir);
    if (!*out)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (af_file_exists(*out))
        return AF_OK;
    *out = NULL;
    const af_status st = af_template_open(&t, dir, err);
    if (st == AF_OK)
        *out = af_arena_strdup(mem, af_template_source(t, NULL));
    af_template_close(t);
    return st != AF_OK || *out ? st : af_fail_nomem(err, "a template", 0);
}

/* The template that records are rendered with. */
static af_status find_template(const af_model *m, const char **template, const char **tokens,
                               af_arena *mem, af_error *err)
{
    const char *texts = af_model_template_path(m);
    *tokens = af_model_tokenizer_path(m);
    if (!*template && texts != *tokens && texts != m->path)
        return own_template(template, mem, texts, err);
    if (!*template && texts != *tokens) /* the base's, which need not have one */
        (void)!own_template(template, mem, texts, NULL);
    return AF_OK;
}

af_status af_eval_data_open(af_token_store *store, af_data_counts *counts, af_model *m,
                            const char *path, const af_eval_data_opts *o, bool labels,
                            af_excess excess, af_arena *mem, af_error *err)
{
    af_yaml *list = NULL;
    const char *template = o ? o->chat_template : NULL, *tokens;
    const int64_t longest = o ? o->sequence_len : 0;
    const char **names = NULL;
    af_status st = AF_OK;
    AF_TRY(find_template(m, &template, &tokens, mem, err));
    AF_TRY(dataset_list(&list, mem, path, o, err));
    af_data_opts data = {.datasets = list,
                         .run_path = location,
                         .model = tokens,
                         .chat_template = template,
                         .train_on_inputs = o && o->train_on_inputs,
                         .excess = excess,
                         .sequence_len = longest ? AF_MAX(longest, 2) : SEQUENCE_LEN,
                         .vocab = af_model_vocab(m)};
    if (labels) {
        data.rl = AF_RL_LABELS;
        data.labels = af_model_label_opts(m);
        names = af_arena_take(mem, (uint64_t)data.labels.count * sizeof *names);
        if (!names)
            return af_fail_nomem(err, "labels", 0);
        for (int64_t i = 0; i < data.labels.count; i++)
            names[i] = af_model_label(m, i);
        data.labels.name = names;
        data.labels.names = (int)data.labels.count;
    }
    AF_TRY(af_dataset_open(store, counts, &data, err));
done:
    return st;
}

af_status af_model_eval_dataset(af_model *m, const char *path, const af_eval_data_opts *o,
                                af_eval_result *out, af_error *err)
{
    AF_NEED(err, m, path, out);
    af_status st = AF_OK;
    af_arena mem = {0};
    af_token_store store = {0};
    af_data_counts counts;
    af_eval *e = NULL;
    int32_t *buf = NULL;
    af_error unread;
    err = af_error_or(err, &unread);
    AF_TRY(af_eval_data_open(&store, &counts, m, path, o, false, AF_EXCESS_TRUNCATE, &mem, err));
    buf = af_calloc((uint64_t)store.longest * 2 + 1, sizeof *buf);
    if (!buf)
        AF_TRY(af_fail_nomem(err, "a record", (uint64_t)store.longest * 8));
    AF_TRY(af_eval_new(&e, m, AF_MAX((int64_t)store.longest, 1024), err));
    for (int64_t i = 0; i < store.records; i++)
        AF_TRY(add_record(e, &store, i, buf, err));
    AF_TRY(af_eval_finish(e, out, err));
done:
    af_eval_free(e);
    af_token_store_close(&store);
    af_arena_clear(&mem);
    free(buf);
    return st;
}

/* ---- labels ---- */

static af_status add_text(af_model *m, const af_token_store *store, int64_t i, float *score,
                          float *target, af_label_counts *c, double *loss, af_error *err)
{
    const af_label_opts o = af_model_label_opts(m);
    af_pair_row row;
    af_status st = AF_OK;
    AF_TRY(af_pair_row_read(&row, store, i, err));
    memcpy(target, row.second, (uint64_t)row.second_len * sizeof *target);
    AF_TRY(af_model_classify(m, row.first, row.first_len, score, NULL, err));
    af_label_counts_add(c, &o, score, target);
    *loss += af_label_loss(&o, score, target, store->records, NULL);
done:
    return st;
}

static void take_counts(af_label_eval *out, const af_label_counts *c, const af_label_opts *o)
{
    out->texts = c->texts;
    out->accuracy = (double)c->right / (double)c->texts;
    out->f1 = af_label_f1_macro(c, o);
    out->mse = c->values ? c->squares / (double)c->values : 0;
    for (int64_t i = 0; i < c->labels; i++)
        out->label_f1[i] = af_label_f1(c, i);
}

af_status af_model_eval_labels(af_model *m, const char *path, const af_eval_data_opts *o,
                               af_label_eval *out, af_error *err)
{
    AF_NEED(err, m, path, out);
    const uint64_t C = (uint64_t)AF_MAX(af_model_labels(m), INT64_C(1));
    af_status st = AF_OK;
    af_arena mem = {0};
    af_token_store store = {0};
    af_data_counts read;
    af_label_counts counts = {0};
    float *values = af_calloc(C * 2, sizeof *values);
    af_error unread;
    err = af_error_or(err, &unread);
    *out = (af_label_eval){.label_f1 = af_calloc(C, sizeof *out->label_f1)};
    if (!values || !out->label_f1)
        AF_TRY(af_fail_nomem(err, "labels", C * sizeof *values));
    if (!af_model_labels(m))
        AF_TRY(af_model_classify(m, (const int32_t[]){0}, 0, NULL, NULL, err));
    AF_TRY(af_label_counts_init(&counts, (int64_t)C, err));
    AF_TRY(af_eval_data_open(&store, &read, m, path, o, true, AF_EXCESS_TRUNCATE, &mem, err));
    for (int64_t i = 0; i < store.records; i++)
        AF_TRY(add_text(m, &store, i, values, values + C, &counts, &out->loss, err));
    if (counts.texts) {
        const af_label_opts labels = af_model_label_opts(m);
        take_counts(out, &counts, &labels);
    }
done:
    if (st != AF_OK) {
        free(out->label_f1);
        out->label_f1 = NULL;
    }
    free(values);
    af_label_counts_clear(&counts);
    af_token_store_close(&store);
    af_arena_clear(&mem);
    return st;
}
