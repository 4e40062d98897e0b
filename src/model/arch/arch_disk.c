/* arch_disk.c - how the tensors of a model lie in a Hugging Face folder. */
#include "model/arch/arch.h"

#include <stdlib.h>

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
        if (t->slot == AF_SLOT_ROUTER && s->arch->router)
            snprintf(name, size, "model.layers.%d.%s", t->layer, s->arch->router);
        else
            snprintf(name, size, "%s", t->name);
        memcpy(dim, t->dim, 3 * sizeof *dim);
        *ndim = t->ndim;
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

/* Whether piece p of the tensor of a slot is called so. */
static bool is_piece(const af_model_spec *s, int tensor, int p, const char *name, int64_t *from)
{
    char own[256];
    int64_t dim[3];
    int ndim;
    if (tensor < 0 || p < 0 || p >= af_disk_count(s, tensor))
        return false;
    af_disk_piece(s, tensor, p, own, sizeof own, dim, &ndim, from);
    return strcmp(own, name) == 0;
}

int af_disk_find(const af_model_spec *s, const char *name, int64_t *from)
{
    static const char layers[] = "model.layers.";
    const int whole = af_model_spec_tensor(s, name);
    *from = 0;
    if (whole >= 0 || strncmp(name, layers, sizeof layers - 1) != 0)
        return whole;
    char *rest;
    const long layer = strtol(name + sizeof layers - 1, &rest, 10);
    if (layer < 0 || layer >= s->layers)
        return -1;
    const int *of = s->layer[layer].tensor;
    const char *number = strstr(rest, ".experts.");
    const int e = number ? (int)strtol(number + strlen(".experts."), NULL, 10) : 0;
    if (is_piece(s, of[AF_SLOT_ROUTER], 0, name, from))
        return of[AF_SLOT_ROUTER];
    for (int p = 2 * e; p < 2 * e + 2 && e < s->experts; p++)
        if (is_piece(s, of[AF_SLOT_EXPERTS_GATE_UP], p, name, from))
            return of[AF_SLOT_EXPERTS_GATE_UP];
    return is_piece(s, of[AF_SLOT_EXPERTS_DOWN], e, name, from) ? of[AF_SLOT_EXPERTS_DOWN] : -1;
}
