"""Compiled functions where nothing can be written, and columns of constants."""

import numpy as np

from llmsim.engine.jit import column, jit


def test_a_function_that_cannot_be_cached_is_compiled_all_the_same():
    """Numba caches nothing for source that stands in no file."""
    namespace = {}
    exec("def double(x):\n    return 2 * x\n", namespace)
    assert jit(namespace["double"])(21) == 42


def test_a_constant_column_is_one_element_with_step_0():
    values, step = column(np.broadcast_to(np.int32(7), 1000))
    assert (values.tolist(), step) == ([7], 0)
    values, step = column(np.arange(5)[::2])
    assert (values.tolist(), step) == ([0, 2, 4], 1)
    assert values.flags.c_contiguous
