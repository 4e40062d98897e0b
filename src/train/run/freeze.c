/* freeze.c - see freeze.h.
 *
 * unfrozen_parameters: regular expressions that match from the beginning of a parameter's name; a
 * dot is a dot unless a plus follows; "[from:to]" at the end restricts rows. (Axolotl, freeze.py.)
 * freeze_parameters, trainable_parameters: beginnings of names, and regular expressions that match
 * anywhere in them; what is trainable counts in the end. (ms-swift, transformers_utils.py.)
 * A name to freeze that ends with a dot is a module's (Oumi), whoever shares its parameters.
 * adapter: freeze: the modules of the last (or first, below 0) layers, and modules outside the
 * layers; use_llama_pro: of every layer that ends one of so many equal parts. (LLaMA-Factory.) */
#include "train/run/freeze.h"
#include "base/buf.h"
#include "base/log.h"
#include "model/adapter_config.h"
#include "model/arch/arch_disk.h"

enum { NAME_BYTES = 512 };

bool af_method_trains_base(const af_run_config *r)
{
    return r->method == AF_METHOD_FULL || r->method == AF_METHOD_FREEZE;
}

static int64_t rows_of(const af_tensor_spec *t) { return t->dim[0]; }

/* ---- unfrozen_parameters ---- */

typedef struct row_pattern {
    af_buf regex;
    bool has_rows;
    int64_t from, to; /* to -1 = the end */
} row_pattern;

/* "[12]", "[:12]", "[3:]", "[3:12]" at the end of the text; its length, or 0. */
static size_t row_suffix(const char *text, row_pattern *p)
{
    const size_t n = strlen(text);
    const char *open = strrchr(text, '[');
    if (!open || open == text || text[n - 1] != ']' ||
        strspn(open + 1, "0123456789:") != n - (size_t)(open - text) - 2)
        return 0;
    const char *colon = strchr(open, ':');
    if ((colon && strchr(colon + 1, ':')) || (!colon && open[1] == ']'))
        return 0;
    char *end;
    p->has_rows = true;
    p->from = strtoll(open + 1, &end, 10);
    p->to = !colon ? p->from + 1 : colon[1] == ']' ? -1 : strtoll(colon + 1, &end, 10);
    return n - (size_t)(open - text);
}

static af_status read_pattern(row_pattern *p, const char *text, const char *at, af_error *err)
{
    *p = (row_pattern){0};
    const size_t n = strlen(text) - row_suffix(text, p);
    if (n == 0)
        return af_fail(err, AF_EUSAGE, "%s: unfrozen_parameters has an empty name", at);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '.' && text[i + 1] != '+')
            af_buf_str(&p->regex, "\\");
        af_buf_add(&p->regex, text + i, 1);
    }
    if (p->regex.bad)
        return af_fail_nomem(err, "a pattern", n);
    if (p->has_rows && p->to >= 0 && p->from >= p->to)
        return af_fail(err, AF_EUSAGE,
                       "%s: unfrozen_parameters '%.200s' begins at row %lld, "
                       "after its end",
                       at, text, (long long)p->from);
    return AF_OK;
}

/* Whether the pattern matches the tensor: its name, or all names its pieces have on disk. */
static af_status matches(bool *out, const char *regex, const af_model_spec *s, int tensor,
                         const char *key, const char *at, af_error *err)
{
    char name[NAME_BYTES];
    int hits = 0;
    const int pieces = af_disk_count(s, tensor);
    af_spec_whole_name(s, s->tensor[tensor].name, name, sizeof name);
    af_status st = af_pattern_matches(out, regex, name, false, err);
    for (int k = 0; k < pieces && pieces > 1 && !*out && st == AF_OK; k++) {
        int64_t dim[AF_DISK_DIMS], from;
        int ndim;
        bool hit = false;
        af_disk_piece(s, tensor, k, name, sizeof name, dim, &ndim, &from);
        st = af_pattern_matches(&hit, regex, name, false, err);
        hits += hit;
    }
    if (st == AF_OK && hits > 0 && hits < pieces)
        return af_fail(
            err, AF_EUNSUPPORTED,
            "%s: %s '%.200s' is not supported: it matches %d of the %d "
            "experts or convolutions of layer %d, which are trained together or not at all",
            at, key, regex, hits, pieces, s->tensor[tensor].layer);
    *out |= hits > 0;
    return st == AF_OK ? AF_OK : af_fail_prefix(st, err, "%s: %s", at, key);
}

