"""Names the KV that a model computes: two processes share cached blocks only under one fingerprint."""

import hashlib
from pathlib import Path

SAMPLE_BYTES = 1 << 20


def fingerprint(folder: Path) -> str:
    """A hash over config, tokenizer and weights of a model folder.

    Of each weight file the size, the time of its last change and its first and last MiB are read, so that a model of
    many gigabytes costs milliseconds; the header of a safetensors file names every tensor and lies in the first. The
    time stands for what lies between: KV of other weights must not be found on disk, and a file that was only touched
    costs a prefill.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.iterdir()):
        if path.suffix in {".json", ".safetensors", ".bin", ".model"} and path.name != "octavo.json":
            _add(digest, path.name.encode(), _sample(path))
    return digest.hexdigest()


def _add(digest: "hashlib.blake2b", *fields: bytes) -> None:
    for field in fields:
        digest.update(len(field).to_bytes(8, "little"))
        digest.update(field)


def _sample(path: Path) -> bytes:
    found = path.stat()
    with path.open("rb") as file:
        head = file.read(SAMPLE_BYTES)
        file.seek(max(0, found.st_size - SAMPLE_BYTES))
        return b"%d %d " % (found.st_size, found.st_mtime_ns) + head + file.read(SAMPLE_BYTES)
