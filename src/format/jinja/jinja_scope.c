/* jinja_scope.c - which names a scope makes undefined from its start.
 *
 * Jinja decides by reading the template once where each name lives. A name that a scope first
 * stores, outside any if and with no mention in the scopes around it, is undefined in the whole
 * scope before that store, also inside loops and macros within it, even when a variable of that
 * name was passed in. Everything else is what a lookup through the scopes at run time gives. The
 * same walk refuses unknown filters and tests, except under an if, where they fail when reached. */
#include "format/jinja/jinja.h"

typedef struct macro_chain {
    af_jnode *macro;
    struct macro_chain *up;
} macro_chain;

typedef struct symbols {
    struct symbols *up;
    const af_jstr **slot; /* every name mentioned at this level */
    uint64_t n, slots;
    af_jstr **undef;
    int nundef, cundef;
    int branch; /* open ifs */
    macro_chain *macros;
} symbols;

static void nomem(af_jparser *p) { af_jsyntax(p, 1, "the template needs too much memory"); }

static bool has(const symbols *s, const af_jstr *name)
{
    if (!s->slots)
        return false;
    for (uint64_t k = name->hash & (s->slots - 1); s->slot[k]; k = (k + 1) & (s->slots - 1))
        if (s->slot[k] == name)
            return true;
    return false;
}

static bool known(const symbols *s, const af_jstr *name)
{
    for (; s; s = s->up)
        if (has(s, name))
            return true;
    return false;
}

static void put(const af_jstr **slot, uint64_t slots, const af_jstr *name)
{
    uint64_t k = name->hash & (slots - 1);
    while (slot[k])
        k = (k + 1) & (slots - 1);
    slot[k] = name;
}

static void mention(af_jparser *p, symbols *s, const af_jstr *name)
{
    if (has(s, name) || p->failed)
        return;
    if (s->n * 2 >= s->slots) {
        const uint64_t slots = s->slots ? s->slots * 2 : 16;
        const af_jstr **slot = af_calloc(slots, sizeof *slot);
        if (!slot) {
            nomem(p);
            return;
        }
        for (uint64_t i = 0; i < s->slots; i++)
            if (s->slot[i])
                put(slot, slots, s->slot[i]);
        free(s->slot);
        s->slot = slot;
        s->slots = slots;
    }
    put(s->slot, s->slots, name);
    s->n++;
}

static void load(af_jparser *p, symbols *s, const af_jstr *name)
{
    const af_template *t = p->t;
    const uint8_t use = name == t->caller    ? AF_USES_CALLER
                        : name == t->varargs ? AF_USES_VARARGS
                        : name == t->kwargs  ? AF_USES_KWARGS
                                             : 0;
    for (macro_chain *m = use ? s->macros : NULL; m; m = m->up)
        m->macro->uses |= use;
    if (!known(s, name))
        mention(p, s, name);
}

static void store(af_jparser *p, symbols *s, af_jstr *name)
{
    if (has(s, name) || p->failed)
        return;
    const bool outer = known(s->up, name);
    mention(p, s, name);
    if (outer || s->branch)
        return;
    if (s->nundef == s->cundef) {
        const int cap = s->cundef ? s->cundef * 2 : 8;
        af_jstr **undef = af_arena_take(&p->t->mem, (uint64_t)cap * sizeof *undef);
        if (!undef) {
            nomem(p);
            return;
        }
        if (s->nundef)
            memcpy(undef, s->undef, (size_t)s->nundef * sizeof *undef);
        s->undef = undef;
        s->cundef = cap;
    }
    s->undef[s->nundef++] = name;
}

typedef enum store_as { STORE, PARAM } store_as;

static void target(af_jparser *p, symbols *s, const af_jnode *n, store_as as)
{
    if (n->op == AF_N_TUPLE) {
        for (int i = 0; i < n->list.n; i++)
            target(p, s, n->list.item[i], as);
    } else if (n->op == AF_N_NSREF) {
        load(p, s, n->name);
    } else if (as == PARAM) {
        mention(p, s, n->name);
    } else {
        store(p, s, n->name);
    }
}

static void expr(af_jparser *p, symbols *s, const af_jnode *n, bool soft);

static void exprs(af_jparser *p, symbols *s, const af_jnodes *l, bool soft)
{
    for (int i = 0; i < l->n; i++)
        expr(p, s, l->item[i], soft);
}

static void expr(af_jparser *p, symbols *s, const af_jnode *n, bool soft)
{
    if (!n || p->failed)
        return;
    soft = soft || n->op == AF_N_COND;
    if (n->op == AF_N_NAME)
        load(p, s, n->name);
    if ((n->op == AF_N_FILTER || n->op == AF_N_TEST) && !n->func && !soft)
        af_jsyntax(p, n->line, "No %s named '%s'.", n->op == AF_N_TEST ? "test" : "filter",
                   n->name->p);
    expr(p, s, n->a, soft);
    expr(p, s, n->b, soft);
    expr(p, s, n->c, soft);
    exprs(p, s, &n->list, soft);
    exprs(p, s, &n->list2, soft);
    if (!n->args)
        return;
    exprs(p, s, &n->args->pos, soft);
    exprs(p, s, &n->args->kw, soft);
    expr(p, s, n->args->dyn_pos, soft);
    expr(p, s, n->args->dyn_kw, soft);
}

