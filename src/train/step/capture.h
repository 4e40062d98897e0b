/* capture.h - a teacher's distributions in a file: for every token with a label its k most likely
 * tokens, by record of the run's data.
 *
 * A safetensors file:
 *     row_start  i32 or i64 [R+1]   record r has the positions row_start[r] .. row_start[r+1]-1,
 *                                   one for each token with a label, in their order
 *     ids        i32 [N][k], or u16 with the low bits, most likely first
 *     ids_high   u8 [N][(k+1)/2]    bits 16 to 19, of two ids each; absent below 65536 tokens
 *     logprobs   f32, f16 or bf16 [N][k], at temperature 1
 *     tail       f32 [N]            probability of all other tokens; may be absent
 * Its metadata say what it was made of: "teacher", "data" (hashes) and "key" (of everything). */
#ifndef AF_CAPTURE_H
#define AF_CAPTURE_H

#include "data/store/token_store.h"
#include "format/weights/safetensors.h"

typedef struct af_capture {
    af_safetensors *file;
    const char *path; /* borrowed */
    const af_stored *start, *ids, *high, *logprobs;
    int64_t records, positions, k;
} af_capture;

/* Checks layout and numbers, all but the ids. Close after a failure too. */
AF_CHECKED af_status af_capture_open(af_capture *c, const char *path, af_error *err);
void af_capture_close(af_capture *c); /* an empty one is allowed */
/* That it was made of these records: their hash, or else the number of labels of each. */
AF_CHECKED af_status af_capture_fits(const af_capture *c, const af_token_store *s, af_error *err);
int64_t af_capture_start(const af_capture *c, int64_t record);
/* The first `n` tokens of a position and the logarithms of their shares at the temperature, which
 * sum to 1 over these n. */
void af_capture_read(const af_capture *c, int64_t position, int64_t n, double temperature,
                     int32_t *id, float *log_share);

/* Tokens of a record that are predicted: those with a label, but the first. */
int64_t af_capture_labels(const af_token_store *s, int64_t record);
/* A hash of tokens and loss masks of all records. */
void af_capture_data_hash(const af_token_store *s, char hex[65]);
#endif
