#!/usr/bin/env bash
# afinar data records: what a dataset holds; and a table trains as the same records in a .jsonl file.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
columns=$AF_GOLDEN/columns
cd "$tmp"
die() { echo "$*" >&2; exit 1; }
records() { "$AFINAR" data records "$@" --json 2> err; }
fails() { # status, words of the message, arguments
    local want=$1 words=$2 got=0
    shift 2
    "$AFINAR" data "$@" > out 2> err || got=$?
    [ "$got" = "$want" ] || die "exit $got, not $want: $*: $(cat err)"
    grep -qF -- "$words" err || die "no '$words' in: $(cat err)"
}

# --- as they are: numbers beyond 2^53, blanks, what JSON lacks
printf '%s\n' '{ "id" : 18446744073709551615, "a b": "x  y\n", "n":[1.10, -0.0 , 12345678901234567] }' '{"v":NaN}' > in.jsonl
printf '%s\n' '{"id":18446744073709551615,"a b":"x  y\n","n":[1.10,-0.0,12345678901234567]}' '{"v":"NaN"}' > want
records in.jsonl > out
cmp want out || die "jsonl: $(cat out)"
printf '[{"a": 1,\n "b": [1, 2]}, {"a": null}]' > in.json
printf '%s\n' '{"a":1,"b":[1,2]}' '{"a":null}' > want
records in.json > out
cmp want out || die "json: $(cat out)"
printf 'a,b\n1,"x ""y"""\n' > in.csv
[ "$(records in.csv)" = '{"a":"1","b":"x \"y\""}' ] || die "csv"
printf 'one\ntwo\n' > in.txt
[ "$(records in.txt)" = '{"text":"one\ntwo\n"}' ] || die "text"

# --- how many, which configuration and split
[ "$(records "$columns/chat.snappy.v1.dict.parquet" | wc -l)" = 5 ] || die "five by default"
[ "$(records "$columns/chat.snappy.v1.dict.parquet" -n 0 | wc -l)" = 40 ] || die "all"
[ "$(records "$columns/same.runs.parquet" -n 4999 | wc -l)" = 4999 ] || die "across row groups"
records "$columns/hub" -n 0 > train.jsonl
records "$columns/hub" -n 0 --split train --config default | cmp - train.jsonl || die "train is the default"
records "$columns/hub" -n 0 --split test > test.jsonl
cmp -s train.jsonl test.jsonl && die "test is another split"
fails 1 "the card has no split dev (train, test)" records "$columns/hub" --split dev
fails 1 "the card has no config 'none' (default, extra)" records "$columns/hub" --config none
fails 1 "it has no split dev (train, test)" records "$columns/saveddict" --split dev
fails 1 "dataset none.parquet is not there" records none.parquet
fails 2 "--split is for 'records' only" check in.jsonl --split train
fails 2 "one PATH" records in.jsonl in.json

# --- layouts: a cache of the datasets library, names, folders
mkdir -p cache/org___set/default/0.0.0/abc cache/org___set/other/0.0.0/abc named/data split/train
cp "$columns/saveddict/train/data-00000-of-00001.arrow" cache/org___set/default/0.0.0/abc/set-train.arrow
cp "$columns/saveddict/test/data-00000-of-00001.arrow" cache/org___set/default/0.0.0/abc/set-test-00000-of-00001.arrow
echo '{}' | tee cache/org___set/default/0.0.0/abc/dataset_info.json > cache/org___set/other/0.0.0/abc/dataset_info.json
records "$columns/saveddict" -n 0 > saved
records cache -n 0 | cmp - saved || die "a cache"
records cache -n 0 --split test | cmp -s - saved && die "the cache's other split"
cp "$columns/replaced.stream.arrow" cache/org___set/other/0.0.0/abc/set-train.arrow
fails 1 "it holds several datasets" records cache
records cache -n 0 --config default | cmp - saved || die "a cache's config"
cp "$columns"/hub/data/train-0000* named/data
records named -n 0 | cmp - train.jsonl || die "names of files"
mkdir words
cp "$columns/hub/data/train-00000-of-00002.parquet" words/set-train-0.parquet
cp "$columns/hub/data/train-00001-of-00002.parquet" words/set_train_1.parquet
cp "$columns/hub/data/test-00000-of-00001.parquet" words/set-dev.parquet
touch words/set.py
records words -n 0 | cmp - train.jsonl || die "a split in the middle of names"
records words -n 0 --split validation | cmp - test.jsonl || die "dev is validation"
cp "$columns"/hub/data/train-0000* split/train
records split -n 0 --split train | cmp - train.jsonl || die "folders of splits"

mkdir -p deep/a/b deep/c/train deep/c/test
cp "$columns/hub/data/train-00000-of-00002.parquet" deep/a/b/one.parquet
cp "$columns/hub/data/train-00001-of-00002.parquet" deep/a/two.parquet
records deep -n 0 | cmp - train.jsonl || die "folders in folders"
cp "$columns/hub/data/test-00000-of-00001.parquet" deep/c/test/x.parquet
records deep -n 0 --split test | cmp - test.jsonl || die "a split's folder in folders"

# --- the same tokens, from a table and from its records
cat > run.yaml <<YAML
base_model: $AF_GOLDEN/models/qwen2
adapter: lora
datasets: [{path: $columns/hub, split: train}]
chat_template: chatml
sequence_len: 4096
output_dir: out
YAML
"$AFINAR" data preview run.yaml -n 0 --json > table
"$AFINAR" data preview run.yaml "datasets=[{path: train.jsonl}]" -n 0 --json > lines
[ "$(wc -l < table)" = 24 ] || die "$(wc -l < table) records"
# records and lines are counted by file; text, ids and labels are equal
strip() { sed 's/^{.*"text": //' "$1"; }
[ "$(strip table)" = "$(strip lines)" ] || die "other tokens from a table"
"$AFINAR" data check run.yaml "datasets=[{path: $columns/hub, split: 'train[5:15]'}]" --json > checked
grep -q '"records": 10,' checked || die "a slice: $(cat checked)"
check() { "$AFINAR" data check run.yaml "datasets=[{path: $columns/hub, $1}]" --json > checked; grep -q "\"records\": $2," checked || die "$1: $(cat checked)"; }
check "data_files: {train: data/train-*, test: data/test-*}" 24
check "data_files: {train: data/train-*, test: data/test-*}, split: test" 5
check "data_files: '**/train-0000?-of-00002.parquet'" 24
fails 1 "data_files of a dataset wants files of the split" check run.yaml "datasets=[{path: x, data_files: {a: x, b: y}}]"
fails 1 "matches **/none-*" check run.yaml "datasets=[{path: $columns/hub, data_files: '**/none-*'}]"
# only what the shape needs is read: other columns may be damaged
"$AFINAR" data check run.yaml "datasets=[{path: $columns/alpaca.fastparquet.zstd.parquet}]" --json | grep -q '"errors": 0' || die "alpaca"
