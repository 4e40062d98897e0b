/* arch_disk.c - how the tensors of a model lie in a Hugging Face folder. */
#include "model/arch/arch.h"

int af_disk_count(const af_model_spec *s, int tensor)
{
    if (s->arch->experts_whole)
        return 1;
    switch (s->tensor[tensor].slot) {
    case AF_SLOT_EXPERTS_GATE_UP:
        return 2 * s->experts;
    case AF_SLOT_EXPERTS_DOWN:
        return s->experts;
    default:
        return 1;
    }
}

void af_disk_piece(const af_model_spec *s, int tensor, int p, char *name, size_t size,
                   int64_t dim[3], int *ndim, int64_t *from)
{
    const af_tensor_spec *t = &s->tensor[tensor];
    const bool gate_up = t->slot == AF_SLOT_EXPERTS_GATE_UP;
    if ((!gate_up && t->slot != AF_SLOT_EXPERTS_DOWN) || s->arch->experts_whole) {
        snprintf(name, size, "%s", t->name);
        memcpy(dim, t->dim, 3 * sizeof *dim);
        *ndim = t->scalar ? 0 : t->ndim;
        *from = 0;
        return;
    }
    const int64_t F = s->expert_ffn, D = s->width;
    static const char *const usual[] = {"gate_proj", "up_proj", "down_proj"};
    const int part = !gate_up ? 2 : p % 2;
    const af_arch *a = s->arch;
    snprintf(name, size, "model.layers.%d.%s.%d.%s.weight", t->layer,
             a->experts ? a->experts : "mlp.experts", gate_up ? p / 2 : p,
             a->experts ? a->expert_part[part] : usual[part]);
    dim[0] = gate_up ? F : D;
    dim[1] = gate_up ? D : F;
    dim[2] = 1;
    *ndim = 2;
    *from = p * F * D;
}
