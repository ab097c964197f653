"""The client's side of the socket: submit turns to the host, follow and stop them, ask how the engine fares."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from octavo.errors import HostError, HostLostError, OctavoError, RequestRejectedError
from octavo.listeners import Listeners
from octavo.protocol import (
    VERSION,
    ClientFrame,
    EngineStatus,
    GetStatus,
    GiveWay,
    Hello,
    HostFailed,
    HostFrame,
    Loading,
    Ready,
    Rejected,
    Shutdown,
    Status,
    Stop,
    Submit,
    Watch,
    Welcome,
)
from octavo.reply import Reply
from octavo.wire import FrameTooLargeError, pack, read_body
from octavo_engine.params import SamplingParams

WELCOME_TIMEOUT_S = 30.0
_DECODER: msgspec.msgpack.Decoder[HostFrame] = msgspec.msgpack.Decoder(HostFrame)


class HostAbsentError(HostError):
    """Nobody listens at the socket, or it hung up before it said who it is."""


class Client:
    """One connection to a host, for one event loop; open it with `Client.open` or, better, `launcher.connect`.

    model, pid: the host's. `is_ready`: its model is loaded; until then requests wait in the host, and `loading` says
    what it does, if it said so. `device` and `max_model_len` (tokens) are known once ready. `failure`: why it cannot
    serve, or None. `closed` is set when the connection is over, whoever ended it. `subscribe` tells when these change.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, welcome: Welcome) -> None:
        self.model = welcome.model
        self.pid = welcome.pid
        self.is_ready = welcome.is_ready
        self.device = welcome.device
        self.max_model_len = welcome.max_model_len
        self.loading: Loading | None = None
        self.failure: HostFailed | None = None
        self.closed = asyncio.Event()
        self._writer = writer
        self._numbers = itertools.count(1)
        self._replies: dict[int, Reply] = {}
        self._questions: dict[int, asyncio.Future[EngineStatus | None]] = {}
        self._listeners = Listeners[Client]()
        self._reading = asyncio.create_task(self._read_all(reader), name="octavo-client")

    @classmethod
    async def open(cls, socket: Path, *, is_any_version_fine: bool = False) -> Self:
        """Connect and shake hands. Raises HostAbsentError when nobody is there, HostError when it speaks otherwise."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(socket))
        except OSError as error:
            raise HostAbsentError(f"No host listens at {socket}") from error
        try:
            writer.write(pack(Hello()))
            welcome = await _read_welcome(reader)
            if welcome.version != VERSION and not is_any_version_fine:
                raise _version_error(f"version {welcome.version}")
        except BaseException:
            writer.close()
            raise
        return cls(reader, writer, welcome)

    def submit(
        self,
        prompt: str,
        *,
        chat_id: str | None = None,
        system: str | None = None,
        store: bool = True,
        params: SamplingParams | None = None,
    ) -> Reply:
        """Send one user turn (see protocol.Submit); nothing waits here, refusals come through the Reply.

        Raises HostLostError when the connection is over and RequestRejectedError for a prompt too large to send.
        """
        number = next(self._numbers)
        chosen = params or SamplingParams()
        return self._follow(
            Submit(request=number, prompt=prompt, chat_id=chat_id, system=system, store=store, params=chosen)
        )

    def watch(self, chat_id: str) -> Reply:
        """Follow the running turn of a chat, from its first word; the Reply is refused when none runs in this host."""
        return self._follow(Watch(request=next(self._numbers), chat_id=chat_id))

    def stop(self, reply: Reply) -> None:
        """End the turn of a reply; what was said stays, and its TurnFinished (or refusal) still comes."""
        if not reply.is_over and not self.closed.is_set():
            self._send(Stop(request=reply.number))

    async def status(self) -> EngineStatus | None:
        """How the engine fares, None while the model is loading. Raises HostLostError, RequestRejectedError."""
        number = next(self._numbers)
        self._send(GetStatus(request=number))
        answer: asyncio.Future[EngineStatus | None] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        return await answer

    async def give_way(self, model: str) -> bool:
        """Ask the host to end if it has no work, for another model's sake; whether it does, once it hung up."""
        number = next(self._numbers)
        self._send(GiveWay(request=number, model=model))
        answer: asyncio.Future[EngineStatus | None] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        try:
            await answer
        except RequestRejectedError:
            return False
        except OctavoError:
            pass  # the connection is over
        return True

    async def shutdown(self) -> None:
        """Ask the host to stop and wait until it hung up; running turns are closed as interrupted."""
        if self._lost_error() is None:
            self._send(Shutdown())
        await self.closed.wait()

    async def wait_ready(self) -> None:
        """Wait until the model is loaded. Raises HostError when it cannot be, HostLostError."""
        changed = asyncio.Event()
        unsubscribe = self.subscribe(changed.set)
        try:
            while not self.is_ready:
                if error := self._lost_error():
                    raise error
                await changed.wait()
                changed.clear()
        finally:
            unsubscribe()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in the event loop when `loading`, `is_ready`, `failure` or `closed` changed. Returns the way
        out."""
        return self._listeners.add(lambda _: callback())

    async def aclose(self) -> None:
        """Hang up; stored turns go on in the host. Replies that still wait end with HostLostError."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._hang_up()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _follow(self, frame: Submit | Watch) -> Reply:
        self._send(frame)
        reply = self._replies[frame.request] = Reply(frame.request)
        return reply

    def _send(self, frame: ClientFrame) -> None:
        if error := self._lost_error():
            raise error
        try:
            self._writer.write(pack(frame))
        except FrameTooLargeError as error:
            raise RequestRejectedError(f"The prompt is too large: {error}", "Send a shorter one.") from error

    def _lost_error(self) -> OctavoError | None:
        if self.failure:
            return HostError(self.failure.error, self.failure.remedy)
        return lost_error() if self.closed.is_set() else None

    async def _read_all(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._dispatch(_DECODER.decode(await read_body(reader)))
        except (EOFError, OSError):
            pass  # the host is gone; `_hang_up` tells everybody
        except (msgspec.MsgspecError, FrameTooLargeError) as error:
            self.failure = HostFailed(error=f"The host sent a frame that cannot be read: {error}", remedy=_RESTART)
        finally:
            self._hang_up()

    def _dispatch(self, frame: HostFrame) -> None:
        match frame:
            case Loading():
                self.loading = frame
                self._listeners.tell(self)
            case Ready():
                self.loading = None
                self.is_ready, self.device, self.max_model_len = True, frame.device, frame.max_model_len
                self._listeners.tell(self)
            case HostFailed():
                self.failure = frame
                self._listeners.tell(self)
            case Status() | Rejected() if question := self._questions.pop(frame.request, None):
                _answer(question, frame)
            case Welcome() | Status():
                pass  # only the first frame is one; nobody waits for the other
            case _:
                if (reply := self._replies.get(frame.request)) and reply.put(frame):
                    del self._replies[frame.request]

    def _hang_up(self) -> None:
        """The one way out: close the socket and end with an error all that still waits; harmless when repeated."""
        self._writer.close()
        if self.closed.is_set():
            return
        self.closed.set()
        error = self._lost_error() or lost_error()
        for reply in self._replies.values():
            reply.fail(error)
        for question in self._questions.values():
            if not question.done():
                question.set_exception(error)
        self._replies.clear()
        self._questions.clear()
        self._listeners.tell(self)


def _answer(question: "asyncio.Future[EngineStatus | None]", frame: Status | Rejected) -> None:
    if question.done():  # whoever asked has gone
        return
    if isinstance(frame, Status):
        question.set_result(frame.engine)
    else:
        question.set_exception(RequestRejectedError(frame.error, frame.remedy))


_RESTART = "Run `octavo engine stop`, then try again."


def lost_error() -> HostLostError:
    """What is told when the connection ended and the host did not say why."""
    return HostLostError("The host went away", "Ask again: it is started anew, and what was said is kept.")


def _version_error(found: str) -> HostError:
    return HostError(f"The running host speaks {found} of the protocol, this program version {VERSION}", _RESTART)


async def _read_welcome(reader: asyncio.StreamReader) -> Welcome:
    try:
        body = await asyncio.wait_for(read_body(reader), WELCOME_TIMEOUT_S)
        return msgspec.msgpack.decode(body, type=Welcome)
    except TimeoutError:
        raise HostError(f"The host does not answer within {WELCOME_TIMEOUT_S:.0f} s", _RESTART) from None
    except (EOFError, OSError) as error:
        raise HostAbsentError("The host hung up at once") from error
    except (msgspec.MsgspecError, FrameTooLargeError):
        raise _version_error("another version") from None
