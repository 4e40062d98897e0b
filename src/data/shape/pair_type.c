/* pair_type.c - `type` of a dataset of preference training: a form of Axolotl's by name, or formats
 * of the user's own. */
#include "data/shape/data_entry.h"

static void use_form(const af_data_entry *p, const af_pair_form *form)
{
    p->s->form = form;
    p->s->shape = p->o->rl == AF_RL_KTO ? AF_SHAPE_KTO : AF_SHAPE_PREFERENCE;
    p->s->shape_given = form->kind != AF_FORM_AS_IS; /* which takes all of TRL's formats */
    if (form->kind == AF_FORM_AS_IS)
        p->s->shape = AF_SHAPE_AUTO;
}

/* type: {field_prompt: ..., prompt_format: ...} */
static af_status own_form(const af_data_entry *p, const af_yaml *n)
{
    char at[300];
    af_pair_form *own = af_arena_take(p->mem, sizeof *own);
    if (!own)
        return af_fail_nomem(p->err, "type", sizeof *own);
    const bool kto = p->o->rl == AF_RL_KTO;
    *own = (af_pair_form){.type = "user_defined",
                          .kind = AF_FORM_OWN,
                          .prompt_format = "{prompt}",
                          .answer_format = {kto ? "{completion}" : "{chosen}", "{rejected}"}};
    af_fields *f = &p->s->field;
    const struct {
        const char *key;
        const char **to;
    } parts[] = {
        {"field_prompt", &f->prompt},
        {"field_system", &f->system},
        {"prompt_format", &own->prompt_format},
        {kto ? "field_completion" : "field_chosen", kto ? &f->completion : &f->chosen},
        {kto ? "field_label" : "field_rejected", kto ? &f->label : &f->rejected},
        {kto ? "completion_format" : "chosen_format", &own->answer_format[0]},
        {kto ? NULL : "rejected_format", &own->answer_format[1]},
    };
    for (int i = 0; i < n->count; i++) {
        size_t k = 0;
        while (k < AF_LEN(parts) && (!parts[k].key || strcmp(parts[k].key, n->key[i]) != 0))
            k++;
        af_data_source_loc(at, p->o->run_path, n->key_line[i]);
        if (k == AF_LEN(parts))
            return af_fail(p->err, AF_EUSAGE,
                           "%s: unknown key '%s' of a type for 'rl: %s' (field_prompt, "
                           "field_system, prompt_format, %s)",
                           at, n->key[i], af_rl_name(p->o->rl),
                           kto ? "field_completion, field_label, completion_format"
                               : "field_chosen, field_rejected, chosen_format, rejected_format");
        if (af_yaml_is_null(n->item[i]) && !n->item[i]->quoted)
            continue;
        if (n->item[i]->kind != AF_YAML_SCALAR)
            return af_fail(p->err, AF_EUSAGE, "%s: '%s' of a type wants one value", at, n->key[i]);
        if (*n->item[i]->text)
            *parts[k].to = n->item[i]->text;
    }
    use_form(p, own);
    return AF_OK;
}

af_status af_pair_type_set(const af_data_entry *p, const af_yaml *n, bool *taken)
{
    *taken = false;
    if (p->o->rl == AF_RL_NONE)
        return AF_OK;
    if (p->o->rl == AF_RL_LABELS && n->kind == AF_YAML_SCALAR) {
        *taken = true; /* the task says what the records are */
        return AF_OK;
    }
    if (n->kind == AF_YAML_MAP) {
        *taken = true;
        return own_form(p, n);
    }
    const af_pair_form *form =
        n->kind == AF_YAML_SCALAR ? af_pair_form_find(n->text, p->o->rl) : NULL;
    *taken = form != NULL;
    if (form)
        use_form(p, form);
    return AF_OK;
}
