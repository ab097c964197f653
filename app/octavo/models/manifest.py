"""octavo.json in the folder of a pulled model: what it is and where it came from."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

FILE_NAME = "octavo.json"
FORMAT_VERSION = 1  # raise it when a conversion changes; older folders then count as missing


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Written last, so a folder with a manifest is whole.

    `sha256` is that of the GGUF file; for a GGUF file of the user's, `source_bytes` and `source_mtime_ns` save reading
    it again. `revision` is the commit of a Hub repository.
    """

    name: str
    source: str
    sha256: str = ""
    revision: str = ""
    source_bytes: int = 0
    source_mtime_ns: int = 0
    created: str = msgspec.field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    format_version: int = FORMAT_VERSION


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest into `folder`."""
    (folder / FILE_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of `folder`, or None if that is no pulled model of this format."""
    try:
        manifest = msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if manifest.format_version == FORMAT_VERSION else None
