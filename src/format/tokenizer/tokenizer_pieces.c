/* tokenizer_pieces.c - a tokenizer from tokenizer.model.
 *
 * Texts between added tokens get the ids of the SentencePiece library. Control pieces and the
 * unknown one are special added tokens, as transformers has them; user-defined pieces are found by
 * the model itself. A folder of class LlamaTokenizer whose "legacy" is not true has the blank in
 * front of the first word only, as that class does it. */
#include "format/tokenizer/sentencepiece.h"

#include <math.h>

static bool in_texts(af_spm_type t) { return t == AF_SPM_NORMAL || t == AF_SPM_USER; }

static af_status read_vocab(af_tokenizer *t, const af_spm *m, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_vocab_reserve(&t->vocab, (uint64_t)m->count, err));
    for (int32_t i = 0; i < m->count; i++) {
        const af_spm_piece *p = &m->piece[i];
        const int32_t old = af_vocab_find(&t->vocab, p->s, p->n);
        if (old >= 0)
            return af_fail(err, AF_EFORMAT, "pieces %" PRId32 " and %" PRId32 " are both \"%.*s\"",
                           old, i, (int)AF_MIN(p->n, 60), p->s);
        AF_TRY(af_vocab_add(&t->vocab, &t->arena, p->s, p->n, i, err));
    }
done:
    return st;
}

/* Unigram: a user-defined piece wins over all others, and a long one over its parts. */
static af_status read_scores(af_tokenizer *t, const af_spm *m, af_error *err)
{
    float lowest = 0;
    double *score = af_calloc((uint64_t)m->count, sizeof *score);
    if (!score)
        return af_fail_nomem(err, "the scores", (uint64_t)m->count * sizeof *score);
    for (int32_t i = 0; i < m->count; i++) {
        const af_spm_piece *p = &m->piece[i];
        const bool bonus = p->type == AF_SPM_USER && !m->bpe;
        score[i] = bonus               ? (double)(0.1f * (float)(p->n - 1))
                   : in_texts(p->type) ? (double)p->score
                                       : -(double)INFINITY;
        if (p->type == AF_SPM_NORMAL)
            lowest = AF_MIN(lowest, p->score);
    }
    t->model.score = score;
    t->model.unk_score = (double)(lowest - 10.0f);
    return AF_OK;
}

/* Of the pieces of one type, or of all that a text can have. */
static af_status build_trie(const af_tokenizer *t, af_trie *out, const af_spm *m, bool user,
                            af_error *err)
{
    uint32_t n = 0;
    af_trie_key *key = af_calloc((uint64_t)m->count, sizeof *key);
    if (!key)
        return af_fail_nomem(err, "a trie of pieces", (uint64_t)m->count * sizeof *key);
    for (int32_t i = 0; i < m->count; i++)
        if (user ? m->piece[i].type == AF_SPM_USER : in_texts(m->piece[i].type))
            key[n++] = (af_trie_key){t->vocab.token[i].s, t->vocab.token[i].n, i};
    const af_status st = n ? af_trie_build(out, key, n, err) : AF_OK;
    free(key);
    return st;
}

static af_status read_model(af_tokenizer *t, const af_spm *m, af_error *err)
{
    af_status st = AF_OK;
    af_token_model *o = &t->model;
    AF_TRY(read_vocab(t, m, err));
    AF_TRY(read_scores(t, m, err));
    o->kind = m->bpe ? AF_MODEL_SPM : AF_MODEL_UNIGRAM;
    o->unk_id = m->unk;
    o->byte_fallback = m->byte_fallback;
    o->fuse_unk = !m->byte_fallback;
    o->single = true;
    AF_TRY(build_trie(t, &o->user, m, true, err));
    if (!m->bpe)
        AF_TRY(build_trie(t, &o->trie, m, false, err));
    /* unknown characters are one token up to the next known one: U+2581 has to be */
    const int32_t mark = af_vocab_find(&t->vocab, "\xe2\x96\x81", 3);
    o->cut_at_mark = m->bpe && mark >= 0 && in_texts(m->piece[mark].type);
    for (int32_t i = 0; i < m->count; i++)
        af_model_note_marks(o, t->vocab.token[i].s, t->vocab.token[i].n);
    AF_TRY(af_model_finish(t, err));
    for (int b = 0; b < 256; b++) {
        const int32_t id = o->fallback_id[b];
        if (m->byte_fallback && (id < 0 || m->piece[id].type != AF_SPM_BYTE))
            return af_fail(err, AF_EFORMAT, "the byte piece <0x%02X> is missing", (unsigned)b);
        o->fallback_id[b] = m->byte_fallback ? id : -1;
    }
done:
    return st;
}

