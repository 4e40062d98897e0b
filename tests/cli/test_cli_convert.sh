#!/usr/bin/env bash
# afinar quantize, merge, export: results, exit status, and that failures leave no files.
set -uo pipefail
golden="$AF_SOURCE/tests/golden"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }
has() { grep -qF -- "$2" <<<"$1" || fail "no '$2' in: $(head -c 600 <<<"$1")"; }
status() { [ "$1" = "$2" ] || fail "$3: exit $1, not $2"; }
left() { [ "$(ls -A "$tmp/out" | wc -l)" = 0 ] || fail "$1 left: $(ls -A "$tmp/out")"; }

llama="$golden/gguf_models/llama/hf"
mkdir "$tmp/out"
cd "$golden/merge" || exit 1

out=$("$AFINAR" quantize "$llama" -o "$tmp/q.gguf" --type q8_0 -q) || fail "quantize"
has "$out" "bits per weight"
out=$("$AFINAR" quantize "$llama" -o "$tmp/nf4" --type nf4 --json -q) || fail "quantize nf4"
has "$out" '"bits_per_weight"'
has "$(cat "$tmp/nf4/config.json")" '"bnb_4bit_quant_type": "nf4"'
[ -f "$tmp/nf4/tokenizer.json" ] || fail "the tokenizer is copied"
out=$("$AFINAR" export "$llama" -o "$tmp/e.gguf" --type q8_0 -q) || fail "export"
has "$out" "verify: pass"
out=$("$AFINAR" merge ties.yml -o "$tmp/ties") || fail "merge"
has "$out" "ties of 4 models"
out=$("$AFINAR" merge --plan ties.yml) || fail "plan"
has "$out" "plan: ties"
out=$("$AFINAR" merge models/base --adapter "$golden/peft/lora=0.5" -o "$tmp/lora" -q) || fail "adapter"
has "$out" "1 adapter merged"
out=$("$AFINAR" merge --extract-lora models/base models/a --rank 4 -o "$tmp/x" -q 2>/dev/null) || fail "extract"
has "$out" "rank 4 keeps"

# the quantisation error as an adapter: a model in any format and its base
"$AFINAR" quantize "$llama" -o "$tmp/q4.gguf" --type q4_0 -q >/dev/null || fail "quantize q4_0"
for m in nf4 q4.gguf; do
    out=$("$AFINAR" merge --extract-lora "$llama" "$tmp/$m" --rank 4 -o "$tmp/x_$m" -q 2>/dev/null) || fail "extract from $m"
    has "$out" "rank 4 keeps"
done

# a folder whose name looks like DIR=WEIGHT is that folder
cp -r "$golden/peft/lora" "$tmp/lr=0.5"
"$AFINAR" merge models/base --adapter "$tmp/lr=0.5" -o "$tmp/named" -q >/dev/null || fail "an adapter folder with '='"
"$AFINAR" merge models/base --adapter "$golden/peft/lora" -o "$tmp/plain" -q >/dev/null || fail "the same adapter"
cmp "$tmp/named/model.safetensors" "$tmp/plain/model.safetensors" || fail "the number in the folder's name was used as a weight"

# JSON stays JSON whatever the name is
mkdir "$tmp/q\"q"
for c in "merge models/base --adapter $golden/peft/lora" "merge --extract-lora models/base models/a --rank 2" "export $llama --type q8_0"; do
    # shellcheck disable=SC2086 # arguments of a command
    out=$("$AFINAR" $c -o "$tmp/q\"q/o.gguf" --json -q 2>/dev/null) || fail "$c --json"
    has "$out" 'q\"q/o.gguf"'
    rm -rf "$tmp/q\"q/o.gguf"
done

