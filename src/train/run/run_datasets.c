/* run_datasets.c - the ways of other trainers to name data, brought to `datasets`: dataset_mixture
 * and dataset_name of the alignment handbook, dataset_mixer, pretraining_dataset of Axolotl,
 * train_dataset of LLaMA-Factory's newer schema. */
#include "base/file.h"
#include "data/shape/data_source.h"
#include "train/run/run_keys.h"

enum { ENTRY_KEYS = 24 };

typedef struct builder {
    af_run_config *r;
    af_error *err;
    af_yaml *list;  /* of entries */
    af_yaml *tests; /* likewise, for test_datasets; NULL = none */
    bool bad;       /* no memory */
} builder;

static af_yaml *node(builder *b, af_yaml_kind kind, int room, int line)
{
    af_yaml *n = af_arena_take(&b->r->mem, sizeof *n);
    if (n) {
        *n = (af_yaml){.kind = kind, .line = line};
        const uint64_t count = (uint64_t)AF_MAX(room, 1);
        n->item = af_arena_take(&b->r->mem, count * sizeof *n->item);
        n->key = af_arena_take(&b->r->mem, count * sizeof *n->key);
        n->key_line = af_arena_take(&b->r->mem, count * sizeof *n->key_line);
    }
    const bool whole = n && n->item && n->key && n->key_line;
    b->bad |= !whole;
    return whole ? n : NULL;
}

static void put(builder *b, af_yaml *map, const char *key, const af_yaml *value)
{
    if (b->bad || !map || !value || af_yaml_is_null(value) || map->count == ENTRY_KEYS)
        return;
    map->key[map->count] = key;
    map->key_line[map->count] = value->line;
    map->item[map->count++] = (af_yaml *)value;
}

static void put_text(builder *b, af_yaml *map, const char *key, const char *text, int line)
{
    af_yaml *n = node(b, AF_YAML_SCALAR, 0, line);
    if (n) {
        n->text = text;
        put(b, map, key, n);
    }
}

static af_status wants(const builder *b, const char *key, const af_yaml *n, const char *what)
{
    char show[80], at[300];
    return af_fail(b->err, AF_EUSAGE, "%s: %s must be %s, not %s",
                   af_data_source_loc(at, b->r->path, n->line), key, what,
                   af_yaml_show(n, show, sizeof show));
}

static af_yaml *entry(builder *b, int line)
{
    af_yaml *e = node(b, AF_YAML_MAP, ENTRY_KEYS, line);
    if (e)
        b->list->item[b->list->count++] = e;
    return e;
}

static af_status begin(builder *b, int entries, int line)
{
    b->list = node(b, AF_YAML_LIST, entries, line);
    return b->list ? AF_OK : af_fail_nomem(b->err, "datasets", (uint64_t)entries);
}

/* The share that a mixture holds out: its own key, or a list of splits. */
static af_status held_out(builder *b, const af_yaml *n)
{
    double v;
    if (!n || af_yaml_is_null(n))
        return AF_OK;
    if (!af_yaml_f64(n, &v) || v < 0)
        return wants(b, "test_split_size", n, "a share or a number of records");
    b->r->val_set_size = v;
    b->r->key_line[af_key_find("val_set_size") - af_keys] = n->line;
    return AF_OK;
}

static af_status mixture(builder *b, const af_yaml *m)
{
    static const struct {
        const char *theirs, *ours; /* NULL: fields that are not named are not read anyway */
    } keys[] = {{"id", "path"},
                {"config", "name"},
                {"split", "split"},
                {"weight", "weight"},
                {"columns", NULL}};
    const af_yaml *list = af_yaml_get(m, "datasets"), *seed = af_yaml_get(m, "seed");
    char at[300];
    if (m->kind != AF_YAML_MAP || !list || list->kind != AF_YAML_LIST)
        return wants(b, "dataset_mixture", m, "a map with a list of datasets");
    af_status st = begin(b, list->count, m->line);
    for (int i = 0; st == AF_OK && i < list->count; i++) {
        const af_yaml *theirs = list->item[i];
        if (theirs->kind != AF_YAML_MAP)
            return wants(b, "an entry of dataset_mixture", theirs, "a map with an id");
        af_yaml *e = entry(b, theirs->line);
        for (int k = 0; k < theirs->count; k++) {
            size_t j = 0;
            while (j < AF_LEN(keys) && strcmp(keys[j].theirs, theirs->key[k]) != 0)
                j++;
            if (j == AF_LEN(keys))
                return af_fail(b->err, AF_EUSAGE,
                               "%s: unknown key '%s' of dataset_mixture (id, config, split, "
                               "columns, weight)",
                               af_data_source_loc(at, b->r->path, theirs->key_line[k]),
                               theirs->key[k]);
            if (keys[j].ours)
                put(b, e, keys[j].ours, theirs->item[k]);
        }
        put(b, e, "seed", seed);
    }
    return st == AF_OK ? held_out(b, af_yaml_get(m, "test_split_size")) : st;
}

