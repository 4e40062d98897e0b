/* adapter_gguf.h - adapters in other programs' formats: GGUF LoRA, and MLX. */
#ifndef AF_ADAPTER_GGUF_H
#define AF_ADAPTER_GGUF_H

#include "model/adapter.h"

/* llama.cpp multiplies by alpha / rank and knows nothing else: one alpha is written, and where a
 * module's scale is another one it is folded into its B. `name` is the adapter's folder name. */
AF_CHECKED af_status af_adapter_gguf_write(const af_adapter *a, const char *name, const char *out,
                                           af_error *err);

typedef enum af_adapter_kind { AF_ADAPTER_NONE, AF_ADAPTER_PEFT, AF_ADAPTER_MLX } af_adapter_kind;
/* What a folder holds, by its adapter_config.json. */
AF_CHECKED af_status af_adapter_kind_of(af_adapter_kind *out, const char *dir, af_error *err);
/* The other of the two formats. */
AF_CHECKED af_status af_adapter_to_mlx(const char *dir, const char *out, bool force, af_error *err);
AF_CHECKED af_status af_adapter_from_mlx(const char *dir, const char *out, bool force,
                                         af_error *err);
#endif
