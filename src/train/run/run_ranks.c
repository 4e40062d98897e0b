/* run_ranks.c - the stage of ZeRO that a run asks for, in its own words, DeepSpeed's or FSDP's.
 *
 * With one process nothing is split, so these keys are read only where ranks (or a plan for them)
 * are: a file that came from another trainer still runs alone. */
#include "base/file.h"
#include "train/run/run_keys.h"

enum { CONFIG_MAX = 1 << 20, STAGE_NONE = -1 };

/* What a key says, and where. */
typedef struct stage_source {
    int stage;
    const char *key;
} stage_source;

static af_status refuse(const af_run_config *r, const char *key, af_error *err, const char *what)
{
    char at[300];
    return af_fail(err, AF_EUSAGE,
                   "%s: %s: %s is not supported; memory modes are chosen by "
                   "'afinar plan', and weights are split by zero_stage: 3",
                   af_run_key_loc(r, key, at, sizeof at), key, what);
}

/* "auto" leaves the choice to the trainer. */
static bool asks_nothing(const af_yaml *n)
{
    return !n || af_yaml_is_null(n) || (n->kind == AF_YAML_SCALAR && strcmp(n->text, "auto") == 0);
}

/* offload_optimizer: {device: cpu} */
static bool offloads(const af_yaml *n)
{
    const af_yaml *device = n && n->kind == AF_YAML_MAP ? af_yaml_get(n, "device") : NULL;
    return device && device->kind == AF_YAML_SCALAR && strcmp(device->text, "none") != 0;
}

static af_status read_zero(const af_run_config *r, const af_yaml *root, int *stage, af_error *err)
{
    char at[300], text[64];
    int64_t n;
    const af_yaml *zero = root->kind == AF_YAML_MAP ? af_yaml_get(root, "zero_optimization") : NULL;
    *stage = 0; /* DeepSpeed's default */
    if (!zero || zero->kind != AF_YAML_MAP)
        return AF_OK;
    if (offloads(af_yaml_get(zero, "offload_optimizer")))
        return refuse(r, "deepspeed", err, "offload_optimizer");
    if (offloads(af_yaml_get(zero, "offload_param")))
        return refuse(r, "deepspeed", err, "offload_param");
    const af_yaml *s = af_yaml_get(zero, "stage");
    if (asks_nothing(s))
        return AF_OK;
    if (!af_yaml_i64(s, &n) || n < 0 || n > 3)
        return af_fail(err, AF_EUSAGE, "%s: deepspeed: zero_optimization.stage is %s, not 0 to 3",
                       af_run_key_loc(r, "deepspeed", at, sizeof at),
                       af_yaml_show(s, text, sizeof text));
    *stage = (int)n;
    return AF_OK;
}

static af_status read_deepspeed(const af_run_config *r, stage_source *out, af_error *err)
{
    const af_yaml *d = r->deepspeed;
    char at[300], *text = NULL;
    af_arena mem = {0};
    af_yaml *root = NULL;
    uint64_t size;
    *out = (stage_source){STAGE_NONE, "deepspeed"};
    if (asks_nothing(d))
        return AF_OK;
    if (d->kind != AF_YAML_SCALAR)
        return read_zero(r, d, &out->stage, err);
    af_status st = af_file_read(&text, &size, d->text, CONFIG_MAX, err);
    if (st == AF_OK) /* JSON is YAML */
        st = af_yaml_parse(&root, &mem, text, size, d->text, err);
    if (st == AF_OK)
        st = read_zero(r, root, &out->stage, err);
    else
        st =
            af_fail_prefix(st, err, "%s: deepspeed", af_run_key_loc(r, "deepspeed", at, sizeof at));
    af_arena_clear(&mem);
    free(text);
    return st;
}

/* One word of 'fsdp: full_shard auto_wrap'. */
static af_status read_word(const af_run_config *r, const char *word, size_t n, int *stage,
                           af_error *err)
{
    static const struct {
        const char *name;
        int stage;
    } words[] = {{"full_shard", 3},         {"shard_grad_op", 2}, {"no_shard", 0},
                 {"auto_wrap", STAGE_NONE}, {"true", STAGE_NONE}, {"false", STAGE_NONE}};
    char at[300];
    for (size_t i = 0; i < AF_LEN(words); i++)
        if (strlen(words[i].name) == n && memcmp(words[i].name, word, n) == 0) {
            *stage = words[i].stage == STAGE_NONE ? *stage : words[i].stage;
            return AF_OK;
        }
    return af_fail(err, AF_EUSAGE,
                   "%s: fsdp: '%.*s' is not supported: full_shard, shard_grad_op or "
                   "no_shard",
                   af_run_key_loc(r, "fsdp", at, sizeof at), (int)n, word);
}

