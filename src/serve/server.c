/* server.c - opens a model, its adapters, the engine and the socket; see afinar/serve.h. */
#include "serve/server_state.h"

#include "base/file.h"
#include "base/log.h"
#include "base/word.h"
#include "decode/decoder.h"
#include "format/chat/chat_template.h"
#include "format/chat/named_template.h"
#include "format/config/hf_config.h"
#include "format/text/json_text.h"
#include "model/arch/arch.h"
#include "serve/api/responses.h"
#include "serve/api/run_state.h"

#include <strings.h>
#include <time.h>

/* The last part of a path without ".gguf" and without the revision of a hub's name. */
static char *alias_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    if (n - from > 5 && strncasecmp(path + n - 5, ".gguf", 5) == 0)
        n -= 5;
    const char *at = memchr(path + from, '@', n - from);
    return af_strndup(path + from,
                      at && at > path + from ? (uint64_t)(at - path) - from : n - from);
}

/* As much as every clock and poll() of the server can count in milliseconds. */
static double seconds_of(double given, double usual)
{
    return given > 0 ? AF_MIN(given, 1e6) : usual;
}

static af_status take_opts(af_api *a, const char *model, const af_serve_opts *o, af_error *err)
{
    af_status st = AF_OK;
    a->o = *o;
    a->o.host = o->host ? o->host : "127.0.0.1";
    a->o.timeout = seconds_of(o->timeout, 3600);
    a->o.ping_interval = seconds_of(o->ping_interval, 30);
    a->o.header_timeout = seconds_of(o->header_timeout, 10);
    a->o.max_body = o->max_body ? o->max_body : (uint64_t)16 << 20;
    a->loopback = af_api_is_loopback(a->o.host);
    a->started = (int64_t)time(NULL);
    enum { MOST = AF_SERVE_LIST_MAX };
    AF_TRY(af_need_strings(o->adapter_name, o->adapters, MOST, "adapter_name", err));
    AF_TRY(af_need_strings(o->adapter_path, o->adapters, MOST, "adapter_path", err));
    AF_TRY(af_need_strings(o->cors_origin, o->cors_origins, MOST, "cors_origin", err));
    AF_TRY(af_need_strings(o->allowed_host, o->allowed_hosts, MOST, "allowed_host", err));
    AF_TRY(af_api_add_keys(a, o->api_keys, err));
    if (!a->loopback && a->keys == 0)
        AF_TRY(af_fail_subject(
            err, AF_EUSAGE, "host",
            "'%s' can be reached from other machines, which needs a key (--api-key)", a->o.host));
    if (o->port < 0 || o->port > 65535)
        AF_TRY(
            af_fail_subject(err, AF_EUSAGE, "port", "the port %d is not from 0 to 65535", o->port));
    if (!(o->timeout >= 0 && o->ping_interval >= 0 && o->header_timeout >= 0))
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "timeouts of %g, %g and %g seconds: none may be below 0 (0: the default)",
                       o->timeout, o->header_timeout, o->ping_interval));
    if ((unsigned)o->pooling > AF_POOLING_CLS)
        AF_TRY(af_fail(err, AF_EUSAGE, "pooling %d is not one of 0 to %d", (int)o->pooling,
                       AF_POOLING_CLS));
    a->alias = o->alias ? af_strdup(o->alias) : alias_of(model);
    a->model_path = af_strdup(model);
    if (!a->alias || !a->model_path)
        AF_TRY(af_fail_nomem(err, "names", strlen(model)));
    if (!*a->alias)
        AF_TRY(
            af_fail_subject(err, AF_EUSAGE, "alias", "the model has no name; give one (--alias)"));
done:
    return st;
}

static void api_init(af_api *a)
{
    pthread_mutex_init(&a->models_lock, NULL);
    pthread_mutex_init(&a->grammar_lock, NULL);
    pthread_mutex_init(&a->work.lock, NULL);
    pthread_cond_init(&a->work.changed, NULL);
    a->work.last = &a->work.first;
}

/* The template of --chat-template: by name, or a file. */
static af_status open_template(af_server *s, const char *wanted, af_error *err)
{
    af_api *a = &s->api;
    const af_named_template *named = af_named_template_find(wanted);
    if (!named && !strchr(wanted, '/') && !af_path_is_taken(wanted))
        return af_fail_subject(err, AF_EUSAGE, "chat_template",
                               "chat template '%.200s': it is neither a name of the guide (chatml, "
                               "llama3, gemma3, ...) nor a .jinja file",
                               wanted);
    af_status st = named ? af_template_parse(&s->template, named->jinja, strlen(named->jinja), err)
                         : af_template_open(&s->template, wanted, err);
    if (st != AF_OK)
        return af_fail_prefix(st, err, "chat template '%.200s'", wanted);
    st = af_template_set_tokens(s->template, a->tokenizer, err);
    a->template = s->template;
    a->eot = named ? named->eot : NULL;
    return st;
}

