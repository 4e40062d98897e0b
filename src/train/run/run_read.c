/* run_read.c - a run file from disk, and the adapters of the hub that it names. */
#include "base/file.h"
#include "format/hub/hub_name.h"
#include "train/run/run_keys.h"

#include <limits.h>

/* An adapter may be ORG/NAME of the hub; from here on it is the folder. */
static af_status find_adapter(af_run_config *run, const char *key, const char **place,
                              af_error *err)
{
    char at[300], *dir = NULL;
    if (!*place || af_path_is_taken(*place) || !af_hub_is_name(*place))
        return AF_OK;
    af_status st = af_hub_snapshot(&dir, AF_HUB_MODEL, *place, NULL, NULL, 0, err);
    if (st != AF_OK)
        return af_fail_prefix(st, err, "%s", af_run_key_loc(run, key, at, sizeof at));
    *place = af_arena_strndup(&run->mem, dir, strlen(dir));
    if (!*place)
        st = af_fail_nomem(err, "a path", strlen(dir));
    free(dir);
    return st;
}

af_status af_run_config_read(af_run_config *out, const char *path, const char *const *overrides,
                             int count, af_error *err)
{
    af_status st = af_need_strings(overrides, count, INT_MAX, "overrides", err);
    if (st != AF_OK)
        return st;
    const bool piped = strcmp(path, "-") == 0;
    char *text = NULL;
    uint64_t size = 0;
    if (af_dir_exists(path))
        return af_fail(err, AF_EUSAGE,
                       "'%s' is a folder, not a run file (afinar init MODEL DATASET writes one)",
                       path);
    st = af_file_read(&text, &size, piped ? "/dev/stdin" : path, AF_YAML_BYTES_MAX, err);
    if (st == AF_OK)
        st = af_run_config_parse(out, text, size, piped ? "stdin" : path, overrides, count, err);
    free(text);
    if (st == AF_OK) {
        st = find_adapter(out, "lora_model_dir", &out->lora_model_dir, err);
        if (st == AF_OK)
            st = find_adapter(out, "teacher_adapter", &out->teacher_adapter, err);
        if (st != AF_OK)
            af_run_config_clear(out);
    }
    return st;
}
