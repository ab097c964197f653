"""What every command begins with: the folders, the settings, and the model that is meant."""

import msgspec

from octavo.config import Settings, load_settings
from octavo.errors import ConfigError, ModelNameError
from octavo.launcher import is_echo
from octavo.models.names import canonical_name
from octavo.paths import Paths


def load() -> tuple[Settings, Paths]:
    """The settings of the user and where they lie; raises ConfigError."""
    paths = Paths.from_env()
    return load_settings(paths.config_file), paths


def with_model(settings: Settings, model: str | None) -> Settings:
    """Settings whose model is `model` (None: the configured one), named alike from every working folder.

    Raises ModelNameError for `model`, ConfigError for the configured one.
    """
    name = settings.model if model is None else model
    try:
        return msgspec.structs.replace(settings, model=name if is_echo(name) else canonical_name(name))
    except ModelNameError as error:
        if model is not None:
            raise
        raise ConfigError(f"config.toml: {error.message}", error.remedy) from error
