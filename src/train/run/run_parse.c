/* run_parse.c - from YAML and key=value to an af_run_config. */
#include "base/log.h"
#include "format/text/unicode.h"
#include "train/run/run_foreign.h"
#include "train/run/run_keys.h"
#include "train/run/run_translate.h"

#include <strings.h>

typedef struct parser {
    af_run_config *run;
    const char *name; /* of the file, or "command line" */
    af_error *err;
} parser;

/* "run.yaml:12" or "command line". */
static const char *location(const parser *p, int line, char *buf, size_t size)
{
    if (line > 0)
        snprintf(buf, size, "%s:%d", p->name, line);
    else
        snprintf(buf, size, "%s", p->run->override);
    return buf;
}

static af_status wrong_kind(const parser *p, const af_key *k, const af_yaml *n, int line,
                            const char *want)
{
    char at[300], show[80];
    return af_fail(p->err, AF_EUSAGE, "%s: %s must be %s, not %s", location(p, line, at, sizeof at),
                   k->name, want, af_yaml_show(n, show, sizeof show));
}

static af_status check_bounds(const parser *p, const af_key *k, double v, int line)
{
    char at[300];
    if (v >= k->min && v <= k->max)
        return AF_OK;
    return af_fail(p->err, AF_EUSAGE, "%s: %s is %.10g; it must be between %.10g and %.10g",
                   location(p, line, at, sizeof at), k->name, v, k->min, k->max);
}

/* "q_proj,v_proj", as LLaMA-Factory writes lists of names; prompts and patterns have commas of
 * their own. */
static bool is_joined(const af_key *k, const af_yaml *n)
{
    const bool tokens = !strcmp(k->name, "tokens") || !strcmp(k->name, "add_special_tokens");
    return n->kind == AF_YAML_SCALAR && strchr(n->text, ',') &&
           (tokens || !strpbrk(n->text, "*()[]{}|\\^$+?")) &&
           strcmp(k->name, "generate_samples") != 0;
}

static af_status read_joined(const parser *p, const af_key *k, af_strings *out, const char *text)
{
    int count = 1;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    const char **item = af_arena_take(&p->run->mem, (uint64_t)count * sizeof *item);
    for (int i = 0; i < count && item; i++) {
        const size_t skip = strspn(text, " "), len = strcspn(text + skip, ", ");
        item[i] = af_arena_strndup(&p->run->mem, text + skip, len);
        text += strcspn(text, ",");
        text += *text == ',';
        if (!item[i])
            item = NULL;
    }
    if (!item)
        return af_fail_nomem(p->err, k->name, (uint64_t)count * sizeof *item);
    *out = (af_strings){item, count};
    return AF_OK;
}

static af_status read_list(const parser *p, const af_key *k, af_strings *out, const af_yaml *n,
                           int line)
{
    if (is_joined(k, n))
        return read_joined(p, k, out, n->text);
    const int count = n->kind == AF_YAML_LIST ? n->count : 1;
    const char **item = af_arena_take(&p->run->mem, (uint64_t)AF_MAX(count, 1) * sizeof *item);
    if (!item)
        return af_fail_nomem(p->err, k->name, (uint64_t)count * sizeof *item);
    if (n->kind == AF_YAML_MAP)
        return wrong_kind(p, k, n, line, "a list of names");
    for (int i = 0; i < count; i++) {
        const af_yaml *e = n->kind == AF_YAML_LIST ? n->item[i] : n;
        if (e->kind != AF_YAML_SCALAR)
            return wrong_kind(p, k, e, line ? e->line : 0, "a list of names");
        item[i] = e->text;
    }
    *out = (af_strings){item, count};
    return AF_OK;
}

/* Whether it is the first name of its value; the others are those of other tools. */
static bool is_first_name(const af_key *k, const af_key_choice *c)
{
    const af_key_choice *first = k->choices->names;
    while (first->value != c->value)
        first++;
    return first == c;
}

