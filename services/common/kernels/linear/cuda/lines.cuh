// Lines of a weight in a tile, and what follows its product.
//
// `build.cuh` defines BAND (lines of a tile, of each half of a gated weight), WIDE (numbers have two bytes, not one) and KIND: what
// follows.

#pragma once

#include "build.cuh"

constexpr int PLAIN = 0, GATED = 1, ADDED = 2;
constexpr int HALVES = KIND == GATED ? 2 : 1;
constexpr int HALF = (BAND + 7) / 8 * 8;  // the swizzle repeats after eight lines
// Of a matrix instruction, which takes eights of lines; of integers 16s above 24.
constexpr int LINES = WIDE || HALVES * HALF <= 24 ? HALVES * HALF : (HALVES * HALF + 15) / 16 * 16;
