/* parquet_schema.c - the schema of a parquet file: elements in depth-first order become a tree of
 * records, lists and maps. */
#include "format/columns/parquet_meta.h"

enum { REQUIRED, OPTIONAL, REPEATED };

/* Those of the logical types that matter here; the older converted types become the same. */
typedef enum annotation {
    NONE,
    STRING,
    MAP,
    LIST,
    ENUM,
    DECIMAL,
    DATE,
    TIME,
    STAMP,
    INTEGER,
    UNKNOWN,
    JSON_TEXT,
    BSON,
    UUID,
    FLOAT16,
    OTHER
} annotation;

typedef struct element {
    const char *name;
    bool has_type, has_children;
    int64_t type, length, repetition, children, scale;
    annotation logical;
    bool utc, is_signed;
    int digits, bits;
    int64_t subtree; /* elements, this one included */
} element;

typedef struct schema {
    af_parquet_meta *m;
    element *e;
    int64_t count;
    af_error *err;
} schema;

static af_status fail(const schema *s, const char *why)
{
    return af_fail(s->err, AF_EFORMAT, "%s: the parquet schema is damaged: %s", s->m->name, why);
}

static af_status fail_column(const schema *s, const af_parquet_node *n, const char *why)
{
    char path[AF_PARQUET_PATH];
    return af_fail(s->err, AF_EFORMAT, "%s: column %s: %s", s->m->name, af_parquet_path(n, path),
                   why);
}

const char *af_parquet_path(const af_parquet_node *n, char out[AF_PARQUET_PATH])
{
    const af_parquet_node *up[AF_PARQUET_DEPTH_MAX + 2];
    int count = 0;
    size_t used = 0;
    for (; n && n->parent && count < (int)AF_LEN(up); n = n->parent) /* the root has no name */
        up[count++] = n;
    for (out[0] = 0; count > 0 && used < AF_PARQUET_PATH; count--)
        used += (size_t)snprintf(out + used, AF_PARQUET_PATH - used, "%s%.80s", used ? "." : "",
                                 up[count - 1]->name);
    return out;
}

/* --- elements --- */

static void read_unit(af_thrift *t, element *e)
{
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);)
        e->digits = s.id == 1 ? 3 : s.id == 2 ? 6 : 9;
}

/* The fields of a logical type's own structure. */
static void read_parameters(af_thrift *t, element *e)
{
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        if (e->logical == DECIMAL && s.id == 1)
            e->scale = af_thrift_int(t, &s);
        else if ((e->logical == TIME || e->logical == STAMP) && s.id == 1)
            e->utc = af_thrift_bool(t, &s);
        else if ((e->logical == TIME || e->logical == STAMP) && s.id == 2 && af_thrift_enter(t, &s))
            read_unit(t, e);
        else if (e->logical == INTEGER && s.id == 1)
            e->bits = (int)af_thrift_int(t, &s);
        else if (e->logical == INTEGER && s.id == 2)
            e->is_signed = af_thrift_bool(t, &s);
    }
}

static void read_logical(af_thrift *t, element *e)
{
    static const annotation by_id[] = {NONE,      STRING, MAP,   LIST,   ENUM,    DECIMAL,
                                       DATE,      TIME,   STAMP, OTHER,  INTEGER, UNKNOWN,
                                       JSON_TEXT, BSON,   UUID,  FLOAT16};
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        e->logical = s.id < (int)AF_LEN(by_id) ? by_id[s.id] : OTHER;
        if (af_thrift_enter(t, &s))
            read_parameters(t, e);
    }
}

