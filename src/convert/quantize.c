/* quantize.c - af_quantize: chooses the output by the type. */
#include "convert/gguf/gguf_model.h"
#include "convert/output/folder_out.h"
#include "convert/quantize/imatrix_collect.h"
#include "convert/quantize/quantize_bnb.h"

#include <strings.h>

static bool bnb_type(af_dtype *out, const char *type)
{
    static const struct {
        const char *name;
        af_dtype type;
    } types[] = {{"nf4", AF_DTYPE_NF4}, {"fp4", AF_DTYPE_FP4}, {"int8", AF_DTYPE_I8}};
    for (size_t i = 0; i < AF_LEN(types); i++)
        if (strcasecmp(types[i].name, type) == 0) {
            *out = types[i].type;
            return true;
        }
    return false;
}

typedef struct imatrix_source {
    af_imatrix matrix;
    const char *model, *out;
    const af_quantize_opts *o;
    af_output kept; /* imatrix_out */
} imatrix_source;

/* Of files that need not exist: one name, or two of one file. */
static bool is_one_file(const char *a, const char *b)
{
    return strcmp(a, b) == 0 || af_path_same(a, b);
}

/* Refuses what cannot be, before anything is computed. */
static af_status open_imatrix(imatrix_source *s, af_error *err)
{
    const af_quantize_opts *o = s->o;
    if (o->imatrix && o->imatrix_data)
        return af_fail(err, AF_EUSAGE,
                       "give an importance matrix to read or a text to compute one from, not both");
    if (o->imatrix_out && !o->imatrix && !o->imatrix_data)
        return af_fail(err, AF_EUSAGE,
                       "there is no importance matrix to keep in '%s': give a text to compute "
                       "one from",
                       o->imatrix_out);
    if (o->imatrix) {
        const af_status st = af_imatrix_read(&s->matrix, o->imatrix, err);
        if (st != AF_OK)
            return st;
    }
    if (!o->imatrix_out)
        return AF_OK;
    if (is_one_file(s->out, o->imatrix_out))
        return af_fail(err, AF_EUSAGE, "model and importance matrix have one output, '%s'", s->out);
    const af_status st = af_output_check(
        o->imatrix_out, (const char *const[]){s->model, o->adapter, o->imatrix, o->imatrix_data}, 4,
        err);
    return st == AF_OK ? af_output_open_file(&s->kept, o->imatrix_out, NULL, o->force, err) : st;
}

/* Computes the matrix, unless it was read, and keeps it if requested. */
static af_status collect(void *user, af_error *err)
{
    af_status st = AF_OK;
    imatrix_source *s = user;
    const af_quantize_opts *o = s->o;
    const af_collect_opts c = {.adapter = o->adapter,
                               .device = o->device,
                               .chunks = o->imatrix_chunks,
                               .threads = o->threads};
    char *file = NULL;
    if (o->imatrix_data)
        AF_TRY(af_imatrix_collect(&s->matrix, s->model, o->imatrix_data, &c, err));
    if (!o->imatrix_out)
        goto done;
    file = af_output_file(&s->kept);
    if (!file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(o->imatrix_out)));
    AF_TRY(af_imatrix_write(&s->matrix, file, err));
    st = af_output_commit(&s->kept, err);
done:
    free(file);
    return st;
}

static af_status to_gguf(af_convert_report **report, af_model_reader *in, const char *out,
                         af_mix mix, const af_quantize_opts *o, af_error *err)
{
    af_status st = AF_OK;
    imatrix_source from = {.model = in->path, .out = out, .o = o};
    af_output f = {0};
    af_convert_report *r = NULL;
    char *file = NULL;
    AF_TRY(af_output_check(
        out, (const char *const[]){in->path, o->adapter, o->imatrix, o->imatrix_data}, 4, err));
    AF_TRY(af_output_open_file(&f, out, NULL, o->force, err));
    file = af_output_file(&f);
    if (!file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(out)));
    AF_TRY(open_imatrix(&from, err));
    const af_gguf_model_opts g = {.mix = mix,
                                  .pure = o->pure,
                                  .imatrix = o->imatrix || o->imatrix_data ? &from.matrix : NULL,
                                  .collect = collect,
                                  .user = &from,
                                  .imatrix_file = o->imatrix ? o->imatrix : o->imatrix_out,
                                  .threads = o->threads};
    AF_TRY(af_gguf_model_write(&r, in, file, &g, err));
    AF_TRY(af_output_commit(&f, err));
    *report = r;
    r = NULL;
done:
    af_output_abandon(&from.kept);
    af_output_abandon(&f);
    af_convert_report_free(r);
    free(file);
    af_imatrix_clear(&from.matrix);
    return st;
}

af_status af_quantize(af_convert_report **report, const char *model, const char *out,
                      const af_quantize_opts *o, af_error *err)
{
    AF_NEED(err, report, model, out, o);
    af_status st = AF_OK;
    af_model_reader *in = NULL;
    af_dtype packed;
    af_mix mix;
    if (!o->type)
        return af_fail(err, AF_EUSAGE, "no type is named: nf4 fp4 int8 %s", af_mix_names());
    const bool folder = bnb_type(&packed, o->type);
    if (!folder && !af_mix_by_name(&mix, o->type))
        return af_fail(err, AF_EUSAGE, "unknown type '%.40s'; the types are nf4 fp4 int8 %s",
                       o->type, af_mix_names());
    if (folder && (o->imatrix || o->imatrix_data || o->imatrix_out || o->pure))
        return af_fail(err, AF_EUSAGE, "%s has no mixes and no importance matrix", o->type);
    if ((!folder || packed == AF_DTYPE_I8) && (o->block_size || o->no_double_quant))
        return af_fail(err, AF_EUSAGE, "block size and double quantisation are for nf4 and fp4");
    const char *ext = strrchr(out, '.');
    if (folder && ext && strcmp(ext, ".gguf") == 0)
        return af_fail(err, AF_EUSAGE, "%s makes a folder, but the output '%s' is named as GGUF",
                       o->type, out);
    AF_TRY(af_model_reader_open_merged(&in, model, o->adapter, err));
    AF_TRY(folder ? af_quantize_bnb(report, in, out, packed, o, err)
                  : to_gguf(report, in, out, mix, o, err));
done:
    af_model_reader_close(in);
    return st;
}
