#!/usr/bin/env bash
# Tokens that a run file adds, from the data to the GGUF file: every form of the model has them.
set -uo pipefail
golden="$AF_SOURCE/tests/golden/tokens"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="$tmp/cache" TMPDIR="$tmp/temp"
mkdir "$TMPDIR"
failed=0
fail() { echo "FAILED: $*"; failed=1; }
has() { grep -qF -- "$2" <<<"$1" || fail "no '$2' in: $(head -c 600 <<<"$1")"; }
cd "$tmp" || exit 1
cat >d.jsonl <<'J'
{"messages":[{"role":"user","content":"hi there"},{"role":"assistant","content":"well <tool> yes"}]}
{"messages":[{"role":"user","content":"what"},{"role":"assistant","content":"no <tool>"}]}
J
keys='base_model: BASE
adapter: lora
chat_template: chatml
datasets: [{path: d.jsonl}]
output_dir: OUT
special_tokens: {eos_token: "<|im_end|>", additional_special_tokens: ["<|im_start|>"]}
tokens: ["<tool>"]
max_steps: 4
sequence_len: 128
learning_rate: 0.01
device: cpu
lora_r: 4'
run() { # NAME BASE KEYS...
    local name=$1 base=$2
    shift 2
    sed "s#BASE#$base#; s#OUT#$tmp/$name#" <<<"$keys" >"$name.yaml"
    "$AFINAR" train "$name.yaml" "$@" 2>&1
}
ids() { echo '{"text":"a<tool><|im_end|>"}' | "$AFINAR" tokenize "$1" 2>/dev/null; }
# shellcheck disable=SC2086 # a model and its options
greedy() { "$AFINAR" generate $1 -p 'a<tool>' -n 8 --device cpu --json -q 2>/dev/null; }

for family in llama qwen2; do
    out=$(run $family "$golden/$family") || fail "train $family: $out"
    has "$out" "3 new tokens: '<|im_end|>', ... is 258, the vocabulary grows; their rows are trained"
    has "$(tr -d ' \n' <$family/adapter_config.json)" '[258,259,260]'
    has "$(cat $family/tokenizer_config.json)" '"eos_token": "<|im_end|>"'
    "$AFINAR" merge "$golden/$family" --adapter $family -o $family-merged -q >/dev/null || fail "merge"
    mkdir gguf-$family && "$AFINAR" export $family-merged -o gguf-$family/m.gguf --type f32 -q >/dev/null || fail "export"
    want=$(greedy $family-merged)
    has "$want" '"prompt_ids": [64, 259]'
    for m in "$golden/$family --adapter $family" gguf-$family/m.gguf; do
        [ "$(greedy "$m")" = "$want" ] || fail "$m: $(greedy "$m"), not $want"
    done
    for m in $family $family-merged gguf-$family/m.gguf; do
        [ "$(ids "$m")" = '{"ids": [64, 259, 258]}' ] || fail "tokens of $m: $(ids "$m")"
    done
    a=$("$AFINAR" eval "$golden/$family" --adapter $family --data d.jsonl --device cpu -q 2>/dev/null)
    b=$("$AFINAR" eval $family-merged --data d.jsonl --device cpu -q 2>/dev/null)
    [ -n "$a" ] && [ "${a:0:9}" = "${b:0:9}" ] || fail "eval: $a, merged: $b" # the last digits may differ
done

# the tied model: one list, the untied one: two; in a merged config the new size
has "$(cat llama/adapter_config.json)" '"lm_head"'
grep -q '"lm_head"' qwen2/adapter_config.json && fail "a tied head has rows of its own"
has "$(cat qwen2-merged/config.json)" '"vocab_size": 261'

# a run that stops and resumes has the same bytes as one that does not
run whole "$golden/qwen2" save_steps=2 >/dev/null || fail "train"
run later "$golden/qwen2" resume_from_checkpoint=whole/checkpoint-2 >/dev/null || fail "resume"
cmp whole/adapter_model.safetensors later/adapter_model.safetensors || fail "resumed run differs"
# an adapter with its own vocabulary is continued; its rows are found again
out=$(run more "$golden/qwen2" lora_model_dir=qwen2) || fail "continue: $out"
out=$(run other "$golden/qwen2" lora_model_dir=qwen2 trainable_token_indices=[5]) && fail "other rows are accepted"
has "$out" "trainable_token_indices are not those of the adapter"

