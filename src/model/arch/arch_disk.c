/* arch_disk.c - how the tensors of a model lie in a Hugging Face folder. */
#include "model/arch/arch_disk.h"

#include "tensor/dtype.h"

#include <stdlib.h>

static bool is_halves(const af_model_spec *s, int tensor)
{
    const af_slot slot = s->tensor[tensor].slot;
    return s->arch->gate_up_halves && (slot == AF_SLOT_GATE_UP || slot == AF_SLOT_SHARED_GATE_UP);
}

bool af_disk_is_apart(const af_model_spec *s, int tensor)
{
    const af_slot slot = s->tensor[tensor].slot;
    return is_halves(s, tensor) ||
           (s->arch->qk_norm_apart && (slot == AF_SLOT_Q_NORM || slot == AF_SLOT_K_NORM));
}

bool af_disk_is_conv(const af_model_spec *s, int tensor)
{
    return s->tensor[tensor].slot == AF_SLOT_CONV && s->conv_rows[0] > 0;
}

bool af_disk_has_axes(const af_model_spec *s, int tensor)
{
    return s->arch->a_log_axes && s->tensor[tensor].slot == AF_SLOT_A_LOG;
}

bool af_disk_is_flat(const af_model_spec *s, int tensor)
{
    return s->tensor[tensor].flat && s->tensor[tensor].slot == AF_SLOT_EXPERTS_GATE_UP;
}

int af_disk_count(const af_model_spec *s, int tensor)
{
    if (is_halves(s, tensor))
        return 2;
    if (af_disk_is_apart(s, tensor))
        return (int)s->tensor[tensor].dim[0];
    if (af_disk_is_conv(s, tensor))
        return AF_CONV_PIECES;
    if (af_disk_is_flat(s, tensor))
        return 2;
    if (s->experts_whole)
        return 1;
    const af_slot slot = s->tensor[tensor].slot;
    return !af_slot_is_experts(slot)         ? 1
           : slot == AF_SLOT_EXPERTS_GATE_UP ? 2 * s->experts
                                             : s->experts;
}

/* "model.layers.3.REST" */
static void layer_name(const af_model_spec *s, const af_tensor_spec *t, const char *rest,
                       char *name, size_t size)
{
    char layers[64];
    af_spec_layers_prefix(s, layers, sizeof layers);
    snprintf(name, size, "%s%d.%s", layers, af_spec_folder_layer(s, t->layer), rest);
}

static void set_dims(int64_t dim[AF_DISK_DIMS], int *ndim, int n, int64_t a, int64_t b, int64_t c)
{
    *ndim = n;
    dim[0] = a;
    dim[1] = b;
    dim[2] = c;
}

/* A tensor that is several on disk, other than experts. False: it is one there. */
static bool cut_piece(const af_model_spec *s, int tensor, int p, char *name, size_t size,
                      int64_t dim[AF_DISK_DIMS], int *ndim, int64_t *from)
{
    const af_tensor_spec *t = &s->tensor[tensor];
    const int n = (int)strlen(t->name);
    if (t->flat) {
        snprintf(name, size, "%s", t->name);
        if (p > 0)
            layer_name(s, t, s->arch->experts_flat_up, name, size);
        set_dims(dim, ndim, 2, s->experts * s->expert_ffn, s->width, 1);
        *from = p * dim[0] * dim[1];
    } else if (af_disk_is_conv(s, tensor)) { /* "conv1d.weight" is of all */
        const int last = n - (int)strlen("conv1d.weight");
        snprintf(name, size, "%.*s%c_%s", last, t->name, "qkv"[p], t -> name + last);
        set_dims(dim, ndim, 3, s->conv_rows[p], 1, t->dim[2]);
        for (int i = 0; i < p; i++)
            *from += s->conv_rows[i] * t->dim[2];
    } else if (is_halves(s, tensor)) {
        snprintf(name, size, "%.*s%s_proj.weight", n - (int)strlen("gate_up_proj.weight"), t->name,
                 p ? "up" : "gate");
        set_dims(dim, ndim, 2, t->dim[0] / 2, t->dim[1], 1);
        *from = p * dim[0] * dim[1];
    } else if (af_disk_is_apart(s, tensor)) { /* "q_layernorm.norms.weight" is of all */
        snprintf(name, size, "%.*s.%d.weight", (int)(strrchr(t->name, '.') - t->name), t->name, p);
        set_dims(dim, ndim, 1, t->dim[1], 1, 1);
        *from = p * t->dim[1];
    } else {
        return false;
    }
    return true;
}

