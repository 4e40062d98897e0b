/* gguf_gemma4.c - what gemma4's metadata say beyond other families': see gguf_state.h. */
#include "format/config/gguf_state.h"

int64_t af_gguf_first_int(const af_gguf *g, const char *key, int64_t absent)
{
    const af_gguf_kv *kv = af_gguf_find_kv(g, key);
    return !kv || kv->str || kv->count == 0 ? absent : af_gguf_item_int(kv, 0);
}

static int64_t layer_int(const af_gguf *g, const char *key, int64_t layer, int64_t absent)
{
    const af_gguf_kv *kv = af_gguf_find_kv(g, key);
    if (!kv || kv->str || kv->count == 0)
        return absent;
    return kv->count > (uint64_t)layer ? af_gguf_item_int(kv, (uint64_t)layer)
                                       : af_gguf_item_int(kv, 0);
}

/* Frequencies divided by a huge number are 0: those values are not rotated. */
static void get_ropes(af_hf_config *c, const af_gguf *g, int64_t full)
{
    int rotated = 0;
    for (int i = 0; i < c->rope.freq_count; i++)
        rotated += c->rope.freq_factor[i] < 1e20;
    c->rope.partial_rotary_factor = 1;
    if (c->rope.freq_factor) {
        c->rope.type = AF_ROPE_PROPORTIONAL;
        c->rope.partial_rotary_factor = full > 1 ? 2.0 * rotated / (double)full : 1;
    }
    c->local_rope.freq_factor = c->rope.freq_factor = NULL;
    c->local_rope.freq_count = c->rope.freq_count = 0;
    const int64_t dims = af_gguf_int(g, "gemma4.rope.dimension_count_swa", c->head_dim);
    c->local_rope.partial_rotary_factor = (double)dims / (double)AF_MAX(c->head_dim, 1);
}

static af_status get_layers(af_hf_config *c, const af_gguf *g, af_error *err)
{
    af_layer_keys *k = &c->per_layer;
    const int64_t n = c->num_hidden_layers;
    af_layer_type *types = af_arena_take(&c->arena, (uint64_t)n * sizeof *types);
    if (!types)
        return af_fail_nomem(err, "layer types", (uint64_t)n * sizeof *types);
    k->k_is_v = false;
    for (int64_t i = 0; i < n; i++) {
        const bool slides = layer_int(g, "gemma4.attention.sliding_window_pattern", i, 0) != 0;
        const int64_t heads =
            layer_int(g, "gemma4.attention.head_count_kv", i, c->num_attention_heads);
        char name[64];
        types[i] = slides ? AF_LAYER_SLIDING : AF_LAYER_FULL;
        if (slides)
            c->num_key_value_heads = heads;
        else
            k->full_kv_heads = heads;
        snprintf(name, sizeof name, "blk.%" PRId64 ".attn_v.weight", i);
        k->k_is_v |= !slides && i < n - k->kv_shared && !af_gguf_find(g, name);
        k->double_wide |= layer_int(g, "gemma4.feed_forward_length", i, 0) > c->intermediate_size;
    }
    if (!c->num_key_value_heads)
        c->num_key_value_heads = k->full_kv_heads;
    c->layer_types = types;
    return AF_OK;
}

af_status af_config_gguf_gemma4(af_hf_config *c, const af_gguf *g, af_error *err)
{
    af_layer_keys *k = &c->per_layer;
    const af_stored *table = af_gguf_find(g, "per_layer_token_embd.weight");
    const int64_t n = c->num_hidden_layers, full = c->head_dim;
    k->kv_shared = af_gguf_int(g, "gemma4.attention.shared_kv_layers", 0);
    k->input = af_gguf_int(g, "gemma4.embedding_length_per_layer_input", 0);
    k->input_vocab = table ? table->dim[0] : c->vocab_size;
    k->full_head_dim = full;
    c->head_dim = af_gguf_int(g, "gemma4.attention.key_length_swa", full);
    if (n < 1 || n > AF_CONFIG_LAYERS_MAX || k->kv_shared < 0 || k->kv_shared > n || full < 1 ||
        full > AF_CONFIG_WIDTH_MAX || c->head_dim < 1 || c->head_dim > AF_CONFIG_WIDTH_MAX ||
        k->input < 0 || k->input > AF_CONFIG_WIDTH_MAX)
        return af_fail(err, AF_EFORMAT,
                       "gemma4: %" PRId64 " layers of which %" PRId64
                       " share keys, heads of %" PRId64 " and %" PRId64 ", inputs of %" PRId64
                       " a layer",
                       n, k->kv_shared, full, c->head_dim, k->input);
    k->experts = c->num_experts > 0;
    c->router.expert_scale = k->experts;
    get_ropes(c, g, full);
    return get_layers(c, g, err);
}

/* ---- gemma3n ---- */

/* What the file does not say is the same in all of llama.cpp's: layers whose gates are sparse, the
 * first that share keys and values, ranks. */
af_status af_config_gguf_gemma3n(af_hf_config *c, const af_gguf *g, af_error *err)
{
    enum { SPARSE = 10, LAUREL = 64 };
    af_layer_keys *k = &c->per_layer;
    const int64_t n = c->num_hidden_layers;
    if (n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return af_fail(err, AF_EFORMAT, "gemma3n.block_count is %" PRId64, n);
    af_layer_type *types = af_arena_take(&c->arena, (uint64_t)n * sizeof *types);
    double *share = af_arena_take(&c->arena, (uint64_t)n * sizeof *share);
    if (!types || !share)
        return af_fail_nomem(err, "layer types", (uint64_t)n * sizeof *share);
    const af_gguf_kv *slides = af_gguf_find_kv(g, "gemma3n.attention.sliding_window_pattern");
    const bool listed = slides && !slides->str && slides->count == (uint64_t)n;
    for (int64_t i = 0; i < n; i++) {
        const bool slide = listed ? af_gguf_item_int(slides, (uint64_t)i) != 0
                                  : (i + 1) % c->sliding_window_pattern;
        types[i] = slide ? AF_LAYER_SLIDING : AF_LAYER_FULL;
        share[i] = i < SPARSE ? 0.95 : 0;
    }
    c->layer_types = types;
    k->sparsity = share;
    k->kv_shared = AF_MAX(n - AF_GEMMA3N_OWN_KV, 0);
    k->input = af_gguf_int(g, "gemma3n.embedding_length_per_layer_input", 256);
    k->input_vocab = af_gguf_int(g, AF_LAYER_VOCAB_KEY, c->vocab_size);
    c->altup = (af_altup_keys){.streams = af_gguf_int(g, "gemma3n.altup.num_inputs", 4),
                               .active = af_gguf_int(g, "gemma3n.altup.active_idx", 0),
                               .laurel = LAUREL,
                               .scaled = true};
    if (k->input < 1 || k->input > AF_CONFIG_WIDTH_MAX || k->input_vocab < 1 ||
        k->input_vocab > c->vocab_size || c->altup.streams < 2 ||
        c->altup.streams > AF_ALTUP_STREAMS_MAX || c->altup.active < 0 ||
        c->altup.active >= c->altup.streams)
        return af_fail(err, AF_EFORMAT,
                       "gemma3n: stream %" PRId64 " of %" PRId64 " (altup.num_inputs, 2 to %d), "
                       "inputs of %" PRId64 " a layer for %" PRId64 " of %" PRId64 " tokens",
                       c->altup.active, c->altup.streams, AF_ALTUP_STREAMS_MAX, k->input,
                       k->input_vocab, c->vocab_size);
    return AF_OK;
}
