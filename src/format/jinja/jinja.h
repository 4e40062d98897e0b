/* jinja.h - the inside of the template interpreter: values, syntax tree, running state.
 *
 * Only jinja_*.c and chat_template.c include this. Values are those of Python as far as a template
 * can see them; lists, tuples and dicts are never changed once a template sees them (the sandbox
 * refuses that), so they are shared freely. All memory of a rendering comes from one arena.
 *
 * Failure is latched: af_jfail sets `failed`, every function then returns quickly with any value,
 * and the caller looks at the flag once. Loops must look at it too. */
#ifndef AF_JINJA_H
#define AF_JINJA_H

#include "base/arena.h"
#include "base/base.h"
#include "base/buf.h"

#include "afinar/chat.h"

#define AF_JINJA_HEIGHT_MAX 1000      /* height of an expression tree */
#define AF_JINJA_RANGE_MAX  100000    /* items of a range, as in Jinja's sandbox                 */
#define AF_JINJA_EVAL_MAX   3000      /* nested evaluations: bounds the C stack                  */
#define AF_JINJA_CALL_MAX   250       /* nested macro calls; Python gives up at about the same   */
#define AF_JINJA_ARGS_MAX   32        /* arguments of one call                                   */
#define AF_JINJA_PAD_MAX    100000000 /* width of a padded field, bytes of a repeated string  */

typedef enum af_jkind {
    AF_J_UNDEF, /* s: the message an operation on it fails with */
    AF_J_NONE,
    AF_J_BOOL,
    AF_J_INT,
    AF_J_FLOAT,
    AF_J_STR,
    AF_J_LIST,
    AF_J_TUPLE,
    AF_J_DICT,
    AF_J_RANGE,
    AF_J_VIEW, /* dict.keys(), values(), items() */
    AF_J_ITER, /* a generator: made at once, but handed out once */
    AF_J_NS,
    AF_J_LOOP,
    AF_J_MACRO,
    AF_J_FUNC,
    AF_J_METHOD,
    AF_J_CYCLER,
    AF_J_JOINER,
    AF_J_SLICE,  /* only as a subscript */
    AF_J_MISSING /* an argument that was not given; never visible to a template */
} af_jkind;

typedef struct af_jstr {
    const char *p; /* valid UTF-8 */
    uint64_t n;    /* bytes */
    uint64_t cps;  /* code points; equal to n when all is ASCII */
    uint64_t hash; /* 0 = not computed */
} af_jstr;

typedef struct af_jv af_jv;
typedef struct af_jdict af_jdict;
typedef struct af_jinja af_jinja;
typedef struct af_jnode af_jnode;

typedef struct af_jlist {
    af_jv *item;
    int64_t n, cap;
    bool group; /* a tuple of groupby: has .grouper and .list */
} af_jlist;

typedef struct af_jrange {
    int64_t start, stop, step, n;
} af_jrange;

typedef struct af_jiter {
    af_jlist *list;
    int64_t at;
    const char *error; /* what going past the last item fails with, or NULL */
} af_jiter;

typedef struct af_jmethod af_jmethod; /* an object and the row of its method */
typedef struct af_jfunc af_jfunc;
typedef struct af_jmacro af_jmacro;
typedef struct af_jloop af_jloop;
typedef struct af_jcycle af_jcycle;
typedef struct af_jview {
    af_jdict *dict;
    char what; /* 'k', 'v' or 'i' */
} af_jview;

struct af_jv {
    uint8_t kind;
    bool markup; /* a string marked safe: joins with others escape them */
    union {
        bool b;
        int64_t i;
        double f;
        af_jstr *s;
        af_jlist *l;
        af_jdict *d;
        af_jrange *r;
        af_jview *view;
        af_jiter *iter;
        af_jloop *loop;
        af_jmacro *macro;
        const af_jfunc *func;
        af_jmethod *method;
        af_jcycle *cycle;
        af_jv *part; /* slice: start, stop, step */
    };
};

