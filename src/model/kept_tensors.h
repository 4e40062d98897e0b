/* kept_tensors.h - what a folder stores beside the text model: image and audio towers, layers that
 * predict further tokens. Training does not touch them; they are written back as they are. */
#ifndef AF_KEPT_TENSORS_H
#define AF_KEPT_TENSORS_H

#include "format/weights/safetensors.h"
#include "model/model_reader.h"

/* After matching: declares them, and writes them in the same order. */
AF_CHECKED af_status af_kept_tensors_add(const af_model_reader *r, af_safetensors_writer *w,
                                         af_error *err);
AF_CHECKED af_status af_kept_tensors_write(const af_model_reader *r, af_safetensors_writer *w,
                                           af_error *err);
#endif