static bool is_test(const char *split) { return strstr(split, "test") != NULL; }

/* The share of a dataset's first records that a mixer takes. */
static af_status mixer_share(const builder *b, const af_yaml *n, double *share)
{
    return af_yaml_f64(n, share) && *share >= 0 && *share <= 1
               ? AF_OK
               : wants(b, "a share of dataset_mixer", n, "between 0 and 1");
}

/* The datasets of a mixer in its splits to train on, or to evaluate on, which are taken whole. */
static af_status mixer_list(builder *b, const af_yaml *m, bool test)
{
    static const char *const usual[] = {"train"};
    const af_strings configs = b->r->dataset_configs, given = b->r->dataset_splits;
    const af_strings splits = given.count ? given : (af_strings){(const char **)usual, 1};
    af_status st = begin(b, m->count * splits.count, m->line);
    for (int i = 0; st == AF_OK && i < m->count * splits.count; i++) {
        const int k = i / splits.count, line = m->key_line[k];
        const char *split = splits.item[i % splits.count];
        double share = 1;
        st = mixer_share(b, m->item[k], &share);
        if (is_test(split) != test || (!test && share == 0) || st != AF_OK)
            continue;
        af_yaml *e = entry(b, line);
        put_text(b, e, "path", m->key[k], line);
        if (configs.count)
            put_text(b, e, "name", configs.item[k], line);
        put_text(b, e, "split", split, line);
        if (!test && share < 1)
            put(b, e, "first_share", m->item[k]);
    }
    return st;
}

/* dataset_mixer: {name: weight}, dataset_splits: [train_sft, test_sft] */
static af_status mixer(builder *b, const af_yaml *m)
{
    af_run_config *r = b->r;
    const int test = (int)(af_key_find("test_datasets") - af_keys);
    char at[300];
    if (m->kind != AF_YAML_MAP || m->count == 0)
        return wants(b, "dataset_mixer", m, "a map of datasets and their weights");
    if (r->dataset_configs.count && r->dataset_configs.count != m->count)
        return af_fail(b->err, AF_EUSAGE, "%s: dataset_configs has %d entries for %d datasets",
                       af_run_key_loc(r, "dataset_configs", at, sizeof at),
                       r->dataset_configs.count, m->count);
    af_status st = mixer_list(b, m, true);
    if (st == AF_OK && b->list->count && !r->test_datasets && r->val_set_size == 0) {
        r->test_datasets = b->tests = b->list;
        r->key_line[test] = m->line;
    }
    return st == AF_OK ? mixer_list(b, m, false) : st;
}

static int key_line(const builder *b, const char *key)
{
    return b->r->key_line[af_key_find(key) - af_keys];
}

/* dataset_name with its splits; the one for tests is used where it is there. */
static af_status named(builder *b, const char *name)
{
    af_run_config *r = b->r;
    const int line = AF_MAX(key_line(b, "dataset_name"), 0);
    const char *train = r->dataset_train_split ? r->dataset_train_split : "train";
    const bool evaluates = r->eval_strategy == AF_WHEN_STEPS || r->eval_strategy == AF_WHEN_EPOCH;
    const char *test = r->dataset_test_split                       ? r->dataset_test_split
                       : r->dialect == AF_DIALECT_TRL && evaluates ? "test"
                                                                   : NULL;
    af_status st = AF_OK;
    AF_TRY(begin(b, 1, line));
    af_yaml *e = entry(b, line);
    put_text(b, e, "path", name, line);
    if (r->dataset_config)
        put_text(b, e, "name", r->dataset_config, line);
    put_text(b, e, "split", train, line);
    if (test && !r->test_datasets && !b->bad) {
        af_data_source s = {.path = name, .name = r->dataset_config};
        char **files = NULL;
        int n = 0, out;
        af_arena mem = {0};
        const bool there = af_data_slice_read(&s.split, &s.slice, test, &mem) &&
                           af_data_source_files(&s, r->path, &files, &n, &out, NULL) == AF_OK;
        af_names_free(files, n);
        af_arena_clear(&mem);
        if (!there)
            goto done;
        af_yaml *train_list = b->list;
        AF_TRY(begin(b, 1, line));
        e = entry(b, line);
        put_text(b, e, "path", name, line);
        if (r->dataset_config)
            put_text(b, e, "name", r->dataset_config, line);
        put_text(b, e, "split", test, line);
        r->test_datasets = b->tests = b->list;
        r->key_line[af_key_find("test_datasets") - af_keys] = line;
        b->list = train_list;
    }
done:
    return st;
}

