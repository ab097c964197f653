"""Pulling from the Hub, against a small server that speaks the Hub's language."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from octavo.errors import PullError
from octavo.models.manifest import read_manifest
from octavo.models.progress import Step
from octavo.models.pull import pull
from octavo.models.resolve import resolve
from octavo.paths import Paths

COMMIT = "a" * 40
WEIGHTS = {"config.json": b"{}", "model.safetensors": b"w" * 5000, "tokenizer.json": b"{}"}
REPOS = {
    "org/whole": WEIGHTS | {"pytorch_model.bin": b"pickle", "onnx/model.json": b"{}", "modeling.py": b"code"},
    "org/pickles": {"config.json": b"{}", "pytorch_model.bin": b"pickle"},
    "org/untold": {"config.json": b"{}", "model.safetensors": b"w"},
}


class Hub(BaseHTTPRequestHandler):
    """What huggingface_hub asks for a snapshot: the commit, the list of files, each file."""

    asked: list[str]

    def do_HEAD(self) -> None:
        """A file's size and hash."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer from REPOS."""
        path = self.path.partition("?")[0].strip("/")
        self.server.asked.append(path)  # type: ignore[attr-defined]
        repo = "/".join(path.removeprefix("api/models/").split("/")[:2])
        files = REPOS.get(repo)
        if files is None:
            self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("api/models/"):
            self._answer(200, json.dumps(_tree(files) if "/tree/" in path else _info(repo, files)).encode())
        else:
            name = path.partition(f"/resolve/{COMMIT}/")[2]
            self._answer(200, files[name], {"X-Repo-Commit": COMMIT, "ETag": f'"{name}"'})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))} | (headers or {})
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _info(repo: str, files: dict[str, bytes]) -> dict[str, object]:
    return {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}


def _tree(files: dict[str, bytes]) -> list[dict[str, object]]:
    return [{"type": "file", "path": name, "size": len(data), "oid": "b" * 40} for name, data in files.items()]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The server's address is in the environment; yields the paths that it was asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield server.asked  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


def test_only_what_is_needed_is_fetched(paths: Paths, asked: list[str]) -> None:
    steps: list[Step] = []
    folder = pull("hf:org/whole", paths, steps.append)
    assert folder == resolve("hf:org/whole", paths)
    assert sorted(file.name for file in folder.iterdir()) == sorted([*WEIGHTS, "octavo.json"])
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS["model.safetensors"]
    manifest = read_manifest(folder)
    assert manifest
    assert (manifest.name, manifest.revision) == ("hf:org/whole", COMMIT)
    assert not any("pytorch_model.bin" in path or "onnx" in path for path in asked)
    assert {step.total_bytes for step in steps} <= {None, sum(map(len, WEIGHTS.values()))}


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf:org/pickles", "no weights as safetensors"),
        ("hf:org/untold", r"lacks a tokenizer"),
        ("hf:org/nowhere", "The Hub has no repository org/nowhere"),
    ],
)
def test_a_repository_that_will_not_do_is_refused_and_leaves_nothing(paths: Paths, name: str, words: str) -> None:
    with pytest.raises(PullError, match=words) as caught:
        pull(name, paths)
    assert "\n" not in str(caught.value)
    assert [path.name for path in paths.models_dir.iterdir()] == [".lock"]
