/* models.c - the names that requests may ask for, and their templates. */
#include "serve/api/api.h"

#include "format/chat/chat_template.h"
#include "model/adapter_texts.h"

#include <time.h>

void af_served_unref(af_served *m)
{
    if (!m || atomic_fetch_sub(&m->refs, 1) != 1)
        return;
    af_template_close(m->template);
    free(m->name);
    free(m->path);
    free(m);
}

af_status af_served_adapter(const af_served *m, int *adapter, af_error *err)
{
    *adapter = atomic_load(&m->adapter);
    if (*adapter == AF_SERVED_GONE)
        return af_fail(err, AF_ESTOPPED, "the model '%s' is not served any more", m->name);
    return AF_OK;
}

static af_served **place_of(af_api *a, const char *name)
{
    af_served **at = &a->models;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

af_served *af_api_find_model(af_api *a, const char *name)
{
    pthread_mutex_lock(&a->models_lock);
    af_served *m = name ? *place_of(a, name) : a->models;
    if (m)
        atomic_fetch_add(&m->refs, 1);
    pthread_mutex_unlock(&a->models_lock);
    return m;
}

/* An adapter may have been trained with a template of its own. */
static af_status open_template(const af_api *a, af_served *m, af_error *err)
{
    af_status st = AF_OK;
    if (m->adapter == 0 || !af_adapter_has_template(m->path))
        return AF_OK;
    AF_TRY(af_template_open(&m->template, m->path, err));
    AF_TRY(af_template_set_tokens(m->template, a->tokenizer, err));
    AF_TRY(af_template_form(m->template, &m->form, err));
done:
    return st;
}

af_status af_api_add_model(af_api *a, const char *name, const char *path, int adapter,
                           af_error *err)
{
    af_status st = AF_OK;
    af_served *m = af_calloc(1, sizeof *m);
    if (!m)
        return af_fail_nomem(err, "a model", sizeof *m);
    atomic_init(&m->refs, 1);
    m->name = af_strdup(name);
    m->path = af_strdup(path);
    atomic_init(&m->adapter, adapter);
    m->created = (int64_t)time(NULL);
    if (!m->name || !m->path)
        AF_TRY(af_fail_nomem(err, "a model", strlen(name) + strlen(path)));
    AF_TRY(open_template(a, m, err));
    pthread_mutex_lock(&a->models_lock);
    af_served **at = place_of(a, name);
    const bool taken = *at != NULL;
    if (!taken)
        *at = m;
    pthread_mutex_unlock(&a->models_lock);
    if (taken)
        AF_TRY(
            af_fail_subject(err, AF_EUSAGE, "lora_name", "the model '%s' is loaded already", name));
    m = NULL;
done:
    af_served_unref(m);
    return st;
}

af_served *af_api_remove_model(af_api *a, const char *name)
{
    pthread_mutex_lock(&a->models_lock);
    af_served **at = place_of(a, name), *m = *at;
    if (m)
        *at = m->next;
    pthread_mutex_unlock(&a->models_lock);
    return m;
}

const af_template *af_served_template(const af_api *a, const af_served *m)
{
    return m->template ? m->template : a->template;
}

unsigned af_served_form(const af_api *a, const af_served *m)
{
    return m->template ? m->form : a->form;
}

/* ---- endpoints ---- */

static void out_model(const af_api *a, af_buf *b, const af_served *m)
{
    af_buf_str(b, "{\"id\":");
    af_out_cstring(b, m->name);
    af_buf_printf(b,
                  ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"afinar\",\"root\":",
                  m->created);
    af_out_cstring(b, m->path);
    af_buf_str(b, ",\"parent\":");
    af_out_cstring(b, m->adapter ? a->alias : NULL);
    af_buf_printf(b, ",\"max_model_len\":%" PRId64 "}", a->context);
}

void af_api_models(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_buf b = {0};
    (void)body;
    af_buf_str(&b, "{\"object\":\"list\",\"data\":[");
    pthread_mutex_lock(&a->models_lock);
    for (const af_served *m = a->models; m; m = m->next) {
        out_model(a, &b, m);
        if (m->next)
            af_buf_char(&b, ',');
    }
    pthread_mutex_unlock(&a->models_lock);
    af_buf_str(&b, "]}");
    af_api_answer(c, &b);
}

void af_api_model(af_api *a, af_httpd_call *c, const json_t *body)
{
    char name[1024];
    (void)body;
    const char *path = af_httpd_head(c)->path + strlen("/v1/models/");
    af_request_unescape(path, strlen(path), name, sizeof name);
    af_served *m = af_api_find_model(a, name);
    if (!m) {
        af_api_refuse(c, 404, "model_not_found", "model", "the model '%s' does not exist", name);
        return;
    }
    af_buf b = {0};
    out_model(a, &b, m);
    af_api_answer(c, &b);
    af_served_unref(m);
}
