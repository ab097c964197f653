"""Loads the model of a host, and puts what goes wrong into one line with a remedy."""

import gc

from octavo.config import Settings
from octavo.errors import HostError, OctavoError
from octavo.host.room import is_memory_short, make_room
from octavo.launcher import HostSpec, is_echo
from octavo_engine.config import EngineConfig
from octavo_engine.errors import EngineError
from octavo_engine.loaded import Loaded, LoadStep, OnLoadStep


def load(spec: HostSpec, tell: OnLoadStep) -> Loaded:
    """The engine of this host; runs in the step thread and takes seconds. Raises whatever goes wrong, see `explain`."""
    config = engine_config(spec.settings)
    if is_echo(spec.model):
        return _load_echo(spec.model, config)
    tell(LoadStep("starting torch"))
    from octavo_engine.runner.load import load_engine  # seconds, which clients need not wait for

    assert spec.folder is not None
    try:
        return load_engine(spec.folder, config, tell)
    except Exception as error:
        if not is_memory_short(error):
            raise
        tell(LoadStep("asking other models for room"))
        if not make_room(spec):
            raise
    gc.collect()  # what the first attempt left
    return load_engine(spec.folder, config, tell)


def engine_config(settings: Settings) -> EngineConfig:
    """The engine's own settings, its defaults where nothing is set. Raises ParameterError."""
    return EngineConfig(**settings.engine_settings())


def explain(error: BaseException, spec: HostSpec) -> OctavoError:
    """Why the model could not be loaded, for a person."""
    model, log = spec.model, f"Its log has more: {spec.log_file}"
    what = str(error).strip().split("\n")[0][:300]
    if isinstance(error, OctavoError):
        return error
    if isinstance(error, EngineError):
        return HostError(f"{model} cannot be loaded: {what}", "")
    if is_memory_short(error):
        remedy = (
            "End other programs that use it, lower kv_cache_memory_bytes or max_model_len, or take a smaller model."
        )
        return HostError(f"{model} does not fit into the memory of the device", remedy)
    if isinstance(error, ImportError):
        return HostError(f"{model} cannot be loaded: {what}", log)
    return HostError(f"{model} cannot be loaded: {type(error).__name__}: {what}", log)


def _load_echo(model: str, config: EngineConfig) -> Loaded:
    from octavo_engine.echo import load_echo

    _, _, step_ms = model.partition(":")
    return load_echo(config, step_ms=float(step_ms or 0))
