"""What every command begins with: the folders, the settings, and the model that is meant."""

import msgspec

from octavo.config import Settings, load_settings
from octavo.launcher import is_echo
from octavo.models.names import canonical_name
from octavo.paths import Paths


def load() -> tuple[Settings, Paths]:
    """The settings of the user and where they lie; raises ConfigError."""
    paths = Paths.from_env()
    return load_settings(paths.config_file), paths


def with_model(settings: Settings, model: str | None) -> Settings:
    """Settings whose model is `model` (None: the configured one), named alike from every working folder.

    Raises ModelNameError.
    """
    name = model or settings.model
    return msgspec.structs.replace(settings, model=name if is_echo(name) else canonical_name(name))
