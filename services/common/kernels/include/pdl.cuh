// Launches that overlap: a kernel may begin while the one before it drains.

#pragma once

// Results of the kernel before are complete and visible from here on.
__device__ __forceinline__ void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The next kernel may start; it waits for this one where it needs what this one leaves.
__device__ __forceinline__ void allow_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
