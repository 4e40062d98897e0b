/* jinja.h - the template interpreter: values, running state, and a map of its files.
 *
 * The prefix af_j stands for Jinja: af_jval is a value, af_jstr a string, af_jcall a call.
 *
 * From source to output:
 *
 *   text --jinja_lexer--> tokens --jinja_parser, jinja_expr--> tree with resolved scopes
 *   --jinja_exec (statements), jinja_eval (expressions)--> output
 *
 * Files, each using only those above it:
 *
 *   jinja_value.c      latched failure, limits, strings, lists, generators, arguments
 *   jinja_text.c       str(), repr(), HTML escaping
 *   jinja_compare.c    truth, equality, order, hashes, dicts, `in`, sorting
 *   jinja_item.c       a[i], a[i:j:k] without attributes
 *   jinja_format.c     "..." % values and "...".format(values)
 *   jinja_op.c         + - * / // % ** and unary minus
 *   jinja_str.c        methods of str
 *   jinja_attr.c       methods and fields of all other types; a.b and a['b']
 *   jinja_filters.c    filters that make text or numbers
 *   jinja_sequences.c  filters over sequences
 *   jinja_tojson.c     the tojson filter
 *   jinja_functions.c  tests, global functions, and the lookup of every table
 *   jinja_eval.c       expressions at run time, binding of arguments to parameters
 *   jinja_exec.c       statements at run time: output, loops, macros, assignment
 *
 *   jinja_ast.h        tokens, syntax tree, parser state
 *   jinja_lexer.c      text to tokens, white space control
 *   jinja_expr.c       expressions to tree
 *   jinja_parser.c     statements to tree; scopes
 *
 * Python's character classes, case and number formats are in format/text/python_text.h.
 *
 * Values are those of Python as far as a template can see them. Lists, tuples and dicts are never
 * changed once a template sees them (the sandbox refuses that), so they are shared freely. All
 * memory of a rendering comes from one arena.
 *
 * Failure is latched: af_jfail sets `failed`, every function then returns quickly with any value,
 * and the caller checks the flag once. Loops must check it too. What is not supported, and why
 * there is an interpreter of our own at all: docs/decisions/0021-own-jinja.md. */
#ifndef AF_JINJA_H
#define AF_JINJA_H

#include "base/arena.h"
#include "base/base.h"
#include "base/buf.h"

#include "format/text/unicode.h"

#include "afinar/chat.h"

#include <time.h>

#define AF_JINJA_RANGE_MAX 100000    /* items of a range, as in Jinja's sandbox                */
#define AF_JINJA_EVAL_MAX  3000      /* nested evaluations: bounds the C stack                 */
#define AF_JINJA_CALL_MAX  250       /* nested macro calls; Python's limit is about the same   */
#define AF_JINJA_ARGS_MAX  32        /* arguments of one call                                  */
#define AF_JINJA_BIND_MAX  4         /* parameters of a built-in function                      */
#define AF_JINJA_PAD_MAX   100000000 /* characters of a padded field, bytes of a repeated str  */

typedef enum af_jkind {
    AF_JKIND_UNDEF, /* s: the message an operation on it fails with */
    AF_JKIND_NONE,
    AF_JKIND_BOOL,
    AF_JKIND_INT,
    AF_JKIND_FLOAT,
    AF_JKIND_STR,
    AF_JKIND_LIST, /* list, tuple, range and view are all an af_jlist */
    AF_JKIND_TUPLE,
    AF_JKIND_RANGE,
    AF_JKIND_VIEW, /* dict.keys(), values(), items() */
    AF_JKIND_DICT,
    AF_JKIND_NAMESPACE,
    AF_JKIND_ITER, /* a generator: computed on first use, iterated once */
    AF_JKIND_LOOP,
    AF_JKIND_MACRO,
    AF_JKIND_FUNC,
    AF_JKIND_METHOD,
    AF_JKIND_CYCLER,
    AF_JKIND_JOINER,
    AF_JKIND_MISSING /* an argument that was not passed; never visible to a template */
} af_jkind;

typedef struct af_jstr {
    const char *p; /* valid UTF-8 */
    uint64_t n;    /* bytes */
    uint64_t cps;  /* code points; equal to n when all is ASCII */
    uint64_t hash; /* 0 = not computed */
} af_jstr;

typedef struct af_jval af_jval;
typedef struct af_jdict af_jdict;
typedef struct af_jinja af_jinja;
typedef struct af_jargs af_jargs;
typedef struct af_jcall af_jcall;
typedef struct af_jscope af_jscope;

