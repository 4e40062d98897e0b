/* adapter_tokens.c - trainable_token_indices: rows of the embedding or the head that an adapter
 * trains alone.
 *
 * In a graph such a table is wider than the model's: its trained rows are zeros, and columns after
 * the last mark each of them with a one. With D the trained rows [columns][width],
 *     embedding:  [w | m] = table[id],  x = w + m D
 *     head:       logits = table [h | h D^T]^T
 * so that only the few rows have a gradient, and the rest of the table stays as it is. */
#include "model/adapter_config.h"
#include "model/loader.h"

#include <jansson.h>

enum { NAME_BYTES = AF_ADAPTER_NAME_BYTES };
enum { COLUMNS_STEP = 16 }; /* the rows of a wide table stay aligned */

/* As most models call them. */
static const char *const table_name[AF_TOKEN_TABLES] = {"embed_tokens", "lm_head"};

/* ---- config ---- */

static bool parse_rows(af_token_rows *out, af_arena *arena, const json_t *list)
{
    const size_t n = json_array_size(list);
    int64_t *index = n <= AF_TOKENS_MAX ? af_arena_take(arena, AF_MAX(n, 1) * sizeof *index) : NULL;
    for (size_t i = 0; index && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v))
            return false;
        index[i] = json_integer_value(v);
    }
    *out = (af_token_rows){index, index ? (int)n : 0};
    return index != NULL;
}

bool af_adapter_tokens_parse(af_token_rows out[AF_TOKEN_TABLES], af_arena *arena,
                             const json_t *value)
{
    const char *name;
    json_t *list;
    if (json_is_array(value))
        return parse_rows(&out[AF_TOKENS_EMBED], arena, value);
    json_object_foreach((json_t *)value, name, list)
    {
        int k = 0;
        while (k < AF_TOKEN_TABLES && !af_path_is_table(name, k == AF_TOKENS_HEAD))
            k++;
        if (k == AF_TOKEN_TABLES || !json_is_array(list) || !parse_rows(&out[k], arena, list))
            return false;
    }
    return json_is_object(value);
}

static json_t *rows_json(const af_token_rows *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->count; i++)
        json_array_append_new(list, json_integer(r->index[i]));
    return list;
}

json_t *af_adapter_tokens_json(const af_token_rows rows[AF_TOKEN_TABLES],
                               const char *const names[AF_TOKEN_TABLES])
{
    if (!rows[AF_TOKENS_EMBED].count && !rows[AF_TOKENS_HEAD].count)
        return json_null();
    if (!rows[AF_TOKENS_HEAD].count)
        return rows_json(&rows[AF_TOKENS_EMBED]);
    json_t *o = json_object();
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        if (rows[k].count)
            json_object_set_new(o, names[k] ? names[k] : table_name[k], rows_json(&rows[k]));
    return o;
}

/* ---- layout ---- */

static int table_tensor(const af_model_spec *s, int table)
{
    return table == AF_TOKENS_EMBED ? s->embed : s->head;
}

static int table_module(const af_model_spec *s, int table)
{
    return table == AF_TOKENS_EMBED ? s->embed_module : s->head_module;
}

int af_adapter_token_table(const af_adapter *a, int tensor)
{
    for (int k = 0; a && k < AF_TOKEN_TABLES; k++)
        if (a->tokens[k].count && table_tensor(a->spec, k) == tensor)
            return k;
    return -1;
}

int64_t af_adapter_token_columns(const af_adapter *a, int tensor)
{
    const int k = af_adapter_token_table(a, tensor);
    return k < 0 ? 0 : (a->tokens[k].count + COLUMNS_STEP - 1) / COLUMNS_STEP * COLUMNS_STEP;
}

static af_status wrong(af_error *err, int table, const char *why)
{
    return af_fail_subject(err, AF_EUSAGE, "trainable_token_indices",
                           "trainable_token_indices of '%s' %s", table_name[table], why);
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Each a row of the table, and each once. */
static af_status check_index(const af_adapter *a, int table, af_error *err)
{
    const af_token_rows *r = &a->tokens[table];
    if (table == AF_TOKENS_HEAD && a->spec->head_normed)
        return wrong(err, table, "are not supported: its rows are divided by their lengths");
    int64_t *sorted = af_calloc((uint64_t)r->count, sizeof *sorted);
    af_status st = AF_OK;
    if (!sorted)
        return af_fail_nomem(err, "the trained tokens", (uint64_t)r->count * sizeof *sorted);
    memcpy(sorted, r->index, (size_t)r->count * sizeof *sorted);
    qsort(sorted, (size_t)r->count, sizeof *sorted, ascending);
    for (int i = 0; i < r->count && st == AF_OK; i++) {
        char why[160];
        if (sorted[i] < 0 || sorted[i] >= a->spec->vocab) {
            snprintf(why, sizeof why, "has %" PRId64 ", but the model has the tokens 0 to %" PRId64,
                     sorted[i], a->spec->vocab - 1);
            st = wrong(err, table, why);
        } else if (i && sorted[i] == sorted[i - 1]) {
            snprintf(why, sizeof why, "has %" PRId64 " twice", sorted[i]);
            st = wrong(err, table, why);
        }
    }
    free(sorted);
    return st;
}

bool af_token_rows_same(const af_token_rows *a, const af_token_rows *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->index, b->index, (size_t)a->count * sizeof *a->index) == 0);
}

