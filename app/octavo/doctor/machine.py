"""The checks that need no torch: the program, its settings and folders, the disk, the host, the terminal."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from octavo import __version__
from octavo.cli.setup import with_model
from octavo.client import HostAbsentError
from octavo.config import Settings, load_settings
from octavo.doctor.findings import Finding, State
from octavo.errors import ConfigError, HostError
from octavo.host_lock import running_hosts
from octavo.launcher import connect, is_echo
from octavo.models.resolve import resolve
from octavo.models.work import all_files_bytes
from octavo.paths import Paths
from octavo_engine.config import EngineConfig
from octavo_engine.errors import ParameterError

NEEDED = ("torch", "transformers", "textual")
WELCOME = ("triton", "flash-attn", "llguidance")
SCARCE_BYTES, TIGHT_BYTES = 100 * 10**6, 2 * 10**9
HOST_TIMEOUT_S = 5.0


def check_program() -> Finding:
    """Octavo, Python and the system."""
    text = f"Octavo {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if platform.system() == "Linux":
        return Finding("program", State.OK, text)
    return Finding("program", State.HINT, f"{text}: Octavo was only tried on Linux")


def check_packages() -> Finding:
    """Versions, without importing anything."""
    found = {name: version for name in (*NEEDED, *WELCOME) if (version := _version(name))}
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    if missing := [name for name in NEEDED if name not in found]:
        return Finding("packages", State.WRONG, f"{', '.join(missing)} not installed; {text}", "pip install octavo")
    if absent := [name for name in WELCOME if name not in found]:
        text += f"; without {', '.join(absent)}"
    return Finding("packages", State.OK, text)


def check_settings(paths: Paths) -> Finding:
    """config.toml, key by key. Raises ConfigError."""
    settings = with_model(load_settings(paths.config_file), None)
    try:
        EngineConfig(**settings.engine_settings())
    except ParameterError as error:
        raise ConfigError(f"{paths.config_file}: {error}", "Change the value, or remove the key.") from error
    if not paths.config_file.exists():
        return Finding("settings", State.OK, f"all defaults: there is no {paths.config_file}")
    return Finding("settings", State.OK, f"{paths.config_file} has no mistakes")


def check_folders(paths: Paths) -> Finding:
    """Whether every folder is there, or can be made, and written."""
    folders = [paths.config_dir, paths.data_dir, paths.cache_dir, paths.state_dir, paths.runtime_dir]
    shut = [folder for folder in folders if not _can_write(folder)]
    if shut:
        remedy = f"See who owns {shut[0]}, or set OCTAVO_HOME to a folder of your own."
        return Finding("folders", State.WRONG, f"no permission to write {', '.join(map(str, shut))}", remedy)
    return Finding("folders", State.OK, f"all can be written; chats and models are in {paths.data_dir}")


def check_disk(paths: Paths) -> Finding:
    """Free space where chats and models lie."""
    free = shutil.disk_usage(_existing(paths.data_dir)).free
    text = f"{free / 1e9:.1f} GB free at {paths.data_dir}"
    if free >= TIGHT_BYTES:
        return Finding("disk", State.OK, text)
    remedy = "Free some space, or set OCTAVO_HOME to a bigger disk."
    return Finding("disk", State.WRONG if free < SCARCE_BYTES else State.HINT, text, remedy)


def check_model(settings: Settings, paths: Paths) -> Finding:
    """Whether the model is here. Raises ModelMissingError, ModelNameError, ModelFolderError with the remedy."""
    if is_echo(settings.model):
        return Finding("model", State.OK, f"{settings.model} is the demo, which only echoes")
    folder = resolve(settings.model, paths)
    return Finding("model", State.OK, f"{settings.model}, {all_files_bytes(folder) / 1e6:,.0f} MB in {folder}")


def check_host(settings: Settings, paths: Paths) -> Finding:
    """Whether a host runs and answers. Raises HostError."""
    others = [host.model for host in running_hosts(paths)] if _can_write(paths.runtime_dir) else []
    if not others:
        return Finding("host", State.OK, "none runs; the first question starts one")
    try:
        return Finding("host", State.OK, asyncio.run(_ask_host(settings, paths)))
    except HostAbsentError:
        return Finding("host", State.OK, f"runs for {', '.join(others)}; these settings would start another")
    except TimeoutError:
        raise HostError("The host does not answer", "Run `octavo engine stop`.") from None


async def _ask_host(settings: Settings, paths: Paths) -> str:
    async with asyncio.timeout(HOST_TIMEOUT_S):
        async with await connect(settings, paths, start=False) as client:
            doing = "is ready" if client.is_ready else "loads its model"
            return f"process {client.pid} runs {client.model} and {doing}"


def check_terminal(env: Mapping[str, str] = os.environ) -> Finding:
    """What the terminal UI meets: kind, colours, letters, and the way to the clipboard."""
    term = env.get("TERM", "")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Finding("terminal", State.OK, "this is a pipe; the terminal UI needs a terminal, questions do not")
    if term in ("", "dumb"):
        return Finding("terminal", State.HINT, f'TERM is "{term}", which draws no UI', "Use another terminal.")
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8":
        return Finding("terminal", State.HINT, f"letters go out as {encoding}", "export LANG=C.UTF-8")
    text = f"{term}, {_colors(term, env)}"
    if "TMUX" not in env:
        return Finding("terminal", State.OK, f"{text}; copying asks the terminal (OSC 52)")
    clipboard = _tmux_clipboard()
    if clipboard == "on":
        return Finding("terminal", State.OK, f"{text}; copying goes through tmux")
    remedy = "tmux set -g set-clipboard on"
    return Finding("terminal", State.HINT, f"{text}; tmux keeps copied text to itself ({clipboard})", remedy)


def _colors(term: str, env: Mapping[str, str]) -> str:
    if env.get("NO_COLOR"):
        return "no colours (NO_COLOR)"
    if env.get("COLORTERM") in ("truecolor", "24bit"):
        return "16 million colours"
    return "256 colours" if "256color" in term else "few colours"


def _tmux_clipboard() -> str:
    try:
        command = ["tmux", "show-options", "-gv", "set-clipboard"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _can_write(folder: Path) -> bool:
    found = _existing(folder)
    return found.is_dir() and os.access(found, os.W_OK | os.X_OK)
