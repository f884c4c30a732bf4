"""How kernels of a device run on a CPU: by Triton's interpreter, in a process that begins with this environment."""

INTERPRETED = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Nehalem"}
"""The interpreter multiplies by numpy, whose library adds in one order at any number of rows on this kind of processor,
which all are. On some others it does not.
"""
