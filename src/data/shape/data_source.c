/* data_source.c - reads the entries of `datasets`, with the key names of several trainers. */
#include "data/shape/data_entry.h"

#include "base/word.h"

#include <strings.h>

typedef enum key_kind {
    STRING,
    ROLES,
    EOS,
    BOOL,
    TYPE,
    NAMES,
    MAPPINGS,
    SPLIT,
    FILES,
    COUNT,
    SHARE,
    STYLE, /* a template by FastChat's name for it */
    JINJA, /* the text of a template, or its file */
    WHO,   /* one text, or two: in Chinese and in English */
    SKIP,  /* records at the front */
    NAMED, /* a name of one role */
    WORDS, /* names of fields */
    IDLE,  /* asks for nothing that changes what is read */
} key_kind;

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
    TURNS = ONLY(MESSAGES) | ONLY(SHAREGPT) | ONLY(PROMPT) | PAIRS |
            ONLY(CLASSES), /* may be lists of them */
    CHATS = TURNS | ONLY(ALPACA),
};
static const source_key keys[] = {
    {"path", STRING, AT(path), 0},
    {"type", TYPE, AT(shape), 0},
    {"ds_type", STRING, AT(ds_type), 0},
    {"chat_template", STRING, AT(chat_template), CHATS},
    {"chat_template_jinja", JINJA, 0, CHATS},
    {"roles_to_train", ROLES, 0, CHATS},
    {"train_on_eos", EOS, AT(train_on_eos), CHATS},
    {"train_on_eot", EOS, AT(train_on_eos), CHATS},
    {"train_on_inputs", BOOL, AT(train_on_inputs), CHATS | ONLY(SEGMENTS)},
    {"roles", NAMES, 0, TURNS},
    {"message_property_mappings", MAPPINGS, 0, TURNS},
    {"message_field_role", STRING, AT(field.role), TURNS},
    {"message_field_content", STRING, AT(field.content), TURNS},
    {"message_field_training", STRING, AT(field.train), TURNS},
    {"field_messages", STRING, AT(field.messages),
     ONLY(MESSAGES) | ONLY(SHAREGPT) | PAIRS | ONLY(CLASSES)},
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
    {"field_label", STRING, AT(field.label), ONLY(KTO) | ONLY(CLASSES)},
    {"field_text", STRING, AT(field.text), ONLY(TEXT) | ONLY(CLASSES)},
    {"field", STRING, AT(field.text), ONLY(TEXT)},
    {"field_segments", STRING, AT(field.segments), ONLY(SEGMENTS)},
    {"split", SPLIT, 0, 0},
    {"train_on_split", SPLIT, 0, 0}, /* an older name */
    {"name", STRING, AT(name), 0},
    {"data_files", FILES, 0, 0},
    {"max_samples", COUNT, AT(max_samples), 0},
    {"num_samples", COUNT, AT(num_samples), 0},
    {"shards", COUNT, AT(shards), 0},
    {"shards_idx", COUNT, AT(shard), 0},
    {"weight", SHARE, AT(weight), 0},
    {"first_share", SHARE, AT(first_share), 0},
    {"fraction", SHARE, AT(fraction), 0},
    {"seed", COUNT, AT(seed), 0},
    {"drop_system_message", BOOL, AT(drop_system), TURNS},
    {"split_thinking", BOOL, AT(split_thinking), TURNS},
    {"field_thinking", STRING, AT(thinking), TURNS},
    {"template_thinking_key", STRING, AT(thinking_key), TURNS},
    {"text_column", STRING, AT(field.text), ONLY(TEXT)},
    {"trust_remote_code", IDLE, 0, 0},
    {"revision", STRING, AT(revision), 0},
    {"preprocess_shards", IDLE, 0, 0},
    {"columns", IDLE, 0, 0}, /* TRL's: fields that nothing names are not read anyway */
    {"conversation", STYLE, 0, 0},
    {"strict", IDLE, 0, 0}, /* of an older Axolotl: whether a bad conversation ends the run */
    {"field_human", NAMED, 0, TURNS},
    {"field_model", NAMED, 0, TURNS},
    {"skip", SKIP, 0, 0},
    {"model_name", WHO, AT(model_name), ONLY(ALPACA)},
    {"model_author", WHO, AT(model_author), ONLY(ALPACA)},
    {"ignore_fields", WORDS, 0, 0},
};
_Static_assert(AF_LEN(keys) <= 64, "set_keys has one bit per key");

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
    {"classification", AF_SHAPE_CLASSES},
    /* other spellings, after the names that messages use */
    {"auto", AF_SHAPE_AUTO},
    {"chat_template", AF_SHAPE_AUTO}, /* axolotl: any list of turns */
    {"openai", AF_SHAPE_MESSAGES},
    {"chatml", AF_SHAPE_MESSAGES},
    {"completion", AF_SHAPE_TEXT},
    {"pretrain", AF_SHAPE_TEXT},
    {"sharegpt_simple", AF_SHAPE_SHAREGPT},
    {"dpo", AF_SHAPE_PREFERENCE},
    {"orpo", AF_SHAPE_PREFERENCE},
    {"bradley_terry", AF_SHAPE_AUTO},
    {"llama3", AF_SHAPE_AUTO},
    {"zephyr", AF_SHAPE_AUTO},
    {"segments", AF_SHAPE_SEGMENTS},
    {"self_cognition", AF_SHAPE_ALPACA},
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
        return !*(const bool *)((const char *)s + k->offset);
    const bool end = s->train_on_eos == AF_TRAIN_EOS_ALL || s->train_on_eos == AF_TRAIN_EOS_LAST;
    return k->kind == EOS && (shape == AF_SHAPE_TEXT ? !end : s->train_on_eos == AF_TRAIN_EOS_TURN);
}

