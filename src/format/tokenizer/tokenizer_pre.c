/* tokenizer_pre.c - see tokenizer_pre.h. The patterns are those of the families' own tokenizer.json
 * files where these are known, else those of llama.cpp, whose names they have. */
#include "format/tokenizer/tokenizer_pre.h"

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                           "\\s+(?!\\S)|\\s+";
static const char llama3[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
                             "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                             "\\s+(?!\\S)|\\s+";
static const char qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                            " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char qwen35[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|"
                             "\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                             "\\s+(?!\\S)|\\s+";
static const char bloom[] = " ?[^(\\s|[.,!?…。，、।۔،])]+";
static const char tekken[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char gpt4o[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char youtu_scripts[] = "[가-힣ㄱ-ㆎ]+|"
                                    "[！…“”‘’—：；，、-〿︰-﹏]+|"
                                    "[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+";
static const char youtu[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char words_or_marks[] =
    "[!\\\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";
static const char seed[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}|"
                           " ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char bailing[] = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
                              " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
static const char exaone_moe[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
    "[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
static const char jais2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|"
    "\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{"
    "1}";
static const char minicpm5[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
                               "\\p{N}+| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                               "\\s+(?!\\S)|\\s+";
const char af_pre_kimi[] =
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/* Letters of alphabets with cases. */
static const char deepseek_letters[] =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯ"
    "Ա-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-"
    "Ὅὐ-ὗὙὛὝὟ-\\u1f7dᾀ-ᾴᾶ-ᾼ\\u1fbeῂ-ῄῆ-ῌῐ-\\u1fd3ῖ-\\u1fdb"
    "ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\u2126ℨ\\u212a-ℭℯ-ℴℹℼ-ℿⅅ-"
    "ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆ"
    "ﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

enum {
    NFC = AF_PRE_NFC,
    IGNORE_MERGES = AF_PRE_IGNORE_MERGES,
    ADD_BOS = AF_PRE_ADD_BOS,
    RAW = AF_PRE_RAW
};

static const af_pre_name names[] = {
    /* in this order: a split is written to GGUF under the first name that it has here */
    {"gpt-2", {gpt2}, 0},
    {"llama-bpe", {llama3}, IGNORE_MERGES | ADD_BOS},
    {"qwen2", {qwen2}, NFC},
    {"qwen35", {qwen35}, NFC},
    {"smollm", {"\\p{N}", gpt2}, 0},
    {"tekken", {tekken}, IGNORE_MERGES | ADD_BOS},
    {"gpt-4o", {gpt4o}, 0},
    {"deepseek-v3", {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", words_or_marks}, 0},
    {"deepseek-coder",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"},
     0},
    {"bloom", {bloom}, 0},
    {"default",
     {"[\\p{P}\\$\\+<=>\\^~\\|]+",
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)", "\\p{N}+",
      "[0-9][0-9][0-9]"},
     0},
    {"seed-coder", {seed}, 0},
    {"bailingmoe2", {bailing}, 0},
    {"exaone-moe", {exaone_moe}, 0},
    {"jais-2", {jais2}, 0},
    {"minicpm5", {"\\p{N}{1,3}", minicpm5}, IGNORE_MERGES},
    {"kimi-k2", {af_pre_kimi}, 0},
    {"laguna", {"[^\\n]+|[\\n]+", qwen2}, 0},
    {"youtu", {youtu_scripts, youtu}, IGNORE_MERGES},
    {"deepseek-llm",
     {"[\\r\\n]", deepseek_letters, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$",
      "[一-龥ࠀ-一가-퟿]+", "\\p{N}+"},
     0},
    {"falcon",
     {"[\\p{P}\\$\\+<=>\\^~\\|`]+",
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
      "[0-9][0-9][0-9]"},
     0},
    {"viking", {bloom, "\\p{N}"}, 0},
    {"tiny_aya", {"\\d{1,3}(?=(?:\\d{3})*\\b)", gpt4o}, 0},
    {"gemma4", {NULL}, RAW | ADD_BOS},
    /* the same under other names */
    {"llama3", {llama3}, IGNORE_MERGES | ADD_BOS},
    {"llama-v3", {llama3}, IGNORE_MERGES | ADD_BOS},
    {"falcon3", {llama3}, IGNORE_MERGES | ADD_BOS},
    {"pixtral", {llama3}, IGNORE_MERGES | ADD_BOS},
    {"falcon-h1", {llama3}, IGNORE_MERGES | ADD_BOS},
    {"midm-2.0", {llama3}, IGNORE_MERGES | ADD_BOS},
    {"lfm2", {llama3}, IGNORE_MERGES | ADD_BOS},
    {"dbrx", {llama3}, 0},
    {"smaug-bpe", {llama3}, 0},
    {"chatglm-bpe", {llama3}, 0},
    {"glm4", {llama3}, 0},
    {"glm5", {llama3}, 0},
    {"deepseek-r1-qwen", {qwen2}, NFC},
    {"megrez", {qwen2}, NFC},
    {"kormo", {qwen2}, 0},
    {"stablelm2", {qwen2}, 0},
    {"hunyuan", {qwen2}, 0},
    {"solar-open", {qwen2}, 0},
    {"grok-2", {qwen2}, 0},
    {"phi-2", {gpt2}, 0},
    {"mpt", {gpt2}, 0},
    {"olmo", {gpt2}, 0},
    {"jais", {gpt2}, 0},
    {"exaone4", {gpt2}, 0},
    {"a.x-4.0", {gpt2}, 0},
    {"gigachat", {gpt2}, 0},
    {"mellum", {gpt2}, 0},
    {"trillion", {gpt2}, 0},
    {"granite-docling", {gpt2}, 0},
    {"gpt3-finnish", {bloom}, 0},
    {"poro-chat", {bloom}, 0},
    {"starcoder", {"\\p{N}", gpt2}, 0},
    {"refact", {"\\p{N}", gpt2}, 0},
    {"codeshell", {"\\p{N}", gpt2}, 0},
    {"command-r", {"\\p{N}", gpt2}, 0},
    {"exaone", {"\\p{N}", gpt2}, 0},
    {"minerva-7b", {"\\p{N}", gpt2}, 0},
    {"mellum2", {"\\p{N}", gpt2}, 0},
    {"llama4", {gpt4o}, 0},
    {"kanana2", {gpt4o}, 0},
    {"minimax-m2", {gpt4o}, 0},
    {"cohere2moe", {"\\d{1,3}(?=(?:\\d{3})*\\b)", gpt4o}, 0},
    {"hunyuan-dense", {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", words_or_marks}, 0},
    {"joyai-llm", {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", words_or_marks}, 0},
    {"bailingmoe", {bailing}, 0},
    {"llada-moe", {bailing}, 0},
};

const af_pre_name *af_pre_name_at(int i) { return i < (int)AF_LEN(names) ? &names[i] : NULL; }

const af_pre_name *af_pre_name_find(const char *name, uint64_t len)
{
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strlen(names[i].name) == len && memcmp(names[i].name, name, len) == 0)
            return &names[i];
    return NULL;
}

json_t *af_pre_name_parts(const af_pre_name *p)
{
    static const char blank[] = "\xe2\x96\x81";
    if (p->flags & AF_PRE_RAW) /* as SentencePiece without a blank in front */
        return json_pack("{s:{s:s,s:{s:s},s:s},s:{s:s,s:[{s:s,s:{s:s},s:s},{s:s},{s:s}]}}",
                         "normalizer", "type", "Replace", "pattern", "String", " ", "content",
                         blank, "decoder", "type", "Sequence", "decoders", "type", "Replace",
                         "pattern", "String", blank, "content", " ", "type", "ByteFallback", "type",
                         "Fuse");
    json_t *list = json_array();
    for (int i = 0; i < AF_PRE_PATTERNS && p->pattern[i]; i++)
        json_array_append_new(list, json_pack("{s:s,s:{s:s},s:s,s:b}", "type", "Split", "pattern",
                                              "Regex", p->pattern[i], "behavior", "Isolated",
                                              "invert", 0));
    json_array_append_new(list,
                          json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                                    "trim_offsets", 0, "use_regex", 0));
    json_t *parts = json_pack("{s:{s:s,s:o},s:{s:s}}", "pre_tokenizer", "type", "Sequence",
                              "pretokenizers", list, "decoder", "type", "ByteLevel");
    if (p->flags & AF_PRE_NFC)
        json_object_set_new(parts, "normalizer", json_pack("{s:s}", "type", "NFC"));
    return parts;
}
