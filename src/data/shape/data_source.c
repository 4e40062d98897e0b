/* data_source.c - reads the entries of `datasets`, with the key names of several trainers. */
#include "data/shape/data_source.h"

#include "base/file.h"
#include "base/word.h"
#include "data/read/records.h"

#include <strings.h>

typedef enum key_kind { STRING, ROLES, EOS, BOOL, TYPE, NAMES, MAPPINGS } key_kind;

typedef struct source_key {
    const char *name;
    key_kind kind;
    size_t offset;
    unsigned shapes; /* bit set of shapes it applies to; 0 = all */
} source_key;

#define AT(member) offsetof(af_data_source, member)
#define ONLY(s)    (1u << AF_SHAPE_##s)
enum {
    PAIRS = ONLY(KTO) | ONLY(PREFERENCE),
    TURNS = ONLY(MESSAGES) | ONLY(SHAREGPT) | ONLY(PROMPT) | PAIRS, /* may be lists of them */
    CHATS = TURNS | ONLY(ALPACA),
};
static const source_key keys[] = {
    {"path", STRING, AT(path), 0},
    {"type", TYPE, AT(shape), 0},
    {"ds_type", STRING, AT(ds_type), 0},
    {"chat_template", STRING, AT(chat_template), CHATS},
    {"roles_to_train", ROLES, 0, CHATS},
    {"train_on_eos", EOS, AT(train_on_eos), CHATS},
    {"train_on_inputs", BOOL, AT(train_on_inputs), CHATS | ONLY(SEGMENTS)},
    {"roles", NAMES, 0, TURNS},
    {"message_property_mappings", MAPPINGS, 0, TURNS},
    {"message_field_role", STRING, AT(field.role), TURNS},
    {"message_field_content", STRING, AT(field.content), TURNS},
    {"message_field_training", STRING, AT(field.train), TURNS},
    {"field_messages", STRING, AT(field.messages), ONLY(MESSAGES) | ONLY(SHAREGPT) | PAIRS},
    {"field_instruction", STRING, AT(field.instruction), ONLY(ALPACA) | PAIRS},
    {"field_input", STRING, AT(field.input), ONLY(ALPACA) | PAIRS},
    {"field_output", STRING, AT(field.output), ONLY(ALPACA) | ONLY(KTO)},
    {"field_system", STRING, AT(field.system), CHATS},
    {"field_history", STRING, AT(field.history), ONLY(ALPACA) | PAIRS},
    {"field_tools", STRING, AT(field.tools), TURNS},
    {"field_prompt", STRING, AT(field.prompt), ONLY(PROMPT) | PAIRS},
    {"field_completion", STRING, AT(field.completion), ONLY(PROMPT) | ONLY(KTO)},
    {"field_chosen", STRING, AT(field.chosen), ONLY(PREFERENCE)},
    {"field_rejected", STRING, AT(field.rejected), ONLY(PREFERENCE)},
    {"field_label", STRING, AT(field.label), ONLY(KTO)},
    {"field_text", STRING, AT(field.text), ONLY(TEXT)},
    {"field", STRING, AT(field.text), ONLY(TEXT)},
    {"field_segments", STRING, AT(field.segments), ONLY(SEGMENTS)},
    {"split", STRING, AT(split), 0},
    {"name", STRING, AT(name), 0},
};

static const struct {
    const char *name;
    af_shape shape;
} types[] = {
    {"alpaca", AF_SHAPE_ALPACA},
    {"sharegpt", AF_SHAPE_SHAREGPT},
    {"messages", AF_SHAPE_MESSAGES},
    {"prompt_completion", AF_SHAPE_PROMPT},
    {"text", AF_SHAPE_TEXT},
    {"preference", AF_SHAPE_PREFERENCE},
    {"kto", AF_SHAPE_KTO},
    {"input_output", AF_SHAPE_SEGMENTS},
    {"tokens", AF_SHAPE_TOKENS},
    /* other spellings, after the names that messages use */
    {"auto", AF_SHAPE_AUTO},
    {"chat_template", AF_SHAPE_AUTO}, /* axolotl: any list of turns */
    {"openai", AF_SHAPE_MESSAGES},
    {"chatml", AF_SHAPE_MESSAGES},
    {"completion", AF_SHAPE_TEXT},
    {"pretrain", AF_SHAPE_TEXT},
    {"dpo", AF_SHAPE_PREFERENCE},
    {"orpo", AF_SHAPE_PREFERENCE},
    {"segments", AF_SHAPE_SEGMENTS},
    {"tokenized", AF_SHAPE_TOKENS},
};

