#!/usr/bin/env bash
# A sample of failed allocations in every command: exit 1 with a sentence about memory, or the right output.
# AF_FAULT_SEED repeats a run; all of them, and those of ranks, which wait for each other: make check-faults.
exec bash "$AF_SOURCE/tests/faults/sweep.sh" alloc --sample 5 --mode mixed --case '(?!ranks_).*' ${AF_FAULT_SEED:+--seed "$AF_FAULT_SEED"}