static af_status read_enum(const parser *p, const af_key *k, int *out, const af_yaml *n, int line)
{
    char list[200] = "", at[300];
    size_t used = 0;
    for (const af_key_choice *c = k->choices->names; c->name; c++) {
        if (n->kind == AF_YAML_SCALAR && strcasecmp(c->name, n->text) == 0) {
            *out = c->value;
            return AF_OK;
        }
        if (used < sizeof list && is_first_name(k, c))
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                     c->name);
    }
    if (n->kind != AF_YAML_SCALAR)
        return wrong_kind(p, k, n, line, "one name");
    return af_fail(p->err, AF_EUSAGE,
                   "%s: %s is '%s', which is not supported; it must be one of: %s",
                   location(p, line, at, sizeof at), k->name, n->text, list);
}

static af_status read_tri(const parser *p, const af_key *k, int *out, const af_yaml *n, int line)
{
    bool b;
    if (n->kind == AF_YAML_SCALAR && strcasecmp(n->text, "auto") == 0)
        *out = AF_TRI_AUTO;
    else if (af_yaml_bool(n, &b))
        *out = b ? AF_TRI_YES : AF_TRI_NO;
    else
        return wrong_kind(p, k, n, line, "true, false or auto");
    return AF_OK;
}

static af_status read_value(const parser *p, const af_key *k, af_key_value *v, const af_yaml *n,
                            int line)
{
    switch (k->kind) {
    case AF_KEY_STR:
        v->str = n->text;
        return n->kind == AF_YAML_SCALAR ? AF_OK : wrong_kind(p, k, n, line, "one value");
    case AF_KEY_BOOL:
        return af_yaml_bool(n, &v->flag) ? AF_OK : wrong_kind(p, k, n, line, "true or false");
    case AF_KEY_TRI:
        return read_tri(p, k, &v->choice, n, line);
    case AF_KEY_I64:
        return af_yaml_i64(n, &v->i64) ? check_bounds(p, k, (double)v->i64, line)
                                       : wrong_kind(p, k, n, line, "a whole number");
    case AF_KEY_F64:
        return af_yaml_f64(n, &v->f64) ? check_bounds(p, k, v->f64, line)
                                       : wrong_kind(p, k, n, line, "a number");
    case AF_KEY_LIST:
        return read_list(p, k, &v->list, n, line);
    case AF_KEY_ENUM:
        return read_enum(p, k, &v->choice, n, line);
    case AF_KEY_TREE:
        v->tree = n;
        break;
    }
    return AF_OK;
}

static af_status set(const parser *p, const af_key *k, const af_yaml *n, int line)
{
    af_key_value v = {0};
    const af_status st = read_value(p, k, &v, n, line);
    if (st == AF_OK)
        af_key_set(p->run, k, v);
    return st;
}

static af_status set_defaults(const parser *p)
{
    for (int i = 0; i < af_keys_count; i++) {
        if (!af_keys[i].preset)
            continue;
        const af_yaml n = {.kind = AF_YAML_SCALAR, .text = af_keys[i].preset};
        const af_status st = set(p, &af_keys[i], &n, 0);
        if (st != AF_OK)
            return st; /* a wrong row of our own table; a test catches it */
    }
    return AF_OK;
}

static af_status unknown(const parser *p, const char *key, int line, const char *more)
{
    char at[300];
    const char *near = af_key_suggest(key);
    location(p, line, at, sizeof at);
    if (near)
        return af_fail(p->err, AF_EUSAGE, "%s: unknown key '%s'; did you mean '%s'?%s", at, key,
                       near, more);
    return af_fail(p->err, AF_EUSAGE, "%s: unknown key '%s' (afinar train --help lists them)%s", at,
                   key, more);
}

static af_status refused(const parser *p, const char *key, const af_yaml *n, int line,
                         const char *more)
{
    char at[300];
    const char *reason;
    const bool plain = n->kind == AF_YAML_SCALAR;
    const af_foreign_kind kind = af_foreign_judge(key, n, &reason);
    if (kind == AF_FOREIGN_UNKNOWN)
        return unknown(p, key, line, more);
    location(p, line, at, sizeof at);
    return af_fail(p->err, AF_EUNSUPPORTED, "%s: '%s'%s%.60s%s is not supported: %s%s", at, key,
                   plain ? " with '" : "", plain ? n->text : "", plain ? "'" : "", reason, more);
}

