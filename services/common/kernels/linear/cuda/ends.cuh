// What a product ends with: where results go, what stands beside them, and what they wait for.

#pragma once

struct Ends {
  unsigned short *out, *scaled;
  const unsigned short *stream, *norm;
  const long long* squares;
  unsigned long long* added;
  int rows, outputs;
  float inverse_depth, eps, offset;
};