/* ---- how texts are prepared ---- */

static bool is_class(const af_json_value *config, const char *name)
{
    const af_json_value *v = af_json_get(config, "tokenizer_class");
    const size_t n = strlen(name);
    return v->type == AF_JSON_STRING && strncmp(v->text, name, n) == 0 &&
           (v->text[n] == 0 || strcmp(v->text + n, "Fast") == 0);
}

static af_status read_parts(af_tokenizer *t, const af_spm *m, const af_json_value *config,
                            af_error *err)
{
    af_status st = AF_OK;
    const bool llama = is_class(config, "LlamaTokenizer") || is_class(config, "CodeLlamaTokenizer");
    const bool prefix =
        llama ? af_json_bool(config, "add_prefix_space", m->add_dummy_prefix) : m->add_dummy_prefix;
    AF_TRY(af_parts_use(t,
                        prefix ? "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
                                 "\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},"
                                 "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":"
                                 "\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
                                 "\"stop\":0}]}}"
                               : "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
                                 "\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},"
                                 "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":"
                                 "\"Fuse\"}]}}",
                        err));
    af_norm *n = &t->norm[t->norms++];
    *n = (af_norm){.kind = AF_NORM_PIECES,
                   .one_blank = m->remove_extra_whitespaces,
                   .mark_blanks = m->escape_whitespaces,
                   .prefix = !prefix                                           ? AF_PREPEND_NEVER
                             : llama && !af_json_bool(config, "legacy", false) ? AF_PREPEND_FIRST
                                                                               : AF_PREPEND_ALWAYS};
    if (m->charsmap)
        AF_TRY(af_charsmap_set(n, &t->arena, m->charsmap, m->charsmap_len, err));
done:
    return st;
}

/* ---- added tokens ---- */

/* Control pieces and the unknown one, where no added token has their id. */
static af_status read_control(af_tokenizer *t, const af_spm *m, af_error *err)
{
    af_status st = AF_OK;
    for (int32_t i = 0; i < m->count; i++) {
        const bool special = m->piece[i].type == AF_SPM_CONTROL || i == m->unk;
        if (special && !af_tokenizer_is_added(t, i))
            AF_TRY(af_added_insert(t, (af_added){.content = t->vocab.token[i], .special = true}, i,
                                   err));
    }
done:
    return st;
}

static void name_default(const af_tokenizer *t, int32_t id, int32_t *to, af_str *text)
{
    if (text->n || id < 0) /* an empty name stands for none */
        return;
    *to = id;
    *text = t->vocab.token[id];
}

static af_status read_all(af_tokenizer *t, const af_spm *m, const char *folder, af_error *err)
{
    af_status st = AF_OK;
    af_json_value config = {0};
    if (folder)
        AF_TRY(af_tokenizer_config(t, &config, folder, "tokenizer_config.json", err));
    AF_TRY(read_parts(t, m, &config, err));
    AF_TRY(read_model(t, m, err));
    if (is_class(&config, "ChatGLMTokenizer"))
        return af_fail(err, AF_EUNSUPPORTED,
                       "the tokens that ChatGLMTokenizer adds to tokenizer.model are not known: "
                       "save it as tokenizer.json");
    if (folder)
        AF_TRY(af_added_read_files(t, &config, folder, true, err));
    AF_TRY(read_control(t, m, err));
    AF_TRY(af_added_build(t, err));
    if (folder)
        AF_TRY(af_tokenizer_read_configs(t, folder, err));
    name_default(t, m->bos, &t->bos, &t->bos_text);
    name_default(t, m->eos, &t->eos, &t->eos_text);
    name_default(t, m->pad, &t->pad, &t->pad_text);
    name_default(t, m->unk, &t->unk, &t->unk_text);
    if (t->eos >= 0)
        AF_TRY(af_tokenizer_add_stop(t, t->eos, err));
    AF_TRY(af_tokenizer_surround(t, t->bos >= 0 && af_json_bool(&config, "add_bos_token", true),
                                 t->eos >= 0 && af_json_bool(&config, "add_eos_token", false),
                                 err));
done:
    return st;
}

af_status af_tokenizer_from_pieces(af_tokenizer **out, const char *path, const char *folder,
                                   af_error *err)
{
    af_status st = AF_OK;
    af_tokenizer *t = NULL;
    af_spm m = {0};
    AF_TRY(af_spm_open(&m, path, err));
    AF_TRY(af_tokenizer_new(&t, err));
    st = read_all(t, &m, folder, err);
    if (st != AF_OK) {
        af_fail_prefix(st, err, "%s", path);
        goto done;
    }
    *out = t;
    t = NULL;
done:
    af_tokenizer_close(t);
    af_spm_clear(&m);
    return st;
}
