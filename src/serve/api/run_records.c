/* run_records.c - samples and records of a run that trains, for the page. */
#include "serve/api/run_state.h"

#include "afinar/data.h"
#include "base/file.h"

enum { SAMPLES_MAX = 50, RECORDS_MAX = 5 };

/* Rows of samples.jsonl as {"samples": [...]}: the last ones. */
void af_api_run_samples(af_api *a, af_httpd_call *c, const json_t *body)
{
    char *path = af_path_join(a->run->output_dir, "samples.jsonl");
    af_map map = {0};
    af_buf b = {0};
    (void)body;
    af_buf_str(&b, "{\"samples\":[");
    if (path && af_file_exists(path) && af_map_open(&map, path, NULL) == AF_OK) {
        const char *start = (const char *)map.data, *end = start + map.size, *from = end;
        while (from > start && from[-1] != '\n') /* a row that is being written */
            from--;
        end = from;
        for (int rows = 0; from > start; from--)
            if (from[-1] == '\n' && rows++ == SAMPLES_MAX)
                break;
        bool first = true;
        for (const char *lf; from < end && (lf = memchr(from, '\n', (size_t)(end - from)));
             from = lf + 1, first = false) {
            af_buf_str(&b, first ? "" : ",");
            af_buf_add(&b, from, (uint64_t)(lf - from));
        }
        af_map_close(&map);
    }
    af_buf_str(&b, "]}");
    b.bad |= !path;
    free(path);
    af_api_answer(c, &b);
}

static bool add_record(void *user, const af_data_example *e)
{
    af_buf *b = user;
    char *text = af_data_example_json(e);
    if (b->len && b->data[b->len - 1] == '}')
        af_buf_char(b, ',');
    af_buf_str(b, text ? text : "");
    b->bad |= !text;
    free(text);
    return true;
}

/* The first records as `data preview` shows them, {"records": [...]}. The data of a run does not
 * change: they are made once. */
void af_api_run_data(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_run_state *r = a->run;
    af_api_fault f = {0};
    af_buf b = {0};
    (void)body;
    pthread_mutex_lock(&r->data_lock);
    af_status st = AF_OK;
    if (!r->data) {
        char *path = af_path_join(r->output_dir, "run.yaml");
        st = path ? af_data_preview(path, NULL, 0, RECORDS_MAX, add_record, &b, &f.err)
                  : af_fail_nomem(&f.err, "a path", 16);
        free(path);
        if (st == AF_OK && !b.bad)
            r->data = af_strndup(b.data ? b.data : "", b.len);
        b.len = 0;
    }
    af_buf_printf(&b, "{\"records\":[%s]}", r->data ? r->data : "");
    b.bad |= !r->data;
    pthread_mutex_unlock(&r->data_lock);
    if (st == AF_OK) {
        af_api_answer(c, &b);
        return;
    }
    af_buf_clear(&b);
    af_api_refuse_fault(c, &f);
}
