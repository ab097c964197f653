"""Laws of KV blocks on disk: what is read was written, files and rows stay in step, heads go last."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo_data import Store
from octavo_data.kv_disk import KVDisk
from octavo_data.kv_files import PROBE_BYTES, BlockFile, DamagedBlockError, KVFolder
from octavo_data.kv_index import KVRow

SIZE = 100


@pytest.fixture
def folder(tmp_path: Path) -> KVFolder:
    return KVFolder(tmp_path / "kv")


@pytest.fixture
def disk(store: Store, folder: KVFolder) -> KVDisk:
    return KVDisk(store, folder, 10 * SIZE)


def content(number: int) -> bytes:
    return bytes([number]) * SIZE


def row_of(folder: KVFolder, number: int, *, parent: int = 0, depth: int = 0, token_ids: tuple[int, ...] = ()) -> KVRow:
    """Block `number`, its file written."""
    name = bytes([number]) * 32
    return KVRow(
        name=name,
        fingerprint="model",
        parent=bytes([parent]) * 32,
        depth=depth,
        token_ids=token_ids or (number, number + 1),
        where=folder.write(name, content(number)),
        tokens_per_s=12.5,
    )


def read(folder: KVFolder, row: KVRow) -> bytes:
    data = bytearray(row.where.num_bytes)
    folder.read(row.name, row.where, data)
    return bytes(data)


def names(rows: list[KVRow]) -> list[int]:
    return [row.name[0] for row in rows]


def files(folder: KVFolder) -> list[int]:
    return sorted(int(path.name[:2], 16) for path in folder.files())


# ---- files ----


def test_a_file_gives_back_what_was_written_and_is_nobody_elses(folder: KVFolder) -> None:
    row = row_of(folder, 7)
    assert read(folder, row) == content(7)
    assert oct((folder.path / row.where.file).stat().st_mode & 0o777) == "0o600"
    assert oct(folder.path.stat().st_mode & 0o777) == "0o700"


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda file: file.unlink(), "missing"),
    "truncated": (lambda file: os.truncate(file, 120), "120 bytes instead of"),
    "empty": (lambda file: os.truncate(file, 0), "0 bytes instead of"),
    "longer": (lambda file: file.write_bytes(file.read_bytes() + b"x"), "bytes instead of"),
    "another block's": (lambda file: file.write_bytes(file.with_name("02" * 32 + ".kv").read_bytes()), "header"),
    "of another layout": (lambda file: file.write_bytes(b"OCTKV000" + file.read_bytes()[8:]), "header"),
    "a folder": (lambda file: file.rename(file.with_suffix(".old")).with_suffix(".kv").mkdir(), "cannot be read"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_not_believed_and_says_why(folder: KVFolder, kind: str) -> None:
    row, _ = row_of(folder, 1), row_of(folder, 2)
    damage, reason = DAMAGES[kind]
    damage(folder.path / row.where.file)
    with pytest.raises(DamagedBlockError, match=reason):
        read(folder, row)


def test_the_bytes_of_one_block_under_the_header_of_another_are_not_believed(folder: KVFolder) -> None:
    one, two = row_of(folder, 1), row_of(folder, 2)
    head = (folder.path / one.where.file).read_bytes()[: one.where.offset]
    (folder.path / one.where.file).write_bytes(head + content(2))
    with pytest.raises(DamagedBlockError, match="checksum"):
        read(folder, one)
    assert read(folder, two) == content(2)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, SIZE + 79), bit=st.integers(0, 7))
def test_no_flipped_bit_goes_unseen(folder: KVFolder, place: int, bit: int) -> None:
    row = row_of(folder, 3)
    file = folder.path / row.where.file
    data = bytearray(file.read_bytes())
    assert len(data) == SIZE + 80
    data[place] ^= 1 << bit
    file.write_bytes(data)
    with pytest.raises(DamagedBlockError):
        read(folder, row)


def test_a_write_that_fails_leaves_no_file(folder: KVFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        row_of(folder, 1)
    assert list(folder.path.iterdir()) == []


def test_the_speed_of_the_disk_is_measured_and_leaves_nothing(folder: KVFolder) -> None:
    assert folder.measure() > 0
    assert files(folder) == []


def test_a_stall_does_not_make_a_disk_slow(folder: KVFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = iter([5.0, 0.0, 0.0])
    read_file = KVFolder.read

    def stalling(self: KVFolder, name: bytes, where: BlockFile, data: bytearray) -> None:
        time.sleep(next(reads))
        read_file(self, name, where, data)

    monkeypatch.setattr(KVFolder, "read", stalling)
    assert folder.measure() > PROBE_BYTES / 5


# ---- files and rows ----


def test_rows_come_back_with_their_files_heads_first(disk: KVDisk, folder: KVFolder) -> None:
    rows = [row_of(folder, 3, parent=2, depth=1), row_of(folder, 2)]
    assert disk.add(rows, 1) == []
    assert disk.index.rows("model") == rows[::-1]
    assert disk.index.rows("another model") == []


def test_over_the_cap_the_least_recently_used_go_and_tails_before_heads(disk: KVDisk, folder: KVFolder) -> None:
    disk.add([row_of(folder, 1), row_of(folder, 2, parent=1, depth=1), row_of(folder, 3, parent=2, depth=2)], 1)
    disk.add([row_of(folder, number) for number in range(4, 10)], 2)
    disk.index.touch([bytes([4]) * 32], 3)
    gone = disk.add([row_of(folder, number) for number in range(20, 24)], 4)
    assert [name[0] for name in gone] == [3, 2, 1]
    assert files(folder) == [*range(4, 10), *range(20, 24)]
    gone = disk.add([row_of(folder, 24)], 5)
    assert gone[0][0] == 5
    assert sorted(names(disk.index.rows("model"))) == files(folder)


def test_pinned_blocks_go_when_nothing_else_is_left(disk: KVDisk, folder: KVFolder) -> None:
    disk.add([row_of(folder, number) for number in range(1, 11)], 1)
    disk.index.pin([bytes([number]) * 32 for number in (1, 2)], True)
    disk.add([row_of(folder, number) for number in range(11, 19)], 2)
    assert names(disk.index.shrink(9 * SIZE)) == [11]
    assert set(names(disk.index.rows("model"))) == {1, 2, *range(12, 19)}
    assert set(names(disk.index.shrink(SIZE))) == {*range(12, 19), 1}
    assert disk.index.totals().pinned == 1


def test_a_block_that_holds_more_takes_the_place_of_its_beginning(disk: KVDisk, folder: KVFolder) -> None:
    disk.add([row_of(folder, 1, token_ids=(5, 6)), row_of(folder, 2, token_ids=(5, 9))], 1)
    disk.index.pin([bytes([1]) * 32], True)
    assert disk.add([row_of(folder, 3, token_ids=(5, 6, 7))], 1) == [bytes([1]) * 32]
    rows = {row.name[0]: row.is_pinned for row in disk.index.rows("model")}
    assert (rows, files(folder)) == ({2: False, 3: True}, [2, 3])


def test_a_sweep_removes_old_files_without_a_row_and_rows_without_a_file(disk: KVDisk, folder: KVFolder) -> None:
    disk.add([row_of(folder, 1), row_of(folder, 2)], 1)
    row_of(folder, 3)
    (folder.path / "half-1234.part").write_bytes(b"x")
    (folder.path / "README").write_bytes(b"not ours")
    (folder.path / disk.index.rows("model")[0].where.file).unlink()
    disk.sweep()
    assert len(list(folder.files())) == 3  # young ones may get their row yet
    for path in folder.files():
        os.utime(path, (time.time() - 3600,) * 2)
    disk.sweep()
    left = names(disk.index.rows("model"))
    assert len(left) == 1
    assert (files(folder), (folder.path / "README").exists()) == (left, True)


def test_a_sweep_holds_the_cap_that_was_lowered(disk: KVDisk, store: Store, folder: KVFolder) -> None:
    disk.add([row_of(folder, number) for number in range(1, 6)], 1)
    KVDisk(store, folder, 2 * SIZE).sweep()
    assert len(files(folder)) == 2


def test_a_damaged_block_loses_its_row_and_its_file(disk: KVDisk, folder: KVFolder) -> None:
    row = row_of(folder, 1)
    disk.add([row, row_of(folder, 2)], 1)
    disk.drop(row)
    assert (names(disk.index.rows("model")), files(folder)) == ([2], [2])


def test_a_block_may_be_written_again(disk: KVDisk, folder: KVFolder) -> None:
    disk.add([row_of(folder, 1)], 1)
    again = replace(row_of(folder, 1), tokens_per_s=99.0)
    assert disk.add([again], 1) == []
    assert disk.index.rows("model") == [again]


def test_clear_leaves_nothing(disk: KVDisk, folder: KVFolder) -> None:
    disk.add([row_of(folder, 1), row_of(folder, 2)], 1)
    row_of(folder, 3)
    disk.clear()
    assert (disk.index.totals().blocks, files(folder)) == (0, [])


def test_totals_count_blocks_bytes_pins_and_hits(disk: KVDisk, folder: KVFolder) -> None:
    disk.add([row_of(folder, 1), row_of(folder, 2)], 1)
    disk.index.pin([bytes([1]) * 32], True)
    disk.index.count_hits([bytes([1]) * 32, bytes([2]) * 32])
    disk.index.count_hits([bytes([1]) * 32])
    totals = disk.index.totals()
    assert (totals.blocks, totals.bytes, totals.pinned, totals.hits) == (2, 2 * SIZE, 1, 3)


def test_a_row_that_names_a_file_elsewhere_does_not_have_it_read_or_removed(disk: KVDisk, folder: KVFolder) -> None:
    row = row_of(folder, 1)
    treasure = folder.path.parent / "treasure.kv"
    (folder.path / row.where.file).rename(treasure)
    lying = replace(row, where=replace(row.where, file="../treasure.kv"))
    with pytest.raises(DamagedBlockError, match="missing"):
        read(folder, lying)
    disk.add([lying], 1)
    disk.drop(lying)
    folder.remove("../octavo.db")
    assert treasure.exists()
    assert (folder.path.parent / "octavo.db").exists()
