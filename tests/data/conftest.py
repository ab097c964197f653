"""What the tests of the store share: a store in a file of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo_data import Chat, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "octavo.db") as opened:
        yield opened


@pytest.fixture
def chat(store: Store) -> Chat:
    return store.create_chat(title="Rivers", model="smollm2-135m", system="Be brief.")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a file of any name"
