"""config.toml: defaults, values, and mistakes that are named."""

from pathlib import Path

import pytest

from octavo.config import Settings, load_settings
from octavo.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_missing_file_means_defaults(file: Path) -> None:
    assert load_settings(file) == Settings(model="smollm2-135m", idle_minutes=15)


def test_only_engine_keys_that_are_set_reach_the_engine(file: Path) -> None:
    file.write_text('model = "hf:a/b"\nidle_minutes = 0.5\nblock_size = 32\nenable_prefix_caching = false\n')
    settings = load_settings(file)
    assert (settings.model, settings.idle_minutes) == ("hf:a/b", 0.5)
    assert settings.engine_settings() == {"block_size": 32, "enable_prefix_caching": False}


def test_one_device_is_accepted_and_not_passed_on(file: Path) -> None:
    file.write_text("tensor_parallel_size = 1")
    assert load_settings(file).engine_settings() == {}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("blok_size = 16", ['unknown key "blok_size"', 'Did you mean "block_size"?']),
        ("zzz = 16", ['unknown key "zzz"', "Known keys: model, idle_minutes"]),
        ("[engine]\nblock_size = 16", ['unknown table "[engine]"', "top level"]),
        ('block_size = "big"', ["\"block_size\" is 'big'", "expected int, got str"]),
        ("block_size = 0", ['"block_size" is 0', "expected int >= 1"]),
        ("gpu_memory_utilization = 1.5", ['"gpu_memory_utilization" is 1.5', "<= 1.0"]),
        ("enable_prefix_caching = 1", ["expected bool, got int"]),
        ("idle_minutes = -1", ["expected float >= 0"]),
        ("tensor_parallel_size = 2", ['"tensor_parallel_size" is 2', "one device"]),
        ("model = ", ["cannot be read"]),
    ],
)
def test_a_mistake_names_file_key_and_remedy(file: Path, text: str, parts: list[str]) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    for part in [str(file), *parts]:
        assert part in str(caught.value)


def test_a_file_that_is_not_utf8_is_a_config_error(file: Path) -> None:
    file.write_bytes(b"model = '\xff'")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(file)
