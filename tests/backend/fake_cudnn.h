/* fake_cudnn.h - a recording cuDNN: descriptors are checked as they are finished, a plan is the
 * list of tensors in memory that its graph names, and running one checks that each has an address.
 */
#ifndef AF_FAKE_CUDNN_H
#define AF_FAKE_CUDNN_H

#include "test.h"

#include "backend/cuda/cudnn.h"

enum { FAKE_ATTRS = 24, FAKE_LIST = 64, FAKE_WORK = 1792 };

typedef struct fake_attr {
    int name, type;
    int64_t n;
    uint8_t value[FAKE_LIST * 8];
} fake_attr;

typedef struct fake_desc {
    int kind;
    bool finished;
    int attrs;
    fake_attr attr[FAKE_ATTRS];
    char text[1024]; /* of a plan: the numbers of its tensors */
} fake_desc;

static struct {
    int live, builds, reads, runs, heuristics;
    int refuse;           /* desc_finalize of this kind fails; 0 = none */
    bool dead;            /* cudnnCreate fails */
    fake_desc last_graph; /* the operations of the last one finished */
    char tensors[64][160];
    int n_tensors;
    int ops[64]; /* of the last plan, by kind */
} dnn_seen;

static const fake_attr *dnn_attr(const fake_desc *d, int name)
{
    for (int i = 0; i < d->attrs; i++)
        if (d->attr[i].name == name)
            return &d->attr[i];
    return NULL;
}
static int64_t dnn_number(const fake_desc *d, int name)
{
    const fake_attr *a = dnn_attr(d, name);
    int64_t v = 0;
    CHECK_MSG(a != NULL, "attribute %d of descriptor %d is missing", name, d->kind);
    memcpy(&v, a->value, a->type == 3 ? 8 : a->type == 2 ? 1 : 4);
    return v;
}
static void dnn_four(const fake_desc *d, int name, int64_t v[4])
{
    const fake_attr *a = dnn_attr(d, name);
    CHECK_MSG(a && a->n == 4, "attribute %d of descriptor %d has not four numbers", name, d->kind);
    if (a)
        memcpy(v, a->value, 4 * sizeof *v);
}
static fake_desc *dnn_link(const fake_desc *d, int name, int64_t i)
{
    const fake_attr *a = dnn_attr(d, name);
    fake_desc *to = NULL;
    if (a && i < a->n)
        memcpy(&to, a->value + 8 * i, 8);
    return to;
}

static size_t d_version(void) { return 91900; }
static int d_create(void **h) { return *h = dnn_seen.dead ? NULL : &dnn_seen, dnn_seen.dead; }
static int d_destroy(void *h) { return (void)h, 0; }
static int d_stream(void *h, void *s) { return (void)h, s ? 0 : 2000; }
static int d_new(int kind, void **d)
{
    fake_desc *p = calloc(1, sizeof *p);
    p->kind = kind;
    dnn_seen.live++;
    return *d = p, 0;
}
static int d_free(void *d) { return assert_non_null(d), dnn_seen.live--, free(d), 0; }

static int d_set(void *desc, int name, int type, int64_t n, const void *v)
{
    static const int size[] = {[0] = 8, [1] = 4,  [2] = 1,  [3] = 8,  [6] = 8,
                               [8] = 4, [14] = 4, [15] = 8, [18] = 4, [24] = 1};
    fake_desc *d = desc;
    fake_attr *a = &d->attr[d->attrs++];
    assert_true(d->attrs <= FAKE_ATTRS && !d->finished && type <= 24 && size[type] > 0);
    if (type == 24) {
        assert_true(n < (int64_t)sizeof d->text);
        memcpy(d->text, v, (size_t)n);
        return 0;
    }
    assert_true(n <= FAKE_LIST);
    *a = (fake_attr){.name = name, .type = type, .n = n};
    memcpy(a->value, v, (size_t)n * (size_t)size[type]);
    for (int64_t i = 0; type == 15 && i < n; i++)
        CHECK_MSG(dnn_link(d, name, i)->finished, "descriptor %d links an unfinished one", d->kind);
    return 0;
}

