"""Who is the host of a model: a file lock held for the life of the process, and what is done about hosts that died."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from octavo.errors import HostError
from octavo.paths import Paths
from octavo_data import Store

SIGN_TIMEOUT_S = 1.0


class Holder(msgspec.Struct, frozen=True):
    """What a host writes into its lock file: its process, its key, and its model as a person names it."""

    pid: int
    key: str
    model: str


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a host while the body runs, if nobody else does; yields whether we hold it.

    The kernel lets go of it when the process ends, however it ends. The file stays: removing it would let two
    processes hold "the" lock at once.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _is_taken_by_us(fd)
    finally:
        os.close(fd)


def sign(path: Path, key: str, model: str) -> None:
    """The holder of the lock says in it who it is."""
    path.write_bytes(msgspec.json.encode(Holder(os.getpid(), key, model)) + b"\n")


def holder_of(path: Path) -> Holder:
    """The host that signed the lock last. Raises HostError when nobody did."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except msgspec.DecodeError as error:
        remedy = "End the host by hand: `ps` shows it as octavo.host."
        raise HostError(f"{path} does not say who holds it", remedy) from error


def running_hosts(paths: Paths) -> list[Holder]:
    """All hosts of these folders that are alive, whatever their settings. Raises HostError."""
    held = [path for path in paths.locks() if _is_hosts(path)]
    holders = [(path, holder_of(path)) for path in held]
    return [holder for path, holder in holders if paths.lock(holder.key) == path]  # others are of another OCTAVO_HOME


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock."""
    with try_lock(path) as is_nobody:
        return is_nobody


def reap(store: Store, paths: Paths) -> int:
    """Close as interrupted the running turns of all hosts that are dead; returns how many there were.

    A store that is open for reading only stays as it is. Raises StoreError.

    The lock is held meanwhile, so that no new host of that name can begin a turn in between.
    """
    num_turns = 0
    for host in store.running_hosts() if not store.is_read_only else ():
        with try_lock(paths.lock(host)) as is_dead:
            if is_dead:
                num_turns += store.interrupt_turns(host)
    return num_turns


def _is_hosts(path: Path) -> bool:
    """Whether a host holds the lock: it signs at once, while whoever only looks lets go again."""
    deadline = time.monotonic() + SIGN_TIMEOUT_S
    while not (is_nobodys := is_free(path)) and not path.stat().st_size and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_nobodys


def _is_taken_by_us(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
