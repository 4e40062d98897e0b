#!/usr/bin/env bash
# Wrong run files and wrong data: each exits with 1 or 2, prints one line on stderr that names the problem (warnings about
# records may precede it), prints nothing on stdout, and leaves no output folder.
set -uo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" HF_HOME="$tmp/hf"
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
model=$AF_GOLDEN/models/qwen2
cat > "$tmp/base.yaml" <<YAML
base_model: $model
datasets: [{path: $AF_GOLDEN/models/data/train.jsonl}]
output_dir: $tmp/out
max_steps: 2
device: cpu
YAML
. "$(dirname "$0")/refused_runs.sh"
key() { check "$1" "$tmp/base.yaml" "${@:2}"; }                                       # wrong key=value
lora() { check "$1" "$tmp/base.yaml" adapter=lora "${@:2}"; }                         # the same with an adapter
yaml() { printf '%s\n' "$2" > "$tmp/run.yaml"; check "$1" "$tmp/run.yaml" "${@:3}"; } # a whole run file
more() { { cat "$tmp/base.yaml"; printf '%s\n' "$2"; } > "$tmp/run.yaml"; check "$1" "$tmp/run.yaml"; }
data() { printf '%s\n' "$2" > "$tmp/data.jsonl"; check "$1" "$tmp/base.yaml" "datasets=[{path: $tmp/data.jsonl}]" "${@:3}"; }

