"""The receives of one queue: handed to the transport ahead of their turn, waited for and added in their turn."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from llmsim_kernels.plan import SLICE_BYTES
from llmsim_kernels.transport import Transport

AHEAD = 4  # messages, or slices of messages that are added, under way to one queue


def slices(region: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The parts in which a message that is added travels; sender and receiver cut it alike."""
    return region.split(max(1, SLICE_BYTES // region.element_size()))


class Inbox:
    """Receives of one queue in order.

    A message that overwrites its region goes straight there, as soon as nothing before it in the program uses the
    region any more. One that is added goes by slices through :data:`AHEAD` small buffers that stay in the cache.

    Args:
        receives: operations, in order.
        peers, tags, regions, added: of each operation of the rank.
        hazards: of each operation, how many operations still use its region; counted down by the caller, who then
            calls :meth:`post`.
        failed: makes the exception for an operation out of the transport's.
    """

    def __init__(
        self,
        receives: Sequence[int],
        peers: Sequence[int],
        tags: Sequence[int],
        regions: Sequence[torch.Tensor],
        added: Sequence[bool],
        transport: Transport,
        failed: Callable[[int, Exception], Exception],
    ):
        self._peers, self._tags, self._failed = peers, tags, failed
        self._transport = transport
        self._lock = threading.Lock()
        self._op: list[int] = []  # of each piece
        self._wire: list[torch.Tensor] = []  # where it arrives
        self._into: list[torch.Tensor | None] = []  # what it is added to
        self._first: dict[int, int] = {}
        nothing = torch.empty(1, dtype=torch.uint8, device=transport.device)
        buffers = torch.empty(
            (AHEAD if any(added[i] for i in receives) else 0, SLICE_BYTES), dtype=torch.uint8, device=transport.device
        )
        bounced = 0
        for op in receives:
            self._first[op] = len(self._op)
            region = regions[op]
            if len(region) == 0:
                self._add(op, nothing, None)
            elif not added[op]:
                self._add(op, region, None)
            else:
                for part in slices(region):
                    size = len(part) * part.element_size()
                    self._add(op, buffers[bounced % AHEAD, :size].view(part.dtype), part)
                    bounced += 1
        self.reset([])

    def _add(self, op: int, wire: torch.Tensor, into: torch.Tensor | None) -> None:
        self._op.append(op)
        self._wire.append(wire)
        self._into.append(into)

    def reset(self, hazards: list[int]) -> None:
        """Begin a run."""
        self._hazards = hazards
        self._handles: list[Any] = [None] * len(self._op)
        self._posted = self._done = 0
        self._reached = -1

    def post(self) -> None:
        """Hand on to the transport what may be: in order, and not too far ahead."""
        ops, hazards = self._op, self._hazards
        with self._lock:
            piece = self._posted
            while piece < len(ops) and piece - self._done < AHEAD:
                op = ops[piece]
                if hazards[op] > 0 and op > self._reached:
                    break
                try:
                    self._handles[piece] = self._transport.recv(self._wire[piece], self._peers[op], self._tags[op])
                except RuntimeError as error:
                    raise self._failed(op, error) from error
                piece += 1
            self._posted = piece

    def receive(self, op: int) -> None:
        """Wait until the message of ``op`` stands in its region or has been added to it."""
        self._reached = op
        piece = self._first[op]
        if self._posted <= piece:
            self.post()
        while True:
            self._transport.wait(self._handles[piece])
            self._handles[piece] = None
            into = self._into[piece]
            if into is not None:
                into.add_(self._wire[piece])
            piece += 1
            self._done = piece
            if piece == len(self._op) or self._op[piece] != op:
                return
            self.post()
