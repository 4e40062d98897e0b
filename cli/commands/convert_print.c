/* convert_print.c - see convert_print.h. */
#include "commands/convert_print.h"

#include "commands/model_opts.h"

#include <math.h>

enum { TYPES_MAX = 64 };

typedef struct sum {
    const char *type;
    int tensors;
    int64_t params;
    double bytes, worst, mean2;
    bool lossy;
} sum;

static int collect(const af_convert_report *r, sum *list)
{
    int n = 0;
    for (int i = 0; i < r->rows; i++) {
        const af_convert_row *row = &r->row[i];
        int k = 0;
        while (k < n && strcmp(list[k].type, row->type) != 0)
            k++;
        if (k == TYPES_MAX)
            continue;
        if (k == n)
            list[n++] = (sum){.type = row->type};
        list[k].tensors++;
        list[k].params += row->count;
        list[k].bytes += (double)row->bytes;
        list[k].lossy |= row->lossy;
        list[k].worst = row->rel_rms > list[k].worst ? row->rel_rms : list[k].worst;
        list[k].mean2 += row->rel_rms * row->rel_rms;
    }
    return n;
}

void af_print_convert(const af_convert_report *r, const char *out, bool all)
{
    sum list[TYPES_MAX];
    const int n = collect(r, list);
    if (all)
        for (int i = 0; i < r->rows; i++) {
            const af_convert_row *row = &r->row[i];
            if (row->lossy)
                printf("%-52s %-8s %12lld  error %.3e  max %.3e\n", row->name, row->type,
                       (long long)row->count, row->rel_rms, row->max_abs);
            else
                printf("%-52s %-8s %12lld\n", row->name, row->type, (long long)row->count);
        }
    for (int k = 0; k < n; k++) {
        printf("%-8s %5d tensors %14lld weights %10.1f MB", list[k].type, list[k].tensors,
               (long long)list[k].params, list[k].bytes / 1e6);
        if (list[k].lossy)
            printf("  error %.3e mean, %.3e worst", sqrt(list[k].mean2 / list[k].tensors),
                   list[k].worst);
        putchar('\n');
    }
    printf("%s: %.1f MB, %.2f bits per weight\n", out, (double)r->bytes / 1e6, r->bits_per_weight);
    if (*r->note)
        fprintf(stderr, "note: %s\n", r->note);
}

void af_print_convert_json(const af_convert_report *r, const char *out, const double *before,
                           const double *after)
{
    printf("{\"output\": ");
    af_cli_json_text(stdout, out, strlen(out));
    printf(", \"bytes\": %llu, \"parameters\": %lld, \"bits_per_weight\": %.6g",
           (unsigned long long)r->bytes, (long long)r->params, r->bits_per_weight);
    if (before && after)
        printf(", \"perplexity_before\": %.17g, \"perplexity_after\": %.17g", *before, *after);
    printf(", \"note\": ");
    af_cli_json_text(stdout, r->note, strlen(r->note));
    printf(", \"tensors\": [");
    for (int i = 0; i < r->rows; i++) {
        const af_convert_row *row = &r->row[i];
        printf("%s{\"name\": ", i ? ", " : "");
        af_cli_json_text(stdout, row->name, strlen(row->name));
        printf(", \"type\": \"%s\", \"count\": %lld, \"bytes\": %llu", row->type,
               (long long)row->count, (unsigned long long)row->bytes);
        if (row->lossy)
            printf(", \"rel_rms\": %.9g, \"max_abs\": %.9g", row->rel_rms, row->max_abs);
        putchar('}');
    }
    printf("]}\n");
}