typedef struct af_jpair {
    af_jv key, val;
    uint64_t hash;
} af_jpair;

struct af_jdict {
    af_jpair *pair;
    int64_t n, cap;
    int32_t *slot; /* open addressing, -1 empty; NULL while small */
    int64_t slots; /* a power of two */
};

typedef struct af_jkw {
    af_jstr *name;
    af_jv val;
} af_jkw;

typedef struct af_jargs {
    af_jv pos[AF_JINJA_ARGS_MAX];
    int n;
    af_jkw kw[AF_JINJA_ARGS_MAX];
    int nkw;
} af_jargs;

/* A filter, test, method or global. `params` names the arguments behind the first ("a,b?,c?": a
 * question mark = may be left out; a leading slash: not by keyword); NULL = the function reads
 * `raw` itself. Missing ones have kind AF_J_MISSING. */
typedef af_jv af_jcall(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw);
struct af_jfunc {
    const char *name, *params;
    af_jcall *call;
    int aux; /* lets one function serve several names */
};
struct af_jmethod {
    af_jv self;
    const af_jfunc *func;
};

typedef struct af_jbind {
    const af_jstr *name; /* interned by the parser: compared by address */
    af_jv val;
} af_jbind;

typedef struct af_jscope {
    struct af_jscope *up;
    af_jbind *bind;
    int n, cap;
} af_jscope;

struct af_jmacro {
    const af_jnode *node;
    af_jscope *closure;
};

struct af_jloop {
    af_jlist *items;
    int64_t at;
    int depth;
    af_jlist *changed;    /* what loop.changed saw last, NULL = nothing yet */
    const af_jnode *node; /* of a recursive loop, else NULL */
    af_jscope *closure;
};

struct af_jcycle {
    af_jlist *items;
    int64_t at;
};

typedef enum af_jop {
    /* statements */
    AF_N_DATA,
    AF_N_PRINT,
    AF_N_IF,
    AF_N_FOR,
    AF_N_SET,
    AF_N_SETBLOCK,
    AF_N_MACRO,
    AF_N_CALLBLOCK,
    AF_N_FILTERBLOCK,
    AF_N_GENERATION,
    AF_N_WITH,
    AF_N_BLOCK,
    AF_N_SCOPE,
    AF_N_BREAK,
    AF_N_CONTINUE,
    AF_N_LOADER, /* include, import, extends: always an error at run time */
    /* expressions */
    AF_N_CONST,
    AF_N_NAME,
    AF_N_NSREF,
    AF_N_LIST,
    AF_N_TUPLE,
    AF_N_DICT,
    AF_N_GETATTR,
    AF_N_GETITEM,
    AF_N_SLICE,
    AF_N_CALL,
    AF_N_FILTER,
    AF_N_TEST,
    AF_N_COND,
    AF_N_OR,
    AF_N_AND,
    AF_N_NOT,
    AF_N_COMPARE,
    AF_N_CONCAT,
    AF_N_NEG,
    AF_N_POS,
    AF_N_ADD,
    AF_N_SUB,
    AF_N_MUL,
    AF_N_DIV,
    AF_N_FLOORDIV,
    AF_N_MOD,
    AF_N_POW,
} af_jop;

typedef struct af_jnodes {
    af_jnode **item;
    int n, cap;
} af_jnodes;

/* Arguments of a call, filter or test in the source. */
typedef struct af_jcallargs {
    af_jnodes pos;
    af_jnodes kw; /* values; names in kwname */
    af_jstr **kwname;
    af_jnode *dyn_pos, *dyn_kw;
} af_jcallargs;

