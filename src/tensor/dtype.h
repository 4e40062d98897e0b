/* dtype.h - element and block types: names, sizes, and exact conversions.
 *
 * A plain type has blocks of one element. A block type stores `elems` consecutive elements in
 * `bytes` bytes; its bit layout is known to src/tensor/codec_*.c alone. bitsandbytes nf4/fp4 keep
 * their scales apart from the codes (see codec_bnb.h), so their row here is two codes per byte. */
#ifndef AF_DTYPE_H
#define AF_DTYPE_H

#include "afinar/types.h"
#include "base/base.h"

typedef struct af_dtype_info {
    const char *name;        /* "bf16", "q4_k" */
    const char *safetensors; /* "BF16", or NULL when that format has no such type */
    int gguf;                /* ggml type number, or -1 */
    int elems, bytes;        /* of one block */
} af_dtype_info;

/* Never NULL for a valid enum value. Static storage. */
const af_dtype_info *af_dtype_get(af_dtype t);
bool af_dtype_known(af_dtype t); /* false: a number that no type has */
/* False when the name, or number, is unknown. Names are case-insensitive. */
bool af_dtype_by_name(af_dtype *out, const char *name);
bool af_dtype_by_safetensors(af_dtype *out, const char *name);
bool af_dtype_by_gguf(af_dtype *out, uint32_t number);

/* Bytes of n elements; false on overflow or when n does not fill whole blocks (nf4/fp4 round up).
 */
bool af_dtype_bytes(af_dtype t, uint64_t n, uint64_t *bytes);
static inline bool af_dtype_is_float(af_dtype t)
{
    return t == AF_DTYPE_F32 || t == AF_DTYPE_F64 || t == AF_DTYPE_BF16 || t == AF_DTYPE_F16;
}
/* A block type, nf4 and fp4 included: not addressable element by element. */
bool af_dtype_is_block(af_dtype t);

/* Single values: round to nearest even; infinities stay, NaN stays NaN (quiet), overflow becomes
 * infinity (e4m3 has none: it becomes NaN, as the OCP format without saturation says). */
uint16_t af_bf16_from_f32(float x);
float af_f32_from_bf16(uint16_t x);
uint16_t af_f16_from_f32(float x);
float af_f32_from_f16(uint16_t x);
uint8_t af_e4m3_from_f32(float x);
float af_f32_from_e4m3(uint8_t x);
uint8_t af_e5m2_from_f32(float x);
float af_f32_from_e5m2(uint8_t x);

/* Rows of plain types (f32 f64 bf16 f16 e4m3 e5m2, i8 i16 i32 i64 u8 bool): n elements converted
 * through f32, or f64 where one side is f64 or a 32/64-bit integer. Block types go through codec.h.
 */
void af_convert(void *dst, af_dtype dst_type, const void *src, af_dtype src_type, uint64_t n);
/* One element as double, and back. */
double af_load_f64(const void *base, af_dtype t, uint64_t i);
void af_store_f64(void *base, af_dtype t, uint64_t i, double v);
/* True when none of n values is NaN or infinite. Types other than f32, bf16, f16: always true. */
bool af_all_finite(af_dtype dtype, const void *data, int64_t n);
#endif