static bool is_system(size_t i) { return keys[i].offset == AT(field.system); }

const char *af_data_source_idle_key(const af_data_source *s, af_shape shape)
{
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const bool chat_only = keys[i].shapes == CHATS && keys[i].kind != BOOL && !is_system(i);
        const bool fixed = s->prompt && !s->prompt->chat && !s->prompt->either;
        const bool applies =
            keys[i].shapes == 0 || (keys[i].shapes & 1u << shape && !(fixed && chat_only));
        if (s->set_keys >> i & 1 && !applies && !asks_nothing(s, &keys[i], shape))
            return keys[i].name;
    }
    return NULL;
}

typedef af_data_entry parse;

static af_status wants(const parse *p, const char *name, const af_yaml *n, const char *what)
{
    char show[80], at[300];
    return af_fail(p->err, AF_EUSAGE, "%s: %s of a dataset wants %s, not %s",
                   af_data_source_loc(at, p->o->run_path, n->line), name, what,
                   af_yaml_show(n, show, sizeof show));
}

/* The names of its fields are those of the prompt, unless the entry says otherwise. */
static void use_prompt(const parse *p, const af_prompt *prompt)
{
    af_data_source *s = p->s;
    s->prompt = prompt;
    s->shape = AF_SHAPE_ALPACA;
    s->shape_given = true;
    const struct {
        const char *name;
        const char **field;
    } names[] = {{prompt->instruction, &s->field.instruction},
                 {prompt->input, &s->field.input},
                 {prompt->output, &s->field.output},
                 {prompt->system_field, &s->field.system}};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (names[i].name)
            *names[i].field = names[i].name;
}

