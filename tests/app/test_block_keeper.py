"""Laws of blocks between runs: whatever happened to their files and rows, the reply is that of a run without a disk."""

import logging
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from time import sleep

import pytest
from tests.app.keeper_stage import alone, block_files, disk_of, kept_run

from octavo.config import Settings
from octavo.host import block_keeper
from octavo.host.block_keeper import make_keeper
from octavo.launcher import HostSpec
from octavo.paths import Paths
from octavo_data import kv_files

PROMPT = [1 + number * number % 5 for number in range(60)]


@pytest.fixture(autouse=True)
def _quick_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_files, "PROBE_BYTES", 4096)


def history(home: Path) -> list[int]:
    """A first run with one turn; its ids."""
    with kept_run(home) as run:
        return [*PROMPT, *run.ask("first", PROMPT)]


def test_the_next_run_loads_what_the_last_one_computed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = history(tmp_path)
    caplog.set_level(logging.INFO)
    with kept_run(tmp_path) as run:
        assert run.ask("next", [*said, 3]) == alone([*said, 3])
        assert run.stage.usage("next") == (len(said) - 1, 2)  # the last id of a reply is never computed
    (line,) = [record.getMessage() for record in caplog.records if "loading" in record.getMessage()]
    assert line.startswith(f"disk: loading {len(said) // 4} blocks: 0.0 MB in 0.")
    assert line.endswith("an unknown time at 0 tokens/s")  # a prompt of 60 tokens says nothing of the rate
    with disk_of(tmp_path) as disk:
        totals = disk.index.totals()
    assert (totals.hits, totals.blocks) == (len(said) // 4, len(block_files(tmp_path)))


def test_the_rate_of_prefill_is_known_to_the_next_run(tmp_path: Path) -> None:
    with kept_run(tmp_path) as run:
        run.ask("long", [*PROMPT, *PROMPT])
    with kept_run(tmp_path) as run:
        disk = run.stage.scheduler.disk
        assert disk is not None
        assert disk.speeds.tokens_per_s > 0
        assert disk.speeds.bytes_per_s > 0


def test_another_model_finds_nothing(tmp_path: Path) -> None:
    said = history(tmp_path)
    with kept_run(tmp_path, fingerprint="another") as run:
        run.ask("next", [*said, 3])
        assert run.stage.usage("next") == (0, len(said) + 1)


def test_over_the_cap_the_oldest_chat_goes(tmp_path: Path) -> None:
    history(tmp_path)
    size = 32 * len(block_files(tmp_path))
    other = [6 - token for token in PROMPT]
    with kept_run(tmp_path, max_bytes=size) as run:
        run.ask("other", other)
    with kept_run(tmp_path, max_bytes=size) as run:
        run.ask("first again", PROMPT)
        run.ask("other again", other)
        assert run.stage.usage("first again")[0] < 4
        assert run.stage.usage("other again")[0] == 59


def test_all_blocks_of_a_chain_have_one_time_of_use_so_that_its_tail_goes_first(tmp_path: Path) -> None:
    with kept_run(tmp_path) as run:
        said = run.ask("first", PROMPT)
        run.ask("next", [*PROMPT, *said, *PROMPT])
    with disk_of(tmp_path) as disk:
        rows = disk.index.rows(disk_root(tmp_path))
        num_blocks = len(rows)
        assert [row.depth for row in disk.index.shrink(32 * 3)] == [*range(num_blocks - 1, 2, -1)]


def test_a_pinned_prefix_outlives_others_and_the_run(tmp_path: Path) -> None:
    with kept_run(tmp_path) as run:
        run.ask("first", PROMPT)
        assert run.stage.engine.pin("system", PROMPT[:20]) == 20
    with kept_run(tmp_path, max_bytes=32 * 10) as run:
        run.ask("other", [6 - token for token in PROMPT])
    with disk_of(tmp_path) as disk:
        assert disk.index.totals().pinned == 5
    with kept_run(tmp_path) as run:
        run.ask("first again", PROMPT)
        assert run.stage.usage("first again")[0] == 20


def test_a_damaged_block_is_told_in_one_line_and_loses_its_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = history(tmp_path)
    with disk_of(tmp_path) as disk:
        row = disk.index.rows(disk_root(tmp_path))[5]
    damaged = tmp_path / "kv" / row.where.file
    os.truncate(damaged, 7)
    with kept_run(tmp_path) as run:
        assert run.ask("next", [*said, 3]) == alone([*said, 3])
        assert run.stage.usage("next") == (20, len(said) + 1 - 20)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line == f"disk: {damaged.name}: it has 7 bytes instead of 112; its 4 tokens are computed anew"
    assert damaged.stat().st_size == 112  # written anew after the turn
    with kept_run(tmp_path) as run:
        run.ask("again", [*said, 3])
        assert run.stage.usage("again")[0] == len(said)


def test_no_more_is_read_than_may_be_copied_between_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = history(tmp_path)
    monkeypatch.setattr(block_keeper, "BETWEEN_STEPS_BYTES", 64)
    with kept_run(tmp_path) as run:
        run.stage.add("next", [*said, 3], 8)
        run.stage.step()
        for _ in range(2):
            run.await_jobs(2)
            sleep(0.1)  # a step takes its time, and no more comes in it
            assert run.num_jobs == 2
            run.work(wait=False)
        assert run.ask("other", [3] * 9) == alone([3] * 9)
        assert run.stage.usage("next")[0] == len(said) - 1


def test_a_load_that_gave_way_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = history(tmp_path)
    monkeypatch.setattr(block_keeper, "BETWEEN_STEPS_BYTES", 64)
    caplog.set_level(logging.INFO)
    with kept_run(tmp_path) as run:
        run.stage.add("next", [*said, 3], 8)
        run.stage.step()
        disk = run.stage.scheduler.disk
        assert disk is not None
        assert disk.give_way()
        assert run.ask("other", [3] * 9) == alone([3] * 9)
    assert any(re.match(r"disk: [0-3] of 16 blocks read", record.getMessage()) for record in caplog.records)
    assert run.stage.usage("next")[0] == 0


def test_a_pool_that_takes_no_block_costs_a_prefill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(block: int, data: bytearray) -> None:
        raise RuntimeError("out of memory")

    said = history(tmp_path)
    with kept_run(tmp_path) as run:
        monkeypatch.setattr(run.stage.runner, "write", refuse)
        assert run.ask("next", [*said, 3]) == alone([*said, 3])
        assert run.stage.usage("next")[0] == 0


def test_a_row_whose_tokens_were_changed_is_not_believed(tmp_path: Path) -> None:
    said = history(tmp_path)
    with closing(sqlite3.connect(tmp_path / "octavo.db")) as conn, conn:
        conn.execute("UPDATE kv_blocks SET token_ids = x'05000000050000000500000005000000' WHERE depth = 0")
    with kept_run(tmp_path) as run:
        prompt = [5, 5, 5, 5, *said[4:]]
        assert run.ask("next", prompt) == alone(prompt)
        assert run.stage.usage("next")[0] == 0


def test_a_store_that_cannot_be_opened_costs_a_line_and_no_reply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "octavo.db").mkdir()
    with kept_run(tmp_path) as run:
        assert run.ask("first", PROMPT) == alone(PROMPT)
    assert [record.getMessage().split(":")[:2] for record in caplog.records] == [["disk", " KV blocks are not kept"]]


def test_a_disk_that_is_full_costs_a_line_and_no_reply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept_run(tmp_path) as run:

        def full(file: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        assert run.ask("first", PROMPT) == alone(PROMPT)
    assert "blocks are not kept: [Errno 28] No space left on device" in caplog.text
    assert block_files(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "is_kept"), [({}, True), ({"disk_cache_bytes": 0}, False), ({"model": "echo"}, False)]
)
def test_without_a_cap_or_kv_nothing_is_kept(tmp_path: Path, change: dict[str, object], is_kept: bool) -> None:
    spec = HostSpec(tmp_path, Settings(**change), Paths.below(tmp_path))  # type: ignore[arg-type]
    keeper = make_keeper(spec, lambda job: None)
    assert (keeper is not None) == is_kept


def disk_root(home: Path) -> str:
    with closing(sqlite3.connect(home / "octavo.db")) as conn:
        return str(conn.execute("SELECT fingerprint FROM kv_blocks").fetchone()[0])