/* A path, or entries: text that is cut into rows. */
static af_status pretraining(builder *b, const af_yaml *n)
{
    const int count = n->kind == AF_YAML_LIST ? n->count : 1;
    const af_status st = begin(b, count, n->line);
    for (int i = 0; st == AF_OK && i < count; i++) {
        const af_yaml *theirs = n->kind == AF_YAML_LIST ? n->item[i] : n;
        af_yaml *e = entry(b, theirs->line);
        if (theirs->kind == AF_YAML_SCALAR)
            put(b, e, "path", theirs);
        else if (theirs->kind != AF_YAML_MAP)
            return wants(b, "pretraining_dataset", theirs, "a path or a map with one");
        bool typed = false;
        for (int k = 0; theirs->kind == AF_YAML_MAP && k < theirs->count; k++) {
            put(b, e, theirs->key[k], theirs->item[k]);
            typed |= strcmp(theirs->key[k], "type") == 0;
        }
        if (!typed)
            put_text(b, e, "type", "completion", theirs->line);
    }
    return st;
}

/* One dataset of LLaMA-Factory's newer schema: name: {path, source, converter, size}. */
static af_status listed(builder *b, const char *file, const af_yaml *n, const char *name, int line)
{
    const af_yaml *source = af_yaml_get(n, "source"), *converter = af_yaml_get(n, "converter");
    if (n->kind != AF_YAML_MAP || !af_yaml_get(n, "path"))
        return af_fail(b->err, AF_EUSAGE, "%s:%d: dataset '%s' has no path", file, line, name);
    if (source && source->kind == AF_YAML_SCALAR && strcmp(source->text, "local") != 0 &&
        strcmp(source->text, "hf_hub") != 0)
        return af_fail(b->err, AF_EUSAGE,
                       "%s:%d: 'source: %s' is not supported: it must be local or hf_hub", file,
                       source->line, source->text);
    af_yaml *e = entry(b, b->list->line);
    put(b, e, "path", af_yaml_get(n, "path"));
    put(b, e, "split", af_yaml_get(n, "split"));
    put(b, e, "num_samples", af_yaml_get(n, "size"));
    put(b, e, "weight", af_yaml_get(n, "weight"));
    if (!converter || af_yaml_is_null(converter))
        return AF_OK;
    const char *as = converter->kind == AF_YAML_SCALAR ? converter->text : "";
    if (strcmp(as, "pair") == 0)
        put_text(b, e, "type", "preference", converter->line);
    else if (strcmp(as, "alpaca") != 0 && strcmp(as, "sharegpt") != 0)
        return af_fail(b->err, AF_EUNSUPPORTED,
                       "%s:%d: 'converter' of dataset '%s' is not supported; it must be one of: "
                       "alpaca, sharegpt, pair",
                       file, converter->line, name);
    return AF_OK;
}

static af_status from_file(builder *b, const char *file, int line)
{
    char *text = NULL;
    uint64_t size = 0;
    af_yaml *root = NULL;
    af_status st = AF_OK;
    const char *name = af_arena_strdup(&b->r->mem, file);
    AF_TRY(af_file_read(&text, &size, file, AF_YAML_BYTES_MAX, b->err));
    AF_TRY(name ? af_yaml_parse(&root, &b->r->mem, text, size, name, b->err)
                : af_fail_nomem(b->err, file, size));
    if (root->kind != AF_YAML_MAP || root->count == 0) {
        st = af_fail(b->err, AF_EUSAGE, "%s: a map of datasets is wanted", file);
        goto done;
    }
    AF_TRY(begin(b, root->count, line));
    for (int i = 0; i < root->count; i++)
        AF_TRY(listed(b, file, root->item[i], root->key[i], root->key_line[i]));
    for (int i = 0; i < b->list->count; i++) /* lines of another file are none of the run's */
        b->list->item[i]->line = line;
done:
    free(text);
    return st;
}

