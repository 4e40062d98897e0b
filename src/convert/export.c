/* export.c - af_export: chooses the conversion by what the paths are. */
#include "convert/export.h"
#include "afinar/convert.h"
#include "base/log.h"
#include "base/word.h"
#include "convert/adapter/adapter_gguf.h"
#include "convert/gguf/export_verify.h"
#include "convert/gguf/gguf_model.h"
#include "convert/gguf/template_parts.h"
#include "convert/input/gguf_text.h"
#include "convert/output/convert_report.h"
#include "convert/output/model_card.h"
#include "convert/output/model_out.h"

/* The default type: that of the config, else of the first matrix. */
static af_mix default_mix(const af_model_reader *in)
{
    af_dtype d = in->config.has_dtype ? in->config.dtype : AF_DTYPE_F16;
    for (int i = 0; !in->config.has_dtype && i < in->count; i++)
        if (in->tensor[i].ndim == 2) {
            d = in->tensor[i].dtype;
            break;
        }
    return d == AF_DTYPE_BF16 ? AF_MIX_BF16 : d == AF_DTYPE_F32 ? AF_MIX_F32 : AF_MIX_F16;
}

static af_status choose_mix(af_mix *out, const af_model_reader *in, const char *type, af_error *err)
{
    *out = default_mix(in);
    if (type && !af_mix_by_name(out, type))
        return af_fail(err, AF_EUSAGE, "unknown type '%.40s'; the types are %s", type,
                       af_mix_names());
    return AF_OK;
}

/* ---- Modelfile ---- */

#define MODELFILE "Modelfile"

/* Next to the GGUF file. */
static af_status write_modelfile(const af_output *f, const char *gguf, af_error *err)
{
    af_status st = AF_OK;
    af_template_parts t = {0};
    char *text = NULL, *path = af_path_join(f->temp, MODELFILE);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(gguf));
    AF_TRY(af_template_parts_read(&t, gguf, err));
    AF_TRY(af_modelfile_text(&text, af_path_name(gguf), &t, NULL, err));
    AF_TRY(af_file_write(path, text, strlen(text), err));
done:
    af_template_parts_clear(&t);
    free(text);
    free(path);
    return st;
}

/* ---- verification ---- */

/* Result of the verification. UNSURE: not enough memory to run it. */
typedef enum verdict { FITS, UNSURE, DIFFERS } verdict;

static verdict judge(const af_model_reader *in, const af_export_opts *o, const char *made,
                     double bits, af_verify_result *verify, af_error *why)
{
    if (o->no_verify)
        return FITS;
    const af_status st =
        af_export_verify(in->path, o->adapter, made, bits, o->threads, verify, why);
    if (st == AF_ENOMEM)
        return UNSURE;
    if (st != AF_OK) { /* it cannot even be opened again */
        *verify = (af_verify_result){.ran = true};
        snprintf(verify->message, sizeof verify->message, "%.255s", why->msg);
    }
    return verify->ok || verify->same ? FITS : DIFFERS;
}

static af_status fail_unsure(const char *out, const af_error *why, af_error *err)
{
    return af_fail(err, AF_ENOMEM, "'%s' is written, but could not be verified: %.160s", out,
                   why->msg);
}

/* ---- to GGUF ---- */

/* Writes the file; one that fails verification is removed, and the previous file is kept. */
static af_status write_gguf(af_model_reader *in, const char *out, const af_export_opts *o,
                            const af_gguf_model_opts *g, af_convert_report **report,
                            af_verify_result *verify, af_error *err)
{
    af_status st = AF_OK;
    af_output f = {0};
    af_error why = {0};
    char *file = NULL;
    const af_dtype_info *d = af_dtype_get(af_mix_get(g->mix)->base);
    AF_TRY(af_output_check(out, (const char *const[]){in->path, o->adapter, o->imatrix}, 3, err));
    AF_TRY(af_output_open_file(&f, out, MODELFILE, o->force, err));
    file = af_output_file(&f);
    if (!file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(out)));
    AF_TRY(af_gguf_model_write(report, in, file, g, err));
    const verdict v = judge(in, o, file, (double)d->bytes * 8 / d->elems, verify, &why);
    if (v != DIFFERS) {
        AF_TRY(write_modelfile(&f, file, err));
        AF_TRY(af_output_commit(&f, err));
    }
    if (v == UNSURE)
        AF_TRY(fail_unsure(out, &why, err));
