/* jinja_tests.c - what may stand behind "is". */
#include "format/jinja/jinja.h"

static af_jv kind_is(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    return af_jbool(self.kind == j->aux);
}

static af_jv t_defined(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)a;
    (void)raw;
    return af_jbool(self.kind != AF_J_UNDEF);
}

static af_jv t_parity(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const int64_t want = j->aux;
    const af_jv r = af_jbinary(j, AF_N_MOD, self, af_jint(2));
    return af_jbool(!j->failed && af_jequal(j, r, af_jint(want)));
}

static af_jv t_divisibleby(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jv r = af_jbinary(j, AF_N_MOD, self, a[0]);
    return af_jbool(!j->failed && af_jequal(j, r, af_jint(0)));
}

static af_jv t_bool(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    return af_jbool(self.kind == AF_J_BOOL && self.b == (j->aux == 1));
}

static af_jv t_number(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)a;
    (void)raw;
    return af_jbool(af_jis_number(self));
}

static af_jv t_case(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const char what = (char)j->aux;
    return af_jbool(af_jcase_is(af_jtostr(j, self).s, what));
}

static af_jv t_sequence(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)a;
    (void)raw;
    /* has a length and items by subscript; an undefined has no __getitem__ to look at */
    return af_jbool(self.kind == AF_J_STR || self.kind == AF_J_LIST || self.kind == AF_J_TUPLE ||
                    self.kind == AF_J_DICT || self.kind == AF_J_RANGE || self.kind == AF_J_UNDEF);
}

static af_jv t_iterable(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)a;
    (void)raw;
    return af_jbool(af_jiterable(self));
}

static af_jv t_callable(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)a;
    (void)raw;
    return af_jbool(self.kind == AF_J_FUNC || self.kind == AF_J_METHOD || self.kind == AF_J_MACRO ||
                    self.kind == AF_J_LOOP || self.kind == AF_J_JOINER || self.kind == AF_J_UNDEF);
}

static af_jv t_sameas(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)raw;
    return af_jbool(af_jsame(self, a[0]));
}

static af_jv t_escaped(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)a;
    (void)raw;
    return af_jbool(self.kind == AF_J_STR && self.markup);
}

static af_jv t_in(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    return af_jbool(af_jcontains(j, self, a[0]));
}

static af_jv t_filter(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const bool test = j->aux;
    if (self.kind != AF_J_STR)
        return af_jbool(false);
    return af_jbool((test ? af_jtest_find(self.s) : af_jfilter_find(self.s)) != NULL);
}

static af_jv t_compare(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int cmp = j->aux;
    if (cmp == AF_CMP_EQ || cmp == AF_CMP_NE)
        return af_jbool(af_jequal(j, self, a[0]) == (cmp == AF_CMP_EQ));
    return af_jbool(af_jorder(j, cmp, self, a[0]));
}

static const af_jfunc tests[] = {
    {"defined", "", t_defined, 0},
    {"undefined", "", kind_is, AF_J_UNDEF},
    {"none", "", kind_is, AF_J_NONE},
    {"boolean", "", kind_is, AF_J_BOOL},
    {"integer", "", kind_is, AF_J_INT},
    {"float", "", kind_is, AF_J_FLOAT},
    {"string", "", kind_is, AF_J_STR},
    {"mapping", "", kind_is, AF_J_DICT},
    {"true", "", t_bool, 1},
    {"false", "", t_bool, 0},
    {"number", "", t_number, 0},
    {"sequence", "", t_sequence, 0},
    {"iterable", "", t_iterable, 0},
    {"callable", "", t_callable, 0},
    {"sameas", "other", t_sameas, 0},
    {"escaped", "", t_escaped, 0},
    {"in", "seq", t_in, 0},
    {"odd", "", t_parity, 1},
    {"even", "", t_parity, 0},
    {"divisibleby", "num", t_divisibleby, 0},
    {"lower", "", t_case, 'l'},
    {"upper", "", t_case, 'u'},
    {"filter", "", t_filter, 0},
    {"test", "", t_filter, 1},
    {"==", "b", t_compare, AF_CMP_EQ},
    {"eq", "b", t_compare, AF_CMP_EQ},
    {"equalto", "b", t_compare, AF_CMP_EQ},
    {"!=", "b", t_compare, AF_CMP_NE},
    {"ne", "b", t_compare, AF_CMP_NE},
    {">", "b", t_compare, AF_CMP_GT},
    {"gt", "b", t_compare, AF_CMP_GT},
    {"greaterthan", "b", t_compare, AF_CMP_GT},
    {">=", "b", t_compare, AF_CMP_GE},
    {"ge", "b", t_compare, AF_CMP_GE},
    {"<", "b", t_compare, AF_CMP_LT},
    {"lt", "b", t_compare, AF_CMP_LT},
    {"lessthan", "b", t_compare, AF_CMP_LT},
    {"<=", "b", t_compare, AF_CMP_LE},
    {"le", "b", t_compare, AF_CMP_LE},
    {0},
};

const af_jfunc *af_jtest_find(const af_jstr *name) { return af_jtable_find(tests, name); }
