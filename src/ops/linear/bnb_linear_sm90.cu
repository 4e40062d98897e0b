/* bnb_linear_sm90.cu - GEMM of up to 256 tokens straight from 4-bit weights of bitsandbytes, on
 * Hopper. Contract: af_linear (linear.c), bf16, pieces stacked along the output in one launch.
 *
 * Built with AF_BOOK (nf4_bits, fp4_bits), AF_N (tokens at most: 8, 64, 128, 256), AF_WG
 * (warpgroups that compute) and AF_KS (blocks of a cluster, which divide the inner dimension). Rows
 * of weights are whole 64-value segments, blocks hold at least 64 values.
 *
 * A warpgroup computes 64 rows of one piece for all tokens: weights are the rows of wgmma's tile,
 * from registers, tokens its columns. One warp fetches x in stages of 64 values, another the codes
 * in boxes of 64 rows and 256 values, a ring of them for each warpgroup. Codes become bf16 as in
 * bnb_linear.cu, times their scale (kept as two bf16), rounded once; with few tokens the sums of
 * segments are scaled instead, and all of x stays in shared memory. The blocks of a cluster send
 * each other their sums, and add them up in the order of their numbers. A token's sums do not
 * depend on the other tokens. On other architectures the kernel is empty. */
// variants: AF_BOOK=nf4_bits,fp4_bits AF_N=8,64,128 AF_WG=2,3 AF_KS=1,2,4
//   | AF_BOOK=nf4_bits,fp4_bits AF_N=256 AF_WG=2 AF_KS=1,2,4
// common: AF_BOOK=nf4_bits AF_N=64 AF_WG=3 AF_KS=2
#include "bnb_linear_sm90.cuh"

#if SM90
/* Codes and scales are read before it. */
DEV void wait_for_x()
{
    next_may_begin();
    previous_done();
}

/* ---- warpgroups that compute ---- */
/* v times a scale that is the sum of two bf16, each twice: rounded once to bf16. */
DEV u32 scaled(u32 v, u32 high, u32 low)
{
    u32 w;
    asm("{\n.reg .b32 t;\nmul.rn.bf16x2 t, %1, %3;\nfma.rn.bf16x2 %0, %1, %2, t;\n}"
        : "=r"(w)
        : "r"(v), "r"(high), "r"(low));
    return w;
}
/* A scale as two bf16 in a word. */
DEV u32 split_scale(float f)
{
    const float high = rounded<bf16>(f);
    return pack_bf16(high, f - high);
}
DEV uint2 load8(u32 at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
DEV uint4 load16(u32 at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at));
    return v;
}
/* The row of a warp's 16, and of 8 more, whose codes lane 4 g + p has as row g of the operand: the
 * first 16 lanes read different banks. */
DEV int row_of() { return threadIdx.x % 16 / 4 * 2 + threadIdx.x % 32 / 16; }
/* The lane's codes of one of its rows in segment i of a box: `at` is row 0 of the two. With x in
 * their own order its 8 bytes, else bytes p of every four. */
