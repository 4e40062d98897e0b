/* tokenizer_gguf.c - a tokenizer from the metadata of a GGUF file.
 *
 * "gpt2" is byte-level BPE: the name in tokenizer.ggml.pre stands for the split patterns, which the
 * file does not hold. "llama" is SentencePiece BPE with scores. Control and user-defined tokens are
 * added tokens. A family whose own tokenizer normalises (Qwen: NFC) does so here, too. */
#include "base/log.h"
#include "format/text/json_text.h"
#include "format/tokenizer/tokenizer.h"
#include "format/tokenizer/tokenizer_pre.h"
#include "format/weights/gguf.h"

enum { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4 };

static af_status read_tokens(af_tokenizer *t, const af_gguf *g, af_error *err)
{
    af_status st = AF_OK;
    const af_gguf_kv *tokens = af_gguf_find_kv(g, "tokenizer.ggml.tokens");
    if (!tokens || tokens->type != AF_GGUF_ARRAY || !tokens->str || tokens->count == 0)
        return af_fail(err, AF_EFORMAT, "tokenizer.ggml.tokens is not a list of strings");
    if (tokens->count > AF_TOKENIZER_ID_MAX)
        return af_fail(err, AF_EFORMAT, "tokenizer.ggml.tokens has %" PRIu64 " entries",
                       tokens->count);
    AF_TRY(af_vocab_reserve(&t->vocab, tokens->count, err));
    for (uint64_t i = 0; i < tokens->count; i++) {
        const af_gguf_str s = tokens->str[i];
        if (af_utf8_valid(s.at, s.len) != s.len)
            return af_fail(err, AF_EFORMAT, "token %" PRIu64 " is not UTF-8", i);
        const int32_t old = af_vocab_find(&t->vocab, s.at, s.len);
        AF_TRY(af_vocab_add(&t->vocab, &t->arena, s.at, s.len, (int32_t)i, err));
        if (old >= 0) /* a string twice: the map has the last, both ids have the string */
            t->vocab.token[old] = t->vocab.token[i];
    }
done:
    return st;
}

bool af_gguf_token_strips(const af_gguf *g, const char *token, uint64_t len)
{
    static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>"};
    const af_gguf_str arch = af_gguf_string(g, "general.architecture");
    const af_gguf_str model = af_gguf_string(g, "tokenizer.ggml.model");
    if (arch.len != 4 || memcmp(arch.at, "phi3", 4) != 0 || model.len != 5) /* Phi-4 is of gpt2 */
        return false;
    for (size_t i = 0; i < AF_LEN(plain); i++)
        if (strlen(plain[i]) == len && memcmp(plain[i], token, len) == 0)
            return false;
    return true;
}

static af_status read_types(af_tokenizer *t, const af_gguf *g, af_error *err)
{
    af_status st = AF_OK;
    const af_gguf_kv *types = af_gguf_find_kv(g, "tokenizer.ggml.token_type");
    if (!types)
        return AF_OK;
    if (types->type != AF_GGUF_ARRAY || types->count != (uint64_t)t->vocab.count)
        return af_fail(err, AF_EFORMAT,
                       "tokenizer.ggml.token_type has %" PRIu64 " entries for %" PRId32 " tokens",
                       types->count, t->vocab.count);
    for (uint64_t i = 0; i < types->count; i++) {
        const int64_t type = af_gguf_item_int(types, i);
        const bool special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
        if (!special && type != TYPE_USER)
            continue;
        const af_added a = {.content = t->vocab.token[i],
                            .special = special,
                            .rstrip =
                                af_gguf_token_strips(g, t->vocab.token[i].s, t->vocab.token[i].n)};
        AF_TRY(af_added_insert(t, a, (int64_t)i, err));
    }
done:
    return st;
}

