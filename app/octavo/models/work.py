"""Runs the slow parts of a pull as child processes that are watched, and that die with whoever started them."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from octavo.errors import PullError

POLL_S = 0.1


class Complaint(msgspec.Struct, frozen=True):
    """How a child of ours says why it failed: the last line of its output, as JSON."""

    message: str
    remedy: str


def complain(error: PullError) -> None:
    """In the child: say why it failed, for `run_child` to raise it again in the parent."""
    sys.stdout.write("\n" + msgspec.json.encode(Complaint(error.message, error.remedy)).decode() + "\n")


def run_child(
    module: str, arguments: Sequence[str], log: Path, poll: Callable[[], None], env: Mapping[str, str]
) -> None:
    """Run `python -m module`, its output in `log`, calling `poll` several times a second.

    Raises PullError with the child's complaint, or the last line it wrote. The child never outlives this call.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]  # -P: no modules from the working folder
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
        try:
            while child.poll() is None:
                poll()
                time.sleep(POLL_S)
        finally:
            _end(child)
    if child.returncode < 0:
        raise PullError(
            f"{module} was killed (signal {-child.returncode})",
            "If memory was short, close other programs; pull again.",
        )
    if child.returncode > 0:
        raise _failure(module, log)


def first_line(error: BaseException | None) -> str:
    """What an error of a library says, cut to its first line."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def biggest_file_bytes(folder: Path) -> int:
    """The size of the biggest file below `folder`, which others may be writing and renaming."""
    return max(_file_sizes(folder), default=0)


def all_files_bytes(folder: Path) -> int:
    """The size of all files below `folder`, which others may be writing and renaming."""
    return sum(_file_sizes(folder))


def _file_sizes(folder: Path) -> list[int]:
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size if path.is_file() else 0)
        except OSError:  # renamed meanwhile
            continue
    return sizes


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout=3)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _failure(module: str, log: Path) -> PullError:
    text = log.read_text("utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    if "No space left on device" in text:
        return disk_full()
    try:
        complaint = msgspec.json.decode(lines[-1], type=Complaint)
    except msgspec.DecodeError:
        return PullError(f"{module} failed: {lines[-1]}")
    return PullError(complaint.message, complaint.remedy)


def disk_full() -> PullError:
    """The error for a full disk, wherever it was noticed."""
    return PullError("The disk is full", "Free some space, or set OCTAVO_HOME to a bigger disk, and pull again.")
