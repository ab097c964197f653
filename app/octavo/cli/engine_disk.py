"""What `octavo engine disk` does: it reads the table of KV blocks and their folder, and needs no engine."""

from pathlib import Path

import msgspec

from octavo.cli.output import print_json, print_rows, size
from octavo.cli.setup import load
from octavo.config import Settings
from octavo.paths import Paths
from octavo_data import Store
from octavo_data.kv_disk import KVDisk
from octavo_data.kv_files import KVFolder


class DiskStatus(msgspec.Struct, frozen=True):
    """What `octavo engine disk --json` prints; `max_bytes` is the setting `disk_cache_bytes`."""

    blocks: int
    bytes: int
    max_bytes: int
    pinned: int
    hits: int
    folder: Path


def print_disk(*, is_clearing: bool, is_json: bool) -> None:
    """Print what lies there, after removing it if asked to. Raises StoreError, ConfigError."""
    settings, paths = load()
    status = _status(settings, paths, is_clearing)
    if is_json:
        print_json(msgspec.to_builtins(status, enc_hook=str))
    else:
        print_rows(_rows(status))


def clear(store: Store) -> None:
    """Remove all blocks from disk. Raises StoreError, ConfigError."""
    settings, paths = load()
    _disk(store, settings, paths).clear()


def _disk(store: Store, settings: Settings, paths: Paths) -> KVDisk:
    return KVDisk(store, KVFolder(paths.kv_dir), settings.disk_cache_bytes)


def _status(settings: Settings, paths: Paths, is_clearing: bool) -> DiskStatus:
    with Store(paths.store_file) as store:
        disk = _disk(store, settings, paths)
        if is_clearing:
            disk.clear()
        found = disk.index.totals()
    return DiskStatus(found.blocks, found.bytes, settings.disk_cache_bytes, found.pinned, found.hits, paths.kv_dir)


def _rows(status: DiskStatus) -> list[tuple[str, str]]:
    return [
        ("blocks", f"{status.blocks} · {status.pinned} pinned · loaded {status.hits} times"),
        ("size", f"{size(status.bytes)} of {size(status.max_bytes)}"),
        ("folder", str(status.folder)),
    ]