# options that contradict each other, or would do nothing
wrong() {
    local want=$1 words=$2
    shift 2
    out=$("$AFINAR" "$@" 2>&1)
    status $? "$want" "$*"
    has "$out" "$words"
    left "$*"
}
wrong 2 "--plan applies to a merge file only" merge models/base --adapter "$golden/peft/lora" --plan -o "$tmp/out/p"
wrong 2 "--plan applies to a merge file only" merge --extract-lora models/base models/a --plan
wrong 2 "--rank has no effect" merge models/base --adapter "$golden/peft/lora" --rank 4 -o "$tmp/out/p"
wrong 2 "--type has no effect" merge ties.yml --type f32 -o "$tmp/out/p"
wrong 2 "--adapter expects DIR or DIR=WEIGHT" merge models/base --adapter "$golden/peft/lora=nan" -o "$tmp/out/p"
wrong 2 "--adapter expects DIR or DIR=WEIGHT" merge models/base --adapter "$golden/peft/lora=1e39" -o "$tmp/out/p" # infinite as f32
wrong 1 "nf4 makes a folder" quantize "$llama" -o "$tmp/out/p.gguf" --type nf4
wrong 1 "are for nf4 and fp4" quantize "$llama" -o "$tmp/out/p" --type int8 --block-size 32
wrong 1 "cannot read '$tmp/absent.txt'" quantize "$llama" -o "$tmp/out/p" --type nf4 --eval "$tmp/absent.txt"
wrong 1 "dataset $tmp/absent.jsonl is not there" quantize "$llama" -o "$tmp/out/p" --type nf4 --eval "{path: $tmp/absent.jsonl}"
wrong 1 "unknown key 'feld'" quantize "$llama" -o "$tmp/out/p" --type nf4 --eval "{path: $golden/imatrix/text.txt, feld: q}"
wrong 1 "is a folder, a file is to be written" export "$llama" -o "$tmp/out" --type f16
wrong 1 "pass its folder" export "$llama/model.safetensors" -o "$tmp/out/p.gguf"

# a file is kept when there is too little memory to verify it (how much is too little depends on the build)
for kib in 12000 20000 28000; do
    out=$( (ulimit -v $kib && "$AFINAR" export "$llama" -o "$tmp/tight.gguf" --type f16 --threads 1 -q) 2>&1)
    case "$out" in
    *"is removed"*) fail "removed with too little memory to verify: $out" ;;
    *"could not be verified"*) [ -f "$tmp/tight.gguf" ] || fail "reported as written, but missing: $out" ;;
    esac
    rm -f "$tmp/tight.gguf"
done

# perplexity before and after, over a dataset with the options of a run file; a .tsv has tabs, whatever ds_type says
qwen="$golden/models/qwen2"
printf '{"q": "what, is it", "a": "this"}\n' >"$tmp/qa.jsonl"
printf 'prompt\tcompletion\nwhat, is it\tthis\n' >"$tmp/qa.tsv"
mkdir "$tmp/rows" && cp "$tmp/qa.tsv" "$tmp/rows"
for d in "{path: $tmp/qa.jsonl, field_prompt: q, field_completion: a}" "$tmp/qa.tsv" "{path: $tmp/qa.tsv, ds_type: csv}" "$tmp/rows"; do
    out=$("$AFINAR" quantize "$qwen" -o "$tmp/qa" --force --type nf4 --eval "$d" --json --device cpu -q) || fail "quantize --eval $d"
    grep -o '"perplexity_before".*' <<<"$out"
done >"$tmp/ppl"
[ "$(wc -l <"$tmp/ppl") $(sort -u "$tmp/ppl" | wc -l)" = "4 1" ] || fail "quantize --eval: $(cat "$tmp/ppl")"
out=$("$AFINAR" quantize "$qwen" -o "$tmp/qa" --force --type nf4 --eval "$tmp/qa.jsonl" --device cpu -q 2>&1) && fail "unknown fields pass"
has "$out" "'$tmp/qa' was written, but --eval failed: $tmp/qa.jsonl:1: keys [q, a]"

# with --adapter, the model before quantisation includes the adapter
out=$("$AFINAR" quantize "$llama" --adapter "$golden/gguf_models/llama/lora" -o "$tmp/qa.gguf" --type f32 --eval "$golden/imatrix/text.txt" \
    --device cpu -q) || fail "quantize --adapter --eval"
