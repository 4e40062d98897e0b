/* case_routes.h - the sparse mixer and the list of moe_route.cu; moe_pick.cu, moe_real.cu. */
#ifndef AF_CASE_ROUTES_H
#define AF_CASE_ROUTES_H

#include "host/host_compare.h"
#include "host/host_kernels.h"

/* Two experts of each row of z, one after the other: their shares among those near them. */
static vec near_weights(vec z, double eps, double scale)
{
    vec w;
    for (int j = 0; j < 2; j++) {
        const size_t best = (size_t)(std::max_element(z.begin(), z.end()) - z.begin());
        const double m = z[best];
        double sum = 0;
        for (double v : z)
            sum += v > -1e30 && m - v <= eps * fmax(fabs(v), m) ? exp(v - m) : 0;
        w.push_back(scale / sum);
        z[best] = -1e38;
    }
    return w;
}

static void near_route_case()
{
    using namespace routers;
    const size_t rows = 3, X = 37, ld = X + 3;
    const route r = {(int)X, 2, NEAR, 0, 1, 0, 0, 0.75f, 1.5f};
    drawn = 10000; /* scores that are far apart: differences must not change the order */
    acts z(numbers(rows * ld, 2)), dz(rows * ld);
    floats w(rows * 2), scores(rows * X), dw(numbers(rows * 2, 1));
    std::vector<int> index(rows * 2);
    launch({rows, 1}, 32, moe_route, w.p(), index.data(), scores.p(), z.p(), (long long)ld,
           (const float *)nullptr, (long long)rows, r);
    launch({1, 1}, 128, moe_route_bwd, dz.p(), (long long)ld, scores.p(), index.data(), dw.p(),
           (long long)rows, r);
    vec want(rows * 2), wdz = nothing(rows * ld);
    for (size_t n = 0; n < rows; n++) {
        const auto f = [&](const vec &a) { return near_weights(a, r.eps, r.scale); };
        const vec zn = row_of(z.values(), n, ld, X);
        set_row(want, n, 2, f(zn));
        set_row(wdz, n, ld, gradient(f, zn, row_of(dw.values(), n, 2, 2)));
    }
    same("moe_route near", w, want, 1e-5);
    same("moe_route_bwd near", dz, wdz, 1e-4);
}

/* Pairs by expert, in their order; some have none. Chunks of 1024 pairs, warps with half of one. */
static void list_case(int X, int P)
{
    using namespace routers;
    const unsigned chunks = (unsigned)(P + 1023) / 1024;
    std::vector<int> index((size_t)P), list((size_t)P, -7), slot((size_t)P, -7),
        start((size_t)X + 2, -7), count(chunks * (size_t)X), want, places((size_t)P, -7);
    for (int p = 0; p < P; p++)
        index[(size_t)p] = p % 11 == 3 ? -1 : (p * 7919 + p / 3) % X;
    launch({chunks, 1}, 64, moe_count, count.data(), index.data(), P, X);
    launch({chunks, 1}, 64, moe_list, list.data(), slot.data(), start.data(), count.data(),
           index.data(), P, X);
    std::vector<int> begin;
    for (int e = 0; e < X; e++) {
        begin.push_back((int)want.size());
        for (int p = 0; p < P; p++)
            if (index[(size_t)p] == e) {
                places[(size_t)p] = (int)want.size();
                want.push_back(p);
            }
    }
    begin.push_back((int)want.size());
    begin.push_back(-7);
    want.resize((size_t)P, -7);
    const bool good = list == want && slot == places && start == begin;
    if (!good)
        printf("moe_list of %d pairs, %d experts: wrong\n", P, X);
    failures += !good;
}

/* Values of the chosen, and back; more than a block has. */
static void pick_case(int X, int k, int rows)
{
    using namespace routers;
    const size_t P = (size_t)(rows * k), all = (size_t)(rows * X);
    std::vector<int> index(P);
    floats v(numbers(all, 2)), y(P), dy(numbers(P, 1)), dv(all);
    vec want(P), wdv(all);
    for (size_t p = 0; p < P; p++) {
        index[p] = (int)(p * 7 % (size_t)X); /* no expert twice in a row of k */
        const size_t at = p / (size_t)k * (size_t)X + (size_t)index[p];
        want[p] = v.values()[at];
        wdv[at] = dy.values()[p];
    }
    launch({(unsigned)(P + 255) / 256, 1}, 256, moe_pick, y.p(), v.p(), index.data(), (long long)P,
           X, k);
    launch({(unsigned)(all + 255) / 256, 1}, 256, moe_pick_bwd, dv.p(), dy.p(), index.data(),
           (long long)all, X, k);
    same("moe_pick", y, want, 0);
    same("moe_pick_bwd", dv, wdv, 0);
}

/* Pairs of experts without weights; more than a block has. */
static void real_case(int X, int P)
{
    using namespace routers;
    std::vector<int> index((size_t)P), real((size_t)P, -7);
    floats mask((size_t)P);
    vec want((size_t)P);
    bool good = true;
    for (int p = 0; p < P; p++)
        index[(size_t)p] = (p * 7919 + p / 3) % (X + X / 2);
    launch({(unsigned)(P + 255) / 256, 1}, 256, moe_real, real.data(), mask.p(), index.data(),
           (long long)P, X);
    for (size_t p = 0; p < (size_t)P; p++) {
        want[p] = index[p] < X;
        good &= real[p] == (index[p] < X ? index[p] : index[p] - X);
    }
    if (!good)
        printf("moe_real of %d pairs, %d experts: wrong\n", P, X);
    failures += !good;
    same("moe_real mask", mask, want, 0);
}
#endif
