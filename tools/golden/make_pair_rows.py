"""Write tests/golden/preference/rows.jsonl.gz: records of preference training in 47 formats and the token rows of each.

    python make_pair_rows.py <folder with rows/*.json and rows/records/*.jsonl> <output>

The folder is made by the scripts of the reference set (TRL 1.16, Axolotl 0.19, LLaMA-Factory 0.9.5): 16 records per
format. One line per format; texts that only those programs need are left out.
"""
import gzip
import json
import pathlib
import sys

source, output = pathlib.Path(sys.argv[1]), sys.argv[2]
lines = []
for path in sorted(source.glob("*.json")):
    d = json.loads(path.read_text())
    records = [json.loads(line) for line in (source / d["records"]).read_text().splitlines()]
    keep = ("format", "trainer", "max_length_short", "kto_batch", "axolotl_type", "axolotl_config", "dataset_info",
            "llamafactory_rows", "llamafactory_rows_cutoff", "rows")
    lines.append(json.dumps({**{k: d[k] for k in keep if k in d}, "records": records}, ensure_ascii=False))
with open(output, "wb") as f:
    with gzip.GzipFile(fileobj=f, mode="wb", filename="", mtime=0, compresslevel=9) as z:
        z.write(("\n".join(lines) + "\n").encode())
