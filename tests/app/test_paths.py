"""Folders: one variable moves all of them, and a socket path always fits and is never in a stranger's folder."""

import os
import stat
from pathlib import Path

import pytest

from octavo import paths as module
from octavo.errors import UnsafeFolderError
from octavo.paths import Paths, private_folder


def test_octavo_home_moves_everything(tmp_path: Path) -> None:
    paths = Paths.from_env({"OCTAVO_HOME": str(tmp_path)})
    places = [paths.config_file, paths.store_file, paths.models_dir, paths.cache_dir, paths.runtime_dir, paths.log_file]
    assert all(place.is_relative_to(tmp_path) for place in places)
    assert len(set(places)) == 6


def test_a_relative_home_means_the_same_after_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Paths.from_env({"OCTAVO_HOME": "here"}).data_dir == tmp_path / "here" / "data"


def test_nothing_is_created_by_looking(tmp_path: Path) -> None:
    Paths.below(tmp_path / "home").store_file  # noqa: B018
    assert not (tmp_path / "home").exists()


def test_socket_and_lock_lie_in_a_private_folder() -> None:
    home = Path("/tmp") / f"o{os.getpid()}"
    paths = Paths.below(home)
    try:
        assert paths.socket("smollm2-135m") == home / "runtime" / "smollm2-135m.sock"
        assert paths.lock("smollm2-135m") == home / "runtime" / "smollm2-135m.lock"
        assert stat.S_IMODE((home / "runtime").stat().st_mode) == 0o700
    finally:
        (home / "runtime").rmdir()
        home.rmdir()


def test_a_long_path_becomes_a_short_one_that_differs_by_home_and_key(tmp_path: Path) -> None:
    homes = [tmp_path / ("x" * 120), tmp_path / ("y" * 120)]
    sockets = [Paths.below(home).socket(key) for home in homes for key in ("a", "b")]
    assert len(set(sockets)) == 4
    for socket in sockets:
        assert len(os.fsencode(socket)) <= module.MAX_SOCKET_PATH_BYTES
        assert socket.parent == module.short_runtime_dir()
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


def test_keys_with_slashes_stay_one_file_and_do_not_collide(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    names = [paths.socket(key).name for key in ("hf:a/b", "hf-a-b", "hf:a-b", "/models/a b", "../b")]
    assert len(set(names)) == 5
    assert not any("/" in name for name in names)


def test_a_loose_folder_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert stat.S_IMODE(private_folder(tmp_path).stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UnsafeFolderError, match="OCTAVO_HOME"):
        private_folder(tmp_path)


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UnsafeFolderError):
        private_folder(tmp_path / "link")
