/* load.c - opens a model's weights and matches every tensor of its spec with what is stored; see
 * load.h. Nothing large is touched here: names, shapes and types only. */
#include "model/load_entry.h"

#include "base/buf.h"
#include "base/log.h"
#include "tensor/codec.h"

#include <jansson.h>
#include <stdarg.h>

enum { NAME_MAX_BYTES = 512, LISTED_MAX = 12 };

/* Everything that does not fit, collected into one sentence. */
typedef struct faults {
    af_buf missing, surplus, shape;
    int n_missing, n_surplus, n_shape;
} faults;

AF_PRINTF(3, 4)
static void note(af_buf *b, int *n, const char *fmt, ...)
{
    char text[NAME_MAX_BYTES * 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if ((*n)++ < LISTED_MAX)
        af_buf_printf(b, "%s%s", *n > 1 ? ", " : "", text);
}

static void finish_list(af_buf *out, const char *what, const af_buf *list, int n)
{
    if (n == 0)
        return;
    af_buf_printf(out, "%s%d %s (%s", out->len ? "; " : "", n, what, list->data ? list->data : "");
    if (n > LISTED_MAX)
        af_buf_printf(out, " and %d more", n - LISTED_MAX);
    af_buf_str(out, ")");
}

static af_status judge(const af_source *s, faults *f, af_error *err)
{
    af_status st = AF_OK;
    af_buf text = {0};
    finish_list(&text, "missing", &f->missing, f->n_missing);
    finish_list(&text, "of another shape", &f->shape, f->n_shape);
    finish_list(&text, "not of this model", &f->surplus, f->n_surplus);
    if (text.len)
        st = af_fail(err, AF_EFORMAT, "%s: tensors do not fit the config: %s", s->path, text.data);
    af_buf_clear(&text);
    af_buf_clear(&f->missing);
    af_buf_clear(&f->surplus);
    af_buf_clear(&f->shape);
    return st;
}

/* ---- names ---- */

static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model.",
                                       ""};

static void find_prefix(af_source *s)
{
    char name[NAME_MAX_BYTES];
    s->prefix = prefixes[0];
    for (size_t i = 0; i < AF_LEN(prefixes); i++) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (af_weights_find(s->weights, name)) {
            s->prefix = prefixes[i];
            return;
        }
    }
}

void af_source_disk_name(const af_source *s, const char *name, char *out, size_t size)
{
    if (strncmp(name, "model.", 6) == 0)
        snprintf(out, size, "%s%s", s->prefix, name + 6);
    else if (strcmp(s->prefix, "language_model.model.") == 0)
        snprintf(out, size, "language_model.%s", name);
    else
        snprintf(out, size, "%s", name);
}

void af_source_own_name(const af_source *s, const char *stored, char *out, size_t size)
{
    const size_t n = strlen(s->prefix);
    const bool head = strstr(stored, "lm_head.") != NULL;
    const bool outer = strncmp(stored, "language_model.", 15) == 0;
    if (!head && strncmp(stored, s->prefix, n) == 0)
        snprintf(out, size, "model.%s", stored + n);
    else
        snprintf(out, size, "%s", head && outer ? stored + 15 : stored);
}

static bool same_dims(const af_stored *w, const int64_t *dim, int ndim)
{
    if (w->ndim != ndim)
        return false;
    for (int i = 0; i < ndim; i++)
        if (w->dim[i] != dim[i])
            return false;
    return true;
}

static void shape_text(char *out, size_t size, const int64_t *dim, int ndim)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRId64, i ? "x" : "", dim[i]);
}

/* Finds a stored tensor, NULL after noting that it is missing; one of another shape is noted and
 * still returned, so that it does not count as left over. */
static const af_stored *find(const af_source *s, faults *f, const char *name, const int64_t *dim,
                             int ndim)
{
    const af_stored *w = af_weights_find(s->weights, name);
    if (!w) {
        note(&f->missing, &f->n_missing, "%s", name);
        return NULL;
    }
    if (!same_dims(w, dim, ndim)) {
        char has[128], want[128];
        shape_text(has, sizeof has, w->dim, w->ndim);
        shape_text(want, sizeof want, dim, ndim);
        note(&f->shape, &f->n_shape, "%s is %s, not %s", name, has, want);
    }
    return w;
}

/* ---- entries ---- */

