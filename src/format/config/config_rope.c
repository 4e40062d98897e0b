/* config_rope.c - see config_rope.h. */
#include "format/config/config_rope.h"

#include "base/file.h"
#include "format/config/config_source.h"
#include "format/text/json_text.h"

/* rope_parameters has the base of the rotation, too, which stays. */
static json_t *with_base(const json_t *old, json_t *scaling)
{
    static const char *const kept[] = {"rope_theta", "partial_rotary_factor"};
    json_t *all = json_deep_copy(scaling);
    for (size_t i = 0; all && i < AF_LEN(kept); i++) {
        json_t *v = json_object_get(old, kept[i]);
        if (v && !json_object_get(all, kept[i]) && json_object_set(all, kept[i], v)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

static af_status change_json(json_t *config, const af_rope_change *r, af_error *err)
{
    json_t *own = af_config_own(config), *v5 = json_object_get(own, "rope_parameters");
    if (json_is_object(json_object_get(v5, "full_attention")) ||
        json_is_object(json_object_get(v5, "sliding_attention")))
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s is not supported for a model with a rotation per kind of layer",
                       r->name);
    const bool newer = json_is_object(v5);
    json_t *scaling = with_base(v5, r->scaling);
    bool ok =
        scaling && !json_object_set_new(own, newer ? "rope_parameters" : "rope_scaling", scaling);
    if (ok && newer) /* v5 is gone */
        json_object_del(own, "rope_scaling");
    if (ok && r->positions)
        ok = !json_object_set_new(own, "max_position_embeddings", json_integer(r->positions));
    return ok ? AF_OK : af_fail_nomem(err, r->name, sizeof *r);
}

af_status af_rope_change_config(af_hf_config *c, const af_rope_change *r, af_error *err)
{
    af_status st = AF_OK;
    af_hf_config changed = {0};
    json_t *raw = r && c->raw ? json_deep_copy(c->raw) : NULL;
    char *text = NULL;
    if (!r)
        return AF_OK;
    if (!c->raw)
        return af_fail(err, AF_EUNSUPPORTED, "%s is not supported for a GGUF file", r->name);
    if (!raw)
        return af_fail_nomem(err, r->name, sizeof *r);
    AF_TRY(change_json(raw, r, err));
    text = af_json_dump(raw, JSON_REAL_PRECISION(17));
    if (!text)
        AF_TRY(af_fail_nomem(err, r->name, sizeof *r));
    AF_TRY(af_hf_config_parse(&changed, text, strlen(text), r->name, err));
    if (changed.rope.short_count || changed.rope.long_count)
        AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                       "%s: the type is not supported: linear, dynamic, yarn and llama3 are",
                       r->name));
    c->rope = changed.rope;
    c->max_position_embeddings = changed.max_position_embeddings;
    json_decref(c->raw);
    c->raw = raw;
    raw = NULL;
done:
    af_hf_config_clear(&changed);
    json_decref(raw);
    free(text);
    return st;
}

af_status af_rope_change_file(const char *dir, const af_rope_change *r, af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, "config.json"), *text = NULL;
    json_t *config = NULL;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_json_read_file(&config, path, err));
    AF_TRY(change_json(config, r, err));
    text = af_json_dump(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text)
        AF_TRY(af_fail_nomem(err, "config.json", 0));
    AF_TRY(af_file_write(path, text, strlen(text), err));
done:
    json_decref(config);
    free(text);
    free(path);
    return st;
}