static af_status read_words(const af_run_config *r, const char *text, int *stage, af_error *err)
{
    af_status st = AF_OK;
    for (const char *p = text; *p && st == AF_OK;) {
        const size_t n = strcspn(p, " ,");
        if (n)
            st = read_word(r, p, n, stage, err);
        p += n + (p[n] != '\0');
    }
    return st;
}

static const af_yaml *config_key(const af_yaml *map, const char *key, const char *prefixed)
{
    const af_yaml *n = map && map->kind == AF_YAML_MAP ? af_yaml_get(map, key) : NULL;
    return n || !map || map->kind != AF_YAML_MAP ? n : af_yaml_get(map, prefixed);
}

static af_status read_fsdp(const af_run_config *r, stage_source *out, af_error *err)
{
    const af_yaml *f = r->fsdp, *c = r->fsdp_config;
    af_status st = AF_OK;
    bool yes;
    *out = (stage_source){STAGE_NONE, "fsdp"};
    if (f && f->kind == AF_YAML_SCALAR && !asks_nothing(f))
        st = read_words(r, f->text, &out->stage, err);
    for (int i = 0; f && f->kind == AF_YAML_LIST && i < f->count && st == AF_OK; i++)
        if (f->item[i]->kind == AF_YAML_SCALAR)
            st = read_words(r, f->item[i]->text, &out->stage, err);
    const af_yaml *offload = config_key(c, "offload_params", "fsdp_offload_params");
    if (st == AF_OK && offload && af_yaml_bool(offload, &yes) && yes)
        st = refuse(r, "fsdp_config", err, "offload_params");
    const af_yaml *again = config_key(c, "reshard_after_forward", "fsdp_reshard_after_forward");
    if (st == AF_OK && again && af_yaml_bool(again, &yes))
        *out = (stage_source){yes ? 3 : 2, "fsdp_config"};
    else if (st == AF_OK && out->stage == STAGE_NONE && (c || (f && !asks_nothing(f))))
        out->stage =
            f && f->kind == AF_YAML_SCALAR && strcmp(f->text, "false") == 0 ? STAGE_NONE : 3;
    return st;
}

af_status af_run_zero_stage(const af_run_config *r, int *stage, af_error *err)
{
    stage_source s[3] = {
        {af_run_key_is_set(r, "zero_stage") ? (int)r->zero_stage : STAGE_NONE, "zero_stage"}};
    const stage_source *first = NULL;
    af_status st = AF_OK;
    char at[300];
    AF_TRY(read_deepspeed(r, &s[1], err));
    AF_TRY(read_fsdp(r, &s[2], err));
    for (size_t i = 0; i < AF_LEN(s); i++) {
        if (s[i].stage == STAGE_NONE)
            continue;
        if (first && first->stage != s[i].stage)
            return af_fail(err, AF_EUSAGE, "%s: %s asks for stage %d of ZeRO, and %s for stage %d",
                           af_run_key_loc(r, s[i].key, at, sizeof at), s[i].key, s[i].stage,
                           first->key, first->stage);
        first = first ? first : &s[i];
    }
    *stage = first ? first->stage : 0;
done:
    return st;
}

static bool is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

af_status af_run_order_check(const af_run_config *r, int ranks, int stage, af_error *err)
{
    const bool power = is_power_of_two(ranks);
    if (ranks == 1 || r->order == AF_ORDER_SEQUENTIAL || (power && r->order == AF_ORDER_TREE))
        return AF_OK;
    if (r->order == AF_ORDER_TREE)
        return af_fail(err, AF_EUSAGE,
                       "%d ranks: use a power of two, or gradient_accumulation_order: any_ranks "
                       "(one process gives the same bits with it), or sequential",
                       ranks);
    if (is_power_of_two(r->accumulation) || (power && stage < 2))
        return AF_OK;
    return af_fail(err, AF_EUSAGE,
                   "%d ranks with gradient_accumulation_order any_ranks and zero_stage %d: "
                   "gradient_accumulation_steps is %" PRId64 "; it must be a power of two",
                   ranks, stage, r->accumulation);
}

int af_run_order_stage(const af_run_config *r, int ranks, int stage)
{
    const bool each = r->order == AF_ORDER_ANY_RANKS && !is_power_of_two(ranks);
    return each && r->accumulation > 1 ? AF_MAX(stage, 2) : stage;
}