struct af_jnode {
    uint8_t op;
    bool flag;     /* for: recursive */
    bool captured; /* for: a macro or recursive loop inside may keep the scope of an iteration */
    uint8_t cmp;
    uint8_t uses; /* macros: AF_USES_* */
    int line;
    int height;     /* of the tree below */
    af_jstr *name;  /* name, attribute, macro, filter */
    af_jstr *name2; /* namespace attribute */
    af_jv value;    /* constant */
    af_jnode *a, *b, *c;
    af_jnodes list, list2, list3;
    af_jcallargs *args;
    const af_jfunc *func; /* filter or test */
    af_jstr **undef;      /* a scope: names that begin as undefined (see jinja_scope.c) */
    int nundef;
};

enum { AF_USES_CALLER = 1, AF_USES_VARARGS = 2, AF_USES_KWARGS = 4 };
enum { AF_CMP_EQ, AF_CMP_NE, AF_CMP_LT, AF_CMP_LE, AF_CMP_GT, AF_CMP_GE, AF_CMP_IN, AF_CMP_NOTIN };

struct af_template {
    af_arena mem;
    char *source; /* as given */
    uint64_t source_len;
    af_jnode *root;
    af_jstr *loop, *caller, *varargs, *kwargs; /* interned names the interpreter binds itself */
    bool marks_generation;
    void *tokens; /* json_t object of special tokens, or NULL */
};

typedef struct af_jtime {
    int year, month, day, hour, minute, second; /* month 1 to 12 */
} af_jtime;

struct af_jinja {
    const af_template *t;
    af_arena mem;
    af_error *err;
    bool failed;
    bool limit; /* the failure is a limit of ours, which nothing may defer */
    int line;
    uint64_t steps;
    int depth, calls;
    int aux;      /* of the table row that is being called; read it first */
    af_buf *out;  /* where output goes now */
    af_buf *root; /* the rendering itself */
    af_jdict *vars;
    af_jtime now;
    af_buf spans;   /* of af_span */
    af_jstr no_str; /* what is handed out after a failure: empty, never written to */
    af_jlist no_list;
    af_jdict no_dict;
};

typedef enum af_jflow { AF_FLOW_NEXT, AF_FLOW_BREAK, AF_FLOW_CONTINUE } af_jflow;

/* --- running state ------------------------------------------------------------------------ */
/* Latches an error of the template's current line. Returns an undefined value. */
AF_PRINTF(2, 3) af_jv af_jfail(af_jinja *j, const char *fmt, ...);
/* Takes memory from the rendering's arena; NULL and failed when the limit is reached. */
void *af_jtake(af_jinja *j, uint64_t bytes);
/* Counts work: one step a node, an item, or 64 bytes looked at. False when too much was done. */
bool af_jstep(af_jinja *j, uint64_t steps);
/* Guards recursion over values: every enter that gave true needs a leave. */
bool af_jenter(af_jinja *j);
void af_jleave(af_jinja *j);

/* --- values (jinja_value.c) ----------------------------------------------------------------- */
af_jv af_jnone(void);
af_jv af_jbool(bool b);
af_jv af_jint(int64_t i);
af_jv af_jfloat(double f);
AF_PRINTF(2, 3) af_jv af_jundef(af_jinja *j, const char *fmt, ...);
af_jv af_jstr_new(af_jinja *j, const char *p, uint64_t n); /* copies */
af_jv af_jstr_lit(af_jinja *j, const char *s);             /* keeps the pointer */
af_jv af_jstr_take(af_jinja *j, af_buf *b);                /* copies and clears the buffer */
/* A part of a string by bytes; shares its memory. */
af_jv af_jstr_part(af_jinja *j, const af_jstr *s, uint64_t from, uint64_t to);
bool af_jstr_fill(af_jstr *s, const char *p, uint64_t n);
bool af_jstr_is(const af_jstr *s, const char *lit);
uint64_t af_jstr_hash(af_jstr *s);
/* Byte offset of code point i (i <= cps). */
uint64_t af_jstr_at(const af_jstr *s, uint64_t i);
af_jlist *af_jlist_new(af_jinja *j, int64_t cap);
void af_jlist_add(af_jinja *j, af_jlist *l, af_jv v);
af_jv af_jlist_v(af_jlist *l);
af_jv af_jtuple_v(af_jlist *l);
af_jv af_jpair_v(af_jinja *j, af_jv a, af_jv b); /* a tuple of two */
af_jv af_jiter_v(af_jinja *j, af_jlist *l);
/* The next item, or false at the end (where a deferred error comes up). */
bool af_jiter_next(af_jinja *j, af_jiter *it, af_jv *out);
af_jv af_jmark(af_jv s, bool markup);
af_jdict *af_jdict_new(af_jinja *j, int64_t cap);
void af_jdict_set(af_jinja *j, af_jdict *d, af_jv key, af_jv val);
void af_jdict_put(af_jinja *j, af_jdict *d, const char *key, af_jv val);
/* NULL when absent. Fails on a key that cannot be hashed. */
af_jv *af_jdict_get(af_jinja *j, const af_jdict *d, af_jv key);
af_jv *af_jdict_find(af_jinja *j, const af_jdict *d, const char *key);
af_jv af_jdict_v(af_jdict *d);

