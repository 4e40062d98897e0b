/* merge_adapters.c - adapters into their base: af_merge_adapters.
 *
 * Every changed tensor is computed in f32 from the base's values and rounded once to the type it is
 * written in. */
#include "afinar/convert.h"
#include "base/log.h"
#include "convert/adapter/adapter_combine.h"
#include "convert/output/model_card.h"
#include "convert/output/model_out.h"
#include "model/adapter_config.h"
#include "model/arch/arch_disk.h"
#include "model/labels/label_config.h"

#include <math.h>

/* Changes of modules outside the text model: of one adapter as it is, into weights of this form. */
static af_status check_outside(const af_model_reader *in, const af_adapter *a, const char *name,
                               bool alone, af_error *err)
{
    int found = 0;
    for (int i = 0; i < in->count; i++)
        found += af_model_reader_other(in, a, &in->tensor[i]) != NULL;
    if (!a->other_forms && (a->others == 0 || (alone && found == a->others)))
        return AF_OK;
    return af_fail(err, AF_EUNSUPPORTED,
                   "'%s' also changes modules outside of the text model, in a way that is not "
                   "merged here (plain LoRA alone, with a weight of 1, is); PEFT can merge it",
                   name);
}

static af_status read_adapters(af_adapter **out, af_model_reader *in,
                               const af_merge_adapter_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_adapter *one[AF_MERGE_ADAPTERS_MAX] = {0};
    af_combine_opts c = {.density = o->density > 0 ? o->density : 0.5, .seed = o->seed};
    char *dir = NULL;
    if (o->adapters < 1 || o->adapters > AF_MERGE_ADAPTERS_MAX)
        return af_fail(err, AF_EUSAGE, "%d adapters; 1 to %d can be merged", o->adapters,
                       AF_MERGE_ADAPTERS_MAX);
    AF_TRY(af_need_strings(o->adapter, o->adapters, AF_MERGE_ADAPTERS_MAX, "adapter", err));
    for (int i = 0; i < o->adapters; i++)
        if (!isfinite(o->weight[i]))
            return af_fail(err, AF_EUSAGE, "the weight of adapter '%s' is %g", o->adapter[i],
                           o->weight[i]);
    if (o->combine && !af_combine_by_name(&c.how, o->combine))
        return af_fail(err, AF_EUSAGE,
                       "combination '%.40s' is not one of linear, cat, ties, dare_linear, "
                       "dare_ties, magnitude_prune",
                       o->combine);
    if (!(o->density >= 0 && o->density <= 1))
        return af_fail(err, AF_EUSAGE, "density %g is not between 0 and 1", o->density);
    in->may_resize = o->adapters == 1 && o->weight[0] == 1 && !o->adapter_only;
    in->keep_tied = in->peft_only = o->adapter_only;
    for (int i = 0; i < o->adapters; i++) {
        free(dir);
        dir = NULL;
        st = af_model_resolve(&dir, o->adapter[i], err);
        if (st != AF_OK)
            AF_TRY(af_fail_prefix(st, err, "adapter '%s'", o->adapter[i]));
        AF_TRY(af_model_reader_read_adapter(in, dir, &one[i], err));
        AF_TRY(check_outside(in, one[i], o->adapter[i], in->may_resize, err));
        if (!in->may_resize)
            AF_TRY(af_adapter_expand(one[i], o->adapter[i], 0, err));
        if (one[i]->config.type != AF_PEFT_LORA && !in->may_resize)
            AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                           "'%s' is of type %s: it can only be merged into the model%s",
                           o->adapter[i], af_peft_forms[one[i]->config.type].name,
                           o->adapter_only ? ", not written as LoRA: leave out --adapter-only"
                                           : " alone, with a weight of 1"));
    }
    if (o->adapters == 1 && o->weight[0] == 1) {
        *out = one[0];
        one[0] = NULL;
    } else if (o->adapters == 1) { /* a weight alone scales the change itself */
        c.how = AF_COMBINE_CAT;
        AF_TRY(af_adapter_combine(out, (const af_adapter *const *)one, o->weight, 1, &c, err));
    } else {
        AF_TRY(af_adapter_combine(out, (const af_adapter *const *)one, o->weight, o->adapters, &c,
                                  err));
    }
done:
    free(dir);
    for (int i = 0; i < AF_MERGE_ADAPTERS_MAX; i++)
        af_adapter_free(one[i]);
    return st;
}

static af_status write_model(af_model_reader *in, const af_output *f, const af_dtype *dtype,
                             int threads, af_error *err)
{
    af_status st = AF_OK;
    json_t *config = NULL;
    AF_TRY(af_model_copy_text(in, f, &config, err));
    if (in->untie)
        json_object_set_new(config, "tie_word_embeddings", json_false());
    if (in->new_labels)
        AF_TRY(af_label_config(config, in->adapter->config.labels, in->labels, f->temp, err));
    if (dtype)
        af_config_set_dtype(config, *dtype);
    else if (in->count > 0 && !in->tensor[0].stored) /* GGUF: what it carries is of another file */
        af_config_set_dtype(config, in->tensor[0].dtype);
    AF_TRY(af_json_write(f->temp, "config.json", config, err));
    AF_TRY(af_model_write_weights(in, f->temp, dtype, threads, NULL, err));
done:
    json_decref(config);
    return st;
}

