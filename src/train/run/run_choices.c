/* run_choices.c - named values of run-file keys, and how fields that are enums are set and read. */
#include "train/run/run_choices.h"

static const af_key_choice method_names[] = {
    {"full", AF_METHOD_FULL},     {"none", AF_METHOD_FULL},
    {"lora", AF_METHOD_LORA},     {"qlora", AF_METHOD_QLORA},
    {"dora", AF_METHOD_DORA},     {"oft", AF_METHOD_OFT},
    {"freeze", AF_METHOD_FREEZE}, {0}};
static const af_key_choice excess_names[] = {{"truncate", AF_EXCESS_TRUNCATE},
                                             {"drop", AF_EXCESS_DROP},
                                             {"error", AF_EXCESS_ERROR},
                                             {"raise", AF_EXCESS_ERROR},
                                             {0}};
static const af_key_choice truncation_names[] = {{"auto", AF_TRUNCATION_AUTO},
                                                 {"keep_start", AF_TRUNCATION_KEEP_START},
                                                 {"keep_end", AF_TRUNCATION_KEEP_END},
                                                 {0}};
static const af_key_choice eos_names[] = {{"turn", AF_TRAIN_EOS_TURN},
                                          {"all", AF_TRAIN_EOS_ALL},
                                          {"last", AF_TRAIN_EOS_LAST},
                                          {"none", AF_TRAIN_EOS_NONE},
                                          {0}};
static const af_key_choice decay_names[] = {
    {"matrices", AF_DECAY_MATRICES}, {"all", AF_DECAY_ALL}, {0}};
static const af_key_choice lr_decay_names[] = {{"cosine", AF_SCHEDULE_DECAY_COSINE},
                                               {"linear", AF_SCHEDULE_DECAY_LINEAR},
                                               {"1-sqrt", AF_SCHEDULE_DECAY_SQRT},
                                               {0}};
static const af_key_choice lr_rise_names[] = {{"linear", AF_SCHEDULE_RISE_LINEAR},
                                              {"cosine", AF_SCHEDULE_RISE_COSINE},
                                              {"1-sqrt", AF_SCHEDULE_RISE_SQRT},
                                              {0}};
static const af_key_choice threshold_names[] = {
    {"rel", AF_THRESHOLD_REL}, {"abs", AF_THRESHOLD_ABS}, {0}};
