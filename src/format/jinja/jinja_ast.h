/* jinja_ast.h - tokens and the syntax tree of a template, and the state of its parser.
 *
 * The tree lives in the template's arena and is never written to after parsing: threads share it.
 * Names are interned: equal names have equal addresses. */
#ifndef AF_JINJA_AST_H
#define AF_JINJA_AST_H

#include "format/jinja/jinja.h"

typedef struct af_jexpr af_jexpr;
typedef struct af_jstmt af_jstmt;

#define AF_JINJA_NAMES 4096 /* hash chains of the names in a template */

/* --- expressions ------------------------------------------------------------------------------ */
typedef enum af_jexpr_kind {
    AF_JEXPR_CONST,
    AF_JEXPR_NAME,
    AF_JEXPR_NSREF, /* ns.attr as a target of set */
    AF_JEXPR_LIST,
    AF_JEXPR_TUPLE,
    AF_JEXPR_CONCAT,
    AF_JEXPR_DICT,
    AF_JEXPR_ATTR,
    AF_JEXPR_ITEM,
    AF_JEXPR_SLICE,
    AF_JEXPR_CALL,
    AF_JEXPR_FILTER,
    AF_JEXPR_TEST,
    AF_JEXPR_COND,
    AF_JEXPR_COMPARE,
    AF_JEXPR_OR,
    AF_JEXPR_AND,
    AF_JEXPR_NOT,
    AF_JEXPR_NEG,
    AF_JEXPR_BINARY
} af_jexpr_kind;

typedef struct af_jexprs {
    af_jexpr **item;
    int n, cap;
} af_jexprs;

typedef struct af_jcall_args { /* of a call, filter or test in the source */
    af_jexprs pos, kw;         /* kw: values, named by kwname */
    af_jstr **kwname;
    af_jexpr *star, *star_star;
} af_jcall_args;

/* Kinds with operands begin with the first one: binary.left reads it for all of them. */
struct af_jexpr {
    uint8_t kind;
    uint8_t op; /* BINARY: as af_jbinary; COMPARE: af_jcmp */
    int line;
    union {
        af_jval value;   /* CONST */
        af_jexprs items; /* LIST, TUPLE, CONCAT */
        struct {
            af_jexprs keys, values;
        } dict;
        struct {
            af_jstr *name, *attr;
        } name; /* NAME, NSREF */
        struct {
            af_jexpr *object;
            af_jstr *name;
        } attr;
        struct {
            af_jexpr *object, *part[3]; /* NULL = not given */
        } slice;
        struct {
            af_jexpr *operand; /* CALL: what is called; of a filter block NULL */
            af_jstr *name;     /* FILTER, TEST */
            const af_jfunc *func;
            af_jcall_args *args; /* NULL = none */
        } call;                  /* CALL, FILTER, TEST */
        struct {
            af_jexpr *test, *then, *otherwise; /* otherwise may be NULL */
        } cond;
        struct {
            af_jexpr *left, *right;
            af_jexpr *chain; /* "< c" of a < b < c, whose left is NULL; or NULL */
        } compare;
        struct {
            af_jexpr *left, *right; /* right NULL: NOT, NEG */
        } binary;                   /* also ITEM: object and key */
    };
};

/* --- statements ------------------------------------------------------------------------------- */
typedef enum af_jstmt_kind {
    AF_JSTMT_TEXT,
    AF_JSTMT_PRINT,
    AF_JSTMT_IF,
    AF_JSTMT_SET,
    AF_JSTMT_BREAK,
    AF_JSTMT_CONTINUE,
    AF_JSTMT_FOR, /* from here on: `body` is a scope of its own */
    AF_JSTMT_SETBLOCK,
    AF_JSTMT_MACRO,
    AF_JSTMT_CALLBLOCK,
    AF_JSTMT_FILTERBLOCK,
    AF_JSTMT_GENERATION,
    AF_JSTMT_WITH,
    AF_JSTMT_BLOCK,
    AF_JSTMT_SCOPE
} af_jstmt_kind;

typedef struct af_jstmts {
    af_jstmt *first, *last;
} af_jstmts;

enum { AF_JUSES_CALLER = 1, AF_JUSES_VARARGS = 2, AF_JUSES_KWARGS = 4 };

struct af_jstmt {
    uint8_t kind;
    int line;
    af_jstmt *next; /* in the same body */
    af_jstmts body;
    af_jstr **undef; /* of a scope: names that begin as undefined (see af_jframe) */
    int nundef, cundef;
    union {
        af_jstr *text;   /* TEXT */
        af_jexprs print; /* PRINT */
        struct {
            af_jexpr *test;
            af_jstmt *otherwise; /* elif; else, whose test is NULL; or NULL */
        } cond;
        struct {
            af_jexpr *target, *over, *test; /* test may be NULL */
            bool recursive;
            bool captured; /* a macro or recursive loop inside may keep the scope of an iteration */
            af_jstmts otherwise;
        } loop;
        struct {
            af_jexpr *target, *value; /* SETBLOCK, FILTERBLOCK: value is a chain of filters */
        } set;
        struct {
            af_jstr *name;
            af_jexprs param, defaults; /* defaults: of the last parameters */
            af_jexpr *call;            /* CALLBLOCK */
            uint8_t uses;              /* AF_JUSES_* */
            af_jstmt *outer;           /* the macro around it, or NULL */
        } macro;                       /* MACRO, CALLBLOCK */
        struct {
            af_jexprs target, value;
        } with;
    };
};

