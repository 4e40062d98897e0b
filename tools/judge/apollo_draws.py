"""The random projections of our APOLLO in place of those of apollo-torch: the numbers of src/base/rng.c, from the
description of Philox4x32-10, in float64."""
import math

import numpy as np
import torch

STREAM = 0xA9 << 56


def words(seed, stream, blocks):
    n, m = np.arange(blocks, dtype=np.uint64), np.uint64(0xFFFFFFFF)
    full = lambda v: np.full(blocks, v & 0xFFFFFFFF, np.uint64)
    c = [n & m, n >> np.uint64(32), full(stream), full(stream >> 32)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        hi = lambda p: p >> np.uint64(32)
        c = [hi(p1) ^ c[1] ^ np.uint64(k[0]), p1 & m, hi(p0) ^ c[3] ^ np.uint64(k[1]), p0 & m]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1).ravel()


def normals(seed, stream, count):
    w = (words(seed, stream, (count + 3) // 4) >> np.uint64(8)).astype(np.float64)
    r, a = np.sqrt(-2 * np.log((w[0::2] + 1) * 2.0**-24)), 2 * math.pi * w[1::2] * 2.0**-24
    return np.stack([r * np.cos(a), r * np.sin(a)], 1).ravel()[:count]


def replace(ours, first):
    """ours: the seed of the run; first: our number of the package's first parameter (it counts from 1)."""
    from apollo_torch.random_projector import GradientProjector

    def projection(self, weights, rank, type, seed):
        if not hasattr(self, "draws"):
            self.draws, self.number = 0, first + seed - 1
        width = min(weights.shape)
        p = normals(ours, STREAM + (self.number << 32) + self.draws, width * rank).reshape(width, rank)
        self.draws += 1
        return torch.from_numpy((p.T if type == "right" else p) / math.sqrt(rank)).to(weights.dtype).contiguous()

    GradientProjector.get_orthogonal_matrix = projection