static af_status add_range(af_trained *t, const row_pattern *p, const af_model_spec *s, int tensor,
                           const char *at, af_error *err)
{
    const int64_t rows = rows_of(&s->tensor[tensor]), to = p->to < 0 ? rows : p->to;
    if (p->from >= to || to > rows)
        return af_fail(err, AF_EUSAGE,
                       "%s: unfrozen_parameters has rows %lld to %lld of '%s', which has %lld", at,
                       (long long)p->from, (long long)to, s->tensor[tensor].name, (long long)rows);
    t->range[t->ranges++] = (af_row_range){tensor, p->from, to};
    return AF_OK;
}

static void warn_unused(const char *at, const char *key, const char *text)
{
    af_log_write(AF_LOG_WARN, "%s: %s '%.200s' matches no parameter", at, key, text);
}

static af_status use_pattern(af_trained *t, const char *text, const af_model_spec *s,
                             const char *at, af_error *err)
{
    af_status st = AF_OK;
    row_pattern p;
    bool used = false;
    AF_TRY(read_pattern(&p, text, at, err));
    for (int i = 0; i < s->tensors; i++) {
        bool hit = false;
        AF_TRY(matches(&hit, p.regex.data, s, i, "unfrozen_parameters", at, err));
        if (hit && p.has_rows)
            AF_TRY(add_range(t, &p, s, i, at, err));
        t->tensor[i] |= hit;
        used |= hit;
    }
    if (!used)
        warn_unused(at, "unfrozen_parameters", text);
done:
    af_buf_clear(&p.regex);
    return st;
}

