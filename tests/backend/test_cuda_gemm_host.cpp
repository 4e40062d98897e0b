/* test_cuda_gemm_host.cpp - gemm_tiles.cu with the tiles of gemm_cost.c, and gemm_join.cu, compiled
 * for the host (host/dev.cuh) next to sums in double. As test_cuda_tensor.cpp. */
#include "host/host_compare.h"

#define NAME      t0
#define AF_BM     128
#define AF_BN     128
#define AF_WM     2
#define AF_WN     2
#define AF_STAGES 4
#define AF_TA     0
#define AF_TB     1
#define AF_C      bf16
#include "host/gemm_variant.h"
#define NAME      t1
#define AF_BM     128
#define AF_BN     128
#define AF_WM     2
#define AF_WN     2
#define AF_STAGES 3
#define AF_TA     1
#define AF_TB     0
#define AF_C      float
#include "host/gemm_variant.h"
#define NAME      t2
#define AF_BM     128
#define AF_BN     64
#define AF_WM     2
#define AF_WN     2
#define AF_STAGES 3
#define AF_TA     0
#define AF_TB     1
#define AF_C      bf16
#include "host/gemm_variant.h"
#define NAME      t3
#define AF_BM     64
#define AF_BN     128
#define AF_WM     2
#define AF_WN     2
#define AF_STAGES 3
#define AF_TA     0
#define AF_TB     0
#define AF_C      bf16
#include "host/gemm_variant.h"
#define NAME      t4
#define AF_BM     64
#define AF_BN     64
#define AF_WM     2
#define AF_WN     2
#define AF_STAGES 4
#define AF_TA     1
#define AF_TB     0
#define AF_C      float
#include "host/gemm_variant.h"
#define NAME      t4n
#define AF_BM     64
#define AF_BN     64
#define AF_WM     2
#define AF_WN     2
#define AF_STAGES 4
#define AF_TA     0
#define AF_TB     1
#define AF_C      bf16
#include "host/gemm_variant.h"
#define NAME      t5
#define AF_BM     256
#define AF_BN     128
#define AF_WM     4
#define AF_WN     2
#define AF_STAGES 3
#define AF_TA     0
#define AF_TB     0
#define AF_C      bf16
#include "host/gemm_variant.h"
#define NAME      t6
#define AF_BM     128
#define AF_BN     256
#define AF_WM     2
#define AF_WN     4
#define AF_STAGES 3
#define AF_TA     1
#define AF_TB     0
#define AF_C      bf16
#include "host/gemm_variant.h"
#define NAME      t7
#define AF_BM     32
#define AF_BN     128
#define AF_WM     1
#define AF_WN     4
#define AF_STAGES 4
#define AF_TA     0
#define AF_TB     1
#define AF_C      float
#include "host/gemm_variant.h"
#define NAME      t8
#define AF_BM     16
#define AF_BN     128
#define AF_WM     1
#define AF_WN     4
#define AF_STAGES 4
#define AF_TA     1
#define AF_TB     0
#define AF_C      bf16
#include "host/gemm_variant.h"
#define NAME      t8n
#define AF_BM     16
#define AF_BN     128
#define AF_WM     1
#define AF_WN     4
#define AF_STAGES 4
#define AF_TA     0
#define AF_TB     0
#define AF_C      float
#include "host/gemm_variant.h"
#define NAME      t9
#define AF_BM     128
#define AF_BN     32
#define AF_WM     4
#define AF_WN     1
#define AF_STAGES 4
#define AF_TA     0
#define AF_TB     1
#define AF_C      bf16
#include "host/gemm_variant.h"
#define NAME      t9t
#define AF_BM     128
#define AF_BN     32
#define AF_WM     4
#define AF_WN     1
#define AF_STAGES 4
#define AF_TA     1
#define AF_TB     0
#define AF_C      bf16
#include "host/gemm_variant.h"
#define AF_C bf16
namespace joined
{
#include "backend/cuda/gemm_join.cu"
}
#undef AF_C
extern "C" {
__align__(16) thread_local u8 raw[1 << 18];
}

enum { TA = 1, TB = 2, APART = 4 }; /* APART: what is added is another matrix than c */
/* A batch of products, or (parts) one whose inner dimension is cut, with its own row strides. */
struct gemm_case {
    int bm, bn, threads, flags, M, N, K, batch;
    float alpha, beta;
    bool bias;
};

template <class T> struct operands {
    gemm_case c;
    bool ta, tb;
    i64 lda, ldb, ldc, ldadd, sa, sb, sc;
    acts a, b;
    buf<T> out, bias, apart;
    vec want;
    double largest = 0;
    explicit operands(const gemm_case &g)
        : c(g), ta(g.flags & TA), tb(g.flags & TB), lda(((ta ? g.M : g.K) + 15) & ~7),
          ldb(((tb ? g.K : g.N) + 15) & ~7), ldc(g.N + 3), ldadd(g.flags & APART ? g.N + 7 : ldc),
          sa((ta ? g.K : g.M) * lda), sb((tb ? g.N : g.K) * ldb), sc(g.M * ldc),
          a(numbers((size_t)(g.batch * sa), 1)), b(numbers((size_t)(g.batch * sb), 1)),
          out((size_t)(g.batch * sc)), bias(numbers((size_t)g.N, 1)), apart((size_t)(g.M * ldadd)),
          want(nothing((size_t)(g.batch * sc)))
    {
        for (int z = 0; z < g.batch; z++)
            for (int m = 0; m < g.M; m++)
                for (int n = 0; n < g.N; n++)
                    expect(z, m, n);
    }
    void expect(int z, int m, int n)
    {
        const i64 at = z * sc + m * ldc + n;
        double v = 0;
        for (int k = 0; k < c.K; k++)
            v += get(&a.v[(size_t)(z * sa + (ta ? k * lda + m : m * lda + k))]) *
                 get(&b.v[(size_t)(z * sb + (tb ? n * ldb + k : k * ldb + n))]);
        T *from = c.flags & APART ? &apart.v[(size_t)(m * ldadd + n)] : &out.v[(size_t)at];
        if (c.beta != 0)
            put(from, number());
        v = c.alpha * v + (c.beta != 0 ? c.beta * get(from) : 0) +
            (c.bias ? get(&bias.v[(size_t)n]) : 0);
        want[(size_t)at] = v;
        largest = fmax(largest, fabs(v));
    }
    T *add() { return c.flags & APART ? apart.p() : out.p(); }
    unsigned across() const { return (unsigned)((c.N + c.bn - 1) / c.bn); }
    unsigned down() const { return (unsigned)((c.M + c.bm - 1) / c.bm); }
};