/* What an older writer says. */
static void use_converted(element *e, int64_t converted)
{
    static const struct {
        annotation logical;
        int digits, bits;
        bool is_signed;
    } by_number[] = {{STRING, 0, 0, false},   {MAP, 0, 0, false},       {MAP, 0, 0, false},
                     {LIST, 0, 0, false},     {ENUM, 0, 0, false},      {DECIMAL, 0, 0, false},
                     {DATE, 0, 0, false},     {TIME, 3, 0, false},      {TIME, 6, 0, false},
                     {STAMP, 3, 0, false},    {STAMP, 6, 0, false},     {INTEGER, 0, 8, false},
                     {INTEGER, 0, 16, false}, {INTEGER, 0, 32, false},  {INTEGER, 0, 64, false},
                     {INTEGER, 0, 8, true},   {INTEGER, 0, 16, true},   {INTEGER, 0, 32, true},
                     {INTEGER, 0, 64, true},  {JSON_TEXT, 0, 0, false}, {BSON, 0, 0, false}};
    if (e->logical != NONE || converted < 0 || converted >= (int64_t)AF_LEN(by_number))
        return;
    e->logical = by_number[converted].logical;
    e->digits = by_number[converted].digits;
    e->bits = by_number[converted].bits;
    e->is_signed = by_number[converted].is_signed;
}

static bool read_element(af_thrift *t, element *e, af_arena *mem)
{
    int64_t converted = -1, scale = 0;
    *e = (element){0};
    af_thrift_text name = {"", 0};
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        switch (s.id) {
        case 1:
            e->type = af_thrift_int(t, &s);
            e->has_type = true;
            break;
        case 2:
            e->length = af_thrift_int(t, &s);
            break;
        case 3:
            e->repetition = af_thrift_int(t, &s);
            break;
        case 4:
            name = af_thrift_string(t, &s);
            break;
        case 5:
            e->children = af_thrift_int(t, &s);
            e->has_children = true;
            break;
        case 6:
            converted = af_thrift_int(t, &s);
            break;
        case 7:
            scale = af_thrift_int(t, &s);
            break;
        case 10:
            if (af_thrift_enter(t, &s))
                read_logical(t, e);
            break;
        default:
            break;
        }
    }
    if (e->logical == NONE)
        e->scale = scale;
    use_converted(e, converted);
    e->name = af_arena_strndup(mem, name.at, name.len);
    return e->name != NULL;
}

/* --- the tree --- */

static const int widths[AF_PARQUET_TYPES] = {0, 4, 8, 12, 4, 8, 0, 0};

/* How the values of a leaf become JSON. */
static af_column_type leaf_type(const element *e, int width)
{
    af_column_type t = {.kind = AF_COLUMN_INT, .width = width, .is_signed = true};
    const bool whole = e->type == AF_PARQUET_INT32 || e->type == AF_PARQUET_INT64;
    const bool bytes = e->type == AF_PARQUET_BYTES || e->type == AF_PARQUET_FIXED;
    switch (e->type) {
    case AF_PARQUET_BOOL:
        t.kind = AF_COLUMN_BOOL;
        break;
    case AF_PARQUET_INT96:
        t.kind = AF_COLUMN_INT96;
        break;
    case AF_PARQUET_FLOAT:
    case AF_PARQUET_DOUBLE:
        t.kind = AF_COLUMN_FLOAT;
        break;
    case AF_PARQUET_BYTES:
    case AF_PARQUET_FIXED:
        t.kind = AF_COLUMN_BYTES;
        break;
    default:
        break;
    }
    if (bytes && (e->logical == STRING || e->logical == ENUM || e->logical == JSON_TEXT))
        t = (af_column_type){
            .kind = AF_COLUMN_TEXT, .width = width, .json = e->logical == JSON_TEXT};
    else if (bytes && e->logical == UUID && width == 16)
        t.kind = AF_COLUMN_UUID;
    else if (bytes && e->logical == FLOAT16 && width == 2)
        t.kind = AF_COLUMN_FLOAT;
    else if ((bytes || whole) && e->logical == DECIMAL)
        t = (af_column_type){
            .kind = AF_COLUMN_DECIMAL, .scale = (int)e->scale, .big_endian = bytes, .width = width};
    else if (whole && e->logical == INTEGER)
        t.is_signed = e->is_signed;
    else if (whole && (e->logical == DATE || e->logical == TIME || e->logical == STAMP))
        t = (af_column_type){.kind = e->logical == DATE   ? AF_COLUMN_DATE
                                     : e->logical == TIME ? AF_COLUMN_TIME
                                                          : AF_COLUMN_STAMP,
                             .width = width,
                             .digits = e->logical == DATE ? -1 : e->digits,
                             .zone = e->utc};
    return t;
}

