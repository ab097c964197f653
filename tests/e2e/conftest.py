"""A home with the real default model and one warm host for all tests here, and terminals in it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.terminal import DEADLINE_S, Terminal

from octavo.config import Settings
from octavo.host_lock import holder_of
from octavo.launcher import HostSpec
from octavo.paths import Paths
from octavo_data import Store, Turn

MAX_MODEL_LEN = 192  # so that no reply can be long
OCTAVO = (sys.executable, "-P", "-m", "octavo")


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one user, and the commands that this user types."""

    folder: Path

    @property
    def paths(self) -> Paths:
        return Paths.below(self.folder)

    @property
    def env(self) -> dict[str, str]:
        return os.environ | {"OCTAVO_HOME": str(self.folder), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(self, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*OCTAVO, *arguments],
            env=self.env, cwd=self.folder, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*OCTAVO, *arguments],
            env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True,
        )  # fmt: skip

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    @property
    def host_pid(self) -> int:
        spec = HostSpec.of(Settings(max_model_len=MAX_MODEL_LEN), self.paths)
        return holder_of(self.paths.lock(spec.key)).pid

    def last_turns(self) -> dict[str, Turn]:
        """The last turn of each chat, by its prompt."""
        with Store(self.paths.store_file) as store:
            turns = [store.turns(chat.id)[-1] for chat in reversed(store.chats())]
        return {turn.prompt: turn for turn in turns}

    def until(self, is_so: Callable[[dict[str, Turn]], bool]) -> dict[str, Turn]:
        """Look at the store until it is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(turns := self.last_turns()):
            assert time.monotonic() < deadline, f"waited in vain; the store has {turns}"
            time.sleep(0.1)
        return turns


@contextmanager
def new_home() -> Iterator[Home]:
    """An empty folder; whatever host it has is stopped at the end."""
    home = Home(Path(tempfile.mkdtemp(prefix="oct-")))
    try:
        yield home
    finally:
        home.run("engine", "stop")
        shutil.rmtree(home.folder)


@contextmanager
def home_with(model_folder: Path) -> Iterator[Home]:
    """Empty but for the model and a small context."""
    with new_home() as home:
        home.paths.config_dir.mkdir()
        home.paths.config_file.write_text(f"max_model_len = {MAX_MODEL_LEN}\n")
        home.paths.models_dir.mkdir(parents=True)
        (home.paths.models_dir / "smollm2-135m").symlink_to(model_folder)
        yield home


@pytest.fixture(scope="session")
def home(model_folder: Path) -> Iterator[Home]:
    """One for all tests that leave its host as warm as they found it."""
    with home_with(model_folder) as home:
        yield home


@pytest.fixture
def open_terminal() -> Iterator[Callable[..., Terminal]]:
    """Opens terminals in a home; all are closed at the end of the test."""
    terminals: list[Terminal] = []

    def open_one(home: Home, *arguments: str) -> Terminal:
        terminals.append(Terminal([*OCTAVO, *arguments], home.env, home.folder))
        return terminals[-1]

    yield open_one
    for terminal in terminals:
        terminal.close()