# --- the run file itself
check "absent.yaml" "$tmp/absent.yaml"
check "$tmp|is a folder, not a run file|afinar init" "$tmp"
yaml "run.yaml" ''
yaml "a map of keys" '- a list'
yaml "run.yaml:2" $'base_model: x\n  bad indent: [1, 2'
yaml "run.yaml:2" 'base_model: [unclosed'
yaml "run.yaml:3|tab in indentation; use spaces" $'base_model: x\ndatasets:\n\t- path: y'
yaml "base_model is missing" 'output_dir: x'
yaml "datasets is missing" 'base_model: x'
more "run.yaml:6|unknown key 'lora_rnak'|did you mean 'lora_r'" 'lora_rnak: 8'
more "run.yaml:6|unknown key 'zzz'|--help" 'zzz: 1'
more "run.yaml:6|line 4" 'max_steps: 3'
more "run.yaml:7|iters|max_steps|line 4" $'seed: 1\niters: 3'
key "command line|is not key=value" notakey
key "command line|unknown key 'lr_'" lr_=1
key "command line: lora_target_modules:2: did not find" 'lora_target_modules=[q_proj'
key "unknown option '--max_steps=3'|key=value" --max_steps=3
key "output_dir is empty" output_dir=
key "command line: min_lr 1 is above learning_rate 0.0002" lr_scheduler=polynomial min_lr=1
key "save_strategy has no effect|without 'val_set_size' or 'test_datasets'" save_strategy=best
key "load_best_model_at_end has no effect|or with 'eval_strategy: no'" val_set_size=2 eval_strategy=no load_best_model_at_end=true
key "command line: a dataset has no path" datasets=
# --- values
key "max_steps must be a whole number|soon" max_steps=soon
key "max_steps must be a whole number|2.5" max_steps=2.5
key "max_steps is 0" max_steps=0
key "num_epochs is 0" max_steps=-1 num_epochs=0
key "learning_rate must be a number|fast" learning_rate=fast
key "learning_rate is -1|between 0 and 100" learning_rate=-1
key "learning_rate|nan" learning_rate=.nan
key "micro_batch_size is 0|between 1" micro_batch_size=0
key "gradient_accumulation_steps is 0" gradient_accumulation_steps=0
key "sequence_len is 1|between 2" sequence_len=1
key "shuffle must be true or false|perhaps" shuffle=perhaps
key "bf16 must be true, false or auto" bf16=sometimes
key "adapter is 'loraa', which is not supported|lora, qlora" adapter=loraa
key "optimizer is 'adamx', which is not supported|adamw" optimizer=adamx
key "lr_scheduler 'cosin' is not supported|cosine" lr_scheduler=cosin
key "excess_length_strategy is 'ignore'|drop" excess_length_strategy=ignore
key "train_on_eos is 'maybe'" train_on_eos=maybe
key "val_set_size 2.5" val_set_size=2.5
key "val_set_size holds out 64 of 64" val_set_size=64
key "warmup_ratio is 2" warmup_ratio=2
yaml "run.yaml:1: base_model must be one value" 'base_model: [a, b]'
key "command line: no model '[a, b]'" 'base_model=[a, b]'
key "logging_steps is 0" logging_steps=0
key "seed is -1" seed=-1
# --- keys against each other
key "lora_r has no effect" lora_r=8
key "sample_packing_sequentially has no effect" sample_packing_sequentially=true
key "eval_steps has no effect" eval_steps=5
key "sgd_momentum has no effect" sgd_momentum=0.9
key "adam_beta1 has no effect" optimizer=sgd adam_beta1=0.8
key "reinit_weights and freeze_parameters contradict each other" reinit_weights=true adapter=null freeze_parameters=[model.norm]
key "adam_mini divides whole matrices into rows and heads: leave out 'adapter'" optimizer=adam_mini adapter=lora
key "cosine_min_lr_ratio has no effect" lr_scheduler=linear cosine_min_lr_ratio=0.1
key "generate_samples_steps has no effect" generate_samples_steps=2
key "warmup_steps and warmup_ratio contradict" warmup_steps=1 warmup_ratio=0.1
key "'adapter: qlora' and 'load_in_4bit: false'" adapter=qlora load_in_4bit=false
"$AFINAR" quantize "$model" -o "$tmp/nf4" --type nf4 > /dev/null || exit 1
lora "load_in_4bit: false' has no effect|nf4' is stored in 4 bits" base_model="$tmp/nf4" load_in_4bit=false
key "val_set_size and test_datasets" val_set_size=4 "test_datasets=[{path: x}]"
key "train_on_inputs and roles_to_train" train_on_inputs=true 'roles_to_train=[user]'
key "save_steps and saves_per_epoch" save_steps=1 saves_per_epoch=1
# --- keys of other trainers, and keys without effect
more "run.yaml:6|'vllm' with 'true' is not supported|'use_badam' (line 7)" $'vllm: true\nuse_badam: true'
more "run.yaml:7|'wandb_entity' has no effect here|metrics.jsonl|strict" $'strict: true\nwandb_entity: x'
more "run.yaml:7|'fp16' is not supported|see 'bf16'" $'strict: true\nfp16: true'
more "run.yaml:7|'vllm' with 'true' is not supported|also unknown: 'zzz' (line 6)" $'zzz: 1\nvllm: true'
key "command line|wandb_project has no effect without 'report_to: wandb'" wandb_project=x
key "command line|'tf32' has no effect here: the run is on the CPU" --strict tf32=true
key "command line|'attention' has no effect here" --strict attention=cudnn
key "command line|'gemm' has no effect here" --strict gemm=own
more "run.yaml:7|'activation_offloading' has no effect here" $'strict: true\nactivation_offloading: true'
key "activation_offloading: true|gradient_checkpointing: false|contradict" activation_offloading=true gradient_checkpointing=false
lora "loraplus_lr_embedding has no effect|loraplus_lr_ratio" loraplus_lr_embedding=1e-5
key "'split: test' has no effect|is a file" "datasets=[{path: $AF_GOLDEN/models/data/train.jsonl, split: test}]"
key "roles_to_train has no effect|plain text" "datasets=[{path: $AF_GOLDEN/models/data/train.jsonl, type: text}]" 'roles_to_train=[user]'
files=$AF_GOLDEN/data/files
key "roles_to_train has no effect|plain text" "datasets=[{path: $files/text.jsonl}]" 'roles_to_train=[user]'
key "mask_history has no effect|plain text" "datasets=[{path: $files/text.jsonl}]" mask_history=true
key "train_on_inputs has no effect|tokens" "datasets=[{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]" train_on_inputs=true
key "chat_template has no effect|segments" "datasets=[{path: $files/input_output.jsonl}]" chat_template=chatml
key "train_on_eos has no effect" "datasets=[{path: $files/text.jsonl}]" train_on_eos=last
key "adam_epsilon has no effect" optimizer=lion adam_epsilon=1e-6
key "bf16 must be true, false or auto, not 'true' in quotes" 'bf16="true"'
key "field_prompt has no effect|is of shape messages" "datasets=[{path: $AF_GOLDEN/models/data/train.jsonl, field_prompt: question}]"
# keys of turns in the entry of a dataset without turns
echo 'plain text' > "$tmp/plain.txt"
for entry in 'message_field_role: role' 'message_property_mappings: {role: from}' 'message_field_training: t' 'roles: {user: human}' \
    'roles_to_train: [user]' 'train_on_inputs: true' 'train_on_eos: last' 'chat_template: chatml' 'field_tools: t' 'field_system: s'; do
    for file in "$files/text.jsonl" "$tmp/plain.txt" "$AF_GOLDEN/models/data/train_tokens.jsonl"; do
        key "${entry%%:*} has no effect" "datasets=[{path: $file, $entry}]"
    done
