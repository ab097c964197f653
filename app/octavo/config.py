"""config.toml, read once into a frozen object; a mistake in it is an error that names file, key and remedy."""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from octavo.errors import ConfigError

Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All keys of config.toml. None means "the engine's own default"; the engine checks dtype and attention."""

    model: Annotated[str, msgspec.Meta(min_length=1)] = "smollm2-135m"
    idle_minutes: Annotated[float, msgspec.Meta(ge=0)] = 15  # how long a host without work keeps the model loaded
    model_titles: bool = False  # whether the model is asked for the titles of new chats
    disk_cache_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 << 30  # KV blocks that outlive the host; 0 keeps none

    block_size: Count | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    max_model_len: Count | None = None
    dtype: str | None = None
    attention: str | None = None
    enable_prefix_caching: bool | None = None
    kv_cache_memory_bytes: Count | None = None
    num_decode_steps: Count | None = None
    gpu_memory_utilization: Share | None = None
    tensor_parallel_size: Count | None = None

    def engine_settings(self) -> dict[str, Any]:
        """The keys of EngineConfig that somebody has set, with their values."""
        own = {"model", "idle_minutes", "model_titles", "disk_cache_bytes", "tensor_parallel_size"}
        return {
            key: value for key, value in msgspec.structs.asdict(self).items() if key not in own and value is not None
        }


def load_settings(file: Path) -> Settings:
    """Read `file`; one that is missing means all defaults. Raises ConfigError."""
    try:
        raw = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}", "Mend the file, or move it away for the defaults."
        ) from error
    _refuse_unknown(raw, file)
    settings = _convert(raw, file)
    _refuse_parallel(settings, file)
    return settings


def _refuse_unknown(raw: dict[str, Any], file: Path) -> None:
    known = Settings.__struct_fields__
    for key in raw:
        if key not in known:
            if isinstance(raw[key], dict):
                raise ConfigError(
                    f'{file}: unknown table "[{key}]"', "The keys stand at the top level, without tables."
                )
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            remedy = f'Did you mean "{near[0]}"?' if near else f"Known keys: {', '.join(known)}."
            raise ConfigError(f'{file}: unknown key "{key}"', remedy)


def _convert(raw: dict[str, Any], file: Path) -> Settings:
    try:
        return msgspec.convert(raw, Settings)
    except msgspec.ValidationError as error:
        # msgspec says: Expected `int`, got `str` - at `$.block_size`
        expected, _, place = str(error).replace(" | null", "").partition(" - at `$.")
        key = place.rstrip("`")
        message = f'{file}: "{key}" is {raw.get(key)!r}: {expected.replace("`", "").lower()}'
        raise ConfigError(message, f'Change the value, or remove "{key}" for the default.') from error


def _refuse_parallel(settings: Settings, file: Path) -> None:
    if settings.tensor_parallel_size not in (None, 1):
        raise ConfigError(
            f'{file}: "tensor_parallel_size" is {settings.tensor_parallel_size}, but the engine runs on one device',
            "Set it to 1 or remove it; splitting a model over devices is not built yet.",
        )
