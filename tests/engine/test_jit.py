"""Compiled functions and their cache, and columns of constants."""

import importlib
import pkgutil

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import llmsim.engine
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


MODULES = [f"llmsim.engine.{module.name}" for module in pkgutil.iter_modules(llmsim.engine.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_compiled_functions_call_those_of_their_own_file_only(name):
    """Else a change of the other file would leave stale code in the cache."""
    functions = vars(importlib.import_module(name))
    compiled = [f for f in functions.values() if isinstance(f, Dispatcher) and f.py_func.__module__ == name]
    for function in compiled:
        for called in function.py_func.__code__.co_names:
            if isinstance(functions.get(called), Dispatcher):
                assert functions[called].py_func.__module__ == name, f"{function.__name__} calls {called}"


def test_there_are_compiled_functions_to_look_at():
    from llmsim.engine import events

    assert isinstance(events.share, Dispatcher)
