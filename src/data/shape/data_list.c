/* data_list.c - the datasets of a run: a list of entries, a path, or names of dataset_info.json. */
#include "base/file.h"
#include "data/shape/data_entry.h"

static bool is_path(const char *s)
{
    return af_file_exists(s) || af_dir_exists(s) || strpbrk(s, "*?[");
}

/* 'train[:10%]+test' of an entry: its parts are read one after the other, as one dataset. */
static int count_parts(const af_yaml *n)
{
    const af_yaml *split = af_yaml_get(n, "split");
    int count = 1;
    if (!split || af_yaml_is_null(split))
        split = af_yaml_get(n, "train_on_split");
    for (const char *c = split && split->kind == AF_YAML_SCALAR ? split->text : ""; *c; c++)
        count += *c == '+';
    return count;
}

static af_status read_parts(af_data_entry *p, const af_yaml *n)
{
    const int parts = count_parts(n);
    af_status st = AF_OK;
    char at[300];
    for (p->part = 0; p->part < parts && st == AF_OK; p->part++) {
        p->s += p->part > 0;
        st = af_data_entry_read(p, n);
        p->s->continued = p->part > 0;
        if (st == AF_OK && parts > 1 &&
            (p->s->max_samples || p->s->num_samples || p->s->shards || p->s->weight != 1 ||
             p->s->first_share > 0))
            st = af_fail(p->err, AF_EUSAGE,
                         "%s: a sum of splits has no max_samples, num_samples, shards or share: "
                         "give each split an entry of its own",
                         af_data_source_loc(at, p->o->run_path, p->s->split_line));
    }
    p->part = 0;
    return st;
}

/* "a, b": names of dataset_info.json, or paths. A path may have commas of its own. */
static int count_sources(const af_data_opts *o, const af_yaml *n)
{
    int count = 1;
    if (n->kind == AF_YAML_MAP)
        return count_parts(n);
    if (n->kind != AF_YAML_SCALAR || is_path(n->text) || !af_dataset_info_exists(o->dataset_dir))
        return 1;
    for (const char *c = n->text; *c; c++)
        count += *c == ',';
    return count;
}

static af_status read_name(af_data_entry *p, const af_yaml *n, const char *from)
{
    char at[300];
    from += strspn(from, " ");
    size_t len = strcspn(from, ",");
    while (len && from[len - 1] == ' ')
        len--;
    const char *name = af_arena_strndup(p->mem, from, len);
    af_data_entry_begin(p, n);
    if (!name)
        return af_fail_nomem(p->err, "a dataset", len);
    p->s->path = name;
    if (is_path(name))
        return AF_OK;
    const af_status st = af_dataset_info_read(p->s, p->o->dataset_dir, name, p->mem, p->err);
    if (st == AF_OK && p->o->pretraining && p->s->shape == AF_SHAPE_ALPACA) {
        p->s->shape = AF_SHAPE_TEXT; /* the first column is the text */
        p->s->field.text = p->s->field.instruction;
        p->s->cut = true;
    }
    if (st == AF_OK && p->s->shape == AF_SHAPE_TEXT)
        p->s->join = p->o->join_texts;
    return st == AF_OK
               ? AF_OK
               : af_fail_prefix(st, p->err, "%s", af_data_source_loc(at, p->o->run_path, n->line));
}

/* One entry of the list: a map, a path, or names. */
static af_status read_item(af_data_entry *p, const af_yaml *n)
{
    const int names = count_sources(p->o, n);
    if (n->kind != AF_YAML_SCALAR)
        return n->kind == AF_YAML_MAP ? read_parts(p, n) : af_data_entry_read(p, n);
    if (is_path(n->text) || !af_dataset_info_exists(p->o->dataset_dir)) {
        af_data_entry_begin(p, n);
        p->s->path = n->text;
        return AF_OK;
    }
    const char *from = n->text;
    af_status st = AF_OK;
    for (int i = 0; i < names && st == AF_OK; i++) {
        st = read_name(p, n, from);
        from += strcspn(from, ",");
        from += *from == ',';
        p->s += i + 1 < names;
    }
    return st;
}

af_status af_data_sources_read(af_data_source **out, int *count, const af_data_opts *o,
                               af_arena *mem, af_error *err)
{
    const af_yaml *list = o->datasets;
    char at[300];
    const int items = list->kind == AF_YAML_LIST ? list->count : 1;
    int n = 0;
    if (items == 0)
        return af_fail(err, AF_EUSAGE, "%s: the list of datasets is empty",
                       af_data_source_loc(at, o->run_path, list->line));
    for (int i = 0; i < items; i++)
        n += count_sources(o, list->kind == AF_YAML_LIST ? list->item[i] : list);
    af_data_source *s = af_arena_take(mem, (uint64_t)n * sizeof *s);
    if (!s)
        return af_fail_nomem(err, "datasets", 0);
    af_data_entry p = {.o = o, .mem = mem, .s = s, .err = err};
    for (int i = 0; i < items; i++, p.s++) {
        const af_status st = read_item(&p, list->kind == AF_YAML_LIST ? list->item[i] : list);
        if (st != AF_OK)
            return st;
    }
    *out = s;
    *count = n;
    return AF_OK;
}
