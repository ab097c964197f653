"""`octavo engine disk`: what lies there, by itself and without an engine, and its removal."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from octavo.cli.engine import command
from octavo.cli.shelves import empty_trash
from octavo.paths import Paths
from octavo_data import Store, shelves
from octavo_data.kv_files import KVFolder
from octavo_data.kv_index import KVIndex, KVRow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """One with two blocks of 3,000,000 bytes and a cap of 8,000,000."""
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path))
    paths = Paths.below(tmp_path)
    paths.config_dir.mkdir()
    paths.config_file.write_text("disk_cache_bytes = 8000000\n")
    with Store(paths.store_file) as store:
        for number in (1, 2):
            name = bytes([number]) * 32
            where = KVFolder(paths.kv_dir).write(name, bytes(3_000_000))
            row = KVRow(name=name, fingerprint="m", parent=b"", depth=0, token_ids=(number,), where=where)
            KVIndex(store).add([row], 1)
        KVIndex(store).count_hits([name])
        KVIndex(store).pin([name], True)
    return paths


def test_it_shows_blocks_bytes_cap_folder_and_hits(home: Paths) -> None:
    found = json.loads(CliRunner().invoke(command, ["disk", "--json"]).output)
    assert found == {
        "blocks": 2,
        "bytes": 6_000_000,
        "max_bytes": 8_000_000,
        "pinned": 1,
        "hits": 1,
        "folder": str(home.kv_dir),
    }
    assert CliRunner().invoke(command, ["disk"]).output.splitlines() == [
        "blocks  2 · 1 pinned · loaded 1 times",
        "size    6 MB of 8 MB",
        f"folder  {home.kv_dir}",
    ]


def test_clear_removes_rows_and_files(home: Paths) -> None:
    found = json.loads(CliRunner().invoke(command, ["disk", "--clear", "--json"]).output)
    assert (found["blocks"], found["bytes"], list(home.kv_dir.iterdir())) == (0, 0, [])


def test_emptying_the_trash_leaves_no_blocks_that_might_be_of_its_chats(home: Paths) -> None:
    with Store(home.store_file) as store:
        shelves.trash(store, store.create_chat(title="Secret", model="m").id)
    assert CliRunner().invoke(empty_trash, ["--yes"]).exit_code == 0
    with Store(home.store_file) as store:
        assert (KVIndex(store).totals().blocks, list(home.kv_dir.iterdir())) == (0, [])


def test_without_a_store_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path))
    found = json.loads(CliRunner().invoke(command, ["disk", "--json"]).output)
    assert (found["blocks"], found["max_bytes"]) == (0, 4 << 30)
