/* tokenizer_parts.c - normalizers, pre-tokenizers, post-processors and decoders from JSON.
 *
 * Sequences are flattened. A type we do not know is an error that names it: a guess would train on
 * wrong ids. */
#include "format/tokenizer/tokenizer.h"

af_str af_str_of(const af_json_value *v)
{
    return v->type == AF_JSON_STRING ? (af_str){v->text, (uint32_t)v->len} : (af_str){"", 0};
}

static const char *type_of(const af_json_value *v)
{
    const af_json_value *t = af_json_get(v, "type");
    return t->type == AF_JSON_STRING ? t->text : "";
}

static af_status unknown(const char *what, const af_json_value *v, af_error *err)
{
    return af_fail(err, AF_EUNSUPPORTED, "the %s \"%.80s\" is not known", what, type_of(v));
}

static af_status full(const char *what, af_error *err)
{
    return af_fail(err, AF_EUNSUPPORTED, "more than %d %ss", AF_PARTS_MAX, what);
}

/* Walks a component or a Sequence of them. */
typedef af_status part_reader(af_tokenizer *t, const af_json_value *v, af_error *err);

static af_status each(af_tokenizer *t, const af_json_value *v, const char *list, part_reader *read,
                      int depth, af_error *err)
{
    af_status st = AF_OK;
    if (v->type == AF_JSON_NONE || v->type == AF_JSON_NULL)
        return AF_OK;
    if (v->type != AF_JSON_OBJECT)
        return af_fail(err, AF_EFORMAT, "a tokenizer component in \"%s\" is not an object", list);
    if (strcmp(type_of(v), "Sequence") != 0)
        return read(t, v, err);
    const af_json_value *items = af_json_get(v, list);
    if (items->type != AF_JSON_ARRAY || depth > 16)
        return af_fail(err, AF_EFORMAT, "a Sequence has no list \"%s\"", list);
    for (const af_json_value *i = items->item; i; i = i->next)
        AF_TRY(each(t, i, list, read, depth + 1, err));
done:
    return st;
}

/* {"String": s} or {"Regex": r}; a plain string counts as String. */
static af_status read_pattern(const af_json_value *v, af_str *plain, af_regex **regex,
                              af_scanner **scanner, af_error *err)
{
    const af_json_value *s = v->type == AF_JSON_STRING ? v : af_json_get(v, "String");
    const af_json_value *r = af_json_get(v, "Regex");
    if (s->type == AF_JSON_STRING) {
        *plain = af_str_of(s);
        return AF_OK;
    }
    if (r->type != AF_JSON_STRING)
        return af_fail(err, AF_EFORMAT, "a pattern is neither a String nor a Regex");
    if (scanner && (*scanner = af_scanner_find(r->text, r->len)))
        return AF_OK;
    return af_regex_new(regex, r->text, r->len, err);
}

static af_status read_norm(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    static const struct {
        const char *name;
        af_norm_kind kind;
    } plain[] = {
        {"NFC", AF_NORM_NFC},
        {"NFD", AF_NORM_NFD},
        {"NFKC", AF_NORM_NFKC},
        {"NFKD", AF_NORM_NFKD},
        {"Lowercase", AF_NORM_LOWERCASE},
        {"StripAccents", AF_NORM_STRIP_ACCENTS},
        {"Nmt", AF_NORM_NMT},
        {"ByteLevel", AF_NORM_BYTE_LEVEL},
        {"Strip", AF_NORM_STRIP},
        {"Replace", AF_NORM_REPLACE},
        {"Prepend", AF_NORM_PREPEND},
        {"Precompiled", AF_NORM_PRECOMPILED},
        {"BertNormalizer", AF_NORM_BERT},
    };
    if (t->norms >= AF_PARTS_MAX)
        return full("normalizer", err);
    size_t k = 0;
    while (k < AF_LEN(plain) && strcmp(plain[k].name, type_of(v)) != 0)
        k++;
    if (k == AF_LEN(plain))
        return unknown("normalizer", v, err);
    af_norm *n = &t->norm[t->norms++];
    n->kind = plain[k].kind;
    n->left = af_json_bool(v, "strip_left", true);
    n->right = af_json_bool(v, "strip_right", true);
    n->low = af_json_bool(v, "lowercase", true);
    n->clean = af_json_bool(v, "clean_text", true);
    n->chinese = af_json_bool(v, "handle_chinese_chars", true);
    n->accents = af_json_bool(v, "strip_accents", n->low);
    if (n->kind == AF_NORM_PREPEND)
        n->content = af_str_of(af_json_get(v, "prepend"));
    if (n->kind == AF_NORM_REPLACE) {
        n->content = af_str_of(af_json_get(v, "content"));
        return read_pattern(af_json_get(v, "pattern"), &n->pattern, &n->regex, NULL, err);
    }
    if (n->kind == AF_NORM_PRECOMPILED) {
        const af_json_value *map = af_json_get(v, "precompiled_charsmap");
        if (map->type != AF_JSON_STRING) {
            t->norms--; /* null: nothing to do */
            return AF_OK;
        }
        return af_precompiled_parse(n, &t->arena, map->text, map->len, err);
    }
    return AF_OK;
}

