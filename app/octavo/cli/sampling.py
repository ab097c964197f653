"""`-o NAME VALUE`: every field of SamplingParams from the command line."""

import dataclasses
import difflib
from collections.abc import Iterable

import click
import msgspec

from octavo_engine.params import SamplingParams

KINDS = {" | null": " or none", "float": "a number", "int": "a whole number", "bool": "true or false"}


def parse_options(options: Iterable[tuple[str, str]]) -> SamplingParams:
    """The parameters that these names and texts mean; raises UsageError naming the nearest name or the range."""
    given: dict[str, str | None] = {}
    for name, value in options:
        key = name.replace("-", "_")
        _require_known(key, name)
        given[key] = None if value.lower() == "none" else value
    try:
        return msgspec.convert(given, SamplingParams, strict=False)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"-o: {_explain(error, given)}.") from error


def _require_known(key: str, name: str) -> None:
    known = [field.name for field in dataclasses.fields(SamplingParams)]
    if key in known:
        return
    near = difflib.get_close_matches(key, known, n=1)
    hint = f'Did you mean "{near[0]}"?' if near else f"Known: {', '.join(known)}."
    raise click.UsageError(f'-o: no option "{name}". {hint}')


def _explain(error: msgspec.ValidationError, given: dict[str, str | None]) -> str:
    # a wrong type is: Expected `float`, got `str` - at `$.temperature`; a wrong range is SamplingParams' own text
    expected, is_type, place = str(error).partition(" - at `$.")
    key = place.rstrip("`")
    if not is_type:
        return expected
    kind = expected.removeprefix("Expected `").partition("`")[0]
    for name, words in KINDS.items():
        kind = kind.replace(name, words)
    return f'{key} is "{given[key]}"; it must be {kind}'