const char *af_data_source_key(int i)
{
    return i >= 0 && (size_t)i < AF_LEN(keys) ? keys[i].name : NULL;
}

const char *af_data_source_type(int i)
{
    return i >= 0 && (size_t)i < AF_LEN(types) ? types[i].name : NULL;
}

const char *af_shape_name(af_shape s)
{
    for (size_t i = 0; i < AF_LEN(types); i++)
        if (types[i].shape == s)
            return types[i].name;
    return "unknown";
}

static const af_fields usual = {
    .messages = "messages",
    .conversations = "conversations",
    .role = "role",
    .content = "content",
    .from = "from",
    .value = "value",
    .instruction = "instruction",
    .input = "input",
    .output = "output",
    .system = "system",
    .history = "history",
    .tools = "tools",
    .prompt = "prompt",
    .completion = "completion",
    .chosen = "chosen",
    .rejected = "rejected",
    .label = "label",
    .text = "text",
    .segments = "segments",
    .train = "train",
    .input_ids = "input_ids",
    .labels = "labels",
};

/* A value that asks for what is done anyway. */
static bool asks_nothing(const af_data_source *s, const source_key *k, af_shape shape)
{
    if (k->kind == BOOL)
        return !s->train_on_inputs;
    const bool end = s->train_on_eos == AF_TRAIN_EOS_ALL || s->train_on_eos == AF_TRAIN_EOS_LAST;
    return k->kind == EOS && (shape == AF_SHAPE_TEXT ? !end : s->train_on_eos == AF_TRAIN_EOS_TURN);
}

const char *af_data_source_idle_key(const af_data_source *s, af_shape shape)
{
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const bool applies = keys[i].shapes == 0 || keys[i].shapes & 1u << shape;
        if (s->set_keys >> i & 1 && !applies && !asks_nothing(s, &keys[i], shape))
            return keys[i].name;
    }
    return NULL;
}

typedef struct parse {
    const af_data_opts *o;
    af_arena *mem;
    af_data_source *s;
    af_error *err;
} parse;

/* "run.yaml:12"; what the command line gives has no line. */
static const char *run_file_loc(char buf[300], const char *run_path, int line)
{
    if (line > 0)
        snprintf(buf, 300, "%s:%d", run_path, line);
    else
        snprintf(buf, 300, "command line");
    return buf;
}

static af_status unknown_key(const parse *p, const char *name, int line)
{
    const char *known[AF_LEN(keys) + 1] = {0};
    char at[300];
    for (size_t i = 0; i < AF_LEN(keys); i++)
        known[i] = keys[i].name;
    const char *near = af_word_nearest(name, known);
    if (strcmp(name, "data_files") == 0)
        return af_fail(p->err, AF_EUSAGE,
                       "%s: unknown key '%s' of a dataset; give each file as a "
                       "'path'",
                       run_file_loc(at, p->o->run_path, line), name);
    return af_fail(p->err, AF_EUSAGE, "%s: unknown key '%s' of a dataset%s%s%s",
                   run_file_loc(at, p->o->run_path, line), name, near ? "; did you mean '" : "",
                   near ? near : "", near ? "'?" : "");
}

static af_status wants(const parse *p, const char *name, const af_yaml *n, const char *what)
{
    char show[80], at[300];
    return af_fail(p->err, AF_EUSAGE, "%s: %s of a dataset wants %s, not %s",
                   run_file_loc(at, p->o->run_path, n->line), name, what,
                   af_yaml_show(n, show, sizeof show));
}

