/* run_key_access.c - values of the keys of run_keys.c, and finding a key by its name. */
#include "base/word.h"
#include "train/run/run_foreign.h"
#include "train/run/run_keys.h"

/* ---- values ---- */

af_key_value af_key_get(const af_run_config *r, const af_key *k)
{
    const void *at = (const char *)r + k->offset;
    switch (k->kind) {
    case AF_KEY_STR:
        return (af_key_value){.str = *(const char *const *)at};
    case AF_KEY_BOOL:
        return (af_key_value){.flag = *(const bool *)at};
    case AF_KEY_I64:
        return (af_key_value){.i64 = *(const int64_t *)at};
    case AF_KEY_F64:
        return (af_key_value){.f64 = *(const double *)at};
    case AF_KEY_LIST:
        return (af_key_value){.list = *(const af_strings *)at};
    case AF_KEY_TREE:
        return (af_key_value){.tree = *(const af_yaml *const *)at};
    case AF_KEY_TRI:
    case AF_KEY_ENUM:
        break;
    }
    return (af_key_value){.choice = k->choices->get(r)};
}

void af_key_set(af_run_config *r, const af_key *k, af_key_value v)
{
    void *at = (char *)r + k->offset;
    switch (k->kind) {
    case AF_KEY_STR:
        *(const char **)at = v.str;
        break;
    case AF_KEY_BOOL:
        *(bool *)at = v.flag;
        break;
    case AF_KEY_I64:
        *(int64_t *)at = v.i64;
        break;
    case AF_KEY_F64:
        *(double *)at = v.f64;
        break;
    case AF_KEY_LIST:
        *(af_strings *)at = v.list;
        break;
    case AF_KEY_TREE:
        *(const af_yaml **)at = v.tree;
        break;
    case AF_KEY_TRI:
    case AF_KEY_ENUM:
        k->choices->set(r, v.choice);
    }
}

const char *af_key_choice_name(const af_key *k, int value)
{
    const af_key_choice *c = k->choices->names;
    while (c->name && c->value != value)
        c++;
    return c->name ? c->name : "?";
}

const char *af_key_kind_name(const af_key *k)
{
    static const char *const names[] = {
        [AF_KEY_STR] = "text",
        [AF_KEY_BOOL] = "true or false",
        [AF_KEY_TRI] = "true, false or auto",
        [AF_KEY_I64] = "whole number",
        [AF_KEY_F64] = "number",
        [AF_KEY_LIST] = "list of names",
        [AF_KEY_ENUM] = "name",
        [AF_KEY_TREE] = "list of maps",
    };
    return names[k->kind];
}

void af_run_keys_each(void (*visit)(void *user, const af_key *k), void *user)
{
    for (int i = 0; i < af_keys_count; i++)
        visit(user, &af_keys[i]);
}

/* ---- names ---- */

const af_key *af_key_find(const char *name)
{
    for (int i = 0; i < af_keys_count; i++) {
        if (strcmp(af_keys[i].name, name) == 0)
            return &af_keys[i];
        for (size_t k = 0; k < AF_LEN(af_keys[i].alias) && af_keys[i].alias[k]; k++)
            if (strcmp(af_keys[i].alias[k], name) == 0)
                return &af_keys[i];
    }
    return NULL;
}

static bool has_word(const char *name, const char *word, size_t len)
{
    for (size_t n; *name; name += n + (name[n] != '\0')) {
        n = strcspn(name, "_");
        if (n == len && strncmp(name, word, n) == 0)
            return true;
    }
    return false;
}

/* Whether `name` contains every word of `wrong`: "neftune_alpha" means "neftune_noise_alpha". */
static bool has_parts(const char *name, const char *wrong)
{
    int n = 0;
    for (size_t len; *wrong; n++) {
        len = strcspn(wrong, "_-");
        if (!has_word(name, wrong, len))
            return false;
        wrong += len + (wrong[len] != '\0');
    }
    return n > 0;
}

/* Edit distance of a wrong key from a known one; parts of a name, or a name with a suffix, are
 * near.
 */
static int distance(const char *wrong, const char *name)
{
    enum { PART = 4, WHOLE = 6, NEAR = 2, FAR = 100 };
    if (strlen(wrong) <= PART && wrong[0] != name[0])
        return FAR; /* "trl" is not "lr" */
    const int d = af_word_distance(wrong, name);
    const bool part = strlen(wrong) >= PART && has_parts(name, wrong);
    const bool whole = strlen(name) >= WHOLE && strncmp(wrong, name, strlen(name)) == 0;
    return part || whole ? AF_MIN(d, NEAR) : d;
}

const char *af_key_suggest(const char *unknown)
{
    const char *best = NULL;
    int least = 0, least_letters = 0;
    char wrong[128]; /* in lower case, as all keys are; no key is as long */
    size_t n = 0;
    for (; n < sizeof wrong - 1 && unknown[n]; n++)
        wrong[n] =
            (char)(unknown[n] >= 'A' && unknown[n] <= 'Z' ? unknown[n] + ('a' - 'A') : unknown[n]);
    wrong[n] = '\0';
    const int length = (int)strlen(wrong), most = AF_MIN(AF_MAX(2, length / 4), length - 1);
    for (int i = 0; i < af_keys_count; i++) {
        const af_key *k = &af_keys[i];
        for (int w = -1; w < (int)AF_LEN(k->alias) && (w < 0 || k->alias[w]); w++) {
            const char *name = w < 0 ? k->name : k->alias[w];
            const int far = distance(wrong, name), letters = af_word_distance(wrong, name);
            if (far > most || (best && (far > least || (far == least && letters >= least_letters))))
                continue;
            best = k->name;
            least = far;
            least_letters = letters;
        }
    }
    return best ? best : af_foreign_suggest(wrong, most);
}