grep -q '(+0.00%)\|(-0.00%)' <<<"$out" || fail "f32 is not what the adapter's model was: $out"

# a window that GGUF cannot store: reported, and compared as far as both models agree
out=$("$AFINAR" export "$golden/models/mistral_tiny" -o "$tmp/window.gguf" --force --type f32 -q 2>&1) || fail "export of a window: $out"
has "$out" "no sliding window for architecture 'llama': beyond 4 tokens"
has "$out" "same top token at 8 of 8 positions"

# values that are not finite: the first tensor and its model are named, once, and the merge continues
odd() { # FOLDER 0|1: an infinity at the beginning of its first tensor, or at the end of its last
    cp -r models/a "$1" && chmod -R u+w "$1"
    local f=$1/model.safetensors
    local head=$(($(od -An -t u8 -N 8 "$f")))
    printf '\0\0\200\177' | dd of="$f" bs=1 conv=notrunc status=none \
        seek=$(($2 ? $(stat -c %s "$f") - 4 : head + 8))
}
odd "$tmp/last" 1
odd "$tmp/first" 0
{
    echo 'merge_method: linear'
    echo 'models:'
    for m in models/base "$tmp/last" "$tmp/first"; do echo "  - {model: $m, parameters: {weight: 1}}"; done
} >"$tmp/odd.yml"
once() { # TEXT COMMAND...
    out=$("${@:2}" -o "$tmp/odd" --force 2>&1) || fail "${*:2}: $out"
    [ "$(grep -c 'NaN or infinite' <<<"$out")" = 1 ] || fail "not reported exactly once: $out"
    has "$out" "$1 has values that are NaN or infinite"
}
once "tensor 'lm_head.weight' of model '$tmp/first'" "$AFINAR" merge "$tmp/odd.yml"
once "tensor 'model.norm.weight' of model '$tmp/last'" "$AFINAR" merge "$tmp/last" --adapter "$golden/peft/lora"
once "tensor 'model.norm.weight' of model '$tmp/last'" "$AFINAR" merge "$tmp/last" --adapter "$golden/peft/lora" --type bf16
cp -r "$golden/peft/lora" "$tmp/lora_odd" && chmod -R u+w "$tmp/lora_odd"
f=$tmp/lora_odd/adapter_model.safetensors
printf '\0\0\200\177' | dd of="$f" bs=1 conv=notrunc status=none seek=$(($(stat -c %s "$f") - 4))
once "of the adapter for 'models/base'" "$AFINAR" merge models/base --adapter "$tmp/lora_odd"
out=$("$AFINAR" merge ties.yml -o "$tmp/odd" --force 2>&1) || fail "$out"
grep -q NaN <<<"$out" && fail "reported for finite values: $out"
out=$("$AFINAR" merge --extract-lora models/base "$tmp/last" --rank 2 -o "$tmp/odd" --force 2>&1) || fail "$out"
has "$out" "'model.norm.weight' differs"
wrong 1 "the difference of tensor 'lm_head.weight' in 'models/base' and '$tmp/first' is not finite" \
    merge --extract-lora models/base "$tmp/first" --rank 2 -o "$tmp/out/p"

# a copy of an output is known too; what is not ours stays in it
cp -r "$tmp/nf4" "$tmp/run"
mkdir "$tmp/run/checkpoint-3"
wrong 1 "exists and is not empty" quantize "$llama" -o "$tmp/run" --type nf4
"$AFINAR" quantize "$llama" -o "$tmp/run" --type nf4 --force -q >/dev/null || fail "quantize --force"
[ -d "$tmp/run/checkpoint-3" ] || fail "the checkpoint is lost"

