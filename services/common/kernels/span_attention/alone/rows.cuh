// The heads of a row in shared memory, which a warp or a CTA makes: queries, and behind them a key and a value.

#pragma once

#include "build.cuh"

constexpr int STEPS = SIZE / 16;  // products of 16 inputs
constexpr int ROWS = GROUP + 2;
constexpr int ROW = SIZE + 8;  // so that rows lie in other banks