af_status af_key_reset(af_run_config *r, const af_key *k, af_error *err)
{
    r->key_line[k - af_keys] = AF_KEY_LINE_UNSET;
    if (k->preset)
        return set(&(parser){.run = r, .name = r->path, .err = err}, k,
                   &(af_yaml){.kind = AF_YAML_SCALAR, .text = k->preset}, 0);
    af_key_set(r, k, (af_key_value){0}); /* only what may be absent has no default */
    return AF_OK;
}

/* A key that is none of ours: idle in a file, an error where the user has just typed it. */
static af_status apply_foreign(const parser *p, const char *key, const af_yaml *n, int line)
{
    const char *reason;
    char at[300];
    switch (af_foreign_judge(key, n, &reason)) {
    case AF_FOREIGN_NOTHING:
        return AF_OK;
    case AF_FOREIGN_IDLE:
        return line > 0 ? af_run_idle_add(p->run, key, line, reason, p->err)
                        : af_fail(p->err, AF_EUSAGE, "%s: '%s' has no effect here: %s",
                                  location(p, line, at, sizeof at), key, reason);
    case AF_FOREIGN_INSTEAD:
        if (line > 0)
            return af_run_instead_add(p->run, key, line, reason, af_foreign_need(key), p->err);
        break;
    default:
        break;
    }
    return refused(p, key, n, line, "");
}

/* Two names of one key that agree are not a mistake. */
static bool says_the_same(const parser *p, const af_key *k, const af_yaml *n)
{
    af_error unread = {0};
    const parser quiet = {.run = p->run, .name = p->name, .err = &unread};
    const af_key_value has = af_key_get(p->run, k);
    af_key_value v = {0};
    if (af_yaml_is_null(n))
        return true;
    if (read_value(&quiet, k, &v, n, 0) != AF_OK)
        return false;
    switch (k->kind) {
    case AF_KEY_STR:
        return has.str && strcmp(v.str, has.str) == 0;
    case AF_KEY_BOOL:
        return v.flag == has.flag;
    case AF_KEY_I64:
        return v.i64 == has.i64;
    case AF_KEY_F64:
        return v.f64 == has.f64;
    case AF_KEY_TRI:
    case AF_KEY_ENUM:
        return v.choice == has.choice;
    case AF_KEY_LIST:
    case AF_KEY_TREE:
        break;
    }
    return false;
}

/* `given`: the user's name of the key, which may have been translated. */
static af_status apply(const parser *p, const char *key, const char *given, const af_yaml *n,
                       int line)
{
    const af_key *k = af_key_find(key);
    char at[300], in_line[24] = "";
    if (!k)
        return apply_foreign(p, key, n, line);
    const int row = (int)(k - af_keys), before = p->run->key_line[row];
    const char *was = before == AF_KEY_LINE_UNSET ? NULL : p->run->key_name[row];
    if (af_chooses_optimizer(was) && strcmp(given, "optim") == 0)
        return AF_OK;
    bool twice = line > 0 && before > 0;
    if (line <= 0 && before == AF_KEY_LINE_OVERRIDE && was) /* of one key, the last one counts */
        twice =
            af_chooses_optimizer(was) || (af_chooses_optimizer(given) && strcmp(was, "optim") != 0);
    if (before > 0)
        snprintf(in_line, sizeof in_line, " in line %d", before);
    if (twice && !says_the_same(p, k, n))
        return af_fail(p->err, AF_EUSAGE, "%s: '%s' is the same key as %s%s: remove one",
                       location(p, line, at, sizeof at), given, was ? was : k->name, in_line);
    if (af_yaml_is_null(n)) /* "key:" without a value means the default */
        return line > 0 ? AF_OK : af_key_reset(p->run, k, p->err);
    const af_status st = set(p, k, n, line);
    if (st == AF_OK) {
        p->run->key_line[row] = line > 0 ? line : AF_KEY_LINE_OVERRIDE;
        p->run->key_name[row] = given;
    }
    return st;
}