done:
    af_output_abandon(&f);
    free(file);
    return st;
}

static af_status model_to_gguf(const char *model, const char *out, const af_export_opts *o,
                               af_convert_report **report, af_verify_result *verify, af_error *err)
{
    af_status st = AF_OK;
    af_model_reader *in = NULL;
    af_imatrix imatrix = {0};
    af_gguf_model_opts g = {.pure = o->pure, .threads = o->threads};
    AF_TRY(af_model_reader_open_merged(&in, model, o->adapter, err));
    AF_TRY(choose_mix(&g.mix, in, o->type, err));
    g.keep_mxfp4 = !o->type;
    if (o->imatrix) {
        AF_TRY(af_imatrix_read(&imatrix, o->imatrix, err));
        g.imatrix = &imatrix;
        g.imatrix_file = o->imatrix;
    }
    AF_TRY(write_gguf(in, out, o, &g, report, verify, err));
done:
    af_imatrix_clear(&imatrix);
    af_model_reader_close(in);
    return st;
}

static af_status adapter_to_gguf(const char *model, const char *adapter, const char *out,
                                 bool force, af_error *err)
{
    af_status st = AF_OK;
    af_model_reader *in = NULL;
    af_adapter *a = NULL;
    af_output f = {0};
    char *file = NULL;
    AF_TRY(af_output_check(out, (const char *const[]){model, adapter}, 2, err));
    AF_TRY(af_output_open_file(&f, out, NULL, force, err));
    file = af_output_file(&f);
    if (!file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(out)));
    AF_TRY(af_model_reader_open_list(&in, model, err));
    in->keep_tied = true;
    AF_TRY(af_model_reader_read_adapter(in, adapter, &a, err));
    AF_TRY(af_adapter_expand(a, adapter, 0, err));
    AF_TRY(af_adapter_gguf_write(a, af_path_name(adapter), file, err));
    st = af_output_commit(&f, err);
done:
    af_output_abandon(&f);
    free(file);
    af_adapter_free(a);
    af_model_reader_close(in);
    return st;
}

/* ---- to a folder ---- */

/* The type to write: that of the carried config, else that of the file. */
static af_dtype folder_type(const af_model_reader *in, const json_t *config)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    af_dtype d;
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const char *s = json_string_value(json_object_get(config, keys[i]));
        if (s && af_torch_type(&d, s) && !(in->any_quantised && d == AF_DTYPE_F32))
            return d;
    }
    return in->any_quantised ? AF_DTYPE_BF16 : in->config.dtype;
}

static af_status write_card(const af_model_reader *in, const af_output *f, const af_export_opts *o,
                            af_error *err)
{
    af_card c = {.library = "transformers", .base = {in->path}, .base_path = {NULL}, .bases = 1};
    af_buf b = {0};
    af_buf_str(&b, "The GGUF file ");
    af_card_code(&b, af_path_name(in->path));
    af_buf_str(&b, " as a folder for transformers");
    if (o->adapter) {
        af_buf_str(&b, ", with the adapter ");
        af_card_code(&b, o->adapter);
        af_buf_str(&b, " merged in");
    }
    af_buf_str(&b, in->any_quantised ? ". Its values were dequantized.\n" : ".\n");
    return af_card_put(f, &c, &b, err);
}

