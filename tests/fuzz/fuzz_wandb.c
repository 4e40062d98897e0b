/* fuzz_wandb.c - any bytes as the file of an offline W&B run, record by record. The checksum of a
 * frame would keep the fuzzer out: what follows the first byte is read as a record, too. */
#include "train/track/wandb_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_record(const af_buf *record)
{
    af_buf message = {0};
    int64_t num = 0;
    (void)af_wandb_record_kind(record, &num, &message);
    af_buf_clear(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_buf record = {0}, alone = {0};
    uint64_t at = 0;
    while (af_wandb_log_next((const char *)data, size, &at, &record))
        read_record(&record);
    af_buf_clear(&record);
    if (size > 1)
        af_buf_add(&alone, data + 1, size - 1);
    if (!alone.bad)
        read_record(&alone);
    af_buf_clear(&alone);
    return 0;
}