struct codes {
    u32 word[WHOLE_X ? 2 : 8];
};
DEV codes load_codes(u32 at, int i, int t)
{
    codes c;
    const u32 p = threadIdx.x % 4;
    if (WHOLE_X) {
        const uint2 v = load8(at + t * 1024 + ((i * 2 + p / 2) ^ row_of()) * 16 + p % 2 * 8);
        c.word[0] = v.x;
        c.word[1] = v.y;
    } else
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 v = load16(at + t * 1024 + ((i * 2 + h) ^ row_of()) * 16);
            c.word[WHOLE_X ? 0 : 4 * h] = v.x;
            c.word[WHOLE_X ? 0 : 4 * h + 1] = v.y;
            c.word[WHOLE_X ? 0 : 4 * h + 2] = v.z;
            c.word[WHOLE_X ? 0 : 4 * h + 3] = v.w;
        }
    return c;
}
/* The operands of four steps of wgmma. by: the scales of both rows. */
DEV void decode(u32 (&a)[4][4], const codes (&c)[2], const u32 (&by)[2])
{
    const u32 lane4 = threadIdx.x % 32 * 4, p = threadIdx.x % 4;
#pragma unroll
    for (int t = 0; t < 2; t++) {
        const u32 high = __byte_perm(by[t], 0, 0x1010), low = __byte_perm(by[t], 0, 0x3232);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const u32 v = WHOLE_X ? pair_of(raw, c[t].word[j / 4], lane4, pair_byte(j % 4))
                                  : pair_of(raw, c[t].word[WHOLE_X ? 0 : j], lane4, pair_byte(p));
            a[j / 2][j % 2 * 2 + t] = SCALE_SUMS ? v : scaled(v, high, low);
        }
    }
}
/* The scales of a warpgroup's rows: lane p of four asks for segment 4 b + p of box b. */
struct scales {
    bnb_row row[2];
    bnb_raw raw[2];
    int shift, nested_shift;
    __device__ __forceinline__ void ask(int segment, int end)
    {
        const int s = min(segment + (int)threadIdx.x % 4, end - 1);
#pragma unroll
        for (int t = 0; t < 2; t++)
            raw[t] = ask_scale(row[t], s * 64, shift, nested_shift);
    }
    __device__ __forceinline__ u32 get(int t) const
    { /* a float, or two bf16 */
        const float f =
            nested_shift < 0
                ? __uint_as_float(raw[t].absmax)
                : add_flush(mul_flush(*map_at(raw[t].absmax), raw[t].nested), row[t].offset);
        return SCALE_SUMS ? __float_as_uint(f * (1.0f / BOOK_BY))
                          : split_scale(f * (1.0f / BOOK_BY));
    }
};
/* This warp has no more use for what the barrier is of. */
DEV void release(u32 bar)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        bar_arrive(bar);
}
/* The sums of a warpgroup's 64 rows. A segment's codes are decoded while the segment before is
 * multiplied. */
struct sums {
    float acc[AF_N / 2];
    float part[SCALE_SUMS ? SEGMENTS : 1][AF_N / 2]; /* of the segments of a box, */
    float by[SEGMENTS][2];                           /* and the scales of both rows */
    u32 a[2][4][4];
    u32 stages, boxes; /* of x and of codes, so far */