static void forget(af_run_config *r, const char *key)
{
    const af_key *k = af_key_find(key);
    r->key_line[k - af_keys] = 0;
    af_key_set(r, k, (af_key_value){0});
}

/* train_dataset and eval_dataset may name a file of datasets. */
static bool is_list_file(const char *s)
{
    const size_t n = strlen(s);
    return (n > 5 && strcmp(s + n - 5, ".yaml") == 0) || (n > 4 && strcmp(s + n - 4, ".yml") == 0);
}

static af_status resolve_tests(builder *b)
{
    af_run_config *r = b->r;
    const af_yaml *t = r->test_datasets;
    if (!t || t->kind != AF_YAML_SCALAR || !is_list_file(t->text))
        return AF_OK;
    const af_status st = from_file(b, t->text, t->line);
    if (st == AF_OK)
        r->test_datasets = b->list;
    return st;
}

/* TRL's dataset_text_field is for all entries; its default, and the name of conversations, say
 * nothing. */
static af_status name_texts(builder *b, bool built)
{
    const char *field = b->r->dataset_text_field;
    char at[300];
    if (!field || strcmp(field, "text") == 0 || strcmp(field, "messages") == 0)
        return AF_OK;
    if (!built)
        return af_fail(b->err, AF_EUSAGE,
                       "%s: dataset_text_field goes with 'dataset_name': give each entry of "
                       "'datasets' a 'field_text'",
                       af_run_key_loc(b->r, "dataset_text_field", at, sizeof at));
    const af_yaml *lists[] = {b->list, b->tests};
    for (int k = 0; k < 2; k++)
        for (int i = 0; lists[k] && i < lists[k]->count; i++)
            put_text(b, lists[k]->item[i], "field_text", field, lists[k]->line);
    return AF_OK;
}

af_status af_run_datasets(af_run_config *r, af_error *err)
{
    static const char *const ways[] = {"dataset_mixture", "dataset_mixer", "dataset_name",
                                       "pretraining_dataset", "train_dataset"},
                             *const mixed[] = {"dataset_splits", "dataset_configs"};
    builder b = {.r = r, .err = err};
    af_status st = AF_OK;
    char at[300];
    int set = -1;
    for (int i = 0; i < (int)AF_LEN(ways); i++) {
        const int line = key_line(&b, ways[i]);
        const int other = set >= 0 ? key_line(&b, ways[set]) : key_line(&b, "datasets");
        if (line && other > 0)
            return af_fail(err, AF_EUSAGE, "%s: %s and %s contradict each other: give one",
                           af_run_key_loc(r, ways[i], at, sizeof at), ways[i],
                           set >= 0 ? ways[set] : "datasets");
        if (line && !other)
            set = i;
    }
    if (set == 0)
        st = mixture(&b, r->dataset_mixture);
    else if (set == 1)
        st = mixer(&b, r->dataset_mixer);
    else if (set == 2)
        st = named(&b, r->dataset_name);
    else if (set == 3)
        st = pretraining(&b, r->pretraining_dataset);
    else if (set == 4)
        st = from_file(&b, r->train_dataset, AF_MAX(key_line(&b, ways[4]), 0));
    const int format = (int)(af_key_find("setup_chat_format") - af_keys);
    if (st == AF_OK && set >= 0 && set <= 1 && !r->key_line[format]) {
        r->setup_chat_format = true; /* the alignment handbook's rule */
        r->key_line[format] = key_line(&b, ways[set]);
    }
    if (st == AF_OK)
        st = name_texts(&b, set >= 0 && set <= 2);
    if (st == AF_OK && set >= 0) {
        r->datasets = b.list;
        r->key_line[af_key_find("datasets") - af_keys] = key_line(&b, ways[set]);
    }
    if (st == AF_OK)
        st = resolve_tests(&b);
    for (size_t i = 0; i < AF_LEN(ways); i++)
        forget(r, ways[i]);
    forget(r, "dataset_text_field");
    for (size_t i = 0; st == AF_OK && i < AF_LEN(mixed); i++) {
        if (set != 1 && key_line(&b, mixed[i]))
            st = af_run_idle_key(r, mixed[i], "without 'dataset_mixer'", err);
        forget(r, mixed[i]);
    }
    return st == AF_OK && b.bad ? af_fail_nomem(err, "datasets", 0) : st;
}
