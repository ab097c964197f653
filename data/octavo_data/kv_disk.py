"""KV blocks on disk as a whole: their files and their rows, kept in step whatever happens to either."""

import logging
from collections.abc import Iterable, Sequence

from octavo_data.kv_files import KVFolder
from octavo_data.kv_index import KVIndex, KVRow
from octavo_data.store import Store

log = logging.getLogger(__name__)


class KVDisk:
    """A row is written when its file is safe and goes before its file does: so a crash leaves at most a file too many.

    Belongs to the thread of the store. Raises what Store raises, and OSError.
    """

    def __init__(self, store: Store, folder: KVFolder, max_bytes: int) -> None:
        self.index = KVIndex(store)
        self._store = store
        self._folder = folder
        self._max_bytes = max_bytes

    def sweep(self) -> None:
        """Remove files that no row knows, rows whose file is gone, and what is over the cap."""
        orphans = self._folder.old_files()
        known = self.index.files()  # read after the folder, so that a file that gets its row now is no orphan
        orphans -= known
        for file in orphans:
            self._folder.remove(file)
        lost = [file for file in known if not self._folder.has(file)]
        self.index.drop_files(lost)
        if orphans or lost:
            log.warning("disk: %d files without a row and %d rows without a file", len(orphans), len(lost))
        self._remove(self.index.shrink(self._max_bytes))

    def add(self, rows: Sequence[KVRow], used_at: int) -> list[bytes]:
        """Take in blocks whose files are written, used at this time; the names of those that had to go for them."""
        self._folder.sync()
        gone = [*self.index.add(rows, used_at), *self.index.shrink(self._max_bytes)]
        self._remove(gone)
        return [row.name for row in gone]

    def drop(self, row: KVRow) -> None:
        """A block is damaged."""
        self.index.drop([row.name])
        self._remove([row])

    def clear(self) -> None:
        """Remove everything."""
        self.index.clear()
        for path in list(self._folder.files()):
            self._folder.remove(path.name)

    def close(self) -> None:
        """Give the store back."""
        self._store.close()

    def _remove(self, rows: Iterable[KVRow]) -> None:
        for row in rows:
            self._folder.remove(row.where.file)