/* Tokenizer and, where there is one, template. */
static af_status open_texts(af_server *s, const af_serve_opts *o, af_error *err)
{
    af_api *a = &s->api;
    af_error why = {0};
    af_status st = af_model_tokenizer(s->model, &a->tokenizer, err);
    if (st == AF_OK && o->chat_template)
        st = open_template(s, o->chat_template, err);
    if (st != AF_OK)
        return st;
    if (!a->template)
        st = af_model_template(s->model, &a->template, &why);
    if (st == AF_ENOMEM)
        return af_fail(err, st, "%s", why.msg);
    if (st != AF_OK)
        a->template = NULL; /* chat is refused with a sentence, the rest works */
    return a->template ? af_template_form(a->template, &a->form, err) : AF_OK;
}

/* 1_Pooling/config.json of sentence-transformers: a name, or, in older versions, a flag each. */
static const char *pooling_of(const json_t *j)
{
    static const char *const flags[][2] = {{"pooling_mode_mean_tokens", "mean"},
                                           {"pooling_mode_lasttoken", "lasttoken"},
                                           {"pooling_mode_cls_token", "cls"},
                                           {"pooling_mode_max_tokens", "max"},
                                           {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"},
                                           {"pooling_mode_weightedmean_tokens", "weightedmean"}};
    const json_t *mode = json_object_get(j, "pooling_mode");
    const char *found = json_string_value(mode);
    for (size_t i = 0; !mode && i < AF_LEN(flags); i++)
        if (json_is_true(json_object_get(j, flags[i][0])))
            found = found ? "of several kinds" : flags[i][1];
    return found ? found : "of several kinds";
}

/* Parts of such a model that are not computed here. */
static void warn_of_modules(const char *dir)
{
    static const char *const known[] = {".Transformer", ".Pooling", ".Normalize"};
    char *path = af_path_join(dir, "modules.json");
    json_t *list = NULL;
    if (path && af_file_exists(path) && af_json_read_file(&list, path, NULL) != AF_OK)
        list = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(m, "type"));
        const char *name = json_string_value(json_object_get(m, "path"));
        size_t k = 0;
        while (type && k < AF_LEN(known) && !af_ends_with(type, known[k]))
            k++;
        if (k == AF_LEN(known))
            af_log_write(AF_LOG_WARN, "embeddings are without '%s' of modules.json (%s)",
                         name ? name : "", type);
    }
    json_decref(list);
    free(path);
}

static af_status read_pooling(af_api *a, const char *model, af_error *err)
{
    static const char *const kinds[] = {
        [AF_POOLING_LAST] = "lasttoken", [AF_POOLING_MEAN] = "mean", [AF_POOLING_CLS] = "cls"};
    af_status st = AF_OK;
    char *dir = NULL, *path = NULL;
    json_t *j = NULL;
    size_t i = 0;
    AF_TRY(af_model_resolve(&dir, model, err));
    warn_of_modules(dir);
    path = af_path_join(dir, "1_Pooling/config.json");
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    if (!af_file_exists(path))
        goto done;
    AF_TRY(af_json_read_file(&j, path, err));
    const char *kind = pooling_of(j);
    while (i < AF_LEN(kinds) && strcmp(kinds[i], kind) != 0)
        i++;
    if (i == AF_LEN(kinds))
        AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                       "%s: pooling %.40s is not supported; choose one with --pooling", path,
                       kind));
    a->o.pooling = (af_pooling)i;
done:
    json_decref(j);
    free(path);
    free(dir);
    return st;
}

static af_status add_adapters(af_server *s, af_decoder *d, const af_serve_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_api *a = &s->api;
    AF_TRY(af_api_add_model(a, a->alias, a->model_path, 0, err));
    s->names[0] = af_strdup(a->alias);
    for (int i = 0; i < o->adapters; i++) {
        af_buf name = {0};
        int id = 0;
        st = af_decoder_add_adapter(d, o->adapter_name[i], o->adapter_path[i], &id, err);
        if (st != AF_OK)
            return af_fail_prefix(st, err, "adapter '%s'", o->adapter_name[i]);
        af_buf_printf(&name, "%s:%s", a->alias, o->adapter_name[i]);
        s->names[i + 1] = af_buf_take(&name);
        if (!s->names[i + 1])
            AF_TRY(af_fail_nomem(err, "names", strlen(o->adapter_name[i])));
        AF_TRY(af_api_add_model(a, s->names[i + 1], o->adapter_path[i], id, err));
    }
done:
    return st;
}

/* The adapter of a run that trains; its weights come when somebody asks for them. */
static af_status add_current(af_server *s, af_error *err)
{
    af_status st = AF_OK;
    af_api *a = &s->api;
    af_buf name = {0};
    af_buf_printf(&name, "%s:current", a->alias);
    if (name.bad)
        AF_TRY(af_fail_nomem(err, "names", name.len));
    AF_TRY(af_api_add_model(a, name.data, a->o.run->output_dir, 0, err));
    a->run->current = af_api_find_model(a, name.data);
    s->names[1] = af_buf_take(&name);
done:
    af_buf_clear(&name);
    return st;
}