/* Every tensor that operations name, once; those in memory go into the plan's text. */
static void d_collect(fake_desc *graph, fake_desc *plan)
{
    dnn_seen.n_tensors = 0;
    memset(dnn_seen.ops, 0, sizeof dnn_seen.ops);
    plan->text[0] = '\0';
    for (int64_t i = 0; i < dnn_attr(graph, 801)->n; i++) {
        const fake_desc *op = dnn_link(graph, 801, i);
        dnn_seen.ops[op->kind]++;
        for (int k = 0; k < op->attrs; k++) {
            fake_desc *t = op->attr[k].type == 15 ? dnn_link(op, op->attr[k].name, 0) : NULL;
            for (int ragged = 0; t && t->kind == 17 && ragged < 2; ragged++) {
                char word[24];
                snprintf(word, sizeof word, " %d ", (int)dnn_number(t, 906));
                if (!dnn_number(t, 907) && !strstr(plan->text, word)) {
                    const size_t at = strlen(plan->text);
                    int64_t dim[4], stride[4];
                    snprintf(plan->text + at, sizeof plan->text - at, "%s", word);
                    dnn_four(t, 902, dim);
                    dnn_four(t, 903, stride);
                    snprintf(dnn_seen.tensors[dnn_seen.n_tensors++], 160,
                             "%d: type %d [%d %d %d %d] / [%d %d %d %d]%s", (int)dnn_number(t, 906),
                             (int)dnn_number(t, 901), (int)dim[0], (int)dim[1], (int)dim[2],
                             (int)dim[3], (int)stride[0], (int)stride[1], (int)stride[2],
                             (int)stride[3], dnn_number(t, 908) ? " by value" : "");
                }
                t = dnn_link(t, 913, 0);
            }
        }
    }
}

static int d_finalize(void *desc)
{
    static const struct {
        int kind, need[5];
    } needs[] = {
        {0, {0, 1}},
        {13, {750, 751, 753}},
        {15, {801, 800}},
        {4, {200, 201}},
        {16, {1000, 1001, 1003}},
        {17, {901, 902, 903, 906, 900}},
        {18, {1500}},
        {19, {1520, 1521, 1522, 1523}},
        {21, {1600, 1601}},
        {22, {1610, 1611, 1612}},
        {5, {400}},
    };
    fake_desc *d = desc;
    for (size_t i = 0; i < AF_LEN(needs); i++)
        for (size_t k = 0; needs[i].kind == d->kind && k < 5 && (k == 0 || needs[i].need[k]); k++)
            CHECK_MSG(dnn_attr(d, needs[i].need[k]) != NULL, "descriptor %d lacks %d", d->kind,
                      needs[i].need[k]);
    if (dnn_seen.refuse && d->kind == dnn_seen.refuse)
        return 3000;
    d->finished = true;
    if (d->kind == 15)
        dnn_seen.last_graph = *d;
    if (d->kind == 5 && d->text[0])
        dnn_seen.reads++;
    if (d->kind == 5 && !d->text[0]) {
        dnn_seen.builds++;
        d_collect(&dnn_seen.last_graph, d);
    }
    return 0;
}

static int d_get(void *desc, int name, int type, int64_t wanted, int64_t *found, void *v)
{
    fake_desc *d = desc;
    (void)type;
    *found = 1;
    if (name == 402) {
        *(int64_t *)v = FAKE_WORK;
    } else if (name == 405) {
        *found = (int64_t)strlen(d->text);
        if (wanted)
            memcpy(v, d->text, strlen(d->text));
    } else {
        assert_int_equal(name, 202); /* one of the requested engines */
        ((fake_desc **)v)[0]->finished = true;
        dnn_seen.heuristics++;
    }
    return 0;
}

static int d_execute(void *h, void *plan, void *pack)
{
    const fake_desc *p = plan, *k = pack;
    assert_true(h == &dnn_seen && p->finished && k->finished);
    const fake_attr *id = dnn_attr(k, 1000), *at = dnn_attr(k, 1001);
    char have[1024] = "";
    assert_int_equal(id->n, at->n);
    for (int64_t i = 0; i < id->n; i++) {
        char word[24];
        snprintf(word, sizeof word, " %d ", (int)((const int64_t *)(const void *)id->value)[i]);
        CHECK_MSG(((void *const *)(const void *)at->value)[i] && strstr(p->text, word),
                  "tensor%shas no address, or is not in the plan", word);
        strncat(have, word, sizeof have - strlen(have) - 1);
    }
    assert_int_equal(strlen(have), strlen(p->text)); /* all of them */
    dnn_seen.runs++;
    return 0;
}
static void d_error(char *text, size_t n) { snprintf(text, n, "fake"); }

static const af_cudnn_api fake_cudnn = {
    .version = d_version,
    .create = d_create,
    .destroy = d_destroy,
    .stream_set = d_stream,
    .desc_new = d_new,
    .desc_free = d_free,
    .desc_finalize = d_finalize,
    .desc_set = d_set,
    .desc_get = d_get,
    .execute = d_execute,
    .last_error = d_error,
};
#endif
