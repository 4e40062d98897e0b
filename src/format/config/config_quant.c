/* config_quant.c - quantization_config: how the stored weights were quantised. */
#include "format/config/config_source.h"

#include "base/file.h"
#include "format/text/json_text.h"

#include <jansson.h>
#include <strings.h>

/* Rows and columns that share a scale; compressed-tensors has them in a group of modules. */
static const json_t *find_block(af_config_source *in)
{
    const json_t *block = af_config_value(in, "weight_block_size"), *group;
    const char *key;
    json_object_foreach((json_t *)af_config_value(in, "config_groups"), key, group)
    {
        const json_t *own = json_object_get(json_object_get(group, "weights"), "block_structure");
        block = !block && json_is_array(own) ? own : block;
    }
    return block;
}

/* Forms of compressed-tensors whose tensors would be taken for those of another model. */
static void refuse_forms(af_config_source *in)
{
    static const char *const refused[] = {"sparse-24-bitmask", "sparse-bitmask", "marlin-24",
                                          "mxfp6-pack-quantized"};
    const json_t *sparse = json_object_get(af_config_value(in, "sparsity_config"), "format");
    const char *const found[] = {json_string_value(af_config_value(in, "format")),
                                 json_string_value(sparse)};
    for (size_t i = 0; i < AF_LEN(found) * AF_LEN(refused) && in->st == AF_OK; i++) {
        const char *form = found[i % AF_LEN(found)];
        if (form && strcmp(form, refused[i / AF_LEN(found)]) == 0)
            in->st = af_fail(in->err, AF_EUNSUPPORTED,
                             "%s: weights of compressed-tensors in the format '%s' are not read; "
                             "use the model before quantisation",
                             in->name, form);
    }
}

/* Block sizes and bits of the tools whose weights are read as codes. */
static void get_coded(af_config_source *in, af_hf_config *c)
{
    const json_t *block = find_block(in);
    refuse_forms(in);
    const int64_t bits = af_config_int(in, "bits", 4);
    c->quant.bits = (int)AF_MIN(AF_MAX(bits, 1), 8);
    if (c->quant.method == AF_QUANT_GPTQ && bits != 2 && bits != 3 && bits != 4 && bits != 8)
        af_config_wrong(in, "bits", "2, 3, 4 or 8");
    if (c->quant.method == AF_QUANT_AWQ &&
        (bits != 4 || strcasecmp(af_config_str(in, &c->arena, "version", "gemm"), "gemm") != 0))
        af_config_wrong(in, "bits", "4 with version gemm, the only AWQ files that are read");
    const char *form = af_config_str(in, &c->arena, "format", "gptq"); /* two names of one key */
    form = af_config_str(in, &c->arena, "checkpoint_format", form);
    c->quant.zeros_as_used =
        (c->quant.method == AF_QUANT_GPTQ && strcmp(form, "gptq_v2") == 0) ||
        strcmp(af_config_str(in, &c->arena, "packing_format", ""), "auto_round") == 0;
    if (!block)
        return;
    for (int i = 0; i < 2; i++)
        c->quant.block[i] = json_integer_value(json_array_get(block, (size_t)i));
    if (json_array_size(block) != 2 || c->quant.block[0] < 1 || c->quant.block[1] < 1)
        af_config_wrong(in, "weight_block_size", "two positive numbers");
}

/* AutoRound packs as GPTQ or AWQ do; its own first form is GPTQ's with zeros as they are. */
static af_quant_method round_method(af_config_source *in, af_hf_config *c)
{
    const char *form = af_config_str(in, &c->arena, "packing_format", "auto_round:auto_gptq");
    if (strstr(form, "awq"))
        return AF_QUANT_AWQ;
    if (!strstr(form, "gptq") && strcmp(form, "auto_round") != 0 && strcmp(form, "auto") != 0)
        af_config_wrong(in, "packing_format", "that of GPTQ or AWQ (auto_round:auto_gptq)");
    return AF_QUANT_GPTQ;
}

static void get_bnb(af_config_source *in, af_hf_config *c)
{
    const bool four = af_config_bool(in, "load_in_4bit", false);
    const bool eight = af_config_bool(in, "load_in_8bit", false);
    const char *type = af_config_str(in, &c->arena, "bnb_4bit_quant_type", "fp4");
    c->quant.method = four ? AF_QUANT_BNB_4BIT : eight ? AF_QUANT_BNB_8BIT : AF_QUANT_NONE;
    c->quant.double_quant = af_config_bool(in, "bnb_4bit_use_double_quant", false);
    c->quant.type = strcmp(type, "nf4") == 0 ? AF_DTYPE_NF4 : AF_DTYPE_FP4;
    if (strcmp(type, "nf4") != 0 && strcmp(type, "fp4") != 0)
        af_config_wrong(in, "bnb_4bit_quant_type", "nf4 or fp4");
    const json_t *skip = af_config_value(in, "llm_int8_skip_modules");
    const size_t n = json_is_array(skip) ? json_array_size(skip) : 0;
    const char **list = af_arena_take(&c->arena, AF_MAX(n, 1) * sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        const char *m = json_string_value(json_array_get(skip, i));
        if (!m)
            af_config_wrong(in, "llm_int8_skip_modules", "a list of names");
        else if ((m = af_arena_strdup(&c->arena, m)))
            list[c->quant.skip_count++] = m;
    }
    c->quant.skip_modules = list;
}

