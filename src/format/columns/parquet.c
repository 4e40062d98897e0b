/* parquet.c - records of a parquet file, put together from the levels of their columns. */
#include "format/columns/parquet.h"

#include "format/columns/parquet_leaf.h"

struct af_parquet {
    af_parquet_meta m;
    const af_map *map;
    af_parquet_leaf *leaf; /* [m.leaves] */
    bool *left_out;        /* [columns] */
    bool unfold;           /* see af_columns_unfold */
    int group;             /* that is read */
    int64_t group_left;    /* rows of it */
    bool group_open;
    int64_t row; /* that is read, from 1 */
};

/* The names of all fields as JSON text. */
static af_status make_keys(af_parquet *p, af_parquet_node *n, af_error *err)
{
    af_buf key = {0};
    af_status st = AF_OK;
    char path[AF_PARQUET_PATH];
    const char *why = af_column_put_text(&key, n->name, strlen(n->name));
    af_buf_char(&key, ':');
    n->key_len = key.len;
    n->key = key.bad || why ? NULL : af_arena_strndup(&p->m.mem, key.data, key.len);
    if (why)
        st = af_fail(err, AF_EFORMAT, "%s: column %s: its name is not UTF-8", p->m.name,
                     af_parquet_path(n->parent, path));
    else if (!n->key)
        st = af_fail_nomem(err, p->m.name, key.len);
    for (int i = 0; i < n->count && st == AF_OK; i++)
        st = make_keys(p, n->child[i], err);
    af_buf_clear(&key);
    return st;
}

af_status af_parquet_open(af_parquet **out, const char *name, const af_map *map, bool mapped,
                          af_error *err)
{
    af_status st = AF_OK;
    af_parquet *p = af_calloc(1, sizeof *p);
    if (!p)
        return af_fail_nomem(err, name, sizeof *p);
    p->map = map;
    p->row = 1;
    AF_TRY(af_parquet_meta_read(&p->m, name, map->data, map->size, err));
    AF_TRY(make_keys(p, p->m.root, err));
    p->left_out = af_calloc((uint64_t)p->m.root->count, sizeof *p->left_out);
    p->leaf = af_calloc((uint64_t)p->m.leaves, sizeof *p->leaf);
    if (!p->left_out || !p->leaf) {
        st = af_fail_nomem(err, name, (uint64_t)p->m.leaves * sizeof *p->leaf);
        goto done;
    }
    for (int i = 0; i < p->m.leaves; i++) {
        af_parquet_leaf *l = &p->leaf[i];
        l->m = &p->m;
        l->node = p->m.leaf[i];
        l->map = p->map;
        l->index = i;
        l->mapped = mapped;
        l->row = &p->row;
    }
    *out = p;
    p = NULL;
done:
    af_parquet_close(p);
    return st;
}

void af_parquet_close(af_parquet *p)
{
    if (!p)
        return;
    for (int i = 0; p->leaf && i < p->m.leaves; i++)
        af_parquet_leaf_clear(&p->leaf[i]);
    free(p->leaf);
    free(p->left_out);
    af_parquet_meta_clear(&p->m);
    free(p);
}

int64_t af_parquet_rows(const af_parquet *p) { return p->m.rows; }

void af_parquet_unfold(af_parquet *p) { p->unfold = true; }

void af_parquet_project(af_parquet *p, af_columns_want *want, const void *user)
{
    for (int i = 0; i < p->m.root->count; i++)
        p->left_out[i] |= !want(user, p->m.root->child[i]->name);
}

/* --- one record --- */

typedef struct writer {
    af_parquet *p;
    af_buf *b;
    af_error *err;
} writer;

/* Null, or a list without items: one entry of each column below. */
static af_status pass_over(const writer *w, const af_parquet_node *n)
{
    const uint32_t def = af_parquet_leaf_def(&w->p->leaf[n->leaf_from]);
    af_status st = AF_OK;
    for (int i = n->leaf_from; i < n->leaf_to; i++) {
        af_parquet_leaf *l = &w->p->leaf[i];
        if (l->done || af_parquet_leaf_def(l) != def)
            return af_parquet_leaf_fail(l, w->err, "it disagrees with the columns next to it");
        AF_TRY(af_parquet_leaf_step(l, w->err));
    }
done:
    return st;
}

static af_status put_leaf(const writer *w, const af_parquet_node *n)
{
    af_parquet_leaf *l = &w->p->leaf[n->leaf_from];
    const uint8_t *p = NULL;
    uint64_t len = 0;
    af_status st = AF_OK;
    AF_TRY(af_parquet_leaf_value(l, &p, &len, w->err));
    const char *why = w->p->unfold ? af_column_put_inside(w->b, &n->type, p, len)
                                   : af_column_put(w->b, &n->type, p, len);
    if (why)
        return af_parquet_leaf_fail(l, w->err, "%s", why);
    AF_TRY(af_parquet_leaf_step(l, w->err));
done:
    return st;
}

/* Does another item follow? All columns below have to agree. */
static af_status has_more(const writer *w, const af_parquet_node *n, bool *more)
{
    const uint32_t rep = af_parquet_leaf_rep(&w->p->leaf[n->leaf_from]);
    *more = rep == (uint32_t)n->rep;
    for (int i = n->leaf_from; i < n->leaf_to; i++)
        if (af_parquet_leaf_rep(&w->p->leaf[i]) != rep || rep > (uint32_t)n->rep)
            return af_parquet_leaf_fail(&w->p->leaf[i], w->err,
                                        "its lists have other lengths than those next to it");
    return AF_OK;
}

