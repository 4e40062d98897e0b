/* yaml_tree.c - libyaml's document as our tree. */
#include "format/text/yaml_tree.h"

#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <strings.h>
#include <yaml.h>

typedef struct yaml_builder {
    yaml_document_t *doc;
    af_arena *mem;
    const char *name;
    int nodes;
    af_error *err;
} yaml_builder;

static af_status too_big(const yaml_builder *b, int line, const char *what, int limit)
{
    return af_fail(b->err, AF_EFORMAT, "%s:%d: more than %d %s", b->name, line, limit, what);
}

static af_status no_memory(const yaml_builder *b)
{
    return af_fail_nomem(b->err, b->name, b->mem->bytes);
}

static af_status build(yaml_builder *b, af_yaml **out, int id, int depth);

static af_status build_scalar(yaml_builder *b, af_yaml *n, const yaml_node_t *y)
{
    if (memchr(y->data.scalar.value, 0, y->data.scalar.length))
        return af_fail(b->err, AF_EFORMAT, "%s:%d: a NUL character in a value", b->name, n->line);
    n->text = af_arena_strndup(b->mem, (const char *)y->data.scalar.value, y->data.scalar.length);
    n->quoted = y->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return n->text ? AF_OK : no_memory(b);
}

static af_status build_list(yaml_builder *b, af_yaml *n, const yaml_node_t *y, int depth)
{
    n->kind = AF_YAML_LIST;
    n->count = (int)(y->data.sequence.items.top - y->data.sequence.items.start);
    n->item = af_arena_take(b->mem, (uint64_t)n->count * sizeof *n->item);
    if (!n->item)
        return no_memory(b);
    for (int i = 0; i < n->count; i++) {
        const af_status st = build(b, &n->item[i], y->data.sequence.items.start[i], depth + 1);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

static af_status build_key(yaml_builder *b, af_yaml *n, int i, const yaml_node_t *k)
{
    n->key_line[i] = k ? (int)k->start_mark.line + 1 : n->line;
    if (!k || k->type != YAML_SCALAR_NODE)
        return af_fail(b->err, AF_EFORMAT, "%s:%d: a key must be a plain word", b->name,
                       n->key_line[i]);
    n->key[i] = af_arena_strndup(b->mem, (const char *)k->data.scalar.value, k->data.scalar.length);
    return n->key[i] ? AF_OK : no_memory(b);
}

static bool same(const af_yaml *a, const af_yaml *b)
{
    return a->kind == AF_YAML_SCALAR && b->kind == AF_YAML_SCALAR && a->quoted == b->quoted &&
           strcmp(a->text, b->text) == 0;
}

/* A key that is there again with the same scalar is left out. Where one of the two is empty, as in
 * files that were put together from others, the last one counts, as in Python. Two values are an
 * error. */
static af_status keep(yaml_builder *b, af_yaml *n)
{
    const int i = n->count++;
    for (int j = 0; j < i; j++) {
        const bool empty = af_yaml_is_null(n->item[i]), was_empty = af_yaml_is_null(n->item[j]);
        if (strcmp(n->key[j], n->key[i]) != 0)
            continue;
        if (!empty && !was_empty && !same(n->item[j], n->item[i]))
            return af_fail(b->err, AF_EFORMAT, "%s:%d: duplicate key '%s', first in line %d",
                           b->name, n->key_line[i], n->key[i], n->key_line[j]);
        bool on = true;
        if (empty && !was_empty && (!af_yaml_bool(n->item[j], &on) || on))
            af_log_write(AF_LOG_WARN,
                         "%s:%d: '%s' is empty here, and its value in line %d does not count",
                         b->name, n->key_line[i], n->key[i], n->key_line[j]);
        if (empty || was_empty) {
            n->item[j] = n->item[i];
            n->key_line[j] = n->key_line[i];
        }
        n->count = i;
        break;
    }
    return AF_OK;
}

static af_status take_map(yaml_builder *b, af_yaml *n, int count)
{
    if (count > 4096) /* keys are compared with each other */
        return too_big(b, n->line, "keys in one map", 4096);
    n->count = count;
    n->item = af_arena_take(b->mem, (uint64_t)count * sizeof *n->item);
    n->key = af_arena_take(b->mem, (uint64_t)count * sizeof *n->key);
    n->key_line = af_arena_take(b->mem, (uint64_t)count * sizeof *n->key_line);
    return n->item && n->key && n->key_line ? AF_OK : no_memory(b);
}

/* The keys of `from` that `n` does not have; n has space for them. */
static void add_absent(af_yaml *n, const af_yaml *from)
{
    for (int i = 0; i < from->count; i++) {
        if (strcmp(from->key[i], "<<") == 0 || af_yaml_get(n, from->key[i]))
            continue;
        n->key[n->count] = from->key[i];
        n->key_line[n->count] = from->key_line[i];
        n->item[n->count++] = from->item[i];
    }
}

/* "<<: *defaults", or a list of such: their keys count as given here, where they are not. */
static af_status merge(yaml_builder *b, af_yaml *n)
{
    const af_yaml own = *n, *with = af_yaml_get(n, "<<");
    if (!with)
        return AF_OK;
    const bool one = with->kind == AF_YAML_MAP;
    const int maps = one ? 1 : with->kind == AF_YAML_LIST ? with->count : 0;
    int count = own.count;
    bool good = maps > 0;
    for (int i = 0; i < maps; i++) {
        const af_yaml *m = one ? with : with->item[i];
        good &= m->kind == AF_YAML_MAP;
        count += m->count;
    }
    if (!good)
        return af_fail(b->err, AF_EFORMAT, "%s:%d: '<<' expects a map or a list of maps", b->name,
                       with->line);
    const af_status st = take_map(b, n, count);
    if (st != AF_OK)
        return st;
    n->count = 0;
    add_absent(n, &own);
    for (int i = 0; i < maps; i++)
        add_absent(n, one ? with : with->item[i]);
    return AF_OK;
}

static af_status build_map(yaml_builder *b, af_yaml *n, const yaml_node_t *y, int depth)
{
    n->kind = AF_YAML_MAP;
    const af_status taken =
        take_map(b, n, (int)(y->data.mapping.pairs.top - y->data.mapping.pairs.start));
    if (taken != AF_OK)
        return taken;
    n->count = 0;
    for (const yaml_node_pair_t *p = y->data.mapping.pairs.start; p < y->data.mapping.pairs.top;
         p++) {
        af_status st = build_key(b, n, n->count, yaml_document_get_node(b->doc, p->key));
        if (st == AF_OK)
            st = build(b, &n->item[n->count], p->value, depth + 1);
        if (st == AF_OK)
            st = keep(b, n);
        if (st != AF_OK)
            return st;
    }
    return merge(b, n);
}

static af_status build(yaml_builder *b, af_yaml **out, int id, int depth)
{
    const yaml_node_t *y = yaml_document_get_node(b->doc, id);
    const int line = y ? (int)y->start_mark.line + 1 : 1;
    if (depth > AF_YAML_DEPTH_MAX)
        return too_big(b, line, "levels of nesting", AF_YAML_DEPTH_MAX);
    if (++b->nodes > AF_YAML_NODES_MAX)
        return too_big(b, line, "values", AF_YAML_NODES_MAX);
    af_yaml *n = af_arena_take(b->mem, sizeof *n);
    if (!n)
        return no_memory(b);
    n->line = line;
    *out = n;
    if (y && y->type == YAML_SEQUENCE_NODE)
        return build_list(b, n, y, depth);
    if (y && y->type == YAML_MAPPING_NODE)
        return build_map(b, n, y, depth);
    return y ? build_scalar(b, n, y) : AF_EFORMAT;
}

/* What libyaml found wrong; its word for a tab does not name it. */
static af_status not_yaml(const yaml_builder *b, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR || !p->problem) /* not all its failed allocations say so */
        return no_memory(b);
    const char *word = p->problem;
    const bool tab = p->buffer.pointer && p->buffer.pointer < p->buffer.last &&
                     *p->buffer.pointer == '\t' && strstr(word, "cannot start any token");
    return af_fail(b->err, AF_EFORMAT, "%s:%zu: %s", b->name, p->problem_mark.line + 1,
                   tab ? "tab in indentation; use spaces" : word);
}

/* What an event adds: nesting, a value, an anchor. */
static void count_event(const yaml_event_t *e, int *depth, int *nodes, int *anchors)
{
    const bool map = e->type == YAML_MAPPING_START_EVENT,
               list = e->type == YAML_SEQUENCE_START_EVENT, scalar = e->type == YAML_SCALAR_EVENT;
    const yaml_char_t *anchor = map      ? e->data.mapping_start.anchor
                                : list   ? e->data.sequence_start.anchor
                                : scalar ? e->data.scalar.anchor
                                         : NULL;
    *depth += map || list;
    *depth -= e->type == YAML_MAPPING_END_EVENT || e->type == YAML_SEQUENCE_END_EVENT;
    *nodes += map || list || scalar;
    *anchors += anchor != NULL;
}

/* Reads the events of a text before its document is built: the time libyaml takes for that grows
 * with the square of nesting and of the number of anchors. */
static af_status check_limits(const yaml_builder *b, yaml_parser_t *p)
{
    int depth = 0, nodes = 0, anchors = 0;
    for (bool end = false; !end;) {
        yaml_event_t e;
        if (!yaml_parser_parse(p, &e))
            return not_yaml(b, p);
        const int line = (int)e.start_mark.line + 1;
        end = e.type == YAML_STREAM_END_EVENT;
        count_event(&e, &depth, &nodes, &anchors);
        yaml_event_delete(&e);
        if (depth > AF_YAML_DEPTH_MAX + 1)
            return too_big(b, line, "levels of nesting", AF_YAML_DEPTH_MAX);
        if (nodes > 2 * AF_YAML_NODES_MAX) /* keys and values */
            return too_big(b, line, "values", AF_YAML_NODES_MAX);
        if (anchors > AF_YAML_ANCHORS_MAX)
            return too_big(b, line, "anchors", AF_YAML_ANCHORS_MAX);
    }
    return AF_OK;
}

static af_status load(af_yaml **out, yaml_builder *b, yaml_parser_t *p)
{
    yaml_document_t doc, second;
    if (!yaml_parser_load(p, &doc))
        return not_yaml(b, p);
    b->doc = &doc;
    af_status st = AF_OK;
    if (!yaml_document_get_root_node(&doc)) {
        *out = af_arena_take(b->mem, sizeof **out);
        if (*out)
            **out = (af_yaml){.kind = AF_YAML_MAP, .line = 1};
        st = *out ? AF_OK : no_memory(b);
    } else {
        st = build(b, out, 1, 0);
        if (st == AF_OK && yaml_parser_load(p, &second)) {
            const yaml_node_t *extra = yaml_document_get_root_node(&second);
            if (extra)
                st = af_fail(b->err, AF_EFORMAT,
                             "%s:%zu: a second document begins here; one is allowed", b->name,
                             extra->start_mark.line + 1);
            yaml_document_delete(&second);
        } else if (st == AF_OK) {
            st = not_yaml(b, p);
        }
    }
    yaml_document_delete(&doc);
    b->doc = NULL;
    return st;
}

af_status af_yaml_parse(af_yaml **out, af_arena *mem, const char *text, uint64_t size,
                        const char *name, af_error *err)
{
    yaml_parser_t p;
    yaml_builder b = {.mem = mem, .name = name, .err = err};
    if (size > AF_YAML_BYTES_MAX)
        return too_big(&b, 1, "bytes", AF_YAML_BYTES_MAX);
    if (!yaml_parser_initialize(&p))
        return no_memory(&b);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, size);
    af_status st = check_limits(&b, &p);
    yaml_parser_delete(&p);
    if (st != AF_OK)
        return st;
    if (!yaml_parser_initialize(&p))
        return no_memory(&b);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, size);
    st = load(out, &b, &p);
    yaml_parser_delete(&p);
    return st;
}

