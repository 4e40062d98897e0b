/* next_steps.c - see next_steps.h. */
#include "train/report/next_steps.h"
#include "base/file.h"
#include "convert/gguf/gguf_check.h"
#include "convert/gguf/gguf_meta.h"
#include "train/run/freeze.h"

/* One argument of a shell command, quoted where the shell would change it. */
static void shell_put(af_buf *b, const char *arg)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%";
    if (*arg && strspn(arg, plain) == strlen(arg)) {
        af_buf_str(b, arg);
        return;
    }
    af_buf_char(b, '\'');
    for (const char *s = arg; *s; s++)
        if (*s == '\'')
            af_buf_str(b, "'\\''"); /* nothing has a meaning inside quotes but the quote itself */
        else
            af_buf_char(b, *s);
    af_buf_char(b, '\'');
}

static void put_arg(af_buf *b, const char *arg)
{
    af_buf_char(b, ' ');
    shell_put(b, arg);
}

static bool sets(const char *override, const char *key)
{
    const size_t n = strlen(key);
    return strncmp(override, key, n) == 0 && override[n] == '=';
}

char *af_resume_command(const char *run_file, const char *const *overrides, int count,
                        const af_run_config *run)
{
    af_buf b = {0}, own = {0};
    const bool again = af_file_exists(run_file);
    af_buf_printf(&own, "%s/run.yaml", run->output_dir);
    af_buf_str(&b, "afinar train");
    put_arg(&b, again || own.bad ? run_file : own.data);
    for (int i = 0; again && i < count; i++)
        if (!sets(overrides[i], "resume_from_checkpoint") &&
            !sets(overrides[i], "overwrite_output_dir") &&
            !sets(overrides[i], "auto_resume_from_checkpoints"))
            put_arg(&b, overrides[i]);
    if (run->overwrite_output_dir) /* of the run file: it would contradict the next one */
        af_buf_str(&b, " overwrite_output_dir=false");
    af_buf_str(&b, " resume_from_checkpoint=auto");
    b.bad |= own.bad;
    char *text = af_buf_take(&b);
    af_buf_clear(&b);
    af_buf_clear(&own);
    return text;
}

static void put_model(af_buf *b, const char *command, const af_run_config *run)
{
    const bool whole = af_method_trains_base(run);
    af_buf_printf(b, "afinar %s", command);
    put_arg(b, whole ? run->output_dir : run->base_model);
    if (whole)
        return;
    af_buf_str(b, " --adapter");
    put_arg(b, run->output_dir);
}

/* The name next to the output folder: "out" and "-merged" give "out-merged". */
static void put_sibling(af_buf *b, const char *dir, const char *tail)
{
    af_buf name = {0};
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    af_buf_add(&name, dir, n);
    af_buf_str(&name, tail);
    af_buf_str(b, " -o");
    put_arg(b, name.bad ? tail : name.data);
    b->bad |= name.bad;
    af_buf_clear(&name);
}

static bool gguf_holds(const af_run_model *m)
{
    return !af_dir_exists(m->path) ||
           (af_gguf_check_supported(m->spec, NULL) == AF_OK &&
            af_gguf_check_tokenizer(m->path, m->spec->arch->model_type, NULL) == AF_OK);
}

void af_next_commands(af_buf *b, const af_run_config *run, const af_run_model *m, bool chat)
{
    if (af_run_scores(run)) {
        put_model(b, "classify", run);
        af_buf_str(b, " -p 'Your text'\n");
        return;
    }
    put_model(b, "generate", run);
    af_buf_printf(b, "%s -p 'Your prompt'\n", chat ? " --chat" : "");
    if (!af_method_trains_base(run)) {
        put_model(b, "merge", run);
        put_sibling(b, run->output_dir, "-merged");
        af_buf_char(b, '\n');
    }
    if (gguf_holds(m)) {
        put_model(b, "export", run);
        put_sibling(b, run->output_dir, ".gguf");
        /* blocks of 32 with a scale and a minimum: what qat rounds to; its floats no mix has */
        const bool int4 = run->qat_type == AF_QAT_INT4;
        af_buf_printf(b, " --type %s\n",
                      int4 && run->qat_group == 32 ? "q4_1"
                      : run->qat_type && !int4     ? "q8_0"
                                                   : "q4_k_m");
    }
}
