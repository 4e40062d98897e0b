/* run_idle.c - keys of a run file that have no effect in this run. */
#include "base/log.h"
#include "train/run/run_keys.h"

static const char *place(const af_run_config *r, int line, char *buf, size_t size)
{
    if (line > 0)
        snprintf(buf, size, "%s:%d", r->path, line);
    else
        snprintf(buf, size, "%s", r->override);
    return buf;
}

static af_status add(af_idle_keys *list, af_idle_key k, af_error *err)
{
    for (const af_idle_key *old = list->first; old; old = old->next)
        if (strcmp(old->key, k.key) == 0)
            return AF_OK;
    af_idle_key *new = af_arena_take(list->mem, sizeof *new);
    if (!new)
        return af_fail_nomem(err, k.key, sizeof *new);
    *new = k;
    *(list->last ? &list->last->next : &list->first) = new;
    list->last = new;
    list->count++;
    return AF_OK;
}

af_status af_run_idle_add(const af_run_config *r, const char *key, int line, const char *why,
                          af_error *err)
{
    char at[300];
    if (r->strict)
        return af_fail(err, AF_EUSAGE, "%s: '%s' has no effect here: %s (the run is strict)",
                       place(r, line, at, sizeof at), key, why);
    return add(r->idle, (af_idle_key){.key = key, .why = why, .line = line}, err);
}

af_status af_run_instead_add(const af_run_config *r, const char *key, int line, const char *why,
                             int need, af_error *err)
{
    return add(r->instead, (af_idle_key){.key = key, .why = why, .line = line, .need = need}, err);
}

af_status af_run_idle_key(const af_run_config *r, const char *key, const char *why, af_error *err)
{
    char at[300];
    const int line = af_run_key_line(r, key);
    const char *name = r->key_name[af_key_find(key) - af_keys]; /* in the file */
    return line > 0 ? af_run_idle_add(r, name ? name : key, line, why, err)
                    : af_fail(err, AF_EUSAGE, "%s: %s has no effect: %s",
                              af_run_key_loc(r, key, at, sizeof at), key, why);
}

bool af_run_idle_text(const af_run_config *r, char *buf, size_t size)
{
    const af_idle_keys *idle = r->idle;
    if (idle->count == 1)
        snprintf(buf, size, "'%s' has no effect here: %s", idle->first->key, idle->first->why);
    else
        snprintf(buf, size, "%d keys have no effect here; -v lists them", idle->count);
    return idle->count > 0;
}

void af_run_idle_log(const af_run_config *r)
{
    char at[300];
    for (const af_idle_key *k = r->idle->first; k; k = k->next)
        af_log_write(AF_LOG_DEBUG, "%s: '%s' has no effect here: %s",
                     place(r, k->line, at, sizeof at), k->key, k->why);
}
