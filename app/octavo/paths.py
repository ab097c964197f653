"""Where everything lies: platformdirs' folders, or all of them beneath OCTAVO_HOME."""

import hashlib
import os
import re
import stat
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from octavo.errors import UnsafeFolderError

MAX_SOCKET_PATH_BYTES = 100  # Linux takes 107, macOS 103


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one user; nothing is created before it is needed."""

    config_dir: Path
    data_dir: Path
    cache_dir: Path
    runtime_dir: Path
    state_dir: Path

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "Paths":
        """The folders below `OCTAVO_HOME` if that is set, else those of the platform."""
        if home := env.get("OCTAVO_HOME"):
            return cls.below(Path(home))
        dirs = platformdirs.PlatformDirs("octavo", appauthor=False)
        return cls(
            config_dir=dirs.user_config_path,
            data_dir=dirs.user_data_path,
            cache_dir=dirs.user_cache_path,
            runtime_dir=_runtime_dir(dirs, env),
            state_dir=dirs.user_state_path,
        )

    @classmethod
    def below(cls, home: Path) -> "Paths":
        """All folders beneath one; a relative `home` is taken from the working folder, once."""
        home = home.expanduser().absolute()
        return cls(*(home / name for name in ("config", "data", "cache", "runtime", "state")))

    @property
    def config_file(self) -> Path:
        """config.toml; it need not exist."""
        return self.config_dir / "config.toml"

    @property
    def store_file(self) -> Path:
        """The SQLite file of all chats."""
        return self.data_dir / "octavo.db"

    @property
    def models_dir(self) -> Path:
        """One folder for each pulled or converted model."""
        return self.data_dir / "models"

    @property
    def kv_dir(self) -> Path:
        """KV blocks that outlive the host; it may be removed at any time."""
        return self.cache_dir / "kv"

    @property
    def log_file(self) -> Path:
        """What the UI writes about itself; each host has a log of its own beside it."""
        return self.state_dir / "octavo.log"

    def socket(self, key: str) -> Path:
        """The socket of the host for this model key, in a folder that exists, is ours and has mode 0700.

        A path too long for a Unix socket becomes a hashed name in /tmp/octavo-UID. Raises UnsafeFolderError.
        """
        return self._runtime_file(key, ".sock")

    def lock(self, key: str) -> Path:
        """The lock file beside `socket(key)`; it decides who starts that host. Raises UnsafeFolderError."""
        return self._runtime_file(key, ".lock")

    def locks(self) -> list[Path]:
        """All lock files there are; among the hashed names in /tmp/octavo-UID are those of other folders' hosts."""
        folders = [folder for folder in {self.runtime_dir, short_runtime_dir()} if folder.is_dir()]
        return sorted(lock for folder in folders for lock in private_folder(folder).glob("*.lock"))

    def _runtime_file(self, key: str, suffix: str) -> Path:
        path = self.runtime_dir / (_file_name(key) + suffix)
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            path = short_runtime_dir() / (_digest(os.fspath(path.with_suffix(""))) + suffix)
        private_folder(path.parent)
        return path


def short_runtime_dir() -> Path:
    """The folder for sockets whose own folder is missing or has too long a name: /tmp/octavo-UID."""
    return Path("/tmp") / f"octavo-{os.getuid()}"


def private_folder(folder: Path) -> Path:
    """Create `folder` with mode 0700, or make sure that it is ours; raises UnsafeFolderError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UnsafeFolderError(
            f"{folder} is not a folder of yours, so no socket can be put into it",
            "Remove it, or set OCTAVO_HOME to a short path of your own.",
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


def _runtime_dir(dirs: platformdirs.PlatformDirs, env: Mapping[str, str]) -> Path:
    with warnings.catch_warnings(action="ignore"):  # it warns where it falls back
        choice = dirs.user_runtime_path
    # its fallback lies in the temporary folder, where anybody could have made it before us
    is_shared = choice.is_relative_to(tempfile.gettempdir()) and not env.get("XDG_RUNTIME_DIR")
    return short_runtime_dir() if is_shared else choice


def _file_name(key: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", key).strip("-.")[-40:]
    return key if slug == key else f"{slug}-{_digest(key)}"


def _digest(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=8).hexdigest()