void af_yaml_forget_lines(af_yaml *n)
{
    n->line = 0;
    for (int i = 0; i < n->count; i++) {
        if (n->kind == AF_YAML_MAP)
            n->key_line[i] = 0;
        af_yaml_forget_lines(n->item[i]);
    }
}

af_yaml *af_yaml_get(const af_yaml *map, const char *key)
{
    for (int i = 0; map && map->kind == AF_YAML_MAP && i < map->count; i++)
        if (strcmp(map->key[i], key) == 0)
            return map->item[i];
    return NULL;
}

static bool plain(const af_yaml *n) { return n && n->kind == AF_YAML_SCALAR && !n->quoted; }

bool af_yaml_is_null(const af_yaml *n)
{
    return plain(n) && (!n->text[0] || !strcmp(n->text, "~") || !strcasecmp(n->text, "null") ||
                        !strcmp(n->text, "None"));
}

bool af_yaml_bool(const af_yaml *n, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (size_t i = 0; plain(n) && i < AF_LEN(yes); i++)
        if (!strcasecmp(n->text, yes[i]) || !strcasecmp(n->text, no[i])) {
            *out = !strcasecmp(n->text, yes[i]);
            return true;
        }
    return false;
}

bool af_yaml_i64(const af_yaml *n, int64_t *out)
{
    char clean[64], *end;
    size_t at = 0;
    if (!plain(n) || !n->text[0] || strlen(n->text) >= sizeof clean)
        return false;
    for (const char *s = n->text; *s; s++) /* 10_000 is how people write it */
        if (*s != '_')
            clean[at++] = *s;
    clean[at] = '\0';
    errno = 0;
    const long long v = strtoll(clean, &end, 10);
    if (errno || end == clean || *end)
        return false;
    *out = v;
    return true;
}

bool af_yaml_f64(const af_yaml *n, double *out)
{
    char *end;
    int64_t whole;
    if (af_yaml_i64(n, &whole)) {
        *out = (double)whole;
        return true;
    }
    if (!plain(n) || !n->text[0] || strpbrk(n->text, "xXpP")) /* no hex floats */
        return false;
    const double v = strtod(n->text, &end);
    if (*end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

const char *af_yaml_show(const af_yaml *n, char *buf, size_t size)
{
    if (n->kind == AF_YAML_MAP)
        snprintf(buf, size, "a map");
    else if (n->kind == AF_YAML_LIST)
        snprintf(buf, size, "a list");
    else
        snprintf(buf, size, "'%.60s'%s", n->text, n->quoted && n->text[0] ? " in quotes" : "");
    return buf;
}
