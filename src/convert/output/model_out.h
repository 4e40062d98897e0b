/* model_out.h - from an opened model into an output folder: tensors as they are or in another plain
 * type, and the text files around them. */
#ifndef AF_MODEL_OUT_H
#define AF_MODEL_OUT_H

#include "base/pool.h"
#include "convert/input/folder_text.h"
#include "convert/output/convert_report.h"
#include "convert/output/folder_out.h"
#include "model/model_reader.h"

/* The error where finite values became infinite when they were converted. */
af_status af_fail_overflow(af_error *err, const char *name, af_dtype dtype);
/* The whole tensor as `dtype` (f32, bf16, f16, f64 or as stored) to the writer. */
AF_CHECKED af_status af_model_copy_tensor(af_model_reader *in, const af_model_tensor *t,
                                          af_dtype dtype, af_pool *pool, af_safetensors_writer *w,
                                          af_error *err);
/* All tensors into the safetensors files of `dir`, a row of the report for each (NULL: none). With
 * `dtype` floats get that type, else every tensor keeps its own. */
AF_CHECKED af_status af_model_write_weights(af_model_reader *in, const char *dir,
                                            const af_dtype *dtype, int threads,
                                            af_convert_report *report, af_error *err);
/* Copies (or makes, from GGUF metadata) tokenizer, template and generation files. *config is a
 * config.json without quantisation, to be changed, written and json_decref'ed by the caller. */
AF_CHECKED af_status af_model_copy_text(const af_model_reader *in, const af_output *f,
                                        json_t **config, af_error *err);
/* Sets both spellings of the weights' dtype where the config has one. */
void af_config_set_dtype(json_t *config, af_dtype dtype);
const char *af_torch_name(af_dtype t); /* "bfloat16" */
bool af_torch_type(af_dtype *out, const char *name);
#endif
