/* fuzz_json_records.c - any bytes as a json or jsonl file, and what comes out of it as a record of
 * any shape. */
#include "data/read/records.h"
#include "data/shape/shape.h"

#include <string.h>

static void read_records(const uint8_t *data, size_t size, af_records_kind kind)
{
    af_records *r = NULL;
    af_record rec;
    af_error err;
    af_arena mem = {0};
    af_data_source *source;
    int sources;
    const af_yaml path = {.kind = AF_YAML_SCALAR, .line = 1, .text = "f"};
    const af_data_opts o = {.datasets = &path, .run_path = "run.yaml"};
    af_record_warnings notes = {0};
    if (af_data_sources_read(&source, &sources, &o, &mem, &err) != AF_OK)
        abort();
    if (af_records_of(&r, "f", data, size, kind, &err) != AF_OK)
        r = NULL;
    while (r && af_records_next(r, &rec, &err) == AF_OK && rec.json) {
        const af_source_loc p = {"f", rec.line, rec.number, false, &notes};
        af_item item = {0};
        source->shape = AF_SHAPE_AUTO;
        if (af_shape_detect(source, rec.json, &p, &err) == AF_OK)
            (void)!af_shape_item(&item, source, rec.json, &p, &err);
        af_item_clear(&item);
        json_decref(rec.json);
    }
    af_records_close(r);
    af_arena_clear(&mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_records(data, size, AF_RECORDS_JSONL);
    read_records(data, size, AF_RECORDS_JSON);
    return 0;
}
