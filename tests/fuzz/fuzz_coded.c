/* fuzz_coded.c - any bytes as a safetensors file of weights that another tool stored as codes: the
 * first byte picks the tool. Every weight that is found is read to its last row. */
#include "fuzz_file.h"
#include "model/coded/coded_weight.h"

static const af_quant_config quants[] = {
    {.method = AF_QUANT_FP8},
    {.method = AF_QUANT_FP8, .block = {2, 3}},
    {.method = AF_QUANT_MXFP4},
    {.method = AF_QUANT_COMPRESSED},
    {.method = AF_QUANT_MODELOPT},
    {.method = AF_QUANT_GPTQ, .bits = 2},
    {.method = AF_QUANT_GPTQ, .bits = 3, .zeros_as_used = true},
    {.method = AF_QUANT_GPTQ, .bits = 4},
    {.method = AF_QUANT_GPTQ, .bits = 8},
    {.method = AF_QUANT_AWQ, .bits = 4},
    {.method = AF_QUANT_BITNET},
    {.method = AF_QUANT_BITNET, .online = true},
    {.method = AF_QUANT_MLX, .block = {1, 32}},
};
enum { VALUES_MAX = 1 << 16 };

static void read_weight(const af_weights *w, const af_hf_config *c, const char *name)
{
    static float row[VALUES_MAX];
    static uint8_t packed[VALUES_MAX];
    af_coded_weight v;
    bool found = false;
    if (af_coded_weight_read(&v, &found, w, c, name, NULL) != AF_OK || !found)
        return;
    if (v.rows < 1 || v.cols < 1 || v.cols > VALUES_MAX || v.rows > VALUES_MAX)
        return;
    for (int64_t r = 0; r < v.rows; r++)
        af_coded_weight_rows(&v, r, 1, row);
    if (af_coded_weight_is_mxfp4(&v))
        af_coded_weight_mxfp4_row(&v, 0, packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_weights *w = NULL;
    char weight[600];
    if (size < 1)
        return 0;
    const af_hf_config c = {.has_dtype = data[0] & 0x80,
                            .dtype = AF_DTYPE_F16,
                            .quant = quants[(data[0] & 0x7f) % AF_LEN(quants)]};
    if (af_weights_open(&w, fuzz_put("model.safetensors", data + 1, size - 1), NULL) != AF_OK)
        return 0;
    for (int i = 0; i < af_weights_count(w); i++) {
        const char *name = af_weights_at(w, i)->name;
        if (af_coded_part(w, &c, name, weight, sizeof weight) && weight[0])
            read_weight(w, &c, weight);
        read_weight(w, &c, name);
    }
    af_weights_close(w);
    return 0;
}