/* An adapter on a name this folder does not have would be dropped silently. */
static af_status check_names(const af_model_reader *in, const af_adapter *a, af_error *err)
{
    for (int i = 0; i < a->spec->tensors; i++) {
        const af_tensor_spec *t = &a->spec->tensor[i];
        const bool used = a->saved[i] || (t->module >= 0 && a->module[t->module].rank);
        char name[512], piece[512], ours[512];
        int64_t dim[AF_DISK_DIMS], from;
        int ndim;
        af_model_reader_disk_name(in, t->name, name, sizeof name);
        af_disk_piece(a->spec, i, 0, ours, sizeof ours, dim, &ndim, &from);
        af_model_reader_disk_name(in, ours, piece, sizeof piece);
        if (used && !af_model_reader_find(in, name) && !af_model_reader_find(in, piece))
            return af_fail(err, AF_EUNSUPPORTED,
                           "the adapter changes '%s', which '%s' stores under another name",
                           t->name, in->path);
    }
    return AF_OK;
}

/* Did the run that left this adapter quantise its base itself? Its run file says so. */
static bool beside_4bit(const char *dir)
{
    char *path = af_path_join(dir, "run.yaml"), *text = NULL;
    uint64_t size;
    bool yes = false;
    if (path && af_file_exists(path) &&
        af_file_read(&text, &size, path, UINT64_C(1) << 20, NULL) == AF_OK)
        yes = strstr(text, "\nadapter: qlora\n") || strstr(text, "\nload_in_4bit: true\n");
    free(text);
    free(path);
    return yes;
}

static void warn_zeros(const af_adapter *a)
{
    for (int i = 0; i < a->spec->modules; i++)
        for (int64_t k = 0; k < af_adapter_b_count(&a->spec->module[i], a->module[i].rank); k++)
            if (a->module[i].b[k] != 0)
                return;
    if (!a->config.save_count && !a->config.bias)
        af_log_write(AF_LOG_WARN, "the result is all zeros: the combined adapter changes nothing");
}

static af_status write_card(const af_model_reader *in, const char *model, const af_output *f,
                            const af_merge_adapter_opts *o, af_error *err)
{
    af_card c = {.library = o->adapter_only ? "peft" : "transformers",
                 .relation = o->adapter_only ? "adapter" : "finetune",
                 .base = {model},
                 .base_path = {in->path},
                 .bases = 1,
                 .tags = {"lora", "merge"}};
    af_buf b = {0};
    af_buf_printf(&b, "%s ",
                  o->adapter_only ? "LoRA adapters, combined, for" : "LoRA adapters merged into");
    af_card_code(&b, model);
    af_buf_printf(&b,
                  ".\n\n## Adapters\n\nCombined by `%s`%s:\n\n| adapter | weight |\n|---|---|\n",
                  o->combine ? o->combine : "linear", o->dtype ? "" : ", in the type of the base");
    for (int i = 0; i < o->adapters; i++) {
        af_buf_str(&b, "| ");
        af_card_code(&b, o->adapter[i]);
        af_buf_printf(&b, " | %g |\n", o->weight[i]);
    }
    return af_card_put(f, &c, &b, err);
}

/* On what the adapters were merged, where that is not what they were trained with. */
static const char *what_base(const af_model_reader *in, const af_merge_adapter_opts *o)
{
    if (o->adapter_only)
        return "";
    if (in->any_quantised)
        return "the base is quantised: the adapter was merged onto its dequantised weights";
    for (int i = 0; i < o->adapters; i++)
        if (beside_4bit(o->adapter[i]))
            return "the adapter was trained on a 4-bit copy of its base and is merged into the "
                   "base as it is (to merge it into that copy: afinar quantize --type nf4 first)";
    return "";
}

af_status af_merge_adapters(const char *model, const char *out, const af_merge_adapter_opts *o,
                            const char **note, af_error *err)
{
    AF_NEED(err, model, out, o);
    af_status st = AF_OK;
    af_model_reader *in = NULL;
    af_adapter *a = NULL;
    af_output f = {0};
    af_dtype dtype;
    const char *inputs[AF_MERGE_ADAPTERS_MAX + 1];
    if (o->dtype && !af_torch_type(&dtype, o->dtype))
        return af_fail(err, AF_EUSAGE, "type '%.40s' is not one of bf16, f16, f32", o->dtype);
    AF_TRY(af_model_reader_open_list(&in, model, err));
    AF_TRY(read_adapters(&a, in, o, err));
    inputs[0] = in->path;
    for (int i = 0; i < o->adapters; i++)
        inputs[i + 1] = o->adapter[i];
    AF_TRY(af_folder_open(&f, out, inputs, o->adapters + 1, o->force, err));
    if (o->adapter_only) {
        warn_zeros(a);
        AF_TRY(af_adapter_write(a, f.temp, err));
    } else {
        AF_TRY(check_names(in, a, err));
        af_model_reader_set_adapter(in, a);
        a = NULL;
        AF_TRY(write_model(in, &f, o->dtype ? &dtype : NULL, o->threads, err));
    }
    AF_TRY(write_card(in, model, &f, o, err));
    AF_TRY(af_output_commit(&f, err));
    if (note)
        *note = what_base(in, o);
done:
    af_output_abandon(&f);
    af_adapter_free(a);
    af_model_reader_close(in);
    return st;
}