/* --- meaning of values (jinja_compare.c, jinja_iter.c) ---------------------------------------- */
bool af_jtruth(const af_jv *v);
bool af_jequal(af_jinja *j, af_jv a, af_jv b);
bool af_jsame(af_jv a, af_jv b);
/* a OP b for AF_CMP_LT .. AF_CMP_GE. */
bool af_jorder(af_jinja *j, int cmp, af_jv a, af_jv b);
bool af_jcontains(af_jinja *j, af_jv item, af_jv in);
uint64_t af_jhash(af_jinja *j, af_jv v);
const char *af_jtype(af_jv v); /* Python's name of the type */
bool af_jis_number(af_jv v);   /* int, float or bool */
double af_jnumber(af_jv v);
/* The integer value of an int or a bool; fails otherwise, naming `what`. */
int64_t af_jneed_int(af_jinja *j, af_jv v, const char *what);
/* The string; fails otherwise. Never NULL. */
const af_jstr *af_jneed_str(af_jinja *j, af_jv v, const char *what);
/* All items, in order; takes what is left of a generator. Never NULL. Fails on non-iterables. */
af_jlist *af_jitems(af_jinja *j, af_jv v);
bool af_jiterable(af_jv v);
/* -1 when the value has no length. */
int64_t af_jlength(af_jv v);
/* A stable sort by key[i]; the items move with their keys. */
void af_jsort(af_jinja *j, af_jv *item, af_jv *key, int64_t n, bool reverse);

/* --- text (jinja_text.c, jinja_unicode.c) ------------------------------------------------------
 */
void af_jprint(af_jinja *j, af_buf *b, af_jv v); /* str() */
void af_jrepr(af_jinja *j, af_buf *b, af_jv v);
af_jv af_jtostr(af_jinja *j, af_jv v);   /* str(): never markup */
af_jv af_jsoftstr(af_jinja *j, af_jv v); /* str(), but markup stays markup */
void af_jfloat_text(af_buf *b, double f);
af_jv af_jescape(af_jinja *j, af_jv v); /* HTML-escaped markup */
uint32_t af_jutf8_next(const char **p); /* decodes one code point of valid UTF-8 */
uint64_t af_jutf8_count(const char *p, uint64_t n);
bool af_jutf8_valid(const char *p, uint64_t n);
bool af_juni_space(uint32_t cp); /* str.isspace() */
bool af_juni_printable(uint32_t cp);
bool af_juni_is(uint32_t cp,
                char what); /* 'a'lpha 'd'igit 'c' decimal 'n'umeric 'u'pper 'l'ower 't'itle */
bool af_juni_word(uint32_t cp);
void af_juni_case(af_buf *b, const af_jstr *s, char how); /* 'u' 'l' 't' 'c' 's' 'f' */

/* --- operations ---------------------------------------------------------------------------------
 */
