/* report_fp8.c - see report_fp8.h. */
#include "train/report/report_fp8.h"
#include "train/report/report.h"

static void put_state(af_buf *b, const af_fp8_group *g)
{
    static const char *const text[] = {[AF_FP8_USED] = "FP8",
                                       [AF_FP8_SLOWER] = "not in FP8: slower for its size",
                                       [AF_FP8_BROKE] = "not in FP8: above the limit",
                                       [AF_FP8_TRAINED] = "trained"};
    af_buf_printf(b, "<td>%s</td>", text[g->state]);
}

void af_report_put_fp8(af_buf *b, const af_fp8_plan *p)
{
    if (!p->use)
        return;
    af_buf_printf(b,
                  "<h2>FP8</h2><p>%d of %d groups of projections multiply in FP8. Relative errors "
                  "of the first micro-batch against sums in f64, limit %.1f %%:</p><div "
                  "class=\"scroll\"><table><tr><th>group, by its first module</th><th></th><th "
                  "class=\"n\">forward</th><th class=\"n\">backward</th></tr>\n",
                  af_fp8_plan_in(p, AF_FP8_USED), p->count, 100 * AF_FP8_ERROR_MAX);
    for (int i = 0; i < p->count; i++) {
        const af_fp8_group *g = &p->group[i];
        af_buf_str(b, "<tr><td>");
        af_html_put(b, g->name);
        af_buf_str(b, "</td>");
        put_state(b, g);
        for (int pass = 0; pass < 2; pass++)
            if (g->measured)
                af_buf_printf(b, "<td class=\"n\">%.2f %%</td>", 100 * g->error[pass]);
            else
                af_buf_str(b, "<td class=\"n\">-</td>");
        af_buf_str(b, "</tr>\n");
    }
    af_buf_str(b, "</table></div>");
}
