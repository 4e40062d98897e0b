/* families.h - the groups of families, one file each; every list ends with an empty row. */
#ifndef AF_FAMILIES_H
#define AF_FAMILIES_H

#include "format/config/config_source.h"
#include "format/config/hf_config_check.h"

/* "ARCH.suffix" of GGUF metadata as a number. */
double af_family_gguf_num(const af_gguf *g, const char *arch, const char *suffix, double absent);

extern const af_family af_families_llama[]; /* llama itself comes first */
extern const af_family af_families_gemma[];
extern const af_family af_families_dense[];
extern const af_family af_families_experts[];
extern const af_family af_families_state[];
extern const af_family af_families_latent[];
extern const af_family af_families_routed[];

/* Of families with a mixture in DeepSeek's words; numbers: what is assumed when a key is absent. */
void af_config_deepseek_experts(af_config_source *s, af_hf_config *c, int experts, int used,
                                int ffn, int dense);
#endif