# a result that is all zeros, or a part of it
printf 'merge_method: task_arithmetic\nbase_model: models/base\nmodels:\n  - {model: models/a, parameters: {weight: 0}}\n' > "$tmp/zero.yml"
printf 'merge_method: linear\nparameters: {normalize: false}\nmodels:\n  - {model: models/a, parameters: {weight: 0}}\n  - {model: models/b, parameters: {weight: 0}}\n' > "$tmp/zeros.yml"
printf 'merge_method: linear\nparameters: {normalize: false}\nmodels:\n  - model: models/a\n    parameters: {weight: [{filter: mlp, value: 0}, {value: 1}]}\n' > "$tmp/part.yml"
out=$("$AFINAR" merge "$tmp/zeros.yml" -o "$tmp/zeros" 2>&1) || fail "$out"
has "$out" "warning: the result is all zeros: check the weights, densities and scales in $tmp/zeros.yml"
out=$("$AFINAR" merge "$tmp/part.yml" -o "$tmp/part" 2>&1) || fail "$out"
has "$out" "tensors of the result are all zeros although those of the models are not, the first is 'model.layers.0.mlp"
out=$("$AFINAR" merge "$tmp/zero.yml" -o "$tmp/zero" 2>&1) || fail "$out"
grep -q "all zeros" <<<"$out" && fail "the base is not zero: $out"
out=$("$AFINAR" merge models/base --adapter "$golden/peft/lora=0" --adapter-only -o "$tmp/nothing" 2>&1) || fail "$out"
has "$out" "the result is all zeros: the combined adapter changes nothing"

# a 4-bit base: merged onto its dequantised weights, and the output reports that
out=$("$AFINAR" merge "$tmp/nf4" --adapter "$golden/gguf_models/llama/lora" -o "$tmp/m4" -q) || fail "4-bit base"
has "$out" "dequantised"

# an adapter of a run that quantised its base: the output reports the weights it is merged onto, and names the alternative
cp -r "$golden/gguf_models/llama/lora" "$tmp/qlora"
chmod -R u+w "$tmp/qlora"
out=$("$AFINAR" merge "$llama" --adapter "$tmp/qlora" -o "$tmp/m5" -q) || fail "plain adapter"
case $out in *4-bit*) fail "an adapter of a plain base: $out" ;; esac
printf 'base_model: x\nadapter: qlora\nload_in_4bit: auto\n' > "$tmp/qlora/run.yaml"
out=$("$AFINAR" merge "$llama" --adapter "$tmp/qlora" -o "$tmp/m5" --force -q) || fail "adapter of qlora"
has "$out" "trained on a 4-bit copy"
has "$out" "quantize --type nf4"

# a folder and a GGUF file are compared under the names of the folder
"$AFINAR" quantize "$llama" -o "$tmp/f32.gguf" --type f32 -q >/dev/null || fail "quantize f32"
out=$("$AFINAR" inspect --diff "$llama" "$tmp/f32.gguf") || fail "diff of two formats"
has "$out" "21 tensors are equal, 0 differ, 0 are in one only"

