"""`python -m octavo.host --model NAME`: become the host of a model, unless there is one."""

import argparse
import asyncio
import logging
import os
import socket
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from octavo.config import Settings, load_settings
from octavo.errors import OctavoError
from octavo.host.server import Host
from octavo.host_lock import sign, try_lock
from octavo.launcher import HostSpec
from octavo.paths import Paths

MAX_LOG_BYTES = 1024 * 1024
LOCK_TIMEOUT_S = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped; the exit status is 0 also when another host does it already."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return _serve(_spec(arguments))
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)  # noqa: T201  the launcher shows the last line
        return 1


def _spec(arguments: Sequence[str] | None) -> HostSpec:
    parser = argparse.ArgumentParser(prog="python -m octavo.host", description=__doc__)
    parser.add_argument("--model", help="by default that of config.toml; echo is a demo without a model")
    parser.add_argument("--folder", type=Path, help="where the model lies, by default where its name leads to")
    parser.add_argument("--settings", help="as JSON, instead of config.toml")
    parser.add_argument("--paths", help="as JSON, instead of OCTAVO_HOME and the platform's")
    given = parser.parse_args(arguments)
    paths = msgspec.json.decode(given.paths, type=Paths, dec_hook=_path) if given.paths else Paths.from_env()
    settings = (
        msgspec.json.decode(given.settings, type=Settings) if given.settings else load_settings(paths.config_file)
    )
    if given.model:
        settings = msgspec.structs.replace(settings, model=given.model)
    return HostSpec(given.folder, settings, paths) if given.folder else HostSpec.of(settings, paths)


def _serve(spec: HostSpec) -> int:
    lock, path = spec.paths.lock(spec.key), spec.paths.socket(spec.key)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while time.monotonic() < deadline:
        with try_lock(lock) as is_ours:
            if is_ours:
                sign(lock, spec.key, spec.model)
                _shorten_log()
                return asyncio.run(_run(spec, _bind(path)))
        if _answers(path):
            return 0
        time.sleep(0.02)  # one that is ending holds it still, or somebody looks whether it is held
    raise OctavoError(f"Another host holds {lock} and does not answer", "Run `octavo engine stop`, then try again.")


async def _run(spec: HostSpec, listener: socket.socket) -> int:
    return await Host(spec, listener).run()


def _bind(path: Path) -> socket.socket:
    """Listen at `path`, mode 0600; what lies there is stale, for the lock is ours."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(128)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _shorten_log() -> None:
    """Begin an overlong log file anew; only the holder of the lock writes to it."""
    found = os.fstat(sys.stderr.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size > MAX_LOG_BYTES:
        os.ftruncate(sys.stderr.fileno(), 0)


def _path(kind: type, value: object) -> object:
    return kind(value)


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # not sys.exit: a step thread that loads a model cannot be stopped, and dies badly under torch
