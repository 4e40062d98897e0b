/* meta_writer.h - between the files that write the metadata of GGUF: keys of an architecture, and
 * the first error. */
#ifndef AF_META_WRITER_H
#define AF_META_WRITER_H

#include "convert/gguf/gguf_meta.h"

typedef struct meta_writer {
    af_gguf_writer *w;
    const char *arch;
    af_status st;
    af_error *err;
} meta_writer;

static inline const char *key_of(const meta_writer *p, char *buf, size_t size, const char *suffix)
{
    snprintf(buf, size, "%s.%s", p->arch, suffix);
    return buf;
}

static inline void put_u32(meta_writer *p, const char *suffix, int64_t v)
{
    char key[128];
    if (p->st == AF_OK)
        p->st = af_gguf_put_u32(p->w, key_of(p, key, sizeof key, suffix), (uint32_t)v, p->err);
}

static inline void put_f32(meta_writer *p, const char *suffix, double v)
{
    char key[128];
    if (p->st == AF_OK)
        p->st = af_gguf_put_f32(p->w, key_of(p, key, sizeof key, suffix), (float)v, p->err);
}

static inline void put_str(meta_writer *p, const char *key, const char *s)
{
    if (p->st == AF_OK)
        p->st = af_gguf_put_str(p->w, key, s, strlen(s), p->err);
}

static inline void put_bool(meta_writer *p, const char *suffix, bool value)
{
    char key[128];
    if (p->st == AF_OK)
        p->st = af_gguf_put_bool(p->w, key_of(p, key, sizeof key, suffix), value, p->err);
}

static inline void put_array(meta_writer *p, const char *suffix, af_gguf_type type, const void *v,
                             int n)
{
    char key[128];
    if (p->st == AF_OK)
        p->st = af_gguf_put_array(p->w, key_of(p, key, sizeof key, suffix), type, v, (uint64_t)n,
                                  p->err);
}

/* What families with state layers have: gguf_meta_state.c. */
void af_meta_put_state(meta_writer *p, const af_model_spec *s, const af_hf_config *c);
/* Of models whose positions have several axes. */
void af_meta_put_positions(meta_writer *p, const af_model_spec *s, const af_hf_config *c);
/* Layers without keys and values have none of their heads. */
void af_meta_put_kv_heads(meta_writer *p, const af_model_spec *s);
#endif
