/* alibi.h - ALiBi: a score changes with the distance between query and key, by a slope for each
 * head, instead of a rotation. What the leaves of a model have for it; builder/block_alibi.c
 * explains how it is computed. */
#ifndef AF_ALIBI_H
#define AF_ALIBI_H

#include "model/arch/arch.h"

/* How the bias of a position is rounded, and whether the scale of scores applies to it. */
typedef enum af_alibi_kind {
    AF_ALIBI_EXACT,   /* slope * position, added to scaled scores (bloom, mpt) */
    AF_ALIBI_ROUNDED, /* slope, position and their product in bf16, scaled with the scores */
} af_alibi_kind;

/* 2^-(max / heads), its square, ...; where heads are not a power of two, those of the power below,
 * then every second one of the power above. */
double af_alibi_slope(int head, int heads, double max);

/* Columns a head has more of; 0 without ALiBi. */
int af_alibi_columns(const af_model_spec *s);
/* A bias is the sum of this many columns. */
int af_alibi_pieces(const af_model_spec *s);

/* What the leaves have: factor[heads] of a position; pick[heads][group * pieces], 1 where a column
 * of the keys is that of this head, out of a group of heads that share keys. */
void af_alibi_factors(const af_model_spec *s, float *factor);
void af_alibi_picks(const af_model_spec *s, float *pick);
#endif
