/* method.h - what a run's method asks of the model: which adapter, which types. */
#ifndef AF_METHOD_H
#define AF_METHOD_H

#include "model/adapter.h"
#include "model/builder.h"
#include "train/run/run_config.h"

enum { AF_METHOD_LAYERS_MAX = 4096, AF_METHOD_NAMES_MAX = 256 };

/* What an af_adapter_config of a run points to. */
typedef struct af_method_lists {
    int64_t layer[AF_METHOD_LAYERS_MAX];
    const char *name[AF_METHOD_NAMES_MAX];
    const char *saved[AF_METHOD_NAMES_MAX];
    const char *param[AF_METHOD_NAMES_MAX];
    af_adapter_pattern rank[AF_METHOD_NAMES_MAX], alpha[AF_METHOD_NAMES_MAX];
} af_method_lists;

/* The adapter a run file describes. Strings are borrowed from the run and the spec, lists from
 * `lists`. all-linear becomes the list of names it means, as PEFT writes it. */
AF_CHECKED af_status af_method_adapter(af_adapter_config *out, af_method_lists *lists,
                                       const af_run_config *r, const af_model_spec *spec,
                                       af_error *err);
/* That the adapter to continue is of the run's method, with the settings of OFT it may repeat. */
AF_CHECKED af_status af_method_check_type(const af_run_config *r, const af_adapter_config *c,
                                          af_error *err);
/* As PEFT (0.21): names that parts of experts and routers had as modules become the parameters they
 * are now, gate and up of twice the rank; `all` stands for every such name. */
AF_CHECKED af_status af_method_convert(af_adapter_config *c, af_method_lists *lists, bool all,
                                       const af_run_config *r, const af_model_spec *s,
                                       af_error *err);
/* lora_rank_pattern and lora_alpha_pattern, once the modules are known. */
AF_CHECKED af_status af_method_patterns(af_adapter_config *c, af_method_lists *lists,
                                        const af_run_config *r, const af_model_spec *spec,
                                        af_error *err);
/* There PEFT takes gate_proj, up_proj and down_proj for the experts' weights, whatever the layer:
 * the adapter of a dense layer would get lost. */
bool af_method_lost_in_peft(const af_model_spec *s, const af_module_spec *m);
/* The bits to which the run itself quantises the frozen base: 4 (nf4), 8 (int8 rows) or 0; blocks
 * of a GGUF file only where load_in_4bit or load_in_8bit asks for it. */
int af_method_quantises(const af_run_config *r);
/* Whether trained weights of the base are bf16 themselves, and how an update is rounded then. */
bool af_method_bf16_weights(const af_run_config *r);
af_rounding af_method_rounding(const af_run_config *r);
/* Whether there is dropout in the run: of the adapter, and of the model where its config has some.
 */
bool af_method_has_dropout(const af_run_config *r);
/* resid_pdrop and its like, where transformers' model of this type applies it. */
af_branch_dropout af_method_residual_dropout(const af_hf_config *c, const af_model_spec *s);
/* embd_pdrop, on the embeddings of tokens and positions. */
double af_method_embed_dropout(const af_hf_config *c);
/* The share of the auxiliary loss of routers: the run's, else the config's where that asks for it
 * (output_router_logits); 0 = none, always where no layer has a router. */
double af_method_router_coef(const af_run_config *r, const af_hf_config *c, const af_model_spec *s);
/* Whether the base as it is stored can be what the run asks for. */
AF_CHECKED af_status af_method_check_base(const af_run_config *r, const af_hf_config *c,
                                          af_error *err);
/* Whether the run trains the embedding or the head as a whole, so that tied ones are untied. */
AF_CHECKED af_status af_method_unties(bool *out, const af_run_config *r, af_error *err);
#endif
