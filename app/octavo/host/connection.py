"""One client's connection as the host sees it: frames in, frames out, and never a wait for one that reads slowly."""

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec

from octavo.protocol import ClientFrame, HostFrame, Rejected
from octavo.wire import FrameTooLargeError, pack, read_body

log = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 8 * 1024 * 1024
_DECODER: msgspec.msgpack.Decoder[ClientFrame] = msgspec.msgpack.Decoder(ClientFrame)


class _Numbered(msgspec.Struct):
    """What can still be read of a frame with a wrong value in it."""

    request: int


_NUMBER_DECODER = msgspec.msgpack.Decoder(_Numbered)


class Connection:
    """Sends at once or not at all: a client that lets more than 8 MiB pile up is hung up on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, frame: HostFrame) -> None:
        """Queue a frame; does nothing once the connection is closing."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.warning("a client that does not read is hung up on")
            transport.abort()
            return
        self._writer.write(pack(frame))

    async def frames(self) -> AsyncIterator[ClientFrame]:
        """The client's frames until it hangs up; one with a wrong value in it is refused, not yielded."""
        while True:
            try:
                body = await read_body(self._reader)
            except (EOFError, OSError):
                return
            except FrameTooLargeError as error:
                log.warning("a client is hung up on: %s", error)
                return
            try:
                frame = _DECODER.decode(body)
            except msgspec.ValidationError as error:
                self._refuse(body, error)
            else:
                yield frame

    async def close(self) -> None:
        """Send what is queued, if the client reads it, and hang up."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), 1.0)
        except (TimeoutError, OSError):
            self._writer.transport.abort()

    def _refuse(self, body: bytes, error: msgspec.ValidationError) -> None:
        number = _NUMBER_DECODER.decode(body).request
        self.send(
            Rejected(request=number, error=f"The request is not valid: {error}", remedy="Change it and try again.")
        )
