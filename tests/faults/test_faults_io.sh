#!/usr/bin/env bash
# A sample of failed file calls in the commands that write: nothing is lost, no part of an output is left, every
# checkpoint that can be seen is whole; and the order of write, sync and rename in an undisturbed run.
exec bash "$AF_SOURCE/tests/faults/sweep.sh" io --sample 4 --mode mixed --order --case 'init|logits|quantize_(nf4|over|gguf)|export|export_import|merge|merge_yaml|train_(lora|resume)' ${AF_FAULT_SEED:+--seed "$AF_FAULT_SEED"}