/* type: {format: ..., field_instruction: ...}: a prompt of the user's own. */
static af_status set_own_prompt(const parse *p, const af_yaml *n)
{
    af_prompt *own = af_arena_take(p->mem, sizeof *own);
    char at[300];
    if (!own)
        return af_fail_nomem(p->err, "type", sizeof *own);
    *own = (af_prompt){.type = "alpaca",
                       .system = "{system}",
                       .turn = "{instruction} {input} ",
                       .turn_no_input = "{instruction} ",
                       .maybe_output = true};
    const struct {
        const char *key;
        const char **to;
    } parts[] = {
        {"format", &own->turn},
        {"no_input_format", &own->turn_no_input},
        {"system_format", &own->system},
        {"system_prompt", &own->system_text},
        {"field_system", &own->system_field},
        {"field_instruction", &own->instruction},
        {"field_input", &own->input},
        {"field_output", &own->output},
        {"field", NULL},
    };
    const char *text = NULL;
    for (int i = 0; i < n->count; i++) {
        size_t k = 0;
        while (k < AF_LEN(parts) && strcmp(parts[k].key, n->key[i]) != 0)
            k++;
        if (k == AF_LEN(parts))
            return af_fail(p->err, AF_EUSAGE,
                           "%s: unknown key '%s' of a prompt (field_instruction, field_input, "
                           "field_output, field_system, system_prompt, format, no_input_format, "
                           "system_format, field)",
                           af_data_source_loc(at, p->o->run_path, n->key_line[i]), n->key[i]);
        if (af_yaml_is_null(n->item[i]) && !n->item[i]->quoted)
            continue;
        if (n->item[i]->kind != AF_YAML_SCALAR)
            return wants(p, n->key[i], n->item[i], "one value");
        *(parts[k].to ? parts[k].to : &text) = n->item[i]->text;
    }
    if (text) { /* the text of one field, nothing else */
        p->s->field.text = text;
        p->s->shape = AF_SHAPE_TEXT;
        p->s->shape_given = p->s->cut = true;
        return AF_OK;
    }
    use_prompt(p, own);
    return AF_OK;
}

/* "preference.x", "chat_template.default": what follows the dot names a form of that trainer. */
static bool set_shape(const parse *p, const char *type)
{
    const size_t len = strcspn(type, ".:");
    for (size_t i = 0; i < AF_LEN(types); i++) {
        if (strlen(types[i].name) != len || strncasecmp(types[i].name, type, len) != 0)
            continue;
        p->s->shape = types[i].shape;
        p->s->shape_given = types[i].shape != AF_SHAPE_AUTO;
        if (type[len] == '.' && (p->s->shape == AF_SHAPE_AUTO || p->s->shape == AF_SHAPE_MESSAGES))
            p->s->shape_given = !(p->s->pairs = true); /* of its preference types */
        if (strcmp(types[i].name, "self_cognition") == 0)
            return af_self_cognition_set(p->s, type);
        p->s->cut = strcasecmp(types[i].name, "completion") == 0 ||
                    strcasecmp(types[i].name, "pretrain") == 0;
        return true;
    }
    return false;
}

