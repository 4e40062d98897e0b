#!/usr/bin/env python3
"""Random tables written by pyarrow, duckdb, polars and fastparquet; `afinar data records` has to print what pyarrow reads.

judge_columns.py AFINAR [--rounds 200] [--seed 1] [--keep FOLDER]: exit 0 when all records are equal. Each round makes a schema (scalars of every
kind, lists, structs, maps, dictionaries, views), values with nulls at every level, and files with options drawn by chance: codec, page version
and size, dictionary, encodings, row groups, checksums; Arrow files and streams with codecs and several batches. Writers that are not installed
are named and left out. Every tenth file is also cut and changed at random bytes: then an error in one sentence, or records, never a crash.
"""
import argparse
import base64
import datetime
import decimal
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

WORDS = ["", "a", "the river", "ünï", "言葉", "🙂", "tab\there", "line\nbreak", "\"quoted\"", "\\", "\u0001", "x" * 300]


# ---------------------------------------------------------------- tables by chance

def common_type(r):
    """What every writer has."""
    return r.choice([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.string(), pa.large_string(), pa.binary(),
                     pa.date32(), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"), pa.decimal128(9, 3)])


def scalar_type(r):
    return r.choice([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(),
                     pa.string(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(5), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
                     pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.duration("us"), pa.decimal128(9, 3), pa.decimal128(38, 10), pa.decimal256(60, 20), pa.null()])


def any_type(r, common, depth=0):
    k = r.random()
    if depth > 3 or k < 0.55:
        return (common_type if common else scalar_type)(r)
    if k < 0.75:
        inner = any_type(r, common, depth + 1)
        return r.choice([pa.list_(inner), pa.large_list(inner), pa.list_(inner, r.randint(1, 3))][:2 if common else 3])
    if k < 0.92 or common:
        return pa.struct([(f"f{i}", any_type(r, common, depth + 1)) for i in range(r.randint(1, 3))])
    return pa.map_(pa.string(), any_type(r, common, depth + 1))


def value(r, t, nulls=True):
    if pa.types.is_null(t) or (nulls and r.random() < 0.15):
        return None
    if pa.types.is_integer(t):
        lo, hi = (0, 2**t.bit_width - 1) if pa.types.is_unsigned_integer(t) else (-2**(t.bit_width - 1), 2**(t.bit_width - 1) - 1)
        return r.choice([0, lo, hi, r.randint(lo, hi), min(hi, 7)])
    if pa.types.is_floating(t):
        return r.choice([0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, r.uniform(-100, 100)])
    if pa.types.is_boolean(t):
        return r.random() < 0.5
    if pa.types.is_string(t) or pa.types.is_large_string(t):
        return " ".join(r.choice(WORDS) for _ in range(r.randint(0, 3)))
    if pa.types.is_fixed_size_binary(t):
        return r.randbytes(t.byte_width)
    if pa.types.is_binary(t) or pa.types.is_large_binary(t):
        return r.randbytes(r.randint(0, 20))
    if pa.types.is_date(t):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=r.randint(-200000, 200000))
    if pa.types.is_time(t):
        return datetime.time(r.randint(0, 23), r.randint(0, 59), r.randint(0, 59), r.randint(0, 999) * 1000)
    if pa.types.is_timestamp(t):
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=r.randint(-2**32, 2**32), milliseconds=0 if t.unit == "s" else r.randint(0, 999))
    if pa.types.is_duration(t):
        return datetime.timedelta(seconds=r.randint(-10**6, 10**6))
    if pa.types.is_decimal(t):
        return decimal.Decimal(r.randint(-10**(t.precision - 1), 10**(t.precision - 1))).scaleb(-t.scale, decimal.Context(prec=80))
    if pa.types.is_fixed_size_list(t):
        return [value(r, t.value_type) for _ in range(t.list_size)]
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [value(r, t.value_type) for _ in range(r.randint(0, 4))]
    if pa.types.is_map(t):
        return [(f"k{i}", value(r, t.item_type)) for i in range(r.randint(0, 3))]
    return {f.name: value(r, f.type) for f in t}


def table(r, flat, common):
    n = r.choice([0, 1, 2, 9, 40, 300])
    columns = {}
    for i in range(r.randint(1, 6)):
        t = common_type(r) if flat else any_type(r, common)
        nulls = r.random() < 0.8
        a = pa.array([value(r, t, nulls) for _ in range(n)], t)
        if r.random() < 0.15 and pa.types.is_string(t):
            a = a.dictionary_encode()
        columns[f"c{i}"] = a
    return pa.table(columns)


# ---------------------------------------------------------------- JSON, as the guide says

def stamp(count, unit, zoned):
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    seconds, rest = divmod(count, per)
    day = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return day.isoformat(timespec="seconds") + (f".{rest:0{len(str(per)) - 1}d}" if per > 1 else "") + ("Z" if zoned else "")


def plain(x, t):
    """A pyarrow scalar's value as JSON; x is a scalar."""
    if not x.is_valid:
        return None
    if pa.types.is_dictionary(t):
        return plain(x.value, t.value_type)
    if isinstance(t, pa.BaseExtensionType):
        v = x.value
        return str(__import__("uuid").UUID(bytes=v.as_py())) if t.extension_name == "arrow.uuid" else plain(v, t.storage_type)
    if pa.types.is_map(t):
        return [[plain(p["key"], t.key_type), plain(p["value"], t.item_type)] for p in x.values] if x.values is not None else []
    if pa.types.is_nested(t) and not pa.types.is_struct(t):
        return [plain(v, t.value_type) for v in x.values]
    if pa.types.is_struct(t):
        return {f.name: plain(x[i], f.type) for i, f in enumerate(t)}
    if pa.types.is_timestamp(t):
        return stamp(x.value, t.unit, t.tz is not None)
    if pa.types.is_time(t):
        return stamp(x.value, t.unit, False)[11:]
    if pa.types.is_duration(t):
        return x.value
    v = x.as_py()
    if isinstance(v, bytes):
        return base64.b64encode(v).decode()
    if isinstance(v, float) and not math.isfinite(v):
        return "NaN" if math.isnan(v) else "Infinity" if v > 0 else "-Infinity"
    if isinstance(v, decimal.Decimal):
        return f"{v:f}"
    if isinstance(v, (datetime.date, datetime.datetime)):
        return v.isoformat()[:10]
    return float(v) if pa.types.is_floating(t) else v


def records(t):
    return [{name: plain(t.column(k)[i], t.column(k).type) for k, name in enumerate(t.column_names)} for i in range(t.num_rows)]


# ---------------------------------------------------------------- writers

ENCODINGS = {"int": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"], "float": ["PLAIN", "BYTE_STREAM_SPLIT"], "text": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
             "fixed": ["PLAIN", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"], "bool": ["PLAIN", "RLE"]}


def encoding_of(r, t):
    kind = ("int" if t in (pa.int32(), pa.int64()) else "float" if t in (pa.float32(), pa.float64()) else "text" if t in (pa.string(), pa.large_string(), pa.binary()) else
            "fixed" if pa.types.is_fixed_size_binary(t) else "bool" if pa.types.is_boolean(t) else None)
    return r.choice(ENCODINGS[kind]) if kind else None


def by_pyarrow(r, t, path):
    own = r.random() < 0.4
    codes = {n: e for n, c in zip(t.column_names, t.columns) if (e := encoding_of(r, c.type))} if own else {}
    options = dict(compression=r.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]), data_page_version=r.choice(["1.0", "2.0"]), use_dictionary=False if own else r.choice([True, False]),
                   data_page_size=r.choice([64, 1024, 2**20]), write_batch_size=r.choice([1, 7, 1024]), dictionary_pagesize_limit=r.choice([64, 2**20]), row_group_size=r.choice([3, 50, 10**6]),
                   write_page_checksum=r.random() < 0.3, store_schema=r.random() < 0.5, use_compliant_nested_type=r.random() < 0.7, write_statistics=r.random() < 0.5)
    if codes:
        options["column_encoding"] = codes
    pq.write_table(t, path, **options)
    return options


def by_arrow(r, t, path):
    new = r.choice([ipc.new_file, ipc.new_stream])
    options = dict(compression=r.choice([None, "lz4", "zstd"]), emit_dictionary_deltas=new is ipc.new_stream)
    with new(str(path), t.schema, options=ipc.IpcWriteOptions(**options)) as w:
        for b in t.to_batches(max_chunksize=r.choice([2, 17, 1000])):
            w.write_batch(b)
    return {**options, "new": new.__name__}


def by_duckdb(r, t, path):
    import duckdb
    duckdb.sql("SET TimeZone = 'UTC'")
    options = f"FORMAT parquet, COMPRESSION {r.choice(['uncompressed', 'snappy', 'gzip', 'zstd', 'lz4_raw', 'brotli'])}, PARQUET_VERSION {r.choice(['V1', 'V2'])}, ROW_GROUP_SIZE {r.choice([2048, 122880])}"
    duckdb.sql("SELECT * FROM t").query("t2", f"COPY (SELECT * FROM t2) TO '{path}' ({options})")
    return options


def by_polars(r, t, path):
    import polars
    frame = polars.from_arrow(t)
    if path.suffix == ".arrow":
        codec = r.choice(["uncompressed", "lz4", "zstd"])
        frame.write_ipc(path, compression=codec, compat_level=r.choice([polars.CompatLevel.oldest(), polars.CompatLevel.newest()]))
        return codec
    options = dict(compression=r.choice(["uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"]), row_group_size=r.choice([5, 1000]), data_page_size=r.choice([64, 10**6]))
    frame.write_parquet(path, **options)
    return options


def by_fastparquet(r, t, path):
    import fastparquet
    options = dict(compression=r.choice(["UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4_RAW", "BROTLI"]), row_group_offsets=r.choice([7, 10**6]))
    fastparquet.write(str(path), t.to_pandas(), write_index=False, **options)
    return options


def read_back(path):
    if path.suffix == ".parquet":
        return pq.ParquetFile(path).read()
    head = path.read_bytes()[:6]
    with pa.memory_map(str(path)) as f:
        return (ipc.open_file if head == b"ARROW1" else ipc.open_stream)(f).read_all()


def run(program, path):
    return subprocess.run([program, "data", "records", str(path), "-n", "0"], capture_output=True, timeout=60)


def damage(r, program, path, at):
    data = bytearray(path.read_bytes())
    for k in range(12):
        bad = bytearray(data)
        for _ in range(r.choice([1, 1, 3])):
            bad[r.randrange(len(bad))] = r.randrange(256)
        if k % 4 == 0:
            bad = bad[:r.randrange(len(bad))]
        at.write_bytes(bad)
        done = run(program, at)
        if done.returncode not in (0, 1) or (done.returncode == 1 and done.stderr.decode("utf-8", "replace").count("\n") != 1):
            return f"damaged: exit {done.returncode}: {done.stderr[-300:]}"
    return None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("program")
    ap.add_argument("--rounds", type=int, default=200)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--keep", help="folder for files whose records differ")
    a = ap.parse_args()
    writers = {"pyarrow": (by_pyarrow, ".parquet", False), "arrow": (by_arrow, ".arrow", False), "duckdb": (by_duckdb, ".parquet", False), "polars": (by_polars, ".parquet", False),
               "polars.ipc": (by_polars, ".arrow", False), "fastparquet": (by_fastparquet, ".parquet", True)}
    count, skipped, bad = dict.fromkeys(writers, 0), {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for k in range(a.rounds):
            r = random.Random(a.seed * 10**6 + k)
            name = r.choice(["pyarrow"] * 4 + ["arrow"] * 2 + [w for w in writers if w not in ("pyarrow", "arrow")])
            write, ending, flat = writers[name]
            path = Path(folder) / f"{k}{ending}"
            t = table(r, flat, name not in ("pyarrow", "arrow"))
            try:
                options = write(r, t, path)
                want = records(read_back(path))
            except KeyboardInterrupt:
                raise
            except BaseException as e:  # polars panics: a type that this writer, or pyarrow with its file, does not have
                skipped.setdefault(name, {}).setdefault(type(e).__name__ + ": " + str(e).split("\n")[0][:60], []).append(k)
                continue
            done = run(a.program, path)
            got = [json.loads(x) for x in done.stdout.decode().split("\n") if x] if done.returncode == 0 else None
            count[name] += 1
            # through text: 1 and 1.0 are equal, and so are what JSON makes of them
            wrong = None if got is not None and got == json.loads(json.dumps(want)) else done.stderr.decode()[-300:] or "records differ"
            if not wrong and k % 10 == 0:
                wrong = damage(r, a.program, path, Path(folder) / ("damaged" + ending))
            if wrong:
                bad += 1
                print(f"round {k}, {name} {options}: {wrong}\n  {t.schema}".replace("\n", "\n  "))
                pair = next(((x, y) for x, y in zip(got or [], json.loads(json.dumps(want))) if x != y), None)
                print("  ", str(pair)[:600])
                if a.keep:
                    Path(a.keep).mkdir(exist_ok=True)
                    (Path(a.keep) / path.name).write_bytes(path.read_bytes())
            path.unlink()
    print(f"{sum(count.values())} files ({', '.join(f'{k} {v}' for k, v in count.items())}), {bad} wrong")
    for name, reasons in skipped.items():
        print(f"  left out of {name}: " + "; ".join(f"{len(v)} x {x}" for x, v in reasons.items()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
