"""The receives of one queue: handed to the transport ahead of their turn, waited for and added in their turn."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from llmsim_kernels.transport import Transport

SLICE_BYTES = 1 << 20
BOUNCE_BYTES = 4 << 20  # of messages to be added that are under way to one queue: small enough for a cache
_AHEAD = 32  # receives of one queue that are under way at most
_ALIGN = 64


def slices(region: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The parts in which a message that is added travels, so that adding one overlaps the wire of the next.

    At least two from 512 KiB on, and none above 1 MiB; sender and receiver cut it alike.
    """
    size = len(region) * region.element_size()
    parts = max(-(-size // SLICE_BYTES), 2 if size >= SLICE_BYTES // 2 else 1)
    return region.split(max(1, -(-len(region) // parts)))


class Inbox:
    """Receives of one queue in order.

    A message that overwrites its region goes straight there, as soon as nothing before it in the program uses the
    region any more. One that is added goes by slices through a small buffer that is used again and again.

    Receives are posted several at once and well ahead: a post tells the sender, and one that is writing at that moment
    is disturbed (its thread holds the lock that gloo's own thread then spins for).

    Args:
        receives: operations, in order.
        peers, tags, regions, added: of each operation of the rank.
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
        self._peers, self._tags, self._failed, self._transport = peers, tags, failed, transport
        self._lock = threading.Lock()
        self._op: list[int] = []  # of each piece
        self._wire: list[torch.Tensor] = []  # where it arrives
        self._into: list[torch.Tensor | None] = []  # what it is added to
        self._after: list[int] = []  # the piece that must be done before it may be posted
        self._first: dict[int, int] = {}
        nothing = torch.empty(1, dtype=torch.uint8, device=transport.device)
        whole = sum(_aligned(regions[i]) for i in receives if added[i])
        bounce = torch.empty(min(whole, BOUNCE_BYTES), dtype=torch.uint8, device=transport.device)
        places: list[tuple[int, int, int]] = []  # (begin, end, piece) in the buffer, of late
        at = 0
        for op in receives:
            self._first[op] = len(self._op)
            region = regions[op]
            if len(region) == 0 or not added[op]:
                self._add(op, region if len(region) else nothing, None, -1)
                continue
            for part in slices(region):
                if at + _aligned(part) > len(bounce):
                    at = 0
                begin, end = at, at + _aligned(part)
                used = max((piece for b, e, piece in places if b < end and e > begin), default=-1)
                places = [place for place in places if place[2] > used] + [(begin, end, len(self._op))]
                self._add(op, bounce[begin : begin + len(part) * part.element_size()].view(part.dtype), part, used)
                at = end
        self.reset([])

    def _add(self, op: int, wire: torch.Tensor, into: torch.Tensor | None, after: int) -> None:
        self._after.append(max(after, len(self._op) - _AHEAD))
        self._op.append(op)
        self._wire.append(wire)
        self._into.append(into)

    def reset(self, hazards: list[int]) -> None:
        """Begin a run.

        Args:
            hazards: of each operation, how many operations still use its region; counted down by the caller, who calls
                :meth:`post` when one has come to 0.
        """
        self._hazards = hazards
        self._handles: list[Any] = [None] * len(self._op)
        self._posted = self._done = self._full = 0
        self._reached = -1

    def post(self) -> None:
        """Hand on to the transport what may be, in order, once half of what was under way is done."""
        with self._lock:
            under_way = self._posted - self._done
            if under_way > 2 and under_way > self._full // 2:
                return
            self._post()

    def _post(self) -> None:
        ops, hazards, piece = self._op, self._hazards, self._posted
        while piece < len(ops) and self._after[piece] < self._done:
            op = ops[piece]
            if hazards[op] > 0 and op > self._reached:
                break
            try:
                self._handles[piece] = self._transport.recv(self._wire[piece], self._peers[op], self._tags[op])
            except RuntimeError as error:
                raise self._failed(op, error) from error
            piece += 1
        self._posted = piece
        self._full = piece - self._done

    def receive(self, op: int) -> None:
        """Wait until the message of ``op`` stands in its region or has been added to it."""
        self._reached = op
        piece = self._first[op]
        while True:
            if self._posted <= piece:
                with self._lock:
                    self._post()
            self._transport.wait(self._handles[piece])
            self._handles[piece] = None
            into = self._into[piece]
            if into is not None:
                into.add_(self._wire[piece])
                self._transport.finish()  # before the next message may come to the same place
            piece += 1
            self._done = piece
            if piece == len(self._op) or self._op[piece] != op:
                return
            self.post()


def _aligned(tensor: torch.Tensor) -> int:
    size = len(tensor) * tensor.element_size()
    return -(-size // _ALIGN) * _ALIGN
