"""What operations cost beyond the wire: overheads of messages, local bandwidths, processor time."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from llmsim.program.program import Kernel


@dataclass(frozen=True)
class Costs:
    """Costs of operations on one kind of rank; the defaults are an ideal machine, whose time is all on the wire.

    A message of S bytes over a path of links takes, alone: ``send_overhead_s`` (its sender's stream is busy) + S / (the
    slowest link's bandwidth × ``protocol_efficiency``), then ``latency_s`` + the sum of link latencies until it has
    arrived, then ``receive_overhead_s`` on its receiver's stream. α of the α–β model is the sum of all but the S term.

    The ``cpu_*_s_per_byte`` figures are core-seconds; they matter only on hosts whose ``cores`` are stated, and slow
    ranks down when their sum exceeds the cores. There ``receive_overhead_s``, ``local_overhead_s`` and the times of
    kernels, copies and reductions are processor time too, so that many small messages share the cores as large ones do;
    ``send_overhead_s`` is a delay everywhere.
    """

    send_overhead_s: float = 0.0
    receive_overhead_s: float = 0.0
    receive_cores: float = 1.0  # at work during it: more than one where the sender still clears up meanwhile
    latency_s: float = 0.0
    protocol_efficiency: float = 1.0
    message_bandwidth_bytes_per_s: float = inf  # the most one message reaches, however wide its path
    reduce_bandwidth_bytes_per_s: float = inf  # bytes of the operand added per second
    copy_bandwidth_bytes_per_s: float = inf
    local_overhead_s: float = 0.0  # start-up of a copy, a reduction or a computation
    cpu_send_s_per_byte: float = 0.0
    cpu_receive_s_per_byte: float = 0.0
    flop_per_s: float = inf  # what kernels reach on the device
    memory_bandwidth_bytes_per_s: float = inf
    collective_s: "Callable[[str, int, int], float] | None" = (
        None  # (name, ranks, size_bytes) → seconds, for COLLECTIVE
    )

    def kernel_s(self, kernel: Kernel) -> float:
        """Seconds of a kernel alone on its device: its stated duration, or else the roofline."""
        if kernel.duration_s is not None:
            return kernel.duration_s
        return max(kernel.flop / self.flop_per_s, kernel.memory_bytes / self.memory_bandwidth_bytes_per_s)