done
key "message_field_content has no effect|is of shape alpaca" "datasets=[{path: $files/alpaca.jsonl, message_field_content: text}]"
key "train_on_eos has no effect|is of shape tokens" "datasets=[{path: $AF_GOLDEN/models/data/train_tokens.jsonl, train_on_eos: none}]"
key "'ds_type: csv' and the name's .jsonl contradict" "datasets=[{path: $AF_GOLDEN/models/data/train.jsonl, ds_type: csv}]"
key "'ds_type: excel' is not one of jsonl" "datasets=[{path: $AF_GOLDEN/models/data/train.jsonl, ds_type: excel}]"
key "'ds_type: parquet' and the name's .jsonl contradict" "datasets=[{path: $AF_GOLDEN/models/data/train.jsonl, ds_type: parquet}]"
key "dataset x.jsonl is not there" "datasets=[{path: json, data_files: x.jsonl}]"
key "unknown key 'field_question' of a prompt" "datasets=[{path: x.jsonl, type: {field_question: q}}]"
key "no dataset 'org/name': there is no such folder or file" "datasets=[{path: org/name}]"
key "has no files of split valid" "datasets=[{path: $AF_GOLDEN/models/data, split: valid}]"
key "has no folder 'main'" "datasets=[{path: $AF_GOLDEN/models/data, name: main}]"
lora "k_proj' is adapted in|but not listed in lora_target_modules" lora_model_dir="$AF_GOLDEN/runs/qwen2/lora/initial_adapter" 'lora_target_modules=[q_proj]'
lora "lora_dropout is 0.5" lora_model_dir="$AF_GOLDEN/runs/qwen2/lora/initial_adapter" lora_dropout=0.5
lora "lora_modules_to_save" lora_model_dir="$AF_GOLDEN/runs/qwen2/lora/initial_adapter" 'lora_modules_to_save=[lm_head]'
key "gradient_checkpointing: true, micro_batch_size: |would fit" micro_batch_size=1000000 pad_to_sequence_len=true gradient_checkpointing=false
# --- the model
yaml "run.yaml:1|no model '/nowhere'" $'base_model: /nowhere\ndatasets: [{path: x}]\noutput_dir: '"$tmp/out"
key "no model '/nowhere/at/all'" base_model=/nowhere/at/all
key "org/absent" base_model=org/absent
mkdir "$tmp/empty"
key "$tmp/empty|config.json" base_model="$tmp/empty"
printf 'not a model' > "$tmp/odd.gguf"
key "odd.gguf" base_model="$tmp/odd.gguf"
cp -r "$model" "$tmp/cut"; chmod -R u+w "$tmp/cut"; truncate -s -100 "$tmp/cut/model.safetensors"
key "cut/model.safetensors" base_model="$tmp/cut"
cp -r "$model" "$tmp/noweights"; chmod -R u+w "$tmp/noweights"; rm "$tmp/noweights/model.safetensors"
key "noweights|model.safetensors" base_model="$tmp/noweights"
cp -r "$model" "$tmp/badconfig"; chmod -R u+w "$tmp/badconfig"; printf '{' > "$tmp/badconfig/config.json"
key "badconfig/config.json" base_model="$tmp/badconfig"
cp -r "$model" "$tmp/wide"; chmod -R u+w "$tmp/wide"; sed -i 's/"hidden_size": 64/"hidden_size": 128/' "$tmp/wide/config.json"
key "128|64" base_model="$tmp/wide"
cp -r "$model" "$tmp/alien"; chmod -R u+w "$tmp/alien"; sed -i 's/"model_type": "qwen2"/"model_type": "bert"/' "$tmp/alien/config.json"
key "bert" base_model="$tmp/alien"
cp -r "$model" "$tmp/notok"; chmod -R u+w "$tmp/notok"; rm "$tmp/notok/tokenizer.json"
key "needs a tokenizer" base_model="$tmp/notok"
key "cuda" device=cuda:77
key "device|tpu" device=tpu
# --- the adapter
lora "lora_r is 0" lora_r=0
lora "command line|nothing_like_it" 'lora_target_modules=[nothing_like_it]'
lora "regular expression" 'lora_target_modules="(q_proj"'
lora "command line|lora_target_modules is an empty list" 'lora_target_modules=[]'
lora "command line|lora_exclude_modules has 'q_prj'" 'lora_exclude_modules=[q_prj]'
lora "command line|lm_haed" 'lora_modules_to_save=[lm_haed]'
lora "lora_layers_to_transform has '7'|layers 0 to 1" 'lora_layers_to_transform=[7]'
lora "lora_layers_to_transform|regular expression" 'lora_layers_to_transform=[0]' 'lora_target_modules=".*q_proj"'
lora "lora_dropout is 1" lora_dropout=1
lora "peft_init_lora_weights|pissa_x" peft_init_lora_weights=pissa_x
key "GGUF file|adapter: lora" base_model="$AF_GOLDEN/models/gguf/$(cd "$AF_GOLDEN/models/gguf" && ls | head -1)"
more "run.yaml:9: lora_bias is not supported with DoRA" $'adapter: dora\nlora_r: 4\nlora_target_modules: [q_proj]\nlora_bias: true'
for c in plan train; do
    cases=$((cases + 1))
    for bad in "orthogonal lora_r=3 even rank, not 3" "pissa lora_r=64 rank 64 is more than the 32 of"; do
        # shellcheck disable=SC2086 # the start, a key and the rest of the message
        set -- $bad
        "$AFINAR" $c "$tmp/base.yaml" adapter=lora "peft_init_lora_weights=$1" "$2" > "$tmp/stdout" 2> "$tmp/err" && fail "$c accepts $1 $2"
        words "command line: |${*:3}"
    done