static af_status open_engine(af_server *s, const af_serve_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_api *a = &s->api;
    af_decoder *d = NULL;
    const af_decoder_opts dopts = {
        .context = o->context, .sequences = o->parallel, .round_activations = o->round_activations};
    AF_TRY(af_decoder_open(&d, s->model, &dopts, err));
    const int64_t trained = af_spec_context(af_decode_spec(s->model));
    if (trained > 0 && o->context > trained)
        af_log_write(AF_LOG_WARN,
                     "a context of %" PRId64 " tokens is more than the %" PRId64
                     " the model is made for: what it writes after those is often wrong",
                     o->context, trained);
    const af_decoder_counts counts = af_decoder_count(d);
    a->context = counts.context;
    a->parallel = counts.sequences;
    a->vocab = af_model_vocab(s->model);
    a->arch = af_model_arch(s->model);
    a->params = af_model_params(s->model);
    a->width = af_decoder_width(d);
    AF_TRY(add_adapters(s, d, o, err));
    if (a->run && a->o.run->adapter)
        AF_TRY(add_current(s, err));
    AF_TRY(af_serve_engine_open(&a->engine, d, a->parallel, a->run == NULL, err));
    d = NULL;
done:
    af_decoder_close(d);
    return st;
}

static void on_log(void *user, const char *method, const char *path, int status, double seconds)
{
    const af_api *a = user;
    a->o.log(a->o.user, method, path, status, seconds);
}

static af_status listen_on(af_server *s, af_error *err)
{
    af_status st = AF_OK;
    af_api *a = &s->api;
    const af_httpd_opts h = {.host = a->o.host,
                             .port = a->o.port,
                             .header_timeout = a->o.header_timeout,
                             .idle_timeout = 60,
                             .max_body = a->o.max_body,
                             .head = af_api_on_head,
                             .request = af_api_on_request,
                             .error_body = af_api_error_body,
                             .log = a->o.log ? on_log : NULL,
                             .user = a};
    AF_TRY(af_api_start_workers(a, err));
    AF_TRY(af_httpd_open(&a->http, &h, err));
    const bool v6 = strchr(a->o.host, ':') != NULL;
    snprintf(s->url, sizeof s->url, "http://%s%.255s%s:%d", v6 ? "[" : "", a->o.host, v6 ? "]" : "",
             af_httpd_port(a->http));
done:
    return st;
}

af_status af_server_open(af_server **out, const char *model, const af_serve_opts *o, af_error *err)
{
    AF_NEED(err, out, model);
    static const af_serve_opts none = {0};
    af_status st = AF_OK;
    af_error unread;
    err = af_error_or(err, &unread);
    af_server *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "the server", sizeof *s);
    o = o ? o : &none;
    api_init(&s->api);
    AF_TRY(take_opts(&s->api, model, o, err));
    AF_TRY(af_response_store_new(&s->api.responses, err));
    if (o->run)
        AF_TRY(af_run_state_new(&s->api.run, o->run, err));
    af_model_opts opts = o->model;
    opts.headless = true;
    AF_TRY(af_model_open(&s->model, model, &opts, err));
    s->api.headless = !af_model_has_head(s->model);
    if (s->api.headless)
        af_log_write(AF_LOG_WARN, "%s has no head: /v1/embeddings alone is answered", model);
    if (o->own_pooling)
        AF_TRY(read_pooling(&s->api, model, err));
    AF_TRY(open_texts(s, o, err));
    AF_TRY(open_engine(s, o, err));
    AF_TRY(listen_on(s, err));
    s->api.o.run = NULL; /* the caller's, for this call */
    *out = s;
    s = NULL;
done:
    af_server_close(s);
    return st;
}

const char *af_server_url(const af_server *s) { return s ? s->url : ""; }

const char *af_server_model_name(const af_server *s, int i)
{
    return s && i >= 0 && i <= AF_SERVE_LIST_MAX ? s->names[i] : NULL;
}

bool af_server_drain(af_server *s, double seconds)
{
    return !s || af_httpd_drain(s->api.http, seconds);
}

void af_server_close(af_server *s)
{
    if (!s)
        return;
    af_api *a = &s->api;
    af_httpd_stop(a->http);
    af_api_stop_workers(a);
    af_serve_engine_close(a->engine);
    af_run_state_free(a->run);
    af_httpd_close(a->http); /* the last: requests refer to it */
    while (a->models) {
        af_served *m = a->models;
        a->models = m->next;
        af_served_unref(m);
    }
    for (int i = 0; i < AF_API_GRAMMARS; i++)
        af_kept_grammar_release(a->grammars[i]);
    af_grammar_vocab_close(a->grammar_vocab);
    af_response_store_free(a->responses);
    af_template_close(s->template);
    af_model_close(s->model);
    pthread_cond_destroy(&a->work.changed);
    pthread_mutex_destroy(&a->work.lock);
    pthread_mutex_destroy(&a->grammar_lock);
    pthread_mutex_destroy(&a->models_lock);
    for (int i = 0; i <= AF_SERVE_LIST_MAX; i++)
        free(s->names[i]);
    free(a->alias);
    free(a->model_path);
    free(s);
}