# bases in 4 bits and of GGUF blocks; all rows; full fine-tuning
run four "$golden/llama" adapter=qlora >/dev/null || fail "qlora"
mkdir gguf-base && "$AFINAR" export "$golden/llama" -o gguf-base/b.gguf --type q8_0 -q >/dev/null 2>&1 || fail "export"
run blocks "$tmp/gguf-base/b.gguf" >/dev/null || fail "a GGUF base"
has "$(greedy "gguf-base/b.gguf --adapter blocks")" '"prompt_ids": [64, 259]'
out=$(run all "$golden/llama" 'lora_modules_to_save=[embed_tokens,lm_head]') || fail "modules_to_save"
has "$out" "they are trained as the run file says"
run full "$golden/qwen2" adapter=full lora_r=null resize_token_embeddings_to_32x=true >/dev/null || fail "full"
has "$(cat full/config.json)" '"vocab_size": 288'
has "$(tr -d ' \n' <full/generation_config.json)" '"eos_token_id":[258,257]'
has "$(greedy full)" '"prompt_ids": [64, 259]'
# a model that has such tokens gets nothing new
out=$(run again "$tmp/full" resize_token_embeddings_to_32x=true) || fail "tokens that are there"
grep -q "new token" <<<"$out" && fail "tokens that are there are added again"

# a token that only pads needs a row and no training
out=$(run pads "$golden/qwen2" 'special_tokens={pad_token: "<pad>"}' tokens=null train_on_eos=none) || fail "a new pad_token: $out"
has "$out" "1 new token: '<pad>' is 258, the vocabulary grows; it only pads, and is not trained"
has "$(cat pads/adapter_config.json)" '"trainable_token_indices": null'
has "$(greedy "$golden/qwen2 --adapter pads")" '"ids"'

# ChatML and its tokens for a model without a template
out=$(run chatml "$golden/llama" setup_chat_format=true chat_template=null special_tokens=null tokens=null) || fail "ChatML: $out"
has "$out" "2 new tokens: '<|im_start|>', ... is 258"
has "$(cat chatml/chat_template.jinja)" "'<|im_start|>' + m"
has "$(cat chatml/tokenizer_config.json)" '"eos_token": "<|im_end|>"'
has "$(cat chatml/tokenizer_config.json)" '"bos_token": "<|im_start|>"'
sed -i 's#^datasets:.*#dataset_mixture: {datasets: [{id: d.jsonl, weight: 1.0}]}#; s#^chat_template:.*##; s#^special_tokens:.*##; s#^tokens:.*##' chatml.yaml
out=$("$AFINAR" train chatml.yaml output_dir=handbook 2>&1) || fail "a mixture of the alignment handbook: $out"
has "$out" "2 new tokens: '<|im_start|>', ... is 258"
has "$(cat handbook/run.yaml)" "setup_chat_format: true"
out=$(run chatml2 "$golden/llama" chat_template=null special_tokens=null tokens=null) && fail "a conversation without a template"
has "$out" "needs a chat template"

# template, eos and added tokens of another model, as TRL's clone_chat_template: up to a multiple of 64 rows
clone() { run "$1" "$golden/$2" chat_template=null special_tokens=null tokens=null "chat_template_path=$AF_GOLDEN/models/qwen2" "${@:3}"; }
out=$(clone clone llama) || fail "clone: $out"
has "$out" "62 new tokens: '<|endoftext|>', ... is 258, the vocabulary grows; their rows of the embedding and the whole head are trained, as in TRL"
cmp clone/chat_template.jinja "$AF_GOLDEN/models/qwen2/chat_template.jinja" || fail "the template of the other model"
has "$(cat clone/tokenizer_config.json)" '"eos_token": "<|im_end|>"'
has "$(tr -d ' \n' <clone/adapter_config.json)" '"modules_to_save":["lm_head"]'
has "$(tr -d ' \n' <clone/adapter_config.json)" '319]'
want='{"ids": [258, 259, 260, 261, 319]}'
got=$(echo '{"text":"<|endoftext|><|im_start|><|im_end|><extra_id_0><extra_id_58>"}' | "$AFINAR" tokenize clone 2>/dev/null)
[ "$got" = "$want" ] || fail "tokens of a clone: $got"
clone cloned llama save_steps=2 >/dev/null && clone cloned2 llama resume_from_checkpoint=cloned/checkpoint-2 >/dev/null || fail "resume of a clone"
cmp cloned/adapter_model.safetensors cloned2/adapter_model.safetensors || fail "a resumed clone differs"
out=$(clone same qwen2 adapter=full lora_r=null) || fail "full fine-tuning of a clone: $out"
has "$(cat same/config.json)" '"vocab_size": 320'
out=$(clone none llama chat_template_path="$golden/llama") && fail "a clone without a template"
has "$out" "command line: $golden/llama: no chat template"

# lora_bias and DoRA on the head: laid over the base, and merged
run bias "$golden/qwen2" lora_bias=true 'lora_target_modules=[q_proj,v_proj]' learning_rate=0.1 >/dev/null || fail "lora_bias"
run hdora "$golden/llama" peft_use_dora=true 'lora_target_modules=[q_proj,lm_head]' tokens=null special_tokens=null train_on_eos=none \
    learning_rate=0.1 >/dev/null || fail "DoRA on the head"
