/* yaml_json.c - see yaml_json.h. */
#include "format/text/yaml_json.h"

static json_t *scalar(const af_yaml *n)
{
    bool flag;
    int64_t whole;
    double real;
    if (n->quoted)
        return json_string(n->text);
    if (af_yaml_is_null(n))
        return json_null();
    if (af_yaml_bool(n, &flag))
        return json_boolean(flag);
    if (af_yaml_i64(n, &whole))
        return json_integer(whole);
    return af_yaml_f64(n, &real) ? json_real(real) : json_string(n->text);
}

json_t *af_yaml_json(const af_yaml *n)
{
    if (n->kind == AF_YAML_SCALAR)
        return scalar(n);
    json_t *all = n->kind == AF_YAML_MAP ? json_object() : json_array();
    for (int i = 0; all && i < n->count; i++) { /* at most AF_YAML_DEPTH_MAX deep */
        json_t *item = af_yaml_json(n->item[i]);
        if (item && (n->kind == AF_YAML_MAP ? json_object_set_new(all, n->key[i], item)
                                            : json_array_append_new(all, item)) == 0)
            continue;
        json_decref(all);
        return NULL;
    }
    return all;
}
