/* method.c - from run-file keys to the adapter they mean. */
#include "train/method.h"

bool af_method_quantises(const af_run *r)
{
    return r->method == AF_METHOD_QLORA || r->load_in_4bit == AF_TRI_YES;
}

af_status af_method_adapter(af_adapter_config *out, int64_t layers[AF_METHOD_LAYERS_MAX],
                            const af_run *r, const af_model_spec *spec, af_error *err)
{
    const af_strings *target = &r->lora_target_modules;
    af_adapter_config c = {
        .r = (int)r->lora_r,
        .alpha = r->lora_alpha,
        .dropout = r->lora_dropout,
        .rslora = r->rslora,
        .dora = r->dora,
        .exclude = r->lora_exclude_modules.item,
        .exclude_count = r->lora_exclude_modules.count,
        .modules_to_save = r->lora_modules_to_save.item,
        .save_count = r->lora_modules_to_save.count,
        .base_model = r->base_model,
        .init_weights = r->lora_init,
    };
    if (target->count == 0 || r->lora_target_linear)
        c.target_regex = "all-linear";
    else if (target->count == 1 &&
             (!strcmp(target->item[0], "all-linear") || strpbrk(target->item[0], "*()[]|\\^$+?")))
        c.target_regex = target->item[0];
    else {
        c.target = target->item;
        c.target_count = target->count;
    }
    for (int i = 0; i < r->lora_layers.count && i < AF_METHOD_LAYERS_MAX; i++) {
        const af_yaml n = {.kind = AF_YAML_SCALAR, .text = r->lora_layers.item[i]};
        char at[300];
        if (!af_yaml_i64(&n, &layers[i]) || layers[i] < 0 || layers[i] >= spec->layers)
            return af_fail(err, AF_EUSAGE,
                           "%s: lora_layers_to_transform has '%s'; the model has layers 0 to %d",
                           af_run_place(r, "lora_layers_to_transform", at, sizeof at), n.text,
                           spec->layers - 1);
    }
    c.layers = r->lora_layers.count ? layers : NULL;
    c.layer_count = r->lora_layers.count;
    *out = c;
    return AF_OK;
}

af_status af_method_unties(bool *out, const af_run *r, af_error *err)
{
    *out = false;
    if (r->method == AF_METHOD_FULL)
        return AF_OK;
    if (r->lora_model_dir)
        return af_adapter_unties(out, r->lora_model_dir, err);
    *out = af_adapter_config_unties(
        &(af_adapter_config){.modules_to_save = r->lora_modules_to_save.item,
                             .save_count = r->lora_modules_to_save.count});
    return AF_OK;
}