static af_status set_type(const parse *p, const af_yaml *n)
{
    if (n->kind != AF_YAML_SCALAR)
        return wants(p, "type", n,
                     "one word; field names are keys of the entry (field_prompt, ...)");
    /* "alpaca:chat", "chat_template.default": the suffix selects a prompt style of that trainer */
    const size_t len = strcspn(n->text, ".:");
    for (size_t i = 0; i < AF_LEN(types); i++) {
        if (strlen(types[i].name) == len && strncasecmp(types[i].name, n->text, len) == 0) {
            p->s->shape = types[i].shape;
            p->s->shape_given = types[i].shape != AF_SHAPE_AUTO;
            return AF_OK;
        }
    }
    char list[300] = "", at[300];
    size_t used = 0;
    for (int s = AF_SHAPE_ALPACA; s <= AF_SHAPE_TOKENS && used < sizeof list; s++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                 af_shape_name((af_shape)s));
    return af_fail(p->err, AF_EUSAGE, "%s: type is '%s', not one of: %s",
                   run_file_loc(at, p->o->run_path, n->line), n->text, list);
}

static af_status set_roles(const parse *p, const af_yaml *n)
{
    const int count = n->kind == AF_YAML_LIST ? n->count : 1;
    const char **item = af_arena_take(p->mem, (uint64_t)AF_MAX(count, 1) * sizeof *item);
    if (!item)
        return af_fail_nomem(p->err, "roles_to_train", 0);
    for (int i = 0; i < count; i++) {
        const af_yaml *e = n->kind == AF_YAML_LIST ? n->item[i] : n;
        if (e->kind != AF_YAML_SCALAR)
            return wants(p, "roles_to_train", e, "a list of words");
        item[i] = e->text;
    }
    p->s->roles = item;
    p->s->role_count = count;
    return AF_OK;
}

static af_status set_eos(const parse *p, const af_yaml *n)
{
    static const char *const names[] = {"turn", "all", "last", "none"};
    for (int i = 0; n->kind == AF_YAML_SCALAR && i < (int)AF_LEN(names); i++)
        if (strcasecmp(n->text, names[i]) == 0) {
            p->s->train_on_eos = (af_train_eos)i;
            return AF_OK;
        }
    return wants(p, "train_on_eos", n, "turn, all, last or none");
}

/* roles: {user: [human, user], assistant: gpt} */
static af_status set_names(const parse *p, const af_yaml *n)
{
    if (n->kind != AF_YAML_MAP)
        return wants(p, "roles", n, "a map of lists");
    int count = 0;
    for (int i = 0; i < n->count; i++)
        count += n->item[i]->kind == AF_YAML_LIST ? n->item[i]->count : 1;
    af_role_name *names = af_arena_take(p->mem, (uint64_t)AF_MAX(count, 1) * sizeof *names);
    if (!names)
        return af_fail_nomem(p->err, "roles", 0);
    int at = 0;
    for (int i = 0; i < n->count; i++) {
        const af_yaml *v = n->item[i];
        for (int k = 0; k < (v->kind == AF_YAML_LIST ? v->count : 1); k++) {
            const af_yaml *e = v->kind == AF_YAML_LIST ? v->item[k] : v;
            if (e->kind != AF_YAML_SCALAR)
                return wants(p, "roles", e, "a map of lists of words");
            names[at++] = (af_role_name){e->text, n->key[i]};
        }
    }
    p->s->role_names = names;
    p->s->role_name_count = at;
    return AF_OK;
}

static af_status set_mappings(const parse *p, const af_yaml *n)
{
    if (n->kind != AF_YAML_MAP)
        return wants(p, "message_property_mappings", n, "a map");
    char at[300];
    for (int i = 0; i < n->count; i++) {
        const af_yaml *v = n->item[i];
        if (v->kind != AF_YAML_SCALAR)
            return wants(p, "message_property_mappings", v, "field names");
        if (strcmp(n->key[i], "role") == 0)
            p->s->field.role = p->s->field.from = v->text;
        else if (strcmp(n->key[i], "content") == 0)
            p->s->field.content = p->s->field.value = v->text;
        else if (strcmp(n->key[i], v->text) != 0)
            return af_fail(p->err, AF_EUSAGE,
                           "%s: message_property_mappings can name role and content, not '%s'",
                           run_file_loc(at, p->o->run_path, n->key_line[i]), n->key[i]);
    }
    return AF_OK;
}

