/* wandb_log.h - the file of an offline W&B run: ":W&B", then records in the frames of LevelDB's
 * log (blocks of 32 KiB) with a CRC-32, each a protobuf message `Record`. */
#ifndef AF_WANDB_LOG_H
#define AF_WANDB_LOG_H

#include "base/buf.h"

/* Fields of Record that are written here. */
enum {
    AF_WANDB_HISTORY = 2,
    AF_WANDB_SUMMARY = 3,
    AF_WANDB_RUN = 17,
    AF_WANDB_EXIT = 18,
    AF_WANDB_HEADER = 21
};

void af_wandb_put_varint(af_buf *b, int field, uint64_t v);
void af_wandb_put_bytes(af_buf *b, int field, const void *p, uint64_t n);
void af_wandb_put_text(af_buf *b, int field, const char *s);

/* The start of a file. */
void af_wandb_log_begin(af_buf *out);
/* Appends Record{num, field: message} to `out`, which begins at byte `at` of the file. */
void af_wandb_log_add(af_buf *out, uint64_t at, int64_t num, int field, const af_buf *message);

/* Reads the next record of a whole file into `record` (cleared before): false at the end, or where
 * a killed run stopped writing. *at begins at 0. */
bool af_wandb_log_next(const char *file, uint64_t size, uint64_t *at, af_buf *record);
/* The message of a record as `field`; num. */
int af_wandb_record_kind(const af_buf *record, int64_t *num, af_buf *message);
#endif
