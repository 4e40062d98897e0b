/* fake_float.c - rounding to small float types and back, for quantisation-aware training. The
 * numbers are those of torchao 0.18, step by step in f32; e2m1 and e4m3 round ties to even.
 *
 * FAKE_FLOAT of x, in blocks of a row; m = max |x| of a block, M = max |x| of all rows that count:
 *   nvfp4  16 values  t = M / 2688;  s = e4m3(clamp(m / 6 / t, 2^-6, 448))
 *                     y = e2m1(clamp(x (1 / t / s), -6, 6)) (t s)
 *   mxfp4  32 values  s = the least power of two >= m / 6;  y = e2m1(x / s) s
 *   fp8    the row    s = m / 448 in the type of x;  y = e4m3(clamp(x / s, -448, 448)) s
 * Where m (nvfp4: M) is below 2^-100, y is 0; torchao has NaN in fp8 for rows of zeros and in nvfp4
 * for tensors of zeros. dx = dy: of fp8, whose scale has a gradient, the rest is in fake_weights.c.
 */
#include "ops/fakequant/fake_float.h"

#include "graph/node.h"
#include "ops/fakequant/small_float.h"
#include "tensor/dtype.h"

af_tensor *af_fake_float(af_graph *g, af_tensor *x, af_qat_type type, af_tensor *rows, af_dtype out)
{
    char text[96];
    af_tensor *in[2] = {x, rows};
    if (af_graph_refuses(g, "fake_float", in, rows ? 2 : 1))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype) || !af_dtype_is_float(out))
        return af_graph_bad(g, "fake_float: %s or the result is not of a float type",
                            af_shape_text(x, text, sizeof text));
    const int64_t len = af_float_block(type, af_last(x));
    if (len == 0 || af_last(x) % len != 0)
        return af_graph_bad(g, "fake_float: blocks of %" PRId64 " do not divide the rows of %s",
                            len, af_shape_text(x, text, sizeof text));
    af_node *n = af_node_new(g, AF_OP_FAKE_FLOAT, in, rows ? 2 : 1);
    n->attr.fake_float.type = type;
    return af_node_output(g, n, out, x->ndim, x->dim);
}

static void fake_float_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_grad_add(g, n->in[0], dout[0]);
}

const af_op_info af_op_fake_float = {.name = "fake_float", .grad = fake_float_grad};
