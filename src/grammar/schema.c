/* schema.c - rules for lists of schemas, references, and the entry. */
#include "grammar/schema.h"
#include "base/buf.h"
#include "base/hash.h"
#include "format/text/json_text.h"
#include "grammar/compile.h"

enum { BUCKETS = 4096, ARENA_BYTES_MAX = 256 << 20 };

void *af_schema_take(af_schema *s, uint64_t bytes)
{
    void *p = af_arena_take(&s->arena, bytes);
    if (!p && af_memory_failed())
        af_rtn_fail(s->r, af_fail_nomem(s->err, "a schema", bytes));
    else if (!p)
        af_rtn_fail(s->r, af_fail(s->err, AF_EUSAGE, "the schema needs more than %d MiB",
                                  ARENA_BYTES_MAX >> 20));
    return p;
}

af_status af_schema_append(af_schema *s, af_schemas *to, const json_t *node)
{
    for (uint32_t i = 0; i < to->count; i++)
        if (to->item[i] == node)
            return AF_OK;
    const json_t **item = af_schema_take(s, ((uint64_t)to->count + 1) * sizeof(json_t *));
    if (!item)
        return s->r->st;
    if (to->count)
        memcpy(item, to->item, to->count * sizeof(json_t *));
    item[to->count] = node;
    *to = (af_schemas){item, to->count + 1};
    return AF_OK;
}

static bool same_list(af_schemas a, af_schemas b)
{
    return a.count == b.count &&
           (!a.count || memcmp(a.item, b.item, a.count * sizeof(json_t *)) == 0);
}

uint32_t af_schema_rule_of(af_schema *s, af_schemas all)
{
    const uint64_t hash = af_fnv1a(AF_FNV_START, all.item, all.count * sizeof(json_t *));
    uint32_t h = (uint32_t)((hash >> 16) + s->once) % BUCKETS;
    for (uint32_t n = 0; n < BUCKETS && s->bucket[h]; n++, h = (h + 1) % BUCKETS)
        if (same_list(s->rule[s->bucket[h] - 1].all, all) &&
            s->rule[s->bucket[h] - 1].once == s->once)
            return s->rule[s->bucket[h] - 1].rule;
    if (s->rules == BUCKETS - 1)
        af_rtn_fail(s->r, af_fail(s->err, AF_EUSAGE, "the schema has more than %d parts", BUCKETS));
    if (s->rules == s->rules_cap && s->r->st == AF_OK) {
        af_schema_rule *grown = af_realloc(s->rule, (uint64_t)s->rules_cap * 2 + 64, sizeof *grown);
        if (grown) {
            s->rule = grown;
            s->rules_cap = s->rules_cap * 2 + 64;
        } else {
            af_rtn_fail(s->r, af_fail_nomem(s->err, "a schema", s->rules));
        }
    }
    const uint32_t rule = af_rtn_rule_new(s->r, NULL);
    if (s->r->st != AF_OK)
        return 0;
    s->rule[s->rules] = (af_schema_rule){all, rule, s->once};
    s->bucket[h] = ++s->rules;
    return rule;
}

/* ---- references ---- */

static int hex_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One part of a JSON pointer: ~0, ~1 and %XX undone. */
static void pointer_part(af_buf *out, const char *p, size_t n)
{
    out->len = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '%' && i + 2 < n && hex_of(p[i + 1]) >= 0 && hex_of(p[i + 2]) >= 0) {
            af_buf_char(out, (char)(hex_of(p[i + 1]) << 4 | hex_of(p[i + 2])));
            i += 2;
        } else if (p[i] == '~' && i + 1 < n && (p[i + 1] == '0' || p[i + 1] == '1')) {
            af_buf_char(out, p[++i] == '0' ? '~' : '/');
        } else {
            af_buf_char(out, p[i]);
        }
    }
    af_buf_add(out, "", 0);
}

