/* reader_adapter.c - an adapter laid over a model that is read; see model_reader.h. */
#include "base/file.h"
#include "model/adapter_config.h"
#include "model/adapter_texts.h"
#include "model/arch/arch_disk.h"
#include "model/arch/arch_list.h"
#include "model/model_reader.h"

#include <jansson.h>
#include <math.h>

enum { NAME_BYTES = 512 };

static void unmatch(af_model_reader *in)
{
    if (in->matched)
        af_model_spec_clear(&in->spec);
    in->matched = false;
}

/* PEFT unties a model whose embedding or head it saves: then the head is a tensor of its own. So
 * is one of which only the embedding, or only the head, is changed by what is merged. */
static af_status untie(af_model_reader *in, const char *dir, af_error *err)
{
    char name[NAME_BYTES];
    if (!in->config.tie_word_embeddings || in->untie)
        return AF_OK;
    const af_status st = af_model_reader_match(in, err);
    if (st != AF_OK)
        return st;
    af_model_reader_disk_name(in, in->spec.tensor[in->spec.embed].name, name, sizeof name);
    const af_model_tensor *embed = af_model_reader_find(in, name);
    af_model_reader_disk_name(in, af_slot_hf_name(in->spec.arch, AF_SLOT_HEAD), name, sizeof name);
    const char *head = af_arena_strdup(&in->arena, name);
    if (!head)
        return af_fail_nomem(err, "a name", 0);
    if (af_model_reader_is_gguf(in) || !embed)
        return af_fail(err, AF_EUNSUPPORTED,
                       "the adapter has an embedding or head of its own, and the tied ones of '%s' "
                       "cannot be untied",
                       in->path);
    if (in->adapters_read > 0) /* they keep the spec, which is about to change */
        return af_fail(
            err, AF_EUNSUPPORTED,
            "the adapter '%s' has an embedding or head of its own and cannot be combined "
            "with others",
            dir);
    unmatch(in);
    in->untie = true;
    if (!af_model_reader_find(in, head)) {
        in->tensor[in->count] = *embed; /* the list has space for one more */
        in->tensor[in->count++].name = head;
    }
    return AF_OK;
}

/* The vocabulary was changed before the adapter was trained: embedding and head are its own. */
static af_status resize(af_model_reader *in, const char *dir, int64_t rows, af_error *err)
{
    af_status st = AF_OK;
    if (af_model_reader_is_gguf(in) || !in->may_resize || !in->config.raw)
        return af_fail(err, AF_EUNSUPPORTED,
                       "'%s' has %" PRId64 " rows of embedding, '%s' has %" PRId64
                       ": merge it alone into a folder of the model first (afinar merge)",
                       dir, rows, in->path, in->config.vocab_size);
    const bool tied = in->config.tie_word_embeddings && !in->untie;
    for (int i = 0; i < in->count; i++) {
        char name[NAME_BYTES];
        af_model_tensor *t = &in->tensor[i];
        af_model_reader_own_name(in, t->name, name, sizeof name);
        const bool head = strcmp(name, af_slot_hf_name(in->spec.arch, AF_SLOT_HEAD)) == 0;
        if (head && tied) { /* a copy of the embedding, which is no longer that */
            memmove(t, t + 1, (size_t)(in->count - i - 1) * sizeof *t);
            in->count--;
            i--;
        } else if (head || strcmp(name, in->spec.tensor[in->spec.embed].name) == 0) {
            t->dim[0] = rows;
        }
    }
    af_hf_config c = in->config;
    c.tie_word_embeddings = tied;
    in->config.vocab_size = c.vocab_size = rows;
    json_object_set_new(af_config_own(in->config.raw), "vocab_size", json_integer(rows));
    AF_TRY(af_model_spec_init(&in->new_vocab, &c, err));
    in->new_vocab.experts_whole = in->spec.experts_whole;
    memcpy(in->new_vocab.conv_rows, in->spec.conv_rows, sizeof in->spec.conv_rows);
    in->resized = true;
done:
    return st;
}

/* The adapter makes a language model one that classifies: `score` takes the place of its head. */
static af_status take_labels(af_model_reader *in, const char *dir, int64_t rows, af_error *err)
{
    af_status st = AF_OK;
    if (af_model_reader_is_gguf(in) || !in->may_resize || in->adapters_read > 0)
        return af_fail(err, AF_EUNSUPPORTED,
                       "the adapter '%s' classifies (%" PRId64 " labels) and '%s' does not: merge "
                       "it alone into a folder of the model first (afinar merge)",
                       dir, rows, in->path);
    unmatch(in);
    in->labels = rows;
    AF_TRY(af_model_reader_match(in, err));
    const char *head = af_slot_hf_name(in->spec.arch, AF_SLOT_HEAD);
    for (int i = 0; i < in->count; i++) {
        char name[NAME_BYTES];
        af_model_tensor *t = &in->tensor[i];
        af_model_reader_own_name(in, t->name, name, sizeof name);
        if (strncmp(name, head, strlen(head) - strlen("weight")) != 0) /* or its bias */
            continue;
        memmove(t, t + 1, (size_t)(in->count - i - 1) * sizeof *t);
        in->count--;
        i--;
    }
    const af_tensor_spec *score = &in->spec.tensor[in->spec.head];
    af_model_tensor *made = &in->tensor[in->count++]; /* the list has space for one more */
    *made = (af_model_tensor){.name = score->name,
                              .ndim = 2,
                              .dtype = in->config.has_dtype ? in->config.dtype : AF_DTYPE_F32,
                              .spec = in->spec.head};
    for (int i = 0; i < AF_WEIGHT_NDIM_MAX; i++)
        made->dim[i] = i < 2 ? score->dim[i] : 1;
done:
    return st;
}

