"""The folders of models: which one a name means, which ones are here, and their removal."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from octavo.errors import ModelFolderError, ModelMissingError
from octavo.models.manifest import Manifest, read_manifest
from octavo.models.names import FolderName, GgufName, HubName, KnownName, ModelName, parse_name
from octavo.paths import Paths

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def resolve(name: str, paths: Paths) -> Path:
    """The folder of a model, ready to load.

    Raises ModelNameError, ModelMissingError (it can be pulled) or ModelFolderError (it lacks something).
    """
    folder = find(parse_name(name), paths)
    if folder is None:
        raise ModelMissingError(f'The model "{name}" is not on this machine', f"Fetch it: octavo models pull {name}")
    return folder


def find(model: ModelName, paths: Paths) -> Path | None:
    """The folder of a model, or None if it must be pulled first; raises ModelFolderError."""
    match model:
        case KnownName(name):
            return _if_pulled(paths.models_dir / name)
        case HubName(repo):
            return _if_pulled(paths.models_dir / hub_folder_name(repo))
        case FolderName(path):
            return check_folder(path)
        case GgufName(path):
            return _find_gguf(path, paths)


def list_models(paths: Paths) -> list[tuple[Manifest, Path]]:
    """The pulled and converted models with their folders, by name."""
    return sorted(_pulled(paths), key=lambda model: model[0].name)


def remove(name: str, paths: Paths) -> Path:
    """Delete a pulled or converted model and return where it was; a folder of the user's is refused.

    Raises ModelNameError, ModelMissingError, ModelFolderError.
    """
    model = parse_name(name)
    if isinstance(model, FolderName):
        raise ModelFolderError(f"{model.path} is a folder of yours, not a pulled model", "Remove it yourself.")
    canonical = str(model.path) if isinstance(model, GgufName) else name
    for manifest, folder in _pulled(paths):
        if manifest.name == canonical:
            doomed = folder.rename(folder.with_name(f".tmp-rm-{folder.name}"))  # so that nobody finds half of it
            shutil.rmtree(doomed)
            return folder
    raise ModelMissingError(f'The model "{name}" is not on this machine', "See octavo models list.")


def check_folder(folder: Path) -> Path:
    """`folder` itself if it has a config, safetensors weights and a tokenizer; raises ModelFolderError."""
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is no folder", "Name a model folder, a .gguf file, or hf:ORG/REPO.")
    has = {
        "config.json": (folder / "config.json").is_file(),
        "weights (*.safetensors)": any(folder.glob("*.safetensors")),
        "a tokenizer (tokenizer.json)": any((folder / file).is_file() for file in TOKENIZER_FILES),
    }
    if missing := [part for part, is_there in has.items() if not is_there]:
        raise ModelFolderError(f"{folder} lacks {' and '.join(missing)}", "It needs all parts of a transformers model.")
    return folder


def hub_folder_name(repo: str) -> str:
    """The name of the folder for ORG/REPO."""
    return "hf--" + repo.replace("/", "--")


def gguf_folder_name(path: Path, sha256: str) -> str:
    """The name of the folder for a converted file: readable, and different for different contents."""
    return f"{path.stem}-{sha256[:16]}"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hex; raises ModelFolderError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFolderError(f"{path} cannot be read: {error.strerror}", "Check the path.") from error


def _find_gguf(path: Path, paths: Paths) -> Path | None:
    if not path.is_file():
        raise ModelFolderError(f"{path} is no file", "Check the path.")
    status = path.stat()
    for manifest, folder in _pulled(paths):
        known = (manifest.name, manifest.source_bytes, manifest.source_mtime_ns)
        if known == (str(path), status.st_size, status.st_mtime_ns):
            return folder  # without reading gigabytes for the checksum
    sha256 = sha256_of(path)
    return next((folder for manifest, folder in _pulled(paths) if manifest.sha256 == sha256), None)


def _if_pulled(folder: Path) -> Path | None:
    return folder if read_manifest(folder) else None


def _pulled(paths: Paths) -> Iterator[tuple[Manifest, Path]]:
    folders = paths.models_dir.iterdir() if paths.models_dir.is_dir() else ()
    for folder in folders:
        manifest = None if folder.name.startswith(".") else read_manifest(folder)
        if manifest:
            yield manifest, folder
