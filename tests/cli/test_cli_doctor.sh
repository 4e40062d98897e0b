#!/usr/bin/env bash
# afinar doctor on machines that are not this one: a driver alone (CUDA 12 or 13), and with every library.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
mkdir -p "$tmp/driver" "$tmp/empty" "$tmp/all"
cp "$AF_BUILD/tests/fake_nvidia.so" "$tmp/driver/libcuda.so.1"
for name in libnvrtc.so.12 libcublasLt.so.12 libcudnn.so.9; do cp "$AF_BUILD/tests/fake_nvidia.so" "$tmp/all/$name"; done
doctor() { # DRIVER FOLDER
    env -u XDG_DATA_HOME LD_LIBRARY_PATH="$tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKE_CUDA="$1" \
        AFINAR_CUDA_LIBS="$tmp/$2" "$AFINAR" doctor --device cpu --threads 1 > "$tmp/out"
}
has() { grep -qE -- "$1" "$tmp/out" || { cat "$tmp/out"; fail "doctor does not say '$1'"; }; }
lacks() { if grep -qE -- "$1" "$tmp/out"; then cat "$tmp/out"; fail "doctor says '$1'"; fi; }
where='pip install --target ~/\.local/share/afinar/cuda'

doctor 12040 empty
has '^GPU driver +yes supports CUDA 12\.4, sees 1 GPU$'
has '^GPU 0 +yes Fake GPU, sm_90: every kernel is tested on such a GPU$'
has '^cuBLASLt +no  not found: GEMMs on a GPU run in own kernels'
has '^cuDNN +no  not found: attention runs in own kernels$'
has "^what is missing +no  $where nvidia-cublas-cu12 nvidia-cuda-nvrtc-cu12 nvidia-cudnn-cu12$"

doctor 12040 all
has "^cuBLASLt +yes 120900: GEMMs on a GPU \($tmp/all/libcublasLt.so.12\)$"
has "^cuDNN +yes 91900: attention on a GPU, where it is faster \($tmp/all/libcudnn.so.9\)$"
has "^NVRTC +yes 12\.9: compiles kernels once, then they are cached \($tmp/all/libnvrtc.so.12\)$"
lacks '^what is missing'
FAKE_ARCH=86 doctor 12040 all
has '^GPU 0 +no  Fake GPU, sm_86: untested: kernels are compiled for it and fit its memory, but have run on sm_90 only, and tiles are chosen by a cost model instead of measurements; compare a few steps with --device cpu$'
FAKE_ARCH=120 doctor 12040 all
has '^GPU 0 +no  Fake GPU, sm_120: untested'
FAKE_ARCH=75 doctor 12040 all
has '^GPU 0 +no  Fake GPU, sm_75: too old: sm_80 is the oldest that is used$'
rm "$tmp/all/libcudnn.so.9"
doctor 13000 all
has "^what is missing +no  $where nvidia-cudnn-cu13$"
echo ok
