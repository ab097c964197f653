"""A chat over a restart of the host, with the real default model: blocks come from disk, words stay the same."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Home, home_with, new_home

pytestmark = [pytest.mark.model, pytest.mark.slow]

QUESTION = "Name the capital of France, of Italy and of Spain, in one short sentence each, please."
NEXT = "And of Portugal?"
GREEDY = ("-o", "temperature", "0", "-o", "max_tokens", "24")


@pytest.fixture(scope="module")
def asked_once(model_folder: Path) -> Iterator[Home]:
    """A home whose disk holds the blocks of one chat and nothing else, and whose host has stopped."""
    with home_with(model_folder) as home:
        home.json("--json", QUESTION, *GREEDY)
        home.run("engine", "stop")
        yield home


@contextmanager
def copy_of(asked_once: Home) -> Iterator[Home]:
    with new_home() as home:
        shutil.copytree(asked_once.folder, home.folder, symlinks=True, dirs_exist_ok=True)
        yield home


@pytest.fixture
def asked(asked_once: Home) -> Iterator[Home]:
    """A copy of it."""
    with copy_of(asked_once) as home:
        yield home


@pytest.fixture(scope="module")
def next_text(asked_once: Home) -> str:
    """What the next turn says where the disk has nothing."""
    with copy_of(asked_once) as home:
        home.json("engine", "disk", "--clear", "--json")
        turn = next_turn(home)
    assert turn["usage"]["cached_tokens"] == 0
    return str(turn["text"])


def next_turn(home: Home) -> Any:
    return home.json("--json", "-c", NEXT, *GREEDY)


def test_after_a_restart_the_history_is_loaded_and_the_reply_is_that_of_a_run_without_a_disk(
    asked: Home, next_text: str
) -> None:
    before = asked.json("engine", "disk", "--json")
    assert before["blocks"] > 2
    assert (before["hits"], before["bytes"]) == (0, before["blocks"] * 16 * 46080)
    loaded = next_turn(asked)
    assert loaded["usage"]["cached_tokens"] > 48
    assert asked.json("engine", "disk", "--json")["hits"] >= 3
    status = asked.json("engine", "status", "--json")
    assert status["disk"]["blocks"] >= before["blocks"]
    assert loaded["text"] == next_text


def test_damaged_blocks_are_computed_anew_and_the_log_says_so(asked: Home, next_text: str) -> None:
    files = sorted((asked.paths.kv_dir).glob("*.kv"))
    for number, file in enumerate(files):
        if number % 3 == 0:
            os.truncate(file, 1000)
        else:
            data = bytearray(file.read_bytes())
            data[5000] ^= 4
            file.write_bytes(data)
    damaged = next_turn(asked)
    assert damaged["usage"]["cached_tokens"] == 0
    log = "".join(path.read_text() for path in asked.paths.state_dir.glob("host-*.log"))
    assert log.count("tokens are computed anew") == 1
    assert damaged["text"] == next_text


def test_a_question_that_is_not_stored_leaves_nothing_on_disk(asked: Home) -> None:
    before = asked.json("engine", "disk", "--json")["blocks"]
    asked.json("--json", "-n", "What is the tallest mountain of Japan? Please tell me in one sentence.", *GREEDY)
    asked.run("engine", "stop")
    assert asked.json("engine", "disk", "--json")["blocks"] == before
