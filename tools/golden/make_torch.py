#!/usr/bin/env python3
"""Files of torch.save for tests/format/test_torch_file.c and the seeds of fuzz_torch_file.

    make_torch.py tests/golden/torch

archive.bin (torch 1.6 and newer) and stream.bin (before) have the same dictionary; the others must be refused."""
import collections
import os
import sys

import torch


def tensors():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    shared = torch.arange(6, dtype=torch.float32)
    d = collections.OrderedDict()
    d["rows"] = base
    d["turned"] = base.t()  # not contiguous
    d["part"] = base[1:3, 2:4]
    d["tied.a"] = shared
    d["tied.b"] = shared
    d["parameter"] = torch.nn.Parameter(torch.tensor([0.5, -2.0]))
    d["scalar"] = torch.tensor(7, dtype=torch.int64)
    d["empty"] = torch.zeros(0, 3)
    for name in "float16 bfloat16 float64 uint8 int8 int16 int32 bool".split():
        d["type." + name] = torch.tensor([1, 0, 1]).to(getattr(torch, name))
    return d


class Evil:
    def __reduce__(self):
        return os.system, ("echo this was run",)


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    d = tensors()
    d._metadata = collections.OrderedDict({"": {"version": 1}})  # as a state_dict has it
    torch.save(d, f"{out}/archive.bin")
    torch.save(d, f"{out}/stream.bin", _use_new_zipfile_serialization=False)
    torch.save({"a": torch.ones(2).to(torch.float8_e4m3fn)}, f"{out}/fp8.bin")
    torch.save({"a": torch.ones(2, dtype=torch.bfloat16)}, f"{out}/protocol4.bin", pickle_protocol=4)
    torch.save({"a": Evil()}, f"{out}/call.bin")
    torch.save({"model": {"a": torch.ones(2)}}, f"{out}/nested.bin")
    torch.save([torch.ones(2)], f"{out}/list.bin")
    torch.save({"a": torch.ones(2).to_sparse()}, f"{out}/sparse.bin")


main()
