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

af_status af_run_idle_add(af_run_config *r, const char *key, int line, const char *why,
                          af_error *err)
{
    char at[300];
    if (r->strict)
        return af_fail(err, AF_EUSAGE, "%s: '%s' has no effect here: %s (the run is strict)",
                       place(r, line, at, sizeof at), key, why);
    af_idle_key *k = af_arena_take(&r->mem, sizeof *k);
    if (!k)
        return af_fail_nomem(err, key, sizeof *k);
    *k = (af_idle_key){.key = key, .why = why, .line = line};
    *(r->last_idle ? &r->last_idle->next : &r->idle) = k;
    r->last_idle = k;
    r->idle_count++;
    return AF_OK;
}

bool af_run_idle_text(const af_run_config *r, char *buf, size_t size)
{
    if (r->idle_count == 1)
        snprintf(buf, size, "'%s' has no effect here: %s", r->idle->key, r->idle->why);
    else
        snprintf(buf, size, "%d keys have no effect here; -v lists them", r->idle_count);
    return r->idle_count > 0;
}

void af_run_idle_log(const af_run_config *r)
{
    char at[300];
    for (const af_idle_key *k = r->idle; k; k = k->next)
        af_log_write(AF_LOG_DEBUG, "%s: '%s' has no effect here: %s",
                     place(r, k->line, at, sizeof at), k->key, k->why);
}
