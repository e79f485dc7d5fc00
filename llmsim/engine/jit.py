"""Numba, with its results cached on disk wherever that is possible."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray


def _sources() -> str:
    """A digest of all compiled code: these files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_STAMP = _sources()


def jit(function: Callable) -> Callable:
    """Compile at the first call. The cache lies beside the source, or else in the user's cache folder; where neither
    can be written, each process compiles anew."""
    try:
        compiled = njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "no locator available": nowhere to write
        return njit(error_model="numpy")(function)
    # Numba keeps what it compiled until the function's own file changes, also when it calls into another that did; the
    # stale code may then read arrays that are not there. So all of it is kept until any of the files changes.
    compiled._cache._cache_file._source_stamp = _STAMP  # type: ignore[attr-defined]
    return compiled


def column(values: NDArray) -> tuple[NDArray, int]:
    """A column for a compiled function, as (array, step): entry i is ``array[i * step]``.

    Constant columns of a program are one element broadcast; so they stay one element here, and the compiled function
    sees one array type for both.
    """
    if values.size > 1 and values.strides == (0,):
        return values[:1].copy(), 0
    return np.ascontiguousarray(values), 1