static af_status take_pieces(af_source *s, af_entry *e, int n, af_error *err)
{
    e->pieces = n;
    e->piece = af_arena_take(&s->arena, (uint64_t)n * sizeof *e->piece);
    return e->piece ? AF_OK : af_fail_nomem(err, "the list of tensors", (uint64_t)n * 8);
}

static af_status match_gguf(af_source *s, faults *f, int i, af_error *err)
{
    const af_tensor_spec *t = &s->spec.tensor[i];
    const af_arch *arch = s->spec.arch;
    af_entry *e = &s->entry[i];
    const bool gate_up = t->slot == AF_SLOT_EXPERTS_GATE_UP;
    af_status st = take_pieces(s, e, gate_up ? 2 : 1, err);
    if (st != AF_OK)
        return st;
    if (gate_up) {
        const int64_t dim[3] = {t->dim[0], t->dim[1] / 2, t->dim[2]};
        char up[NAME_MAX_BYTES];
        snprintf(up, sizeof up, "blk.%d.ffn_up_exps.weight", t->layer);
        e->piece[0] = find(s, f, t->gguf, dim, 3);
        e->piece[1] = find(s, f, up, dim, 3);
        e->gate_up_split = true;
    } else {
        e->piece[0] = find(s, f, t->gguf, t->dim, t->ndim);
    }
    const bool norm = t->ndim == 1 && strstr(t->gguf, "norm") != NULL;
    e->add = norm && arch->gguf_norm_one ? -1.0f : 0.0f;
    if (arch->gguf_permuted && t->row_heads) {
        e->heads = t->row_heads;
        if (t->ndim == 1) {
            e->rows = t->dim[0];
            e->cols = 1;
        }
    }
    return AF_OK;
}

static bool is_bnb(const af_source *s, const char *name)
{
    char part[NAME_MAX_BYTES + 64];
    const af_stored *w = af_weights_find(s->weights, name);
    if (!w || (w->dtype != AF_DTYPE_U8 && w->dtype != AF_DTYPE_I8))
        return false;
    if (w->dtype == AF_DTYPE_I8)
        return s->config.quant.method == AF_QUANT_BNB_8BIT;
    snprintf(part, sizeof part, "%s.quant_map", name);
    return af_weights_find(s->weights, part) != NULL;
}

static af_status match_folder(af_source *s, faults *f, int i, af_error *err)
{
    const af_tensor_spec *t = &s->spec.tensor[i];
    af_entry *e = &s->entry[i];
    char name[NAME_MAX_BYTES], ours[NAME_MAX_BYTES];
    af_status st = AF_OK;
    af_source_disk_name(s, t->name, name, sizeof name);
    if (t->slot == AF_SLOT_EMBED && s->head_only)
        af_source_disk_name(s, "lm_head.weight", name, sizeof name);
    if (t->ndim == 2 && is_bnb(s, name)) {
        e->kind = AF_ENTRY_BNB;
        return af_bnb_weight_read(&e->bnb, s->weights, name, t->dim[0], t->dim[1], s->config.dtype,
                                  err);
    }
    /* Experts are one tensor each, or all in one. */
    const bool whole = t->ndim < 3 || af_weights_find(s->weights, name) != NULL;
    AF_TRY(take_pieces(s, e, whole ? 1 : af_disk_count(&s->spec, i), err));
    if (whole) {
        e->piece[0] = find(s, f, name, t->dim, t->ndim);
        return AF_OK;
    }
    for (int p = 0; p < e->pieces; p++) {
        int64_t dim[2], from;
        int ndim;
        af_disk_piece(&s->spec, i, p, ours, sizeof ours, dim, &ndim, &from);
        af_source_disk_name(s, ours, name, sizeof name);
        e->piece[p] = find(s, f, name, dim, ndim);
    }
done:
    return st;
}