/* "a b", cut at the first blank after the first character. */
static af_status read_merges(af_tokenizer *t, const af_gguf *g, af_error *err)
{
    af_status st = AF_OK;
    af_buf both = {0};
    const af_gguf_kv *merges = af_gguf_find_kv(g, "tokenizer.ggml.merges");
    if (!merges || merges->type != AF_GGUF_ARRAY || (!merges->str && merges->count))
        return af_fail(err, AF_EFORMAT, "tokenizer.ggml.merges is not a list of strings");
    if (merges->count > UINT32_MAX / 2)
        return af_fail(err, AF_EFORMAT, "tokenizer.ggml.merges has %" PRIu64 " entries",
                       merges->count);
    AF_TRY(af_merges_reserve(&t->model, merges->count, err));
    for (uint64_t i = 0; i < merges->count; i++) {
        const af_gguf_str m = merges->str[i];
        const char *space = m.len > 1 ? memchr(m.at + 1, ' ', m.len - 1) : NULL;
        if (!space) {
            st = af_fail(err, AF_EFORMAT, "merge %" PRIu64 " is not two tokens", i);
            goto done;
        }
        const uint64_t left = (uint64_t)(space - m.at), right = m.len - left - 1;
        both.len = 0;
        af_buf_add(&both, m.at, left);
        af_buf_add(&both, space + 1, right);
        if (both.bad) {
            st = af_fail_nomem(err, "the merges", m.len);
            goto done;
        }
        const int32_t a = af_vocab_find(&t->vocab, m.at, left);
        const int32_t b = af_vocab_find(&t->vocab, space + 1, right);
        const int32_t id = af_vocab_find(&t->vocab, both.data, both.len);
        if (a < 0 || b < 0 || id < 0) {
            st = af_fail(err, AF_EFORMAT, "merge %" PRIu64 " has a token that is not in the list",
                         i);
            goto done;
        }
        af_merges_put(&t->model, a, b, (uint32_t)i, id);
    }
done:
    af_buf_clear(&both);
    return st;
}

/* Of files that are older than the key. For other architectures llama.cpp warns and splits as
 * "default": ids that no model was trained with. */
static const char *pre_of_arch(const af_gguf *g)
{
    static const struct {
        const char *arch, *pre;
        uint64_t tokens; /* 0: any number */
    } known[] = {{"llama", "llama-bpe", 128256},
                 {"qwen2", "qwen2", 0},
                 {"qwen2moe", "qwen2", 0},
                 {"stablelm", "stablelm2", 100352},
                 {"gpt2", "gpt-2", 50257},
                 {"phi2", "phi-2", 0},
                 {"falcon", "falcon", 65024},
                 {"command-r", "command-r", 0},
                 {"dbrx", "dbrx", 0},
                 {"mpt", "mpt", 0},
                 {"starcoder", "starcoder", 0},
                 {"starcoder2", "starcoder", 0},
                 {"bloom", "bloom", 0}};
    const af_gguf_str arch = af_gguf_string(g, "general.architecture");
    const af_gguf_kv *tokens = af_gguf_find_kv(g, "tokenizer.ggml.tokens");
    for (size_t i = 0; arch.at && tokens && i < AF_LEN(known); i++)
        if (strlen(known[i].arch) == arch.len && memcmp(known[i].arch, arch.at, arch.len) == 0 &&
            (!known[i].tokens || known[i].tokens == tokens->count))
            return known[i].pre;
    return NULL;
}

af_status af_pre_name_of(const af_pre_name **out, const af_gguf *g, bool raw, af_error *err)
{
    af_gguf_str name = af_gguf_string(g, raw ? "tokenizer.ggml.model" : "tokenizer.ggml.pre");
    if (!name.at) {
        name.at = pre_of_arch(g);
        if (!name.at)
            return af_fail(err, AF_EUNSUPPORTED,
                           "tokenizer.ggml.pre is missing; it says how to split the text");
        name.len = strlen(name.at);
        af_log_write(AF_LOG_WARN,
                     "tokenizer.ggml.pre is missing: text is split as models of this architecture "
                     "do (\"%s\")",
                     name.at);
    }
    *out = af_pre_name_find(name.at, name.len);
    return *out ? AF_OK
                : af_fail(err, AF_EUNSUPPORTED, "tokenizer.ggml.pre \"%.*s\" is not known",
                          (int)AF_MIN(name.len, 60), name.at);
}