static bool stops(const af_yaml *root, int i, bool *known)
{
    const char *reason;
    if (af_key_find(root->key[i]))
        return false;
    const af_foreign_kind kind = af_foreign_judge(root->key[i], root->item[i], &reason);
    *known = kind != AF_FOREIGN_UNKNOWN;
    return !*known || kind == AF_FOREIGN_REFUSED || kind == AF_FOREIGN_EXACT;
}

/* Lists those after the first that are as it is: unsupported or unknown. */
static size_t list_more(const af_yaml *root, int first, bool which, char *out, size_t size)
{
    size_t used = 0;
    bool known;
    for (int i = 0; i < root->count; i++)
        if (i != first && stops(root, i, &known) && known == which && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s'%.40s' (line %d)",
                                     used    ? ", "
                                     : which ? "; also not supported: "
                                             : "; also unknown: ",
                                     root->key[i], root->key_line[i]);
    return AF_MIN(used, size);
}

/* Names the first key that stops the run and lists the others: a file of another trainer may have
 * many. Those that are not supported come first. */
static af_status check_names(const parser *p, const af_yaml *root)
{
    int first = -1;
    bool known, first_known = false;
    for (int i = 0; i < root->count; i++)
        if (stops(root, i, &known) && (first < 0 || (known && !first_known))) {
            first = i;
            first_known = known;
        }
    if (first < 0)
        return AF_OK;
    char more[600] = "";
    const size_t used = list_more(root, first, true, more, sizeof more);
    list_more(root, first, false, more + used, sizeof more - used);
    return refused(p, root->key[first], root->item[first], root->key_line[first], more);
}

/* Before any other key: whether a key without effect is an error. */
static void find_strict(af_run_config *r, const af_yaml *root, const char *const *overrides,
                        int count)
{
    const af_yaml *n = root->kind == AF_YAML_MAP ? af_yaml_get(root, "strict") : NULL;
    if (n && !af_yaml_bool(n, &r->strict))
        r->strict = false; /* an error when the key itself is read */
    for (int i = 0; i < count; i++)
        if (strncmp(overrides[i], "strict=", 7) == 0)
            (void)af_yaml_bool(&(af_yaml){.kind = AF_YAML_SCALAR, .text = overrides[i] + 7},
                               &r->strict);
}

/* What a missing key means in the trainer the file was written for. */
static af_status set_dialect(const parser *p, const af_yaml *root)
{
    const af_dialect d = af_dialect_of(root);
    const char *key, *value;
    af_status st = AF_OK;
    p->run->dialect = d;
    p->run->rl_in_name = af_dialect_rl(root, &p->run->name_with_rl);
    p->run->adapter_is_named = d != AF_DIALECT_NONE; /* there lora_* keys alone do not mean lora */
    for (int i = 0; st == AF_OK && (key = af_dialect_default(d, i, &value)); i++)
        if (value)
            st = set(p, af_key_find(key), &(af_yaml){.kind = AF_YAML_SCALAR, .text = value}, 0);
    return st;
}

/* The user's name of a key that may have been translated: the one in its line. */
static const char *name_in_line(const af_yaml *root, int line, const char *ours)
{
    const char *name = NULL;
    int found = 0;
    for (int i = 0; i < root->count; i++)
        if (root->key_line[i] == line) {
            name = root->key[i];
            found++;
        }
    return found == 1 ? name : ours;
}

