/* fp8_cuda.h - FP8 products of a group of projections on a GPU (fp8_linear.h). */
#ifndef AF_FP8_CUDA_H
#define AF_FP8_CUDA_H

#include "ops/linear/linear_cuda.h"

/* Whether kernels serve such a group: rows of codes on 16 bytes, bf16, FP8 tensor cores. */
bool af_fp8_cuda_can(const af_cuda *cu, af_dtype type, int64_t in, int64_t out);
/* Layout: the codes of both orientations, their scales, and the transposed A. */
void af_fp8_cuda_leaves(af_graph *g, af_linear_group *p);
/* Rows as codes, by the op that writes the rows: layout gives a norm two more outputs, and the
 * product two more inputs. NULL where fp8_rows makes them. */
typedef struct af_fp8_rows {
    af_tensor *codes, *scale;
} af_fp8_rows;
void af_fp8_cuda_join(af_graph *g);
af_fp8_rows af_fp8_rows_made(const af_node *n);
/* Layout: gives `maker` the two more outputs, and the product that reads its rows the inputs; false
 * where a node has the most it can hold. */
bool af_fp8_rows_add(af_graph *g, af_node *maker, af_node *product);
/* The largest magnitude of each row of a product in FP8, as bits of f32: of LINEAR [2][rows], of
 * the two halves of its columns, of LINEAR_DX [1][rows]. An output that layout adds, NULL where it
 * cannot. */
af_tensor *af_fp8_most_add(af_graph *g, af_node *product);
/* Workspace of LINEAR and LINEAR_DX after that of the group's matrix: codes and scales of rows. */
uint64_t af_fp8_cuda_work(const af_node *n);
/* Steps of n that make the codes of the weights from their bf16 matrix. */
void af_fp8_cuda_weights(af_cuda *cu, af_node *n, const af_linear_group *p, af_mat w);
/* Steps of LINEAR or LINEAR_DX: rows become codes, and their product. x2, w2: the adapter's term
 * (no columns = none); bias may be NULL. */
void af_fp8_cuda_product(af_cuda *cu, af_node *n, const af_linear_group *p, af_mat x2, af_mat w2,
                         const void *bias);
#endif
