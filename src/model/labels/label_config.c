/* label_config.c - see label_config.h. */
#include "model/labels/label_config.h"

#include "afinar/text.h"
#include "format/text/json_text.h"

/* The class of the same architecture that classifies. */
static json_t *class_name(const json_t *config)
{
    const json_t *list = json_object_get(config, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    const char *task = name ? strstr(name, "For") : NULL;
    return task ? json_sprintf("%.*sForSequenceClassification", (int)(task - name), name) : NULL;
}

static json_t *usual_names(int64_t count)
{
    json_t *all = json_pack("{s:{}, s:{}}", "id2label", "label2id");
    for (int64_t i = 0; i < count; i++) {
        char id[24], name[40];
        snprintf(id, sizeof id, "%" PRId64, i);
        snprintf(name, sizeof name, "LABEL_%" PRId64, i);
        json_object_set_new(json_object_get(all, "id2label"), id, json_string(name));
        json_object_set_new(json_object_get(all, "label2id"), name, json_integer(i));
    }
    return all;
}

static void put_pad(json_t *config, const char *dir)
{
    af_tokenizer *t = NULL;
    if (json_is_integer(json_object_get(config, "pad_token_id")))
        return;
    if (af_tokenizer_open(&t, dir, NULL) == AF_OK && af_tokenizer_pad(t) >= 0)
        json_object_set_new(config, "pad_token_id", json_integer(af_tokenizer_pad(t)));
    af_tokenizer_close(t);
}

af_status af_label_config(json_t *config, const char *labels, int64_t count, const char *dir,
                          af_error *err)
{
    json_error_t why;
    json_t *more = labels ? af_json_load(labels, strlen(labels), 0, &why) : usual_names(count);
    json_t *name = class_name(config);
    if (name)
        json_object_set_new(config, "architectures", json_pack("[o]", name));
    const bool failed = !more || json_object_update(config, more) != 0;
    json_decref(more);
    put_pad(config, dir);
    return failed ? af_fail_nomem(err, "config.json", 0) : AF_OK;
}