void af_disk_piece(const af_model_spec *s, int tensor, int p, char *name, size_t size,
                   int64_t dim[AF_DISK_DIMS], int *ndim, int64_t *from)
{
    const af_tensor_spec *t = &s->tensor[tensor];
    dim[AF_DISK_DIMS - 1] = 1;
    *from = 0;
    if (af_slot_is_experts(t->slot) && !s->experts_whole) {
        af_disk_expert(s, tensor, p, name, size, dim, ndim, from);
        return;
    }
    if (cut_piece(s, tensor, p, name, size, dim, ndim, from))
        return;
    if (t->slot == AF_SLOT_ROUTER && s->arch->router && !s->experts_whole)
        layer_name(s, t, s->arch->router, name, size);
    else
        snprintf(name, size, "%s", t->name);
    set_dims(dim, ndim, t->scalar ? 0 : t->ndim, t->dim[0], t->dim[1], t->dim[2]);
    const int last = t->ndim - 1; /* of a bias, columns change places and nothing else */
    if (af_disk_is_turned(s, tensor) && t->slot != AF_SLOT_EXPERTS_GATE_UP_BIAS) {
        dim[last - 1] = t->dim[last];
        dim[last] = t->dim[last - 1];
    }
    if (af_disk_has_axes(s, tensor))
        set_dims(dim, ndim, AF_DISK_DIMS, 1, 1, t->dim[0]);
}

void af_disk_expert(const af_model_spec *s, int tensor, int p, char *name, size_t size,
                    int64_t dim[AF_DISK_DIMS], int *ndim, int64_t *from)
{
    const af_tensor_spec *t = &s->tensor[tensor];
    const bool gate_up = t->slot == AF_SLOT_EXPERTS_GATE_UP;
    const int64_t F = s->expert_ffn, D = s->expert_width;
    static const char *const usual[] = {"gate_proj", "up_proj", "down_proj"};
    const int part = t->slot == AF_SLOT_EXPERTS_DOWN ? 2
                     : t->slot == AF_SLOT_EXPERTS_UP ? 1
                                                     : p % 2;
    char rest[96];
    const af_arch *a = s->arch;
    snprintf(rest, sizeof rest, "%s.%d.%s.weight", a->experts ? a->experts : "mlp.experts",
             gate_up ? p / 2 : p, a->experts ? a->expert_part[part] : usual[part]);
    layer_name(s, t, rest, name, size);
    set_dims(dim, ndim, 2, part < 2 ? F : D, part < 2 ? D : F, 1);
    *from = p * F * D;
}

bool af_disk_is_turned(const af_model_spec *s, int tensor)
{
    const af_slot slot = s->tensor[tensor].slot;
    if (s->tensor[tensor].flat || (s->arch->image_experts && slot == AF_SLOT_ROUTER))
        return true;
    if (s->arch->linears_turned && s->tensor[tensor].layer >= 0 && s->tensor[tensor].ndim == 2)
        return true;
    return s->arch->experts_turned &&
           (slot == AF_SLOT_EXPERTS_GATE_UP || slot == AF_SLOT_EXPERTS_DOWN ||
            slot == AF_SLOT_EXPERTS_GATE_UP_BIAS);
}

/* Where output o of 2F, gates first, lies on disk. */
static int64_t output_at(const af_tensor_spec *t, int64_t o)
{
    const int64_t outs = t->dim[1];
    if (!t->alternates)
        return o;
    return o < outs / 2 ? 2 * o : 2 * (o - outs / 2) + 1;
}