static af_status put_node(const writer *w, const af_parquet_node *n);

static af_status put_struct(const writer *w, const af_parquet_node *n)
{
    af_status st = AF_OK;
    bool any = false;
    af_buf_char(w->b, '{');
    for (int i = 0; i < n->count; i++) {
        const uint64_t field = w->b->len;
        if (any)
            af_buf_char(w->b, ',');
        af_buf_add(w->b, n->child[i]->key, n->child[i]->key_len);
        const uint64_t value = w->b->len;
        AF_TRY(put_node(w, n->child[i]));
        any = !(w->p->unfold && af_column_drop_null(w->b, field, value)) || any;
    }
    af_buf_char(w->b, '}');
done:
    return st;
}

static af_status too_long(const writer *w)
{
    return af_memory_failed()
               ? af_fail_nomem(w->err, w->p->m.name, w->b->len)
               : af_fail(w->err, AF_EFORMAT,
                         "%s: row group %d, row %" PRId64 ": a record of more than %" PRIu64 " MiB",
                         w->p->m.name, w->p->group, w->p->row, w->b->limit >> 20);
}

static af_status put_list(const writer *w, const af_parquet_node *n)
{
    af_status st = AF_OK;
    af_buf_char(w->b, '[');
    for (bool more = true, first = true; more; first = false) {
        if (!first)
            af_buf_char(w->b, ',');
        if (n->shape == AF_PARQUET_MAP) {
            af_buf_char(w->b, '[');
            AF_TRY(put_node(w, n->child[0]));
            af_buf_char(w->b, ',');
            AF_TRY(put_node(w, n->child[1]));
            af_buf_char(w->b, ']');
        } else {
            AF_TRY(put_node(w, n->child[0]));
        }
        AF_TRY(has_more(w, n, &more));
        if (w->b->bad)
            return too_long(w);
    }
    af_buf_char(w->b, ']');
done:
    return st;
}

static af_status put_node(const writer *w, const af_parquet_node *n)
{
    af_parquet_leaf *l = &w->p->leaf[n->leaf_from];
    if (l->done)
        return af_parquet_leaf_fail(l, w->err, "it has fewer values than the row group has rows");
    const uint32_t def = af_parquet_leaf_def(l);
    if (def < (uint32_t)n->def) {
        af_buf_add(w->b, "null", 4);
        return pass_over(w, n);
    }
    switch (n->shape) {
    case AF_PARQUET_LEAF:
        return put_leaf(w, n);
    case AF_PARQUET_STRUCT:
        return put_struct(w, n);
    case AF_PARQUET_LIST:
    case AF_PARQUET_MAP:
        break;
    }
    if (def >= (uint32_t)n->item_def)
        return put_list(w, n);
    af_buf_add(w->b, "[]", 2);
    return pass_over(w, n);
}

static af_status put_record(const writer *w)
{
    const af_parquet_node *root = w->p->m.root;
    af_status st = AF_OK;
    bool any = false;
    af_buf_char(w->b, '{');
    for (int i = 0; i < root->count; i++) {
        const af_parquet_node *n = root->child[i];
        if (w->p->left_out[i])
            continue;
        if (any)
            af_buf_char(w->b, ',');
        any = true;
        af_buf_add(w->b, n->key, n->key_len);
        AF_TRY(put_node(w, n));
        for (int k = n->leaf_from; k < n->leaf_to; k++)
            if (af_parquet_leaf_rep(&w->p->leaf[k]) != 0)
                return af_parquet_leaf_fail(&w->p->leaf[k], w->err,
                                            "its repetition levels do not fit the schema");
    }
    af_buf_char(w->b, '}');
    if (w->b->bad)
        return too_long(w);
done:
    return st;
}

/* --- row groups --- */

static af_status open_group(af_parquet *p, af_error *err)
{
    const af_parquet_node *root = p->m.root;
    for (int i = 0; i < root->count; i++)
        for (int k = root->child[i]->leaf_from; k < root->child[i]->leaf_to; k++) {
            const af_status st =
                p->left_out[i] ? AF_OK : af_parquet_leaf_open(&p->leaf[k], p->group, err);
            if (st != AF_OK)
                return st;
        }
    p->group_left = p->m.group[p->group].rows;
    p->group_open = true;
    return AF_OK;
}

/* All values were used. */
static af_status close_group(af_parquet *p, af_error *err)
{
    const af_parquet_node *root = p->m.root;
    for (int i = 0; i < root->count; i++)
        for (int k = root->child[i]->leaf_from; k < root->child[i]->leaf_to; k++)
            if (!p->left_out[i] && !p->leaf[k].done)
                return af_parquet_leaf_fail(&p->leaf[k], err,
                                            "it has more values than the row group has rows");
    p->group_open = false;
    p->group++;
    return AF_OK;
}

/* To the group of the next row; none is left when p->group == p->m.groups. */
static af_status find_group(af_parquet *p, af_error *err)
{
    af_status st = AF_OK;
    while (p->group < p->m.groups) {
        if (!p->group_open)
            AF_TRY(open_group(p, err));
        if (p->group_left > 0)
            return AF_OK;
        AF_TRY(close_group(p, err));
    }
done:
    return st;
}

af_status af_parquet_next(af_parquet *p, af_buf *text, bool *got, af_error *err)
{
    af_status st = AF_OK;
    *got = false;
    AF_TRY(find_group(p, err));
    if (p->group == p->m.groups)
        return AF_OK;
    AF_TRY(put_record(&(writer){p, text, err}));
    p->group_left--;
    p->row++;
    *got = true;
done:
    return st;
}
