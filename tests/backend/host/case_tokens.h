/* case_tokens.h - the kernel of token_draw.cu next to a sorted list of all tokens. */
#ifndef AF_CASE_TOKENS_H
#define AF_CASE_TOKENS_H

#include "host/host_compare.h"
#include "host/host_kernels.h"

#include <algorithm>

enum { WANTS = 6, TOPS = 20 }; /* token_draw.h */

/* By the contract of token_draw.c; x are the logits as stored. */
static void draw_wanted(const vec &x, const double *want, double *choice, double *top)
{
    struct token {
        double logit, w;
        size_t id;
    };
    std::vector<token> c;
    double sum = 0, lse = 0, mass = 0, at = 0;
    for (size_t i = 0; i < x.size(); i++)
        c.push_back({x[i], 0, i});
    std::sort(c.begin(), c.end(), [](const token &a, const token &b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
    for (const token &t : c)
        sum += exp(t.logit - c[0].logit);
    lse = c[0].logit + log(sum);
    size_t n = c.size(), k = 0;
    const auto total = [&] {
        double all = 0;
        for (size_t i = 0; i < n; i++)
            all += c[i].w;
        return all;
    };
    if (want[0] > 0) {
        for (token &t : c)
            t.w = exp((double)(float)(t.logit / want[0]) - (float)(c[0].logit / want[0]));
        n = want[1] > 0 ? std::min(n, (size_t)want[1]) : n;
        if (want[2] > 0 && want[2] < 1) {
            const double enough = want[2] * total();
            for (k = 0; k < n && mass < enough; k++)
                mass += c[k].w;
            n = k;
        }
        while (n > 1 && c[n - 1].w < want[3])
            n--;
        mass = total() * want[4];
        for (k = 0; k + 1 < n && mass >= (at += c[k].w);)
            k++;
    }
    choice[0] = (double)c[k].id;
    choice[1] = want[5] < 0 ? 0 : c[k].logit - lse;
    for (int i = 0; i < TOPS; i++) {
        const bool there = i < want[5] && i < (int)c.size();
        top[2 * i] = there ? (double)c[i].id : -1;
        top[2 * i + 1] = there ? c[i].logit - lse : 0;
    }
}

/* Rows of logits that end in some of AF_VEC more; every row wants something else. */
static void draw_case(size_t V, double spread, const vec &wants, int block)
{
    const size_t N = wants.size() / WANTS, ld = V + AF_VEC;
    acts x(numbers(N * ld, spread));
    buf<double> want(wants), choice(N * 2), top(N * 2 * TOPS);
    vec wchoice(N * 2), wtop(N * 2 * TOPS);
    for (size_t i = 0; i < N; i++)
        draw_wanted(row_of(x.values(), i, ld, V), wants.data() + i * WANTS, &wchoice[i * 2],
                    &wtop[i * 2 * TOPS]);
    launch({(unsigned)N, 1}, block, tokens::token_draw, choice.p(), top.p(), x.p(), ld, want.p(),
           V);
    same("token_draw", choice, wchoice, 1e-12);
    same("token_draw tops", top, wtop, 1e-12);
}

static void token_cases()
{
    const vec wants = {0,   0,  0,    0,    0.5,  -1, /* the largest, with nothing else */
                       0,   0,  0,    0,    0.5,  5,  /* */
                       1,   0,  0,    0,    0.3,  0,  /* plain temperature */
                       0.7, 0,  0,    0,    0.99, 20, /* */
                       1,   7,  0,    0,    0.8,  -1, /* top-k */
                       1,   0,  0.5,  0,    0.9,  -1, /* top-p */
                       2.5, 0,  0,    0.1,  0.7,  -1, /* min-p */
                       1.3, 40, 0.9,  0.02, 0.6,  2,  /* all of them */
                       1,   0,  0.01, 0,    0.6,  1,  0.1, 1, 0, 0, 0.999999, 3};
    for (const double spread : {0.0, 0.01, 2.0, 20.0}) {
        draw_case(64 * AF_VEC, spread, wants, 64);
        draw_case(AF_VEC, spread, wants, 32);
    }
    draw_case(8 * 400, 3, wants, 256);
    draw_case(8 * 1000, 0, {0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0.77, 0, 1, 2500, 0.5, 0, 0.9, -1}, 256);
    draw_case(8 * 1000, 0.02, {1, 0, 0, 0, 0.77, 0, 1, 2500, 0.5, 0, 0.9, -1}, 256);
    /* a NaN, and a row that wants nothing */
    vec v = numbers(2 * 8, 1);
    v[5] = NAN;
    acts x(v);
    buf<double> want(vec{0, 0, 0, 0, 0, 3, -1, 0, 0, 0, 0, 3}), choice(4), top(2 * 2 * TOPS);
    vec wtop;
    for (int i = 0; i < 2 * TOPS; i++)
        wtop.insert(wtop.end(), {-1.0, 0.0});
    launch({2, 1}, 32, tokens::token_draw, choice.p(), top.p(), x.p(), 8, want.p(), 8);
    same("token_draw without", choice, {-1, 0, -1, 0}, 0);
    same("token_draw tops without", top, wtop, 0);
}
#endif