template <class T> static void check(const char *name, operands<T> &o)
{
    const vec g = o.out.values();
    double worst = 0;
    for (size_t i = 0; i < o.want.size(); i++) {
        const double w = o.want[i];
        const double e = w != w ? (g[i] != g[i] ? 0 : 9)
                                : (fabs(g[i] - w) - unit(o.out.p()) * fabs(w)) / o.largest;
        worst = e <= worst ? worst : e == e ? e : 9;
    }
    if (getenv("AF_SHOW"))
        printf("%-6s %.2g\n", name, worst);
    if (worst > 2e-6 || !o.out.rest_is_kept()) {
        printf("%s: error %.3g, %.3g allowed%s\n", name, worst, 2e-6,
               o.out.rest_is_kept() ? "" : "; wrote past the end");
        failures++;
    }
}

template <class T, class K> static void whole(const char *name, K kernel, const gemm_case &c)
{
    operands<T> o(c);
    launch({o.across(), o.down(), (unsigned)c.batch}, (unsigned)c.threads, kernel, o.out.p(), o.ldc,
           o.sc, o.a.p(), o.lda, o.sa, o.b.p(), o.ldb, o.sb, o.add(), o.ldadd,
           c.bias ? o.bias.p() : nullptr, (i64)c.M, (i64)c.N, (i64)c.K, c.alpha, c.beta);
    check(name, o);
}

/* As af_cuda_gemm_own splits it (part_of of gemm.c). */
template <class K> static void in_parts(const char *name, K kernel, const gemm_case &c, int parts)
{
    operands<bf16> o(c);
    const i64 share = c.K / parts;
    floats sums((size_t)parts * c.M * c.N);
    launch({o.across(), o.down(), (unsigned)parts}, (unsigned)c.threads, kernel, sums.p(), (i64)c.N,
           (i64)c.M * c.N, o.a.p(), o.lda, o.ta ? share * o.lda : share, o.b.p(), o.ldb,
           o.tb ? share : share * o.ldb, sums.p(), (i64)c.N, (float *)nullptr, (i64)c.M, (i64)c.N,
           share, 1.0f, 0.0f);
    launch({2, 1}, 256, joined::gemm_join, o.out.p(), o.ldc, sums.p(), o.add(), o.ldadd,
           c.bias ? o.bias.p() : nullptr, (i64)c.M, (i64)c.N, parts, c.alpha, c.beta);
    check(name, o);
}

int main()
{
    whole<bf16>("t0", in_t0::t0, {128, 128, 128, TB, 133, 129, 72, 1, 1, 1, false});
    whole<float>("t1", in_t1::t1, {128, 128, 128, TA, 137, 119, 40, 1, 0.5f, 0, true});
    whole<bf16>("t2", in_t2::t2, {128, 64, 128, TB | APART, 133, 65, 104, 1, 1, 1, false});
    whole<bf16>("t3", in_t3::t3, {64, 128, 128, 0, 69, 135, 33, 2, 0.5f, 0, true});
    whole<float>("t4", in_t4::t4, {64, 64, 128, TA, 73, 65, 64, 1, 1, 1, false});
    whole<bf16>("t4n", in_t4n::t4n, {64, 64, 128, TB, 69, 71, 72, 1, 0.5f, 0, true});
    whole<bf16>("t5", in_t5::t5, {256, 128, 256, 0, 261, 129, 40, 1, 1, 1, false});
    whole<bf16>("t6", in_t6::t6, {128, 256, 256, TA, 137, 247, 104, 1, 0.5f, 0, true});
    whole<float>("t7", in_t7::t7, {32, 128, 128, TB, 37, 129, 33, 1, 1, 1, false});
    whole<bf16>("t8", in_t8::t8, {16, 128, 128, TA, 25, 135, 64, 2, 0.5f, 0, true});
    whole<float>("t8n", in_t8n::t8n, {16, 128, 128, 0, 21, 129, 72, 1, 1, 1, false});
    whole<bf16>("t9", in_t9::t9, {128, 32, 128, TB, 133, 39, 40, 1, 0.5f, 0, true});
    whole<bf16>("t9t", in_t9t::t9t, {128, 32, 128, TA, 137, 33, 104, 2, 1, 1, false});
    in_parts("t4 in 2", in_t4::t4, {64, 64, 128, TA | APART, 70, 65, 80, 1, 0.5f, 1, true}, 2);
    in_parts("t7 in 4", in_t7::t7, {32, 128, 128, TB, 33, 130, 160, 1, 1, 0, false}, 4);
    in_parts("t8n in 3", in_t8n::t8n, {16, 128, 128, 0, 5, 130, 120, 1, 1, 0, true}, 3);
    printf("%d failed\n", failures);
    return failures ? 1 : 0;
}
