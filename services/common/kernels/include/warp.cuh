// Instructions of a warp: copies into shared memory, what goes between it and registers, and products (mma).

#pragma once

// Copies 16 bytes into shared memory beside other work, or as many zeros where none are there.
__device__ __forceinline__ void copy_sixteen(unsigned to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// The same of four bytes.
__device__ __forceinline__ void copy_word(unsigned to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}

__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A lane arrives at a barrier when all that it asked for is there.
__device__ __forceinline__ void arrive_with_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// What a thread has stored in shared memory is seen by TMA and the tensor cores, once others know of it.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void load_words(unsigned (&words)[4], unsigned from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

// Loads four blocks of eight rows of eight numbers, a register of each of a lane's, or turned; lanes say where a row lies.
__device__ __forceinline__ void load_blocks(unsigned (&blocks)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void load_turned(unsigned (&blocks)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
               : "r"(from)
               : "memory");
}

// A block of which a lane has a pair in a row becomes one of which it has a pair in a column.
__device__ __forceinline__ unsigned turned(unsigned pair) {
  unsigned result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// Adds sixteen inputs of sixteen rows by those of eight columns. Not volatile: the compiler finds what goes between two of them.
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&left)[4], unsigned low, unsigned high) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(low), "r"(high));
}
