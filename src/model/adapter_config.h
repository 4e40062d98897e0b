/* adapter_config.h - adapter_config.json to and from af_adapter_config, and its matching rules. */
#ifndef AF_ADAPTER_CONFIG_H
#define AF_ADAPTER_CONFIG_H

#include "model/adapter.h"

enum { AF_ADAPTER_NAME_BYTES = 512 };
#define AF_ADAPTER_PREFIX "base_model.model."
#define AF_LABELS_KEY     "afinar_labels" /* what PEFT has no key for */

/* Parses adapter_config.json of PEFT or mlx-lm; strings go to the arena. What this build cannot do
 * is an error that names the key. `name` is for messages. */
AF_CHECKED af_status af_adapter_config_parse(af_adapter_config *out, af_arena *arena,
                                             const char *text, uint64_t size, const char *name,
                                             af_error *err);
/* The same of a folder, or of a GGUF adapter. */
AF_CHECKED af_status af_adapter_config_read(af_adapter_config *out, af_arena *arena,
                                            const char *dir, af_error *err);
/* Deep copy into an arena. */
AF_CHECKED af_status af_adapter_config_copy(af_adapter_config *out, const af_adapter_config *c,
                                            af_arena *arena, af_error *err);
/* The JSON text, with every key PEFT writes. free() it; NULL when memory is used up. */
char *af_adapter_config_text(const af_adapter_config *c);
/* Sets base_model_name_or_path and revision: of "org/name@revision" PEFT reads each by itself. */
struct json_t;
void af_adapter_put_base(struct json_t *config, const char *base);

/* The labels of AF_LABELS_KEY as text, in the arena; NULL when it has none (adapter_vocab.c). */
const char *af_adapter_labels_parse(af_arena *arena, const struct json_t *value);

/* ---- names of an adapter's tensors (adapter_write.c) ---- */

void af_adapter_low_name(char *name, const af_module_spec *m, char which);
void af_adapter_saved_name(const af_model_spec *s, const af_tensor_spec *t,
                           char name[AF_ADAPTER_NAME_BYTES]);

/* ---- biases of the base (adapter_bias.c) ---- */

/* The stored name of a tensor that the folder has whole. */
void af_adapter_whole_name(const af_adapter *a, int tensor, char name[AF_ADAPTER_NAME_BYTES]);
/* Those that the folder has; config.bias is NULL when it has none. */
AF_CHECKED af_status af_adapter_read_biases(af_adapter *a, const af_weights *w, int *used,
                                            af_error *err);

/* ---- modules outside the text model (adapter_outside.c) ---- */

/* Reads those that are changed, and counts all. */
AF_CHECKED af_status af_adapter_read_outside(af_adapter *a, const af_weights *w, int *used,
                                             af_error *err);
/* The one whose weight a folder stores under this name, in this shape; NULL = it is not changed. */
const af_adapter_other *af_adapter_other_of(const af_adapter *a, const char *stored,
                                            const int64_t *dim, int ndim);
/* Whether a stored B has another value than 0. */
bool af_adapter_is_moved(const af_stored *b);
/* The length of the longest prefix of the text model's modules that a name begins with; 0 = none.
 */
size_t af_adapter_prefix_length(const af_model_spec *s, const char *name);
/* One without modules. */
AF_CHECKED af_status af_adapter_create(af_adapter **out, const af_model_spec *s, af_error *err);
float af_adapter_scale(const af_adapter_config *c, double alpha, double rank);

/* ---- other types of PEFT (peft/adapter_types.c) ---- */

typedef struct af_peft_form {
    const char *name, *rank; /* NULL: it has none */
    double rank_default;
    const char *alpha; /* NULL: the scale is 1 */
    const char *dropout;
    const char *part; /* names of tensors go on so after the module's */
    bool multiplies;
    bool pairs; /* LoRA only once it is expanded */
} af_peft_form;
extern const af_peft_form af_peft_forms[AF_PEFT_TYPES];

/* Where the name of an adapter's tensor ends to be that of a module; NULL = nowhere. */
const char *af_adapter_part_at(const char *name);
/* A, B, rank and scale of a module that is a target, or what else its type has. */
AF_CHECKED af_status af_adapter_type_read(af_adapter *a, int module, const af_weights *w, int *used,
                                          af_error *err);

/* ---- LoHa and LoKr (peft/adapter_pairs.c) ---- */

AF_CHECKED af_status af_adapter_pair_read(af_adapter *a, int module, const af_weights *w, int *used,
                                          af_error *err);
/* Adds the change to rows [from, from + n) of the module's weight. Every value is the same however
 * rows are divided among calls. */
void af_adapter_pair_add(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                         int64_t cols);

/* ---- types that multiply (peft/adapter_multiply.c) ---- */

/* That it is none of them. */
AF_CHECKED af_status af_adapter_check_adds(const af_adapter_config *c, const char *dir,
                                           af_error *err);

AF_CHECKED af_status af_adapter_multiply_read(af_adapter *a, int module, const af_weights *w,
                                              int *used, af_error *err);
/* Rows [from, from + n) of the module's weight, or of its bias: one row, or rows of 1. */
void af_adapter_multiply(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                         int64_t cols, bool bias);

/* ---- OFT that is trained (peft/adapter_oft.c) ---- */

/* The settings in an adapter_config.json called `name`, and those of one to be written. */
AF_CHECKED af_status af_oft_parse(af_oft *out, const struct json_t *root, const char *name,
                                  af_error *err);