static af_status gguf_to_folder(const char *model, const char *out, const af_export_opts *o,
                                af_convert_report **report, af_verify_result *verify, af_error *err)
{
    af_status st = AF_OK;
    af_model_reader *in = NULL;
    af_output f = {0};
    af_convert_report *r = NULL;
    json_t *config = NULL;
    af_dtype dtype;
    af_error why = {0};
    AF_TRY(af_model_reader_open_merged(&in, model, o->adapter, err));
    AF_TRY(af_convert_report_new(&r, in->count, err));
    AF_TRY(af_folder_open(&f, out, (const char *const[]){in->path, o->adapter}, 2, o->force, err));
    AF_TRY(af_model_copy_text(in, &f, &config, err));
    dtype = folder_type(in, config);
    if (o->type && !af_torch_type(&dtype, o->type))
        AF_TRY(
            af_fail(err, AF_EUSAGE, "type '%.40s' of a folder is not f32, f16 or bf16", o->type));
    if (dtype != folder_type(in, config) || in->any_quantised)
        af_config_set_dtype(config, dtype);
    AF_TRY(af_json_write(f.temp, "config.json", config, err));
    AF_TRY(af_model_write_weights(in, f.temp, &dtype, o->threads, r, err));
    af_convert_report_finish(r);
    const verdict v = judge(in, o, f.temp, dtype == AF_DTYPE_F32 ? 32 : 16, verify, &why);
    if (v != DIFFERS) {
        AF_TRY(write_card(in, &f, o, err));
        AF_TRY(af_output_commit(&f, err));
    }
    if (v == UNSURE)
        AF_TRY(fail_unsure(out, &why, err));
    *report = r;
    r = NULL;
done:
    af_output_abandon(&f);
    af_convert_report_free(r);
    json_decref(config);
    af_model_reader_close(in);
    return st;
}

/* Options that would change nothing: of an adapter its values are written as they are, of a GGUF
 * file as a folder only their type can be chosen. */
static af_status refuse_options(const af_export_opts *o, bool from_adapter, const char *what,
                                af_error *err)
{
    const char *option = from_adapter && o->type                          ? "--type"
                         : from_adapter && o->adapter && !o->adapter_only ? "--adapter"
                         : o->pure                                        ? "--pure"
                         : o->imatrix                                     ? "--imatrix"
                                                                          : NULL;
    return option ? af_fail(err, AF_EUSAGE, "%s has no effect on %s: leave it out", option, what)
                  : AF_OK;
}

static af_status export_as(const char *model, af_adapter_kind kind, const char *out,
                           const af_export_opts *o, af_convert_report **report,
                           af_verify_result *verify, af_error *err)
{
    const bool to_gguf = af_ends_with(out, ".gguf");
    af_status st = AF_OK;
    if (kind == AF_ADAPTER_PEFT && to_gguf)
        return af_fail(err, AF_EUSAGE,
                       "'%s' is an adapter: its GGUF form needs the model too (MODEL --adapter "
                       "'%s' --adapter-only)",
                       model, model);
    if (kind == AF_ADAPTER_PEFT || kind == AF_ADAPTER_MLX) {
        st = refuse_options(o, true, "an adapter in another format", err);
        if (st != AF_OK)
            return st;
        return kind == AF_ADAPTER_PEFT ? af_adapter_to_mlx(model, out, o->force, err)
                                       : af_adapter_from_mlx(model, out, o->force, err);
    }
    if (!af_gguf_is_file(model) || to_gguf)
        return model_to_gguf(model, out, o, report, verify, err);
    st = refuse_options(o, false, "a folder", err);
    return st == AF_OK ? gguf_to_folder(model, out, o, report, verify, err) : st;
}

af_status af_export(const char *model, const char *out, const af_export_opts *o,
                    af_convert_report **report, af_verify_result *verify, af_error *err)
{
    AF_NEED(err, model, out, o, report, verify);
    af_status st = AF_OK;
    char *path = NULL;
    af_adapter_kind kind;
    *report = NULL;
    *verify = (af_verify_result){.ok = true, .stops = true};
    if (o->adapter_only) {
        if (!o->adapter)
            return af_fail(err, AF_EUSAGE, "--adapter-only needs --adapter DIR");
        AF_TRY(refuse_options(o, true, "an adapter that is written alone", err));
        return adapter_to_gguf(model, o->adapter, out, o->force, err);
    }
    AF_TRY(af_model_resolve_whole(&path, model, err));
    AF_TRY(af_adapter_kind_of(&kind, path, err));
    AF_TRY(export_as(path, kind, out, o, report, verify, err));
done:
    free(path);
    return st;
}

af_status af_export_texts(const char *gguf, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    af_gguf *g = NULL;
    af_hf_config c = {0};
    json_t *config = NULL;
    AF_TRY(af_gguf_open(&g, gguf, err));
    AF_TRY(af_model_config(&c, gguf, err));
    AF_TRY(af_dir_make(dir, err));
    st = af_gguf_text(g, &c, dir, &config, err);
done:
    json_decref(config);
    af_hf_config_clear(&c);
    af_gguf_close(g);
    return st;
}
