"""Quantising compared with llama.cpp, alternating in one process: least processor and wall seconds. Development only.

    python quantize_vs.py AFINAR FILE.gguf [--type q4_k_m] [--threads 1] [--rounds 4] [--from FOLDER]

--from: what ours reads instead of FILE (llama.cpp reads only GGUF)."""
import argparse, ctypes, os, resource, subprocess, tempfile, time

import llama_cpp

FTYPE = dict(q4_0=2, q4_1=3, q8_0=7, q5_0=8, q5_1=9, q2_k=10, q3_k_s=11, q3_k_m=12, q3_k_l=13, q4_k_s=14, q4_k_m=15,
             q5_k_s=16, q5_k_m=17, q6_k=18, iq4_nl=25, iq4_xs=30)


def ours(o, out):
    a, t = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    subprocess.run([o.afinar, "quantize", o.source or o.file, "-o", out, "--type", o.type, "--threads",
                    str(o.threads), "-q"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, b = time.time() - t, resource.getrusage(resource.RUSAGE_CHILDREN)
    return b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime, wall


def theirs(o, out):
    p = llama_cpp.llama_model_quantize_default_params()
    p.ftype, p.nthread = FTYPE[o.type], o.threads
    c, t = time.process_time(), time.time()
    if llama_cpp.llama_model_quantize(o.file.encode(), out.encode(), ctypes.byref(p)):
        raise SystemExit("llama.cpp failed")
    return time.process_time() - c, time.time() - t


p = argparse.ArgumentParser()
p.add_argument("afinar")
p.add_argument("file")
p.add_argument("--type", default="q4_k_m")
p.add_argument("--threads", type=int, default=1)
p.add_argument("--rounds", type=int, default=4)
p.add_argument("--from", dest="source")
o = p.parse_args()
with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(o.file))) as d:
    runs = []
    for _ in range(o.rounds):
        runs.append((*ours(o, d + "/a.gguf"), *theirs(o, d + "/b.gguf")))
        os.remove(d + "/a.gguf"), os.remove(d + "/b.gguf")
a, aw, b, bw = (min(r[i] for r in runs) for i in range(4))
print(f"{o.type}, {o.threads} threads: processor {a:.2f} s, llama.cpp {b:.2f} s ({b / a:.2f}x); "
      f"wall {aw:.2f} s, {bw:.2f} s ({bw / aw:.2f}x)")
