/* load.h - the weights of a model on disk, checked against its spec, and on their way into a graph.
 *
 * af_source opens a folder or a GGUF file, reads the config, makes the spec and checks every name
 * and shape; it knows in which type each tensor will be declared. Then:
 *
 *     af_source_open -> af_model_leaves_init(dtype = af_source_dtypes) -> record ->
 *     af_source_bind (before prepare) -> af_graph_prepare -> af_source_write (after it)
 *
 * On the CPU, bind gives the graph the mapped file itself; write copies what is left. The source
 * must outlive the graph. */
#ifndef AF_LOAD_H
#define AF_LOAD_H

#include "format/weights/weights.h"
#include "model/builder.h"

typedef struct af_source af_source;

typedef enum af_quant_mode {
    AF_QUANT_SHADOW,  /* 4-bit weights are dequantised once, at load */
    AF_QUANT_SCRATCH, /* they stay in 4 bits and are dequantised at each use: the same numbers */
} af_quant_mode;

typedef struct af_source_opts {
    af_dtype compute;  /* f32 or bf16: what quantised weights are dequantised to */
    bool load_in_4bit; /* quantise the layers' linears of a plain model to nf4 + double quant */
    bool keep_blocks;  /* but not those that a GGUF file has in blocks */
    af_quant_mode quant_mode;
    bool outline; /* for a plan: nothing is quantised, whatever is bound */
    bool untie;   /* a tied head becomes a tensor of its own (modules_to_save trains one of them) */
} af_source_opts;

/* `path` is resolved already (af_model_resolve). */
AF_CHECKED af_status af_source_open(af_source **out, const char *path, const af_source_opts *o,
                                    af_error *err);
void af_source_close(af_source *s); /* NULL is allowed */
const af_model_spec *af_source_spec(const af_source *s);
const af_hf_config *af_source_config(const af_source *s);
const af_weights *af_source_weights(const af_source *s);
/* Has it weights that AF_QUANT_SCRATCH would keep in 4 bits? */
bool af_source_packs(const af_source *s);
/* From the next recording on: types change. */
void af_source_set_mode(af_source *s, af_quant_mode mode);
/* Our Hugging Face name as this folder spells it, and the other way round. */
void af_source_disk_name(const af_source *s, const char *name, char *out, size_t size);
void af_source_own_name(const af_source *s, const char *stored, char *out, size_t size);
/* By spec tensor: the type to declare it with. */
const af_dtype *af_source_dtypes(const af_source *s);
/* Rows [from, from + n) of tensor i in our order, as f32 (dequantised, rounded as the graph will
 * see them), n * last dim values. */
AF_CHECKED af_status af_source_rows(af_source *s, int tensor, int64_t from, int64_t n, float *out,
                                    af_error *err);
/* Before prepare: binds mapped tensors (only when `cpu`), and sets the scales of 4-bit ones. */
AF_CHECKED af_status af_source_bind(af_source *s, af_model_leaves *l, bool cpu, af_error *err);
/* After prepare: writes everything that is not bound (params are converted to f32). */
AF_CHECKED af_status af_source_write(af_source *s, af_model_leaves *l, af_error *err);
#endif