static const json_t *member(const json_t *at, const char *name)
{
    if (json_is_array(at)) {
        size_t i = 0;
        for (const char *c = name; *c; c++) {
            if (*c < '0' || *c > '9' || i > 100000)
                return NULL;
            i = i * 10 + (size_t)(*c - '0');
        }
        return *name ? json_array_get(at, i) : NULL;
    }
    return json_object_get(at, name);
}

af_status af_schema_resolve(af_schema *s, const char *ref, const json_t **out)
{
    af_status st = AF_OK;
    af_buf part = {0};
    const json_t *at = s->root;
    if (ref[0] != '#' || (ref[1] && ref[1] != '/'))
        return af_fail_subject(s->err, AF_EUNSUPPORTED, "$ref",
                               "$ref '%.100s' does not begin with '#/': only references inside "
                               "the schema are supported",
                               ref);
    for (const char *p = ref + 1; *p && at;) {
        const char *end = strchr(p + 1, '/');
        const size_t n = end ? (size_t)(end - p - 1) : strlen(p + 1);
        pointer_part(&part, p + 1, n);
        if (part.bad) {
            st = af_fail_nomem(s->err, "a $ref", n);
            goto done;
        }
        at = member(at, part.data);
        p += n + 1;
    }
    if (!at)
        st = af_fail_subject(s->err, AF_EFORMAT, "$ref", "$ref '%.100s' leads nowhere", ref);
    else
        *out = at;
done:
    af_buf_clear(&part);
    return st;
}

/* ---- the entry ---- */

/* Writes the rules that were asked for, which asks for more. */
static af_status write_rules(af_schema *s)
{
    af_status st = AF_OK;
    for (; s->written < s->rules; s->written++) {
        const af_schema_rule rule = s->rule[s->written];
        af_flats flats = {0};
        s->once = rule.once;
        AF_TRY(af_schema_flatten(s, rule.all, &flats));
        const af_rtn_rule body = s->r->rule[rule.rule];
        for (uint32_t i = 0; i < flats.count; i++)
            AF_TRY(af_schema_emit(s, flats.item[i], body.start, body.accept));
        AF_TRY(s->r->st);
    }
done:
    return st;
}

af_status af_schema_compile(af_rtn *r, json_t *root, uint32_t *rule, af_error *err)
{
    af_status st = AF_OK;
    af_schema s = {.r = r,
                   .root = root,
                   .arena = {.limit = ARENA_BYTES_MAX},
                   .ws = UINT32_MAX,
                   .any_string = UINT32_MAX,
                   .any_char = UINT32_MAX,
                   .err = err};
    af_schemas all = {0};
    s.bucket = af_calloc(BUCKETS, sizeof *s.bucket);
    if (!s.bucket) {
        st = af_fail_nomem(err, "a schema", BUCKETS);
        goto done;
    }
    AF_TRY(af_schema_rewrite(&s, root));
    AF_TRY(af_memory_check(err));
    AF_TRY(af_schema_append(&s, &all, root));
    *rule = af_schema_rule_of(&s, all);
    AF_TRY(r->st);
    r->rule[*rule].name = "#";
    AF_TRY(write_rules(&s));
    AF_TRY(af_memory_check(err));
done:
    free(s.bucket);
    free(s.rule);
    af_dfa_clear(&s.strings.dfa);
    af_arena_clear(&s.arena);
    return st;
}

af_status af_schema_text_compile(af_rtn *r, const char *text, uint64_t len, af_error *err)
{
    af_status st = AF_OK;
    json_t *root = NULL;
    if (len == 4 && memcmp(text, "true", 4) == 0) /* schemas, too, but no JSON text of their own */
        return af_schema_text_compile(r, "{}", 2, err);
    if (len == 5 && memcmp(text, "false", 5) == 0)
        return af_schema_text_compile(r, "{\"enum\":[]}", 11, err);
    AF_TRY(af_json_parse(&root, text, len, "schema", err));
    AF_TRY(af_schema_compile(r, root, &r->root, err));
done:
    json_decref(root);
    return st;
}

af_status af_json_object_compile(af_rtn *r, af_error *err)
{
    return af_schema_text_compile(r, "{\"type\":\"object\"}", 17, err);
}
