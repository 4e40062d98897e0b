/* dataset.c - datasets to a token store. */
#include "data/dataset.h"
#include "base/buf.h"
#include "base/hash.h"

#include <jansson.h>
#include <unistd.h>

static af_status add_line(af_token_writer *w, const char *path, int64_t line, const char *text,
                          size_t n, af_error *err)
{
    json_error_t why;
    json_t *row = json_loadb(text, n, 0, &why);
    json_t *ids = json_object_get(row, "input_ids"), *labels = json_object_get(row, "labels");
    if (!json_is_array(ids) || !json_is_array(labels)) {
        json_decref(row);
        return af_fail(err, AF_EFORMAT, "%s:%lld: no input_ids and labels", path, (long long)line);
    }
    const int64_t count = (int64_t)json_array_size(ids);
    int32_t *v = af_calloc((uint64_t)count * 2, sizeof *v);
    for (int64_t i = 0; v && i < count; i++) {
        v[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
        v[count + i] = (int32_t)json_integer_value(json_array_get(labels, (size_t)i));
    }
    af_status st =
        v ? af_token_writer_add(w, v, v + count, count, 0, line, err) : af_fail_nomem(err, path, 0);
    free(v);
    json_decref(row);
    return st;
}

af_status af_dataset_open(af_token_store *out, af_data_counts *counts, const af_data_opts *o,
                          af_error *err)
{
    const af_yaml *p = af_yaml_get(o->datasets->item[0], "path");
    char *text, *dir, tmp[4096];
    uint64_t size;
    af_token_writer *w = NULL;
    af_status st = af_file_read(&text, &size, p->text, 1 << 30, err);
    if (st != AF_OK)
        return st;
    AF_TRY(af_cache_dir(&dir, "tokens", err));
    snprintf(tmp, sizeof tmp, "%s/%016llx.tokens", dir,
             (unsigned long long)af_fnv1a(AF_FNV_START, text, size));
    free(dir);
    AF_TRY(af_token_writer_open(&w, tmp, err));
    int64_t line = 0;
    for (char *s = text, *end; s && *s; s = end ? end + 1 : NULL) {
        end = strchr(s, '\n');
        line++;
        AF_TRY(add_line(w, p->text, line, s, end ? (size_t)(end - s) : strlen(s), err));
    }
    st = af_token_writer_commit(w, p->text, err);
    w = NULL;
    if (st == AF_OK)
        st = af_token_store_open(out, tmp, err);
    if (st == AF_OK)
        *counts = (af_data_counts){.records = out->records};
done:
    af_token_writer_abandon(w);
    free(text);
    return st;
}

const char *af_dataset_file(const af_token_store *s, int source)
{
    (void)source;
    return s->note;
}
