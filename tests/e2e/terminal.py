"""A real terminal for tests: a pty with the program in it, and its screen as a terminal emulator draws it."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect
import pyte

DEADLINE_S = 300.0  # generous: the machine may be busy with something else
KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "ctrl+c": "\x03",
    "ctrl+n": "\x0e",
    "ctrl+q": "\x11",
    "alt+up": "\x1b[1;3A",
    "alt+down": "\x1b[1;3B",
}
_PRIVATE = re.compile(rb"\x1b\[[<=>][\d;]*[A-Za-z]")  # of newer terminals; pyte would print their last letter


class Terminal:
    """Runs a command with a keyboard and a screen; everything that waits reads the screen until it is as wanted."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], folder: Path, columns: int = 100, lines: int = 30
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._child = pexpect.spawn(
            command[0],
            list(command[1:]),
            env={**env, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(lines)},
            cwd=str(folder),
            dimensions=(lines, columns),
        )
        self.pid: int = self._child.pid or 0

    @property
    def screen(self) -> str:
        """What a person sees now."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def press(self, *keys: str) -> None:
        """Press named keys; anything that is not a name is typed."""
        for key in keys:
            self._child.send(KEYS.get(key, key))

    def click(self, text: str) -> None:
        """Click on the first place where `text` is shown."""
        line, column = next((y, row.index(text)) for y, row in enumerate(self._screen.display) if text in row)
        place = f"\x1b[<0;{column + 1};{line + 1}"
        self._child.send(f"{place}M{place}m")

    def until(self, is_so: Callable[[str], bool]) -> str:
        """Read until the screen is so, and return it; fails with the last screen when that does not come."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(self.screen):
            assert time.monotonic() < deadline, f"waited in vain; the screen shows\n{self.screen}"
            assert self._read(), f"the program has ended; the screen shows\n{self.screen}"
        return self.screen

    def until_shown(self, *texts: str) -> str:
        """Read until all texts are on the screen at once."""
        return self.until(lambda screen: all(text in screen for text in texts))

    def wait(self) -> int:
        """Read to the end of the program and return its exit status, a signal as a negative number."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read():
            assert time.monotonic() < deadline, f"the program does not end; the screen shows\n{self.screen}"
        self._child.close()
        status, signal = self._child.exitstatus, self._child.signalstatus
        return -(signal or 0) if status is None else status

    def close(self) -> None:
        """Take the terminal away, with what runs in it."""
        self._child.close(force=True)

    def _read(self) -> bool:
        """Take what the program has written, waiting a moment for it; false when it has ended."""
        try:
            written: Any = self._child.read_nonblocking(65536, timeout=0.05)  # bytes, as no encoding is set
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self._stream.feed(_PRIVATE.sub(b"", written))
        return True