static af_status set_type(const parse *p, const af_yaml *n)
{
    bool taken;
    const af_status st = af_pair_type_set(p, n, &taken);
    if (taken || st != AF_OK)
        return st;
    if (n->kind == AF_YAML_MAP)
        return set_own_prompt(p, n);
    if (n->kind != AF_YAML_SCALAR)
        return wants(p, "type", n,
                     "one word; field names are keys of the entry (field_prompt, ...)");
    const af_prompt *prompt = af_prompt_find(n->text);
    if (prompt)
        use_prompt(p, prompt);
    if (prompt || set_shape(p, n->text))
        return AF_OK;
    char list[300] = "", at[300];
    size_t used = 0;
    for (int s = AF_SHAPE_ALPACA; s <= AF_SHAPE_TOKENS && used < sizeof list; s++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                 af_shape_name((af_shape)s));
    return af_fail(p->err, AF_EUSAGE,
                   "%s: type '%s' is not supported; it is one of: %s, or a prompt of "
                   "Axolotl's (alpaca:chat, jeopardy, ...: see the guide)",
                   af_data_source_loc(at, p->o->run_path, n->line), n->text, list);
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
    const af_train_eos before = p->s->train_on_eos;
    char at[300];
    int given = 0, i = 0;
    for (size_t k = 0; k < AF_LEN(keys); k++)
        given += keys[k].kind == EOS && p->s->set_keys >> k & 1;
    while (n->kind == AF_YAML_SCALAR && i < (int)AF_LEN(names) && strcasecmp(n->text, names[i]))
        i++;
    if (n->kind != AF_YAML_SCALAR || i == (int)AF_LEN(names))
        return wants(p, "train_on_eos", n, "turn, all, last or none");
    p->s->train_on_eos = (af_train_eos)i;
    return given < 2 || p->s->train_on_eos == before
               ? AF_OK
               : af_fail(p->err, AF_EUSAGE,
                         "%s: a train_on_eot other than train_on_eos is not supported: give one",
                         af_data_source_loc(at, p->o->run_path, n->line));
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
    int count = 0;
    af_role_name *names = af_arena_take(p->mem, (uint64_t)AF_MAX(n->count, 1) * sizeof *names);
    if (!names)
        return af_fail_nomem(p->err, "message_property_mappings", 0);
    for (int i = 0; i < n->count; i++) {
        const af_yaml *v = n->item[i];
        if (v->kind != AF_YAML_SCALAR)
            return wants(p, "message_property_mappings", v, "field names");
        if (strcmp(n->key[i], "role") == 0)
            p->s->field.role = p->s->field.from = v->text;
        else if (strcmp(n->key[i], "content") == 0)
            p->s->field.content = p->s->field.value = v->text;
        else if (strcmp(n->key[i], v->text) != 0)
            names[count++] = (af_role_name){v->text, n->key[i]};
    }
    p->s->property_names = names;
    p->s->property_name_count = count;
    return AF_OK;
}

static af_status set_split(const parse *p, const af_yaml *n)
{
    char at[300];
    if (n->kind != AF_YAML_SCALAR)
        return wants(p, "split", n, "one value");
    p->s->split_line = n->line;
    const char *part = n->text;
    for (int i = 0; i < p->part && *part; i++)
        part += strcspn(part, "+") + (strchr(part, '+') != NULL);
    part += strspn(part, " ");
    size_t len = strcspn(part, "+");
    while (len && part[len - 1] == ' ')
        len--;
    part = af_arena_strndup(p->mem, part, len);
    if (!part)
        return af_fail_nomem(p->err, "split", len);
    if (af_data_slice_read(&p->s->split, &p->s->slice, part, p->mem))
        return AF_OK;
    return af_fail(p->err, AF_EUSAGE,
                   "%s: split '%s' is not supported: write train, train[:20%%], train[100:200], "
                   "train+test",
                   af_data_source_loc(at, p->o->run_path, n->line), n->text);
}

static af_status set_files(const parse *p, const af_yaml *n)
{
    const af_yaml *list = n;
    if (n->kind == AF_YAML_MAP) /* by split */
        list = n->count == 1 ? n->item[0] : af_yaml_get(n, p->s->split ? p->s->split : "train");
    if (!list)
        return wants(p, "data_files", n, "files of the split");
    const int count = list->kind == AF_YAML_LIST ? list->count : 1;
    const char **item = af_arena_take(p->mem, (uint64_t)AF_MAX(count, 1) * sizeof *item);
    if (!item)
        return af_fail_nomem(p->err, "data_files", 0);
    for (int i = 0; i < count; i++) {
        const af_yaml *e = list->kind == AF_YAML_LIST ? list->item[i] : list;
        if (e->kind != AF_YAML_SCALAR)
            return wants(p, "data_files", e, "a list of files");
        item[i] = e->text;
    }
    p->s->data_files = item;
    p->s->data_file_count = count;
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
        if (k->offset == AT(field.chosen) || k->offset == AT(field.rejected))
            p->s->pairs = true;
        return AF_OK;
    case ROLES:
        return set_roles(p, n);
    case EOS:
        return set_eos(p, n);
    case BOOL:
        if (k->offset == AT(train_on_inputs))
            p->s->completion_apart = false;
        return af_yaml_bool(n, at) ? AF_OK : wants(p, k->name, n, "true or false");
    case TYPE:
        return set_type(p, n);
    case NAMES:
        return set_names(p, n);
    case MAPPINGS:
        return set_mappings(p, n);
    case SPLIT:
        return set_split(p, n);
    case FILES:
        return set_files(p, n);
    case COUNT:
        return af_yaml_i64(n, at) && *(int64_t *)at >= 0 ? AF_OK
                                                         : wants(p, k->name, n, "a whole number");
    case SHARE:
        return af_yaml_f64(n, at) && *(double *)at > 0 && *(double *)at <= 1000
                   ? AF_OK
                   : wants(p, k->name, n, "a share above 0");
    case STYLE:
    case JINJA:
        if (n->kind != AF_YAML_SCALAR)
            return wants(p, k->name, n, "one value");
        return k->kind == STYLE ? af_data_entry_style(p, n) : af_data_entry_jinja(p, n);
    case WHO:
        return af_self_cognition_who(p, k->name, at, n);
    case SKIP:
        return af_data_entry_skip(p, n);
    case NAMED:
        return af_data_entry_speaker(p, k->name, n);
    case WORDS:
        return af_data_entry_ignore(p, n);
    case IDLE:
        break;
    }
    return AF_OK;
}