static int by_row(const void *x, const void *y)
{
    const af_row_range *a = x, *b = y;
    if (a->tensor != b->tensor)
        return a->tensor < b->tensor ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Sorted, and those that touch joined. */
static void join_ranges(af_trained *t)
{
    int n = 0;
    qsort(t->range, (size_t)t->ranges, sizeof *t->range, by_row);
    for (int i = 0; i < t->ranges; i++) {
        af_row_range *last = n ? &t->range[n - 1] : NULL;
        if (last && last->tensor == t->range[i].tensor && t->range[i].from <= last->to)
            last->to = AF_MAX(last->to, t->range[i].to);
        else
            t->range[n++] = t->range[i];
    }
    t->ranges = n;
}

static af_status choose_by_name(af_trained *t, const af_run_config *r, const af_model_spec *s,
                                af_arena *arena, af_error *err)
{
    char at[300];
    af_run_key_loc(r, "unfrozen_parameters", at, sizeof at);
    const uint64_t most = (uint64_t)s->tensors * (uint64_t)r->unfrozen_parameters.count;
    t->range = af_arena_take(arena, most * sizeof *t->range);
    if (!t->range)
        return af_fail_nomem(err, "the trained rows", most * sizeof *t->range);
    for (int i = 0; i < r->unfrozen_parameters.count; i++) {
        const af_status st = use_pattern(t, r->unfrozen_parameters.item[i], s, at, err);
        if (st != AF_OK)
            return st;
    }
    join_ranges(t);
    return AF_OK;
}

/* ---- freeze_parameters and trainable_parameters ---- */

/* Of the parameters that a regular expression matches. */
static af_status set_trained(af_trained *t, bool trained, const char *key, const char *regex,
                             const char *text, const af_run_config *r, const af_model_spec *s,
                             af_error *err)
{
    char at[300];
    bool used = false;
    af_run_key_loc(r, key, at, sizeof at);
    for (int i = 0; i < s->tensors; i++) {
        bool hit = false;
        const af_status st = matches(&hit, regex, s, i, key, at, err);
        if (st != AF_OK)
            return st;
        if (hit)
            t->tensor[i] = trained;
        used |= hit;
    }
    if (!used && trained)
        return af_fail(err, AF_EUSAGE, "%s: %s '%.200s' matches no parameter", at, key, text);
    if (!used) /* as other trainers take it */
        warn_unused(at, key, text);
    return AF_OK;
}

/* A beginning of names, or an expression that may match anywhere, as one that matches from the
 * beginning. */
static af_status use_text(af_trained *t, bool trained, const char *key, const char *text,
                          bool is_regex, const af_run_config *r, const af_model_spec *s,
                          af_error *err)
{
    af_buf regex = {0};
    char at[300];
    if (!*text)
        return af_fail(err, AF_EUSAGE, "%s: %s has an empty name",
                       af_run_key_loc(r, key, at, sizeof at), key);
    bool hit; /* for the text alone: "a)|(b" is none */
    af_status st = is_regex ? af_pattern_matches(&hit, text, "", false, err) : AF_OK;
    if (st != AF_OK)
        return af_fail_prefix(st, err, "%s: %s", af_run_key_loc(r, key, at, sizeof at), key);
    if (is_regex)
        af_buf_printf(&regex, ".*(%s)", text);
    for (const char *c = text; !is_regex && *c; c++)
        af_buf_printf(&regex, strchr(".[](){}*+?^$|\\", *c) ? "\\%c" : "%c", *c);
    st = regex.bad ? af_fail_nomem(err, "a pattern", strlen(text))
                   : set_trained(t, trained, key, regex.data, text, r, s, err);
    af_buf_clear(&regex);
    return st;
}

/* "lm_head.", where it has no matrix of its own. */
static bool is_tied_head(const char *text, const af_model_spec *s)
{
    char name[NAME_BYTES];
    af_spec_whole_name(s, s->module[s->head_module].path, name, sizeof name);
    const size_t n = strlen(name);
    return s->tied && strncmp(text, name, n) == 0 && strcmp(text + n, ".") == 0;
}

bool af_run_freezes_names(const af_run_config *r)
{
    return r->frozen_share > 0 || r->frozen_names.count > 0 || r->frozen_regex;
}

static af_status choose_frozen(af_trained *t, const af_run_config *r, const af_model_spec *s,
                               af_error *err)
{
    af_status st = AF_OK;
    const struct {
        const char *key;
        const af_strings *names;
        const char *regex;
    } sides[] = {{"freeze_parameters", &r->frozen_names, r->frozen_regex},
                 {"trainable_parameters", &r->trainable_names, r->trainable_regex}};
    char at[300];
    if (r->frozen_share > 0 && r->frozen_share < 1)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: freeze_parameters_ratio %g is not supported: 0 and 1 are (see "
                       "'freeze_trainable_layers')",
                       af_run_key_loc(r, "freeze_parameters_ratio", at, sizeof at),
                       r->frozen_share);
    for (int i = 0; i < s->tensors; i++)
        t->tensor[i] = r->frozen_share == 0;
    for (int k = 0; k < 2; k++) {
        char key[40];
        for (int i = 0; i < sides[k].names->count && st == AF_OK; i++) {
            const char *text = sides[k].names->item[i];
            if (k == 0 && is_tied_head(text, s))
                t->tensor[s->embed] = false;
            else
                st = use_text(t, k == 1, sides[k].key, text, false, r, s, err);
        }
        snprintf(key, sizeof key, "%s_regex", sides[k].key);
        if (st == AF_OK && sides[k].regex)
            st = use_text(t, k == 1, key, sides[k].regex, true, r, s, err);
    }
    return st;
}

/* ---- adapter: freeze ---- */

/* The module after the layer's number, or the last one outside the layers: mlp, embed_tokens. */
static void module_name(const af_model_spec *s, int tensor, char *out, size_t size)
{
    char name[NAME_BYTES], number[32];
    af_spec_whole_name(s, s->tensor[tensor].name, name, sizeof name);
    snprintf(number, sizeof number, ".%d.", s->tensor[tensor].layer);
    const char *at = s->tensor[tensor].layer >= 0 ? strstr(name, number) : NULL;
    if (at) {
        at += strlen(number);
    } else {
        char *end = strrchr(name, '.');
        if (end)
            *end = '\0';
        at = strrchr(name, '.');
        at = at ? at + 1 : name;
    }
    snprintf(out, size, "%.*s", (int)strcspn(at, "."), at);
}

af_status af_llama_pro_stride(int *out, const af_run_config *r, const af_model_spec *s,
                              af_error *err)
{
    char at[300];
    const int layers = af_spec_folder_layer(s, s->layers - 1) + 1;
    *out = 1;
    if (!r->llama_pro)
        return AF_OK;
    if (r->freeze_layers < 1 || layers % r->freeze_layers != 0)
        return af_fail(err, AF_EUSAGE,
                       "%s: use_llama_pro with freeze_trainable_layers %lld: it must divide the %d "
                       "layers of the model",
                       af_run_key_loc(r, "use_llama_pro", at, sizeof at),
                       (long long)r->freeze_layers, layers);
    *out = layers / (int)r->freeze_layers;
    return AF_OK;
}

static bool layer_is_trained(const af_run_config *r, const af_model_spec *s, int stride, int layer)
{
    const int64_t n = r->freeze_layers, last = af_spec_folder_layer(s, s->layers - 1);
    if (r->llama_pro)
        return (layer + 1) % stride == 0;
    return n > 0 ? layer > last - n : layer < -n;
}

/* Whether the module is one of those inside (or outside) the layers; `known` lists them. */
static bool is_module(const af_model_spec *s, const char *module, bool inside, char *known,
                      size_t size)
{
    char name[NAME_BYTES];
    bool found = inside && strcmp(module, "all") == 0;
    size_t len = 0;
    for (int i = 0; i < s->tensors; i++) {
        if ((s->tensor[i].layer >= 0) != inside)
            continue;
        module_name(s, i, name, sizeof name);
        found |= strcmp(module, name) == 0;
        if (!strstr(known, name) && len + strlen(name) + 3 < size)
            len += (size_t)snprintf(known + len, size - len, "%s%s", len ? ", " : "", name);
    }
    return found;
}

/* Trains what has ".LAYER.MODULE" (or, outside the layers, MODULE) anywhere in its name: 'norm'
 * means every norm of every layer too. */
static af_status use_module(af_trained *t, const af_run_config *r, const af_model_spec *s,
                            const char *key, const char *module, bool inside, af_error *err)
{
    char name[NAME_BYTES], part[NAME_BYTES], known[200] = "", at[300];
    int stride;
    const af_status st = af_llama_pro_stride(&stride, r, s, err);
    if (st != AF_OK)
        return st;
    if (!is_module(s, module, inside, known, sizeof known))
        return af_fail(err, AF_EUSAGE,
                       "%s: %s has '%.100s', which the model does not have: it has %s",
                       af_run_key_loc(r, key, at, sizeof at), key, module, known);
    for (int i = 0; i < s->tensors; i++) {
        const int layer = af_spec_folder_layer(s, s->tensor[i].layer);
        if (inside && (layer < 0 || !layer_is_trained(r, s, stride, layer)))
            continue;
        if (inside)
            snprintf(part, sizeof part, ".%d.%s", layer, strcmp(module, "all") ? module : "");
        else
            snprintf(part, sizeof part, "%s", module);
        af_spec_whole_name(s, s->tensor[i].name, name, sizeof name);
        t->tensor[i] |= strstr(name, part) != NULL;
    }
    return AF_OK;
}

static af_status choose_by_layer(af_trained *t, const af_run_config *r, const af_model_spec *s,
                                 af_error *err)
{
    static const char *const all = "all";
    const bool named = r->freeze_modules.count > 0;
    const int n = named ? r->freeze_modules.count : 1;
    for (int i = 0; i < n; i++) {
        const af_status st = use_module(t, r, s, "freeze_trainable_modules",
                                        named ? r->freeze_modules.item[i] : all, true, err);
        if (st != AF_OK)
            return st;
    }
    for (int i = 0; i < r->freeze_extra.count; i++) {
        const af_status st =
            use_module(t, r, s, "freeze_extra_modules", r->freeze_extra.item[i], false, err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

af_status af_trained_choose(af_trained *out, const af_run_config *r, const af_model_spec *spec,
                            af_arena *arena, af_error *err)
{
    *out = (af_trained){0};
    const bool by_name = r->method == AF_METHOD_FULL && r->unfrozen_parameters.count > 0;
    const bool frozen = r->method == AF_METHOD_FULL && af_run_freezes_names(r);
    if (!by_name && !frozen && r->method != AF_METHOD_FREEZE)
        return AF_OK;
    out->tensor = af_arena_take(arena, (uint64_t)spec->tensors * sizeof *out->tensor);
    if (!out->tensor)
        return af_fail_nomem(err, "the trained tensors", (uint64_t)spec->tensors);
    const af_status st = by_name  ? choose_by_name(out, r, spec, arena, err)
                         : frozen ? choose_frozen(out, r, spec, err)
                                  : choose_by_layer(out, r, spec, err);
    bool any = false;
    for (int i = 0; i < spec->tensors; i++)
        any |= out->tensor[i];
    if (st != AF_OK || any)
        return st;
    char at[300];
    const char *key = by_name                 ? "unfrozen_parameters"
                      : !frozen               ? "freeze_trainable_layers"
                      : r->frozen_names.count ? "freeze_parameters"
                      : r->frozen_regex       ? "freeze_parameters_regex"
                                              : "freeze_parameters_ratio";
    char name[NAME_BYTES];
    af_spec_whole_name(spec,
                       spec->tensor[spec->layer[0].tensor[AF_SLOT_ATTN_NORM] >= 0
                                        ? spec->layer[0].tensor[AF_SLOT_ATTN_NORM]
                                        : spec->embed]
                           .name,
                       name, sizeof name);
    return af_fail(err, AF_EUSAGE,
                   "%s: %s leaves nothing to train: parameters have names like '%s'",
                   af_run_key_loc(r, key, at, sizeof at), key, name);
}
