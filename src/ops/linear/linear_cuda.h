/* linear_cuda.h - how projections lie in device memory.
 *
 * A group is one set of weight pieces with its adapter, as LINEAR and its backward nodes share it.
 * Its matrix is stored extended: [W B; A 0], W the stacked pieces [O][I], B the adapter's up half
 * in `ext` spare columns (block diagonal over the parts), A its down half in `ext` spare rows.
 * Activations that feed such a group get `ext` spare columns too, so that y = [x | xa] [W | B]'
 * and dx = [dy | g] [W ; A] are one GEMM each. Pieces of the compute type are views into it;
 * others (quantised, f32 params) are copied in: once after they were written, after each update,
 * or, in scratch mode, into the workspace at each use. Pieces that ranks split are whole only for
 * the nodes that read them, each pass its own tensor: those are copied in at each use, too. */
#ifndef AF_LINEAR_CUDA_H
#define AF_LINEAR_CUDA_H

#include "backend/cuda/cuda.h"
#include "ops/linear/linear_in.h"

enum { AF_FOLD_RANK = 64 }; /* spare columns; adapters of a higher rank are GEMMs of their own */

typedef struct af_linear_group {
    const af_node *of; /* the first node that uses it: its attributes count */
    af_tensor *w[AF_LINEAR_PIECES], *bias_in[AF_LINEAR_PIECES];
    int pieces, parts;
    af_tensor *a, *b;
    int64_t I, O, R, ext;
    af_dtype type;
    bool direct;      /* pieces are used where they lie, one GEMM each */
    bool quant;       /* some piece has a block type */
    bool scratch;     /* the matrix lives in the workspace, filled at each use */
    bool gathered;    /* so do the biases, after it: ranks split them */
    af_tensor *fused; /* [O + ext][I + ext]; NULL when direct */
    af_tensor *bias;  /* [O], or NULL */
    /* where the pieces stay in 4 bits, and skinny kernels read them; else NULL */
    af_tensor *bt;   /* B transposed, [R, up to 16][O] */
    af_tensor *down; /* A, [R, up to 16][I] */
    /* FP8 (fp8_cuda.h): e4m3 [O][I] and [I][O], a scale for each row of either; A' [I][ext] */
    bool fp8;
    af_tensor *codes, *codes_t, *scale, *scale_t, *at;
} af_linear_group;

/* Another family that launches some LINEARs, together with what follows them. */
typedef struct af_linear_epilogue {
    /* Appends the launches and returns true where n is such a one; the matrix and the spare columns
     * of x are filled by then. */
    bool (*launch)(af_cuda *cu, const af_graph *g, af_node *n, const af_linear_group *p);
    uint64_t (*work)(const af_cuda *cu, const af_node *n); /* bytes, those of the matrix included */
} af_linear_epilogue;

/* The groups of a graph: the family's slot. */
typedef struct af_linear_groups {
    af_linear_group *group;
    int n;
    const af_linear_epilogue *epilogue; /* or NULL */
} af_linear_groups;
af_linear_groups *af_linear_groups_of(const af_graph *g);

/* Projections and the head: layout finds the groups, makes their matrices and pads activations;
 * shrink puts the matrices of all block types into the workspace (those of 4-bit weights of
 * bitsandbytes, which are in the graph only when the caller wants them to stay in 4 bits, always
 * are there); prepare records the steps that keep the matrices up to date. */
extern const af_cuda_family af_cuda_linear_family;
/* linear_fill_cuda.c */
AF_CHECKED af_status af_cuda_linear_prepare(af_cuda *cu, af_graph *g, af_error *err);

/* The group of a node (any of the linear family, or the head). */
const af_linear_group *af_linear_group_of(const af_graph *g, const af_node *n);
/* Bytes of workspace the group's matrix and bias take where they are filled at each use, else 0. */
uint64_t af_linear_group_scratch(const af_linear_group *p);
/* There: steps of n that fill the matrix (or only its adapter halves), or the bias. */
enum { AF_FILL_W = 1, AF_FILL_A = 2, AF_FILL_B = 4, AF_FILL_BIAS = 8 };
void af_linear_group_fill(af_cuda *cu, af_node *n, const af_linear_group *p, int what);
/* Piece i as node n reads it. */
const af_tensor *af_linear_group_piece(const af_linear_group *p, const af_node *n, int i);
/* Element `from` of the bias, or NULL. */
void *af_linear_group_bias(const af_cuda *cu, const af_linear_group *p, int64_t from);

/* Rows [row, row + rows), columns [col, col + cols) of the extended matrix. */
af_mat af_linear_group_mat(const af_cuda *cu, const af_linear_group *p, int64_t row, int64_t rows,
                           int64_t col, int64_t cols);

/* Skinny GEMMs straight from 4-bit weights (bnb_linear_cuda.c): append the launches and return
 * true, or false where dequantise + GEMM must do it. */
bool af_bnb_linear(af_cuda *cu, af_node *n, const af_linear_group *p);
bool af_bnb_linear_dx(af_cuda *cu, af_node *n, const af_linear_group *p);
/* The same of a matrix in the workspace: AF_FILL_W, with one of the adapter's halves or none. */
bool af_bnb_fill(af_cuda *cu, af_node *n, const af_linear_group *p, int what);

/* Low-rank GEMMs by own kernels (low_rank_cuda.c), returning the same: c = scale * x A' (down)
 * or scale * dy B; the gradient of B. */
bool af_low_rank(af_cuda *cu, af_node *n, const af_linear_group *p, bool down, af_mat c);
bool af_low_rank_db(af_cuda *cu, af_node *n);

/* Appends the dequantisation of a block-type weight (dequant.cu). */
void af_cuda_dequantise(af_cuda *cu, af_node *n, af_mat dst, const af_tensor *w);
/* Appends dst[r][c] = alpha * src[r][c], zeros up to column `wide` (core.cu). src may be empty. */
void af_cuda_copy_2d(af_cuda *cu, af_node *n, af_mat dst, af_mat src, int64_t wide, float alpha);
#endif
