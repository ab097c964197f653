"""Frames as bytes: msgpack behind a 4-byte big-endian length, the same at both ends of the socket."""

from typing import TYPE_CHECKING

import msgspec

from octavo.protocol import MAX_FRAME_BYTES, Frame

if TYPE_CHECKING:
    from asyncio import StreamReader

_ENCODER = msgspec.msgpack.Encoder()
_LENGTH_BYTES = 4


class FrameTooLargeError(ValueError):
    """A frame has more bytes than MAX_FRAME_BYTES; sent on, it would cost the other side its memory."""


def pack(frame: Frame) -> bytes:
    """The bytes of a frame with its length before them. Raises FrameTooLargeError."""
    body = _ENCODER.encode(frame)
    _check(len(body))
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read_body(reader: "StreamReader") -> bytes:
    """The body of the next frame. Raises EOFError (asyncio's IncompleteReadError) at the end, FrameTooLargeError."""
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    _check(length)
    return await reader.readexactly(length)


def _check(num_bytes: int) -> None:
    if num_bytes > MAX_FRAME_BYTES:
        raise FrameTooLargeError(f"a frame has {num_bytes} bytes, at most {MAX_FRAME_BYTES} are allowed")
