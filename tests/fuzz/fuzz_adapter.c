/* fuzz_adapter.c - any bytes as the tensors of an adapter of a small model. The first byte chooses
 * between plain LoRA, DoRA with whole modules, one of mlx-lm, biases, LoHa, LoKr, and a GGUF file.
 */
#include "fuzz_file.h"
#include "model/adapter_config.h"
#include "model/arch/arch.h"

static const char model[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":8,"
    "\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"max_position_embeddings\":16,\"attention_bias\":true}";
static const char lora[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,"
                           "\"target_modules\":[\"q_proj\",\"down_proj\"]}";
static const char dora[] =
    "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"use_dora\":true,\"target_modules\":"
    "[\"q_proj\"],\"modules_to_save\":[\"lm_head\",\"embed_tokens\"]}";
static const char mlx[] = "{\"fine_tune_type\":\"dora\",\"lora_parameters\":{\"rank\":2}}";
static const char biases[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"bias\":\"all\","
                             "\"target_modules\":[\"q_proj\"]}";

static const char loha[] = "{\"peft_type\":\"LOHA\",\"r\":2,\"alpha\":4,"
                           "\"target_modules\":[\"q_proj\",\"down_proj\"]}";
static const char lokr[] = "{\"peft_type\":\"LOKR\",\"r\":2,\"alpha\":4,"
                           "\"target_modules\":[\"q_proj\",\"down_proj\"]}";

/* Changes weights as a merge does. */
static void merge(const af_model_spec *s, const char *path)
{
    af_adapter *a = NULL;
    if (af_adapter_read_to_merge(&a, s, path, AF_TABLES_OF_BASE, NULL) != AF_OK)
        return;
    for (int i = 0; i < s->modules; i++) {
        static float rows[64];
        const af_module_spec *m = &s->module[i];
        if (a->module[i].pair && m->out * m->in <= (int64_t)AF_LEN(rows))
            af_adapter_pair_add(&a->module[i], rows, 0, m->out, m->in);
    }
    af_adapter_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_hf_config c;
    af_model_spec s;
    af_adapter *a = NULL;
    int64_t rows = 0;
    if (size == 0)
        return 0;
    const char *config = (const char *[]){
        lora, dora, mlx, biases, loha, lokr}[data[0] & 8 ? 4 + (data[0] & 1) : data[0] & 3];
    (void)fuzz_put("adapter_config.json", config, strlen(config));
    const bool gguf = data[0] & 4;
    (void)fuzz_put("adapter_model.safetensors", data + 1, gguf ? 0 : size - 1);
    if (af_hf_config_parse(&c, model, sizeof model - 1, "model", NULL) != AF_OK)
        abort();
    if (af_model_spec_init(&s, &c, NULL) != AF_OK)
        abort();
    const char *path = gguf ? fuzz_put("adapter.gguf", data + 1, size - 1) : fuzz_dir();
    merge(&s, path);
    if (af_adapter_read(&a, &s, path, NULL) == AF_OK)
        af_adapter_free(a);
    (void)!af_adapter_vocab(&rows, fuzz_dir(), NULL);
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
    return 0;
}