static af_status read_behavior(const af_json_value *v, af_behavior *out, af_error *err)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const af_json_value *b = af_json_get(v, "behavior");
    if (b->type == AF_JSON_NONE) {
        *out = AF_BEHAVIOR_ISOLATED;
        return AF_OK;
    }
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (af_json_is(b, names[i])) {
            *out = (af_behavior)i;
            return AF_OK;
        }
    return af_fail(err, AF_EUNSUPPORTED, "the split behavior \"%.60s\" is not known",
                   b->type == AF_JSON_STRING ? b->text : "");
}

static af_status add_pre(af_tokenizer *t, af_pre p, af_error *err)
{
    if (t->pres >= AF_PARTS_MAX) {
        af_regex_free(p.regex);
        return full("pre-tokenizer", err);
    }
    t->pre[t->pres++] = p;
    return AF_OK;
}

/* One component, up to three stages: blank in front, split, bytes. */
static af_status read_byte_level(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_status st = AF_OK;
    if (af_json_bool(v, "add_prefix_space", true))
        AF_TRY(add_pre(t, (af_pre){.kind = AF_PRE_PREFIX_SPACE}, err));
    if (af_json_bool(v, "use_regex", true))
        AF_TRY(
            add_pre(t,
                    (af_pre){.kind = AF_PRE_SPLIT,
                             .behavior = AF_BEHAVIOR_ISOLATED,
                             .scanner = af_scanner_find(af_gpt2_pattern, strlen(af_gpt2_pattern))},
                    err));
    AF_TRY(add_pre(t, (af_pre){.kind = AF_PRE_BYTE_LEVEL}, err));
done:
    return st;
}

static af_status read_char(const af_json_value *v, uint32_t absent, uint32_t *cp, char mark[4],
                           uint32_t *len, af_error *err)
{
    *cp = absent;
    if (v->type == AF_JSON_STRING) {
        if (v->len == 0 || af_utf8_len(v->text[0]) != v->len)
            return af_fail(err, AF_EFORMAT, "\"%.40s\" is not one character", v->text);
        af_utf8_get(v->text, cp);
    } else if (v->type != AF_JSON_NONE) {
        return af_fail(err, AF_EFORMAT, "a replacement or delimiter is not a string");
    }
    *len = af_utf8_put(mark, *cp);
    return AF_OK;
}

static af_status read_metaspace(const af_json_value *v, af_pre *p, af_error *err)
{
    const af_json_value *scheme = af_json_get(v, "prepend_scheme");
    const bool add = af_json_bool(v, "add_prefix_space", true);
    p->split = af_json_bool(v, "split", true);
    p->prepend = add ? AF_PREPEND_ALWAYS : AF_PREPEND_NEVER;
    if (af_json_is(scheme, "first"))
        p->prepend = AF_PREPEND_FIRST;
    else if (af_json_is(scheme, "never"))
        p->prepend = AF_PREPEND_NEVER;
    else if (af_json_is(scheme, "always"))
        p->prepend = AF_PREPEND_ALWAYS;
    else if (scheme->type != AF_JSON_NONE)
        return af_fail(err, AF_EUNSUPPORTED, "unknown prepend_scheme of Metaspace");
    return read_char(af_json_get(v, "replacement"), 0x2581, &p->replacement, p->mark, &p->mark_len,
                     err);
}

static af_status fill_pre(const af_json_value *v, af_pre *p, af_error *err)
{
    static const struct {
        const char *name;
        af_pre_kind kind;
    } plain[] = {
        {"Whitespace", AF_PRE_WHITESPACE},    {"WhitespaceSplit", AF_PRE_WHITESPACE_SPLIT},
        {"BertPreTokenizer", AF_PRE_BERT},    {"Digits", AF_PRE_DIGITS},
        {"Punctuation", AF_PRE_PUNCTUATION},  {"Split", AF_PRE_SPLIT},
        {"Metaspace", AF_PRE_METASPACE},      {"CharDelimiterSplit", AF_PRE_DELIMITER},
        {"FixedLength", AF_PRE_FIXED_LENGTH},
    };
    af_status st = AF_OK;
    size_t k = 0;
    while (k < AF_LEN(plain) && strcmp(plain[k].name, type_of(v)) != 0)
        k++;
    if (k == AF_LEN(plain))
        return unknown("pre-tokenizer", v, err);
    p->kind = plain[k].kind;
    AF_TRY(read_behavior(v, &p->behavior, err));
    p->individual = af_json_bool(v, "individual_digits", false);
    p->invert = af_json_bool(v, "invert", false);
    if (p->kind == AF_PRE_METASPACE)
        return read_metaspace(v, p, err);
    if (p->kind == AF_PRE_DELIMITER)
        return read_char(af_json_get(v, "delimiter"), ' ', &p->replacement, p->mark, &p->mark_len,
                         err);
    if (p->kind == AF_PRE_FIXED_LENGTH) {
        const af_json_value *n = af_json_get(v, "length");
        if (n->type == AF_JSON_NUMBER && !(n->number >= 1 && n->number <= 1e9))
            return af_fail(err, AF_EFORMAT, "invalid FixedLength %g", n->number);
        p->length = n->type == AF_JSON_NUMBER ? (uint32_t)n->number : 5;
    }
    if (p->kind == AF_PRE_SPLIT)
        return read_pattern(af_json_get(v, "pattern"), &p->pattern, &p->regex, &p->scanner, err);
done:
    return st;
}