static af_status apply_file(const parser *p, const af_yaml *root)
{
    if (root->kind != AF_YAML_MAP)
        return af_fail(p->err, AF_EUSAGE, "%s:%d: a run file is a map of keys", p->name,
                       root->line);
    af_yaml *ours;
    af_status names = set_dialect(p, root);
    if (names == AF_OK)
        names = af_run_translate(&ours, root, p->run, p->name, p->err);
    if (names == AF_OK)
        names = check_names(p, ours);
    if (names != AF_OK)
        return names;
    for (int i = 0; i < ours->count; i++) {
        const af_key *k = af_key_find(ours->key[i]);
        const int line = ours->key_line[i];
        af_run_note_name(p->run, k);
        const af_status st =
            apply(p, ours->key[i], name_in_line(root, line, ours->key[i]), ours->item[i], line);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

/* Whether a key of one text has it as it stands: a shell has removed the quotes that YAML would
 * need ("a: b", "#1", "{% if"). */
static bool is_literal(const char *key, const char *text)
{
    const af_key *k = af_key_find(key);
    const af_yaml plain = {.kind = AF_YAML_SCALAR, .text = text};
    return k && k->kind == AF_KEY_STR && !af_yaml_is_null(&plain);
}

/* Still in quotes as YAML has them; "'a' or 'b'" is not. */
static bool is_quoted(const parser *p, const char *text)
{
    af_yaml *n;
    return (*text == '"' || *text == '\'') &&
           af_yaml_parse(&n, &p->run->mem, text, strlen(text), "", NULL) == AF_OK &&
           n->kind == AF_YAML_SCALAR;
}

static af_status read_literal(const parser *p, const char *key, const char *text, af_yaml **out)
{
    const uint64_t n = strlen(text);
    const char *at = text;
    if (af_utf8_valid(text, n) < n)
        return af_fail(p->err, AF_EUSAGE, "%s: %s is not UTF-8", p->run->override, key);
    while (*at && ((unsigned char)*at >= 0x20 || *at == '\n' || *at == '\t') && *at != 0x7f)
        at++;
    if (*at)
        return af_fail(p->err, AF_EUSAGE, "%s: %s has a control character, \\x%02x",
                       p->run->override, key, (unsigned)*at);
    *out = af_arena_take(&p->run->mem, sizeof **out);
    const char *copy = af_arena_strndup(&p->run->mem, text, n);
    if (!*out || !copy)
        return af_fail_nomem(p->err, key, n);
    **out = (af_yaml){.kind = AF_YAML_SCALAR, .text = copy};
    return AF_OK;
}

static af_status read_text(const parser *p, const char *key, const char *text, af_yaml **out)
{
    if (!*text)
        text = "\"\"";
    if (is_literal(key, text) && !is_quoted(p, text))
        return read_literal(p, key, text, out);
    const af_status st = af_yaml_parse(out, &p->run->mem, text, strlen(text), key, p->err);
    return st == AF_OK ? st : af_fail_prefix(st, p->err, "%s", p->run->override);
}

/* A key from outside the file; nodes of the tree point into the copy of `text`. */
static af_status apply_text(const parser *p, const char *key, const char *text)
{
    af_yaml *value;
    af_status st = read_text(p, key, text, &value);
    if (st != AF_OK)
        return st;
    af_yaml_forget_lines(value);
    int line = 0;
    const af_yaml one = {
        .kind = AF_YAML_MAP, .count = 1, .key = &key, .key_line = &line, .item = &value};
    af_yaml *ours;
    st = af_run_translate(&ours, &one, p->run, p->run->override, p->err);
    for (int i = 0; st == AF_OK && i < ours->count; i++)
        st = apply(p, ours->key[i], key, ours->item[i], 0);
    return st;
}

static af_status apply_override(const parser *p, const char *text)
{
    const char *eq = strchr(text, '=');
    if (!eq || eq == text)
        return af_fail(p->err, AF_EUSAGE, "%s: '%s' is not key=value", p->run->override, text);
    const char *key = af_arena_strndup(&p->run->mem, text, (uint64_t)(eq - text));
    return key ? apply_text(p, key, eq + 1) : af_fail_nomem(p->err, "an override", strlen(text));
}

int af_run_key_line(const af_run_config *r, const char *key)
{
    const af_key *k = af_key_find(key);
    return k ? r->key_line[k - af_keys] : AF_KEY_LINE_UNSET;
}

bool af_run_key_is_set(const af_run_config *r, const char *key)
{
    return af_run_key_line(r, key) != AF_KEY_LINE_UNSET;
}

const char *af_run_key_loc(const af_run_config *r, const char *key, char *buf, size_t size)
{
    const int line = af_run_key_line(r, key);
    const af_key *k = af_key_find(key);
    const char *given = line > 0 ? r->key_name[k - af_keys] : NULL;
    if (given && strcmp(given, k->name) != 0) /* the name to look for in that line */
        snprintf(buf, size, "%s:%d ('%s')", r->path, line, given);
    else if (line > 0)
        snprintf(buf, size, "%s:%d", r->path, line);
    else
        snprintf(buf, size, "%s", line < 0 ? r->override : r->path);
    return buf;
}

/* An override may leave a key of the file without effect (optimizer=lion and adam_epsilon): that is
 * no error of the file, so the key is reset with a warning. */
static af_status drop_overridden(const parser *p, const bool *had_effect)
{
    const af_run_config *r = p->run;
    af_status st = AF_OK;
    char names[500] = "";
    size_t used = 0;
    for (int i = 0; st == AF_OK && i < af_keys_count; i++) {
        const af_key *k = &af_keys[i];
        if (r->key_line[i] <= 0 || !had_effect[i] || af_key_has_effect(r, k->need))
            continue;
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s (line %d)",
                                     used ? ", " : "", k->name, r->key_line[i]);
        st = af_key_reset(p->run, k, p->err);
    }
    if (used)
        af_log_write(AF_LOG_WARN, "%s: ignored because of the command line: %s", p->name, names);
    return st;
}

static af_status run_all(const parser *p, const af_yaml *root, const char *const *overrides,
                         int count)
{
    bool had_effect[AF_RUN_KEYS_MAX] = {0};
    af_status st = set_defaults(p);
    find_strict(p->run, root, overrides, count);
    if (st == AF_OK)
        st = apply_file(p, root);
    for (int i = 0; i < af_keys_count; i++)
        had_effect[i] = st == AF_OK && af_key_has_effect(p->run, af_keys[i].need);
    for (int i = 0; st == AF_OK && i < count; i++)
        st = apply_override(p, overrides[i]);
    if (st == AF_OK)
        st = drop_overridden(p, had_effect);
    return st == AF_OK ? af_run_config_check(p->run, p->err) : st;
}

static af_status make_idle_list(af_run_config *r, af_error *err)
{
    r->idle = af_arena_take(&r->mem, sizeof *r->idle);
    r->instead = af_arena_take(&r->mem, sizeof *r->instead);
    if (!r->idle || !r->instead)
        return af_fail_nomem(err, "a run", sizeof *r->idle);
    r->idle->mem = r->instead->mem = &r->mem;
    return AF_OK;
}

af_status af_run_config_parse(af_run_config *out, const char *text, uint64_t size, const char *name,
                              const char *const *overrides, int count, af_error *err)
{
    af_status st = AF_OK;
    af_yaml *root;
    parser p = {.run = out, .err = err};
    p.name = out->path = af_arena_strdup(&out->mem, name);
    out->override = "command line";
    if (!p.name)
        return af_fail_nomem(err, name, strlen(name));
    AF_TRY(make_idle_list(out, err));
    AF_TRY(af_yaml_parse(&root, &out->mem, text, size, p.name, err));
    AF_TRY(run_all(&p, root, overrides, count));
done:
    if (st != AF_OK)
        af_run_config_clear(out);
    return st;
}

af_status af_run_config_init(af_run_config *out, const char *name, af_error *err)
{
    *out = (af_run_config){.path = name, .override = name};
    const af_status st = make_idle_list(out, err);
    if (st != AF_OK)
        return st;
    return set_defaults(&(parser){.run = out, .name = name, .err = err});
}

af_status af_run_config_set(af_run_config *r, const char *key, const char *value, af_error *err)
{
    const parser p = {.run = r, .name = r->path, .err = err};
    return apply_text(&p, key, value);
}

void af_run_config_clear(af_run_config *r)
{
    af_arena_clear(&r->mem);
    *r = (af_run_config){0};
}
