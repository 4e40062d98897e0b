/* fuzz_checkpoint.c - any bytes as one of the files a resumed run reads: manifest.json,
 * progress.json or metrics.jsonl, by the first byte. */
#include "fuzz_file.h"
#include "train/checkpoint/manifest.h"
#include "train/report/metrics.h"

static void read_metrics(const uint8_t *data, size_t size)
{
    af_run_config r = {0};
    af_metrics m = {0};
    af_run_progress p = {.step = 3, .metrics_bytes = 40};
    char *text = NULL;
    (void)fuzz_put("metrics.jsonl", data, size);
    r.output_dir = fuzz_dir();
    m = (af_metrics){.run = &r, .progress = &p};
    m.rows_path = af_path_join(fuzz_dir(), "metrics.jsonl");
    if (m.rows_path && af_metrics_state_text(&m, true, &text, NULL) == AF_OK)
        free(text);
    af_metrics_close(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_run_progress p = {.items_per_epoch = 4, .items_per_micro = 1, .steps = 8};
    uint64_t clock = 0;
    if (size == 0)
        return 0;
    switch (data[0] % 3) {
    case 0:
        (void)fuzz_put("adapter_model.safetensors", "tensor", 6);
        (void)fuzz_put("manifest.json", data + 1, size - 1);
        (void)!af_manifest_check(fuzz_dir(), NULL);
        break;
    case 1:
        (void)!af_run_progress_read(&p, &clock, fuzz_put("progress.json", data + 1, size - 1),
                                    NULL);
        break;
    default:
        read_metrics(data + 1, size - 1);
    }
    return 0;
}