static af_status make_leaf(const schema *s, af_parquet_node *n, const element *e)
{
    if (!e->has_type)
        return fail_column(s, n, "it has neither a type nor fields");
    if (e->type < 0 || e->type >= AF_PARQUET_TYPES)
        return fail_column(s, n, "its type is unknown");
    if (e->type == AF_PARQUET_FIXED && (e->length < 1 || e->length > 1 << 24))
        return fail_column(s, n, "a type of fixed length with no or too large a length");
    if (e->scale < -1000 || e->scale > 1000)
        return fail_column(s, n, "a decimal type with a scale beyond 1000");
    n->shape = AF_PARQUET_LEAF;
    n->physical = (af_parquet_type)e->type;
    n->width = e->type == AF_PARQUET_FIXED ? (int)e->length : widths[e->type];
    n->type = leaf_type(e, n->width);
    n->leaf_from = s->m->leaves;
    s->m->leaf[s->m->leaves++] = n;
    n->leaf_to = s->m->leaves;
    return AF_OK;
}

/* The levels inside of an element, and where it stands. */
typedef struct place {
    int def, rep, depth;
    const af_parquet_node *parent;
} place;

static af_status make_node(const schema *s, af_parquet_node **out, int64_t at, place in,
                           bool repeated_done);

static af_parquet_node *new_node(const schema *s, const element *e, const place *in)
{
    af_parquet_node *n = af_arena_take(&s->m->mem, sizeof *n);
    if (!n)
        return NULL;
    n->name = e->name;
    n->parent = in->parent;
    return n;
}

static af_status make_children(const schema *s, af_parquet_node *n, int64_t at, place in)
{
    const element *e = &s->e[at];
    af_status st = AF_OK;
    n->child = af_arena_take(&s->m->mem, (uint64_t)e->children * sizeof *n->child);
    if (!n->child)
        return af_fail_nomem(s->err, s->m->name, 0);
    n->leaf_from = s->m->leaves;
    at++;
    for (int64_t i = 0; i < e->children; i++) {
        AF_TRY(make_node(s, &n->child[i], at, in, false));
        at += s->e[at].subtree;
        n->count++;
    }
    n->leaf_to = s->m->leaves;
done:
    return st;
}

/* Is the repeated group inside a list the element itself? Older writers do without a level. */
static bool is_element(const element *e, const char *list)
{
    const size_t n = strlen(list);
    if (!e->has_children || e->children != 1 || e[1].repetition == REPEATED)
        return true;
    return strcmp(e->name, "array") == 0 ||
           (strncmp(e->name, list, n) == 0 && strcmp(e->name + n, "_tuple") == 0);
}

/* A list or a map: `inner` is its repeated group or value. */
static af_status make_repeated(const schema *s, af_parquet_node *n, int64_t inner, place in,
                               bool map, bool bare)
{
    const element *e = &s->e[inner];
    af_status st = AF_OK;
    in.def++;
    in.rep++;
    n->item_def = in.def;
    n->rep = in.rep;
    n->leaf_from = s->m->leaves;
    in.parent = n;
    in.depth++;
    if (map && e->children == 2) {
        n->shape = AF_PARQUET_MAP;
        AF_TRY(make_children(s, n, inner, in));
        return AF_OK;
    }
    n->shape = AF_PARQUET_LIST;
    n->child = af_arena_take(&s->m->mem, sizeof *n->child);
    if (!n->child)
        return af_fail_nomem(s->err, s->m->name, 0);
    n->count = 1;
    if (bare || is_element(e, n->name))
        AF_TRY(make_node(s, &n->child[0], inner, in, true));
    else
        AF_TRY(make_node(s, &n->child[0], inner + 1, in, false));
    n->leaf_to = s->m->leaves;
done:
    return st;
}

