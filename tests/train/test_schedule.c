/* test_schedule.c - rates against the numbers of transformers.get_scheduler and torch's
 * lr_scheduler, and of Axolotl's schedulers, at steps 0, 1, 4, 5, 17, 60, 79, 80, 99 of 100. */
#include "test.h"

#include "afinar/schedule.h"
#include "base/base.h"

#include <math.h>

static const int64_t at[] = {0, 1, 4, 5, 17, 60, 79, 80, 99};

static void test_rates_are_those_of_the_originals(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        af_schedule_opts o;
        double want[9];
    } cases[] = {
        {"constant", {.name = "constant"}, {1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {"constant_with_warmup",
         {.name = "constant_with_warmup", .warmup = 5},
         {0, 0.2, 0.8, 1, 1, 1, 1, 1, 1}},
        {"linear",
         {.name = "linear", .warmup = 5},
         {0, 0.2, 0.8, 1, 0.873684210526316, 0.421052631578947, 0.221052631578947,
          0.210526315789474, 0.0105263157894737}},
        {"linear without warm-up",
         {.name = "linear"},
         {1, 0.99, 0.96, 0.95, 0.83, 0.4, 0.21, 0.2, 0.01}},
        {"cosine",
         {.name = "cosine", .warmup = 5},
         {0, 0.2, 0.8, 1, 0.961144877488692, 0.3772572564296, 0.115799444571571, 0.105429745301803,
          0.000273371329536976}},
        {"one and a half waves",
         {.name = "cosine", .warmup = 5, .cycles = 1.5},
         {0, 0.2, 0.8, 1, 0.68559862445911, 0.838640785812871, 0.745211751915254, 0.700847712326485,
          0.00245854872749435}},
        {"a quarter of a wave",
         {.name = "cosine_with_min_lr", .warmup = 5, .min_ratio = 0.1, .cycles = 0.25},
         {0, 0.2, 0.8, 1, 0.991170984643664, 0.826395720710351, 0.703131928498739,
          0.696114761142108, 0.557440275144861}},
        {"waves a step ahead",
         {.name = "cosine_warmup_with_min_lr", .warmup = 5, .min_ratio = 0.1, .cycles = 1.5},
         {0.2, 0.4, 1, 0.997787306145255, 0.67483130894283, 0.886069664642869, 0.730762941093837,
          0.689057647468726, 0.1}},
        {"warmup_stable_decay, a whole wave",
         {.name = "warmup_stable_decay", .warmup = 5, .decay_steps = 30, .cycles = 1},
         {0, 0.2, 0.8, 1, 1, 1, 0.345491502812526, 0.25, 0.989073800366903}},
        {"cosine with a floor",
         {.name = "cosine_with_min_lr", .warmup = 5, .min_ratio = 0.1},
         {0, 0.2, 0.8, 1, 0.965030389739823, 0.43953153078664, 0.204219500114414, 0.194886770771623,
          0.100246034196583}},
        {"three cosines",
         {.name = "cosine_with_restarts", .warmup = 5, .cycles = 3},
         {0, 0.2, 0.8, 1, 0.68559862445911, 0.161359214187129, 0.745211751915254, 0.700847712326485,
          0.00245854872749429}},
        {"polynomial",
         {.name = "polynomial", .warmup = 5, .power = 2},
         {0, 0.2, 0.8, 1, 0.763324123390582, 0.177285400831025, 0.0488643610415513,
          0.0443214252077562, 0.000110903313019391}},
        {"polynomial with a floor",
         {.name = "polynomial", .warmup = 5, .power = 2, .min_ratio = 0.1},
         {0, 0.2, 0.8, 1, 0.786991689750693, 0.259556786703601, 0.14397783933518, 0.1398891966759,
          0.10009972299169}},
        {"inverse_sqrt",
         {.name = "inverse_sqrt", .warmup = 5},
         {0, 0.2, 0.8, 1, 0.54232614454664, 0.288675134594813, 0.251577302713314, 0.25,
          0.224733287487747}},
        {"inverse_sqrt without warm-up",
         {.name = "inverse_sqrt"},
         {1, 0.999950003749688, 0.999800059980007, 0.999750093710954, 0.999151082216968,
          0.997013432852472, 0.996073250732836, 0.996023841111995, 0.995086453134999}},
        {"inverse_sqrt, time scale",
         {.name = "inverse_sqrt", .warmup = 5, .timescale = 30},
         {0, 0.2, 0.8, 1, 0.845154254728517, 0.594088525786005, 0.537086155529575,
          0.534522483824849, 0.491869376837965}},
        {"inverse_sqrt, time scale without warm-up",
         {.name = "inverse_sqrt", .timescale = 30},
         {1, 0.983738753675929, 0.939336436627724, 0.925820099772551, 0.798935461936961,
          0.577350269189626, 0.524623062587002, 0.522232967867094, 0.482242822170412}},
        {"warmup_stable_decay, warm-up along a cosine",
         {.name = "warmup_stable_decay",
          .warmup = 10,
          .decay_steps = 30,
          .min_ratio = 0.1,
          .rise = AF_SCHEDULE_RISE_COSINE},
         {0.1, 0.122024567667181, 0.410942352531274, 0.55, 1, 1, 0.814503363531613, 0.775,
          0.102465147084277}},
        {"warmup_stable_decay, warm-up along a square root",
         {.name = "warmup_stable_decay",
          .warmup = 10,
          .decay_steps = 30,
          .min_ratio = 0.1,
          .rise = AF_SCHEDULE_RISE_SQRT},
         {0.1, 0.146185031754538, 0.302862997682665, 0.363603896932107, 1, 1, 0.814503363531613,
          0.775, 0.102465147084277}},
        {"warmup_stable_decay, stable steps",
         {.name = "warmup_stable_decay",
          .warmup = 5,
          .decay_steps = 30,
          .min_ratio = 0.1,
          .stable_steps = 45,
          .has_stable_steps = true},
         {0.1, 0.28, 0.82, 1, 1, 0.775, 0.102465147084277, 0.1, 0.1}},
        {"warmup_stable_decay, no stable steps",
         {.name = "warmup_stable_decay", .warmup = 5, .decay_steps = 70, .has_stable_steps = true},
         {0, 0.2, 0.8, 1, 0.929224396800933, 0.109084258765985, 0, 0, 0}},
        {"cosine_warmup_with_min_lr, first rate",
         {.name = "cosine_warmup_with_min_lr",
          .warmup = 5,
          .min_ratio = 0.1,
          .first_ratio = 0.3,
          .has_first_ratio = true},
         {0.3, 0.475, 1, 0.999753965803417, 0.959052940772123, 0.42516869105717, 0.194886770771623,
          0.185942352531274, 0.1}},
        {"cosine_warmup_with_min_lr, from zero",
         {.name = "cosine_warmup_with_min_lr",
          .warmup = 5,
          .min_ratio = 0.1,
          .has_first_ratio = true},
         {0, 0.25, 1, 0.999753965803417, 0.959052940772123, 0.42516869105717, 0.194886770771623,
          0.185942352531274, 0.1}},
        {"cosine_warmup_with_min_lr, warm-up of one step",
         {.name = "cosine_warmup_with_min_lr",
          .warmup = 1,
          .min_ratio = 0.1,
          .first_ratio = 0.2,
          .has_first_ratio = true},
         {0.2, 0.999773444072433, 0.996379665773858, 0.994347499904377, 0.93609253595574,
          0.40281941650716, 0.187628384111024, 0.179345538356575, 0.1}},
        {"warmup_stable_decay",
         {.name = "warmup_stable_decay", .warmup = 5, .decay_steps = 30, .min_ratio = 0.05},
         {0.05, 0.24, 0.81, 1, 1, 1, 0.804197994838925, 0.7625, 0.0526020997000702}},
        {"warmup_stable_decay, linear",
         {.name = "warmup_stable_decay",
          .warmup = 5,
          .decay_steps = 30,
          .decay = AF_SCHEDULE_DECAY_LINEAR},
         {0, 0.2, 0.8, 1, 1, 1, 0.7, 0.666666666666667, 0.0333333333333333}},
        {"warmup_stable_decay, square root",
         {.name = "warmup_stable_decay",
          .warmup = 5,
          .decay_steps = 30,
          .decay = AF_SCHEDULE_DECAY_SQRT},
         {0, 0.2, 0.8, 1, 1, 1, 0.452277442494834, 0.422649730810374, 0.016807919749825}},
        {"constant has no warm-up", {.name = "constant", .warmup = 5}, {1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {"rex",
         {.name = "rex", .warmup = 5},
         {0.2, 0.4, 1, 0.998937300743889, 0.984393757503001, 0.874439461883408, 0.727272727272727,
          0.714285714285714, 0}},
        {"rex with a floor",
         {.name = "rex", .min_ratio = 0.1},
         {0.999091826437941, 0.99816700610998, 0.995287958115183, 0.994291754756871,
          0.980668257756563, 0.878270509977827, 0.742857142857143, 0.7309963099631, 0.1}},
        {"cosine with a constant tail",
         {.name = "cosine", .warmup = 5, .min_ratio = 0.1, .constant_ratio = 0.7},
         {0, 0.2, 0.8, 1, 0.926411562104602, 0.151544788456056, 0.1, 0.1, 0.1}},
        {"without a floor the tail has no meaning",
         {.name = "cosine", .warmup = 5, .constant_ratio = 0.7},
         {0, 0.2, 0.8, 1, 0.961144877488692, 0.3772572564296, 0.115799444571571, 0.105429745301803,
          0.000273371329536976}},
        {"cosine with a quadratic warm-up",
         {.name = "cosine", .warmup = 5, .quadratic_warmup = true},
         {0, 0.04, 0.64, 1, 0.961144877488692, 0.3772572564296, 0.115799444571571,
          0.105429745301803, 0.000273371329536976}},
        {"cosine_warmup_with_min_lr",
         {.name = "cosine_warmup_with_min_lr", .warmup = 5, .min_ratio = 0.1},
         {0.2, 0.4, 1, 0.999753965803417, 0.959052940772123, 0.42516869105717, 0.194886770771623,
          0.185942352531274, 0.1}},
        {"one_cycle",
         {.name = "one_cycle"},
         {0.04, 0.0428137805659075, 0.0843637985579406, 0.108708555439557, 0.648413602494026,
          0.589280090285529, 0.188258346050237, 0.171033952907596, 4e-06}},
        {"one_cycle that rises in five steps",
         {.name = "one_cycle", .warmup = 5},
         {0.04, 0.180588745030457, 1, 0.999726629763948, 0.954503449511511, 0.361301100424895,
          0.105433323582822, 0.0954951208465151, 4e-06}},
        {"cosine with jagged restarts",
         {.name = "cosine",
          .warmup = 5,
          .restart_steps = 20,
          .restart_warmup = 4,
          .restart_anneal = 3},
         {0.2, 0.4, 1, 0.999726628670463, 0.636653679438896, 0.0905956103139837,
          0.000105429745301803, 0.023944494330241, 0}},
        {"linear with jagged restarts",
         {.name = "linear", .restart_steps = 40},
         {0.99, 0.98, 0.95, 0.94, 0.82, 0.39, 0.0002, 0.019171, 0}},
        {"jagged restarts with a floor",
         {.name = "constant",
          .restart_steps = 16,
          .restart_warmup = 2,
          .restart_anneal = 8,
          .restart_floor = 0.1},
         {1, 1, 1, 1, 1, 0.4375, 0.1, 0.55, 1}},
        {"jagged restarts that fall early",
         {.name = "constant",
          .restart_steps = 30,
          .restart_warmup = 10,
          .restart_anneal = 25,
          .restart_floor = 0.1},
         {1, 1, 0.55, 0.64, 0.532, 0.19, 0.46, 0.424, 0.82}},
        {"rex with jagged restarts",
         {.name = "rex", .warmup = 5, .restart_steps = 20},
         {0.4, 0.6, 0.998937300743889, 0.997854077253219, 0.983009708737864, 0.174608695652174,
          0.0720714285714286, 0.14063813229572, 0}},
        {"step",
         {.name = "step", .step_size = 17, .gamma = 0.5},
         {1, 1, 1, 1, 0.5, 0.125, 0.0625, 0.0625, 0.03125}},
        {"exponential",
         {.name = "exponential", .gamma = 0.97},
         {1, 0.97, 0.88529281, 0.8587340257, 0.595826043858805, 0.160806669021577,
          0.0901502648647703, 0.0874457569188272, 0.04902320404681}},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_schedule s;
        af_schedule_opts o = cases[i].o;
        o.peak = 1;
        o.steps = 100;
        CHECK_OK(af_schedule_init(&s, &o, &err), err);
        for (size_t k = 0; k < AF_LEN(at); k++) {
            const double lr = af_schedule_lr(&s, at[k]);
            CHECK_MSG(fabs(lr - cases[i].want[k]) <= 1e-13 * fmax(cases[i].want[k], 1e-2),
                      "%s, step %d: %.16g, not %.16g", cases[i].why, (int)at[k], lr,
                      cases[i].want[k]);
        }
    }
}

/* Against mlx.optimizers.schedulers, joined as mlx-lm does; MLX computes in f32. */
static void test_rates_of_mlx(void **state)
{
    (void)state;
    static const struct {
        af_schedule_opts o;
        double want[9];
    } cases[] = {
        {{.name = "cosine_decay",
          .decay_steps = 60,
          .min_ratio = 0.1,
          .warmup = 5,
          .start_ratio = 0.01},
         {0.01, 0.208, 0.802, 1, 0.9274017214775085, 0.1220245286822319, 0.1, 0.1, 0.1}},
        {{.name = "cosine_decay", .decay_steps = 60},
         {1, 0.9993147850036621, 0.9890738129615784, 0.9829629063606262, 0.8146601915359497, 0, 0,
          0, 0}},
        {{.name = "linear_schedule", .decay_steps = 60, .min_ratio = 0.2, .warmup = 5},
         {0, 0.2, 0.8, 1, 0.8533333539962769, 0.28, 0.2, 0.2, 0.2}},
        {{.name = "step_decay", .gamma = 0.5, .step_size = 20, .warmup = 5},
         {0, 0.2, 0.8, 1, 1, 0.25, 0.125, 0.125, 0.0625}},
        {{.name = "exponential_decay", .gamma = 0.98},
         {1, 0.98, 0.9223682284355164, 0.9039208889007568, 0.7093219757080078, 0.29755347967147827,
          0.20270322263240814, 0.19864915311336517, 0.1353263407945633}},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_schedule_opts o = cases[i].o;
        af_schedule s;
        af_error err = {0};
        o.peak = 1;
        o.steps = 100;
        CHECK_OK(af_schedule_init(&s, &o, &err), err);
        for (size_t k = 0; k < AF_LEN(at); k++)
            CHECK_MSG(fabs(af_schedule_lr(&s, at[k]) - cases[i].want[k]) < 1e-6,
                      "%s, step %d: %.9g", o.name, (int)at[k], af_schedule_lr(&s, at[k]));
    }
}

/* Against OptimizerParamScheduler of NeMo AutoModel 0.7 (and Megatron-LM). */
static void test_warm_ups_that_do_not_begin_at_zero(void **state)
{
    (void)state;
    static const struct {
        af_schedule_opts o;
        double want[9];
    } cases[] = {
        {{.name = "cosine", .warmup = 5, .start_ratio = 0.1, .min_ratio = 0.01},
         {0.1, 0.28, 0.82, 1, 0.961533428713805, 0.383484683865304, 0.124641450125855,
          0.114375447848785, 0.0102706376162416}},
        {{.name = "polynomial", .warmup = 5, .start_ratio = 0.1, .min_ratio = 0.01},
         {0.1, 0.28, 0.82, 1, 0.874947368421053, 0.426842105263158, 0.228842105263158,
          0.218421052631579, 0.020421052631579}},
        {{.name = "constant_with_warmup", .warmup = 5, .start_ratio = 0.1},
         {0.1, 0.28, 0.82, 1, 1, 1, 1, 1, 1}},
        {{.name = "polynomial", .min_ratio = 0.1},
         {1, 0.991, 0.964, 0.955, 0.847, 0.46, 0.289, 0.28, 0.109}},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_schedule_opts o = cases[i].o;
        af_schedule s;
        af_error err = {0};
        o.peak = 1;
        o.steps = 100;
        CHECK_OK(af_schedule_init(&s, &o, &err), err);
        for (size_t k = 0; k < AF_LEN(at); k++)
            CHECK_MSG(fabs(af_schedule_lr(&s, at[k]) - cases[i].want[k]) < 1e-12,
                      "%zu, step %d: %.15g", i, (int)at[k], af_schedule_lr(&s, at[k]));
    }
}

static void test_step_and_exponential_start_after_the_warm_up(void **state)
{
    (void)state;
    static const char *const names[] = {"step", "exponential"};
    for (size_t i = 0; i < AF_LEN(names); i++) {
        af_error err = {0};
        af_schedule s;
        const af_schedule_opts o = {.name = names[i], .peak = 2, .steps = 100, .warmup = 10};
        CHECK_OK(af_schedule_init(&s, &o, &err), err);
        assert_true(af_schedule_lr(&s, 0) == 0);
        assert_true(fabs(af_schedule_lr(&s, 5) - 1) < 1e-15);
        assert_true(af_schedule_lr(&s, 10) == 2);
        assert_true(fabs(af_schedule_lr(&s, 100) - (i ? 0.02 : 0.002)) < 1e-12);
    }
}

static void test_every_name_works_at_the_edges(void **state)
{
    (void)state;
    char names[512];
    snprintf(names, sizeof names, "%s", af_schedule_names());
    int count = 0;
    for (char *name = names; name; count++) {
        char *comma = strstr(name, ", ");
        if (comma)
            *comma = '\0';
        static const int64_t edges[][2] = {{0, 0}, {1, 0}, {1, 1}, {3, 5}, {2, 1}};
        for (size_t e = 0; e < AF_LEN(edges); e++) {
            af_error err = {0};
            af_schedule s;
            const af_schedule_opts o = {
                .name = name, .peak = 1e-3, .steps = edges[e][0], .warmup = edges[e][1]};
            CHECK_OK(af_schedule_init(&s, &o, &err), err);
            for (int64_t step = -1; step < 8; step++) {
                const double lr = af_schedule_lr(&s, step);
                CHECK_MSG(lr >= 0 && lr <= 1e-3 * (1 + 1e-12), "%s of %d+%d, step %d: %g", name,
                          (int)edges[e][0], (int)edges[e][1], (int)step, lr);
            }
        }
        name = comma ? comma + 2 : NULL;
    }
    assert_int_equal(count, 20);
}

static void test_impossible_schedules_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        af_schedule_opts o;
    } cases[] = {
        {"unknown name", {.name = "cosinus", .peak = 1, .steps = 10}},
        {"negative rate", {.name = "linear", .peak = -1, .steps = 10}},
        {"rate is not a number", {.name = "linear", .peak = NAN, .steps = 10}},
        {"negative warm-up", {.name = "linear", .peak = 1, .steps = 10, .warmup = -1}},
        {"negative restarts",
         {.name = "linear", .peak = 1, .steps = 10, .restart_steps = 5, .restart_anneal = -1}},
        {"a floor of restarts above the schedule",
         {.name = "linear", .peak = 1, .steps = 10, .restart_steps = 5, .restart_floor = 2}},
        {"restarts of a product", {.name = "step", .peak = 1, .steps = 10, .restart_steps = 5}},
        {"negative time scale", {.name = "inverse_sqrt", .peak = 1, .steps = 10, .timescale = -1}},
        {"negative stable steps",
         {.name = "warmup_stable_decay", .peak = 1, .steps = 10, .stable_steps = -1}},
        {"unknown rise", {.name = "linear", .peak = 1, .steps = 10, .rise = (af_schedule_rise)3}},
        {"first rate above the peak",
         {.name = "linear", .peak = 1, .steps = 10, .first_ratio = 1.5}},
        {"floor above the peak", {.name = "cosine", .peak = 1, .steps = 10, .min_ratio = 2}},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_schedule s;
        CHECK_MSG(af_schedule_init(&s, &cases[i].o, &err) == AF_EUSAGE, "%s", cases[i].why);
        assert_true(err.msg[0] != '\0');
    }
}

/* After whole cycles the last step is at the end of a cycle, not at the peak of a next one. */
static void test_restarts_end_at_the_floor(void **state)
{
    (void)state;
    for (int cycles = 1; cycles <= 4; cycles++)
        for (int64_t step = 100; step <= 101; step++) {
            af_error err = {0};
            af_schedule s;
            const af_schedule_opts o = {.name = "cosine_with_restarts",
                                        .peak = 1,
                                        .steps = 100,
                                        .cycles = cycles,
                                        .min_ratio = 0.25};
            CHECK_OK(af_schedule_init(&s, &o, &err), err);
            assert_true(af_schedule_lr(&s, step) == 0.25);
        }
}

static void test_the_share_of_a_constant_tail_is_checked(void **state)
{
    static const double bad[] = {-0.1, 1.1, NAN};
    (void)state;
    for (size_t i = 0; i < AF_LEN(bad); i++) {
        af_error err = {0};
        af_schedule s;
        const af_schedule_opts o = {
            .name = "cosine", .peak = 1, .steps = 10, .constant_ratio = bad[i]};
        assert_int_equal(af_schedule_init(&s, &o, &err), AF_EUSAGE);
        CHECK_MSG(strstr(err.msg, "not 0 to 1"), "%s", err.msg);
    }
}

/* Waves that do not end at 0: the rate is at its floor when the decay is over, as in transformers.
 */
static void test_a_decay_in_waves_ends_at_the_floor(void **state)
{
    (void)state;
    af_schedule s;
    af_error err = {0};
    const af_schedule_opts o = {.name = "warmup_stable_decay",
                                .peak = 1,
                                .steps = 100,
                                .decay_steps = 30,
                                .min_ratio = 0.1,
                                .cycles = 1};
    CHECK_OK(af_schedule_init(&s, &o, &err), err);
    assert_true(af_schedule_lr(&s, 99) > 0.9);
    assert_true(af_schedule_lr(&s, 100) == 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_are_those_of_the_originals),
        cmocka_unit_test(test_rates_of_mlx),
        cmocka_unit_test(test_warm_ups_that_do_not_begin_at_zero),
        cmocka_unit_test(test_step_and_exponential_start_after_the_warm_up),
        cmocka_unit_test(test_every_name_works_at_the_edges),
        cmocka_unit_test(test_impossible_schedules_are_refused),
        cmocka_unit_test(test_restarts_end_at_the_floor),
        cmocka_unit_test(test_a_decay_in_waves_ends_at_the_floor),
        cmocka_unit_test(test_the_share_of_a_constant_tail_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