/* An untied model is one of PEFT, where an adapter of the embedding is not one of the head. */
static af_status check_not_both(const af_model_reader *in, const char *dir, af_error *err)
{
    bool ties = false;
    const af_status st =
        in->config.tie_word_embeddings ? af_adapter_ties_vocab(&ties, dir, err) : AF_OK;
    if (st != AF_OK || !ties)
        return st;
    return af_fail(err, AF_EUNSUPPORTED,
                   "'%s' adapts the embedding, which is the head of '%s', too: write it for PEFT "
                   "first (afinar merge MODEL --adapter DIR --adapter-only), then merge that",
                   dir, in->path);
}

/* What has no place in the weights of the model. */
static af_status check_merge(const af_model_reader *in, af_adapter *a, const char *dir,
                             af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = a->spec;
    for (int i = 0; i < s->modules; i++) {
        const af_module_spec *m = &s->module[i];
        const af_adapter_module *am = &a->module[i];
        if (am->bias && m->bias < 0)
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%s' cannot be merged: it has a bias (lora_bias) for '%s', which has "
                           "none in the model",
                           dir, m->path);
        if ((am->magnitude || am->factor || am->rotation) && af_disk_is_turned(s, m->weight))
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%s' cannot be merged: it is %s over '%s', a Conv1D", dir,
                           am->magnitude ? "DoRA" : af_peft_forms[a->config.type].name, m->path);
        if (am->rank && af_module_is_shared(s, i))
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%s' cannot be merged: '%s' has a weight that other layers use, too, "
                           "with adapters of their own",
                           dir, m->path);
        if (am->rank && s->tensor[m->weight].module != i && !in->peft_only)
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%s' changes '%s', which shares its weights with the embedding: merge "
                           "it into a folder of the model instead (afinar merge)",
                           dir, m->path);
        if (am->pair && af_disk_is_turned(s, m->weight))
            AF_TRY(af_adapter_expand(a, dir, 0, err));
    }
done:
    return st;
}

af_status af_model_reader_read_adapter(af_model_reader *in, const char *dir, af_adapter **out,
                                       af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *spec;
    bool unties = false;
    int64_t rows = 0;
    AF_TRY(af_adapter_unties(&unties, dir, err));
    if (!unties && !in->keep_tied) {
        AF_TRY(check_not_both(in, dir, err));
        AF_TRY(af_adapter_adapts_vocab(&unties, dir, err));
    }
    if (unties)
        AF_TRY(untie(in, dir, err));
    AF_TRY(af_model_reader_match(in, err));
    spec = af_model_reader_spec(in);
    AF_TRY(af_adapter_labels(&rows, dir, err));
    if (rows && spec->labels && rows != spec->labels)
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "the adapter '%s' has %" PRId64 " labels, and '%s' has %" PRId64, dir, rows,
                       in->path, spec->labels));
    if (rows && !spec->labels) {
        AF_TRY(take_labels(in, dir, rows, err));
        spec = af_model_reader_spec(in);
    }
    rows = 0;
    AF_TRY(af_adapter_vocab(&rows, dir, err));
    if (rows && rows != spec->vocab && !in->resized) {
        AF_TRY(resize(in, dir, rows, err));
        spec = af_model_reader_spec(in);
        const bool untied = in->config.tie_word_embeddings && in->untie;
        AF_TRY(af_adapter_read_to_merge(out, spec, dir,
                                        untied ? AF_TABLES_OWN_UNTIED : AF_TABLES_OWN, err));
    } else {
        AF_TRY(af_adapter_read_to_merge(out, spec, dir, AF_TABLES_OF_BASE, err));
    }
    const bool first = in->adapters_read++ == 0;
    const char *copy = first ? af_arena_strdup(&in->arena, dir) : NULL;
    in->template_dir =
        copy && af_folder_has_tokenizer(dir) && af_adapter_has_template(dir) ? copy : NULL;
    in->tokenizer_dir = copy && af_adapter_has_tokenizer(dir, in->path, spec->vocab) ? copy : NULL;
    st = check_merge(in, *out, dir, err);
    if (st != AF_OK) {
        af_adapter_free(*out);
        *out = NULL;
    }
done:
    return st;
}

const af_adapter_other *af_model_reader_other(const af_model_reader *in, const af_adapter *a,
                                              const af_model_tensor *t)
{
    char own[512];
    const af_adapter_other *o = af_adapter_other_of(a, t->name, t->dim, t->ndim);
    af_model_reader_own_name(in, t->name, own, sizeof own);
    return o ? o : af_adapter_other_of(a, own, t->dim, t->ndim);
}

