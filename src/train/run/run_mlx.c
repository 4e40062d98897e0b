/* run_mlx.c - the data of a run file of mlx-lm. */
#include "base/file.h"
#include "format/text/json_text.h"
#include "train/run/run_translate.h"

enum { FIELDS = 3, FIRST_RECORD_MAX = 1 << 20 };

static af_yaml *scalar(af_arena *mem, const char *text, int line)
{
    af_yaml *n = af_arena_take(mem, sizeof *n);
    if (n)
        *n = (af_yaml){.kind = AF_YAML_SCALAR, .line = line, .text = text, .quoted = true};
    return n;
}

/* Whether its first record is a question and an answer, which mlx-lm renders as a conversation. */
static bool has_completions(const char *path)
{
    char *line = af_calloc(FIRST_RECORD_MAX, 1);
    FILE *f = line ? fopen(path, "r") : NULL;
    json_t *record = NULL;
    if (f && fgets(line, FIRST_RECORD_MAX, f))
        record = af_json_load(line, strlen(line), 0, NULL);
    const bool is = json_is_string(json_object_get(record, "prompt")) &&
                    json_is_string(json_object_get(record, "completion"));
    json_decref(record);
    if (f)
        fclose(f);
    free(line);
    return is;
}

/* A list with one dataset; NULL when there is no memory. */
static af_yaml *one_dataset(af_arena *mem, const char *path, int line)
{
    static const char *const names[FIELDS] = {"path", "field_instruction", "field_output"};
    const char *const values[FIELDS] = {path, "prompt", "completion"};
    struct nodes {
        af_yaml list, entry;
        af_yaml *first[1], *item[FIELDS];
        const char *key[FIELDS];
        int key_line[FIELDS];
    } *n = af_arena_take(mem, sizeof *n);
    bool whole = n;
    for (int i = 0; i < FIELDS && whole; i++) {
        n->key[i] = names[i];
        n->key_line[i] = line;
        n->item[i] = scalar(mem, values[i], line);
        whole = n->item[i];
    }
    if (!whole)
        return NULL;
    n->entry = (af_yaml){.kind = AF_YAML_MAP,
                         .line = line,
                         .count = has_completions(path) ? FIELDS : 1,
                         .key = n->key,
                         .key_line = n->key_line,
                         .item = n->item};
    n->first[0] = &n->entry;
    n->list = (af_yaml){.kind = AF_YAML_LIST, .line = line, .count = 1, .item = n->first};
    return &n->list;
}

static af_status find(af_yaml **out, const af_yaml *data, const char *file, af_arena *mem,
                      af_error *err)
{
    char *path = af_path_join(data->text, file);
    const char *kept = path ? af_arena_strdup(mem, path) : NULL;
    free(path);
    *out = kept && af_file_exists(kept) ? one_dataset(mem, kept, data->line) : NULL;
    return kept && (*out || !af_file_exists(kept)) ? AF_OK
                                                   : af_fail_nomem(err, "datasets", sizeof **out);
}

af_status af_mlx_data(af_yaml **train, af_yaml **valid, const af_yaml *data, af_arena *mem,
                      const char *name, af_error *err)
{
    af_status st = find(train, data, "train.jsonl", mem, err);
    if (st == AF_OK)
        st = find(valid, data, "valid.jsonl", mem, err);
    if (st == AF_OK && !*train)
        st = af_fail(err, AF_EUSAGE,
                     "%s:%d: data is '%.200s', which is not a folder with a file train.jsonl; give "
                     "one, or set 'datasets'",
                     name, data->line, data->text);
    return st;
}