static af_status match(af_source *s, faults *f, int i, af_error *err)
{
    const af_tensor_spec *t = &s->spec.tensor[i];
    af_entry *e = &s->entry[i];
    af_status st = AF_OK;
    if (t->slot == AF_SLOT_HEAD && s->untied) { /* listed last, so the embedding is known */
        *e = s->entry[s->spec.embed];
        return AF_OK;
    }
    e->cols = t->dim[t->ndim - 1];
    e->rows = t->ndim == 1 ? 1 : t->ndim == 2 ? t->dim[0] : t->dim[0] * t->dim[1];
    AF_TRY(af_weights_gguf(s->weights) ? match_gguf(s, f, i, err) : match_folder(s, f, i, err));
    e->piece_rows = e->pieces ? e->rows / e->pieces : e->rows;
    for (int p = 0; p < e->pieces; p++) {
        const af_stored *w = e->piece[p];
        if (w && w->dtype != e->piece[0]->dtype)
            return af_fail(err, AF_EUNSUPPORTED, "%s: tensor '%s' is %s, but its neighbour is %s",
                           s->path, w->name, af_dtype_name(w->dtype),
                           af_dtype_name(e->piece[0]->dtype));
        if (w && !af_codec_can_decode(w->dtype))
            return af_fail(err, AF_EUNSUPPORTED,
                           "%s: tensor '%s' has type %s, which this build "
                           "cannot read",
                           s->path, w->name, af_dtype_name(w->dtype));
        if (w && !af_dtype_is_block(w->dtype) && !af_dtype_is_float(w->dtype) &&
            w->dtype != AF_DTYPE_E4M3 && w->dtype != AF_DTYPE_E5M2)
            return af_fail(err, AF_EUNSUPPORTED,
                           "%s: tensor '%s' has type %s, but weights are floating point or "
                           "quantised in a known way",
                           s->path, w->name, af_dtype_name(w->dtype));
        if (!w)
            break; /* noted already */
    }
done:
    return st;
}

/* ---- tied heads ---- */

static bool same_values(const af_stored *a, const af_stored *b)
{
    enum { STEP = 512 };
    float x[STEP], y[STEP];
    if (a->dtype == b->dtype && memcmp(a->data, b->data, a->bytes) == 0)
        return true;
    const uint64_t n = (uint64_t)a->dim[0] * (uint64_t)a->dim[1];
    const uint64_t one = (uint64_t)af_dtype_get(a->dtype)->bytes;
    const uint64_t other = (uint64_t)af_dtype_get(b->dtype)->bytes;
    for (uint64_t i = 0; i < n; i += STEP) {
        const uint64_t k = AF_MIN(n - i, (uint64_t)STEP);
        af_convert(x, AF_DTYPE_F32, (const uint8_t *)a->data + i * one, a->dtype, k);
        af_convert(y, AF_DTYPE_F32, (const uint8_t *)b->data + i * other, b->dtype, k);
        for (uint64_t j = 0; j < k; j++)
            if (x[j] != y[j])
                return false;
    }
    return true;
}

/* As transformers: a folder that says its head is the embedding, and has another head, is not
 * tied; one that has the head alone is. */
static af_status settle_head(af_source *s, af_error *err)
{
    char name[NAME_MAX_BYTES];
    if (!s->config.tie_word_embeddings && !s->untied)
        return AF_OK;
    if (af_weights_gguf(s->weights))
        return AF_OK;
    af_source_disk_name(s, "lm_head.weight", name, sizeof name);
    const af_stored *head = af_weights_find(s->weights, name);
    af_source_disk_name(s, "model.embed_tokens.weight", name, sizeof name);
    const af_stored *embed = af_weights_find(s->weights, name);
    const int64_t want[2] = {s->spec.vocab, s->spec.width};
    s->head_only = head && !embed;
    if (!head || !embed || !same_dims(head, want, 2) || !same_dims(embed, want, 2) ||
        !af_dtype_is_float(head->dtype) || !af_dtype_is_float(embed->dtype))
        return AF_OK;
    const bool same = same_values(head, embed);
    af_weights_forget(s->weights, head);
    af_weights_forget(s->weights, embed);
    if (same)
        return AF_OK;
    af_say(AF_LOG_WARN,
           "%s: tie_word_embeddings is true, but lm_head.weight is stored with other values than "
           "the embedding: it is used as the head",
           s->path);
    s->untied = s->config.tie_word_embeddings = false;
    af_model_spec_clear(&s->spec);
    return af_model_spec_init(&s->spec, &s->config, err);
}

/* ---- what is left over ---- */

static bool ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

