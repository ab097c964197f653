"""The step thread: it alone touches the engine, and hands the loop one batch of events a step."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from octavo_engine.engine import Engine
from octavo_engine.events import Event
from octavo_engine.loaded import Loaded, ModelInfo

log = logging.getLogger(__name__)
QUIET_S = 0.5
T = TypeVar("T")
Job = Callable[[Loaded], None]


class EngineThread:
    """Loads a model and steps its engine in a thread of its own; all but `post` is called from the loop's thread.

    `start(on_events)` says who gets the events of each step, in the loop. `loaded` is done when the model is, or has
    the exception. `crashed` has the exception of a step that raised, which only our own bugs do; the engine is
    unusable then.
    """

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self._loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[ModelInfo] = self._loop.create_future()
        self.crashed: asyncio.Future[None] = self._loop.create_future()
        self._load = load
        self._on_events: Callable[[list[Event]], None] = _drop
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # a daemon: loading cannot be interrupted, and must not keep a stopped process alive
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)

    def start(self, on_events: Callable[[list[Event]], None]) -> None:
        """Begin to load."""
        self._on_events = on_events
        self._thread.start()

    def call(self, function: Callable[[Loaded], T]) -> "asyncio.Future[T]":
        """Have `function` run in the step thread between two steps, in order; it waits while the model loads."""
        answer: asyncio.Future[T] = self._loop.create_future()

        def job(loaded: Loaded) -> None:
            try:
                result = function(loaded)
            except Exception as error:  # a border: it belongs to whoever asked
                self._post(_settle, answer, None, error)
            else:
                self._post(_settle, answer, result, None)

        self._jobs.put(job)
        return answer

    def post(self, job: Callable[[], None]) -> None:
        """Have `job` run in the step thread between two steps; from any thread."""
        self._jobs.put(lambda _: job())

    def abort(self, request_id: str) -> None:
        """Mark a request; its Finished comes with the events of a later step."""
        self._jobs.put(lambda loaded: loaded.engine.abort(request_id))

    def stop(self, timeout_s: float) -> bool:
        """Ask the thread to end after its step and wait for it; whether it has ended."""
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- in the step thread ----

    def _run(self) -> None:
        try:
            loaded = self._load()
        except BaseException as error:  # a border: the loop reports it
            log.exception("the model cannot be loaded")
            self._post(_settle, self.loaded, None, error)
            return
        self._post(_settle, self.loaded, loaded.info, None)
        try:
            while self._work(loaded):
                pass
        except BaseException as error:  # a border: the loop reports it
            log.exception("the engine broke down")
            self._post(_settle, self.crashed, None, error)

    def _work(self, loaded: Loaded) -> bool:
        """Do what was asked for while a step was computed, then launch the next; whether to go on."""
        engine = loaded.engine
        engine.wait()
        for job in self._take(None if engine.has_work and not engine.awaits_disk else engine):
            if job is None:
                return False
            job(loaded)
        if engine.has_work:
            self._step(engine)
        return True

    def _step(self, engine: Engine) -> None:
        if events := engine.step():
            self._post(self._on_events, events)

    def _take(self, idle: Engine | None) -> Sequence[Job | None]:
        """What was asked for since; with an idle engine it waits for something."""
        jobs = [self._next_job(idle)] if idle else []
        while not self._jobs.empty():  # nobody else takes from it
            jobs.append(self._jobs.get_nowait())
        return jobs

    def _next_job(self, engine: Engine) -> Job | None:
        """Wait for a job; in the first quiet moment the blocks are counted, which may take 0.3 s on a large GPU."""
        try:
            return self._jobs.get(timeout=QUIET_S)
        except Empty:
            engine.check_integrity()
            return self._jobs.get()

    def _post(self, function: Callable[..., Any], *values: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *values)
        except RuntimeError:
            log.debug("the loop is closed; a batch of the engine is dropped")


def _drop(events: list[Event]) -> None:
    """Nobody listens before `start`."""


def _settle(future: "asyncio.Future[T]", result: T, error: BaseException | None) -> None:
    if future.done():  # whoever asked has gone
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
