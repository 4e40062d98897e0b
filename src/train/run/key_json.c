/* key_json.c - the table of run-file keys as JSON, for programs that generate documentation, shell
 * completions or forms from it. */
#include "afinar/schedule.h"
#include "data/shape/data_source.h"
#include "train/run/run_foreign.h"
#include "train/run/run_keys.h"

#include "afinar/train.h"

static void put_item(af_buf *b, bool first, const char *text)
{
    af_buf_str(b, first ? "" : ", ");
    af_put_quoted(b, text);
}

static void put_key(void *user, const af_key *k)
{
    af_buf *b = user;
    af_buf_str(b, k == af_keys ? "\n" : ",\n");
    af_buf_printf(b, "{\"name\": \"%s\", \"type\": \"%s\", \"default\": ", k->name,
                  af_key_kind_name(k));
    af_put_quoted(b, k->preset ? k->preset : "");
    if (k->kind == AF_KEY_I64 || k->kind == AF_KEY_F64)
        af_buf_printf(b, ", \"min\": %.9g, \"max\": %.9g", k->min, k->max);
    af_buf_str(b, ", \"help\": ");
    af_put_quoted(b, k->help);
    af_buf_str(b, ", \"aliases\": [");
    for (size_t i = 0; i < AF_LEN(k->alias) && k->alias[i]; i++)
        put_item(b, i == 0, k->alias[i]);
    af_buf_str(b, "], \"values\": [");
    for (int i = 0; k->choices && k->choices->names[i].name; i++)
        put_item(b, i == 0, k->choices->names[i].name);
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
    AF_NEED(err, out);
    af_buf b = {0};
    const char *reason, *keys;
    af_foreign_kind kind;
    af_buf_str(&b, "{\"keys\": [");
    af_run_keys_each(put_key, &b);
    af_buf_str(&b, "],\n\"lr_scheduler\": ");
    af_put_quoted(&b, af_schedule_names());
    put_list(&b, "dataset_keys", af_data_source_key);
    put_list(&b, "dataset_types", af_data_source_type);
    af_buf_str(&b, ",\n\"foreign\": [");
    for (int i = 0; af_foreign_at(i, &keys, &kind, &reason); i++) {
        af_buf_str(&b, i ? ",\n{\"keys\": " : "\n{\"keys\": ");
        af_put_quoted(&b, keys);
        af_buf_printf(&b, ", \"accepted\": %s, \"reason\": ",
                      kind == AF_FOREIGN_IDLE || kind == AF_FOREIGN_INSTEAD ? "true" : "false");
        af_put_quoted(&b, reason);
        af_buf_char(&b, '}');
    }
    af_buf_str(&b, "]}");
    *out = af_buf_take(&b);
    return *out ? AF_OK : af_fail_nomem(err, "the keys", 4096);
}
