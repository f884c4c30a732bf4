// Products whose left operand are lines of the weight: of each eight rows a thread has two neighbours, and it ends single numbers.

#pragma once

#include "bfloat16.cuh"

__device__ __forceinline__ float rounded(float x) { return low_of(pair_of(x, 0.f)); }
__device__ __forceinline__ unsigned short bits_of(float x) { return (unsigned short)pair_of(x, 0.f); }
__device__ __forceinline__ float number(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

// The row of the `own`-th of a thread's rows.
__device__ __forceinline__ int row_at(int own, int lane) { return own / 2 * 8 + lane % 4 * 2 + own % 2; }