/* A type names the fields, and other keys name them anew; files may depend on the split, a template
 * on the key that asks for it, names of a role and records to skip on those that are given. */
static int pass_of(key_kind k) { return k == TYPE ? 0 : k >= STYLE || k == FILES ? 2 : 1; }

static af_status read_pair(const parse *p, const af_yaml *n, int i, int pass)
{
    const source_key *k = NULL;
    for (size_t j = 0; j < AF_LEN(keys) && !k; j++)
        k = strcmp(keys[j].name, n->key[i]) == 0 ? &keys[j] : NULL;
    if (!k)
        return af_data_entry_unknown(p, n->key[i], n->item[i], n->key_line[i]);
    if (af_yaml_is_null(n->item[i]) || pass_of(k->kind) != pass)
        return AF_OK;
    p->s->set_keys |= UINT64_C(1) << (k - keys);
    return set_key(p, k, n->item[i]);
}

void af_data_entry_begin(const parse *p, const af_yaml *n)
{
    *p->s = (af_data_source){
        .line = n->line,
        .field = usual,
        .roles = p->o->roles,
        .role_count = p->o->role_count,
        .train_on_eos = p->o->train_on_eos,
        .train_on_inputs = p->o->train_on_inputs,
        .completion_apart = p->o->completion_apart,
        .max_samples = p->o->max_samples,
        .weight = 1,
        .pairs = p->o->rl != AF_RL_NONE,
        .shape = p->o->rl == AF_RL_LABELS ? AF_SHAPE_CLASSES : AF_SHAPE_AUTO,
        .shape_given = p->o->rl == AF_RL_LABELS,
        .seed = p->o->seed,
        .thinking = "reasoning_content",
        .thinking_key = "reasoning_content",
    };
}

af_status af_data_entry_read(const parse *p, const af_yaml *n)
{
    char at[300];
    af_data_entry_begin(p, n);
    if (n->kind != AF_YAML_MAP)
        return wants(p, "an entry", n, "a map with a path");
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < n->count; i++) {
            const af_status st = read_pair(p, n, i, pass);
            if (st != AF_OK)
                return st;
        }
    if (!p->s->cognition && (p->s->model_name[0] || p->s->model_author[0]))
        return af_fail(p->err, AF_EUSAGE,
                       "%s: %s of a dataset has no effect without 'type: self_cognition'",
                       af_data_source_loc(at, p->o->run_path, n->line),
                       p->s->model_name[0] ? "model_name" : "model_author");
    if ((!p->s->path || !*p->s->path) && !p->s->data_file_count)
        return af_fail(p->err, AF_EUSAGE, "%s: a dataset has no path",
                       af_data_source_loc(at, p->o->run_path, n->line));
    return AF_OK;
}