# the adapter is opened again for the verification and for --eval: what is wrong with its tokenizer is said once
cp -r "$golden/gguf_models/llama/lora" "$tmp/bad_text" && cp "$llama/tokenizer_config.json" "$tmp/bad_text" && echo '{' > "$tmp/bad_text/tokenizer.json"
for c in "export" "quantize --eval $golden/imatrix/text.txt --device cpu"; do
    out=$("$AFINAR" ${c%% *} "$llama" --adapter "$tmp/bad_text" -o "$tmp/said.gguf" --force --type f32 -q ${c#"${c%% *}"} 2>&1) ||
        fail "$c, an adapter with a broken tokenizer: $out"
    [ "$(grep -c "warning: the tokenizer of the adapter is not used" <<<"$out")" = 1 ] || fail "$c: said other than once: $out"
done

# merged without -t, the folder says the type its weights have, not that of the folder the file was made from
"$AFINAR" merge "$tmp/f32.gguf" --adapter "$golden/gguf_models/llama/lora" -o "$tmp/m6" -q >/dev/null || fail "merge of a GGUF file"
grep -q '"dtype": "float32"' "$tmp/m6/config.json" || fail "type of a merged GGUF file: $(grep dtype "$tmp/m6/config.json")"

# a GGUF file of another program, which carries no config.json: one is made, and describes the same model
facts() { "$AFINAR" inspect "$1" | sed -n '/^  architecture/,/^  parameters/p' | sed '$d'; }
for file in "$golden"/models/gguf/*.gguf; do
    name=$(basename "$file" .gguf)
    printf 'merge_method: linear\nmodels:\n- {model: "%s", parameters: {weight: 1}}\ndtype: float32\n' "$file" > "$tmp/one.yml"
    "$AFINAR" merge "$tmp/one.yml" -o "$tmp/folder-$name" -q > /dev/null || fail "$name: a folder of a GGUF file"
    has "$("$AFINAR" inspect --diff "$file" "$tmp/folder-$name")" "tensors are equal, 0 differ, 0 are in one only"
    [ "$(facts "$file" | wc -l)" -gt 8 ] && [ "$(facts "$file")" = "$(facts "$tmp/folder-$name")" ] ||
        fail "$name: another model: $(diff <(facts "$file") <(facts "$tmp/folder-$name"))"
done

# an importance matrix from a text, kept in both formats
for f in im.gguf im.dat; do
    "$AFINAR" quantize "$llama" -o "$tmp/i.gguf" --force --type q5_1 --imatrix-data "$golden/imatrix/text.txt" --imatrix-chunks 1 \
        --imatrix-out "$tmp/$f" --device cpu -q >/dev/null || fail "imatrix $f"
    "$AFINAR" quantize "$llama" -o "$tmp/j.gguf" --force --type q5_1 --imatrix "$tmp/$f" -q >/dev/null || fail "use of $f"
    out=$("$AFINAR" inspect --diff "$tmp/i.gguf" "$tmp/j.gguf")
    has "$out" "0 differ, 0 are in one only"
done
out=$("$AFINAR" merge models/base --adapter "$golden/peft/lora=0.5" --adapter "$golden/peft/lora2=0.5" --combine dare_ties --random-seed 3 \
    -o "$tmp/dare" -q) || fail "dare"
has "$out" "2 adapters merged"

# a file with several merges: later ones name the results of earlier ones, by name or out_path
cat > "$tmp/series.yml" <<'YAML'
# the first one
merge_method: linear
models:
  - {model: models/a, parameters: {weight: 0.25}}
  - {model: models/b, parameters: {weight: 0.75}}
name: half
random_seed: 3
---
merge_method: slerp
base_model: models/a
models: [{model: half}]
parameters: {t: 0.5, dtype: float32}
out_path: ./made/second
--- # the last one
merge_method: linear
models:
  - {model: ./made/second, parameters: {weight: 0.5}}
  - {model: models/a, parameters: {weight: 0.5}}
YAML
"$AFINAR" merge "$tmp/series.yml" -o "$tmp/series" -q >/dev/null 2>"$tmp/err" || fail "a series: $(cat "$tmp/err")"
grep -q "series.yml:7: 'random_seed' is an option of mergekit's command line" "$tmp/err" || fail "an option in a file: $(cat "$tmp/err")"
grep -q "series.yml:12: 'dtype' is not a parameter" "$tmp/err" || fail "a type among parameters: $(cat "$tmp/err")"
sed -n '1,/^name/p' "$tmp/series.yml" > "$tmp/one.yml"
"$AFINAR" merge "$tmp/one.yml" -o "$tmp/half" -q >/dev/null || fail "the first of a series"
printf 'merge_method: slerp\nbase_model: models/a\nmodels: [{model: %s}]\nparameters: {t: 0.5}\n' "$tmp/half" > "$tmp/one.yml"
"$AFINAR" merge "$tmp/one.yml" -o "$tmp/second" -q >/dev/null || fail "the second of a series"
printf 'merge_method: linear\nmodels:\n  - {model: %s, parameters: {weight: 0.5}}\n  - {model: models/a, parameters: {weight: 0.5}}\n' \
    "$tmp/second" > "$tmp/one.yml"
"$AFINAR" merge "$tmp/one.yml" -o "$tmp/series_last" -q >/dev/null || fail "the last of a series"
cmp -s "$tmp/series/model.safetensors" "$tmp/series_last/model.safetensors" || fail "a series is not its merges one after the other"
cmp -s "$tmp/series.parts/1/model.safetensors" "$tmp/half/model.safetensors" || fail "the parts of a series"
rm -r "$tmp/series.parts"
err=$("$AFINAR" merge "$tmp/series.yml" -o "$tmp/series" -q 2>&1); status $? 1 "a series over another result"
has "$err" "exists"
[ ! -e "$tmp/series.parts" ] || fail "a series ran before its output was refused"
"$AFINAR" merge "$tmp/series.yml" --plan -q >/dev/null 2>"$tmp/err"; status $? 1 "the plan of a series"
grep -q "the plan of a file with 3 merges is not supported" "$tmp/err" || fail "the plan of a series: $(cat "$tmp/err")"
printf 'merge_method: linear\nmodels: [{model: models/a, parameters: {weight: 1}}]\n---\nmerge_method: tys\n' > "$tmp/one.yml"
err=$("$AFINAR" merge "$tmp/one.yml" -o "$tmp/out/m" -q 2>&1); status $? 1 "a wrong second merge"
has "$err" "one.yml:4: unknown merge_method 'tys'"
left "a wrong second merge"

# usage: exit 2
"$AFINAR" quantize "$llama" --type q8_0 2>/dev/null; status $? 2 "no -o"
"$AFINAR" merge ties.yml 2>/dev/null; status $? 2 "merge without -o"
misused() {
    err=$("$AFINAR" "${@:2}" 2>&1); status $? 2 "${*:2}"
    has "$err" "$1"
}
misused "one --adapter is merged here" export "$llama" --adapter a --adapter b -o "$tmp/x.gguf"
misused "one --adapter is merged here" quantize "$llama" --type q8_0 --adapter a --adapter b -o "$tmp/x.gguf"
misused "--imatrix-chunks has no effect without" quantize "$llama" --type q8_0 --imatrix-chunks 3 -o "$tmp/x.gguf"
misused "--density has no effect with --combine linear" merge "$llama" --adapter a --density 0.3 -o "$tmp/x"
misused "--density has no effect with --combine linear" merge "$llama" --adapter a --combine cat --density 0.3 -o "$tmp/x"
misused "--allow-crimes applies to a merge file only" merge "$llama" --adapter a --allow-crimes -o "$tmp/x"
"$AFINAR" export "$llama" --tipe q8_0 -o "$tmp/x.gguf" 2>/dev/null; status $? 2 "unknown option"

# failures: exit 1, one line, nothing left
err=$("$AFINAR" quantize "$llama" -o "$tmp/out/q" --type q9 -q 2>&1); status $? 1 "unknown type"
has "$err" "unknown type 'q9'"
left "unknown type"
echo "merge_method: tys" > "$tmp/bad.yml"
err=$("$AFINAR" merge "$tmp/bad.yml" -o "$tmp/out/m" 2>&1); status $? 1 "unknown method"
has "$err" "bad.yml:1: unknown merge_method 'tys'; did you mean 'ties'?"
left "unknown method"
cp -r "$golden/merge/models/a" "$tmp/cut"
chmod -R u+w "$tmp/cut"
truncate -s 40000 "$tmp/cut/model.safetensors"
sum=$(sha256sum < "$tmp/cut/model.safetensors")
printf 'merge_method: linear\nmodels:\n  - {model: models/b, parameters: {weight: 1}}\n  - {model: %s, parameters: {weight: 1}}\n' "$tmp/cut" > "$tmp/cut.yml"
err=$("$AFINAR" merge "$tmp/cut.yml" -o "$tmp/out/m" 2>&1); status $? 1 "cut shard"
has "$err" "$tmp/cut"
left "cut shard"
[ "$sum" = "$(sha256sum < "$tmp/cut/model.safetensors")" ] || fail "an input was changed"

# what GGUF cannot hold is refused before an importance matrix is computed
out=$("$AFINAR" quantize "$AF_SOURCE/examples/demo/base" -o "$tmp/out/q.gguf" --type q4_k_m --imatrix-data "$golden/imatrix/text.txt" \
    --imatrix-out "$tmp/out/im.dat" --device cpu 2>&1) && fail "a tokenizer without a name was accepted"
has "$out" "llama.cpp has no name for the pre_tokenizer"
grep -q "chunks of 512 tokens" <<<"$out" && fail "computed for nothing: $out"
left "refused before the importance matrix"

# a template for tools goes into the file
cp -r "$golden/models/qwen2" "$tmp/tools" && chmod -R u+w "$tmp/tools" && mkdir "$tmp/tools/additional_chat_templates"
printf 'T{{ tools | length }}' >"$tmp/tools/additional_chat_templates/tool_use.jinja"
"$AFINAR" export "$tmp/tools" -o "$tmp/tools.gguf" --force --type f16 --no-verify -q 2>"$tmp/err" >/dev/null || fail "export with a template for tools: $(cat "$tmp/err")"
row='{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}'
[ "$("$AFINAR" template "$tmp/tools.gguf" <<<"$row")" = '{"text": "T1"}' ] || fail "the template for tools of a GGUF file"
"$AFINAR" quantize "$tmp/tools.gguf" -o "$tmp/tools-nf4" --type nf4 -q >/dev/null 2>&1 || fail "a folder of it"
[ "$("$AFINAR" template "$tmp/tools-nf4" <<<"$row")" = '{"text": "T1"}' ] || fail "the template for tools of the folder"

# adapters of the head of a tied model become one adapter, and are the same merged into the model
qwen2=$golden/models/qwen2
cat > "$tmp/head.yaml" <<YAML
base_model: $qwen2
datasets: [{path: $golden/models/data/train.jsonl}]
output_dir: $tmp/head
adapter: lora
lora_r: 2
lora_target_modules: [lm_head, v_proj]
learning_rate: 0.01
max_steps: 3
device: cpu
YAML
"$AFINAR" train "$tmp/head.yaml" -q >/dev/null 2>"$tmp/err" || fail "an adapter of the head: $(cat "$tmp/err")"
loss() { "$AFINAR" eval "$@" --data "$golden/models/data/train.jsonl" --json --device cpu -q 2>/dev/null | grep -o '"loss": [0-9.]\{7\}'; }
"$AFINAR" merge "$qwen2" --adapter "$tmp/head" --adapter "$tmp/head=0.5" --adapter-only -o "$tmp/both" -q >/dev/null 2>"$tmp/err" ||
    fail "adapters of a tied head: $(cat "$tmp/err")"
err=$("$AFINAR" export "$qwen2" --adapter "$tmp/head" --adapter-only -o "$tmp/head.gguf" -q 2>&1) && fail "a tied head as GGUF"
has "$err" "changes 'lm_head', which shares its weights with the embedding: merge it into a folder"
"$AFINAR" merge "$qwen2" --adapter "$tmp/head" --adapter "$tmp/head=0.5" -o "$tmp/headed" -q >/dev/null 2>&1 || fail "a tied head"
[ "$(loss "$qwen2" --adapter "$tmp/both")" = "$(loss "$tmp/headed")" ] || fail "a combined adapter of the head is not its merged model"
[ "$(loss "$tmp/headed")" != "$(loss "$qwen2")" ] || fail "an adapter of the head has no effect"

# a full disk (simulated by a file size limit)
(
    trap '' XFSZ
    ulimit -f 32
    "$AFINAR" merge ties.yml -o "$tmp/out/m" >/dev/null 2>"$tmp/err"; [ $? = 1 ] || exit 1
    "$AFINAR" quantize "$llama" -o "$tmp/out/q.gguf" --type f32 -q >/dev/null 2>>"$tmp/err"; [ $? = 1 ] || exit 1
    "$AFINAR" quantize "$llama" -o "$tmp/out/nf4" --type nf4 -q >/dev/null 2>>"$tmp/err"; [ $? = 1 ]
) || fail "full disk: exit status"
[ "$(grep -c 'afinar ' "$tmp/err")" = 3 ] || fail "full disk: $(cat "$tmp/err")"
left "full disk"
exit $failed