int64_t af_disk_at(const af_tensor_spec *t, int64_t row, int64_t column)
{
    const int64_t outs = t->dim[1];
    if (t->slot == AF_SLOT_EXPERTS_GATE_UP_BIAS) /* [X][2F] */
        return row * outs + output_at(t, column);
    if (t->ndim == 2)
        return column * t->dim[0] + row;
    const int64_t x = row / outs, ins = t->dim[2];
    if (t->flat && t->slot == AF_SLOT_EXPERTS_GATE_UP) { /* [2][X][F][D] */
        const int64_t F = outs / 2, o = row % outs;
        return ((o / F * t->dim[0] + x) * F + o % F) * ins + column;
    }
    return (x * ins + column) * outs + output_at(t, row % outs);
}

int64_t af_disk_out_row(const af_tensor_spec *t, int64_t row)
{
    const int64_t outs = t->dim[1];
    return row / outs * outs + output_at(t, row % outs);
}

void af_disk_turn(const af_tensor_spec *t, const void *from, void *to, uint64_t size, bool to_disk)
{
    const int64_t cols = t->dim[t->ndim - 1], rows = t->dim[0] * (t->ndim > 2 ? t->dim[1] : 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const uint64_t ours = (uint64_t)(r * cols + c) * size,
                           disk = (uint64_t)af_disk_at(t, r, c) * size;
            memcpy((uint8_t *)to + (to_disk ? disk : ours),
                   (const uint8_t *)from + (to_disk ? ours : disk), size);
        }
}

void *af_disk_turned(const af_model_spec *s, int tensor, const void *data, af_dtype type)
{
    const af_tensor_spec *t = &s->tensor[tensor];
    uint64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= (uint64_t)t->dim[i]; /* checked when the model was listed */
    const uint64_t size = (uint64_t)af_dtype_get(type)->bytes;
    void *out = af_calloc(n, size);
    if (out)
        af_disk_turn(t, data, out, size, true);
    return out;
}

/* Whether piece p of the tensor of a slot is called so. */
static bool is_piece(const af_model_spec *s, int tensor, int p, const char *name, int64_t *from)
{
    char own[256];
    int64_t dim[AF_DISK_DIMS];
    int ndim;
    if (tensor < 0 || p < 0 || p >= af_disk_count(s, tensor))
        return false;
    af_disk_piece(s, tensor, p, own, sizeof own, dim, &ndim, from);
    return strcmp(own, name) == 0;
}

int af_disk_find(const af_model_spec *s, const char *name, int64_t *from)
{
    char layers[64];
    const int whole = af_model_spec_tensor(s, name);
    *from = 0;
    af_spec_layers_prefix(s, layers, sizeof layers);
    if (whole >= 0 || strncmp(name, layers, strlen(layers)) != 0)
        return whole;
    char *rest;
    const long each = s->arch->two_in_one ? 2 : 1,
               number_of = strtol(name + strlen(layers), &rest, 10);
    if (number_of < 0 || number_of >= s->layers / each)
        return -1;
    const long layer = number_of * each;
    const int *of = s->layer[layer].tensor;
    const char *number = strstr(rest, ".experts.");
    const int e = number ? (int)strtol(number + strlen(".experts."), NULL, 10) : 0;
    for (int p = 0; p < AF_CONV_PIECES; p++)
        if (is_piece(s, of[AF_SLOT_CONV], p, name, from))
            return of[AF_SLOT_CONV];
    for (int p = 0; p < 2; p++) {
        if (is_piece(s, of[AF_SLOT_GATE_UP], p, name, from))
            return of[AF_SLOT_GATE_UP];
        if (is_piece(s, of[AF_SLOT_SHARED_GATE_UP], p, name, from))
            return of[AF_SLOT_SHARED_GATE_UP];
    }
    if (is_piece(s, of[AF_SLOT_ROUTER], 0, name, from))
        return of[AF_SLOT_ROUTER];
    for (int p = 2 * e; p < 2 * e + 2 && e < s->experts; p++)
        if (is_piece(s, of[AF_SLOT_EXPERTS_GATE_UP], p, name, from))
            return of[AF_SLOT_EXPERTS_GATE_UP];
    if (is_piece(s, of[AF_SLOT_EXPERTS_UP], e, name, from))
        return of[AF_SLOT_EXPERTS_UP];
    return is_piece(s, of[AF_SLOT_EXPERTS_DOWN], e, name, from) ? of[AF_SLOT_EXPERTS_DOWN] : -1;
}