static const af_key_choice optimizer_names[] = {{"adamw", AF_OPTIMIZER_ADAMW},
                                                {"adamw_torch", AF_OPTIMIZER_ADAMW},
                                                {"adamw_torch_fused", AF_OPTIMIZER_ADAMW},
                                                {"adamw_torch_xla", AF_OPTIMIZER_ADAMW},
                                                {"adamw_torch_npu_fused", AF_OPTIMIZER_ADAMW},
                                                {"adamw_apex_fused", AF_OPTIMIZER_ADAMW},
                                                {"adamw_hf", AF_OPTIMIZER_ADAMW},
                                                {"paged_adamw_32bit", AF_OPTIMIZER_ADAMW},
                                                {"paged_adamw", AF_OPTIMIZER_ADAMW},
                                                {"optimi_adamw", AF_OPTIMIZER_ADAMW},
                                                {"adam", AF_OPTIMIZER_ADAM},
                                                {"adamw_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                                {"adamw_bnb_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                                {"paged_adamw_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                                {"adamw_torch_8bit", AF_OPTIMIZER_ADAMW_TORCH_8BIT},
                                                {"ao_adamw_8bit", AF_OPTIMIZER_ADAMW_TORCH_8BIT},
                                                {"adamw_4bit", AF_OPTIMIZER_ADAMW_4BIT},
                                                {"adamw_torch_4bit", AF_OPTIMIZER_ADAMW_4BIT},
                                                {"ao_adamw_4bit", AF_OPTIMIZER_ADAMW_4BIT},
                                                {"rmsprop", AF_OPTIMIZER_RMSPROP},
                                                {"rmsprop_bnb", AF_OPTIMIZER_RMSPROP},
                                                {"rmsprop_bnb_32bit", AF_OPTIMIZER_RMSPROP},
                                                {"ademamix", AF_OPTIMIZER_ADEMAMIX},
                                                {"paged_ademamix_32bit", AF_OPTIMIZER_ADEMAMIX},
                                                {"muon", AF_OPTIMIZER_MUON},
                                                {"apollo", AF_OPTIMIZER_APOLLO},
                                                {"apollo_adamw", AF_OPTIMIZER_APOLLO},
                                                {"galore", AF_OPTIMIZER_GALORE},
                                                {"galore_adamw", AF_OPTIMIZER_GALORE},
                                                {"adam_mini", AF_OPTIMIZER_ADAM_MINI},
                                                {"lion", AF_OPTIMIZER_LION},
                                                {"lion_32bit", AF_OPTIMIZER_LION},
                                                {"paged_lion_32bit", AF_OPTIMIZER_LION},
                                                {"lion_8bit", AF_OPTIMIZER_LION_8BIT},
                                                {"paged_lion_8bit", AF_OPTIMIZER_LION_8BIT},
                                                {"rmsprop_8bit", AF_OPTIMIZER_RMSPROP_8BIT},
                                                {"rmsprop_bnb_8bit", AF_OPTIMIZER_RMSPROP_8BIT},
                                                {"ademamix_8bit", AF_OPTIMIZER_ADEMAMIX_8BIT},
                                                {"paged_ademamix_8bit", AF_OPTIMIZER_ADEMAMIX_8BIT},
                                                {"adafactor", AF_OPTIMIZER_ADAFACTOR},
                                                {"sgd", AF_OPTIMIZER_SGD},
                                                {"adagrad", AF_OPTIMIZER_ADAGRAD},
                                                {"nadam", AF_OPTIMIZER_NADAM},
                                                {"radam", AF_OPTIMIZER_RADAM},
                                                {"adopt", AF_OPTIMIZER_ADOPT},
                                                {"adopt_adamw", AF_OPTIMIZER_ADOPT},
                                                {"stable_adamw", AF_OPTIMIZER_STABLE_ADAMW},
                                                {"schedule_free_adamw", AF_OPTIMIZER_FREE_ADAMW},
                                                {"schedule_free_radam", AF_OPTIMIZER_FREE_RADAM},
                                                {"schedule_free_sgd", AF_OPTIMIZER_FREE_SGD},
                                                {0}};

static const af_key_choice apollo_names[] = {
    {"channel", AF_APOLLO_CHANNEL}, {"tensor", AF_APOLLO_TENSOR}, {0}};
static const af_key_choice projection_names[] = {
    {"std", AF_PROJECTION_STD},     {"reverse_std", AF_PROJECTION_REVERSE_STD},
    {"right", AF_PROJECTION_RIGHT}, {"left", AF_PROJECTION_LEFT},
    {"full", AF_PROJECTION_FULL},   {0}};
static const af_key_choice backend_names[] = {{"auto", AF_COMM_AUTO},
                                              {"mpi", AF_COMM_MPI},
                                              {"tcp", AF_COMM_TCP},
                                              {"nccl", AF_COMM_NCCL},
                                              {0}};
static const af_key_choice order_names[] = {{"tree", AF_ORDER_TREE},
                                            {"sequential", AF_ORDER_SEQUENTIAL},
                                            {"any_ranks", AF_ORDER_ANY_RANKS},
                                            {0}};

static const af_key_choice rl_names[] = {
    {"none", AF_RL_NONE}, {"dpo", AF_RL_DPO},       {"ipo", AF_RL_IPO},
    {"kto", AF_RL_KTO},   {"orpo", AF_RL_ORPO},     {"simpo", AF_RL_SIMPO},
    {"cpo", AF_RL_CPO},   {"reward", AF_RL_REWARD}, {0}};
static const af_key_choice uld_merge_names[] = {
    {"observed", AF_ULD_OBSERVED}, {"bayesian", AF_ULD_BAYESIAN}, {0}};
static const af_key_choice task_names[] = {
    {"CAUSAL_LM", AF_TASK_TOKENS}, {"SEQ_CLS", AF_TASK_LABELS}, {0}};
static const af_key_choice problem_names[] = {{"auto", AF_PROBLEM_AUTO},
                                              {"single_label_classification", AF_PROBLEM_SINGLE},
                                              {"multi_label_classification", AF_PROBLEM_MULTI},
                                              {"regression", AF_PROBLEM_REGRESSION},
                                              {0}};
static const af_key_choice divergence_names[] = {{"reverse_kl", AF_F_REVERSE_KL},
                                                 {"forward_kl", AF_F_FORWARD_KL},
                                                 {"js_divergence", AF_F_JS},
                                                 {"alpha_divergence", AF_F_ALPHA},
                                                 {0}};
static const af_key_choice mix_names[] = {{"concat", AF_MIX_CONCAT},
                                          {"interleave_under", AF_MIX_INTERLEAVE_UNDER},
                                          {"interleave_over", AF_MIX_INTERLEAVE_OVER},
                                          {"interleave_once", AF_MIX_INTERLEAVE_ONCE},
                                          {0}};
static const af_key_choice stage_names[] = {
    {"sft", AF_STAGE_FINE_TUNING}, {"pt", AF_STAGE_PRETRAINING}, {0}};
static const af_key_choice save_when_names[] = {{"auto", AF_WHEN_AUTO},
                                                {"steps", AF_WHEN_STEPS},
                                                {"epoch", AF_WHEN_EPOCH},
                                                {"no", AF_WHEN_NO},
                                                {"best", AF_WHEN_BEST},
                                                {"false", AF_WHEN_NO},
                                                {0}};
static const af_key_choice eval_when_names[] = {{"auto", AF_WHEN_AUTO},   {"steps", AF_WHEN_STEPS},
                                                {"epoch", AF_WHEN_EPOCH}, {"no", AF_WHEN_NO},
                                                {"false", AF_WHEN_NO},    {0}};
static const af_key_choice gemm_names[] = {
    {"auto", AF_GEMM_AUTO}, {"own", AF_GEMM_OWN}, {"cublas", AF_GEMM_CUBLAS}, {0}};
static const af_key_choice attention_names[] = {
    {"auto", AF_ATTENTION_AUTO}, {"own", AF_ATTENTION_OWN}, {"cudnn", AF_ATTENTION_CUDNN}, {0}};
static const af_key_choice tri_names[] = {
    {"auto", AF_TRI_AUTO}, {"false", AF_TRI_NO}, {"true", AF_TRI_YES}, {0}};

/* One typed setter and getter per field that is an enum. */
#define CHOICES(field, type, names)                                                                \
    static void set_##field(af_run_config *r, int value) { r->field = (type)value; }               \
    static int get_##field(const af_run_config *r) { return (int)r->field; }                       \
    const af_key_choices af_choices_##field = {names, set_##field, get_##field}

CHOICES(method, af_method, method_names);
CHOICES(uld_merge, af_uld_merge, uld_merge_names);
CHOICES(load_in_4bit, af_tri, tri_names);
CHOICES(train_on_inputs, af_tri, tri_names);
CHOICES(train_on_eos, af_train_eos, eos_names);
CHOICES(train_on_eot, af_train_eos, eos_names);
CHOICES(excess, af_excess, excess_names);
CHOICES(truncation, af_truncation, truncation_names);
CHOICES(optimizer, af_optimizer_kind, optimizer_names);
CHOICES(apollo_scale_type, af_apollo_scaling, apollo_names);
CHOICES(galore_proj_type, af_projection, projection_names);
CHOICES(task, af_task, task_names);
CHOICES(problem, af_problem, problem_names);
CHOICES(dist_backend, af_comm_backend, backend_names);
CHOICES(order, af_order, order_names);
CHOICES(decay_on, af_decay_on, decay_names);
CHOICES(lr_decay, af_schedule_decay, lr_decay_names);
CHOICES(lr_warmup_type, af_schedule_rise, lr_rise_names);
CHOICES(lr_threshold_mode, af_threshold_mode, threshold_names);
CHOICES(bf16, af_tri, tri_names);
CHOICES(checkpointing, af_tri, tri_names);
CHOICES(offloading, af_tri, tri_names);
CHOICES(attention, af_attention_by, attention_names);
CHOICES(stage, af_train_stage, stage_names);
CHOICES(mix, af_mix_strategy, mix_names);
CHOICES(save_strategy, af_when, save_when_names);
CHOICES(eval_strategy, af_when, eval_when_names);
CHOICES(gemm, af_gemm_by, gemm_names);
CHOICES(rl, af_rl, rl_names);
CHOICES(f_divergence, af_f_divergence, divergence_names);
CHOICES(precompute_ref, af_tri, tri_names);
CHOICES(disable_dropout, af_tri, tri_names);
CHOICES(greater_is_better, af_tri, tri_names);