done
lora "command line: no adapter '/nowhere/adapter'" lora_model_dir=/nowhere/adapter
more "run.yaml:7: no adapter '/nowhere/adapter'" $'adapter: lora\nlora_model_dir: /nowhere/adapter'
lora "lora_r is 3" lora_model_dir="$AF_GOLDEN/runs/qwen2/lora/initial_adapter" lora_r=3
# --- the data
more "run.yaml:7: dataset $tmp/absent.jsonl" $'test_datasets:\n  - path: '"$tmp/absent.jsonl"
key "command line: dataset|absent.jsonl" "datasets=[{path: $tmp/absent.jsonl}]"
key "dataset nonsense" datasets=nonsense
key "path" 'datasets=[{type: alpaca}]'
key "tpye" "datasets=[{path: $tmp/data.jsonl, tpye: alpaca}]"
key "alpacca" "datasets=[{path: $tmp/data.jsonl, type: alpacca}]"
: > "$tmp/nothing.jsonl"
key "nothing.jsonl" "datasets=[{path: $tmp/nothing.jsonl}]"
data "data.jsonl:2" $'{"text": "good"}\n{"text": '
data "data.jsonl:1" '[1, 2, 3'
data "data.jsonl:1|keys [a]" '{"a": 1}'
data "data.jsonl:2" $'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n{"text": "another shape"}'
data "data.jsonl:1|content" '{"messages": [{"role": "user"}]}'
data "data.jsonl:1|role" '{"messages": [{"content": "x"}]}'
data "data.jsonl:1|instruction" '{"instruction": 5, "output": "x"}'
data "no record" '{"messages": [{"role": "user", "content": "only a question"}]}'
data "data.jsonl:1|99999" '{"input_ids": [1, 99999], "labels": [1, 99999]}'
data "data.jsonl:1|labels" '{"input_ids": [1, 2, 3], "labels": [1]}'
data "tokens, but sequence_len is 8" '{"text": "one two three four five six seven eight nine ten eleven twelve thirteen"}' excess_length_strategy=error sequence_len=8
data "sequence_len 12|1 are longer" '{"messages": [{"role": "user", "content": "one two three four five six seven"}, {"role": "assistant", "content": "b"}]}' sequence_len=12 excess_length_strategy=drop
data "sequence_len 4|1 were cut" '{"messages": [{"role": "user", "content": "one two three four five six seven"}, {"role": "assistant", "content": "b"}]}' sequence_len=4
key "command line: no record of test_datasets is left to evaluate on|1 are longer than sequence_len 20" "test_datasets=[{path: $tmp/data.jsonl}]" sequence_len=20 excess_length_strategy=drop
data "excess_length_strategy" "$(head -3 "$AF_GOLDEN/models/data/train.jsonl")" sample_packing=true sequence_len=16 excess_length_strategy=error
key "chat_template" chat_template=absent.jinja
key "command line: chat_template 'llama9' is not supported|no template of that name" chat_template=llama9
key "chat_template|line 1" 'chat_template="{% if %}"'
# --- the output
printf x > "$tmp/file"
key "$tmp/file" output_dir="$tmp/file"
key "$tmp/file" output_dir="$tmp/file/out"
key "/proc/nowhere" output_dir=/proc/nowhere
key "base_model|would overwrite it" output_dir="$model/."
mkdir "$tmp/adapter"
key "lora_model_dir|would overwrite it" adapter=lora lora_model_dir="$tmp/adapter" output_dir="$tmp/adapter"
key "no-checkpoint" resume_from_checkpoint="$tmp/no-checkpoint"
key "empty" resume_from_checkpoint="$tmp/empty"
key "resume_from_checkpoint and overwrite_output_dir" resume_from_checkpoint=auto overwrite_output_dir=true
# --- a disk that is full for the adapter, not for the state of its optimizer, which another thread writes
cases=$((cases + 1))
(trap '' XFSZ; ulimit -f 64; "$AFINAR" train "$tmp/base.yaml" adapter=lora lora_r=64 optimizer=sgd save_steps=1 -q > /dev/null 2> "$tmp/err") \
    && fail "a run passes without its checkpoint"
grep -q 'adapter_model.safetensors' "$tmp/err" || fail "a full disk: no file is named"
compgen -G "$tmp/out/checkpoint-*" > /dev/null && fail "a checkpoint without its adapter is left"
rm -rf "$tmp/out"
# --- the same for the commands that only inspect
for words in "plan $tmp/base.yaml" "data preview $tmp/base.yaml" "data check $tmp/base.yaml"; do
    cases=$((cases + 1))
    "$AFINAR" $words base_model=/nowhere > /dev/null 2> "$tmp/err" && fail "$words: no model passes"
    grep -q "command line: no model '/nowhere'" "$tmp/err" || fail "$words does not name the source"
done
echo "$cases wrong runs, $failed faults"
[ $failed = 0 ] && [ $cases -ge 60 ]
