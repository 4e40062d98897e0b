/* test_run_automodel.c - run files of NeMo AutoModel. */
#define _DEFAULT_SOURCE
#include "parse_file.h"

#include "base/log.h"
#include "train/run/run_keys.h"

#define STEPS(more) "step_scheduler: {global_batch_size: 8, local_batch_size: 2" more "}\n"
#define SQUAD(more) "dataset: {_target_: a.squad.make_squad_dataset" more "}\n"
#define MODEL                                                                                      \
    "model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained, "                  \
    "pretrained_model_name_or_path: o/m, torch_dtype: bf16, backend: {attn: te}}\n"
#define FILE_OF(steps, data, more)                                                                 \
    MODEL STEPS(steps)                                                                             \
    data more "\n"
#define EVAL       "validation_dataset: {_target_: a.HellaSwag, path_or_dataset: o/h}"
#define FULL(more) FILE_OF("", SQUAD(""), more)
#define LORA(more) FULL("peft: {_target_: a.lora.PeftConfig" more "}")
#define RATE(steps, more)                                                                          \
    FILE_OF(steps, SQUAD(""),                                                                      \
            "optimizer: {_target_: torch.optim.Adam, lr: 1e-3}\nlr_scheduler: {" more "}")

static void test_model_and_steps(void **state)
{
    static const char *const cases[][2] = {
        {FULL(""), "base_model: \"o/m\"\nadapter: full\n"},
        {FULL(""), "micro_batch_size: 2\ngradient_accumulation_steps: 4\n"},
        {FULL(""), "num_epochs: 10\n"},
        {FULL(""), "sequence_len: 16777216\n"},
        {FULL(""), "learning_rate: 0.0001\n"},
        {FULL(""), "lr_scheduler: \"constant\"\n"},
        {FULL(""), "max_grad_norm: 1\n"},
        {FULL(""), "save_steps: 100\n"},
        {FULL(""), "seed: 42\n"},
        {FULL(""), "output_dir: \"checkpoints\"\n"},
        {FILE_OF(", max_steps: 7, num_epochs: 3", SQUAD(""), ""), "num_epochs: 3\nmax_steps: 7\n"},
        {FILE_OF(", ckpt_every_steps: 5, val_every_steps: 3", SQUAD(""), ""), "save_steps: 5\n"},
        {FILE_OF(", ckpt_every_steps: 5, val_every_steps: 3", SQUAD(""), EVAL), "eval_steps: 3\n"},
        {FILE_OF(", ckpt_every_steps: 5", SQUAD(""), EVAL), "eval_steps: 5\n"},
        {FULL(EVAL), "eval_steps: 100\n"},
        {FILE_OF(", ckpt_every_steps: null", SQUAD(""), ""), "saves_per_epoch: 1\n"},
        {FULL("recipe: TrainFinetuneRecipeForNextTokenPrediction"), "adapter: full\n"},
        {FULL("recipe: {_target_: a.TrainFinetuneRecipeForNextTokenPrediction}"), "adapter: full"},
        {FULL("rng: {_target_: x, seed: 7, ranked: true}"), "seed: 7\n"},
        {FULL("seed: 5\nrng: {seed: 7}"), "seed: 5\n"},
        {FULL("clip_grad_norm: {max_norm: 0.5}"), "max_grad_norm: 0.5\n"},
        {FULL("checkpoint: {enabled: true, checkpoint_dir: c/, max_recent_checkpoints: 2}"),
         "output_dir: \"c/\"\n"},
        {FULL("checkpoint: {max_recent_checkpoints: 2}"), "save_total_limit: 2\n"},
        {FULL("checkpoint: {restore_from: LATEST}"), "auto_resume_from_checkpoints: true\n"},
        {FULL("checkpoint: {enabled: false}"), "save_strategy: no\n"},
        {FULL("distributed: {strategy: fsdp2, activation_checkpointing: true}"),
         "gradient_checkpointing: true\n"},
        {FULL(
             "quantization: {load_in_4bit: true, bnb_4bit_use_double_quant: true}\npeft: {dim: 4}"),
         "load_in_4bit: true\n"},
        {FULL("qat: {enabled: true, fake_quant_after_n_steps: 9, quantizer: {_target_: "
              "torchao.quantization.qat.Int8DynActInt4WeightQATQuantizer, groupsize: 64}}"),
         "qat: {\"weight_dtype\": \"int4\", \"activation_dtype\": \"int8\", \"group_size\": 64, "
         "\"fake_quant_after_n_steps\": 9}\n"},
        {FULL("qat: {enabled: false}"), "!weight_dtype"},
        {FULL("neftune: {noise_alpha: 4}"), "neftune_noise_alpha: 4\n"},
        {FULL("wandb: {project: p, name: n, entity: e}"), "report_to: [\"wandb\"]\n"},
        {FULL("wandb: {project: p}\nmlflow: {experiment_name: e}"),
         "report_to: [\"wandb\", \"mlflow\"]\nmlflow_experiment_name: \"e\"\nwandb_project: "
         "\"p\"\n"},
        {FULL(
             "loss_fn: {_target_: a.loss.masked_ce.MaskedCrossEntropy}\ndist_env: {backend: nccl}\n"
             "compile: {enabled: true}\nci: {time: 1}\nnvtx: false\ntool_call_eval: {a: 1}"),
         "adapter: full\n"},
        {"model: {_target_: a.NeMoAutoModelForCausalLM.from_config, config: {_target_: "
         "transformers.AutoConfig.from_pretrained, pretrained_model_name_or_path: o/c}}\n" STEPS("")
             SQUAD(""),
         "base_model: \"o/c\"\n"},
        {"model: {_target_: a.NeMoAutoModelForCausalLM.from_config, config: o/c}\n" STEPS("")
             SQUAD(""),
         "reinit_weights: true\n"},
        {FULL("teacher_model: {pretrained_model_name_or_path: o/t}\nkd_ratio: 0.25\nkd_loss_fn: "
              "{_target_: a.KDLoss, temperature: 2}"),
         "kd_alpha: 0.25\nkd_ce_alpha: 0.75\nkd_temperature: 2\n"},
        {"model: {_target_: a.DeepseekV3ForCausalLM.from_pretrained, "
         "pretrained_model_name_or_path: "
         "o/d}\n" STEPS("") SQUAD("") "autocast: {enabled: true}\n",
         "base_model: \"o/d\"\n"},
        {FULL("teacher_model: {pretrained_model_name_or_path: o/t}"), "teacher_model: \"o/t\"\n"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_AUTOMODEL, cases[i][0], cases[i][1], false);
}

/* The rate rises from a tenth of it and falls to a hundredth, where the file says nothing. */
static void test_optimizer_and_rate(void **state)
{
    static const char *const cases[][2] = {
        {FULL("optimizer: {_target_: torch.optim.AdamW}"), "learning_rate: 0.0001\n"},
        {FULL("optimizer: {_target_: torch.optim.Adam}"), "weight_decay: 0.01\n"},
        {FULL("optimizer: {_target_: torch.optim.Adam, weight_decay: 0}"), "weight_decay: 0\n"},
        {FULL("optimizer: {_target_: torch.optim.AdamW, betas: [0.8, 0.95], eps: 1e-6}"),
         "adam_beta1: 0.8\nadam_beta2: 0.95\n"},
        {FULL("optimizer: {_target_: torch.optim.AdamW}"), "weight_decay_on: all\n"},
        {FULL("optimizer: {_target_: flashoptim.FlashAdamW, lr: 2e-5, master_weight_bits: 24}"),
         "optimizer: adamw\n"},
        {FULL("optimizer: {_target_: a.FusedAdam, adam_w_mode: false}"), "optimizer: adam\n"},
        {RATE(", max_steps: 50", ""), "lr_scheduler: \"cosine\"\nwarmup_steps: 5\n"},
        {RATE(", max_steps: 50", ""), "min_lr: 1e-05\n"},
        {RATE(", max_steps: 50", ""), "warmup_init_lr: 0.0001\n"},
        {RATE(", max_steps: 90000", ""), "warmup_steps: 1000\n"},
        {RATE("", ""), "warmup_ratio: 0.1\n"},
        {RATE("", "lr_warmup_steps: 0"), "!warmup_init_lr: 0.0001"},
        {RATE("", "lr_warmup_steps: 7, init_lr: 0, min_lr: 2e-4"), "warmup_steps: 7\n"},
        {RATE("", "lr_warmup_steps: 7, init_lr: 0, min_lr: 2e-4"), "min_lr: 0.0002\n"},
        {RATE("", "lr_decay_style: linear"), "lr_scheduler: \"polynomial\"\n"},
        {RATE("", "lr_decay_style: constant"), "lr_scheduler: \"constant_with_warmup\"\n"},
        {RATE("", "lr_decay_style: constant"), "!min_lr: 1e-05"},
        {RATE(", max_steps: 50", "lr_decay_steps: 50"), "warmup_steps: 5\n"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_AUTOMODEL, cases[i][0], cases[i][1], false);
}

static void test_adapter(void **state)
{
    static const char *const cases[][2] = {
        {LORA(""), "adapter: lora\n"},
        {LORA(""), "lora_r: 8\nlora_alpha: 32\nlora_dropout: 0\nlora_target_modules: "
                   "[\"(.*_proj)\"]\n"},
        {LORA(", dim: 4, alpha: 16, use_dora: true"), "lora_r: 4\nlora_alpha: 16\n"},
        {LORA(", use_dora: true"), "peft_use_dora: true\n"},
        {LORA(", match_all_linear: true"),
         "lora_target_modules: [\"lm_head\"]\nlora_target_linear: true\n"},
        {LORA(", target_modules: ['*']"), "lora_target_linear: true\n"},
        {LORA(", target_modules: [q_proj, '*.layers.1.*']"),
         "[\"((.*\\\\.)?q_proj|.*\\\\.layers\\\\.1(\\\\..*)?)\"]\n"},
        {LORA(", target_modules: ['.*fc.*', '*mlp.fc.*', 'model.layers.*', '*fc.1.*']"),
         "[\"(.*fc.*|.*mlp\\\\.fc.*|model\\\\.layers(\\\\..*)?|.*fc\\\\.1(\\\\..*)?)\"]\n"},
        {LORA(", exclude_modules: ['.*lm_head.*']"), "!\"lm_head\""},
        {LORA(", exclude_modules: ['*h*ad', x]"), "!\"lm_head\""},
        {LORA(", exclude_modules: ['lm_hea', '*.lm_head', 'm*']"), "[\"lm_head\"]\n"},
        {LORA(", target_modules: '*_proj'"), "[\"(.*_proj)\"]\n"},
        {LORA(", exclude_modules: ['*lm_head*', '*.gate']"), "!\"lm_head\""},
        {LORA(", exclude_modules: ['*lm_head*', '*.gate']"),
         "lora_target_linear: true\nlora_exclude_modules: [\"(.*\\\\.gate)\"]\n"},
        {LORA(", exclude_modules: [out_proj]"), "lora_target_modules: [\"lm_head\"]\n"},
        {LORA(""), "peft_init_lora_weights: \"xavier\"\n"},
        {LORA(", lora_A_init: uniform"), "peft_init_lora_weights: \"true\"\n"},
        {LORA(", dropout: 0.1, dropout_position: pre"), "lora_dropout: 0.1\n"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_AUTOMODEL, cases[i][0], cases[i][1], false);
}

#define DATA(class, more) FILE_OF("", "dataset: {_target_: a." class more "}\n", "")
#define COLUMNS(more)                                                                              \
    DATA("ColumnMappedTextInstructionDataset", ", path_or_dataset_id: o/d, column_mapping: "       \
                                               "{question: q, answer: a}" more)
#define PACKED(data, more)                                                                         \
    FILE_OF("", "dataset: {_target_: a.ChatDataset, path_or_dataset_id: o/d" data "}\n",           \
            "packed_sequence: {packed_sequence_size: 64" more "}")

static void test_data(void **state)
{
    static const char *const cases[][2] = {
        {FULL(""), "datasets: [{\"path\": \"rajpurkar/squad\", \"type\": \"automodel:squad\"}]\n"},
        {FILE_OF("", SQUAD(", dataset_name: squad, split: train, limit_dataset_samples: 9"), ""),
         "[{\"path\": \"rajpurkar/squad\", \"split\": train, \"max_samples\": 9, "},
        {FILE_OF("", SQUAD(", seq_length: 99, truncation: true"), ""), "sequence_len: 99\n"},
        {FILE_OF("", SQUAD(", seq_length: 99"), ""), "sequence_len: 16777216\n"},
        {DATA("HellaSwag", ", path_or_dataset: rowan/hellaswag, num_samples_limit: 5"),
         "\"max_samples\": 5, \"type\": \"automodel:hellaswag\""},
        {COLUMNS(""), "\"type\": \"automodel:columns\", \"field_instruction\": \"q\", "
                      "\"field_input\": \"\", \"field_output\": \"a\"}]\n"},
        {COLUMNS(", use_hf_chat_template: true, answer_only_loss_mask: false"),
         "\"type\": \"automodel:columns_chat\""},
        {COLUMNS(", answer_only_loss_mask: false"), "\"train_on_inputs\": true}]\n"},
        {DATA("ColumnMappedTextInstructionDataset",
              ", path_or_dataset_id: [a.jsonl, b.jsonl], column_mapping: {context: c, question: q, "
              "answer: a}"),
         "[{\"ds_type\": \"json\", \"data_files\": [a.jsonl, b.jsonl], \"type\""},
        {DATA("ColumnMappedTextInstructionDataset",
              ", path_or_dataset_id: o/d, column_mapping: {context: c, answer: a}"),
         "\"field_instruction\": \"c\", \"field_input\": \"\""},
        {DATA("ChatDataset", ", path_or_dataset_id: d/a.jsonl, split: validation"),
         "datasets: [{\"path\": \"d/a.jsonl\"}]\n"},
        {DATA("ChatDataset",
              ", path_or_dataset_id: o/d, split: 'train[:8]', chat_template: t.jinja"),
         "\"split\": \"train[:8]\", \"chat_template\": \"jinja\", \"chat_template_jinja\": "},
        {DATA("ChatDataset", ", path_or_dataset_id: o/d, mask_history: true"),
         "mask_history: true\n"},
        {DATA("make_xlam_dataset", ""), "\"path\": \"Salesforce/xlam-function-calling-60k\"}]\n"},
        {DATA("make_agent_chat_dataset", ", dataset_name: o/d"), "[{\"path\": \"o/d\"}]\n"},
        {DATA("make_xlam_dataset", ", tokenizer: {pretrained_model_name_or_path: o/m}"),
         "!tokenizer_config"},
        {DATA("make_xlam_dataset", ", start_of_turn_token: x, tokenizer: {truncation_side: right}"),
         "!tokenizer_config"},
        {DATA("make_xlam_dataset", ", tokenizer: some"), "adapter: full\n"},
        {DATA("make_xlam_dataset", ", tokenizer: {pretrained_model_name_or_path: o/t}"),
         "tokenizer_config: \"o/t\"\n"},
        {FULL("validation_dataset: {_target_: a.HellaSwag, path_or_dataset: o/h}\n"
              "validation_dataset_b: {_target_: a.ChatDataset, path_or_dataset_id: o/c}"),
         "test_datasets: [{\"path\": \"o/h\", \"type\": \"automodel:hellaswag\"}, {\"path\": "
         "\"o/c\"}]\n"},
        {FULL("dataloader: {_target_: a.StatefulDataLoader, collate_fn: x, shuffle: false}"),
         "shuffle: false\n"},
        {FULL("packed_sequence: {packed_sequence_size: 0}"), "sample_packing: false\n"},
        {PACKED("", ""), "sequence_len: 64\nsample_packing: true\n"},
        {PACKED("", ""), "excess_length_strategy: drop\n"},
        {PACKED("", ", split_across_pack: true, drop_long_samples: false"),
         "excess_length_strategy: drop\n"},
        {PACKED("", ", packing_strategy: neat"), "excess_length_strategy: drop\n"},
        {PACKED("", ", packing_strategy: neat, drop_long_samples: false"),
         "excess_length_strategy: error\n"},
        {PACKED(", seq_length: 99, truncation: true", ""), "excess_length_strategy: drop\n"},
        {PACKED(", seq_length: 32, truncation: true", ""), "excess_length_strategy: truncate\n"},
        {PACKED(", seq_length: 64, truncation: longest_first", ""),
         "excess_length_strategy: truncate\n"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_AUTOMODEL, cases[i][0], cases[i][1], false);
}

#define LABELS(data, more)                                                                         \
    "model: {_target_: nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained, "    \
    "pretrained_model_name_or_path: o/m, num_labels: 5}\n" STEPS("") "dataset: {_target_: "        \
                                                                     "a.seq_cls." data "}\n" more

static void test_classification(void **state)
{
    static const char *const cases[][2] = {
        {LABELS("IMDB", ""), "task_type: SEQ_CLS\nnum_labels: 5\n"},
        {LABELS("IMDB, split: test, num_samples_limit: 9", ""),
         "datasets: [{\"path\": \"stanfordnlp/imdb\", \"split\": test, \"max_samples\": 9}]\n"},
        {LABELS("YelpReviewFull", ""), "datasets: [{\"path\": \"Yelp/yelp_review_full\"}]\n"},
        {LABELS("IMDB", ""), "sequence_len: 256\n"},
        {LABELS("IMDB, max_length: 99", ""), "sequence_len: 99\n"},
        {LABELS("IMDB", "recipe: TrainFinetuneRecipeForSequenceClassification\npeft: {dim: 4}"),
         "adapter: lora\n"},
        {LABELS("IMDB", "validation_dataset: {_target_: a.IMDB, split: test}"),
         "test_datasets: [{\"path\": \"stanfordnlp/imdb\", \"split\": test}]\n"},
        {"model: {_target_: a.NeMoAutoModelForSequenceClassification.from_pretrained, "
         "pretrained_model_name_or_path: o/m}\n" STEPS("") "datasets: [{path: a.jsonl}]",
         "datasets: [{\"path\": a.jsonl}]\n"},
    };
    static const char *const bad[][2] = {
        {LABELS("GLUE_MRPC, split: train", ""),
         "run.yaml:3: dataset 'GLUE_MRPC' of NeMo AutoModel is not supported for classification"},
        {LABELS("ChatDataset, path_or_dataset_id: a", ""), "dataset 'ChatDataset' of NeMo"},
        {FILE_OF("", "dataset: {_target_: a.IMDB}\n", ""), "dataset 'IMDB' of NeMo AutoModel is"},
        {LABELS("IMDB, max_length: null", ""), "run.yaml:3: give max_length a number"},
        {FULL("recipe: TrainFinetuneRecipeForSequenceClassification"),
         "is not supported: NeMoAutoModelForSequenceClassification with this recipe is"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_AUTOMODEL, cases[i][0], cases[i][1], false);
    for (size_t i = 0; i < AF_LEN(bad); i++)
        parse_file(AF_DIALECT_AUTOMODEL, bad[i][0], bad[i][1], true);
}

static void test_refusals(void **state)
{
    static const char *const cases[][2] = {
        {FULL("recipe: TrainFinetuneRecipeForVLM"),
         "run.yaml:4: recipe 'TrainFinetuneRecipeForVLM'"},
        {FULL("optimizer: {_target_: dion.Muon}"), "run.yaml:4: optimizer 'Muon' of NeMo"},
        {FULL("optimizer: {_target_: torch.optim.Adam, amsgrad: true}"), "'amsgrad' of optimizer"},
        {FULL("loss_fn: {_target_: a.DPOLoss}"), "loss_fn 'DPOLoss' of NeMo AutoModel is not"},
        {FULL("checkpoint: {restore_from: x}"), "restore_from is not supported but for LATEST"},
        {FULL("freeze_config: {freeze_embeddings: true}"), "unknown key 'freeze_config'"},
        {FULL("optimzier: {_target_: torch.optim.Adam}"), "unknown key 'optimzier'"},
        {FULL("clip_grad_norm: {max_nrom: 1}"), "'max_nrom' of clip_grad_norm is not supported"},
        {FULL("peft: [1]"), "run.yaml:4: peft must be a map"},
        {FULL("qat: {enabled: true, quantizer: {_target_: a.Int4WeightOnlyQATQuantizer}}"),
         "qat 'Int4WeightOnlyQATQuantizer'"},
        {FILE_OF(", max_stpes: 4", SQUAD(""), ""),
         "'max_stpes' of step_scheduler is not supported"},
        {MODEL "step_scheduler: {global_batch_size: 9, local_batch_size: 2}\n" SQUAD(""),
         "run.yaml:2: global_batch_size 9 is not a multiple of local_batch_size 2"},
        {MODEL STEPS(""), "does not train: it has no 'dataset'"},
        {"model: {_target_: a.NeMoAutoModelForImageTextToText.from_pretrained}\n" STEPS("")
             SQUAD(""),
         "run.yaml:1: model 'a.NeMoAutoModelForImageTextToText.from_pretrained' is not"},
        {"model: {torch_dtype: bf16}\n" STEPS("") SQUAD(""),
         "has a 'pretrained_model_name_or_path'"},
        {"model: {pretrained_model_name_or_path: m, num_labels: 2}\n" STEPS("") SQUAD(""),
         "'num_labels' of model is not supported"},
        {RATE("", "lr_decay_style: WSD"), "lr_decay_style 'WSD' is not supported"},
        {RATE(", max_steps: 50", "lr_decay_steps: 40"), "lr_decay_steps is not supported"},
        {RATE("", "max_lr: 1e-2"), "max_lr is not supported"},
        {RATE("", "lr_wramup_steps: 3"), "'lr_wramup_steps' of lr_scheduler is not supported"},
        {LORA(", match_all_linear: true, target_modules: [q_proj]"), "peft has one of"},
        {LORA(", rank: 8"), "'rank' of peft is not supported"},
        {LORA(", moe_rank_scaling: true"), "'moe_rank_scaling' of peft is not supported"},
        {FULL("teacher_model: {pretrained_model_name_or_path: t}\nkd_ratio: 2"),
         "kd_ratio must be"},
        {DATA("MockIterableDataset", ""), "dataset 'MockIterableDataset' of NeMo AutoModel is not"},
        {DATA("ChatDataset", ""), "ChatDataset has no 'path_or_dataset_id'"},
        {DATA("ChatDataset", ", path_or_dataset_id: d, mask_reasoning_content: true"),
         "'mask_reasoning_content' of a dataset is not supported"},
        {DATA("make_xlam_dataset", ", tokenizer: {truncation_side: left}"),
         "truncation_side is not"},
        {DATA("make_xlam_dataset", ", tokenizer: {trunc_side: left}"), "'trunc_side' of tokenizer"},
        {FULL("dataloader: {dynamic_batching: {max_tokens_per_batch: 9}}"),
         "'dynamic_batching' of"},
        {COLUMNS(", seq_lenght: 5"), "'seq_lenght' of ColumnMappedTextInstructionDataset"},
        {DATA("ColumnMappedTextInstructionDataset",
              ", path_or_dataset_id: d, column_mapping: {question: q}"),
         "column_mapping needs 'answer'"},
        {PACKED("", ", max_packs: 4"), "'max_packs' of packed_sequence is not supported"},
        {"base_model: m\ndataset: {_target_: a.b}", "as in files of NeMo AutoModel"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_AUTOMODEL, cases[i][0], cases[i][1], true);
}

/* Batches of a file have the rows of all ranks. */
static void test_ranks(void **state)
{
    (void)state;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    parse_file(AF_DIALECT_AUTOMODEL, FULL(""), "gradient_accumulation_steps: 2\n", false);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

int main(void)
{
    af_log_mute(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_and_steps), cmocka_unit_test(test_optimizer_and_rate),
        cmocka_unit_test(test_adapter),         cmocka_unit_test(test_data),
        cmocka_unit_test(test_classification),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
