/* torch_qat.c - Int8DynActInt4WeightQATQuantizer of torchao: weights in 4 bits by groups, inputs in
 * 8 bits by tokens, as `qat` has it. */
#include "train/foreign/nested.h"

af_status af_torch_qat_put(af_translation *t, const af_yaml *group, const af_yaml *after, int line)
{
    af_yaml *qat = af_nested_map(t, line);
    af_status st = qat ? AF_OK : af_fail_nomem(t->err, "qat", sizeof *qat);
    AF_TRY(st);
    AF_TRY(af_nested_set_text(t, qat, "weight_dtype", "int4"));
    AF_TRY(af_nested_set_text(t, qat, "activation_dtype", "int8"));
    AF_TRY(group ? af_nested_set(t, qat, "group_size", group)
                 : af_nested_set(t, qat, "group_size", af_translate_scalar(t, line, "256")));
    if (after)
        AF_TRY(af_nested_set(t, qat, "fake_quant_after_n_steps", after));
    AF_TRY(af_translate_put(t, "qat", line, qat));
done:
    return st;
}
