#!/usr/bin/env bash
# Every command that writes: an existing output is refused before any work, a foreign file in its folder survives with and without
# --force, --force replaces what afinar wrote, and a file of the user's that it would have to overwrite is named and kept.
set -uo pipefail
golden="$AF_SOURCE/tests/golden"
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'rm -rf "$tmp"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }
has() { grep -qF -- "$2" <<<"$1" || fail "$3: no '$2' in: $(head -c 600 <<<"$1")"; }
llama="$golden/gguf_models/llama/hf"
merge="$golden/merge"
cp -r "$llama" "$tmp/llama" && chmod -R u+w "$tmp/llama"
"$AFINAR" quantize "$llama" -o "$tmp/m.gguf" --type f32 -q > /dev/null || fail "quantize"
"$AFINAR" export "$golden/peft/lora" -o "$tmp/mlx" -q > /dev/null || fail "export to mlx"
python3 - "$tmp/ids.safetensors" << 'PY' || fail "python3"
import json, struct, sys
head = json.dumps({"input_ids": {"dtype": "I32", "shape": [1, 4], "data_offsets": [0, 16]}}).encode()
head += b" " * (-len(head) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<4i", 1, 2, 3, 4))
PY
cat > "$tmp/run.yaml" <<YAML
base_model: $golden/models/qwen2
datasets: [{path: $golden/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
max_steps: 2
save_steps: 1
YAML
cd "$merge" || exit 1

# kind (folder, file, run) | a file that it writes | a second one, or the same | command, OUT is the output
table="
folder|config.json|model.safetensors|merge ties.yml -o OUT
folder|config.json|model.safetensors|merge models/base --adapter $golden/peft/lora -o OUT
folder|adapter_config.json|adapter_model.safetensors|merge models/base --adapter $golden/peft/lora --adapter-only -o OUT
folder|adapter_config.json|adapter_model.safetensors|merge --extract-lora models/base models/a --rank 2 -o OUT
folder|config.json|model.safetensors|quantize $llama --type nf4 -o OUT
folder|config.json|model.safetensors|export $tmp/m.gguf -o OUT
folder|adapter_config.json|adapters.safetensors|export $golden/peft/lora -o OUT
folder|adapter_config.json|adapter_model.safetensors|export $tmp/mlx -o OUT
run|adapter_config.json|adapter_model.safetensors|train $tmp/run.yaml output_dir=OUT
file|m.gguf|m.gguf|quantize $llama --type q8_0 -o OUT/m.gguf
file|im.dat|im.dat|quantize $llama --type q8_0 --imatrix-data $golden/imatrix/text.txt --imatrix-chunks 1 --imatrix-out OUT/im.dat -o OUT/n.gguf
file|im.gguf|n.gguf|quantize $llama --type q8_0 --imatrix-data $golden/imatrix/text.txt --imatrix-chunks 1 --imatrix-out OUT/im.gguf -o OUT/n.gguf
file|m.gguf|Modelfile|export $llama --type q8_0 --no-verify -o OUT/m.gguf
file|l.gguf|l.gguf|export $llama --adapter $golden/gguf_models/llama/lora --adapter-only -o OUT/l.gguf
file|x.safetensors|x.safetensors|logits $llama --ids $tmp/ids.safetensors -o OUT/x.safetensors
file|run.yaml|run.yaml|init $golden/models/qwen2 $golden/models/data/train.jsonl -o OUT/run.yaml
"
row=0
run() { # OUT ARGS...: the command of this row; $text and $rc
    local -a words
    local out=$1
    shift
    read -ra words <<<"${command//OUT/$out}"
    case ${words[0]} in merge | export | init) ;; *) words+=(--device cpu) ;; esac
    text=$("$AFINAR" "${words[@]}" --threads 1 -q "$@" 2>&1)
    rc=$?
}
content() { (cd "$1" && find . -type f ! -name .afinar-files -exec sha256sum {} + | sort -k2); } # all files, with their sums
temporary() { find "$tmp" -name '.*.tmp' -o -name '.*.old'; }
refused() { # WORDS OUT: exit 1, one line of error, nothing has changed
    [ $rc = 1 ] || fail "$command: exit $rc: $text"
    has "$text" "$1" "$command"
    [ "$(content "$2")" = "$before" ] || fail "$command: a refused command changed $2: $(diff <(echo "$before") <(content "$2"))"
    [ -z "$(temporary)" ] || fail "$command left $(temporary)"
}

while IFS='|' read -r kind first second command; do
    [ -n "$kind" ] || continue
    row=$((row + 1))
    out="$tmp/o$row"
    mkdir "$out"
    echo mine > "$out/notes.txt"
    mkdir "$out/sub"
    echo mine > "$out/sub/deep.txt"
    before=$(content "$out")

    # a folder with something in it
    run "$out"
    if [ $kind = file ]; then
        [ $rc = 0 ] || fail "$command: $text"
    else
        refused "exists and is not empty (it has 'notes.txt' and 1 more)" "$out"
        has "$text" "--force" "$command"
        run "$out" --force
        [ $rc = 0 ] || fail "$command --force: $text"
    fi
    [ "$(cat "$out/notes.txt" "$out/sub/deep.txt")" = "mine
mine" ] || fail "$command: a foreign file is lost"
    [ -s "$out/$first" ] && [ -s "$out/$second" ] || fail "$command did not write $first and $second: $(ls -A "$out")"

    # its own output: refused, replaced with --force, and everything else is kept
    before=$(content "$out")
    run "$out"
    case $kind in
    file) refused "' exists: choose another name, or replace it with --force" "$out" ;;
    folder) refused "replace what afinar wrote there with --force" "$out" ;;
    run) refused "holds an earlier run" "$out" && has "$text" "--force" "$command" ;;
    esac
    [ $kind = run ] && echo mine > "$out/checkpoint-1/notes.txt"
    run "$out" --force
    [ $rc = 0 ] || fail "$command --force a second time: $text"
    [ "$(cat "$out/notes.txt" "$out/sub/deep.txt")" = "mine
mine" ] || fail "$command --force: a foreign file is lost"
    [ $kind != run ] || [ "$(cat "$out/checkpoint-1/notes.txt")" = mine ] || fail "$command --force: a file in a checkpoint is lost"
    [ -s "$out/$first" ] && [ -s "$out/$second" ] || fail "$command --force did not write $first and $second"
    [ -z "$(temporary)" ] || fail "$command left $(temporary)"

    # the card: front matter that names library and base; one of the user's stays
    if [ $kind != file ]; then
        card=$(cat "$out/README.md")
        [ "$(head -1 <<<"$card")" = --- ] && [ "$(grep -c '^---$' <<<"$card")" = 2 ] || fail "$command: no front matter: $card"
        for words in "library_name: " "base_model" "tags:" "# o$row" "## How to load"; do has "$card" "$words" "card of $command"; done
        grep -q "$tmp/o" <<<"$card" && fail "$command: the card names a folder of this machine: $card"
        echo "my own text" > "$out/README.md"
        run "$out" --force
        [ $rc = 0 ] && [ "$(cat "$out/README.md")" = "my own text" ] || fail "$command --force: a README.md of the user's: $text"
    fi

    # a file of its own that was edited, and files that it never wrote
    echo >> "$out/$second"
    before=$(content "$out")
    run "$out" --force
    refused "$second' has been changed since afinar wrote it" "$out"
    mkdir "$tmp/f$row"
    echo mine > "$tmp/f$row/$first"
    before=$(content "$tmp/f$row")
    run "$tmp/f$row"
    refused "exists" "$tmp/f$row"
    run "$tmp/f$row" --force
    refused "$first' was not written by" "$tmp/f$row"

    # a link is not followed, and is not replaced
    mkdir "$tmp/l$row"
    echo mine > "$tmp/target"
    ln -s "$tmp/target" "$tmp/l$row/$first"
    before=$(content "$tmp/l$row")
    run "$tmp/l$row" --force
    refused "$first' was not written by" "$tmp/l$row"
    [ -L "$tmp/l$row/$first" ] && [ "$(cat "$tmp/target")" = mine ] || fail "$command: a link was replaced or followed"
    rm -rf "$out" "$tmp/f$row" "$tmp/l$row"

    # paths that are no folder of ours
    if [ $kind != file ]; then
        for path in / /// "~/x" "$tmp/target" "$tmp/nothing"; do
            ln -sfn "$tmp/absent" "$tmp/nothing"
            run "$path" --force
            [ $rc = 1 ] || fail "$command with output $path: exit $rc: $text"
        done
        [ "$(cat "$tmp/target")" = mine ] && [ ! -e "$tmp/absent" ] && [ ! -e "~" ] || fail "$command wrote to a path that is no folder"
    fi
done <<<"$table"
[ $row = 16 ] || fail "$row rows"

# cards: the licence of the base, the merge file, and the same bytes twice
mkdir "$tmp/l1" "$tmp/l2"
cp -r models/base "$tmp/licensed" && chmod -R u+w "$tmp/licensed"
printf -- '---\nlanguage: en\nlicense: "apache-2.0"\n---\n# base\nlicense: other\n' > "$tmp/licensed/README.md"
for d in l1 l2; do
    "$AFINAR" merge "$tmp/licensed" --adapter "$golden/peft/lora" -o "$tmp/$d/m" -q > /dev/null || fail "merge"
    "$AFINAR" merge ties.yml -o "$tmp/$d/t" -q > /dev/null || fail "merge"
    "$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/$d/r" -q --device cpu || fail "train"
done
for n in m t r; do cmp "$tmp/l1/$n/README.md" "$tmp/l2/$n/README.md" || fail "two cards of $n differ"; done
diff -r "$tmp/l1/m" "$tmp/l2/m" && diff -r "$tmp/l1/t" "$tmp/l2/t" || fail "two outputs differ"
has "$(cat "$tmp/l1/m/README.md")" "license: apache-2.0" "card"
has "$(cat "$tmp/l1/m/README.md")" 'base_model: "licensed"' "card"
has "$(cat "$tmp/l1/t/README.md")" "$(cat ties.yml)" "card"
has "$(cat "$tmp/l1/r/README.md")" "library_name: peft" "card"
has "$(cat "$tmp/l1/r/README.md")" '- "train_tokens.jsonl"' "card"
has "$(cat "$tmp/l1/r/README.md")" "| rank, alpha, dropout | 4, 8, 0 |" "card"
# the terms of the base come along, whatever their file is called, and the vocabulary in its older form
cp -r models/base "$tmp/terms" && chmod -R u+w "$tmp/terms"
for n in LICENSE LICENSE.txt LICENSE.md LICENSE-MODEL NOTICE NOTICE.txt NOTICE.md USE_POLICY.md sentencepiece.bpe.model; do echo "$n" > "$tmp/terms/$n"; done
"$AFINAR" merge "$tmp/terms" --adapter "$golden/peft/lora" -o "$tmp/l1/terms" -q > /dev/null || fail "merge"
for n in LICENSE LICENSE.txt LICENSE.md LICENSE-MODEL NOTICE NOTICE.txt NOTICE.md USE_POLICY.md sentencepiece.bpe.model; do
    [ "$(cat "$tmp/l1/terms/$n")" = "$n" ] || fail "merge lost $n"
done
# a path that looks like a name of the hub; a name that the hub refuses; a licence with a name of its own
printf -- '---\nlicense: other\nlicense_name: our-terms\nlicense_link: https://example.com/x\n---\n' > "$tmp/licensed/README.md"
cp -r "$tmp/licensed" "$tmp/a base"
"$AFINAR" merge "$tmp/licensed" --adapter "$golden/peft/lora" -o "$tmp/l1/\$(id)" -q > /dev/null || fail "merge"
grep -qF '"$(id)' "$tmp/l1/\$(id)/README.md" && fail "the card has a command that the shell would run"
(cd "$tmp/.." && "$AFINAR" merge "${tmp##*/}/licensed" --adapter "$golden/peft/lora" -o "$tmp/l1/o" -q > /dev/null) || fail "merge"
"$AFINAR" merge "$tmp/a base" --adapter "$golden/peft/lora" -o "$tmp/l1/s" -q > /dev/null || fail "merge"
has "$(head -n 3 "$tmp/l1/o/README.md")" 'base_model: "licensed"' "card"
has "$(cat "$tmp/l1/o/README.md")" 'license: other
license_name: our-terms
license_link: "https://example.com/x"' "card"
for sign in '\001' '\\\\'; do # in YAML's quotes a backslash begins an escape
    printf -- "---\nlicense: other\nlicense_link: https://example.com/${sign}x\n---\n" > "$tmp/licensed/README.md"
    "$AFINAR" merge "$tmp/licensed" --adapter "$golden/peft/lora" -o "$tmp/l1/u" -q --force > /dev/null || fail "merge"
    grep -q "license_link" "$tmp/l1/u/README.md" && fail "an address that is none is in the card: $sign"
done
cp -r "$tmp/licensed" "$tmp/base@2"
"$AFINAR" merge "$tmp/base@2" --adapter "$golden/peft/lora" -o "$tmp/l1/v" -q > /dev/null || fail "merge"
for n in s v; do grep -q "^base_model: " "$tmp/l1/$n/README.md" && fail "a name that the hub refuses is in the card of $n"; done
# two folders of one name are one name on the hub
mkdir "$tmp/x" "$tmp/y" && cp -r models/a "$tmp/x/same" && cp -r models/b "$tmp/y/same"
printf 'merge_method: linear\nmodels:\n  - {model: %s, parameters: {weight: 1}}\n  - {model: %s, parameters: {weight: 1}}\n' \
    "$tmp/x/same" "$tmp/y/same" > "$tmp/same.yml"
"$AFINAR" merge "$tmp/same.yml" -o "$tmp/l1/w" -q > /dev/null || fail "merge"
[ "$(sed '/^tags:/q' "$tmp/l1/w/README.md" | grep -c '"same"')" = 1 ] || fail "a base is there twice: $(cat "$tmp/l1/w/README.md")"
# a classifier is not loaded as a language model
printf '{"text": "good", "label": 1}\n{"text": "bad", "label": 0}\n' > "$tmp/labels.jsonl"
"$AFINAR" train "$tmp/run.yaml" datasets="[{path: $tmp/labels.jsonl}]" task_type=SEQ_CLS output_dir="$tmp/l1/c" -q --device cpu || fail "train"
"$AFINAR" merge "$golden/models/qwen2" --adapter "$tmp/l1/c" -o "$tmp/l1/cm" -q > /dev/null || fail "merge"
has "$(cat "$tmp/l1/c/README.md")" "AutoModelForSequenceClassification.from_pretrained(\"$golden/models/qwen2\", num_labels=2)" "card"
has "$(cat "$tmp/l1/cm/README.md")" 'AutoModelForSequenceClassification.from_pretrained("cm")' "card"
for n in c cm; do has "$(cat "$tmp/l1/$n/README.md")" "pipeline_tag: text-classification" "card"; done
has "$(cat "$tmp/l1/cm/README.md")" 'afinar classify "cm" -p' "card"
# without names of labels there are two, as transformers has it
cp -r "$tmp/l1/cm" "$tmp/two" && python3 -c 'import json, sys
c = json.load(open(sys.argv[1])); [c.pop(k, 0) for k in ("id2label", "label2id", "num_labels")]; json.dump(c, open(sys.argv[1], "w"))' "$tmp/two/config.json"
printf 'merge_method: linear\nmodels:\n  - {model: %s, parameters: {weight: 1}}\n' "$tmp/two" > "$tmp/two.yml"
"$AFINAR" merge "$tmp/two.yml" -o "$tmp/l1/two" -q > /dev/null || fail "merge"
has "$(cat "$tmp/l1/two/README.md")" 'AutoModelForSequenceClassification.from_pretrained("two")' "card"

# an output that is an input, or has one in it
mkdir "$tmp/in" && cp -r models/base "$tmp/in/base" && chmod -R u+w "$tmp/in"
for out in "$tmp/in" "$tmp/in/base" "$tmp/in/base/."; do
    text=$("$AFINAR" merge "$tmp/in/base" --adapter "$golden/peft/lora" -o "$out" --force 2>&1) && fail "an input was replaced: $out"
    has "$text" "input" "merge -o $out"
done
cmp "$tmp/in/base/model.safetensors" models/base/model.safetensors || fail "an input was changed"
"$AFINAR" merge "$tmp/in/base" --adapter "$golden/peft/lora" -o "$tmp/in/base/merged" -q > /dev/null || fail "a new folder in an input's"
(cd "$tmp/in" && "$AFINAR" merge base --adapter "$golden/peft/lora" -o . --force 2> "$tmp/err") && fail "-o ."
has "$(cat "$tmp/err")" "lies in the output folder" "-o ."

# so are adapters, importance matrices and, of logits, the model: all written by this program before, with the same names
io="$tmp/io"
mkdir "$io"
"$AFINAR" quantize "$llama" --type q8_0 --imatrix-data "$golden/imatrix/text.txt" --imatrix-chunks 1 --imatrix-out "$io/im.gguf" -o "$io/m.gguf" -q > /dev/null || fail "quantize"
"$AFINAR" export "$llama" --adapter "$golden/gguf_models/llama/lora" --adapter-only -o "$io/l.gguf" -q > /dev/null || fail "export"
"$AFINAR" merge "$llama" --adapter "$golden/gguf_models/llama/lora" --adapter-only -o "$io/ad" -q > /dev/null || fail "merge"
before=$(content "$io")
while read -r words command; do
    read -ra args <<<"$command"
    text=$(cd "$io" && "$AFINAR" "${args[@]}" --force -q 2>&1)
    [ $? = 1 ] || fail "$command: no error: $text"
    has "$text" "${words//_/ }" "$command"
    [ "$(content "$io")" = "$before" ] || fail "$command: an input was changed: $(diff <(echo "$before") <(content "$io"))"
done <<LIST
is_one_of_the_inputs export $llama --adapter l.gguf -o l.gguf --type f32 --no-verify
is_one_of_the_inputs export $llama --adapter l.gguf --adapter-only -o l.gguf
is_one_of_the_inputs export $llama --imatrix im.gguf -o im.gguf --type q4_k_m --no-verify
is_one_of_the_inputs export m.gguf --adapter ad -o ad --no-verify
is_one_of_the_inputs quantize $llama --adapter l.gguf -o l.gguf --type q8_0
is_one_of_the_inputs quantize $llama --adapter ad -o ad --type nf4
is_one_of_the_inputs quantize $llama --imatrix im.gguf -o im.gguf --type q4_k_m
is_one_of_the_inputs quantize $llama --imatrix im.gguf --imatrix-out im.gguf -o n.gguf --type q4_k_m
have_one_output quantize $llama --imatrix im.gguf --imatrix-out n.gguf -o n.gguf --type q4_k_m
is_one_of_the_inputs logits m.gguf --ids $tmp/ids.safetensors -o m.gguf
is_one_of_the_inputs logits $llama --adapter l.gguf --ids $tmp/ids.safetensors -o l.gguf
LIST

# an empty folder and a link to one are used as they are
mkdir "$tmp/empty"
ln -s empty "$tmp/link"
"$AFINAR" merge ties.yml -o "$tmp/link/" > /dev/null || fail "an empty folder behind a link"
[ -L "$tmp/link" ] && [ -s "$tmp/empty/config.json" ] || fail "the link was replaced"

# the run file in its own output folder is the user's
mkdir "$tmp/here" && cp "$tmp/run.yaml" "$tmp/here/run.yaml"
text=$("$AFINAR" train "$tmp/here/run.yaml" output_dir="$tmp/here" -q --device cpu --force 2>&1) && fail "the run file was replaced"
has "$text" "run.yaml' was not written by this program" "train"
cmp "$tmp/run.yaml" "$tmp/here/run.yaml" || fail "the run file was changed"

# save_total_limit removes the files of a checkpoint, and no others; a resumed run keeps them as well
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/limit" -q --device cpu || fail "train"
echo mine > "$tmp/limit/checkpoint-1/notes.txt"
echo mine > "$tmp/limit/README.local"
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/limit" -q --device cpu max_steps=4 save_total_limit=1 resume_from_checkpoint=auto || fail "resume"
[ "$(ls -A "$tmp/limit/checkpoint-1")" = notes.txt ] || fail "checkpoint-1: $(ls -A "$tmp/limit/checkpoint-1")"
[ ! -e "$tmp/limit/checkpoint-2" ] && [ -d "$tmp/limit/checkpoint-4" ] && [ -f "$tmp/limit/README.local" ] || fail "$(ls -A "$tmp/limit")"
# a gguf file in the folder of a run does not belong to the run
"$AFINAR" export "$golden/models/qwen2" --adapter "$tmp/limit" --no-verify -o "$tmp/limit/q.gguf" --type q8_0 -q > /dev/null || fail "export into a run"
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/limit" -q --device cpu --force || fail "train --force"
[ -s "$tmp/limit/q.gguf" ] && [ -s "$tmp/limit/Modelfile" ] || fail "train --force removed an export"

# a checkpoint with a damaged manifest is set aside whole, notes included, and the run goes on
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/damaged" -q --device cpu || fail "train"
echo garbage > "$tmp/damaged/checkpoint-2/manifest.json"
echo mine > "$tmp/damaged/checkpoint-2/notes.txt"
rm "$tmp/damaged/run_state.json"
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/damaged" -q --device cpu resume_from_checkpoint=auto || fail "resume next to a damaged checkpoint"
[ "$(cat "$tmp/damaged/checkpoint-2.damaged/"{manifest.json,notes.txt})" = "garbage
mine" ] && ! grep -q garbage "$tmp/damaged/checkpoint-2/manifest.json" || fail "damaged: $(ls -A "$tmp/damaged"/*)"
# names like those of temporary checkpoints, and what a killed run leaves of one that had notes in it
mkdir "$tmp/damaged/"{checkpoint-notes.tmp,checkpoint-2.tmp}
for n in checkpoint-notes.tmp/a checkpoint-best.tmp checkpoint-2.tmp/b; do echo mine > "$tmp/damaged/$n"; done
cp -r "$tmp/damaged/checkpoint-1" "$tmp/damaged/checkpoint-9.tmp"
echo mine > "$tmp/damaged/checkpoint-9.tmp/c"
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/damaged" -q --device cpu max_steps=3 resume_from_checkpoint=auto || fail "resume"
for n in checkpoint-notes.tmp/a checkpoint-best.tmp checkpoint-2/b checkpoint-9/c; do
    [ "$(cat "$tmp/damaged/$n")" = mine ] || fail "$n is lost: $(ls -A "$tmp/damaged")"
done
[ "$(ls -A "$tmp/damaged/checkpoint-9")" = c ] && [ ! -e "$tmp/damaged/checkpoint-9.tmp" ] || fail "$(ls -A "$tmp/damaged/checkpoint-9"*)"

# a run that starts from a checkpoint of the run that it would replace
full="$tmp/run.yaml adapter=none output_dir=$tmp/full -q --device cpu"
"$AFINAR" train $full || fail "train"
text=$("$AFINAR" train $full base_model="$tmp/full/checkpoint-1" --force 2>&1) && fail "a run removed its base model"
has "$text" "base_model '$tmp/full/checkpoint-1' lies in output_dir" "train"
text=$("$AFINAR" train $full teacher_model="$tmp/full/checkpoint-1" --force 2>&1) && fail "a run removed its teacher"
has "$text" "teacher_model '$tmp/full/checkpoint-1' lies in output_dir" "train"
for keys in --force "max_steps=3 resume_from_checkpoint=auto"; do
    text=$("$AFINAR" train $full teacher_model="$tmp/full" $keys 2>&1) && fail "a run replaced its teacher: $keys"
    has "$text" "output_dir '$tmp/full' is the folder of teacher_model: the run would overwrite it" "train $keys"
done
[ -s "$tmp/full/checkpoint-1/model.safetensors" ] && [ -s "$tmp/full/config.json" ] || fail "a refused run removed files"

# a disk that cannot hold one checkpoint: refused before the first step, and nothing is left
mkdir "$tmp/small"
if unshare -rm mount -t tmpfs -o size=64k none "$tmp/small" 2> /dev/null; then
    text=$(unshare -rm bash -c 'mount -t tmpfs -o size=800k none "$1" && "$2" train "$3" output_dir="$1/run" adapter=none lora_r=null --device cpu; echo "exit $?"; ls -A "$1"' - \
        "$tmp/small" "$AFINAR" "$tmp/run.yaml" 2>&1)
    has "$text" "afinar train: a checkpoint with the result needs 1.5 MB, and '$tmp/small/run' has 0.8 MB free" "small disk"
    [ "$(tail -n 1 <<<"$text")" = "exit 1" ] || fail "small disk: $text"
    grep -q "^step " <<<"$text" && fail "a run without room for a checkpoint began: $text"
    # a run in place of an earlier one has the room of that
    text=$(unshare -rm bash -c 'mount -t tmpfs -o size=64m none "$1" && set -- "$1" "$2" "$3" output_dir="$1/run" adapter=none lora_r=null --device cpu -q
        "$2" train "${@:3}" || exit; mount -o remount,size=$(($(df -k --output=used "$1" | tail -n 1) + 600))k "$1"
        "$2" train "${@:3}" output_dir="$1/more"; echo "more $?"; "$2" train "${@:3}" overwrite_output_dir=true; echo "again $?"' - \
        "$tmp/small" "$AFINAR" "$tmp/run.yaml" 2>&1)
    for words in "a checkpoint with the result needs 1.5 MB" "more 1" "again 0"; do has "$text" "$words" "the room of an earlier run"; done
else
    echo "not tested: a small disk (no user namespaces)"
fi

# a signal leaves no temporary folder and no output
for sig in TERM INT; do
    for delay in 0.01 0.03 0.06 0.1; do
        # what this shell starts in the background ignores SIGINT, if it does not ask
        (trap - INT; exec "$AFINAR" merge ties.yml -o "$tmp/sig" --threads 1 > /dev/null 2>&1) &
        pid=$!
        sleep $delay
        kill -$sig $pid 2> /dev/null
        wait $pid
        rc=$?
        case $sig:$rc in TERM:143 | INT:130 | *:0) ;; *) fail "$sig after $delay: exit $rc" ;; esac
        [ -z "$(temporary)" ] || fail "$sig after $delay left $(temporary)"
        [ $rc = 0 ] || [ ! -e "$tmp/sig" ] || [ -s "$tmp/sig/.afinar-files" ] || fail "$sig left half an output"
        rm -rf "$tmp/sig"
    done
done

# a limit on the size of files: an error of the write, not a signal
(ulimit -f 20; "$AFINAR" quantize "$llama" -o "$tmp/limit.gguf" --type f32 -q > /dev/null 2> "$tmp/err")
[ $? = 1 ] && grep -q "File too large" "$tmp/err" || fail "ulimit -f: $(cat "$tmp/err")"
[ ! -e "$tmp/limit.gguf" ] && [ -z "$(temporary)" ] || fail "ulimit -f left: $(ls -A "$tmp")"

# a model or a token cache that becomes shorter while it is in use: one sentence, exit 1, no temporary files
lost() { # FILE COMMAND...: it is cut while the command runs
    : > "$tmp/stdout" # not the lines of an earlier run
    : > "$tmp/err"
    "${@:2}" > "$tmp/stdout" 2> "$tmp/err" &
    pid=$!
    until grep -q "^step .*loss" "$tmp/err" "$tmp/stdout" || ! kill -0 $pid 2> /dev/null; do sleep 0.05; done
    for f in $1; do : > "$f"; done
    wait $pid
    [ $? = 1 ] && [ "$(grep -c "became shorter, or could not be read any more, while it was in use" "$tmp/err")" = 1 ] ||
        fail "$1 was cut: $(tail -3 "$tmp/err")"
    grep -q "afinar train: '.*${1##*/}" "$tmp/err" || [ "${1##*/}" = "*.tokens" ] || fail "the file is not named: $(tail -3 "$tmp/err")"
    [ -z "$(temporary)" ] || fail "$1 was cut, left: $(temporary)"
}
cp -r "$golden/models/qwen2" "$tmp/cut" && chmod -R u+w "$tmp/cut"
long="output_dir=$tmp/long max_steps=1000000 save_steps=100000"
lost "$tmp/cut/model.safetensors" "$AFINAR" train "$tmp/run.yaml" $long base_model="$tmp/cut" --device cpu --threads 2
XDG_CACHE_HOME="$tmp/cache2" lost "$tmp/cache2/afinar/tokens/*.tokens" "$AFINAR" train "$tmp/run.yaml" $long --device cpu --threads 2 --force
exit $failed
