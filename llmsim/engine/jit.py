"""Numba, with its results cached on disk wherever that is possible."""

from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray


def jit(function: Callable) -> Callable:
    """Compile at the first call. The cache lies beside the source, or else in the user's cache folder; where neither
    can be written, each process compiles anew.

    A compiled function may call others of its own file only. Numba keeps what it compiled until the function's own file
    changes, also when what it calls has changed: stale code would then read arrays that are not there.
    """
    try:
        return njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "no locator available": nowhere to write
        return njit(error_model="numpy")(function)


def column(values: NDArray) -> tuple[NDArray, int]:
    """A column for a compiled function, as (array, step): entry i is ``array[i * step]``.

    Constant columns of a program are one element broadcast; so they stay one element here, and the compiled function
    sees one array type for both.
    """
    if values.size > 1 and values.strides == (0,):
        return values[:1].copy(), 0
    return np.ascontiguousarray(values), 1