static void level(af_jparser *p, symbols *s, const af_jnodes *body, bool soft);

static void level_if(af_jparser *p, symbols *s, const af_jnode *n)
{
    s->branch++;
    for (int i = 0; i < n->list.n; i++) {
        const af_jnode *branch = n->list.item[i];
        s->branch -= i == 0; /* the first condition is read in any case; it stores nothing */
        expr(p, s, branch->a, true);
        s->branch += i == 0;
        level(p, s, &branch->list, true);
    }
    level(p, s, &n->list2, true);
    s->branch--;
}

/* What a statement mentions at the level it stands on, in the order it is evaluated. */
static void level_one(af_jparser *p, symbols *s, const af_jnode *n, bool soft)
{
    switch (n->op) {
    case AF_N_PRINT:
        exprs(p, s, &n->list, soft);
        break;
    case AF_N_IF:
        level_if(p, s, n);
        break;
    case AF_N_FOR:
        expr(p, s, n->b, soft);
        break;
    case AF_N_SET:
        expr(p, s, n->b, soft);
        target(p, s, n->a, STORE);
        break;
    case AF_N_SETBLOCK:
        target(p, s, n->a, STORE);
        break;
    case AF_N_MACRO:
        store(p, s, n->name);
        break;
    case AF_N_CALLBLOCK:
    case AF_N_FILTERBLOCK:
        expr(p, s, n->a, soft);
        break;
    case AF_N_WITH:
        exprs(p, s, &n->list3, soft);
        break;
    default:
        break;
    }
}

static void level(af_jparser *p, symbols *s, const af_jnodes *body, bool soft)
{
    for (int i = 0; i < body->n && !p->failed; i++)
        level_one(p, s, body->item[i], soft);
}

static void scope(af_jparser *p, symbols *up, af_jnode *n);

/* Goes into the scopes that a body opens; a body's own names are complete by then. */
static void inner(af_jparser *p, symbols *s, const af_jnodes *body)
{
    for (int i = 0; i < body->n && !p->failed; i++) {
        af_jnode *n = body->item[i];
        if (n->op == AF_N_IF) {
            for (int k = 0; k < n->list.n; k++)
                inner(p, s, &n->list.item[k]->list);
            inner(p, s, &n->list2);
        } else if (n->op >= AF_N_FOR && n->op <= AF_N_SCOPE && n->op != AF_N_SET) {
            scope(p, n->op == AF_N_BLOCK ? NULL : s, n);
        }
    }
}

static void params(af_jparser *p, symbols *s, const af_jnode *n)
{
    const bool function = n->op == AF_N_MACRO || n->op == AF_N_CALLBLOCK;
    if (n->op == AF_N_FOR) {
        target(p, s, n->a, PARAM);
        mention(p, s, p->t->loop);
    }
    for (int i = 0; (function || n->op == AF_N_WITH) && i < n->list2.n; i++)
        target(p, s, n->list2.item[i], PARAM);
    if (function)
        exprs(p, s, &n->list3, false);
    if (n->op == AF_N_SETBLOCK || n->op == AF_N_SCOPE)
        expr(p, s, n->op == AF_N_SCOPE ? n->a : n->b, false);
}

/* The condition of "for x in y if z" is a scope that knows the targets only. */
static void for_test(af_jparser *p, symbols *up, const af_jnode *n)
{
    symbols s = {.up = up, .macros = up ? up->macros : NULL};
    target(p, &s, n->a, PARAM);
    expr(p, &s, n->c, false);
    free(s.slot);
}

static void scope(af_jparser *p, symbols *up, af_jnode *n)
{
    macro_chain link = {.macro = n, .up = up ? up->macros : NULL};
    symbols s = {.up = up, .macros = n->op == AF_N_MACRO ? &link : link.up};
    const int captures = p->captures;
    p->captures += n->op == AF_N_MACRO || n->op == AF_N_CALLBLOCK || n->flag;
    params(p, &s, n);
    if (n->op == AF_N_FOR && n->c)
        for_test(p, up, n);
    level(p, &s, &n->list, false);
    n->undef = s.undef;
    n->nundef = s.nundef;
    inner(p, &s, &n->list);
    n->captured = p->captures > captures;
    free(s.slot);
    if (n->op == AF_N_FOR) /* the else branch lies outside the loop's scope */
        inner(p, up, &n->list2);
}

void af_jscopes(af_jparser *p, af_jnode *root) { scope(p, NULL, root); }
