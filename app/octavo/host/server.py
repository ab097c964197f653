"""The host's loop: listens, welcomes clients, passes their frames on, and ends when asked to or long idle."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Coroutine
from typing import Any

from octavo.errors import HostError, OctavoError
from octavo.host.block_keeper import make_keeper
from octavo.host.bookkeeping import clear_disk, reap_all
from octavo.host.connection import Connection
from octavo.host.engine_thread import EngineThread
from octavo.host.loading import explain, load
from octavo.host.status import engine_status
from octavo.host.store_thread import StoreThread
from octavo.host.titles import Titles
from octavo.host.turns import Turns
from octavo.launcher import HostSpec
from octavo.protocol import (
    VERSION,
    ClientFrame,
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
from octavo_data import StoreError
from octavo_engine.events import StopReason
from octavo_engine.loaded import Loaded, LoadStep, ModelInfo

log = logging.getLogger(__name__)

FIRST_CLIENT_S = 30.0  # time for whoever started us to connect, however short the idle time is
LAST_WORDS_S = 1.0  # a client that comes meanwhile hears why the model could not be loaded


class Host:
    """Serves one model at a listening socket until `run` returns the exit status of the process."""

    def __init__(self, spec: HostSpec, listener: socket.socket) -> None:
        self._spec = spec
        self._listener = listener
        self._idle_s = spec.settings.idle_minutes * 60
        self._connections: set[Connection] = set()  # those that were welcomed
        self._handlers: dict[asyncio.Task[None], Connection] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._end: asyncio.Future[OctavoError | None] = asyncio.get_running_loop().create_future()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._info: ModelInfo | None = None
        self._loading: Loading | None = None
        self._failure: HostFailed | None = None
        self._why_stopped = "The engine was stopped"
        self._loop = asyncio.get_running_loop()
        self._engine = EngineThread(self._load)
        self._keeper = make_keeper(spec, self._engine.post)
        self._store = StoreThread(spec.paths.store_file)
        titles = Titles(spec, self._store, self._engine, self._rest)
        self._turns = Turns(spec, self._store, self._engine, titles, self._rest)

    async def run(self) -> int:
        """Serve until told to end; 0, or 1 when the model or the engine failed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        server = await asyncio.start_unix_server(self._serve, sock=self._listener)
        self._engine.start(self._turns.on_events)
        for work in (self._reap(), self._watch_engine(), self._turns.flush_for_ever()):
            self._begin(work)
        self._rest(FIRST_CLIENT_S)
        failure = await self._end
        server.close()
        await self._close(failure)
        return 0 if failure is None else 1

    def _load(self) -> Loaded:
        """In the step thread."""
        loaded = load(self._spec, self._hear_of_loading)
        if self._keeper:
            self._keeper.attach(loaded)
        return loaded

    # ---- clients ----

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers[handler] = connection
        try:
            async for frame in connection.frames():
                self._answer(connection, frame)
        except Exception:  # a border: one client's bug must not take the others along
            log.exception("a connection failed")
        finally:
            del self._handlers[handler]
            writer.close()
            self._leave(connection)

    def _answer(self, connection: Connection, frame: ClientFrame) -> None:
        try:
            self._handle(connection, frame)
        except Exception as error:  # a border: nobody may wait for ever, and the client's other requests go on
            log.exception("a request failed")
            if isinstance(frame, Submit | Watch | Stop | GetStatus | GiveWay):
                connection.send(self._failed(frame.request, error))

    def _failed(self, number: int, error: Exception) -> Rejected:
        """The answer to a request that met a bug of ours."""
        return Rejected(
            request=number,
            error=f"The host failed on this request: {error!r}",
            remedy=f"Its log has more: {self._spec.log_file}",
        )

    def _handle(self, connection: Connection, frame: ClientFrame) -> None:
        match frame:
            case Hello():
                self._welcome(connection)
            case Submit():
                self._turns.submit(connection, frame)
            case Watch():
                self._turns.watch(connection, frame)
            case Stop():
                self._turns.stop(connection, frame.request)
            case GetStatus():
                self._begin(self._answer_status(connection, frame.request))
            case GiveWay():
                self._give_way(connection, frame)
            case Shutdown():
                self._stop()

    def _welcome(self, connection: Connection) -> None:
        self._connections.add(connection)
        info = self._info
        connection.send(
            Welcome(
                version=VERSION,
                model=self._spec.model,
                pid=os.getpid(),
                is_ready=info is not None,
                device=info.device if info else "",
                max_model_len=info.max_model_len if info else 0,
            )
        )
        if info is None and self._loading:
            connection.send(self._loading)
        if self._failure:
            connection.send(self._failure)

    def _leave(self, connection: Connection) -> None:
        self._turns.leave(connection)
        if connection in self._connections:  # not one that only looked whether we answer
            self._connections.remove(connection)
            self._rest()

    async def _answer_status(self, connection: Connection, number: int) -> None:
        try:
            info = self._info
            status = await engine_status(self._spec.model, info, self._engine, self._store) if info else None
        except Exception as error:  # a border: the client must not wait for ever
            log.exception("the engine's counts cannot be told")
            connection.send(self._failed(number, error))
        else:
            connection.send(Status(request=number, engine=status))

    def _tell_all(self, frame: HostFrame) -> None:
        for connection in self._connections:
            connection.send(frame)

    # ---- what goes on beside ----

    def _hear_of_loading(self, step: LoadStep) -> None:
        """In the step thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for the model any more
            self._loop.call_soon_threadsafe(self._tell_loading, Loading(label=step.label, percent=step.percent))

    def _tell_loading(self, now: Loading) -> None:
        if now != self._loading:
            self._loading = now
            self._tell_all(now)

    async def _watch_engine(self) -> None:
        try:
            self._info = await self._engine.loaded
        except Exception as error:  # a border: whatever a model's files made of it
            await self._fail(explain(error, self._spec))
            return
        self._tell_all(Ready(device=self._info.device, max_model_len=self._info.max_model_len))
        try:
            await self._engine.crashed
        except Exception as error:  # a border: a bug of ours in a step
            await self._fail(HostError(f"The engine broke down: {error!r}", f"Its log has more: {self._spec.log_file}"))

    async def _fail(self, why: OctavoError) -> None:
        log.error("%s", why)
        await self._turns.close(StopReason.FAILED, why)
        self._failure = HostFailed(error=why.message, remedy=why.remedy)
        self._tell_all(self._failure)
        await asyncio.sleep(LAST_WORDS_S)
        self._finish(why)

    async def _reap(self) -> None:
        """Close the turns of hosts that died, one of our own name among them."""
        try:
            num_turns = await self._store.run(reap_all, self._spec.paths, self._spec.key)
            if not self._spec.settings.disk_cache_bytes:
                await self._store.run(clear_disk, self._spec.paths)
        except StoreError as error:
            log.warning("turns of hosts that died cannot be closed: %s", error)
        else:
            log.info("%d turns of hosts that died were closed", num_turns)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("background work failed", exc_info=error)

    # ---- the end ----

    def _rest(self, at_least_s: float = 0.0) -> None:
        """Start to wait for work anew; whoever finds clients or turns at the end of that goes on."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(max(self._idle_s, at_least_s), self._stop_if_idle)

    def _stop_if_idle(self) -> None:
        if not self._connections and not self._turns.is_busy:
            log.info("idle for %.0f s", self._idle_s)
            self._stop()

    def _give_way(self, connection: Connection, frame: GiveWay) -> None:
        if self._info is None or self._turns.is_busy:
            connection.send(Rejected(request=frame.request, error="The host is at work", remedy="Ask it later."))
            return
        self._why_stopped = f"The engine made room for {frame.model}"
        self._stop()

    def _stop(self) -> None:
        self._finish(None)

    def _finish(self, failure: OctavoError | None) -> None:
        if not self._end.done():
            self._end.set_result(failure)

    async def _close(self, failure: OctavoError | None) -> None:
        self._spec.paths.socket(self._spec.key).unlink(missing_ok=True)  # whoever comes now starts a new host
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        if failure is None:
            why = HostError(self._why_stopped, "The next question starts it again.")
            await self._turns.close(StopReason.ABORTED, why)
            self._tell_all(HostFailed(error=why.message, remedy=why.remedy))
        if self._keeper:
            await self._keeper.close()
        await self._store.close()
        await asyncio.gather(*(connection.close() for connection in self._handlers.values()))
        await asyncio.gather(*self._handlers, return_exceptions=True)
        self._engine.stop(timeout_s=1.0)
