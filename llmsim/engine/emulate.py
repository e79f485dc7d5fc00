"""Run a program on NumPy arrays of all its ranks, in this process: what does it compute?"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import InputError
from llmsim.program.checks import check_collectives, check_messages
from llmsim.program.graph import SendMode
from llmsim.program.interpreter import interpret
from llmsim.program.program import Kernel, Program, Region

Compute = Callable[[int, NDArray | None, NDArray | None], None]


def emulate(
    program: Program,
    inputs: Mapping[str, NDArray],
    *,
    compute: Mapping[str, Compute] | None = None,
    send_mode: SendMode = "eager",
    seed: int | None = None,
) -> dict[str, NDArray]:
    """Run ``program`` on virtual ranks and return all its buffers.

    Args:
        inputs: for each buffer its contents at the start, shape (world_size, count), in the buffer's dtype. Buffers
            that are left out start as zeros.
        compute: what kernels do, by name: ``function(rank, writes, reads)`` gets views of the two regions, shape
            (count,) or None where the operation has none, and changes ``writes`` in place. A kernel that is left out
            takes time only and leaves memory as it is.
        send_mode: in ``"rendezvous"`` mode a send waits for its receiver, and the program may deadlock.
        seed: draw the order of operations at random among those that the program allows.

    Returns:
        Buffer by name, shape (world_size, count).

    Raises:
        InputError: an input or kernel that the program does not have, or an array of another shape or dtype.
        ProgramError: messages that do not fit, or a deadlock; the message says what waits for what.
    """
    functions = dict(compute or {})
    kernels = [kernel.name for kernel in program.kernels]
    for name in functions:
        if name not in kernels:
            known = ", ".join(kernels) or "none"
            raise InputError(f"the program has no kernel {name!r}", where=program.name, mend=f"its kernels: {known}")
    check_messages(program)
    check_collectives(program)
    memory = _Arrays(program, inputs, functions)
    interpret(program, memory, send_mode, seed)
    return {buffer.name: array for buffer, array in zip(program.buffers, memory.arrays, strict=True)}


class _Arrays:
    """Buffers as NumPy arrays, shape (world_size, count) each."""

    def __init__(self, program: Program, inputs: Mapping[str, NDArray], compute: Mapping[str, Compute]):
        names = [buffer.name for buffer in program.buffers]
        for name in inputs:
            if name not in names:
                raise InputError(
                    f"the program has no buffer {name!r}", where=program.name, mend=f"its buffers: {', '.join(names)}"
                )
        self._compute = compute
        self.arrays: list[NDArray] = []
        for buffer in program.buffers:
            shape, dtype = (program.world_size, buffer.count), np.dtype(buffer.dtype)
            array = np.asarray(inputs[buffer.name]) if buffer.name in inputs else np.zeros(shape, dtype)
            if array.shape != shape or array.dtype != dtype:
                raise InputError(
                    f"the input has shape {array.shape} and dtype {array.dtype}",
                    where=f"{program.name}: {buffer.name}",
                    mend=f"give shape {shape} and dtype {dtype}",
                )
            self.arrays.append(array.copy())

    def _view(self, rank: int, region: Region) -> NDArray:
        return self.arrays[region.buffer][rank, region.offset : region.offset + region.count]

    def read(self, rank: int, region: Region) -> NDArray:
        return self._view(rank, region).copy()

    def write(self, rank: int, region: Region, value: Any) -> None:
        self._view(rank, region)[...] = value

    def add(self, rank: int, region: Region, value: Any) -> None:
        view = self._view(rank, region)
        view += value

    def total(self, values: list[Any]) -> NDArray:
        result = values[0].copy()
        for value in values[1:]:
            result += value
        return result

    def compute(self, rank: int, kernel: Kernel, writes: Region | None, reads: Region | None) -> None:
        if kernel.name in self._compute:
            views = (None if region is None else self._view(rank, region) for region in (writes, reads))
            self._compute[kernel.name](rank, *views)
