"""The signs that our GaLore gives singular vectors in place of LAPACK's in galore-torch; decompositions in float64."""
import torch


def signs(n):
    return torch.tensor([-1.0 if i * 2654435761 % 2**32 >> 31 else 1.0 for i in range(n)], dtype=torch.float64)


def replace():
    from galore_torch.galore_projector import GaLoreProjector

    def along(self, side, vectors):
        """vectors [length][rank]: each points as its predecessor did, the first ones along fixed signs"""
        last = getattr(self, "last", {}).get(side)
        dots = (signs(len(vectors))[:, None] * vectors if last is None else last * vectors).sum(0)
        vectors = torch.where(dots < 0, -vectors, vectors)
        self.last = {**getattr(self, "last", {}), side: vectors}
        return vectors

    def matrices(self, weights, rank, type):
        u, _, vh = torch.linalg.svd(weights.double(), full_matrices=False)
        left = along(self, "left", u[:, :rank]) if type != "right" else None
        right = along(self, "right", vh[:rank].T).T if type != "left" else None
        out = [None if x is None else x.to(weights.dtype).contiguous() for x in (left, right)]
        return out if type == "full" else out[type == "right"]

    GaLoreProjector.get_orthogonal_matrix = matrices
