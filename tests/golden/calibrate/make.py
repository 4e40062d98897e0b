"""Grids of random values by PyTorch's observers, fake quantisation and autograd, and numpy's percentiles."""
import numpy as np, torch
from safetensors.torch import save_file
from torch.ao.quantization.observer import MovingAverageMinMaxObserver

R, C, B, GROUP = 6, 16, 3, 8
g = torch.Generator().manual_seed(11)
x = torch.randn(B, R, C, generator=g)
x[0, 2] = x[0, 2].abs()          # a row without negative values
x[:, 4] = 0                      # a row of zeros
x[1, 1, 3] = 9.0                 # an outlier
out = {"x": x}


def split(t, how):  # -> [grids, values of each], over all batches or of one
    if how == "tensor":
        return t.reshape(1, -1)
    if how == "row":
        return t.transpose(0, 1).reshape(R, -1)
    if how == "column":
        return t.permute(2, 0, 1).reshape(C, -1)
    return t.reshape(-1, R * (C // GROUP), GROUP).transpose(0, 1).reshape(R * (C // GROUP), -1)


def join(t, how):  # [grids, values of one batch] -> [R, C]
    if how == "column":
        return t.t().reshape(R, C)
    return t.reshape(R, C)


def ranges(how, rule, asym):
    if rule == "minmax":
        v = split(x, how)
        return v.min(1).values, v.max(1).values
    if rule == "moving":
        lo, hi = [], []
        per = [split(x[b:b + 1], how) for b in range(B)]
        for k in range(per[0].shape[0]):
            o = MovingAverageMinMaxObserver(averaging_constant=0.25)
            for p in per:
                o(p[k])
            lo.append(o.min_val), hi.append(o.max_val)
        return torch.stack(lo), torch.stack(hi)
    v = split(x, how).numpy()
    if asym:
        return tuple(torch.tensor(np.percentile(v.astype(np.float64), p, axis=1), dtype=torch.float32) for p in (10.0, 90.0))
    hi = torch.tensor(np.percentile(np.abs(v).astype(np.float64), 90.0, axis=1), dtype=torch.float32)
    return -hi, hi


for how in ("tensor", "row", "column", "group"):
    for rule in ("minmax", "percentile", "moving"):
        for asym in (False, True):
            for bits in (4, 8):
                lo, hi = ranges(how, rule, asym)
                z = torch.zeros_like(lo)
                lo, hi = torch.minimum(lo, z), torch.maximum(hi, z)
                if asym:
                    scale = (hi - lo) / (2 ** bits - 1)
                    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
                    zero = torch.round(-lo / scale).to(torch.int32)
                    q = (0, 2 ** bits - 1)
                else:
                    scale = torch.maximum(hi, -lo) / (2 ** (bits - 1) - 1)
                    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
                    zero = torch.zeros_like(scale, dtype=torch.int32)
                    q = (-2 ** (bits - 1), 2 ** (bits - 1) - 1)
                v = split(x[1:2], how).clone().requires_grad_(True)
                y = torch.fake_quantize_per_channel_affine(v, scale, zero, 0, *q)
                y.sum().backward()
                n = f"{how}.{rule}.{'asym' if asym else 'sym'}.{bits}"
                out[n + ".scale"], out[n + ".zero"], out[n + ".y"] = scale, zero, join(y.detach(), how).contiguous()
                if rule == "percentile":
                    out[n + ".pass"] = join(v.grad, how).to(torch.uint8).contiguous()
save_file(out, "calibrate.safetensors", metadata={"format": "pt"})
