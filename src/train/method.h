/* method.h - what a run's method asks of the model: which adapter, which types. */
#ifndef AF_METHOD_H
#define AF_METHOD_H

#include "model/adapter.h"
#include "train/run_config.h"

enum { AF_METHOD_LAYERS_MAX = 4096 };

/* The adapter a run file describes. Strings are borrowed from the run, layer numbers go to
 * `layers`. */
AF_CHECKED af_status af_method_adapter(af_adapter_config *out, int64_t layers[AF_METHOD_LAYERS_MAX],
                                       const af_run *r, const af_model_spec *spec, af_error *err);
/* True when the frozen base is quantised to nf4 by the run itself. */
bool af_method_quantises(const af_run *r);
/* Whether the run trains the embedding or the head as a whole, so that tied ones are untied. */
AF_CHECKED af_status af_method_unties(bool *out, const af_run *r, af_error *err);
#endif
