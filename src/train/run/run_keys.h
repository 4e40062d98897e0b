/* run_keys.h - the table of keys. */
#ifndef AF_RUN_KEYS_H
#define AF_RUN_KEYS_H

#include "base/buf.h"
#include "train/run/run_config.h"

typedef enum af_key_kind {
    AF_KEY_STR,
    AF_KEY_BOOL,
    AF_KEY_TRI, /* true, false or auto */
    AF_KEY_I64,
    AF_KEY_F64,
    AF_KEY_LIST, /* strings; a single string counts as a list of one */
    AF_KEY_ENUM,
    AF_KEY_TREE, /* kept as YAML */
} af_key_kind;

/* When a key has an effect. Given where it has none, it is an error. */
typedef enum af_key_need {
    AF_NEED_NOTHING,
    AF_NEED_ADAPTER,
    AF_NEED_NEW_ADAPTER, /* with lora_model_dir the value may be repeated, if it agrees */
    AF_NEED_PACKING,
    AF_NEED_EVAL,
    AF_NEED_COSINE,
    AF_NEED_POLYNOMIAL,
    AF_NEED_RESTARTS,
    AF_NEED_WSD,
    AF_NEED_ADAM,
    AF_NEED_ROOT, /* an optimizer that divides by a root */
    AF_NEED_SGD,
    AF_NEED_SAMPLES,
    AF_NEED_PLUS, /* LoRA+ */
} af_key_need;

typedef struct af_key_word {
    const char *word;
    int value;
} af_key_word;

typedef struct af_key {
    const char *name;
    af_key_kind kind;
    size_t place;
    double min, max;    /* of numbers; of the length of lists when max > 0 */
    const char *preset; /* default, as YAML text; NULL = none */
    const char *help;
    const char *alias[5];
    af_key_need need;
    const af_key_word *words; /* AF_KEY_ENUM, ends with {0} */
} af_key;

extern const af_key af_keys[];
extern const int af_keys_count;
const af_key *af_key_find(const char *name); /* by name or alias; NULL */
/* The known key nearest to a wrong one, or NULL when none is near. */
const char *af_key_suggest(const char *given);
/* What to do instead of a key that other trainers have and this one does not; NULL = not known. */
const char *af_key_foreign(const char *name);
/* Such a key that is left empty, or says no to what is not done anyway. */
bool af_key_asks_nothing(const char *name, const af_yaml *value);
/* Is there in this run what such a key needs? */
bool af_key_has_effect(const af_run_config *r, af_key_need need);
/* The checks of a parsed run; fills in what follows from other keys. */
AF_CHECKED af_status af_run_config_check(af_run_config *r, bool for_training, af_error *err);
/* A string in double quotes that YAML and JSON read back as it was. */
void af_put_quoted(af_buf *b, const char *s);
#endif
