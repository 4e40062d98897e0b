/* gguf_order.c - see gguf_order.h. */
#include "model/arch/gguf_order.h"

af_gguf_order af_gguf_order_of(const af_model_spec *s, const af_tensor_spec *t)
{
    const af_state_keys *k = &s->state;
    af_gguf_order o = {.size = 1};
    if (s->arch->qkv_grouped && !s->arch->gguf_cut_qkv &&
        (t->slot == AF_SLOT_QKV || t->slot == AF_SLOT_QKV_BIAS)) {
        const af_layer_spec *l = &s->layer[t->layer];
        return (af_gguf_order){.keys = l->kv_heads,
                               .per_key = l->heads / l->kv_heads,
                               .size = l->head_dim,
                               .qkv = true};
    }
    if (s->arch->gguf_permuted && t->row_heads) {
        const af_layer_spec *l = &s->layer[t->layer];
        const int64_t E = t->dim[0] / t->row_heads;
        return (af_gguf_order){.keys = t->row_heads,
                               .per_key = 1,
                               .size = E,
                               .pairs = l->rope < 0 ? E / 2 * 2 : s->rope[l->rope].rotary_dim};
    }
    if (!s->arch->gguf_tiled || t->layer < 0 || s->layer[t->layer].mixer != AF_MIXER_DELTA_NET ||
        k->heads == k->key_heads)
        return o;
    switch (t->slot) {
    case AF_SLOT_IN:
    case AF_SLOT_CONV:
        o.from = 2 * k->key_heads * k->key_dim;
        o.size = k->head_dim;
        break;
    case AF_SLOT_OUT:
        o.columns = true;
        o.size = k->head_dim;
        break;
    case AF_SLOT_IN_Z:
        o.size = k->head_dim;
        break;
    case AF_SLOT_IN_A:
    case AF_SLOT_IN_B:
    case AF_SLOT_A_LOG:
    case AF_SLOT_DT_BIAS:
        break;
    default:
        return o;
    }
    o.keys = k->key_heads;
    o.per_key = k->heads / k->key_heads;
    return o;
}

static int64_t head_here(const af_gguf_order *o, int64_t h)
{
    return h % o->keys * o->per_key + h / o->keys;
}

static int64_t head_there(const af_gguf_order *o, int64_t h)
{
    return h % o->per_key * o->keys + h / o->per_key;
}

static int64_t move(const af_gguf_order *o, int64_t r,
                    int64_t (*head)(const af_gguf_order *, int64_t))
{
    const int64_t at = r - o->from;
    return o->keys == 0 || at < 0 ? r : o->from + head(o, at / o->size) * o->size + at % o->size;
}

/* Heads of a fused projection: H queries, K keys and K values there; here K times G queries, a key
 * and a value. */
static int64_t qkv_here(const af_gguf_order *o, int64_t h)
{
    const int64_t K = o->keys, G = o->per_key, H = K * G;
    return h < H ? h / G * (G + 2) + h % G : (h - H) % K * (G + 2) + G + (h - H) / K;
}

static int64_t qkv_there(const af_gguf_order *o, int64_t h)
{
    const int64_t K = o->keys, G = o->per_key, k = h / (G + 2), i = h % (G + 2);
    return i < G ? k * G + i : K * G + (i - G) * K + k;
}

int64_t af_gguf_order_here(const af_gguf_order *o, int64_t r)
{
    if (!o->pairs) /* or rows that stay where they are, whose heads have no size */
        return move(o, r, o->qkv ? qkv_here : head_here);
    const int64_t at = r % o->size;
    return at < o->pairs ? r - at + at % 2 * (o->pairs / 2) + at / 2 : r;
}

int64_t af_gguf_order_there(const af_gguf_order *o, int64_t r)
{
    if (!o->pairs)
        return move(o, r, o->qkv ? qkv_there : head_there);
    const int64_t at = r % o->size, half = o->pairs / 2;
    return at < o->pairs ? r - at + at % half * 2 + at / half : r;
}

/* Head h becomes what head from(h) was. What lay before h was swapped away: it is found by going
 * on from where it should be. */
static void permute(const af_gguf_order *o, float *row,
                    int64_t (*from)(const af_gguf_order *, int64_t))
{
    for (int64_t h = 0; h < o->keys * o->per_key; h++) {
        int64_t other = from(o, h);
        while (other < h)
            other = from(o, other);
        float *a = row + h * o->size, *b = row + other * o->size;
        for (int64_t i = 0; i < o->size; i++) {
            const float x = a[i];
            a[i] = b[i];
            b[i] = x;
        }
    }
}

void af_gguf_order_to_file(const af_gguf_order *o, float *row) { permute(o, row, head_here); }
void af_gguf_order_from_file(const af_gguf_order *o, float *row) { permute(o, row, head_there); }