/* What a model of several senses has beside the text part, which is all we take. */
static bool is_other_sense(const char *name)
{
    static const char *const parts[] = {"vision_tower.", "vision_model.", "multi_modal_projector.",
                                        "audio_tower.",  "visual.",       "embed_vision."};
    for (size_t i = 0; i < AF_LEN(parts); i++)
        if (strncmp(name, parts[i], strlen(parts[i])) == 0 ||
            (strncmp(name, "model.", 6) == 0 && strncmp(name + 6, parts[i], strlen(parts[i])) == 0))
            return true;
    return false;
}

/* Stored, not ours, and known to be harmless. */
static bool may_be_left(const af_source *s, const char *name)
{
    if (af_weights_gguf(s->weights))
        return strncmp(name, "rope_", 5) == 0;
    if (ends_with(name, "rotary_emb.inv_freq") || ends_with(name, ".masked_bias"))
        return true;
    if ((s->spec.tied || s->untied) && ends_with(name, "lm_head.weight"))
        return true; /* the same values, or unused ones */
    return s->config.raw && json_object_get(s->config.raw, "text_config") && is_other_sense(name);
}

static bool is_bnb_part(const char *name)
{
    static const char *const parts[] = {".absmax",           ".quant_map", ".nested_absmax",
                                        ".nested_quant_map", ".SCB",       ".weight_format"};
    for (size_t i = 0; i < AF_LEN(parts); i++)
        if (ends_with(name, parts[i]))
            return true;
    return strstr(name, ".quant_state.bitsandbytes__") != NULL;
}

static int by_pointer(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    return x < y ? -1 : x > y;
}

static af_status find_surplus(const af_source *s, faults *f, af_error *err)
{
    uint64_t n = 0, k = 0;
    for (int i = 0; i < s->spec.tensors; i++)
        n += (uint64_t)AF_MAX(s->entry[i].pieces, 1);
    const char **used = af_calloc(n, sizeof *used);
    if (!used)
        return af_fail_nomem(err, "the list of tensors", n * sizeof *used);
    for (int i = 0; i < s->spec.tensors; i++) {
        const af_entry *e = &s->entry[i];
        for (int p = 0; p < e->pieces; p++)
            if (e->piece[p])
                used[k++] = e->piece[p]->name;
        if (e->kind == AF_ENTRY_BNB && e->bnb.name)
            used[k++] = e->bnb.name;
    }
    qsort(used, k, sizeof *used, by_pointer);
    const bool bnb = s->config.quant.method != AF_QUANT_NONE;
    for (int i = 0; i < af_weights_count(s->weights); i++) {
        const char *name = af_weights_at(s->weights, i)->name;
        if (!bsearch(&name, used, k, sizeof *used, by_pointer) && !may_be_left(s, name) &&
            !(bnb && is_bnb_part(name)))
            note(&f->surplus, &f->n_surplus, "%s", name);
    }
    free(used);
    return AF_OK;
}

/* ---- types ---- */

/* In which type a tensor is declared: as stored where ops can use that, so that the file's own
 * memory serves; vectors are f32 or bf16. */
static af_dtype choose_type(const af_source *s, int i)
{
    const af_tensor_spec *t = &s->spec.tensor[i];
    const af_entry *e = &s->entry[i];
    if (e->kind == AF_ENTRY_BNB || e->quantise) {
        if (s->o.quant_mode == AF_QUANT_SCRATCH &&
            (e->quantise || af_bnb_weight_is_standard(&e->bnb)))
            return AF_DTYPE_NF4;
        return e->quantise ? s->o.compute : e->bnb.round;
    }
    const af_dtype stored = af_entry_type(e);
    if (t->ndim == 1 || t->slot == AF_SLOT_ROUTER)
        return stored == AF_DTYPE_BF16 && e->add == 0 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    if (af_dtype_is_block(stored))
        return stored;
    if (s->o.compute == AF_DTYPE_BF16)
        return AF_DTYPE_BF16;
    return stored == AF_DTYPE_BF16 || stored == AF_DTYPE_F16 ? stored : AF_DTYPE_F32;
}

/* Linears that a bitsandbytes folder has as plain tensors were left so on purpose. */
static bool to_quantise(const af_source *s, int i)
{
    const af_tensor_spec *t = &s->spec.tensor[i];
    const af_entry *e = &s->entry[i];
    return s->o.load_in_4bit && s->config.quant.method == AF_QUANT_NONE &&
           e->kind == AF_ENTRY_ROWS && t->module >= 0 && t->layer >= 0 &&
           !(s->o.keep_blocks && af_dtype_is_block(af_entry_type(e)));
}

