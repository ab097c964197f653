"""The law of blocks on disk: whatever happens to files and rows, every reply is that of a run without a disk."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from time import sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.app.keeper_stage import KeptRun, alone, block_files, disk_of, kept_run

from octavo_data import kv_files

Damage = Callable[[Path, Path, random.Random], None]
"""Happens to a file; another one is at hand."""

PROMPT = [1 + number * number % 5 for number in range(90)]
OTHER = [6 - token for token in PROMPT[:50]]


@pytest.fixture(scope="module", autouse=True)
def _quick_probe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_files, "PROBE_BYTES", 4096)
        yield


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which two chats were asked."""
    home = tmp_path_factory.mktemp("used")
    with kept_run(home) as run:
        assert_replies_are_right(run)
    return home


def assert_replies_are_right(run: KeptRun) -> None:
    """Both chats, their next turns, and a fork in the middle of a block."""
    for number, prompt in enumerate((PROMPT, OTHER, [*PROMPT[:41], 3, 3, 3])):
        reply = run.ask(f"{number}", prompt)
        assert reply == alone(prompt)
        follow_up = [*prompt, *reply, 4, 2]
        assert run.ask(f"{number} next", follow_up) == alone(follow_up)


# ---- what can happen to a file ----


def truncate(file: Path, other: Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size))


def flip(file: Path, other: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def swap(file: Path, other: Path, rng: random.Random) -> None:
    first, second = file.read_bytes(), other.read_bytes()
    file.write_bytes(second)
    other.write_bytes(first)


def swap_contents(file: Path, other: Path, rng: random.Random) -> None:
    first, second = file.read_bytes(), other.read_bytes()
    file.write_bytes(first[:80] + second[80:])
    other.write_bytes(second[:80] + first[80:])


def fill_with_noise(file: Path, other: Path, rng: random.Random) -> None:
    file.write_bytes(rng.randbytes(file.stat().st_size))


def rename(file: Path, other: Path, rng: random.Random) -> None:
    file.rename(file.with_name("00" * 32 + ".kv"))


def remove(file: Path, other: Path, rng: random.Random) -> None:
    file.unlink()


# ---- what can happen to a row ----

CHANGES = (
    "DELETE FROM kv_blocks WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET offset = offset + 8 WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET offset = 1 << 40 WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET num_bytes = num_bytes - 8 WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET num_bytes = num_bytes * 2 WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET num_bytes = 1 << 40 WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET checksum = randomblob(32) WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET token_ids = randomblob(length(token_ids)) WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET parent = randomblob(32) WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET depth = depth + 1 WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET name = randomblob(32) WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET file = '../octavo.db' WHERE name = :name",
    "UPDATE OR IGNORE kv_blocks SET fingerprint = 'another model' WHERE name = :name",
)
FILES: tuple[Damage, ...] = (
    truncate,
    flip,
    swap,
    swap_contents,
    fill_with_noise,
    rename,
    remove,
)


def damage(home: Path, kind: str | Damage, rng: random.Random) -> None:
    if not isinstance(kind, str):
        file, other = rng.sample(block_files(home), 2)
        kind(file, other, rng)
        return
    with closing(connect(home / "octavo.db")) as conn, conn:
        names = [row[0] for row in conn.execute("SELECT name FROM kv_blocks ORDER BY name")]
        if names:
            conn.execute(kind, {"name": rng.choice(names)})


@settings(max_examples=int(os.environ.get("OCTAVO_DAMAGE_EXAMPLES", "40")))
@given(kinds=st.lists(st.sampled_from((*FILES, *CHANGES)), min_size=1, max_size=6), seed=st.integers(0, 2**32))
def test_no_damage_changes_a_reply(used: Path, kinds: list[str | Damage], seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        shutil.copytree(used, home)
        for kind in kinds:
            damage(home, kind, rng)
        for _ in range(2):  # what was damaged is computed, and then written as if nothing had been
            with kept_run(home) as run:
                assert_replies_are_right(run)


@pytest.mark.parametrize("kind", FILES, ids=lambda kind: kind.__name__)
def test_live_blocks_are_untouched_by_what_happens_on_disk(used: Path, tmp_path: Path, kind: Damage) -> None:
    shutil.copytree(used, tmp_path / "home")
    with kept_run(tmp_path / "home") as run:
        assert_replies_are_right(run)
        for seed in range(10):
            damage(tmp_path / "home", kind, random.Random(seed))
        assert run.ask("again", PROMPT) == alone(PROMPT)
        assert run.stage.usage("again")[0] == len(PROMPT) - 1


WRITER = """
import sys
from pathlib import Path
from tests.app.keeper_stage import KeptRun
from octavo_data import kv_files
kv_files.PROBE_BYTES = 4096
run = KeptRun(Path(sys.argv[1]))
print("ready", flush=True)
for number in range(10_000):
    run.ask(str(number), [1 + (number >> bit) % 2 for bit in range(12)] * 6)
"""


@pytest.mark.slow
def test_a_host_that_is_killed_while_it_writes_leaves_blocks_that_are_right_or_gone(tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(10):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        sleep(rng.random() * 0.5)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        for path in block_files(tmp_path):  # old enough to be swept
            os.utime(path, (1, 1))
        with kept_run(tmp_path) as run:
            for number in range(3):
                prompt = [1 + (number >> bit) % 2 for bit in range(12)] * 6
                assert run.ask(str(number), prompt) == alone(prompt)
    with disk_of(tmp_path) as disk:
        rows, files = disk.index.files(), {path.name for path in block_files(tmp_path)}
    assert rows == files
    assert rows
