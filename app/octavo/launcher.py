"""Finds the host of a model, or starts it in the background and waits until it answers."""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from octavo.client import Client, HostAbsentError
from octavo.config import Settings
from octavo.errors import HostError
from octavo.host_lock import holder_of, is_free, running_hosts
from octavo.models.resolve import resolve
from octavo.paths import Paths, private_folder

ECHO = "echo"  # the pseudo model, a demo engine without torch; "echo:30" takes 30 ms for each step
START_TIMEOUT_S = 60.0  # until the socket answers; the model loads after that
_STOP_TIMEOUT_S = 10.0  # for a host that is asked to end
_KILL_TIMEOUT_S = 10.0  # for the kernel to take away one that is killed
_POLL_S = 0.03


@dataclass(frozen=True, slots=True)
class HostSpec:
    """Which host: the settings, where their model lies (None for `echo`), and where everything else does."""

    folder: Path | None
    settings: Settings
    paths: Paths

    @classmethod
    def of(cls, settings: Settings, paths: Paths) -> "HostSpec":
        """Look the model of the settings up. Raises ModelMissingError, ModelNameError, ModelFolderError."""
        name = settings.model
        return cls(None if is_echo(name) else resolve(name, paths), settings, paths)

    @property
    def model(self) -> str:
        """As a person names it."""
        return self.settings.model

    @property
    def key(self) -> str:
        """Names the host's socket, lock and log, and the host in the store; a hash over model and engine settings."""
        what = msgspec.json.encode((self.model, str(self.folder), self.settings.engine_settings()), order="sorted")
        name = re.sub(r"[^a-z0-9]+", "-", Path(self.model).name.lower()).strip("-")[:24]
        return f"{name}-{hashlib.blake2b(what, digest_size=6).hexdigest()}"

    @property
    def log_file(self) -> Path:
        """Where the host's stdout and stderr go."""
        return self.paths.state_dir / f"host-{self.key}.log"


def is_echo(model: str) -> bool:
    """Whether this names the demo engine."""
    return model.partition(":")[0] == ECHO


async def connect(settings: Settings, paths: Paths, *, start: bool = True) -> Client:
    """A client of the host of the settings' model, which is started if need be.

    The model may still be loading: see `Client.is_ready`. Raises ModelMissingError and the like, and HostError when it
    cannot be started, or when none runs and `start` is false.
    """
    spec = HostSpec.of(settings, paths)
    socket = paths.socket(spec.key)
    with contextlib.suppress(HostAbsentError):
        return await Client.open(socket)
    if not start:
        others = ", ".join(sorted(host.model for host in running_hosts(paths)))
        but = f" with these settings (but one for {others})" if others else ""
        raise HostAbsentError(f"No host runs for {spec.model}{but}", "`octavo engine start` starts it.")
    return await _start(spec, socket)


async def stop(paths: Paths, *, model: str | None = None) -> list[str]:
    """Stop the hosts of `model` (None: all hosts) and wait until they are gone; returns the models of those that ran.

    They are found by their locks, so it matters neither what the settings were when they started, nor their version.
    Raises HostError when one does not go.
    """
    running = [host for host in running_hosts(paths) if model in (None, host.model)]
    await asyncio.gather(*(_stop_one(paths.lock(host.key), paths.socket(host.key)) for host in running))
    return [host.model for host in running]


async def _stop_one(lock: Path, socket: Path) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            while not is_free(lock):  # asked again: a second host may have waited for the end of the first
                await _ask_to_end(socket)
                await asyncio.sleep(_POLL_S)
    await _make_end(lock)


async def _ask_to_end(socket: Path) -> None:
    with contextlib.suppress(HostError):  # it is starting, or ending already
        async with await Client.open(socket, is_any_version_fine=True) as client:
            await client.shutdown()


async def _start(spec: HostSpec, socket: Path) -> Client:
    process, log_start = _spawn(spec)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(HostAbsentError):
            client = await Client.open(socket)
            if client.pid != process.pid:
                process.terminate()  # it came second; it must not wait to become the host later
            return client
        if status := process.poll():
            raise _start_error(spec, _last_line(spec.log_file, log_start))
        if status == 0:  # it found another host at work, which has ended since
            process, log_start = _spawn(spec)
        await asyncio.sleep(_POLL_S)
    raise _start_error(spec, f"it does not answer within {START_TIMEOUT_S:.0f} s")


def _spawn(spec: HostSpec) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process in a session of its own; returns it and the length of its log in bytes before that."""
    private_folder(spec.paths.state_dir)
    try:
        with spec.log_file.open("ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "octavo.host", *_arguments(spec)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=spec.paths.state_dir,  # not ours: that folder could not be unmounted or removed
                env={"OMP_NUM_THREADS": str(_num_threads())} | os.environ | _python_path(),
                start_new_session=True,  # ctrl+c in our terminal is not for it
            )
    except OSError as error:
        raise _start_error(spec, str(error)) from error
    # without a wait it would stay a zombie for as long as we live
    threading.Thread(target=process.wait, name="octavo-host-reaper", daemon=True).start()
    return process, log_start


def _arguments(spec: HostSpec) -> list[str]:
    folder = [] if spec.folder is None else ["--folder", str(spec.folder)]
    settings, paths = (msgspec.json.encode(part, enc_hook=str).decode() for part in (spec.settings, spec.paths))
    return ["--model", spec.model, *folder, "--settings", settings, "--paths", paths]


def _python_path() -> dict[str, str]:
    """A relative PYTHONPATH would mean something else in the host's working folder."""
    entries = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, entries.split(os.pathsep)))} if entries else {}


def _num_threads() -> int:
    """Cores for the model: all but one, which the UI or anything else may keep busy.

    The threads of one operation wait for the last of them: with two on two cores, one of which was busy, the default
    model spoke 1.5 tokens a second, with one thread 14.7 (and on the idle machine both 14).
    """
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, num_cores - 1)


def _last_line(log_file: Path, start: int) -> str:
    """The last line that the process wrote, with anything in it."""
    with log_file.open("rb") as log:
        log.seek(start if start <= log_file.stat().st_size else 0)
        lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it ended without a word")


def _start_error(spec: HostSpec, reason: str) -> HostError:
    return HostError(f"The host of {spec.model} did not start: {reason}", f"Its log has more: {spec.log_file}")


async def _make_end(lock: Path) -> None:
    """See that nobody holds the lock any more. Raises HostError."""
    for signal_number, timeout_s in ((signal.SIGTERM, _STOP_TIMEOUT_S), (signal.SIGKILL, _KILL_TIMEOUT_S)):
        if is_free(lock):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder_of(lock).pid, signal_number)
        deadline = time.monotonic() + timeout_s
        while not is_free(lock) and time.monotonic() < deadline:  # noqa: ASYNC110  another process's lock
            await asyncio.sleep(_POLL_S)
    if not is_free(lock):
        raise HostError(f"The host (process {holder_of(lock).pid}) does not end", "End it by hand: see `man kill`.")
