/* isa_avx2vnni.h - AVX2 and its dot products of bytes, for the loops over blocks. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/isa_256.h"
#include "cpu/isa/isa_generic.h"

#endif