/* Linears other than lm_head, as transformers' AutoBitLinear computes them. */
static void get_bitnet(af_config_source *in, af_hf_config *c)
{
    const char *linear = af_config_str(in, &c->arena, "linear_class", "bitlinear");
    const char *mode = af_config_str(in, &c->arena, "quantization_mode", "offline");
    const json_t *plain = af_config_value(in, "modules_to_not_convert");
    const char *one = json_string_value(json_array_get(plain, 0));
    c->quant.online = strcmp(mode, "online") == 0;
    if (strcmp(linear, "autobitlinear") != 0)
        af_config_wrong(in, "linear_class", "autobitlinear, the only one that has gradients");
    if (!c->quant.online && strcmp(mode, "offline") != 0)
        af_config_wrong(in, "quantization_mode", "online or offline");
    if (af_config_bool(in, "use_rms_norm", false))
        af_config_wrong(in, "use_rms_norm", "false, and linears with norms are not supported");
    if (plain && (json_array_size(plain) != 1 || !one || strcmp(one, "lm_head") != 0))
        af_config_wrong(in, "modules_to_not_convert", "[\"lm_head\"]");
}

/* mlx-lm has no name for it: sizes in `quantization`, and in newer versions the same again. */
static const json_t *find_mlx(const json_t *root)
{
    static const char *const keys[] = {"quantization", "quantization_config"};
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const json_t *q = json_object_get(root, keys[i]);
        if (json_is_integer(json_object_get(q, "group_size")) &&
            json_is_integer(json_object_get(q, "bits")) && !json_object_get(q, "quant_method"))
            return q;
    }
    return NULL;
}

static void get_mlx(af_config_source *in, af_hf_config *c)
{
    c->quant.method = AF_QUANT_MLX;
    c->quant.block[0] = 1;
    c->quant.block[1] = af_config_int(in, "group_size", 64);
    if (c->quant.block[1] < 1 || c->quant.block[1] > AF_CONFIG_WIDTH_MAX)
        af_config_wrong(in, "group_size", "a positive number of columns");
}

int64_t af_quant_group(const af_hf_config *c, const char *module)
{
    const json_t *own = json_object_get(find_mlx(c->raw), module);
    const json_int_t group = json_integer_value(json_object_get(own, "group_size"));
    return group > 0 && group <= AF_CONFIG_WIDTH_MAX ? group : c->quant.block[1];
}

void af_config_quant(af_config_source *s, af_hf_config *c)
{
    static const struct {
        const char *name;
        af_quant_method method;
    } coded[] = {{"fp8", AF_QUANT_FP8},           {"fbgemm_fp8", AF_QUANT_FP8},
                 {"mxfp4", AF_QUANT_MXFP4},       {"compressed-tensors", AF_QUANT_COMPRESSED},
                 {"modelopt", AF_QUANT_MODELOPT}, {"gptq", AF_QUANT_GPTQ},
                 {"awq", AF_QUANT_AWQ},           {"bitnet", AF_QUANT_BITNET}};
    const json_t *mlx = find_mlx(s->obj), *q = mlx;
    q = q ? q : af_config_value(s, "quantization_config");
    if (!q)
        return;
    af_config_source in = af_config_inner(s, q);
    const char *method = af_config_str(&in, &c->arena, "quant_method", "bitsandbytes");
    for (size_t i = 0; i < AF_LEN(coded); i++)
        if (strcmp(method, coded[i].name) == 0)
            c->quant.method = coded[i].method;
    if (strstr(method, "auto-round"))
        c->quant.method = round_method(&in, c);
    if (mlx)
        get_mlx(&in, c);
    else if (c->quant.method == AF_QUANT_BITNET)
        get_bitnet(&in, c);
    else if (c->quant.method != AF_QUANT_NONE)
        get_coded(&in, c);
    else if (strcmp(method, "bitsandbytes") == 0)
        get_bnb(&in, c);
    else if (in.st == AF_OK)
        in.st =
            af_fail(s->err, AF_EUNSUPPORTED,
                    "%s: weights quantised with '%.64s' are not read, only with bitsandbytes, fp8, "
                    "fbgemm_fp8, mxfp4, compressed-tensors, modelopt, gptq, awq, auto-round, "
                    "bitnet and MLX; "
                    "use the model before quantisation",
                    s->name, method);
    s->st = in.st;
}

/* What a file next to config.json says, in the keys of quantization_config; NULL: nothing. */
static json_t *quant_of_file(const char *name, const json_t *j)
{
    const json_t *inner = json_object_get(j, "quantization");
    if (strcmp(name, "hf_quant_config.json") == 0)
        return json_is_string(json_object_get(inner, "quant_algo"))
                   ? json_pack("{s:s}", "quant_method", "modelopt")
                   : NULL;
    const bool awq = strcmp(name, "quant_config.json") == 0;
    const json_t *bits = json_object_get(j, awq ? "w_bit" : "bits");
    json_t *q = json_is_integer(bits) ? json_copy((json_t *)j) : NULL;
    if (q) {
        json_object_set(q, "bits", (json_t *)bits);
        json_object_set_new(q, "quant_method", json_string(awq ? "awq" : "gptq"));
    }
    return q;
}

af_status af_quant_from_files(af_hf_config *c, const char *dir, af_error *err)
{
    static const char *const names[] = {"hf_quant_config.json", "quantize_config.json",
                                        "quant_config.json"};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(names) && st == AF_OK && c->quant.method == AF_QUANT_NONE; i++) {
        json_t *j = NULL, *root = NULL;
        char *path = af_file_in(dir, names[i]) ? af_path_join(dir, names[i]) : NULL;
        if (path)
            st = af_json_read_file(&j, path, err);
        json_t *q = j ? quant_of_file(names[i], j) : NULL;
        if (q && (root = json_pack("{s:o}", "quantization_config", q))) {
            af_config_source s = {.obj = root, .name = path, .err = err};
            af_config_quant(&s, c);
            st = s.st;
        }
        json_decref(root);
        json_decref(j);
        free(path);
    }
    return st;
}