typedef struct af_jlist {
    af_jval *item;
    int64_t n, cap;
    const char *view; /* of a view: "keys", "values" or "items" */
    int64_t *range;   /* of a range: start, stop, step */
    bool group;       /* a tuple of groupby: has .grouper and .list */
} af_jlist;

/* One row of a table: a filter, test, method or global function; "a|b" has two names. `params`
 * names the parameters after the first ("a,b?,c?": a question mark = optional; a leading slash: not
 * by keyword); NULL = the function reads call->all itself. `aux` lets one function serve several
 * names. */
typedef struct af_jfunc {
    const char *name, *params;
    af_jval (*run)(const af_jcall *call);
    int aux;
} af_jfunc;

typedef struct af_jmethod {
    const af_jfunc *func;
    af_jval *self;
} af_jmethod;

typedef struct af_jmacro af_jmacro; /* jinja_exec.c */

typedef struct af_jloop {
    af_jlist *items;
    int64_t at;
    int depth;
    af_jlist *changed;         /* arguments loop.changed saw last, NULL = none yet */
    const struct af_jstmt *of; /* of a recursive loop, else NULL */
    af_jscope *closure;
} af_jloop;

typedef struct af_jcycle { /* cycler and joiner */
    af_jlist *items;
    int64_t at;
} af_jcycle;

typedef struct af_jiter {
    af_jlist *list; /* NULL until `make` ran */
    int64_t at;
    af_jlist *(*make)(const af_jcall *call);
    const af_jcall *call;
} af_jiter;

struct af_jval {
    uint8_t kind;
    bool markup; /* a string marked safe: joined with others, it escapes them */
    union {
        bool b;
        int64_t i;
        double f;
        af_jstr *s;
        af_jlist *l;
        af_jdict *d;
        af_jiter *iter;
        af_jloop *loop;
        af_jmacro *macro;
        const af_jfunc *func;
        af_jmethod *method;
        af_jcycle *cycle;
    };
};

typedef struct af_jpair {
    af_jval key, val;
    uint64_t hash;
} af_jpair;

struct af_jdict {
    af_jpair *pair;
    int64_t n, cap;
};

typedef struct af_jkeyword {
    af_jstr *name;
    af_jval val;
} af_jkeyword;

struct af_jargs {
    af_jval pos[AF_JINJA_ARGS_MAX];
    int n;
    af_jkeyword kw[AF_JINJA_ARGS_MAX];
    int nkw;
};

/* A call of a table row: its arguments bound to the row's parameters. */
struct af_jcall {
    af_jinja *j;
    const af_jfunc *func;
    af_jval self;
    const af_jval *arg; /* one per parameter, kind AF_JKIND_MISSING = not passed */
    const af_jargs *all;
};

typedef enum af_jtable { AF_JTABLE_FILTER, AF_JTABLE_TEST, AF_JTABLE_GLOBAL } af_jtable;

struct af_jinja {
    const af_template *t;
    af_arena mem;
    af_error *err;
    bool failed;
    int line;
    uint64_t steps;
    int depth, calls;
    uintptr_t stack;    /* address of a local of the outermost evaluation */
    uint64_t stack_max; /* bytes below it that may be used */
    af_buf *out;        /* where output goes now */
    af_buf *root;       /* the rendering itself */
    af_jdict *vars;
    struct tm now; /* what strftime_now shows */
    af_buf spans;  /* of af_span */
    /* What lower files call upwards: filters such as map run others by name, and an expression
     * calls a macro or a recursive loop, which runs statements. */
    const af_jfunc *(*find)(af_jtable table, const af_jstr *name);
    af_jval (*run)(af_jinja *j, const af_jfunc *f, af_jval self, const af_jargs *args);
    af_jval (*call_body)(af_jinja *j, af_jval callee, const af_jargs *args);
    af_jstr no_str; /* returned after a failure: empty, never written to */
    af_jlist no_list;
    af_jdict no_dict;
};

/* --- running state (jinja_value.c) ----------------------------------------------------------- */
/* Latches an error of the template's current line. Returns an undefined value. */
AF_PRINTF(2, 3) af_jval af_jfail(af_jinja *j, const char *fmt, ...);
/* The same for a value of the wrong type: an undefined one fails with its own message instead. */
AF_PRINTF(3, 4) af_jval af_jfail_type(af_jinja *j, af_jval v, const char *fmt, ...);
/* Takes memory from the rendering's arena; NULL and failed when the limit is reached. */
void *af_jtake(af_jinja *j, uint64_t bytes);
/* An array with space for one more item than n: `items`, or a larger copy. NULL: failed. */
void *af_jgrown(af_jinja *j, void *items, int64_t n, int64_t *cap, uint64_t size);
/* Counts work: one step per node, item, or 64 bytes read. False after too many, or a failure. */
bool af_jstep(af_jinja *j, uint64_t steps);
/* Guard recursion: every enter that returned true needs a leave. */
bool af_jenter(af_jinja *j);
void af_jleave(af_jinja *j);