/* `raw`: Gemma 4's, whose pieces are those of SentencePiece. */
static af_status read_bpe(af_tokenizer *t, const af_gguf *g, bool raw, bool *add_bos, af_error *err)
{
    af_status st = AF_OK;
    char *parts = NULL;
    const af_pre_name *pre;
    AF_TRY(af_pre_name_of(&pre, g, raw, err));
    t->model.kind = AF_MODEL_BPE;
    t->model.ignore_merges = pre->flags & AF_PRE_IGNORE_MERGES;
    t->model.byte_fallback = t->model.fuse_unk = raw;
    *add_bos = pre->flags & AF_PRE_ADD_BOS;
    json_t *made = af_pre_name_parts(pre);
    parts = af_json_dump(made, 0);
    json_decref(made);
    if (!parts)
        return af_fail_nomem(err, "the pre-tokenizer", 0);
    AF_TRY(af_parts_use(t, parts, err));
    AF_TRY(read_merges(t, g, err));
done:
    free(parts);
    return st;
}

static af_status read_spm(af_tokenizer *t, const af_gguf *g, af_error *err)
{
    af_status st = AF_OK;
    const af_gguf_kv *scores = af_gguf_find_kv(g, "tokenizer.ggml.scores");
    if (!scores || scores->type != AF_GGUF_ARRAY || scores->count != (uint64_t)t->vocab.count)
        return af_fail(err, AF_EFORMAT, "tokenizer.ggml.scores does not have %" PRId32 " entries",
                       t->vocab.count);
    t->model.kind = AF_MODEL_SPM;
    t->model.score = af_calloc((uint64_t)t->vocab.count, sizeof *t->model.score);
    if (!t->model.score)
        return af_fail_nomem(err, "the scores", (uint64_t)t->vocab.count * 8);
    for (int32_t i = 0; i < t->vocab.count; i++)
        t->model.score[i] = af_gguf_item_float(scores, (uint64_t)i);
    const bool blank = af_gguf_bool(g, "tokenizer.ggml.add_space_prefix", true);
    AF_TRY(af_parts_use(
        t,
        blank
            ? "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
              "\"prepend\":\"\xe2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
              "\"content\":\"\xe2\x96\x81\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{"
              "\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{"
              "\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":"
              "\" \",\"start\":1,\"stop\":0}]}}"
            : "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
              "\"content\":\"\xe2\x96\x81\"},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{"
              "\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{"
              "\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}}",
        err));
    t->model.cut_at_mark = true;
    for (int32_t i = 0; i < t->vocab.count; i++)
        if (t->vocab.token[i].s)
            af_model_note_marks(&t->model, t->vocab.token[i].s, t->vocab.token[i].n);
done:
    return st;
}

static int32_t named_id(const af_tokenizer *t, const af_gguf *g, const char *key, af_str *text)
{
    const int64_t id = af_gguf_int(g, key, -1);
    if (id < 0 || id >= t->vocab.count)
        return -1;
    if (text)
        *text = t->vocab.token[id];
    return (int32_t)id;
}

static int32_t added_id(const af_tokenizer *t, const char *text)
{
    const int32_t id = af_vocab_find(&t->vocab, text, strlen(text));
    return id >= 0 && af_tokenizer_is_added(t, id) ? id : -1;
}

/* Files of older converters name one end token of several, so that llama.cpp looks for their texts,
 * too. With the channels of gpt-oss and Solar, <|end|> ends a message and not the answer. */
