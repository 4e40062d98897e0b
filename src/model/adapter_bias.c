/* adapter_bias.c - biases of the base that were trained next to an adapter (PEFT's `bias`): its
 * folder has them whole, and they take the place of the base's as modules_to_save do. */
#include "base/word.h"
#include "model/adapter_config.h"

void af_adapter_whole_name(const af_adapter *a, int tensor, char name[AF_ADAPTER_NAME_BYTES])
{
    const af_model_spec *s = a->spec;
    af_adapter_saved_name(s, &s->tensor[tensor], name);
    for (int i = 0; i < s->modules; i++)
        if (s->module[i].bias == tensor && a->module[i].rank) /* PEFT has it inside its own layer */
            snprintf(name, AF_ADAPTER_NAME_BYTES, AF_ADAPTER_PREFIX "%s.base_layer.bias",
                     s->module[i].path);
}

af_status af_adapter_read_biases(af_adapter *a, const af_weights *w, int *used, af_error *err)
{
    const af_model_spec *s = a->spec;
    char name[AF_ADAPTER_NAME_BYTES];
    bool any = false;
    for (int i = 0; i < s->tensors; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        if (a->saved[i] || t->ndim > 2 || !af_ends_with(t->name, "bias"))
            continue;
        af_adapter_whole_name(a, i, name);
        if (!af_adapter_find(a, w, name)) /* as old versions of PEFT wrote it */
            af_adapter_saved_name(s, t, name);
        if (!af_adapter_find(a, w, name))
            continue;
        const af_status st = af_adapter_read_tensor(a, &a->saved[i], w, name, t->dim[0],
                                                    t->ndim > 1 ? t->dim[1] : 1, used, err);
        if (st != AF_OK)
            return st;
        any = true;
    }
    if (!any) /* of a model without biases */
        a->config.bias = NULL;
    return AF_OK;
}
