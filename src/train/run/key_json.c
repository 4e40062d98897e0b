/* key_json.c - the table of run-file keys as JSON, for programs that generate documentation, shell
 * completions or forms from it. */
#include "afinar/schedule.h"
#include "data/shape/data_source.h"
#include "train/run/run_keys.h"

#include "afinar/train.h"

static const char *const kinds[] = {
    [AF_KEY_STR] = "string",    [AF_KEY_BOOL] = "bool",  [AF_KEY_TRI] = "bool or auto",
    [AF_KEY_I64] = "integer",   [AF_KEY_F64] = "number", [AF_KEY_LIST] = "list",
    [AF_KEY_ENUM] = "one word", [AF_KEY_TREE] = "YAML",
};

static void put_item(af_buf *b, bool first, const char *text)
{
    af_buf_str(b, first ? "" : ", ");
    af_put_quoted(b, text);
}

static void put_key(af_buf *b, const af_key *k)
{
    af_buf_printf(b, "{\"name\": \"%s\", \"type\": \"%s\", \"default\": ", k->name, kinds[k->kind]);
    af_put_quoted(b, k->preset ? k->preset : "");
    if (k->kind == AF_KEY_I64 || k->kind == AF_KEY_F64)
        af_buf_printf(b, ", \"min\": %.9g, \"max\": %.9g", k->min, k->max);
    af_buf_str(b, ", \"help\": ");
    af_put_quoted(b, k->help);
    af_buf_str(b, ", \"aliases\": [");
    for (size_t i = 0; i < AF_LEN(k->alias) && k->alias[i]; i++)
        put_item(b, i == 0, k->alias[i]);
    af_buf_str(b, "], \"values\": [");
    for (int i = 0; k->words && k->words[i].word; i++)
        put_item(b, i == 0, k->words[i].word);
    af_buf_str(b, "]}");
}

static void put_list(af_buf *b, const char *title, const char *(*item)(int))
{
    af_buf_printf(b, ",\n\"%s\": [", title);
    for (int i = 0; item(i); i++)
        put_item(b, i == 0, item(i));
    af_buf_char(b, ']');
}

af_status af_train_keys_json(char **out, af_error *err)
{
    af_buf b = {0};
    const char *advice, *key;
    af_buf_str(&b, "{\"keys\": [");
    for (int i = 0; i < af_keys_count; i++) {
        af_buf_str(&b, i ? ",\n" : "\n");
        put_key(&b, &af_keys[i]);
    }
    af_buf_str(&b, "],\n\"lr_scheduler\": ");
    af_put_quoted(&b, af_schedule_names());
    put_list(&b, "dataset_keys", af_data_source_key);
    put_list(&b, "dataset_types", af_data_source_type);
    af_buf_str(&b, ",\n\"foreign\": [");
    for (int i = 0; (key = af_key_foreign_at(i, &advice)); i++) {
        af_buf_str(&b, i ? ",\n{\"key\": " : "\n{\"key\": ");
        af_put_quoted(&b, key);
        af_buf_str(&b, ", \"advice\": ");
        af_put_quoted(&b, advice);
        af_buf_char(&b, '}');
    }
    af_buf_str(&b, "]}");
    *out = af_buf_take(&b);
    return *out ? AF_OK : af_fail_nomem(err, "the keys", 4096);
}