static af_status set_key(const parse *p, const source_key *k, const af_yaml *n)
{
    void *at = (char *)p->s + k->offset;
    switch (k->kind) {
    case STRING:
        if (n->kind != AF_YAML_SCALAR)
            return wants(p, k->name, n, "one value");
        *(const char **)at = n->text;
        if (k->offset == AT(field.role))
            p->s->field.from = n->text;
        if (k->offset == AT(field.content))
            p->s->field.value = n->text;
        if (k->offset == AT(field.messages))
            p->s->field.conversations = n->text;
        return AF_OK;
    case ROLES:
        return set_roles(p, n);
    case EOS:
        return set_eos(p, n);
    case BOOL:
        return af_yaml_bool(n, at) ? AF_OK : wants(p, k->name, n, "true or false");
    case TYPE:
        return set_type(p, n);
    case NAMES:
        return set_names(p, n);
    case MAPPINGS:
        return set_mappings(p, n);
    }
    return AF_OK;
}

static af_status read_entry(const parse *p, const af_yaml *n)
{
    char at[300];
    *p->s = (af_data_source){
        .line = n->line,
        .field = usual,
        .roles = p->o->roles,
        .role_count = p->o->role_count,
        .train_on_eos = p->o->train_on_eos,
        .train_on_inputs = p->o->train_on_inputs,
    };
    if (n->kind == AF_YAML_SCALAR) {
        p->s->path = n->text;
        return AF_OK;
    }
    if (n->kind != AF_YAML_MAP)
        return wants(p, "an entry", n, "a map with a path");
    for (int i = 0; i < n->count; i++) {
        const source_key *k = NULL;
        for (size_t j = 0; j < AF_LEN(keys) && !k; j++)
            k = strcmp(keys[j].name, n->key[i]) == 0 ? &keys[j] : NULL;
        if (!k)
            return unknown_key(p, n->key[i], n->key_line[i]);
        if (af_yaml_is_null(n->item[i]))
            continue;
        const af_status st = set_key(p, k, n->item[i]);
        if (st != AF_OK)
            return st;
        p->s->set_keys |= UINT64_C(1) << (k - keys);
    }
    if (!p->s->path || !*p->s->path)
        return af_fail(p->err, AF_EUSAGE, "%s: a dataset has no path",
                       run_file_loc(at, p->o->run_path, n->line));
    return AF_OK;
}

af_status af_data_sources_read(af_data_source **out, int *count, const af_data_opts *o,
                               af_arena *mem, af_error *err)
{
    const af_yaml *list = o->datasets;
    char at[300];
    const int n = list->kind == AF_YAML_LIST ? list->count : 1;
    if (n == 0)
        return af_fail(err, AF_EUSAGE, "%s: the list of datasets is empty",
                       run_file_loc(at, o->run_path, list->line));
    af_data_source *s = af_arena_take(mem, (uint64_t)n * sizeof *s);
    if (!s)
        return af_fail_nomem(err, "datasets", 0);
    for (int i = 0; i < n; i++) {
        const parse p = {o, mem, &s[i], err};
        const af_status st = read_entry(&p, list->kind == AF_YAML_LIST ? list->item[i] : list);
        if (st != AF_OK)
            return st;
    }
    *out = s;
    *count = n;
    return AF_OK;
}

static bool in_split(const char *name, const char *split)
{
    const size_t n = split ? strlen(split) : 0;
    return !split || (strncmp(name, split, n) == 0 && strchr(".-_", name[n]) && name[n]);
}

/* Files next to the data of a published dataset that are not data. */
static bool is_about(const char *name)
{
    static const char *const names[] = {"readme",   "license",      "licence",      "notice",
                                        "citation", "dataset_info", "dataset_infos"};
    for (size_t i = 0; i < AF_LEN(names); i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(name, names[i], n) == 0 && (!name[n] || name[n] == '.'))
            return true;
    }
    return false;
}

static bool is_text(const char *name)
{
    af_records_kind kind;
    return af_records_kind_of(&kind, name, NULL, NULL) == AF_OK && kind == AF_RECORDS_TEXT;
}

/* Among other texts, a text is one of them. */
static bool is_about_no_text(const char *name) { return is_about(name) && !is_text(name); }

