"""One data-parallel training step: gradients are summed over ranks in buckets, while backward goes on.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020 (buckets in the order in
which gradients become ready, each reduced as soon as it is full); Sergeev & Del Balso, "Horovod: fast and easy
distributed deep learning in TensorFlow", 2018 (small tensors copied together into a fusion buffer).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from llmsim.errors import ProgramError
from llmsim.program import lowering
from llmsim.program.builder import Builder, Ids
from llmsim.program.program import Contract, Kernel, Program, Region

MIB = 2**20


@dataclass(frozen=True)
class Layer:
    """A layer whose gradients become ready together."""

    name: str
    parameters: int
    forward: Kernel
    backward: Kernel


def ddp_buckets(sizes_bytes: Sequence[int], bucket_bytes: int, first_bucket_bytes: int) -> list[list[int]]:
    """Indices of consecutive tensors by bucket, as PyTorch's DDP cuts them: a bucket is full once it *reaches* its
    size. The first is small, so that communication begins early."""
    buckets: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes_bytes):
        if room <= 0:
            room = bucket_bytes if buckets else first_bucket_bytes
            buckets.append([])
        buckets[-1].append(index)
        room -= size
    return buckets


def fusion_buckets(sizes_bytes: Sequence[int], threshold_bytes: int) -> list[list[int]]:
    """Indices of consecutive tensors that share a fusion buffer, as Horovod fills it: as many as *fit*."""
    buckets: list[list[int]] = []
    room = -1
    for index, size in enumerate(sizes_bytes):
        if size > room:
            room = threshold_bytes
            buckets.append([])
        buckets[-1].append(index)
        room -= size
    return buckets


def data_parallel_step(
    world_size: int,
    layers: Sequence[Layer],
    *,
    bucketing: Literal["ddp", "horovod"] = "ddp",
    bucket_bytes: int = 25 * MIB,
    first_bucket_bytes: int = 1 * MIB,
    overlap: bool = True,
    algorithm: str = "ring",
    lower: bool = True,
    optimizer: Kernel | None = None,
    dtype: str = "float32",
    **options,
) -> Program:
    """Forward, backward from the last layer to the first, and all-reduce of the gradients.

    ``gradients`` is one flat buffer in the order in which backward fills it. A bucket is all-reduced once its last
    gradient is ready; one after the other, as collectives of one communicator are.

    Args:
        bucketing: ``"ddp"``: see :func:`ddp_buckets`; ``"horovod"``: see :func:`fusion_buckets`, with a copy into the
            fusion buffer and back on streams ``copy_in`` and ``copy_out`` for buckets of several tensors.
        bucket_bytes: size of a bucket; for Horovod its fusion threshold.
        first_bucket_bytes: size of DDP's first bucket.
        overlap: False lets all all-reduces wait for the end of backward.
        algorithm: of the all-reduces, see ``ALGORITHMS["all-reduce"]``.
        lower: False leaves each all-reduce one COLLECTIVE operation, on stream ``comm``.
        optimizer: kernel that follows when all gradients are summed; it reads ``gradients``.
        options: of ``algorithm``.

    Raises:
        ProgramError: no layers, a negative number of parameters, or a bucket without size.
    """
    if not layers or any(layer.parameters < 0 for layer in layers):
        raise ProgramError("a step needs layers, with 0 or more parameters each", where="data-parallel step")
    if bucketing not in ("ddp", "horovod"):
        raise ProgramError(f"{bucketing!r} is not a bucketing", where="data-parallel step", mend="'ddp' or 'horovod'")
    if bucket_bytes < 1 or first_bucket_bytes < 1:
        raise ProgramError("a bucket has no size", where="data-parallel step", mend="give 1 byte or more")
    if options and not lower:
        raise ProgramError(
            f"option {next(iter(options))!r} needs messages",
            where="data-parallel step",
            mend="leave it out, or lower the all-reduces (lower=True)",
        )
    builder = Builder("data-parallel step", world_size)
    ready = layers[::-1]
    count = np.array([layer.parameters for layer in ready], dtype=np.int64)
    offset = np.cumsum(count) - count
    gradients = builder.buffer("gradients", int(count.sum()), dtype)
    sizes = (count * np.dtype(dtype).itemsize).tolist()
    fused = bucketing == "horovod"
    buckets = fusion_buckets(sizes, bucket_bytes) if fused else ddp_buckets(sizes, bucket_bytes, first_bucket_bytes)
    fusion = builder.buffer("fusion", int(count.sum()), dtype) if fused else gradients
    rank = np.arange(world_size)
    members = tuple(range(world_size))

    with builder.phase("forward"):
        for layer in layers:
            builder.compute(rank, layer.forward)
    with builder.phase("backward"):
        backward = [
            builder.compute(rank, layer.backward, writes=Region(gradients, offset[i], count[i]))
            for i, layer in enumerate(ready)
        ]
    summed: list[Ids] = []
    for number, tensors in enumerate(buckets):
        start, size = int(offset[tensors[0]]), int(count[tensors].sum())
        after = [backward[tensors[-1]] if overlap else backward[-1]]
        copied = fused and len(tensors) > 1
        with builder.phase(f"bucket {number}"):
            if copied:
                for i in tensors:
                    into, source = (Region(b, offset[i], count[i]) for b in (fusion, gradients))
                    wait = backward[i] if overlap else backward[-1]
                    after = [builder.copy(rank, into, source, stream="copy_in", after=wait)]
            contract = Contract("all-reduce", members, fusion if copied else gradients, start, size)
            done = builder.collective(contract, stream="comm", after=after)
            if copied:
                for i in tensors:
                    into, source = (Region(b, offset[i], count[i]) for b in (gradients, fusion))
                    done = builder.copy(rank, into, source, stream="copy_out", after=done)
            summed.append(done)
    if optimizer is not None:
        with builder.phase("optimizer"):
            builder.compute(rank, optimizer, reads=Region(gradients, 0, int(count.sum())), after=summed)
    builder.contract(Contract("all-reduce", members, gradients, 0, int(count.sum())))
    program = builder.build()
    return lowering.lower(program, algorithm, **options) if lower else program
