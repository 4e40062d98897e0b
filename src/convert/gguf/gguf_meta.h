/* gguf_meta.h - the metadata of a GGUF file from a model folder: architecture, tokenizer, template.
 */
#ifndef AF_GGUF_META_H
#define AF_GGUF_META_H

#include "convert/quantize/imatrix.h"
#include "format/weights/gguf.h"
#include "model/model_reader.h"

/* general.* and ARCH.* keys. `dir` is the model's folder, whose name is the model's. */
AF_CHECKED af_status af_gguf_put_arch(af_gguf_writer *w, const af_model_spec *s,
                                      const af_hf_config *c, const char *dir, int file_type,
                                      af_error *err);
/* The numbers of xIELU of each layer, where the model has them. */
AF_CHECKED af_status af_gguf_put_xielu(af_gguf_writer *w, const af_model_reader *in, af_error *err);
/* Folders of a model's texts; see af_model_reader. */
typedef struct af_text_dirs {
    const char *dir;           /* the model's */
    const char *template_dir;  /* the chat template's, or NULL: the model's */
    const char *tokenizer_dir; /* the tokenizer's, or NULL: the model's */
} af_text_dirs;

/* tokenizer.* keys; `rows` is the height of the embedding. Nothing when there is neither
 * tokenizer.json nor tokenizer.model (logged). */
AF_CHECKED af_status af_gguf_put_tokenizer(af_gguf_writer *w, const af_text_dirs *h,
                                           const af_hf_config *c, int64_t rows, af_error *err);
/* Whether the tokenizer of a folder can be written so; what cannot is AF_EUNSUPPORTED. */
AF_CHECKED af_status af_gguf_check_tokenizer(const char *dir, const char *model_type,
                                             af_error *err);
/* The chat template of a folder and, as llama.cpp's converter has it, the one for tools. */
AF_CHECKED af_status af_gguf_put_template(af_gguf_writer *w, const char *texts, af_error *err);
/* The texts of the folder, so that it can come back as it was. `whole` also takes tokenizer.json,
 * or tokenizer.model. */
AF_CHECKED af_status af_gguf_put_files(af_gguf_writer *w, const af_text_dirs *h, bool whole,
                                       af_error *err);
/* The keys of a GGUF file as they are, but for the type of its weights and, with template_dir, its
 * chat template. */
AF_CHECKED af_status af_gguf_put_copy(af_gguf_writer *w, const af_gguf *g, const char *template_dir,
                                      int file_type, af_error *err);
/* The keys llama.cpp's quantiser leaves; m NULL: none. */
AF_CHECKED af_status af_gguf_put_imatrix(af_gguf_writer *w, const af_imatrix *m, const char *file,
                                         af_error *err);
/* "Qwen2.5 0.5B Instruct" from "Qwen2.5-0.5B-Instruct". */
void af_model_title(char *out, size_t size, const char *folder);
#endif