static void choose_types(af_source *s)
{
    for (int i = 0; i < s->spec.tensors; i++) {
        s->entry[i].quantise = to_quantise(s, i);
        s->dtype[i] = choose_type(s, i);
    }
}

static void report(const af_source *s)
{
    int64_t count[AF_DTYPE_COUNT] = {0};
    af_buf text = {0};
    bool quantised = false;
    for (int i = 0; i < s->spec.tensors; i++) {
        const af_entry *e = &s->entry[i];
        count[e->kind == AF_ENTRY_BNB ? e->bnb.type : af_entry_type(e)]++;
        quantised |= e->quantise;
    }
    for (int t = 0; t < AF_DTYPE_COUNT; t++)
        if (count[t])
            af_buf_printf(&text, "%s%" PRId64 " tensors %s", text.len ? ", " : "", count[t],
                          af_dtype_name((af_dtype)t));
    af_say(AF_LOG_INFO, "%s: %s, %.1fM parameters: %s%s", s->path, s->config.model_type,
           (double)s->spec.params / 1e6, text.data ? text.data : "",
           quantised ? "; linears quantised to nf4" : "");
    af_buf_clear(&text);
}

/* ---- open ---- */

static af_status open_parts(af_source *s, af_error *err)
{
    af_status st = AF_OK;
    faults f = {0};
    AF_TRY(af_model_config(&s->config, s->path, err));
    s->has_config = true;
    s->untied = s->o.untie && s->config.tie_word_embeddings;
    if (s->untied)
        s->config.tie_word_embeddings = false;
    AF_TRY(af_model_spec_init(&s->spec, &s->config, err));
    AF_TRY(af_weights_open(&s->weights, s->path, err));
    find_prefix(s);
    AF_TRY(settle_head(s, err));
    const uint64_t n = (uint64_t)s->spec.tensors;
    s->entry = af_arena_take(&s->arena, n * sizeof *s->entry);
    s->dtype = af_arena_take(&s->arena, n * sizeof *s->dtype);
    if (!s->entry || !s->dtype)
        return af_fail_nomem(err, "the list of tensors", n * sizeof *s->entry);
    for (int i = 0; i < s->spec.tensors && st == AF_OK; i++)
        st = match(s, &f, i, err);
    if (st == AF_OK)
        st = find_surplus(s, &f, err);
    const af_status bad = judge(s, &f, st == AF_OK ? err : NULL);
    if (st == AF_OK && bad == AF_OK) {
        choose_types(s);
        report(s);
    }
    return st == AF_OK ? bad : st;
done:
    return st;
}

af_status af_source_open(af_source **out, const char *path, const af_source_opts *o, af_error *err)
{
    af_source *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "a model", sizeof *s);
    s->o = *o;
    s->path = af_strdup(path);
    const af_status st = s->path ? open_parts(s, err) : af_fail_nomem(err, "a path", strlen(path));
    if (st != AF_OK) {
        af_source_close(s);
        return st;
    }
    *out = s;
    return AF_OK;
}

void af_source_close(af_source *s)
{
    if (!s)
        return;
    for (int i = 0; s->entry && i < s->spec.tensors; i++)
        af_bnb_weight_clear(&s->entry[i].bnb);
    af_weights_close(s->weights);
    af_model_spec_clear(&s->spec);
    if (s->has_config)
        af_hf_config_clear(&s->config);
    af_arena_clear(&s->arena);
    free(s->path);
    free(s);
}

bool af_source_packs(const af_source *s)
{
    bool packs = false;
    for (int i = 0; i < s->spec.tensors; i++)
        packs |= s->entry[i].quantise ||
                 (s->entry[i].kind == AF_ENTRY_BNB && af_bnb_weight_is_standard(&s->entry[i].bnb));
    return packs;
}

void af_source_set_mode(af_source *s, af_quant_mode mode)
{
    s->o.quant_mode = mode;
    choose_types(s);
}

const af_model_spec *af_source_spec(const af_source *s) { return &s->spec; }
const af_hf_config *af_source_config(const af_source *s) { return &s->config; }
const af_weights *af_source_weights(const af_source *s) { return s->weights; }
const af_dtype *af_source_dtypes(const af_source *s) { return s->dtype; }
