/* label_item.c - texts with labels: a class, several of them, or numbers. */
#include "data/pair/pair_item.h"

#include <math.h>

typedef struct label_reader {
    af_item *out;
    const af_data_source *s;
    const af_label_opts *o;
    const af_source_loc *p;
    af_error *err;
} label_reader;

static bool takes_class(const af_label_opts *o)
{
    return o->problem == AF_PROBLEM_SINGLE || (o->problem == AF_PROBLEM_AUTO && o->count > 1);
}

/* The number of a class, given as that or by its name. */
static af_status class_of(const label_reader *r, const json_t *v, int64_t *out)
{
    const char *field = r->s->field.label, *name = json_string_value(v);
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        if (*out < 0 || *out >= r->o->count)
            return af_source_loc_fail(r->p, r->err,
                                      "\"%s\" is %" PRId64
                                      ", but the model has labels 0 to %" PRId64 " (num_labels)",
                                      field, *out, r->o->count - 1);
        return AF_OK;
    }
    if (!name)
        return af_field_wrong_type(field, v, "a number or a name", r->p, r->err);
    for (int i = 0; i < r->o->names; i++)
        if (strcmp(r->o->name[i], name) == 0) {
            *out = i;
            return AF_OK;
        }
    char *end;
    const long long number = strtoll(name, &end, 10); /* of a CSV file */
    if (!r->o->names && end != name && !*end && number >= 0 && number < r->o->count) {
        *out = number;
        return AF_OK;
    }
    return af_source_loc_fail(r->p, r->err, "\"%s\" is \"%.60s\", which is not %s", field, name,
                              r->o->names ? "one of 'class_names'"
                                          : "a number; list the names in 'class_names'");
}

static af_status number_of(const label_reader *r, const json_t *v, float *out)
{
    const char *text = json_string_value(v);
    char *end = NULL;
    double value = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
    if (text)
        value = strtod(text, &end);
    if ((text ? end == text || *end : !json_is_number(v) && !json_is_boolean(v)) ||
        !isfinite(value))
        return af_field_wrong_type(r->s->field.label, v, "a number", r->p, r->err);
    *out = (float)value;
    return AF_OK;
}

/* A list of values, one for each label; or, of several labels, a list of those that hold. */
static af_status list_of(const label_reader *r, const json_t *v, float *out)
{
    const size_t n = json_array_size(v);
    const json_t *first = json_array_get(v, 0);
    const bool names = r->o->problem != AF_PROBLEM_REGRESSION &&
                       (json_is_string(first) || (n != (size_t)r->o->count));
    af_status st = AF_OK;
    if (!names && n != (size_t)r->o->count)
        return af_source_loc_fail(r->p, r->err,
                                  "\"%s\" has %zu values, but the model has %" PRId64
                                  " labels (num_labels)",
                                  r->s->field.label, n, r->o->count);
    for (size_t i = 0; i < n; i++) {
        int64_t at;
        if (names) {
            AF_TRY(class_of(r, json_array_get(v, i), &at));
            out[at] = 1;
        } else {
            AF_TRY(number_of(r, json_array_get(v, i), &out[i]));
        }
    }
done:
    return st;
}

static af_status read_target(const label_reader *r, const json_t *record)
{
    const json_t *v;
    af_status st = AF_OK;
    int64_t at = 0;
    const bool one = takes_class(r->o);
    AF_TRY(af_field_need(&v, r->s, record, r->s->field.label, r->p, r->err));
    r->out->targets = one ? 1 : (int)r->o->count;
    r->out->target = af_calloc((uint64_t)r->out->targets, sizeof *r->out->target);
    if (!r->out->target)
        return af_fail_nomem(r->err, "labels", (uint64_t)r->out->targets * sizeof(float));
    if (one) {
        AF_TRY(class_of(r, v, &at));
        r->out->target[0] = (float)at;
    } else if (json_is_array(v)) {
        AF_TRY(list_of(r, v, r->out->target));
    } else if (r->o->count > 1) {
        st = af_field_wrong_type(r->s->field.label, v, "a list, one value for each label", r->p,
                                 r->err);
    } else {
        AF_TRY(number_of(r, v, r->out->target));
    }
done:
    return st;
}

af_status af_label_item(af_item *out, const af_data_source *s, const json_t *record,
                        const af_label_opts *labels, const af_source_loc *p, af_error *err)
{
    const label_reader r = {out, s, labels, p, err};
    const json_t *text = json_object_get(record, s->field.messages);
    af_status st = AF_OK;
    if (text) {
        AF_TRY(af_turns_take(&out->conversation[0], s, text, s->field.messages,
                             af_turns_sharegpt(s, text), p, err));
        AF_TRY(af_template_fields_take(&out->conversation[0], s, record, p, err));
    } else {
        AF_TRY(af_field_string(&text, s, record, s->field.text, p, err));
        AF_TRY(af_pair_put_text(out, 0, "", 0, json_string_value(text), json_string_length(text),
                                err));
    }
    AF_TRY(read_target(&r, record));
    out->conversations = 1;
done:
    return st;
}
