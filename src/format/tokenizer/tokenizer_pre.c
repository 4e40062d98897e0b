/* tokenizer_pre.c - see tokenizer_pre.h. The patterns are those of the families' own tokenizer.json
 * files; llama.cpp's names for them are in the table. */
#include "format/tokenizer/tokenizer_pre.h"

static const char parts_gpt2[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p"
    "{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_rege"
    "x\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}}";

static const char parts_llama3[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
    "\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+"
    "|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"B"
    "yteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]},"
    "\"decoder\":{\"type\":\"ByteLevel\"}}";

static const char parts_qwen2[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
    "\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
    "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"By"
    "teLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"normalizer\":{\"type\":\"NFC\"}}";

static const char parts_qwen2_plain[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
    "\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
    "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"By"
    "teLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]},"
    "\"decoder\":{\"type\":\"ByteLevel\"}}";

static const char parts_qwen35[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?["
    "\\\\p{L}\\\\p{M}]+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*["
    "\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{"
    "\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex"
    "\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},\"normalizer\":{\"type\":\"NFC\"}}";

static const char parts_bloom[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\" ?[^(\\\\s|[.,!?…。，、।۔،])]+\"},\"behavior\":\"Is"
    "olated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_"
    "offsets\":true,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}}";

static const char parts_smollm[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"\\\\p{N}\"},\"behavior\":\"Isolated\",\"invert\":false},{\"typ"
    "e\":\"Split\",\"pattern\":{\"Regex\":\"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N"
    "}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\","
    "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets"
    "\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}}";

static const char parts_tekken[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}"
    "\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{"
    "N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p"
    "{M}]*|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+("
    "?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel"
    "\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]},\"decode"
    "r\":{\"type\":\"ByteLevel\"}}";

static const char parts_gpt4o[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}"
    "\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d"
    ")?|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+["
    "\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\\\p{N}{1,3}| ?["
    "^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}"
    ",\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_sp"
    "ace\":false,\"trim_offsets\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"By"
    "teLevel\"}}";

static const char parts_deepseek3[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\",\"invert\":false},{"
    "\"type\":\"Split\",\"pattern\":{\"Regex\":\"[一-龥぀-ゟ゠-ヿ]+\"},\"behavior\":"
    "\"Isolated"
    "\",\"invert\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[!\\\\\\\"#$%&'()*"
    "+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\\\r\\\\n\\\\p{L}\\\\p{P}"
    "\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+"
    "|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"B"
    "yteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]},"
    "\"decoder\":{\"type\":\"ByteLevel\"}}";

static const char parts_deepseek_coder[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"[\\\\r\\\\n]\"},\"behavior\":\"Isolated\",\"invert\":false},{"
    "\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s?\\\\p{L}+\"},\"behavior\":\"Isolat"
    "ed\",\"invert\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s?\\\\p{P}+"
    "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\",\"pattern\":{\"R"
    "egex\":\"[一-龥ࠀ-一가-퟿]+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":"
    "\"Spl"
    "it\",\"pattern\":{\"Regex\":\"\\\\p{N}\"},\"behavior\":\"Isolated\",\"invert\":false"
    "},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_re"
    "gex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}}";

static const char parts_general[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"p"
    "attern\":{\"Regex\":\"[\\\\p{P}\\\\$\\\\+<=>\\\\^~\\\\|]+\"},\"behavior\":\"Isolated"
    "\",\"invert\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"'s|'t|'re|'ve|'m|'"
    "ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)\"},\"behav"
    "ior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\""
    "\\\\p{N}+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Split\",\"patte"
    "rn\":{\"Regex\":\"[0-9][0-9][0-9]\"},\"behavior\":\"Isolated\",\"invert\":false},{\""
    "type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\""
    ":false}]},\"decoder\":{\"type\":\"ByteLevel\"}}";

static const af_pre_name names[] = {
    {"default", parts_general, false, false},
    {"llama-bpe", parts_llama3, true, true},
    {"llama3", parts_llama3, true, true},
    {"llama-v3", parts_llama3, true, true},
    {"falcon3", parts_llama3, true, true},
    {"pixtral", parts_llama3, true, true},
    {"falcon-h1", parts_llama3, true, true},
    {"midm-2.0", parts_llama3, true, true},
    {"dbrx", parts_llama3, false, false},
    {"smaug-bpe", parts_llama3, false, false},
    {"chatglm-bpe", parts_llama3, false, false},
    {"glm4", parts_llama3, false, false},
    {"qwen2", parts_qwen2, false, false},
    {"deepseek-r1-qwen", parts_qwen2, false, false},
    {"megrez", parts_qwen2, false, false},
    {"stablelm2", parts_qwen2_plain, false, false},
    {"qwen35", parts_qwen35, false, false},
    {"gpt-2", parts_gpt2, false, false},
    {"phi-2", parts_gpt2, false, false},
    {"mpt", parts_gpt2, false, false},
    {"olmo", parts_gpt2, false, false},
    {"jais", parts_gpt2, false, false},
    {"bloom", parts_bloom, false, false},
    {"gpt3-finnish", parts_bloom, false, false},
    {"smollm", parts_smollm, false, false},
    {"starcoder", parts_smollm, false, false},
    {"refact", parts_smollm, false, false},
    {"codeshell", parts_smollm, false, false},
    {"command-r", parts_smollm, false, false},
    {"tekken", parts_tekken, true, true},
    {"gpt-4o", parts_gpt4o, false, false},
    {"llama4", parts_gpt4o, false, false},
    {"deepseek-v3", parts_deepseek3, false, false},
    {"deepseek-coder", parts_deepseek_coder, false, false},
};

const af_pre_name *af_pre_name_find(const char *name, uint64_t len)
{
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strlen(names[i].name) == len && memcmp(names[i].name, name, len) == 0)
            return &names[i];
    return NULL;
}
