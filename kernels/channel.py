"""Messages between a program and its workers: pickles over a Unix socket, large arrays through shared memory."""

import mmap
import os
import pickle
import socket
import struct
from typing import Any

_HEADER = struct.Struct("<QQQ")  # bytes of the pickle, of the lengths of its buffers, of all buffers together
_SHARED_FROM_BYTES = 1 << 16  # below this a copy through the socket is cheaper than a mapping


class Channel:
    """One end of a connection that carries any picklable object.

    NumPy arrays of 64 KiB or more travel in one anonymous shared-memory file per message, whose descriptor goes with
    the message: the sender copies them once, the receiver maps them, and nothing is left behind when either dies.
    """

    def __init__(self, end: socket.socket):
        self.socket = end

    @classmethod
    def pair(cls) -> "tuple[Channel, Channel]":
        """Both ends of a new connection."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(one), cls(other)

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def send(self, message: Any) -> None:
        """Send ``message``; blocks while the other end is not reading."""
        self.send_packed(pack(message))

    def send_packed(self, packed: "Packed") -> None:
        """Send what :func:`pack` made, so that one message to many is pickled once."""
        body, lengths, total, shared = packed
        header = _HEADER.pack(len(body), len(lengths), total)
        if shared is None:
            self.socket.sendall(header)
        else:
            socket.send_fds(self.socket, [header], [shared.fileno()])
        self.socket.sendall(body + lengths)

    def recv(self) -> Any:
        """The next message.

        Raises:
            EOFError: the other end is closed.
        """
        header, descriptors, _, _ = socket.recv_fds(self.socket, _HEADER.size, 1)
        header += self._read(_HEADER.size - len(header))
        body_size, lengths_size, total = _HEADER.unpack(header)
        body, lengths = self._read(body_size), self._read(lengths_size)
        buffers = []
        if descriptors:
            shared = memoryview(mmap.mmap(descriptors[0], total, access=mmap.ACCESS_COPY))  # ours alone
            os.close(descriptors[0])
            at = 0
            for (length,) in struct.iter_unpack("<Q", lengths):
                buffers.append(shared[at : at + length])
                at += -(-length // 64) * 64
        return pickle.loads(body, buffers=buffers)

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.socket.recv(min(count, 1 << 20))
            if not part:
                raise EOFError("the other end is closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class _Memory:
    """An anonymous file in memory, closed with its last reference."""

    def __init__(self, size: int):
        self._fd = os.memfd_create("llmsim", os.MFD_CLOEXEC)
        os.truncate(self._fd, size)

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        os.close(self._fd)


Packed = tuple[bytes, bytes, int, "_Memory | None"]


def pack(message: Any) -> Packed:
    """Pickle ``message`` with its large arrays set apart in shared memory."""
    large: list[memoryview] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _SHARED_FROM_BYTES:
            return True
        large.append(raw)
        return False

    body = pickle.dumps(message, protocol=5, buffer_callback=keep_inside)
    if not large:
        return body, b"", 0, None
    total = sum(-(-raw.nbytes // 64) * 64 for raw in large)  # each starts on a cache line
    memory = _Memory(total)
    at = 0
    with mmap.mmap(memory.fileno(), total) as view:
        for raw in large:
            view[at : at + raw.nbytes] = raw
            at += -(-raw.nbytes // 64) * 64
    return body, b"".join(struct.pack("<Q", raw.nbytes) for raw in large), total, memory