/* --- values (jinja_value.c) ------------------------------------------------------------------ */
static inline af_jval af_jnone(void) { return (af_jval){.kind = AF_JKIND_NONE}; }
static inline af_jval af_jmissing(void) { return (af_jval){.kind = AF_JKIND_MISSING}; }
static inline af_jval af_jbool(bool b) { return (af_jval){.kind = AF_JKIND_BOOL, .b = b}; }
static inline af_jval af_jint(int64_t i) { return (af_jval){.kind = AF_JKIND_INT, .i = i}; }
static inline af_jval af_jfloat(double f) { return (af_jval){.kind = AF_JKIND_FLOAT, .f = f}; }
static inline af_jval af_jlist_v(af_jlist *l) { return (af_jval){.kind = AF_JKIND_LIST, .l = l}; }
static inline af_jval af_jtuple_v(af_jlist *l) { return (af_jval){.kind = AF_JKIND_TUPLE, .l = l}; }
static inline af_jval af_jdict_v(af_jdict *d) { return (af_jval){.kind = AF_JKIND_DICT, .d = d}; }
static inline af_jval af_jstr_v(const af_jstr *s)
{
    return (af_jval){.kind = AF_JKIND_STR, .s = (af_jstr *)s};
}
static inline af_jval af_jmark(af_jval s, bool markup)
{
    s.markup = markup;
    return s;
}
/* An int or a bool, whose integer value af_jinteger reads. */
static inline bool af_jis_int(af_jval v)
{
    return v.kind == AF_JKIND_INT || v.kind == AF_JKIND_BOOL;
}
static inline int64_t af_jinteger(af_jval v) { return v.kind == AF_JKIND_BOOL ? v.b : v.i; }
static inline bool af_jis_number(af_jval v) { return af_jis_int(v) || v.kind == AF_JKIND_FLOAT; }
static inline double af_jnumber(af_jval v)
{
    return v.kind == AF_JKIND_FLOAT ? v.f : (double)af_jinteger(v);
}
static inline bool af_jis_list(af_jval v) /* the kinds whose value is an af_jlist */
{
    return v.kind >= AF_JKIND_LIST && v.kind <= AF_JKIND_VIEW;
}
static inline bool af_jgiven(af_jval v)
{
    return v.kind != AF_JKIND_MISSING && v.kind != AF_JKIND_NONE;
}
const char *af_jtype(af_jval v); /* Python's name of the type */
AF_PRINTF(2, 3) af_jval af_jundef(af_jinja *j, const char *fmt, ...);
af_jval af_jstr_new(af_jinja *j, const char *p, uint64_t n); /* copies */
af_jval af_jstr_lit(af_jinja *j, const char *s);             /* keeps the pointer */
af_jval af_jstr_take(af_jinja *j, af_buf *b);                /* copies and clears the buffer */
/* A part of a string by bytes; shares its memory and its mark. */
af_jval af_jstr_part(af_jinja *j, af_jval v, uint64_t from, uint64_t to);
void af_jstr_fill(af_jstr *s, const char *p, uint64_t n);
bool af_jstr_is(const af_jstr *s, const char *lit);
uint64_t af_jstr_hash(af_jstr *s);
uint64_t af_jstr_at(const af_jstr *s, uint64_t i); /* byte offset of code point i (i <= cps) */
af_jlist *af_jlist_new(af_jinja *j, int64_t cap);
void af_jlist_add(af_jinja *j, af_jlist *l, af_jval v);
af_jlist *af_jargs_list(af_jinja *j, const af_jargs *args, int from); /* by position */
af_jval af_jtuple2(af_jinja *j, af_jval a, af_jval b);
/* A generator: make(call) builds its items when the first one is requested. */
af_jval af_jgenerator(const af_jcall *call, af_jlist *(*make)(const af_jcall *call));
bool af_jiter_next(af_jinja *j, af_jiter *it, af_jval *out);
/* All items, in order; takes the remaining ones of a generator. Never NULL. Fails on a value that
 * cannot be iterated. */
af_jlist *af_jitems(af_jinja *j, af_jval v);
bool af_jiterable(af_jval v);
int64_t af_jlength(af_jval v); /* -1 when the value has no length */

/* Arguments: the value of parameter i, `absent` when it was not passed or is None. Fail, naming
 * the function, when the type is wrong. af_jarg_str never returns NULL. */