af_status af_adapter_tokens_lay_out(af_adapter *a, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = a->spec;
    const af_token_rows *embed = &a->config.tokens[AF_TOKENS_EMBED],
                        *head = &a->config.tokens[AF_TOKENS_HEAD];
    if (s->tied && head->count && !af_token_rows_same(head, embed))
        return wrong(err, AF_TOKENS_HEAD,
                     "differs from that of 'embed_tokens', which are the same weights here");
    for (int k = 0; k < AF_TOKEN_TABLES; k++) {
        if (!a->config.tokens[k].count || (s->tied && k == AF_TOKENS_HEAD))
            continue;
        if (a->saved[table_tensor(s, k)])
            return wrong(err, k, "is needless: modules_to_save trains all of its rows");
        if (a->module[table_module(s, k)].rank)
            return wrong(err, k, "cannot be combined with an adapter on the same module");
        if (s->tied && a->config.dora && a->module[s->head_module].rank)
            return wrong(err, k,
                         "cannot be combined with DoRA on 'lm_head', the same weights here");
        a->tokens[k] = a->config.tokens[k];
        AF_TRY(check_index(a, k, err));
    }
done:
    return st;
}

af_status af_adapter_tokens_alloc(af_adapter *a, int table, af_error *err)
{
    const int64_t n =
        af_adapter_token_columns(a, table_tensor(a->spec, table)) * a->spec->embed_width;
    if (!a->token_values[table])
        a->token_values[table] = af_arena_take(&a->arena, (uint64_t)n * sizeof(float));
    return a->token_values[table] ? AF_OK
                                  : af_fail_nomem(err, "an adapter", (uint64_t)n * sizeof(float));
}

af_status af_adapter_tokens_fill(af_adapter *a, af_loader *base, af_error *err)
{
    af_status st = AF_OK;
    for (int k = 0; k < AF_TOKEN_TABLES; k++) {
        if (!a->tokens[k].count)
            continue;
        AF_TRY(af_adapter_tokens_alloc(a, k, err));
        for (int i = 0; i < a->tokens[k].count; i++)
            AF_TRY(af_loader_rows(base, table_tensor(a->spec, k), a->tokens[k].index[i], 1,
                                  a->token_values[k] + i * a->spec->embed_width, err));
    }
done:
    return st;
}

void af_adapter_tokens_name(const af_adapter *a, int table, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, AF_ADAPTER_PREFIX "%s.token_adapter.trainable_tokens_delta",
             a->spec->module[table_module(a->spec, table)].path);
}

/* ---- whole tables of an adapter ---- */

void af_adapter_base_name(const af_adapter *a, int tensor, char name[NAME_BYTES])
{
    char path[NAME_BYTES / 2];
    const af_tensor_spec *t = &a->spec->tensor[tensor];
    af_spec_whole_name(a->spec, t->name, path, sizeof path);
    *strrchr(path, '.') = '\0';
    snprintf(name, NAME_BYTES, AF_ADAPTER_PREFIX "%s%s.weight", path,
             af_adapter_token_table(a, tensor) >= 0 ? ".token_adapter.base_layer"
             : a->module[t->module].rank            ? ".base_layer"
                                                    : "");
}

const af_stored *af_adapter_find_vocab(const af_weights *w, const af_model_spec *s,
                                       const af_tensor_spec *t)
{
    static const char *const tails[] = {".token_adapter.base_layer.weight", ".weight",
                                        ".base_layer.weight"};
    char path[NAME_BYTES], name[NAME_BYTES + 64];
    af_spec_whole_name(s, t->name, path, sizeof path);
    *strrchr(path, '.') = '\0';
    for (size_t i = 0; i < AF_LEN(tails); i++) {
        snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s%s", path, tails[i]);
        const af_stored *x = af_weights_find(w, name);
        if (x && x->ndim == 2 && af_dtype_is_float(x->dtype))
            return x;
    }
    return NULL;
}
