"""All checks in the order of the report; those of the engine come last, because torch takes seconds."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from octavo.cli.setup import with_model
from octavo.config import Settings, load_settings
from octavo.doctor import machine
from octavo.doctor.findings import Finding, State, run_checks
from octavo.errors import ConfigError, OctavoError
from octavo.launcher import HostSpec
from octavo.paths import Paths
from octavo_engine.config import EngineConfig
from octavo_engine.errors import ParameterError


def examine(model: str | None, paths: Paths) -> Iterator[Finding]:
    """Every finding, as soon as it is known; `model` instead of the configured one. Raises ModelNameError for it."""
    settings = _settings(model, paths)
    yield from run_checks(
        [
            ("program", machine.check_program),
            ("packages", machine.check_packages),
            ("settings", partial(machine.check_settings, paths)),
            ("folders", partial(machine.check_folders, paths)),
            ("disk", partial(machine.check_disk, paths)),
            ("terminal", machine.check_terminal),
            ("model", partial(machine.check_model, settings, paths)),
            ("host", partial(machine.check_host, settings, paths)),
        ]
    )
    yield from _examine_engine(settings, paths)


def _examine_engine(settings: Settings, paths: Paths) -> Iterator[Finding]:
    try:
        from octavo.doctor import inference
    except (ImportError, OSError) as error:  # a broken installation
        remedy = "pip install --force-reinstall torch transformers"
        yield Finding("device", State.WRONG, f"torch or transformers cannot be imported: {error}", remedy)
        return
    outlook = inference.look_ahead(_folder(settings, paths), _engine_config(settings))
    checks = {
        "device": inference.check_device,
        "dtype": inference.check_dtype,
        "attention": inference.check_attention,
        "path": inference.check_path,
        "memory": inference.check_memory,
    }
    yield from run_checks((topic, partial(check, outlook)) for topic, check in checks.items())


def _settings(model: str | None, paths: Paths) -> Settings:
    """The settings, or the defaults where config.toml has a mistake, which is a finding of its own."""
    try:
        return with_model(load_settings(paths.config_file), model)
    except ConfigError:
        return with_model(Settings(), model)


def _engine_config(settings: Settings) -> EngineConfig:
    try:
        return EngineConfig(**settings.engine_settings())
    except ParameterError:  # a finding of its own, too
        return EngineConfig()


def _folder(settings: Settings, paths: Paths) -> Path | None:
    try:
        return HostSpec.of(settings, paths).folder
    except OctavoError:
        return None
