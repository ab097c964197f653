"""Errors of the store as errors of the app, so that a caller has one tree to catch."""

import contextlib
from collections.abc import Iterator

from octavo.errors import OctavoError
from octavo_data import StoreError


@contextlib.contextmanager
def naming_store_errors() -> Iterator[None]:
    """A StoreError in the body becomes an OctavoError with the same message and remedy."""
    try:
        yield
    except StoreError as error:
        raise OctavoError(error.message, error.remedy) from error
