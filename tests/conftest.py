"""What all tests share: folders that are nobody's, and the default model, fetched once and kept between runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from octavo.models.pull import pull
from octavo.paths import Paths

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: with more, each waits for the others
settings.register_profile("octavo", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("octavo")  # no example is timed: the machine may be busy with something else
SHARING_FOLDERS = ("e2e", "gpu")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share something dear in one process: e2e its warm host, gpu the device, a file its model."""
    for item in items:
        if item.path.parent.name in SHARING_FOLDERS:
            item.add_marker(pytest.mark.xdist_group(item.path.parent.name))
        elif item.get_closest_marker("model"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session", autouse=True)
def no_user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the store, the config or the sockets of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Folders of this test alone."""
    return Paths.below(tmp_path / "octavo")


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The default model, converted by the real pull: needs the network the first time, then about no time."""
    cache = os.environ.get("OCTAVO_TEST_CACHE") or Path.home() / ".cache" / "octavo-tests"
    return pull("smollm2-135m", Paths.below(Path(cache)))
