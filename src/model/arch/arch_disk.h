/* arch_disk.h - how the tensors of a model lie in a Hugging Face folder. */
#ifndef AF_ARCH_DISK_H
#define AF_ARCH_DISK_H

#include "model/arch/arch.h"

/* How tensor i lies on disk in a Hugging Face folder: `count` tensors (1, or 1 to 2 an expert),
 * piece p being `dim` at element offset `from` of ours. Name goes to a caller's buffer. */
int af_disk_count(const af_model_spec *s, int tensor);
void af_disk_piece(const af_model_spec *s, int tensor, int p, char *name, size_t size,
                   int64_t dim[AF_DISK_DIMS], int *ndim, int64_t *from);
/* Piece p of the experts' tensor where experts lie one by one, whatever the folder has. */
void af_disk_expert(const af_model_spec *s, int tensor, int p, char *name, size_t size,
                    int64_t dim[AF_DISK_DIMS], int *ndim, int64_t *from);
/* True for the convolution of a delta net that is three tensors there, of conv_rows each. */
bool af_disk_is_conv(const af_model_spec *s, int tensor);
/* True for a vector that has more axes there (a_log_axes). */
bool af_disk_has_axes(const af_model_spec *s, int tensor);
/* True for norms of heads that are tensors of their own, and for gate_up_proj in halves. */
bool af_disk_is_apart(const af_model_spec *s, int tensor);
/* True for a tensor whose values lie in another order on disk (experts_turned); then value (row,
 * column) of ours, a matrix of all rows, is element af_disk_at of the stored tensor, or of its
 * pieces one after another. */
bool af_disk_is_turned(const af_model_spec *s, int tensor);
int64_t af_disk_at(const af_tensor_spec *t, int64_t row, int64_t column);
/* True where gates and ups are two such pieces (experts_flat_up). */
bool af_disk_is_flat(const af_model_spec *s, int tensor);
/* All values of one, each of `size` bytes, into the order of the disk or back. */
void af_disk_turn(const af_tensor_spec *t, const void *from, void *to, uint64_t size, bool to_disk);
/* A copy in the order of the disk, to be freed; NULL without memory. */
void *af_disk_turned(const af_model_spec *s, int tensor, const void *data, af_dtype type);
/* Such a tensor as codes (MXFP4) is [X][out][in]: which of these rows is row `row` of ours. */
int64_t af_disk_out_row(const af_tensor_spec *t, int64_t row);
/* The tensor that has a piece of this name, and where the piece begins in it; -1: none. */
int af_disk_find(const af_model_spec *s, const char *name, int64_t *from);
#endif