static af_status read_pre(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_pre p = {0};
    if (strcmp(type_of(v), "ByteLevel") == 0)
        return read_byte_level(t, v, err);
    const af_status st = fill_pre(v, &p, err);
    if (st != AF_OK) {
        af_regex_free(p.regex);
        return st;
    }
    return add_pre(t, p, err);
}

/* [["</s>", 2] ...]: a token with its id. */
static int32_t pair_id(const af_json_value *v)
{
    const af_json_value *id = v->type == AF_JSON_ARRAY && v->item ? v->item->next : NULL;
    return id ? af_token_id_of(id) : -1;
}

static af_status add_post(af_tokenizer *t, af_post p, af_error *err)
{
    if (t->posts >= AF_PARTS_MAX)
        return full("post-processor", err);
    t->post[t->posts++] = p;
    return AF_OK;
}

static af_status push_id(af_post *p, af_arena *a, int32_t id, int *cap, af_error *err)
{
    if (p->count >= *cap) {
        const int more = *cap * 2 + 8;
        int32_t *ids = af_arena_take(a, (uint64_t)more * sizeof *ids);
        if (!ids)
            return af_fail_nomem(err, "a template", (uint64_t)more * sizeof *ids);
        if (p->count)
            memcpy(ids, p->ids, (size_t)p->count * sizeof *ids);
        p->ids = ids;
        *cap = more;
    }
    p->ids[p->count++] = id;
    return AF_OK;
}

/* A special token of a template stands for the ids its table gives. */
static af_status push_special(af_tokenizer *t, af_post *p, const af_json_value *tokens,
                              const af_json_value *v, int *cap, af_error *err)
{
    af_status st = AF_OK;
    const af_json_value *name = af_json_get(v, "id");
    const af_json_value *entry =
        name->type == AF_JSON_STRING ? af_json_get(tokens, name->text) : name;
    const af_json_value *ids = af_json_get(entry, "ids");
    if (ids->type != AF_JSON_ARRAY)
        return af_fail(err, AF_EFORMAT, "TemplateProcessing has no ids for \"%.60s\"",
                       name->type == AF_JSON_STRING ? name->text : "");
    for (const af_json_value *i = ids->item; i; i = i->next) {
        const int32_t id = af_token_id_of(i);
        if (id < 0)
            return af_fail(err, AF_EFORMAT, "TemplateProcessing has an invalid id");
        AF_TRY(push_id(p, &t->arena, id, cap, err));
    }
done:
    return st;
}

static af_status read_template(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_status st = AF_OK;
    af_post p = {.kind = AF_POST_TEMPLATE};
    const af_json_value *single = af_json_get(v, "single");
    int cap = 0;
    if (single->type != AF_JSON_ARRAY)
        return af_fail(err, AF_EUNSUPPORTED, "TemplateProcessing has no list \"single\"");
    for (const af_json_value *i = single->item; i; i = i->next) {
        const af_json_value *special = af_json_get(i, "SpecialToken");
        if (special->type != AF_JSON_NONE)
            AF_TRY(push_special(t, &p, af_json_get(v, "special_tokens"), special, &cap, err));
        else
            AF_TRY(push_id(&p, &t->arena, AF_POST_TEXT, &cap, err));
    }
    AF_TRY(add_post(t, p, err));
done:
    return st;
}

