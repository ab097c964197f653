"""Laws of the name of a model's KV: the same for the same files, another for any other."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo_engine.runner.fingerprint import SAMPLE_BYTES, fingerprint

MIDDLE = 2 * SAMPLE_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"rope_theta": 10000.0}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(2 * MIDDLE))
    return folder


def test_the_same_files_in_another_place_are_the_same_model(folder: Path) -> None:
    copy = shutil.copytree(folder, folder.with_name("copy"))
    assert fingerprint(copy) == fingerprint(folder)


def test_what_octavo_itself_notes_does_not_count(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "octavo.json").write_text("{}")
    (folder / "README.md").write_text("Hello.")
    assert fingerprint(folder) == before


CHANGES: dict[str, Callable[[Path], object]] = {
    "config": lambda folder: (folder / "config.json").write_text('{"rope_theta": 20000.0}'),
    "tokenizer": lambda folder: (folder / "tokenizer.json").write_text("[]"),
    "weights at the end": lambda folder: change(folder / "model.safetensors", 2 * MIDDLE - 1),
    "weights in the middle": lambda folder: change(folder / "model.safetensors", MIDDLE),
    "length": lambda folder: os.truncate(folder / "model.safetensors", MIDDLE),
    "name": lambda folder: (folder / "model.safetensors").rename(folder / "other.safetensors"),
    "more": lambda folder: (folder / "more.safetensors").touch(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_any_change_makes_another_model(folder: Path, what: str) -> None:
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    before = fingerprint(folder)
    CHANGES[what](folder)
    assert fingerprint(folder) != before


def change(file: Path, place: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(b"x")