    __device__ __forceinline__ float (&target(int i))[AF_N / 2]
    {
        return SCALE_SUMS ? part[SCALE_SUMS ? i : 0] : acc;
    }
    /* The stage of x that segment i of the box has, and how often it was filled before. */
    __device__ __forceinline__ u32 stage(int i) const
    {
        return WHOLE_X || BY_BOX ? i : stages % (X_STAGES + WHOLE_X);
    }
    __device__ __forceinline__ u32 fills() const
    {
        return BY_BOX ? boxes : stages / (X_STAGES + WHOLE_X);
    }
    /* Segment i of a box times x. to: which of part, which of a. */
    __device__ __forceinline__ void begin(const layout &s, const codes (&c)[2], int i, int to,
                                          const u32 (&own)[2])
    {
        const int lane = threadIdx.x % 32;
        const u32 scale[2] = {__shfl_sync(FULL, own[0], lane & 28 | i),
                              __shfl_sync(FULL, own[1], lane & 28 | i)};
        const u32 x = s.x + (WHOLE_X ? stages : stage(i)) * X_STAGE;
        decode(a[to % 2], c, scale);
        if (!WHOLE_X)
            bar_wait(s.x_full + stage(i) * 8, fills() & 1);
        pin(target(to));
        pin(a[to % 2]);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; j++)
            wgmma_rs_k(target(to), a[to % 2][j], desc_k<AF_N>(x, j), !SCALE_SUMS || j > 0);
        wgmma_commit();
        by[to][0] = __uint_as_float(scale[0]);
        by[to][1] = __uint_as_float(scale[1]);
    }
    /* Everything begun is there: `count` segments are added. */
    __device__ __forceinline__ void end(int count)
    {
        wgmma_wait<0>();
        pin(acc);
#pragma unroll
        for (int to = 0; to < SEGMENTS; to++)
            if (SCALE_SUMS && to < count) {
                pin(target(to));
#pragma unroll
                for (int i = 0; i < AF_N / 2; i++)
                    acc[i] += by[to][i / 2 % 2] * target(to)[i];
            }
    }
    __device__ __forceinline__ void zero()
    {
#pragma unroll
        for (int i = 0; i < AF_N / 2; i++)
            acc[i] = 0.0f;
    }
    __device__ __forceinline__ void release_x(const layout &s, u32 stage)
    {
        const u32 bar = s.x_free + stage * 8;
        if (!WHOLE_X)
            release(bar);
    }
};
/* The sums over the block's part of the inner dimension. */
DEV void multiply(sums &m, const layout &s, const work &k, scales &q)
{
    const int group = group_of(), last = k.first + k.segments;
    const u32 row = (threadIdx.x % 128 / 32 * 16 + row_of()) * 128;
    u32 own[2], before = 0; /* the stage of the segment before */
    int left = k.segments;
    auto enter = [&]() { /* the next box: its place */
                         const u32 ring = ring_at(group, m.boxes);
                         own[0] = q.get(0);
                         own[1] = q.get(1);
                         q.ask(last - left + SEGMENTS, last);
                         bar_wait(s.codes_full + ring * 8, m.boxes / BOXES & 1);
                         return s.codes + ring * BOX + row;
    };
    m.zero();
    m.stages = WHOLE_X ? 0 : m.stages;
    q.ask(k.first, last);
    for (; left >= SEGMENTS; left -= SEGMENTS) {
        const u32 at = enter();
        codes c[SEGMENTS][2];
#pragma unroll
        for (int i = 0; i < SEGMENTS && WHOLE_X; i++) {
            c[i][0] = load_codes(at, i, 0);
            c[i][1] = load_codes(at, i, 1);
        }
        if (WHOLE_X)
            release(s.codes_free + ring_at(group, m.boxes) * 8);
#pragma unroll
        for (int i = 0; i < SEGMENTS; i++) {
            if (!WHOLE_X) {
                c[i][0] = load_codes(at, i, 0);
                c[i][1] = load_codes(at, i, 1);
            }
            m.begin(s, c[i], i, i, own);
            wgmma_wait<1>();
            if (i > 0 || left < k.segments)
                m.release_x(s, before);
            before = m.stage(i);
            m.stages++;
        }
        if (SCALE_SUMS)
            m.end(SEGMENTS);
        if (!WHOLE_X)
            release(s.codes_free + ring_at(group, m.boxes) * 8);
        m.boxes++;
    }
    if (!SCALE_SUMS) {
        m.end(0);
        if (k.segments >= SEGMENTS)
            m.release_x(s, before);
    }
    if (left > 0) {
        const u32 at = enter();
        for (int i = 0; i < left; i++) {
            const codes c[2] = {load_codes(at, i, 0), load_codes(at, i, 1)};
            m.begin(s, c, i, 0, own);
            m.end(1);
            m.release_x(s, m.stage(i));
            m.stages++;
        }
        for (int i = left; i < SEGMENTS && BY_BOX; i++) { /* of no use */
            bar_wait(s.x_full + i * 8, m.boxes & 1);
            m.release_x(s, i);
        }
        release(s.codes_free + ring_at(group, m.boxes++) * 8);
    }
}
/* ---- sums of the blocks that divide the inner dimension ---- */
struct output {
    bf16 *y;
    i64 ld;
    const bf16 *bias;
    int M;
};
/* y of SLAB / OWNERS tokens from `token`, as they are in s.sums. */
DEV void store_sums(const output &o, const layout &s, const bnb_pieces &w, const work &k, int tile,
                    int token)
{
    const int f = threadIdx.x % (ROWS / 4) * 4, t = tile + f / 64;
    const place p = find_tile(w, min(t, k.tiles - 1));
    const int row = p.row + f % 64, left = t < k.tiles ? p.rows - row : 0;
    float add[4] = {};
    const i64 col = p.from + row;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (o.bias && i < left)
            add[i] = load(o.bias + col + i);
    const bool whole = left >= 4 && (o.ld | col) % 4 == 0 && (u64)o.y % 8 == 0;
    for (int n = threadIdx.x / (ROWS / 4); n < min(SLAB / OWNERS, o.M - token); n += 8) {
        const float4 v = *(const float4 *)(s.sums + n * PITCH + f);
        bf16 *to = o.y + (token + n) * o.ld + col;
        const float sum[4] = {v.x + add[0], v.y + add[1], v.z + add[2], v.w + add[3]};
        if (whole)
            *(uint2 *)to = {pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3])};
        else
            for (int i = 0; i < 4; i++)
                if (i < left)
                    store(to + i, sum[i]);
    }
}
/* Sums i to i + 3 of this thread, for the thread of the same number in an owner: it adds what all
 * blocks send it in the order of their numbers. */
