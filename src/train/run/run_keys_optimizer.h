/* run_keys_optimizer.h - rows of af_keys (run_keys.c, which alone includes it): what updates
 * parameters. */
/* clang-format off */
    {"optimizer", ENUM(optimizer), 0, 0, "adamw",
     "adamw, adamw_8bit, adamw_4bit, adam, adam_mini, ademamix, adopt, nadam, radam, adagrad, "
     "stable_adamw, schedule_free_adamw, schedule_free_radam, schedule_free_sgd, "
     "lion_8bit, ademamix_8bit, rmsprop_8bit, "
     "muon, apollo, galore, lion, adafactor, rmsprop, sgd",
     {"optim"}, 0},
    {"optim_args", STR(optim_args), 0, 0, NULL,
     "settings that one optimizer alone has: 'alpha=0.95,eps=1e-6' (see the guide)",
     {0}, 0},
    {"optim_target_modules", LIST(optim_targets), 0, 0, NULL,
     "apollo, galore: linears with one of these texts in their path, or all-linear; default: all "
     "of layers",
     {"apollo_target", "galore_target", "galore_target_modules"}, AF_NEED_PROJECTED},
    {"apollo_rank", I64(apollo_rank), 1, 1 << 16, "128", "rank of the projected gradients", {0},
     AF_NEED_APOLLO},
    {"apollo_scale", F64(apollo_scale), 1e-6, 1e9, "1",
     "its root multiplies the updates of the matrices that are projected", {0}, AF_NEED_APOLLO},
    {"apollo_scale_type", ENUM(apollo_scale_type), 0, 0, "channel",
     "a factor per row or column, or (apollo-mini, with rank 1) per tensor", {0}, AF_NEED_APOLLO},
    {"apollo_update_interval", I64(apollo_gap), 1, 1e9, "200", "steps of a random projection", {0},
     AF_NEED_APOLLO},
    {"apollo_scale_front", BOOL(apollo_scale_front), 0, 0, "false",
     "limit the growth of updates after they are scaled, not before", {0}, AF_NEED_APOLLO},
    {"galore_rank", I64(galore_rank), 1, 1 << 16, "128", "rank of the projected gradients", {0},
     AF_NEED_GALORE},
    {"galore_scale", F64(galore_scale), 1e-6, 1e9, "0.25",
     "multiplies the updates of the matrices that are projected", {0}, AF_NEED_GALORE},
    {"galore_update_interval", I64(galore_gap), 1, 1e9, "200",
     "steps with the singular vectors of one gradient", {"galore_update_proj_gap"},
     AF_NEED_GALORE},
    {"galore_proj_type", ENUM(galore_proj_type), 0, 0, "std",
     "std: the shorter side of a matrix is projected; reverse_std: the other; right (columns), "
     "left (rows), full (both)",
     {0}, AF_NEED_GALORE},
