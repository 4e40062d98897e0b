/* isa_avx512vnni.h - AVX-512 with dot products of bytes, for the loops over blocks. */
#ifndef AF_ISA_TARGET_H
#define AF_ISA_TARGET_H

#include "cpu/isa/isa_512.h"
#include "cpu/isa/isa_generic.h"

#endif
