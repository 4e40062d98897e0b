/* fuzz_csv.c - any bytes as a csv, tsv or text file. */
#include "data/read/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const af_records_kind kinds[] = {AF_RECORDS_CSV, AF_RECORDS_TSV, AF_RECORDS_TEXT};
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        af_records *r = NULL;
        af_record rec;
        af_error err;
        if (af_records_of(&r, "f", data, size, kinds[i], &err) != AF_OK)
            continue;
        while (af_records_next(r, &rec, &err) == AF_OK && rec.json)
            json_decref(rec.json);
        af_records_close(r);
    }
    return 0;
}
