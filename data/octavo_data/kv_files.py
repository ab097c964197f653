"""The bytes of KV blocks, one file each: written whole or not at all, and never believed unchecked."""

import hashlib
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Bytes = bytes | bytearray | memoryview

LAYOUT = b"OCTKV001"
"""Which program wrote a file, and how a block's bytes are ordered; another layout is another mark."""

_HEADER = struct.Struct("<8s32s32sQ")  # mark, name, checksum, number of bytes
_SUFFIX = ".kv"
_UNFINISHED = ".part"
PROBE_BYTES, NUM_PROBES = 4 << 20, 3
MIN_ORPHAN_AGE_S = 60.0
"""A younger file may be one that another host is about to write a row for."""


class DamagedBlockError(Exception):
    """A file does not hold the bytes that were written; the message says in a few words what is wrong with it."""


@dataclass(frozen=True, slots=True)
class BlockFile:
    """Where a block's bytes lie: `num_bytes` from `offset` on in `file`, with this SHA-256."""

    file: str
    offset: int
    num_bytes: int
    checksum: bytes


class KVFolder:
    """The folder of block files; any thread may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: bytes, data: Bytes) -> BlockFile:
        """Write a block's file and have the disk keep it; `sync` does the same for its entry in the folder. OSError."""
        num_bytes = memoryview(data).nbytes
        found = BlockFile(name.hex() + _SUFFIX, _HEADER.size, num_bytes, hashlib.sha256(data).digest())
        unfinished = self.path / f"{name.hex()}-{os.getpid()}{_UNFINISHED}"
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write_file(unfinished, _header(name, found), data)
            unfinished.rename(self.path / found.file)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return found

    def sync(self) -> None:
        """Have the disk keep the names of all files written so far. Raises OSError."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read(self, name: bytes, where: BlockFile, data: bytearray) -> None:
        """Fill `data`, which is as long as the block, with its bytes, and check them. Raises DamagedBlockError."""
        try:
            with self._path(where.file).open("rb", buffering=0) as file:
                header = file.read(_HEADER.size)
                file.seek(where.offset)
                num_read, size = file.readinto(data), os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            raise DamagedBlockError("the file is missing") from None
        except OSError as error:
            raise DamagedBlockError(f"it cannot be read: {error.strerror}") from error
        if num_read != len(data) or size != where.offset + where.num_bytes:
            raise DamagedBlockError(f"it has {size} bytes instead of {where.offset + where.num_bytes}")
        if header != _header(name, where):
            raise DamagedBlockError("its header is that of another block")
        if hashlib.sha256(data).digest() != where.checksum:
            raise DamagedBlockError("its checksum is wrong")

    def measure(self) -> float:
        """Bytes a second that `read` gives, the check included; a file is written for it and read back, a few times,
        of which the best counts: a stall is no property of a disk. OSError.
        """
        name = os.urandom(32)
        where = self.write(name, os.urandom(PROBE_BYTES))
        try:
            return where.num_bytes / min(self._seconds_to_read(name, where) for _ in range(NUM_PROBES))
        except DamagedBlockError as error:
            raise OSError(f"{self.path} does not give back what was written: {error}") from error
        finally:
            self.remove(where.file)

    def _seconds_to_read(self, name: bytes, where: BlockFile) -> float:
        data = bytearray(PROBE_BYTES)
        _let_go(self.path / where.file)
        begin = time.perf_counter()
        self.read(name, where, data)
        return time.perf_counter() - begin

    def remove(self, file: str) -> None:
        """Remove a file if it is there."""
        with suppress(OSError):
            self._path(file).unlink()

    def files(self) -> Iterator[Path]:
        """All files that hold a block or were to hold one."""
        for path in self.path.iterdir() if self.path.is_dir() else ():
            if path.suffix in (_SUFFIX, _UNFINISHED):
                yield path

    def has(self, file: str) -> bool:
        """Whether a file is there."""
        return self._path(file).exists()

    def old_files(self) -> set[str]:
        """Names of the files that have had the time to get a row."""
        newest = time.time() - MIN_ORPHAN_AGE_S
        found = set()
        for path in self.files():
            with suppress(OSError):  # another host removed it
                if path.stat().st_mtime <= newest:
                    found.add(path.name)
        return found

    def _path(self, file: str) -> Path:
        """Where a file of this name lies; a damaged row must not name, and have us remove, one that is not ours."""
        path = self.path / Path(file).name
        return path if path.suffix in (_SUFFIX, _UNFINISHED) else self.path / f"no{_SUFFIX}"


def _header(name: bytes, where: BlockFile) -> bytes:
    return _HEADER.pack(LAYOUT, name, where.checksum, where.num_bytes)


def _let_go(path: Path) -> None:
    """Have the system read the file from the disk the next time, where it takes such advice."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _write_file(path: Path, *parts: Bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for part in parts:
            rest = memoryview(part).cast("B")
            while rest:
                rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)
