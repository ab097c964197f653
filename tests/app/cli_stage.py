"""The command line as a process of its own, for tests."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from octavo.host_lock import running_hosts
from octavo.paths import Paths

LONG = "word " * 2000  # the echo of it takes most of a minute: whoever interrupts it has time on a busy machine
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "octavo", *arguments]


def begin(arguments: list[str], env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process whose pipes are not buffered here, or `communicate` would miss what was read ahead."""
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, bufsize=0)


def the_host(env: dict[str, str]) -> int:
    [host] = running_hosts(Paths.below(Path(env["OCTAVO_HOME"])))
    return host.pid