af_jv af_jbinary(af_jinja *j, af_jop op, af_jv a, af_jv b);
af_jv af_jnegate(af_jinja *j, af_jv v);
bool af_jint_pow(int64_t base, int64_t exp, int64_t *out);
af_jv af_jgetattr(af_jinja *j, af_jv obj, const af_jstr *name);
af_jv af_jgetitem(af_jinja *j, af_jv obj, af_jv key);
/* A Python attribute of the value (a method or a field), without looking at items. Kind
 * AF_J_MISSING when there is none. */
af_jv af_jattribute(af_jinja *j, af_jv obj, const af_jstr *name);
/* item.a.b or item[0] for attribute='a.b' or '0': items first, as Jinja's attrgetter. */
af_jv af_jpath(af_jinja *j, af_jv item, af_jv path);
af_jv af_jslice_of(af_jinja *j, af_jv obj, const af_jv part[3]);
af_jv af_jinvoke(af_jinja *j, af_jv callee, const af_jargs *args);
/* Runs a table row: binds the arguments to its parameters first. */
af_jv af_jfunc_run(af_jinja *j, const af_jfunc *f, const char *kind, af_jv self,
                   const af_jargs *args);
af_jv af_jpercent(af_jinja *j, af_jv fmt, af_jv args);
af_jv af_jformat(af_jinja *j, af_jv fmt, const af_jargs *args);
af_jv af_jformat_spec(af_jinja *j, af_jv v, const char *spec, uint64_t n);
af_jv af_jtojson(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw);
void af_jstrftime(af_jinja *j, af_buf *b, const af_jtime *t, const af_jstr *fmt);
double af_jround(double x, int64_t digits);
af_jv af_jstrip(af_jinja *j, af_jv self, af_jv chars, char sides); /* 'l', 'r' or 'b'oth */
af_jv af_jreplace(af_jinja *j, af_jv self, const af_jstr *old, const af_jstr *new, int64_t max);
af_jlist *af_jsplitlines(af_jinja *j, af_jv self, bool keep);
af_jv af_jpad(af_jinja *j, af_jv self, int64_t width, const af_jstr *fill, char side);
af_jv af_jrecase(af_jinja *j, af_jv self, char how);
bool af_jcase_is(const af_jstr *s, char what); /* islower, isupper */

const af_jfunc *af_jfilter_find(const af_jstr *name);
const af_jfunc *af_jtest_find(const af_jstr *name);
const af_jfunc *af_jglobal_find(const af_jstr *name);
/* The method of a value, or NULL. */
const af_jfunc *af_jmethod_find(af_jv obj, const af_jstr *name);
const af_jfunc *af_jtable_find(const af_jfunc *table, const af_jstr *name);
extern const af_jfunc af_jfilters_text[], af_jfilters_list[], af_jfilters_number[];
extern const af_jfunc af_jstr_methods[];

/* --- running (jinja_eval.c, jinja_exec.c) --------------------------------------------------------
 */
af_jv af_jeval(af_jinja *j, const af_jnode *n, af_jscope *s);
void af_jeval_args(af_jinja *j, const af_jcallargs *src, af_jscope *s, af_jargs *out);
af_jflow af_jexec(af_jinja *j, const af_jnodes *body, af_jscope *s);
af_jv af_jmacro_call(af_jinja *j, const af_jmacro *m, const af_jargs *args);
af_jv af_jloop_call(af_jinja *j, const af_jloop *l, const af_jargs *args);
af_jscope *af_jscope_new(af_jinja *j, af_jscope *up, const af_jnode *node);
void af_jscope_set(af_jinja *j, af_jscope *s, const af_jstr *name, af_jv v);
af_jv af_jlookup(af_jinja *j, const af_jscope *s, const af_jstr *name);
/* Renders t with the variables already in j->vars into j->root. */
void af_jrun(af_jinja *j);

/* --- parsing
 * --------------------------------------------------------------------------------------- */