DEV u32 sent_at(u32 sent, int buffer, int from, int i)
{
    return sent + buffer * SENT + (from * (SHARE / 4) + i / 4) * (THREADS * 16) + threadIdx.x * 16;
}
DEV void send4(u32 to, u32 bar, int rank, const float *v)
{
    asm volatile("{\n.reg .b32 at, b;\nmapa.shared::cluster.u32 at, %0, %2;\n"
                 "mapa.shared::cluster.u32 b, %1, %2;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [at], "
                 "{%3,%4,%5,%6}, [b];\n}" ::"r"(to),
                 "r"(bar), "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
                 : "memory");
}
DEV float4 load_sent(u32 at)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at));
    return v;
}
/* own = the sums that this block adds up, of all blocks; false: none. Buffers are taken in turn. */
DEV bool exchange(float (&own)[SHARE], const float *acc, const layout &s, u32 turn)
{
    const int me = split_rank(), lane = threadIdx.x % 32, buffer = turn % 2;
    const u32 arrived = s.arrived + buffer * 8, taken = s.taken + buffer * 8;
#pragma unroll
    for (int r = 0; r < OWNERS; r++)
#pragma unroll
        for (int i = 0; i < SHARE; i++)
            if (r == me)
                own[i] = acc[r * SHARE + i];
    if (AF_KS == 1)
        return true;
    if (threadIdx.x == 0 && me < OWNERS)
        bar_expect(arrived, SENT);
    bar_wait(taken, turn / 2 & 1 ^ 1);
#pragma unroll
    for (int r = 0; r < OWNERS; r++)
#pragma unroll
        for (int i = 0; i < SHARE; i += 4)
            if (r != me)
                send4(sent_at(s.sent, buffer, me - (me > r), i), arrived, r, acc + r * SHARE + i);
    if (me >= OWNERS)
        return false;
    bar_wait(arrived, turn / 2 & 1);
#pragma unroll
    for (int i = 0; i < SHARE; i += 4) {
        float v[4] = {};
#pragma unroll
        for (int r = 0; r < AF_KS; r++) {
            const float4 q = r == me ? float4{own[i], own[i + 1], own[i + 2], own[i + 3]}
                                     : load_sent(sent_at(s.sent, buffer, r - (r > me), i));
            v[0] += q.x;
            v[1] += q.y;
            v[2] += q.z;
            v[3] += q.w;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            own[i + j] = v[j];
    }
    __syncwarp();
    if (lane < AF_KS) /* counts for all, with this block */
        bar_arrive_at(taken, lane);
    return true;
}
DEV void store_tile(const float (&acc)[AF_N / 2], const output &o, const layout &s,
                    const bnb_pieces &w, const work &k, int tile, u32 &turn)
{
    const int lane = threadIdx.x % 32;
    float *to = s.sums + lane % 4 * 2 * PITCH + threadIdx.x / 32 * 16 + row_of();
#pragma unroll
    for (int n = 0; n < AF_N; n += SLAB, turn++) {
        float own[SHARE];
        if (n >= o.M)
            break;
        if (!exchange(own, acc + n / 2, s, turn))
            continue;
        meet(1, THREADS); /* s.sums have been stored */
#pragma unroll
        for (int i = 0; i < SHARE; i++) /* sum i: token i / 4 * 8 + i % 2, row i / 2 % 2 * 8 */
            to[(i / 4 * 8 + i % 2) * PITCH + i / 2 % 2 * 8] = own[i];
        meet(1, THREADS);
        store_sums(o, s, w, k, tile, n + split_rank() * (SLAB / OWNERS));
    }
}
#endif

/* y[m][o] = sum_i x[m][i] w[o][i] + bias[o], of tiles `from` to `to` - 1 of 64 rows of a piece.
 * shift, nested_shift: bnb_linear.cuh. The grid is a multiple of AF_KS, the block has four warps
 * more than compute. Dynamic shared memory: WHOLE_AT + 1024 bytes, with WHOLE_X 1024 for each
 * segment of the largest part more. */
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS + 128, 1)
    bnb_linear_sm90(bf16 *y, long long ldy, const bf16 *x, long long ldx,
                    const __grid_constant__ af_map x_map, const __grid_constant__ af_map codes0,
                    const __grid_constant__ af_map codes1, const __grid_constant__ af_map codes2,
                    bnb_pieces w, float off0, float off1, float off2, const bf16 *bias, int M,
                    int I, int shift, int nested_shift, int from, int to)
{
#if SM90
    const layout s = layout_begin();
    const work k = work_of(I, from, to);
    if (WHOLE_X) {
        fill_pairs(raw, blockDim.x, AF_BOOK, BOOK_BY);
        for (int i = threadIdx.x; i < 256; i += THREADS + 128)
            *map_at(i) = __uint_as_float(dynamic_signed_bits[i]);
    }
    cluster_meet();
    const int warp = __shfl_sync(FULL, threadIdx.x / 32, 0);
    if (warp >= AF_WG * 4) {
        registers_down<FETCH_REGISTERS>();
        if (threadIdx.x == THREADS)
            fetch_codes(s, k, w, &codes0, &codes1, &codes2);
        if (!WHOLE_X && threadIdx.x == THREADS + 32) {
            wait_for_x();
            fetch_x(s, k, &x_map);
        }
        return;
    }
    registers_up<SUM_REGISTERS>();
    if (!WHOLE_X)
        fill_tables(); /* while codes are fetched */
    wait_for_x();
    if (WHOLE_X)
        load_whole_x(s, k, x, ldx, M);
    const output o = {y, ldy, bias, M};
    const bnb_offsets offsets = {{off0, off1, off2}};
    sums m;
    u32 turn = 0;
    m.stages = m.boxes = 0;
    for (int t = k.begin; t < k.tiles; t += k.every) {
        const place p = find_tile(w, min(t + group_of(), k.tiles - 1));
        scales q;
#pragma unroll
        for (int h = 0; h < 2; h++)
            q.row[h] =
                find_row(w, offsets,
                         p.from + min(p.row + (int)threadIdx.x % 128 / 32 * 16 + row_of() + h * 8,
                                      p.rows - 1),
                         I);
        q.shift = shift;
        q.nested_shift = nested_shift;
        multiply(m, s, k, q);
        store_tile(m.acc, o, s, w, k, t, turn);
    }
    if (AF_KS > 1)
        cluster_meet(); /* the other blocks need nothing more of this one */
#endif
}