int64_t af_jarg_int(const af_jcall *c, int i, int64_t absent);
const af_jstr *af_jarg_str(const af_jcall *c, int i, const char *absent);
bool af_jarg_true(const af_jcall *c, int i);

void af_jprint(af_jinja *j, af_buf *b, af_jval v); /* str() */
void af_jrepr(af_jinja *j, af_buf *b, af_jval v);
af_jval af_jtostr(af_jinja *j, af_jval v);   /* str(): never markup */
af_jval af_jsoftstr(af_jinja *j, af_jval v); /* str(), but markup stays markup */
af_jval af_jescape(af_jinja *j, af_jval v);  /* HTML-escaped markup */

typedef enum af_jcmp {
    AF_JCMP_EQ,
    AF_JCMP_NE,
    AF_JCMP_LT,
    AF_JCMP_LE,
    AF_JCMP_GT,
    AF_JCMP_GE,
    AF_JCMP_IN,
    AF_JCMP_NOTIN
} af_jcmp;
bool af_jtruth(const af_jval *v);
bool af_jequal(af_jinja *j, af_jval a, af_jval b);
bool af_jcompare(af_jinja *j, af_jcmp cmp, af_jval a, af_jval b);
bool af_jsame(af_jval a, af_jval b); /* Python's `is` */
/* A stable sort by key[i]; the items move with their keys. */
void af_jsort(af_jinja *j, af_jlist *items, af_jlist *keys, bool reverse);
af_jdict *af_jdict_new(af_jinja *j, int64_t cap);
void af_jdict_set(af_jinja *j, af_jdict *d, af_jval key, af_jval val);
/* NULL when absent. Fails on a key that cannot be hashed. */
af_jval *af_jdict_get(af_jinja *j, const af_jdict *d, af_jval key);
af_jlist *af_jdict_pairs(af_jinja *j, const af_jdict *d); /* (key, value) tuples */
af_jval *af_jdict_find(af_jinja *j, const af_jdict *d, const char *key);

/* --- operations ------------------------------------------------------------------------------- */
/* + - * / % as they are written, 'f' for // and 'p' for **. */
af_jval af_jbinary(af_jinja *j, char op, af_jval a, af_jval b);
af_jval af_jnegate(af_jinja *j, af_jval v);
/* obj[key] without attributes; kind AF_JKIND_MISSING when there is no such item. */
af_jval af_jitem(af_jinja *j, af_jval obj, af_jval key);
af_jval af_jslice(af_jinja *j, af_jval obj, const af_jval part[3]); /* None = not given */
af_jval af_jgetattr(af_jinja *j, af_jval obj, const af_jstr *name); /* attribute, then item */
af_jval af_jgetitem(af_jinja *j, af_jval obj, af_jval key);         /* item, then attribute */
/* A method or field, without looking at items; kind AF_JKIND_MISSING when there is none. */
af_jval af_jattribute(af_jinja *j, af_jval obj, const af_jstr *name);
af_jval af_jpercent(af_jinja *j, af_jval fmt, af_jval args);
af_jval af_jformat(af_jinja *j, af_jval fmt, const af_jargs *args);
af_jval af_jstrip(af_jinja *j, af_jval self, const af_jstr *set, char sides); /* l, r or b */
af_jval af_jreplace(af_jinja *j, af_jval self, const af_jstr *old, const af_jstr *new, int64_t max);
af_jlist *af_jsplitlines(af_jinja *j, af_jval self, bool keep);
af_jval af_jpad(af_jinja *j, af_jval self, int64_t width, const af_jstr *fill, char side);
af_jval af_jrecase(af_jinja *j, af_jval self, char how);
/* dict(mapping or pairs, key=value ...) */
af_jdict *af_jdict_from(af_jinja *j, const af_jargs *args);

extern const af_jfunc af_jfilters[], af_jfilters_sequences[], af_jmethods_str[];
af_jval af_jtojson(const af_jcall *c);
af_jval af_jdumps(af_jinja *j, af_jval v);                            /* the same without options */
const af_jfunc *af_jtable_find(af_jtable table, const af_jstr *name); /* NULL when unknown */
const af_jfunc *af_jfunc_find(const af_jfunc *rows, const af_jstr *name);
/* Runs a table row: binds the arguments to its parameters first. */
af_jval af_jrun_func(af_jinja *j, const af_jfunc *f, af_jval self, const af_jargs *args);
af_jval af_jinvoke(af_jinja *j, af_jval callee, const af_jargs *args);
/* Renders j->t with the variables already in j->vars into j->root. */
void af_jrun(af_jinja *j);
#endif
