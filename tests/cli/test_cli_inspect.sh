#!/usr/bin/env bash
# afinar inspect on files, folders, an adapter, a checkpoint; differences; and what it refuses.
set -uo pipefail
golden="$AF_SOURCE/tests/golden"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }
has() { grep -qF -- "$2" <<<"$1" || fail "no '$2' in: $(head -c 600 <<<"$1")"; }
hasnt() { grep -qF -- "$2" <<<"$1" && fail "'$2' in: $(head -c 600 <<<"$1")"; }

mkdir -p "$tmp/model" "$tmp/nf4" "$tmp/adapter" "$tmp/checkpoint-7"
config='{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":160,"hidden_size":64,
 "intermediate_size":112,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2}'
echo "$config" > "$tmp/model/config.json"
cp "$golden/bnb_model/bf16.safetensors" "$tmp/model/model.safetensors"
echo "$config" > "$tmp/nf4/config.json"
cp "$golden/bnb_model/nf4_dq.safetensors" "$tmp/nf4/model.safetensors"
echo '{"peft_type":"LORA","r":4,"lora_alpha":8,"use_rslora":true,"target_modules":["q_proj","v_proj"],
 "base_model_name_or_path":"some/base"}' > "$tmp/adapter/adapter_config.json"
cp "$golden/bnb/maps.safetensors" "$tmp/adapter/adapter_model.safetensors"
cp "$tmp/adapter/"* "$tmp/checkpoint-7/"
echo '{"global_step":7,"epoch":0.5,"log_history":[{"step":1,"loss":3.5},{"step":7,"loss":2.25},{"eval_loss":9}]}' \
    > "$tmp/checkpoint-7/trainer_state.json"

out=$("$AFINAR" inspect "$tmp/model") || fail "model folder"
has "$out" "model folder"
has "$out" "LlamaForCausalLM"
has "$out" "model.layers.*.mlp.down_proj.weight"
has "$out" "88.4K (88384)"
out=$("$AFINAR" inspect --all "$tmp/model") || fail "--all"
has "$out" "model.layers.1.mlp.down_proj.weight"
hasnt "$out" "layers.*."
out=$("$AFINAR" inspect --json "$tmp/model") || fail "--json"
has "$out" '"parameters":88384'
has "$out" '{"name":"lm_head.weight","dtype":"BF16","shape":[160,64],"bytes":20480'
has "$out" '"num_key_value_heads":2'
[ "$(wc -l <<<"$out")" = 1 ] || fail "one JSON line"

# what is too long is cut between characters
python3 - "$tmp/long.safetensors" <<'PY'
import json, struct, sys
name = "größe." + "層" * 60
head = json.dumps({"__metadata__": {"note": "é" * 300, "more": "a" + "層" * 300}, name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head.encode() + b"\0")
PY
out=$("$AFINAR" inspect "$tmp/long.safetensors") && iconv -f utf-8 -t utf-8 <<<"$out" > /dev/null || fail "a broken character in: $out"
has "$out" "é…"
has "$out" "層…"
out=$(python3 - "$tmp/long.safetensors" <<'PY'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    os.execv(os.environ["AFINAR"], ["afinar", "inspect", "-q", sys.argv[1]])
out = b""
try:
    while more := os.read(fd, 4096):
        out += more
except OSError: # the end
    pass
print(out.decode())
PY
) || fail "a terminal of 60 columns: $out"
has "$out" "größe.層層層層…層層層層層層層  "
has "$out" "  a$(printf '層%.0s' {1..16})…"

out=$("$AFINAR" inspect "$tmp/nf4") || fail "packed folder"
has "$out" "nf4 [64,112]"
has "$out" "88.4K (88384)" # packed weights count what they unpack to
hasnt "$out" "quant_map"

out=$("$AFINAR" inspect "$tmp/adapter") || fail "adapter"
has "$out" "adapter folder"
has "$out" "some/base"
grep -qE 'scale +4$' <<<"$out" || fail "rsLoRA scale 8/sqrt(4)"
out=$("$AFINAR" inspect "$tmp/checkpoint-7") || fail "checkpoint"
has "$out" "checkpoint folder"
grep -qE 'last_loss +2.25' <<<"$out" || fail "last loss"

out=$("$AFINAR" inspect "$AF_SOURCE/tests/fuzz/corpus/fuzz_gguf/small.gguf") || fail "gguf"
has "$out" "GGUF file"
has "$out" "Qwen3ForCausalLM"
has "$out" "[str x 3]"

out=$("$AFINAR" inspect --stats --json "$golden/bnb/maps.safetensors") || fail "--stats"
has "$out" '"min":-1.0,"max":1.0'
one=$("$AFINAR" inspect --stats --json --threads 1 "$tmp/model") || fail "stats, one thread"
four=$("$AFINAR" inspect --stats --json --threads 4 "$tmp/model") || fail "stats, four threads"
[ "$one" = "$four" ] || fail "statistics depend on the number of threads"

out=$("$AFINAR" inspect --diff "$tmp/model" "$tmp/model") || fail "diff with itself"
has "$out" "21 tensors are equal, 0 differ"
out=$("$AFINAR" inspect --diff "$tmp/model" "$tmp/nf4") || fail "diff"
has "$out" "7 tensors are equal, 14 differ, 0 are"
out=$("$AFINAR" inspect --diff --json "$tmp/model" "$golden/bnb/maps.safetensors") || fail "diff json"
has "$out" '"kind":"only_b"'

check() { # status, parts of the message, arguments
    local want=$1 words=$2 msg
    shift 2
    msg=$("$AFINAR" inspect "$@" 2>&1 >/dev/null)
    local got=$?
    [ "$got" = "$want" ] || fail "$*: exit $got, not $want"
    has "$msg" "$words"
}
check 2 "usage"
check 2 "--diff" "$tmp/model" "$tmp/nf4"
check 2 "--diff needs two" --diff "$tmp/model"
check 1 "no model" "$tmp/nothing"
head -c 100 "$tmp/model/model.safetensors" > "$tmp/cut.safetensors"
check 1 "cut.safetensors" "$tmp/cut.safetensors"
echo "some words" > "$tmp/words.txt"
check 1 "neither a safetensors nor a GGUF file" "$tmp/words.txt"
mkdir "$tmp/empty"
check 1 "has no config.json" "$tmp/empty"
echo '{"weight_map":{"a":"../x.safetensors"}}' > "$tmp/empty/model.safetensors.index.json"
check 1 "../x.safetensors" "$tmp/empty"
exit $failed
