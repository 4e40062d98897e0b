/* afinar.h - all public headers of libafinar.
 *
 *   status.h     error codes and messages       version.h    version macros
 *   log.h        log hook                       types.h      tensor element types
 *   device.h     where graphs run               graph.h      tensors, autodiff
 *   schedule.h   learning rates                 text.h       tokenizers
 *   chat.h       chat templates                 model.h      load, evaluate, generate
 *   train.h      fine-tuning runs               data.h       datasets as training sees them
 *   convert.h    quantize, merge, export        inspect.h    contents of model files
 *   calibrate.h  integer quantization grids     bench.h      timed training steps
 *   doctor.h     what the machine supports      model_graph.h  custom losses on a model
 *   output.h     files that programs leave      hub.h        models and datasets of the hub
 *   decode.h     many sequences at once         serve.h      HTTP server with OpenAI's endpoints
 *   grammar.h    output held to a schema        optimizer.h  kinds and options of optimizers
 *
 * Rules of all functions. Functions that can fail return af_status and take `af_error *err` last,
 * which may be NULL. Outputs are written on success only, unless a comment says otherwise. Strings
 * are UTF-8. Pointers returned by value are borrowed; those written through `T **out` belong to the
 * caller. An object is used by one thread at a time unless its header allows more; different
 * objects are independent. Nothing prints or exits, and nothing depends on the locale.
 *
 * A pointer must not be NULL unless its comment allows it; close, free and clear functions always
 * do, and so do texts and lists of length 0 and the `user` of hooks. Where NULL is not allowed, a
 * function with a status returns AF_EUSAGE and names the argument, one that records into a graph
 * leaves that error in the graph, and any other does nothing and returns 0, false, "", NULL or -1.
 *
 * The API is unstable until 1.0 (version.h). */
#ifndef AFINAR_AFINAR_H
#define AFINAR_AFINAR_H

#include "afinar/api.h"
#include "afinar/bench.h"
#include "afinar/calibrate.h"
#include "afinar/chat.h"
#include "afinar/convert.h"
#include "afinar/data.h"
#include "afinar/decode.h"
#include "afinar/device.h"
#include "afinar/doctor.h"
#include "afinar/grammar.h"
#include "afinar/graph.h"
#include "afinar/hub.h"
#include "afinar/inspect.h"
#include "afinar/log.h"
#include "afinar/model.h"
#include "afinar/model_graph.h"
#include "afinar/optimizer.h"
#include "afinar/output.h"
#include "afinar/schedule.h"
#include "afinar/serve.h"
#include "afinar/status.h"
#include "afinar/text.h"
#include "afinar/train.h"
#include "afinar/types.h"
#include "afinar/version.h"

#endif