void af_model_reader_set_adapter(af_model_reader *in, af_adapter *a)
{
    af_adapter_free(in->adapter);
    in->adapter = a;
}

/* ---- values ---- */

enum { STRIP = 256 }; /* columns summed at a time */

/* `from`: the A of row o's matrix. */
static void add_strip(const af_adapter_module *m, const float *from, float *row, int64_t o,
                      int64_t at, int64_t end, int64_t cols)
{
    float sum[STRIP] = {0};
    for (int r = 0; r < m->rank; r++) {
        const float b = m->b[o * m->rank + r];
        const float *a = from + r * cols + at;
        for (int64_t c = 0; c < end - at; c++)
            sum[c] = (float)((double)b * a[c] + sum[c]); /* a fused step, on any machine */
    }
    for (int64_t c = 0; c < end - at; c++)
        row[at + c] += m->scale * sum[c];
}

static void apply_rows(const af_overlay *o, float *rows, int64_t from, int64_t n, int64_t cols)
{
    const af_adapter_module *m = o->module;
    if (m->pair) {
        af_adapter_pair_add(m, rows, o->row + from, n, cols);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float *row = rows + i * cols;
        const int64_t r = o->row + from + i;
        if (!m->a) {
            af_adapter_multiply(m, row, r, 1, cols, false);
            continue;
        }
        const float *a = m->a + r / o->out * m->rank * cols;
        for (int64_t at = 0; at < cols; at += STRIP)
            add_strip(m, a, row, r, at, AF_MIN(at + STRIP, cols), cols);
        if (!m->magnitude)
            continue;
        double norm = 0;
        for (int64_t c = 0; c < cols; c++)
            norm += (double)row[c] * row[c];
        const float factor = m->magnitude[r] / (float)sqrt(norm);
        for (int64_t c = 0; c < cols; c++)
            row[c] *= factor;
    }
}

/* Rows are inputs, columns outputs, those of gate and up in turns. */
static void apply_turned(const af_overlay *o, float *rows, int64_t from, int64_t n, int64_t cols)
{
    const af_adapter_module *m = o->module;
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = (from + i) / o->turned, in = (from + i) % o->turned;
        for (int64_t c = 0; c < cols; c++) {
            const int64_t out = e * o->out + (o->pairs ? c % 2 * (cols / 2) + c / 2 : c);
            float sum = 0;
            for (int r = 0; r < m->rank; r++)
                sum = (float)((double)m->b[out * m->rank + r] *
                                  m->a[(e * m->rank + r) * o->turned + in] +
                              sum);
            rows[i * cols + c] += m->scale * sum;
        }
    }
}

static void apply_embedding(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                            int64_t cols, int64_t tokens)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols; c++) {
            float sum = 0;
            for (int r = 0; r < m->rank; r++)
                sum = (float)((double)m->b[c * m->rank + r] * m->a[r * tokens + from + i] + sum);
            rows[i * cols + c] += m->scale * sum;
        }
}

af_overlay af_model_reader_overlay(const af_model_reader *in, int tensor)
{
    const af_adapter *a = in->adapter;
    if (!a || tensor < 0)
        return (af_overlay){0};
    const int m = a->spec->tensor[tensor].module;
    af_overlay o = {.saved = a->saved[tensor], .tokens = a->spec->tensor[tensor].dim[0]};
    if ((!o.saved || a->tables != AF_TABLES_OF_BASE) && m >= 0 && a->module[m].rank)
        o.module = &a->module[m], o.out = a->spec->module[m].out;
    for (int i = 0; i < a->spec->modules && !o.biased; i++)
        if (a->spec->module[i].bias == tensor && (a->module[i].bias || a->module[i].factor))
            o.biased = &a->module[i];
    const int table = af_adapter_token_table(a, tensor);
    if (table >= 0) {
        o.trained = a->tokens[table];
        o.trained_values = a->token_values[table];
    }
    o.embedding = m >= 0 && a->spec->module[m].group == AF_GROUP_EMBED;
    return o;
}

void af_overlay_apply(const af_overlay *o, float *rows, int64_t from, int64_t n, int64_t cols)
{
    if (o->module && o->embedding)
        apply_embedding(o->module, rows, from, n, cols, o->tokens);
    else if (o->module && o->turned)
        apply_turned(o, rows, from, n, cols);
    else if (o->module)
        apply_rows(o, rows, from, n, cols);
    for (int64_t c = 0; o->biased && c < cols; c++)
        if (o->biased->factor)
            rows[c] *= o->biased->factor[from + c];
        else
            rows[c] += o->biased->scale * o->biased->bias[from + c];
    for (int i = 0; i < o->trained.count; i++)
        if (o->trained.index[i] >= from && o->trained.index[i] < from + n)
            memcpy(rows + (o->trained.index[i] - from) * cols, o->trained_values + i * cols,
                   (size_t)cols * sizeof *rows);
}
