#!/usr/bin/env python3
"""make_iq1_grid.py: writes src/tensor/iq1_grid.h. Needs gguf."""
import pathlib

from gguf import quants

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/tensor/iq1_grid.h"
HEAD = """/* iq1_grid.h - the points of iq1_s, iq1_m, iq2_xxs and iq2_xs, for codec_iq1.c: eight levels of two
 * bits, the first lowest. Written by tools/golden/make_iq1_grid.py from the gguf package. */
#ifndef AF_IQ1_GRID_H
#define AF_IQ1_GRID_H

#include <stdint.h>
"""


def table(kind, levels, name, what):
    kind.init_grid()
    points = [sum(levels.index(int(v)) << (2 * i) for i, v in enumerate(row)) for row in kind.grid.reshape(-1, 8)]
    rows = [", ".join(f"0x{p:04x}" for p in points[i:i + 12]) for i in range(0, len(points), 12)]
    lines = "".join(f"    {r},\n" for r in rows)
    return f"\n/* {what} */\nstatic const uint16_t {name}[{len(points)}] = {{\n{lines}}};\n"


OUT.write_text(HEAD + table(quants.IQ1_S, (-1, 0, 1), "iq1_grid", "Levels -1, 0 and 1: iq1_s and iq1_m.")
               + table(quants.IQ2_XXS, (8, 25, 43), "iq2_xxs_grid", "Levels 8, 25 and 43.")
               + table(quants.IQ2_XS, (8, 25, 43), "iq2_xs_grid", "The same of iq2_xs.") + "#endif\n")