void af_oft_put(struct json_t *config, const af_oft *o);
/* Blocks of the modules that have a rank; `tells` logs where they are other than asked for. */
AF_CHECKED af_status af_adapter_oft_lay_out(af_adapter *a, bool tells, af_error *err);
/* The stored name of a module's triangles. */
void af_adapter_oft_name(char name[AF_ADAPTER_NAME_BYTES], const af_module_spec *m);
static inline int64_t af_adapter_triangle(const af_adapter_module *m) /* values of one */
{
    return m->block * (m->block - 1) / 2;
}

/* ---- of mlx-lm and llama.cpp (adapter_foreign.c) ---- */

/* Names the modules that have tensors in config.target. */
AF_CHECKED af_status af_adapter_mlx_targets(af_adapter *a, const af_weights *w, af_error *err);
AF_CHECKED af_status af_adapter_mlx_read(af_adapter *a, int module, const af_weights *w, int *used,
                                         af_error *err);

/* Of a GGUF file: that it is an adapter, and its alpha. */
AF_CHECKED af_status af_adapter_gguf_config(af_adapter_config *out, const char *path,
                                            af_error *err);
/* Makes the config that of a LoRA adapter with the ranks and scales of the modules: a run that
 * continues writes it. */
AF_CHECKED af_status af_adapter_describe(af_adapter *a, af_error *err);
/* Modules, values and the config. */
AF_CHECKED af_status af_adapter_gguf_read(af_adapter *a, const af_weights *w, const char *path,
                                          af_error *err);

/* ---- trainable_token_indices (adapter_tokens.c) ---- */

struct json_t;
/* A list of token numbers, or one for each module; false when it is neither. */
bool af_adapter_tokens_parse(af_token_rows out[AF_TOKEN_TABLES], af_arena *arena,
                             const struct json_t *value);
struct json_t *af_adapter_tokens_json(const af_token_rows rows[AF_TOKEN_TABLES],
                                      const char *const names[AF_TOKEN_TABLES]);
bool af_token_rows_same(const af_token_rows *a, const af_token_rows *b);
/* From the config to the adapter, checked; after the modules and modules_to_save. */
AF_CHECKED af_status af_adapter_tokens_lay_out(af_adapter *a, af_error *err);
AF_CHECKED af_status af_adapter_tokens_alloc(af_adapter *a, int table, af_error *err);
/* Values of a new adapter: the base's. */
AF_CHECKED af_status af_adapter_tokens_fill(af_adapter *a, af_loader *base, af_error *err);
/* The stored name of an embedding or head of the base that is part of the adapter. */
void af_adapter_base_name(const af_adapter *a, int tensor, char name[AF_ADAPTER_NAME_BYTES]);
void af_adapter_tokens_name(const af_adapter *a, int table, char name[AF_ADAPTER_NAME_BYTES]);

/* ---- target_parameters (adapter_experts.c) ---- */

/* The stored name of A or B of a parameter of experts. */
void af_adapter_experts_name(char name[AF_ADAPTER_NAME_BYTES], const af_adapter *a, int module,
                             char which);
/* Columns of PEFT's A, or rows of its B, of a parameter of experts; and one of them in its order,
 * A [copies * rank][columns], B [rows][rank * copies]. */
int64_t af_adapter_experts_width(const af_adapter *a, int module, char which);
void af_adapter_experts_pack(float *to, const af_adapter *a, int module, char which);
AF_CHECKED af_status af_adapter_experts_read(af_adapter *a, int module, const af_weights *w,
                                             int *used, af_error *err);
/* A folder of PEFT with older transformers has a module for every expert: then its config becomes
 * what PEFT makes of it today, and a->one_by_one is set. */
AF_CHECKED af_status af_adapter_experts_convert(af_adapter *a, const af_weights *w, af_error *err);
/* An error that names the first target parameter that the model does not have, or what cannot be
 * with one. */
AF_CHECKED af_status af_adapter_params_used(const af_adapter_config *c, const af_model_spec *s,
                                            af_error *err);
AF_CHECKED af_status af_adapter_param_check(const af_adapter_config *c, const af_model_spec *s,
                                            const af_module_spec *m, af_error *err);

/* A tensor of the folder by its name, also under other names of the text model; NULL = none. */
const af_stored *af_adapter_find(const af_adapter *a, const af_weights *w, const char *name);
/* One tensor of the folder as f32, allocated once its shape is checked; counts it as used. */
AF_CHECKED af_status af_adapter_read_tensor(af_adapter *a, float **to, const af_weights *w,
                                            const char *name, int64_t rows, int64_t cols, int *used,
                                            af_error *err);
AF_CHECKED af_status af_adapter_alloc(af_adapter *a, float **out, int64_t n, af_error *err);

/* An error that names the first target of the list that no module of the model has. */
AF_CHECKED af_status af_adapter_names_used(const af_adapter_config *c, const af_model_spec *s,
                                           af_error *err);

/* Whether the regular expression matches the subject from its beginning, to its end with `whole`.
 */
AF_CHECKED af_status af_pattern_matches(bool *out, const char *pattern, const char *subject,
                                        bool whole, af_error *err);
/* True when a path is an entry of the list or ends with "." and one. */
bool af_path_in_list(const char *path, const char *const *list, int n);
/* The rule of modules_to_save, which PEFT makes without a dot: 'norm' means 'input_layernorm' too,
 * and 'mlp' all linears in it. */
bool af_path_ends_in(const char *path, const char *const *list, int n);
/* The value of the first pattern that matches (.*\.)?(KEY)$, else `absent`. */
AF_CHECKED af_status af_adapter_pattern_value(double *out, const af_adapter_pattern *p, int n,
                                              const char *path, double absent, af_error *err);
#endif
