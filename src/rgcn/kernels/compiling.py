"""How the CPU's loops are compiled: numba, with sums in neighboring registers made into vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock


def jit(function: Callable[..., Any]) -> Any:
    """Compile a loop when it is first called, and keep the result on disk.

    LLVM can turn sixteen sums written one below the other into one vector ("superword" vectorization, which C compilers
    do by default). numba leaves it off unless told by a global setting; it is on here while these loops are compiled,
    and at no other time. On two cores it made the loops over bases of width 16 four times faster (5 against 16 billion
    multiply-adds a second with the rows in the cache).
    """
    loop: Any = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})(function)
    compile_plainly = loop.compile

    def compile_to_vectors(signature: Any) -> Any:
        settings: Any = numba.config
        with global_compiler_lock:
            before = settings.SLP_VECTORIZE
            settings.SLP_VECTORIZE = 1
            try:
                return compile_plainly(signature)
            finally:
                settings.SLP_VECTORIZE = before

    loop.compile = compile_to_vectors
    return loop
