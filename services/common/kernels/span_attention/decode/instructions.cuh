// Single instructions of a warp.

#pragma once

// Sixteen rows of sixteen inputs by eight queries.
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&rows)[4], const unsigned (&queries)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(queries[0]), "r"(queries[1]));
}

// Four eights by eights from shared memory, a row of which each lane says where it lies.
__device__ __forceinline__ void load_matrices(unsigned (&pairs)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_turned(unsigned (&pairs)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(from)
               : "memory");
}
