/* loader.h - loads the weights of a model into a graph.
 *
 * The loader opens a model through a reader and chooses the type in which each tensor of the spec
 * is declared. Then:
 *
 *     af_loader_open -> af_model_leaves_init(dtype = af_loader_dtypes) -> record ->
 *     af_loader_bind (before prepare) -> af_graph_prepare -> af_loader_write (after it)
 *
 * On the CPU, bind gives the graph the mapped file itself; write copies what is left. The loader
 * must outlive the graph. */
#ifndef AF_LOADER_H
#define AF_LOADER_H

#include "model/builder.h"
#include "model/model_reader.h"

typedef enum af_quant_mode {
    AF_QUANT_SHADOW,  /* 4-bit and int8 weights are dequantised once, at load */
    AF_QUANT_SCRATCH, /* they stay as they are and are dequantised at each use: the same numbers */
} af_quant_mode;

typedef struct af_loader_opts {
    af_dtype compute;   /* f32 or bf16: what quantised weights are dequantised to */
    bool load_in_4bit;  /* quantise the layers' linears of a plain model to nf4 + double quant */
    bool plain_experts; /* but not experts */
    bool load_in_8bit;  /* the same to the int8 rows of LLM.int8; not both */
    bool keep_blocks;   /* but not those that a GGUF file has in blocks */
    af_quant_mode quant_mode;
    bool outline;          /* for a plan: nothing is quantised, whatever is bound */
    int64_t vocab;         /* rows of embedding and head; the rows that are not stored are the mean
                              of the others. 0, or fewer than are stored: those */
    const char *vocab_dir; /* an adapter's folder whose whole embedding and head serve, or NULL */
    int64_t labels;        /* the model classifies: head `score` of so many rows; 0 = as it is */
    uint64_t label_seed;   /* of its first values, where the model has none */
    bool fresh;            /* tensors that are trained begin as those of a new model, */
    uint64_t fresh_seed;   /* by this seed; what is stored says only what there is */
    bool train_base;       /* weights that are rounded when they are used come as they are stored */
    bool untie;  /* a tied head becomes a tensor of its own (modules_to_save trains one of them) */
    bool on_cpu; /* which computes with blocks of every type; a GPU not with those of codec_iq1.c */
    const struct af_rope_change *rope; /* other rotary positions, or NULL; borrowed */
    bool headless; /* a folder without a head opens, with the embedding in its place */
} af_loader_opts;

/* Fields are the loader's own; tests look at them. */
typedef struct af_loader {
    af_model_reader *reader;
    const af_model_spec *spec; /* the reader's */
    af_loader_opts o;
    /* By tensor of the spec. */
    const af_adapter
        *change;         /* its modules' weights are not as stored (af_loader_change); or NULL */
    bool *quantise;      /* to nf4 or int8, at load */
    af_bnb_weight *made; /* its codes, once they are made */
    af_dtype *dtype;
    af_arena arena;
} af_loader;

/* `path` is resolved already (af_model_resolve). */
AF_CHECKED af_status af_loader_open(af_loader **out, const char *path, const af_loader_opts *o,
                                    af_error *err);
void af_loader_close(af_loader *l); /* NULL is allowed */
const af_model_spec *af_loader_spec(const af_loader *l);
const af_hf_config *af_loader_config(const af_loader *l);
/* Are rows of its embedding not those of the model on disk? */
bool af_loader_is_grown(const af_loader *l);
/* 4 or 8: the bits in which AF_QUANT_SCRATCH would keep weights; 0 = there are none such. */
int af_loader_packed_bits(const af_loader *l);
/* From the next recording on: types change. */
void af_loader_set_mode(af_loader *l, af_quant_mode mode);
/* By spec tensor: the type to declare it with. */
const af_dtype *af_loader_dtypes(const af_loader *l);
/* Rows [from, from + n) of tensor i as f32, rounded as the graph will see them. */
AF_CHECKED af_status af_loader_rows(af_loader *l, int tensor, int64_t from, int64_t n, float *out,
                                    af_error *err);
/* The same before quantisation and change, as stored. */
void af_loader_plain_rows(af_loader *l, int tensor, int64_t from, int64_t n, float *out);
/* From now on the weights of the adapter's modules are W - scale B0 A0, or multiplied where it is
 * of a type that does so; NULL = as they are stored. Types change. The adapter is borrowed. */
void af_loader_change(af_loader *l, const af_adapter *a);
/* Whether the tensor is stored in the quantised form of bitsandbytes. */
bool af_loader_is_packed(const af_loader *l, int tensor);
/* Before prepare: binds mapped tensors (only when `cpu`), and sets the scales of 4-bit ones. */
AF_CHECKED af_status af_loader_bind(af_loader *ld, af_model_leaves *l, bool cpu, af_error *err);
/* After prepare: writes everything that is not bound (params are converted to f32). */
AF_CHECKED af_status af_loader_write(af_loader *ld, af_model_leaves *l, af_error *err);
/* Bytes of the file that are resident at most while its weights are copied. */
uint64_t af_loader_window(const af_loader *l);
/* About the bytes it takes to write the tokenizer of a GGUF file as JSON; 0 for a folder, whose
 * files are copied. */
uint64_t af_loader_text_bytes(const af_loader *l);
#endif