static af_status make_node(const schema *s, af_parquet_node **out, int64_t at, place in,
                           bool repeated_done)
{
    const element *e = &s->e[at];
    af_parquet_node *n = new_node(s, e, &in);
    if (!n)
        return af_fail_nomem(s->err, s->m->name, sizeof *n);
    *out = n;
    if (in.depth > AF_PARQUET_DEPTH_MAX)
        return af_fail(s->err, AF_EFORMAT, "%s: the columns are nested more than %d deep",
                       s->m->name, AF_PARQUET_DEPTH_MAX);
    if (e->repetition < REQUIRED || e->repetition > REPEATED)
        return fail_column(s, n, "it is neither required, optional nor repeated");
    if (e->repetition == REPEATED && !repeated_done) {
        n->def = in.def; /* a list without a group around it is never null */
        return make_repeated(s, n, at, in, false, true);
    }
    in.def += e->repetition == OPTIONAL;
    n->def = in.def;
    in.parent = n;
    in.depth++;
    if (!e->has_children) {
        n->leaf_rep = in.rep;
        return make_leaf(s, n, e);
    }
    if (e->children < 1)
        return fail_column(s, n, "it has neither a type nor fields");
    const bool map = e->logical == MAP;
    if ((map || e->logical == LIST) && e->children == 1 && e[1].repetition == REPEATED &&
        !repeated_done)
        return make_repeated(s, n, at + 1, in, map, false);
    n->shape = AF_PARQUET_STRUCT;
    return make_children(s, n, at, in);
}

/* The number of elements below each one. From the last to the first: no recursion. */
static af_status count_subtrees(const schema *s)
{
    for (int64_t i = s->count - 1; i >= 0; i--) {
        element *e = &s->e[i];
        int64_t at = i + 1;
        if (e->has_children && (e->children < 0 || e->children > s->count))
            return af_fail(s->err, AF_EFORMAT,
                           "%s: the parquet schema is damaged: '%.80s' has %" PRId64 " fields",
                           s->m->name, e->name, e->children);
        for (int64_t k = 0; k < e->children; k++) {
            if (at >= s->count)
                return fail(s, "it promises more fields than there are");
            at += s->e[at].subtree;
        }
        e->has_children &= e->children > 0 || !e->has_type;
        e->subtree = at - i;
    }
    return s->e[0].subtree == s->count ? AF_OK : fail(s, "it has fields that belong to nothing");
}

af_status af_parquet_schema_read(af_parquet_meta *m, af_thrift *t, af_thrift_struct *f,
                                 af_error *err)
{
    af_status st = AF_OK;
    const uint64_t n = af_thrift_structs(t, f);
    schema s = {m, NULL, (int64_t)n, err};
    if (t->bad || n == 0 || n > 1 << 20)
        return fail(&s, t->bad ? "it ends too early" : n ? "it is too large" : "it is empty");
    s.e = af_calloc(n, sizeof *s.e);
    m->leaf = af_arena_take(&m->mem, n * sizeof *m->leaf);
    if (!s.e || !m->leaf) {
        st = af_fail_nomem(err, m->name, n * sizeof *s.e);
        goto done;
    }
    for (uint64_t i = 0; i < n && !t->bad; i++)
        if (!read_element(t, &s.e[i], &m->mem)) {
            st = af_fail_nomem(err, m->name, 0);
            goto done;
        }
    if (t->bad) {
        st = fail(&s, "it ends too early");
        goto done;
    }
    AF_TRY(count_subtrees(&s));
    m->root = new_node(&s, &s.e[0], &(place){0});
    if (!m->root || s.e[0].children < 1) {
        st = m->root ? fail(&s, "it has no columns") : af_fail_nomem(err, m->name, 0);
        goto done;
    }
    m->root->shape = AF_PARQUET_STRUCT;
    AF_TRY(make_children(&s, m->root, 0, (place){.parent = m->root}));
done:
    free(s.e);
    return st;
}
