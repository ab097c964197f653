"""`-o NAME VALUE`: every field of SamplingParams from the command line."""

import dataclasses
import difflib
import re
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from octavo_engine.params import SamplingParams

LISTS = ("stop", "stop_token_ids")
REPEATED = (*LISTS, "logit_bias")  # given once for each of their values, a bias as ID:BIAS
KINDS = {" | null": " or none", "float": "a number", "int": "a whole number", "bool": "true or false"}


def parse_options(options: Iterable[tuple[str, str]]) -> SamplingParams:
    """The parameters that these names and texts mean; raises UsageError naming the nearest name or the range."""
    given: dict[str, Any] = {}
    for name, value in options:
        key = name.replace("-", "_")
        _require_known(key, name)
        given[key] = _with(given.get(key), key, value)
    try:
        return msgspec.convert(given, SamplingParams, strict=False)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"-o: {_explain(error, given)}.") from error


def _with(before: Any, key: str, value: str) -> Any:
    """What is given for `key` by now."""
    if key in LISTS:
        return [*(before or ()), value]
    if key in REPEATED:
        token_id, _, bias = value.partition(":")
        return {**(before or {}), token_id: bias}
    return None if value.lower() == "none" else value


def _require_known(key: str, name: str) -> None:
    known = [field.name for field in dataclasses.fields(SamplingParams)]
    if key in known:
        return
    near = difflib.get_close_matches(key, known, n=1)
    hint = f'Did you mean "{near[0]}"?' if near else f"Known: {', '.join(known)}."
    raise click.UsageError(f'-o: no option "{name}". {hint}')


def _explain(error: msgspec.ValidationError, given: dict[str, Any]) -> str:
    # a wrong type is: Expected `float`, got `str` - at `$.temperature`; a wrong range is SamplingParams' own text
    found = re.match(r"Expected `(.+?)`.* at .*`\$\.(\w+)", str(error))
    if not found:
        return str(error)
    kind, key = found.groups()
    for name, words in KINDS.items():
        kind = kind.replace(name, words)
    value = given[key]
    shown = ", ".join(value if key in LISTS else map(":".join, value.items())) if key in REPEATED else value
    return f'{key} is "{shown}"; it must be {kind}'
