/* classify.c - the labels of texts; see afinar/model.h. */
#include "format/text/json_text.h"
#include "model/model_state.h"

#include <jansson.h>

/* Names and kind are in the config of a whole model, or among the adapter's own keys. */
af_status af_model_read_labels(af_model *m, af_error *err)
{
    const char *own = m->adapter ? m->adapter->config.labels : NULL;
    const json_t *config = af_loader_config(m->loader)->raw;
    json_error_t why;
    if (!af_model_labels(m))
        return AF_OK;
    if (own)
        m->label_json = af_json_load(own, strlen(own), 0, &why);
    else if (config)
        m->label_json = json_incref((json_t *)config);
    return own && !m->label_json ? af_fail_nomem(err, "labels", strlen(own)) : AF_OK;
}

int64_t af_model_labels(const af_model *m) { return m ? af_loader_spec(m->loader)->labels : 0; }

const char *af_model_label(const af_model *m, int64_t i)
{
    static const char *const usual[] = {"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4",
                                        "LABEL_5", "LABEL_6", "LABEL_7", "LABEL_8", "LABEL_9"};
    char key[32];
    snprintf(key, sizeof key, "%" PRId64, i);
    const json_t *names = json_object_get(m ? m->label_json : NULL, "id2label");
    const char *name = json_string_value(json_object_get(names, key));
    return name ? name : i >= 0 && i < (int64_t)AF_LEN(usual) ? usual[i] : "LABEL";
}

af_label_opts af_model_label_opts(const af_model *m)
{
    const char *kind = json_string_value(json_object_get(m ? m->label_json : NULL, "problem_type"));
    af_label_opts o = {.count = af_model_labels(m)};
    if (kind && strcmp(kind, "multi_label_classification") == 0)
        o.problem = AF_PROBLEM_MULTI;
    else if (kind && strcmp(kind, "regression") == 0)
        o.problem = AF_PROBLEM_REGRESSION;
    else if (kind && o.count > 1)
        o.problem = AF_PROBLEM_SINGLE;
    return o;
}

af_label_kind af_model_label_kind(const af_model *m)
{
    const af_label_opts o = af_model_label_opts(m);
    const af_problem p = af_problem_of(&o);
    return p == AF_PROBLEM_MULTI        ? AF_LABELS_SEVERAL
           : p == AF_PROBLEM_REGRESSION ? AF_LABELS_NUMBERS
                                        : AF_LABELS_ONE;
}

af_status af_model_need_tokens(const af_model *m, af_error *err)
{
    if (!af_model_labels(m))
        return AF_OK;
    return af_fail(err, AF_EUSAGE,
                   "'%s' gives scores of %" PRId64 " labels, not tokens: 'afinar classify' shows "
                   "them",
                   m->adapter_dir ? m->adapter_dir : m->path, af_model_labels(m));
}

/* The model's padding token, else the tokenizer's: it is not looked at, at the end of a text. */
static int32_t pad_of(af_model *m)
{
    const int64_t own = af_loader_config(m->loader)->pad_token_id;
    const af_tokenizer *t;
    if (own >= 0)
        return (int32_t)own;
    return af_model_tokenizer(m, &t, NULL) == AF_OK ? af_tokenizer_pad(t) : -1;
}

int64_t af_score_row(const int32_t *ids, int64_t from, int64_t to, int32_t pad)
{
    int64_t row = to - 1;
    while (row > from && ids[row] == pad)
        row--;
    return row;
}

af_status af_model_classify(af_model *m, const int32_t *ids, int64_t n, float *scores,
                            double *probabilities, af_error *err)
{
    AF_NEED(err, m, ids);
    const int64_t C = af_model_labels(m);
    const af_label_opts o = af_model_label_opts(m);
    const float *all;
    af_status st = AF_OK;
    if (!C)
        return af_fail(err, AF_EUSAGE,
                       "'%s' is a language model without labels: train one with 'task_type: "
                       "SEQ_CLS'",
                       m->path);
    if (n < 1)
        return af_fail(err, AF_EUSAGE, "an empty text has no labels");
    AF_TRY(af_model_check_ids(m, ids, n, err));
    AF_TRY(af_model_engine(m, AF_ENGINE_LOGITS, n, 1, err));
    AF_TRY(af_engine_run(&m->engine, &(af_feed){.ids = ids, .n = n, .length = n}, 1, &all, err));
    const float *own = all + af_score_row(ids, 0, n, pad_of(m)) * C;
    if (scores)
        memcpy(scores, own, (uint64_t)C * sizeof *scores);
    if (probabilities)
        af_label_probabilities(&o, own, probabilities);
done:
    return st;
}
