/* uld_teacher.h - a teacher with another tokenizer. A record's tokens are text again, answer by
 * answer; the teacher reads that text in its own tokens, and uld_loss.h compares the two where they
 * end at the same bytes. The teacher is a model of its own, and both models' logits of a
 * micro-batch pass through the host. */
#ifndef AF_ULD_TEACHER_H
#define AF_ULD_TEACHER_H

#include "afinar/model.h"
#include "base/buf.h"
#include "data/store/batch_stream.h"
#include "train/step/run_model.h"
#include "train/uld/uld_loss.h"

/* Answer tokens of one side; see af_uld_side. */
typedef struct af_uld_tokens {
    int32_t *id;
    int64_t *row, *end;
    int64_t n, room;
} af_uld_tokens;

typedef struct af_uld_teacher {
    const af_run_config *run; /* borrowed */
    af_uld_opts opts;
    af_uld_work *work;
    af_model *model;
    af_tokenizer *own;         /* the student's */
    const af_tokenizer *other; /* the model's */
    int32_t *match;
    float *logits, *grad; /* [rows][V]: of the student; the gradient by them */
    int64_t rows;
    float *theirs; /* [theirs_room][W] */
    int64_t theirs_room;
    /* of the record at hand */
    af_uld_tokens student, teacher;
    int32_t *ids; /* the teacher's */
    int64_t count, ids_room;
    af_uld_group *group;
    int64_t groups;
    af_buf text, token;
    af_encoding encoding;
} af_uld_teacher;

AF_CHECKED af_status af_uld_teacher_open(af_uld_teacher *u, const af_run_model *m, int64_t rows,
                                         af_error *err);
void af_uld_teacher_close(af_uld_teacher *u); /* an empty one is allowed */
/* u->logits holds those of the batch: fills u->grad with `share` times the gradient of the sum of
 * its records' losses, which is *loss. */
AF_CHECKED af_status af_uld_teacher_batch(af_uld_teacher *u, const af_batch *b, double share,
                                          double *loss, af_error *err);
#endif