typedef enum af_jtok {
    AF_T_DATA,
    AF_T_VAR_BEGIN,
    AF_T_VAR_END,
    AF_T_BLOCK_BEGIN,
    AF_T_BLOCK_END,
    AF_T_NAME,
    AF_T_STRING,
    AF_T_INT,
    AF_T_FLOAT,
    AF_T_OP, /* in `op` */
    AF_T_EOF,
} af_jtok;

typedef enum af_jsym {
    AF_S_NONE,
    AF_S_ADD,
    AF_S_SUB,
    AF_S_DIV,
    AF_S_FLOORDIV,
    AF_S_MUL,
    AF_S_MOD,
    AF_S_POW,
    AF_S_TILDE,
    AF_S_LBRACKET,
    AF_S_RBRACKET,
    AF_S_LPAREN,
    AF_S_RPAREN,
    AF_S_LBRACE,
    AF_S_RBRACE,
    AF_S_EQ,
    AF_S_NE,
    AF_S_GT,
    AF_S_GE,
    AF_S_LT,
    AF_S_LE,
    AF_S_ASSIGN,
    AF_S_DOT,
    AF_S_COLON,
    AF_S_PIPE,
    AF_S_COMMA,
    AF_S_SEMICOLON,
} af_jsym;

typedef struct af_jtoken {
    uint8_t type, op;
    int line;
    const char *p; /* data, name, decoded string, digits of a number */
    uint64_t n;
} af_jtoken;

typedef struct af_jtokens {
    af_jtoken *item;
    uint64_t n, cap;
} af_jtokens;

AF_CHECKED af_status af_jlex(af_jtokens *out, af_arena *mem, const char *source, uint64_t len,
                             af_error *err);

typedef struct af_jparser {
    af_template *t;
    const af_jtoken *at; /* ends with AF_T_EOF */
    af_error *err;
    bool failed;
    int depth;
    int loops;       /* open for loops of this function */
    int captures;    /* macros, call blocks and recursive loops met so far */
    af_jstr **names; /* interned: open addressing */
    uint64_t nnames, cnames;
} af_jparser;

AF_PRINTF(3, 4) af_jnode *af_jsyntax(af_jparser *p, int line, const char *fmt, ...);
af_jnode *af_jnode_new(af_jparser *p, af_jop op, int line);
/* Says that child lies below n; a tree that is too high is a syntax error. */
void af_jnode_grow(af_jparser *p, af_jnode *n, const af_jnode *child);
void af_jnode_add(af_jparser *p, af_jnode *n, af_jnodes *list, af_jnode *child);
void af_jnodes_add(af_jparser *p, af_jnodes *l, af_jnode *n);
af_jstr *af_jintern(af_jparser *p, const char *s, uint64_t n);
bool af_jtok_is_op(const af_jtoken *t, af_jsym op);
bool af_jtok_is_name(const af_jtoken *t, const char *name);
const char *af_jtok_text(const af_jtoken *t, char text[80]);
bool af_jskip_op(af_jparser *p, af_jsym op);
bool af_jskip_name(af_jparser *p, const char *name);
bool af_jexpect_op(af_jparser *p, af_jsym op);
bool af_jexpect(af_jparser *p, af_jtok type);
af_jnode *af_jparse_expr(af_jparser *p, bool with_cond);
/* `ends`: a name that also ends the tuple ("in", "recursive"), or NULL. */
af_jnode *af_jparse_tuple(af_jparser *p, bool with_cond, const char *ends, bool parens);
af_jnode *af_jparse_target(af_jparser *p, const char *ends, bool with_ns);
af_jnode *af_jparse_primary(af_jparser *p, bool with_ns);
af_jnode *af_jparse_filter(af_jparser *p, af_jnode *on, bool inline_first);
/* Marks which names of each scope begin as undefined, and what macros use. */
void af_jscopes(af_jparser *p, af_jnode *root);
#endif
