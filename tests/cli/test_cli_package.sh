#!/usr/bin/env bash
# What tools/package makes of an installed tree: the same bytes twice whatever the files' dates and permissions are,
# a wheel whose RECORD is right, a list of parts that names every linked library with version and licence.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# what git does not know is not part of a container either: an old build folder ends CMake
for name in build carry __pycache__ .o; do
    grep -q -- "$name" "$AF_SOURCE/.gitignore" && grep -q -- "$name\$" "$AF_SOURCE/.dockerignore" || { echo ".dockerignore has no $name"; exit 1; }
done
[ "$(grep -vc '^#' "$AF_SOURCE/.dockerignore")" = "$(grep -c . "$AF_SOURCE/.gitignore")" ] || { echo ".dockerignore and .gitignore differ"; exit 1; }
cmake --install "$AF_BUILD" --component program --prefix "$tmp/tree" > /dev/null
[ ! -e "$tmp/tree/include" ] || { echo "the component 'program' has headers"; exit 1; }
printf '#!/bin/sh\necho program\n' > "$tmp/tree/bin/afinar" # the real one is large and says nothing here
cp -r "$tmp/tree" "$tmp/again"
find "$tmp/again" -exec touch -d '2001-01-01' {} +
AF_TMP=$tmp python3 - << 'PY'
import base64, csv, hashlib, importlib.machinery, importlib.util, io, json, os, pathlib, shutil, sys, tarfile, zipfile

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("package", os.environ["AF_SOURCE"] + "/tools/package")
package = importlib.util.module_from_spec(importlib.util.spec_from_loader("package", loader))
loader.exec_module(package)
tmp = pathlib.Path(os.environ["AF_TMP"])
DATE = 1700000000


def build(name):
    tree, package.OUT = tmp / name, tmp / ("out-" + name)
    package.OUT.mkdir()
    for p in tree.rglob("*"):
        p.chmod(0o755 if p.is_dir() or p.parent.name == "bin" else 0o644)
    made = [package.make_tar(tree, "0.1.0", "x86_64", DATE),
            package.make_wheel(tree, "0.1.0", "x86_64", (2, 34), DATE)]
    if shutil.which("dpkg-deb"):
        package.depends = lambda root, arch: "libc6 (>= 2.34)"
        made.append(package.make_deb(tree, "0.1.0", "x86_64", DATE, tmp / ("work-" + name)))
    return made


first, second = build("tree"), build("again")
for a, b in zip(first, second):
    assert a.name == b.name and a.read_bytes() == b.read_bytes(), f"{a.name}: not the same bytes twice"

tar = tarfile.open(first[0])
assert all(m.name.startswith("afinar-0.1.0-linux-x86_64") and m.mtime == DATE and m.uid == 0 for m in tar)
assert tar.getmember("afinar-0.1.0-linux-x86_64/bin/afinar").mode == 0o755
assert [m.name for m in tar] == sorted(m.name for m in tar)

assert first[1].name == "afinar-0.1.0-py3-none-manylinux_2_34_x86_64.whl"
wheel = zipfile.ZipFile(first[1])
rows = list(csv.reader(io.StringIO(wheel.read("afinar-0.1.0.dist-info/RECORD").decode())))
assert [r[0] for r in rows] == wheel.namelist()
for name, digest, size in rows[:-1]:
    data = wheel.read(name)
    want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert digest == "sha256=" + want and int(size) == len(data), name
assert rows[-1] == ["afinar-0.1.0.dist-info/RECORD", "", ""]
assert wheel.getinfo("afinar-0.1.0.data/scripts/afinar").external_attr >> 16 == 0o100755
assert not [n for n in wheel.namelist() if n.endswith(".py")]

sbom = json.loads(wheel.read("afinar-0.1.0.dist-info/sboms/afinar.spdx.json"))
parts = {p["name"]: p for p in sbom["packages"]}
for name in ("afinar", "glibc", "jansson", "libgcc", "libyaml", "pcre2", "utf8proc", "zlib", "zstd"):
    assert parts[name]["versionInfo"][0].isdigit(), f"{name} has no version"
    assert parts[name]["licenseDeclared"] != "NOASSERTION", f"{name} has no licence"
    assert name == "afinar" or any(r["relatedSpdxElement"] == parts[name]["SPDXID"] for r in sbom["relationships"])
PY
# tools/package refuses a program that would not run elsewhere
python3 - << 'PY'
import importlib.machinery, importlib.util, os, sys
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("package", os.environ["AF_SOURCE"] + "/tools/package")
package = importlib.util.module_from_spec(importlib.util.spec_from_loader("package", loader))
loader.exec_module(package)
for name, ok in {"libc.so.6": 1, "libm.so.6": 1, "ld-linux-x86-64.so.2": 1, "ld-linux-aarch64.so.1": 1,
                 "libjansson.so.4": 0, "libz.so.1": 0, "libgcc_s.so.1": 0}.items():
    assert bool(package.SYSTEM.fullmatch(name)) == bool(ok), name
PY
echo ok