for m in "bias qwen2" "hdora llama"; do
    # shellcheck disable=SC2086 # two words
    set -- $m
    "$AFINAR" merge "$golden/$2" --adapter "$1" -o "$1-merged" -q >/dev/null || fail "merge $1"
    [ "$(greedy "$golden/$2 --adapter $1")" = "$(greedy "$1-merged")" ] || fail "$1: the merged model differs"
    [ "$(greedy "$1-merged")" != "$(greedy "$golden/$2")" ] || fail "$1 changes nothing"
done
run nobias "$golden/llama" lora_bias=true 'lora_target_modules=[q_proj]' >/dev/null || fail "lora_bias without a bias"
out=$("$AFINAR" merge "$golden/llama" --adapter nobias -o x -q 2>&1) && fail "a bias was merged into nothing"
has "$out" "it has a bias (lora_bias) for 'model.layers.0.self_attn.q_proj', which has none in the model"

# LoRA on the embedding or the head: the adapter, which has the grown tables too, is read again, and merged
for c in "embed_tokens llama" "lm_head llama" "embed_tokens qwen2" "lm_head qwen2"; do
    # shellcheck disable=SC2086 # two words
    set -- $c
    out=$(run low "$golden/$2" "lora_target_modules=[q_proj,$1]" overwrite_output_dir=true) || fail "LoRA on $c: $out"
    want=$(greedy "$golden/$2 --adapter low")
    has "$want" '"prompt_ids": [64, 259]'
    has "$(head -c 4000 low/adapter_model.safetensors | tr -d '\0')" "$1.base_layer.weight"
    rm -rf low-merged
    "$AFINAR" merge "$golden/$2" --adapter low -o low-merged -q >/dev/null || fail "merge LoRA on $c"
    [ "$(greedy low-merged)" = "$want" ] || fail "LoRA on $c: the merged model differs"
done

cp -r "$golden/llama" zeros && chmod -R u+w zeros
python3 - <<'P' || fail "a row of zeros"
import json
d = bytearray(open("zeros/model.safetensors", "rb").read())
n = 8 + int.from_bytes(d[:8], "little")
t = json.loads(d[8:n])["lm_head.weight"]
row = (t["data_offsets"][1] - t["data_offsets"][0]) // t["shape"][0]
d[n + t["data_offsets"][0] + 7 * row:n + t["data_offsets"][0] + 8 * row] = bytes(row)
open("zeros/model.safetensors", "wb").write(d)
P
out=$(run padded zeros peft_use_dora=true 'lora_target_modules=[lm_head]' tokens=null special_tokens=null train_on_eos=none) && fail "DoRA on a row of zeros"
has "$out" "command line: lora_target_modules: DoRA on 'lm_head' is not possible, as row 7 of its weights is zero"

for bad in 'lora_target_modules=[nope]' 'lora_target_parameters=[mlp.gate.weight]'; do
    out=$(run wrong "$golden/llama" "$bad") && fail "$bad"
    has "$out" "command line: ${bad%%=*}: target "
done

for c in "plan whole.yaml" "data check whole.yaml"; do
    # shellcheck disable=SC2086 # a command and its file
    "$AFINAR" $c >/dev/null 2>&1 || fail "$c"
done
wrong() { # WORDS KEYS...
    local words=$1
    shift
    out=$(run bad "$golden/llama" "$@") && fail "accepted: $*"
    has "$out" "$words"
}
wrong "special_tokens has 'eos', which is not one of bos_token" 'special_tokens={eos: x}'
wrong "special_tokens is not a map" 'special_tokens=[x]'
wrong "additional_special_tokens is not a list" 'special_tokens={additional_special_tokens: x}'
wrong "a token has no text" 'tokens=[""]'
wrong "has 261, but the model has the tokens 0 to 260" 'trainable_token_indices=[261]'
wrong "has 3 twice" 'trainable_token_indices=[3, 3]'
wrong "is not a list of token numbers" 'trainable_token_indices=abc'
wrong "goes with embed_tokens and lm_head" 'trainable_token_indices={q_proj: [1]}'
wrong "is needless: modules_to_save trains all of its rows" 'trainable_token_indices=[1]' 'lora_modules_to_save=[embed_tokens]'
wrong "cannot be combined with an adapter on the same module" 'trainable_token_indices=[1]' 'lora_target_modules=[embed_tokens,q_proj]'
out=$(run bad "$golden/qwen2" peft_use_dora=true 'lora_target_modules=[q_proj,lm_head]') && fail "DoRA on a tied head with new tokens"
has "$out" "cannot be combined with DoRA on 'lm_head', the same weights here"
[ -z "$(ls -A "$TMPDIR")" ] || fail "left: $(ls -A "$TMPDIR")"
exit $failed
