/* adapters.c - adapters loaded and unloaded at run time, by vLLM's names. */
#include "serve/api/generation.h"
#include "serve/api/run_state.h"

typedef struct af_adapter_task {
    af_serve_task task; /* first */
    af_api *api;
    af_httpd_call *call;
    char *name, *full, *path; /* NAME, BASE:NAME, the folder (NULL: unload) */
    af_served *removed;       /* off the list, until the decoder lets it go */
    bool done;
} af_adapter_task;

static void answer(af_adapter_task *t, const af_api_fault *f)
{
    af_buf text = {0};
    t->done = true;
    if (f) {
        af_api_refuse_fault(t->call, f);
        return;
    }
    af_buf_printf(&text, "Success: LoRA adapter '%s' %s successfully.", t->name,
                  t->path ? "added" : "removed");
    af_httpd_answer(t->call, 200, "text/plain; charset=utf-8", text.data ? text.data : "",
                    text.len);
    af_buf_clear(&text);
}

static void load(af_adapter_task *t, af_decoder *d)
{
    af_api_fault f = {0};
    int id = 0;
    af_served *known = af_api_find_model(t->api, t->full);
    af_status st = AF_OK;
    if (known)
        st = af_fail_subject(&f.err, AF_EUSAGE, "lora_name", "the adapter '%s' is loaded already",
                             t->name);
    af_served_unref(known);
    if (st == AF_OK)
        st = af_decoder_add_adapter(d, t->name, t->path, &id, &f.err);
    if (st == AF_OK) {
        st = af_api_add_model(t->api, t->full, t->path, id, &f.err);
        if (st != AF_OK)
            (void)!af_decoder_remove_adapter(d, id, NULL);
    }
    if (st == AF_EIO)
        f.status = 400; /* the folder is the request's */
    answer(t, st == AF_OK ? NULL : &f);
}

static void begin(af_serve_task *task, af_decoder *d)
{
    af_adapter_task *t = (af_adapter_task *)task;
    if (t->path)
        load(t, d);
}

/* An adapter goes when the last request for it is done, also one that a worker still reads: its
 * place may be another adapter's soon. No new one finds it. */
static bool poll(af_serve_task *task, af_decoder *d)
{
    af_adapter_task *t = (af_adapter_task *)task;
    if (!t->done && !t->path && atomic_load(&t->removed->refs) == 1 &&
        af_decoder_remove_adapter(d, t->removed->adapter, NULL) == AF_OK)
        answer(t, NULL);
    return t->done;
}

static void fail(af_serve_task *task, af_decoder *d, const af_error *why)
{
    af_adapter_task *t = (af_adapter_task *)task;
    (void)d;
    if (!t->done)
        answer(t, &(af_api_fault){.err = *why});
}

static void end(af_serve_task *task)
{
    af_adapter_task *t = (af_adapter_task *)task;
    af_httpd_call_unref(t->call);
    af_served_unref(t->removed);
    free(t->name);
    free(t->full);
    free(t->path);
    free(t);
}

/* Paths of this machine are only for its own users and for those with a key. */
static bool is_trusted(const af_api *a, af_httpd_call *c)
{
    if (a->loopback || a->keys)
        return true;
    af_api_refuse(c, 403, NULL, NULL,
                  "adapters can be changed on a loopback address or with a key only");
    return false;
}

static af_status read_request(af_adapter_task *t, const json_t *body, bool loads, af_api_fault *f)
{
    af_status st = AF_OK;
    const char *name = NULL, *path = NULL;
    AF_TRY(af_value_string(body, "lora_name", &name, &f->err));
    AF_TRY(af_value_string(body, "lora_path", &path, &f->err));
    if (!name || !*name)
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "lora_name", "'lora_name' is absent"));
    if (loads && (!path || !*path))
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "lora_path", "'lora_path' is absent"));
    const size_t base = strlen(t->api->alias); /* the full name is a name, too */
    if (strncmp(name, t->api->alias, base) == 0 && name[base] == ':')
        name += base + 1;
    af_buf full = {0};
    af_buf_printf(&full, "%s:%s", t->api->alias, name);
    t->full = af_buf_take(&full);
    t->name = af_strdup(name);
    t->path = loads ? af_strdup(path) : NULL;
    if (!t->full || !t->name || (loads && !t->path))
        AF_TRY(af_fail_nomem(&f->err, "a name", strlen(name)));
    if (!loads && t->api->run && t->api->run->current &&
        strcmp(t->full, t->api->run->current->name) == 0)
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "lora_name",
                               "'%s' is the adapter that the run trains", t->full));
    if (!loads)
        t->removed = af_api_remove_model(t->api, t->full);
    if (!loads && !t->removed) {
        f->status = 404;
        f->code = "model_not_found";
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "lora_name",
                               "the adapter '%.200s' is not loaded", name));
    }
done:
    return st;
}

static void change(af_api *a, af_httpd_call *c, const json_t *body, bool loads)
{
    af_api_fault f = {0};
    if (!is_trusted(a, c))
        return;
    af_adapter_task *t = af_calloc(1, sizeof *t);
    if (!t) {
        af_api_refuse(c, 500, NULL, NULL, "out of memory");
        return;
    }
    t->api = a;
    t->call = af_httpd_call_ref(c);
    t->task = (af_serve_task){.begin = begin, .poll = poll, .fail = fail, .end = end};
    af_status st = read_request(t, body, loads, &f);
    if (st == AF_OK && !af_serve_engine_add(a->engine, &t->task))
        st = af_fail(&f.err, AF_ESTOPPED, "the server is shutting down");
    if (st != AF_OK) {
        af_api_refuse_fault(c, &f);
        end(&t->task);
    }
}

void af_api_load_adapter(af_api *a, af_httpd_call *c, const json_t *body)
{
    change(a, c, body, true);
}
void af_api_unload_adapter(af_api *a, af_httpd_call *c, const json_t *body)
{
    change(a, c, body, false);
}
