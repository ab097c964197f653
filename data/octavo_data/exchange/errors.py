"""Why a file was not imported: where in it, and what is wrong there."""

from octavo_data.errors import StoreError

REMEDY = "Nothing of this file was imported."


class ImportFileError(StoreError):
    """A file cannot be imported; the message names the file, the place in it and the reason."""


class BadContentError(Exception):
    """What is wrong inside a file, before its name is known: a line, path or JSON pointer, and the reason."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def within(self, place: str) -> "BadContentError":
        """The same inside a part of the file."""
        return BadContentError(f"{place}{self.place}", self.reason)

    def in_file(self, name: str) -> ImportFileError:
        """The error for people."""
        return ImportFileError(": ".join(part for part in (name, self.place, self.reason) if part), REMEDY)
