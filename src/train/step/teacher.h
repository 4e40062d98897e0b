/* teacher.h - distillation: the distributions of the next token of student and teacher are compared
 * where a label is. The teacher runs in the same process, its forward pass recorded next to the
 * student's; or its k best tokens come from a capture, and both are compared over these alone.
 *
 *     D = beta KL(q||m) + (1 - beta) KL(p||m),  m = (1 - beta) p + beta q
 *
 * p is the student, q the teacher, both at the temperature; beta 0 is KL(q||p), beta 1 KL(p||q).
 * The loss is kd_ce_alpha times the cross-entropy plus kd_alpha T^2 D, both means over the labels
 * of a step. Logits of all rows are held, of both; with kd_chunk_size, of so many at a time, a
 * block each that is rebuilt in the backward pass. Of a capture, q is renormalised over the k
 * tokens and p is not (kd_normalize_topk: both are). */
#ifndef AF_TEACHER_H
#define AF_TEACHER_H

#include "data/store/batch_stream.h"
#include "train/step/divergence.h"
#include "train/step/run_model.h"

/* Rows whose distributions are in memory together: all, or kd_chunk_size. */
typedef struct af_teacher_part {
    af_tensor *weight;        /* f32 [n]: T^2 times the scale of the loss where a label is */
    af_tensor *index, *back;  /* of several parts: as af_row_pick takes the rows with labels */
    af_tensor *best, *shares; /* of a capture: i32 and f32 [n][k], tokens and their log q */
} af_teacher_part;

typedef struct af_teacher {
    af_graph *graph; /* borrowed */
    af_model_leaves leaves;
    af_teacher_part *part; /* [parts] of part_rows each; the last may have rows that are none */
    int parts;
    int64_t part_rows;
    af_divergence divergence;
    af_tensor *ce, *kd;              /* f32 [1]: the two parts, before kd_ce_alpha and kd_alpha */
    float *rows, *ce_loss, *kd_loss; /* on the host; the last two by micro-batch */
    float *log_share;                /* on the host, of a capture: [N][k] each */
    int32_t *id;
    int32_t *picked; /* on the host: index and back of a part */
} af_teacher;

/* Opens the teacher that the run names, and its adapter: m->teacher. Its tokens must be the
 * student's, rows that pad a vocabulary apart. */
AF_CHECKED af_status af_teacher_open(af_run_model *m, bool outline, af_error *err);
/* That a capture fits the run's data, when there is one. */
AF_CHECKED af_status af_teacher_check_data(const af_run_model *m, const af_token_store *s,
                                           af_error *err);
/* Records it after the student's `h` and cross-entropy; returns the loss. */
AF_CHECKED af_status af_teacher_record(af_teacher *t, const af_run_model *m,
                                       af_model_leaves *student, const af_batch_inputs *in,
                                       af_tensor *h, int64_t rows, af_tensor **loss, af_error *err);
/* After prepare: weights, constants, staging buffers. */
AF_CHECKED af_status af_teacher_load(af_teacher *t, const af_run_model *m, int64_t rows,
                                     af_error *err);
/* With a micro-batch, `rows` at most, and the scale of its loss (0: evaluation, which needs no
 * teacher); `length` as for the student's ropes. */
AF_CHECKED af_status af_teacher_upload(af_teacher *t, const af_run_model *m, const af_batch *b,
                                       int64_t rows, float scale, int64_t length, af_error *err);
void af_teacher_drop(af_teacher *t);  /* the leaves; the graph is the caller's */
void af_teacher_clear(af_teacher *t); /* an empty one is allowed */
#endif