static bool is_held_out(const char *name)
{
    static const char *const splits[] = {"test", "testing", "eval",  "evaluation",
                                         "dev",  "val",     "valid", "validation"};
    for (size_t i = 0; i < AF_LEN(splits); i++)
        if (in_split(name, splits[i]))
            return true;
    return false;
}

/* Drops files by their name, unless none would be left. Returns how many stay. */
static int drop_named(char **files, int count, bool (*drop)(const char *))
{
    int left = 0, kept = 0;
    for (int i = 0; i < count; i++)
        left += !drop(af_path_name(files[i]));
    if (left == 0)
        return count;
    for (int i = 0; i < count; i++) {
        char *path = files[i];
        files[i] = NULL;
        if (drop(af_path_name(path)))
            free(path);
        else
            files[kept++] = path;
    }
    return kept;
}

static af_status folder_files(const af_data_source *s, const char *folder, const char *run_path,
                              char ***files, int *count, int *held_out, af_error *err)
{
    char **names = NULL;
    char at[300];
    int n = 0, kept = 0;
    af_status st = af_dir_list(&names, &n, folder, err);
    for (int i = 0; st == AF_OK && i < n; i++) {
        char *path = af_path_join(folder, names[i]);
        if (!path) {
            st = af_fail_nomem(err, folder, 0);
            break;
        }
        const bool file =
            names[i][0] != '.' && in_split(names[i], s->split) && af_file_exists(path);
        free(names[i]);
        names[i] = NULL;
        if (file)
            names[kept++] = path;
        else
            free(path);
    }
    if (st == AF_OK && !s->split) {       /* as the Hugging Face loaders: then it is `train` */
        bool rows = false, train = false; /* neither is seen in what is about the data */
        for (int i = 0; i < kept; i++) {
            const char *name = af_path_name(names[i]);
            rows |= !is_about(name) && !is_text(name);
            train |= !is_about(name) && !is_held_out(name);
        }
        const int data = drop_named(names, kept, rows ? is_about : is_about_no_text);
        kept = train ? drop_named(names, data, is_held_out) : data;
        *held_out = data - kept;
    }
    if (st == AF_OK && kept == 0)
        st = af_fail(err, AF_EUSAGE, "%s: %s has no files%s%s", run_file_loc(at, run_path, s->line),
                     folder, s->split ? " of split " : "", s->split ? s->split : "");
    if (st != AF_OK) {
        af_names_free(names, n);
        return st;
    }
    *files = names;
    *count = kept;
    return AF_OK;
}

af_status af_data_source_files(const af_data_source *s, const char *run_path, char ***files,
                               int *count, int *held_out, af_error *err)
{
    *held_out = 0;
    char at[300];
    if (af_dir_exists(s->path)) {
        char *folder = s->name ? af_path_join(s->path, s->name) : af_strdup(s->path);
        if (!folder)
            return af_fail_nomem(err, s->path, 0);
        const af_status st = af_dir_exists(folder)
                                 ? folder_files(s, folder, run_path, files, count, held_out, err)
                                 : af_fail(err, AF_EUSAGE, "%s: dataset %s has no folder '%s'",
                                           run_file_loc(at, run_path, s->line), s->path, s->name);
        free(folder);
        return st;
    }
    const bool other = s->split && strcmp(s->split, "train") != 0; /* a file is all "train" */
    if (af_file_exists(s->path) && (s->name || other))
        return af_fail(err, AF_EUSAGE, "%s: '%s: %s' has no effect: %s is a file, not a folder",
                       run_file_loc(at, run_path, s->line), other ? "split" : "name",
                       other ? s->split : s->name, s->path);
    if (!af_file_exists(s->path))
        return af_fail(err, AF_EUSAGE,
                       "%s: dataset %s is not there (a file or a folder of this machine is wanted)",
                       run_file_loc(at, run_path, s->line), s->path);
    char **one = af_calloc(1, sizeof *one);
    if (one)
        one[0] = af_strdup(s->path);
    if (!one || !one[0]) {
        free(one);
        return af_fail_nomem(err, s->path, 0);
    }
    *files = one;
    *count = 1;
    return AF_OK;
}