static af_status add_ends(af_tokenizer *t, af_error *err)
{
    static const char *const ends[] = {"<|eot_id|>",
                                       "<|im_end|>",
                                       "<end_of_turn>",
                                       "<|endoftext|>",
                                       "<|eom_id|>",
                                       "<|end_of_text|>",
                                       "<|return|>",
                                       "<|call|>",
                                       "<|flush|>",
                                       "<|calls|>",
                                       "<EOT>",
                                       "[EOT]",
                                       "[EOS]",
                                       "<turn|>",
                                       "[e~[",
                                       "<end_of_utterance>",
                                       "<｜end▁of▁sentence｜>",
                                       "<|end|>"};
    const bool channels = added_id(t, "<|return|>") >= 0 || added_id(t, "<|flush|>") >= 0;
    af_status st = AF_OK;
    for (size_t i = 0; i + channels < AF_LEN(ends); i++) {
        const int32_t id = added_id(t, ends[i]);
        if (id >= 0)
            AF_TRY(af_tokenizer_add_stop(t, id, err));
    }
done:
    return st;
}

static af_status read_named(af_tokenizer *t, const af_gguf *g, bool bos, bool eos, af_error *err)
{
    af_status st = AF_OK;
    t->bos = named_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos_text);
    t->eos = named_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos_text);
    t->pad = named_id(t, g, "tokenizer.ggml.padding_token_id", &t->pad_text);
    t->unk = named_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unk_text);
    const bool pieces = t->model.kind == AF_MODEL_SPM || t->model.byte_fallback;
    t->model.unk_id = pieces ? t->unk : -1;
    const int32_t ends[] = {t->eos, named_id(t, g, "tokenizer.ggml.eot_token_id", NULL),
                            named_id(t, g, "tokenizer.ggml.eom_token_id", NULL)};
    for (size_t i = 0; i < AF_LEN(ends); i++)
        if (ends[i] >= 0)
            AF_TRY(af_tokenizer_add_stop(t, ends[i], err));
    AF_TRY(add_ends(t, err));
    const bool always = t->model.kind == AF_MODEL_BPE && t->model.byte_fallback;
    bos = (always || af_gguf_bool(g, "tokenizer.ggml.add_bos_token", bos)) && t->bos >= 0;
    eos = af_gguf_bool(g, "tokenizer.ggml.add_eos_token", eos) && t->eos >= 0;
    AF_TRY(af_tokenizer_surround(t, bos, eos, err));
done:
    return st;
}

static af_status read_all(af_tokenizer *t, const af_gguf *g, af_error *err)
{
    af_status st = AF_OK;
    bool add_bos = true;
    const af_gguf_str model = af_gguf_string(g, "tokenizer.ggml.model");
    const bool bpe = model.len == 4 && memcmp(model.at, "gpt2", 4) == 0;
    const bool spm = model.len == 5 && memcmp(model.at, "llama", 5) == 0;
    const bool raw = model.len == 6 && memcmp(model.at, "gemma4", 6) == 0;
    t->model.unk_id = -1;
    if (!bpe && !spm && !raw)
        return af_fail(err, AF_EUNSUPPORTED, "tokenizer.ggml.model \"%.*s\" is not known",
                       (int)AF_MIN(model.len, 60), model.at ? model.at : "");
    AF_TRY(read_tokens(t, g, err));
    AF_TRY(spm ? read_spm(t, g, err) : read_bpe(t, g, raw, &add_bos, err));
    AF_TRY(af_model_finish(t, err));
    AF_TRY(read_types(t, g, err));
    AF_TRY(af_added_build(t, err));
    AF_TRY(read_named(t, g, add_bos, false, err));
done:
    return st;
}

af_status af_tokenizer_from_gguf(af_tokenizer **out, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_tokenizer *t = NULL;
    af_gguf *g = NULL;
    AF_TRY(af_gguf_open(&g, path, err));
    AF_TRY(af_tokenizer_new(&t, err));
    st = read_all(t, g, err);
    if (st != AF_OK) {
        af_fail_prefix(st, err, "%s", path);
        goto done;
    }
    *out = t;
    t = NULL;
done:
    af_tokenizer_close(t);
    af_gguf_close(g);
    return st;
}
