/* entry_keys.c - keys of a dataset that are unknown, and rarer ones of other trainers. */
#include "data/shape/data_entry.h"

#include "base/word.h"

#include <inttypes.h>

/* Keys of other trainers that would change what is learnt. */
static const char *unsupported(const char *name)
{
    static const char *const advice[][2] = {
        {"message_field_training_detail", "mark whole messages with 'message_field_training'"},
        {"input_transform", "write the records as they are to be read"},
        {"logprobs_field", "name the teacher with 'teacher_model'"},
        {"data_dir", "name the folder in 'path', or a folder inside it in 'name'"},
    };
    for (size_t i = 0; i < AF_LEN(advice); i++)
        if (strcmp(advice[i][0], name) == 0)
            return advice[i][1];
    return NULL;
}

af_status af_data_entry_unknown(const af_data_entry *p, const char *name, const af_yaml *n,
                                int line)
{
    enum { KEYS_MAX = 64 }; /* see data_source.c */
    const char *known[KEYS_MAX + 1] = {0};
    char at[300];
    for (int i = 0; af_data_source_key(i); i++)
        known[i] = af_data_source_key(i);
    const char *near = af_word_nearest(name, known), *advice = unsupported(name);
    bool on = true;
    int64_t v = 1;
    const bool off = (af_yaml_bool(n, &on) && !on) || (af_yaml_i64(n, &v) && v == 0);
    const bool custom = strcmp(name, "format") == 0 && n->kind == AF_YAML_SCALAR &&
                        strcmp(n->text, "custom") == 0; /* next to a `type` of the user's own */
    if (af_yaml_is_null(n) || custom || (advice && off))
        return AF_OK; /* it asks for nothing */
    af_data_source_loc(at, p->o->run_path, line);
    if (advice)
        return af_fail(p->err, AF_EUSAGE, "%s: '%s' of a dataset is not supported: %s", at, name,
                       advice);
    return af_fail(p->err, AF_EUSAGE, "%s: unknown key '%s' of a dataset%s%s%s", at, name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* skip: N, of a streamed dataset in Axolotl: all but its first N records. */
af_status af_data_entry_skip(const af_data_entry *p, const af_yaml *n)
{
    char at[300];
    int64_t count = 0;
    if (!af_yaml_i64(n, &count) || count < 0)
        return af_fail(p->err, AF_EUSAGE, "%s: skip of a dataset wants a number of records",
                       af_data_source_loc(at, p->o->run_path, n->line));
    if (count && p->s->slice.given)
        return af_fail(p->err, AF_EUSAGE, "%s: skip of a dataset and a slice in 'split': give one",
                       af_data_source_loc(at, p->o->run_path, n->line));
    if (count) {
        p->s->slice =
            (af_data_slice){.given = true, .skips = true, .has_from = true, .from = count};
        p->s->split_line = n->line;
    }
    return AF_OK;
}

/* field_human, field_model of an older Axolotl: what the role of such messages is called. */
af_status af_data_entry_speaker(const af_data_entry *p, const char *key, const af_yaml *n)
{
    af_data_source *s = p->s;
    char at[300];
    if (n->kind != AF_YAML_SCALAR)
        return af_fail(p->err, AF_EUSAGE, "%s: %s of a dataset wants the name of a role",
                       af_data_source_loc(at, p->o->run_path, n->line), key);
    af_role_name *names = af_arena_take(p->mem, (uint64_t)(s->role_name_count + 1) * sizeof *names);
    if (!names)
        return af_fail_nomem(p->err, key, sizeof *names);
    for (int i = 0; i < s->role_name_count; i++)
        names[i] = s->role_names[i];
    names[s->role_name_count++] =
        (af_role_name){n->text, strcmp(key, "field_human") == 0 ? "user" : "assistant"};
    s->role_names = names;
    return AF_OK;
}

/* ignore_fields: a name, or a list of names. */
af_status af_data_entry_ignore(const af_data_entry *p, const af_yaml *n)
{
    const int count = n->kind == AF_YAML_LIST ? n->count : 1;
    const char **name = af_arena_take(p->mem, (uint64_t)AF_MAX(count, 1) * sizeof *name);
    char at[300];
    if (!name)
        return af_fail_nomem(p->err, "ignore_fields", (uint64_t)count * sizeof *name);
    for (int i = 0; i < count; i++) {
        const af_yaml *e = n->kind == AF_YAML_LIST ? n->item[i] : n;
        if (e->kind != AF_YAML_SCALAR)
            return af_fail(p->err, AF_EUSAGE,
                           "%s: ignore_fields of a dataset wants a list of names",
                           af_data_source_loc(at, p->o->run_path, n->line));
        name[i] = e->text;
    }
    p->s->ignored = name;
    p->s->ignored_count = count;
    return AF_OK;
}