/* BERT and RoBERTa: cls, text, sep. */
static af_status read_cls_sep(af_tokenizer *t, const af_json_value *v, bool roberta, af_error *err)
{
    af_status st = AF_OK;
    af_post p = {.kind = AF_POST_TEMPLATE};
    int cap = 0;
    const int32_t cls = pair_id(af_json_get(v, "cls")), sep = pair_id(af_json_get(v, "sep"));
    if (cls < 0 || sep < 0)
        return af_fail(err, AF_EFORMAT, "a post-processor has no ids for cls and sep");
    if (roberta && af_json_bool(v, "trim_offsets", true))
        AF_TRY(add_post(t,
                        (af_post){.kind = AF_POST_TRIM,
                                  .prefix_space = af_json_bool(v, "add_prefix_space", true)},
                        err));
    AF_TRY(push_id(&p, &t->arena, cls, &cap, err));
    AF_TRY(push_id(&p, &t->arena, AF_POST_TEXT, &cap, err));
    AF_TRY(push_id(&p, &t->arena, sep, &cap, err));
    AF_TRY(add_post(t, p, err));
done:
    return st;
}

static af_status read_post(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    const char *type = type_of(v);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, v, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return read_cls_sep(t, v, type[0] == 'R', err);
    if (strcmp(type, "ByteLevel") != 0)
        return unknown("post-processor", v, err);
    if (!af_json_bool(v, "trim_offsets", true))
        return AF_OK;
    return add_post(
        t,
        (af_post){.kind = AF_POST_TRIM, .prefix_space = af_json_bool(v, "add_prefix_space", true)},
        err);
}

static uint32_t count_of(const af_json_value *v, const char *key)
{
    const af_json_value *n = af_json_get(v, key);
    return n->type == AF_JSON_NUMBER && n->number >= 0 && n->number < 1e9 ? (uint32_t)n->number : 0;
}

static af_status fill_dec(const af_json_value *v, af_dec *d, af_error *err)
{
    char mark[4];
    uint32_t len;
    af_pre meta = {0};
    af_status st;
    switch (d->kind) {
    case AF_DEC_REPLACE:
        d->content = af_str_of(af_json_get(v, "content"));
        return read_pattern(af_json_get(v, "pattern"), &d->pattern, &d->regex, NULL, err);
    case AF_DEC_STRIP:
        d->start = count_of(v, "start");
        d->stop = count_of(v, "stop");
        return read_char(af_json_get(v, "content"), ' ', &d->mark, mark, &len, err);
    case AF_DEC_METASPACE:
        st = read_metaspace(v, &meta, err);
        if (st != AF_OK)
            return st;
        d->mark = meta.replacement;
        d->keep_first = meta.prepend == AF_PREPEND_NEVER;
        return AF_OK;
    case AF_DEC_WORDPIECE:
        d->pattern = af_json_get(v, "prefix")->type == AF_JSON_STRING
                         ? af_str_of(af_json_get(v, "prefix"))
                         : (af_str){"##", 2};
        d->cleanup = af_json_bool(v, "cleanup", true);
        return AF_OK;
    case AF_DEC_BPE:
        d->pattern = af_str_of(af_json_get(v, "suffix"));
        return AF_OK;
    case AF_DEC_CTC:
        d->pattern = af_str_of(af_json_get(v, "pad_token"));
        d->content = af_str_of(af_json_get(v, "word_delimiter_token"));
        d->cleanup = af_json_bool(v, "cleanup", true);
        return AF_OK;
    case AF_DEC_BYTE_LEVEL:
    case AF_DEC_BYTE_FALLBACK:
    case AF_DEC_FUSE:
        break;
    }
    return AF_OK;
}

static af_status read_dec(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    static const char *const names[] = {"ByteLevel", "ByteFallback", "Fuse",
                                        "Strip",     "Replace",      "Metaspace",
                                        "WordPiece", "BPEDecoder",   "CTC"};
    if (t->decs >= AF_PARTS_MAX)
        return full("decoder", err);
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i], type_of(v)) == 0) {
            af_dec *d = &t->dec[t->decs++];
            d->kind = (af_dec_kind)i;
            return fill_dec(v, d, err);
        }
    return unknown("decoder", v, err);
}

af_status af_parts_parse(af_tokenizer *t, const af_json_value *root, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(each(t, af_json_get(root, "normalizer"), "normalizers", read_norm, 0, err));
    AF_TRY(each(t, af_json_get(root, "pre_tokenizer"), "pretokenizers", read_pre, 0, err));
    AF_TRY(each(t, af_json_get(root, "post_processor"), "processors", read_post, 0, err));
    AF_TRY(each(t, af_json_get(root, "decoder"), "decoders", read_dec, 0, err));
    t->has_decoder = af_json_get(root, "decoder")->type == AF_JSON_OBJECT;
    for (int i = 0; i < t->pres; i++)
        t->pre[i].last = t->pre[i].kind == AF_PRE_BYTE_LEVEL && i + 1 == t->pres;
done:
    return st;
}

af_status af_parts_use(af_tokenizer *t, const char *json, af_error *err)
{
    af_json_value parts;
    const af_status st = af_json_tree_parse(&parts, &t->arena, json, strlen(json), NULL, err);
    return st == AF_OK ? af_parts_parse(t, &parts, err) : st;
}