struct af_template {
    af_arena mem;
    char *source; /* as passed in */
    uint64_t source_len;
    af_jstmt *root;
    af_jstr *loop, *caller, *varargs, *kwargs; /* interned names the interpreter binds itself */
    bool marks_generation;
    void *tokens;                   /* json_t object of special tokens, or NULL */
    struct af_template *with_tools; /* rendered instead when there are tools; NULL: this one */
};

typedef enum af_jtoken_type {
    AF_JTOKEN_TEXT,
    AF_JTOKEN_VAR_BEGIN,
    AF_JTOKEN_VAR_END,
    AF_JTOKEN_BLOCK_BEGIN,
    AF_JTOKEN_BLOCK_END,
    AF_JTOKEN_EOF,
    AF_JTOKEN_STRING,
    AF_JTOKEN_NAME,
    AF_JTOKEN_NUMBER,
    AF_JTOKEN_OP
} af_jtoken_type;

typedef struct af_jtoken {
    uint8_t type;
    int line;
    const char *p; /* text, name, operator, decoded string, digits of a number */
    uint64_t n;
    af_jval value; /* of a number */
} af_jtoken;

/* --- parser (jinja_parser.c, jinja_expr.c) ------------------------------------------------------
 */

/* What the parser knows of the names in one scope. Jinja decides before running where each name
 * lives: a name that a scope first stores, outside any if and with no mention in the scopes around
 * it, is undefined in the whole scope before that store, also inside loops and macros within it,
 * even when a variable of that name was passed in. Everything else is what a lookup through the
 * scopes at run time gives. */
typedef struct af_jframe {
    struct af_jframe *up;
    struct af_jmention *mentions; /* names this scope mentioned */
    int branches;                 /* open ifs */
    struct af_jstored *stored;    /* first stores of this scope and those inside it */
    af_jstmt *of;
} af_jframe;

typedef struct af_jparser {
    af_template *t;
    af_jtoken *tokens; /* the last is AF_JTOKEN_EOF */
    const af_jtoken *at;
    af_error *err;
    bool failed;
    int depth;
    int loops;               /* open for loops of this function */
    int captures;            /* macros, call blocks and recursive loops so far */
    af_jframe *frame;        /* of the innermost scope */
    af_jstmt *macro;         /* the innermost macro */
    const af_jexpr *unknown; /* an unknown filter or test: an error unless an if guards it */
    struct af_jname *names[AF_JINJA_NAMES]; /* interned, chained by hash */
} af_jparser;

/* Fills p->tokens. */
void af_jlex(af_jparser *p, const char *source, uint64_t len);
/* Latches a syntax error; returns NULL. */
AF_PRINTF(3, 4) void *af_jsyntax(af_jparser *p, int line, const char *fmt, ...);
void *af_jparser_take(af_jparser *p, uint64_t bytes); /* NULL and failed when out of memory */
/* An array in the arena with space for one more item than n. */
void *af_jgrow(af_jparser *p, void *items, int n, int *cap, uint64_t size);
void af_jexprs_add(af_jparser *p, af_jexprs *l, af_jexpr *e);  /* nothing after a failure */
af_jstr *af_jintern(af_jparser *p, const char *s, uint64_t n); /* NULL only after a failure */
void af_jname_load(af_jparser *p, af_jstr *name);              /* an expression reads the name */
bool af_jat_op(const af_jparser *p, const char *op);
bool af_jat_name(const af_jparser *p, const char *name);
bool af_jskip_op(af_jparser *p, const char *op);
bool af_jskip_name(af_jparser *p, const char *name);
bool af_jexpect_op(af_jparser *p, const char *op);
bool af_jexpect(af_jparser *p, af_jtoken_type type);
void *af_jexpected(af_jparser *p, const char *what); /* "expected X, got TOKEN"; returns NULL */
af_jexpr *af_jparse_expr(af_jparser *p, bool with_cond);
af_jexpr *af_jparse_tuple(af_jparser *p, bool with_cond);
/* Filters: "| name(args) | ..." applied to `on`; the first without its bar when `bare`. */
af_jexpr *af_jparse_filters(af_jparser *p, af_jexpr *on, bool bare);
af_jexpr *af_jparse_target(af_jparser *p, bool with_ns);
/* Parameters of a macro or call block: names, and defaults of the last ones. */
void af_jparse_params(af_jparser *p, af_jstmt *n);

/* --- running (jinja_eval.c) --------------------------------------------------------------------
 */
typedef struct af_jbind {
    const af_jstr *name; /* interned */
    af_jval val;         /* AF_JKIND_MISSING: undefined so far */
} af_jbind;

struct af_jscope {
    af_jscope *up;
    af_jbind *bind;
    int64_t n, cap;
};

struct af_jmacro {
    const af_jstmt *of;
    af_jscope *closure;
};

void af_jscope_set(af_jinja *j, af_jscope *s, const af_jstr *name, af_jval v);
af_jval af_jlookup(af_jinja *j, const af_jscope *s, const af_jstr *name);
af_jval af_jeval(af_jinja *j, const af_jexpr *e, af_jscope *s);
/* A chain of filters whose innermost has no operand of its own: it gets `v`. */
af_jval af_japply_filters(af_jinja *j, const af_jexpr *e, af_jscope *s, af_jval v);
void af_jeval_args(af_jinja *j, const af_jcall_args *src, af_jscope *s, af_jargs *out);
#endif
