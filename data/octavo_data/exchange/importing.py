"""Reads a file whose kind is found by its content, whole or not at all."""

import io
import json
import lzma
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgspec

from octavo_data.exchange.chatgpt import is_chatgpt, read_chatgpt
from octavo_data.exchange.checks import closed, ordered
from octavo_data.exchange.entries import FORMAT, READABLE, VERSION, Document
from octavo_data.exchange.errors import BadContentError
from octavo_data.exchange.foreign import Defaults, Taken
from octavo_data.exchange.llm_logs import read_llm_logs
from octavo_data.exchange.openai import read_openai
from octavo_data.records import TurnStatus

_BAD_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError, ValueError)
_UNKNOWN = "neither Octavo's JSON nor OpenAI JSONL, an export of ChatGPT or llm's logs.db"


def read_file(path: Path, model: str) -> Taken:
    """The chats of a file; those of other programs go on with `model`. ImportFileError names place and reason."""
    try:
        data = path.read_bytes()
        defaults = Defaults(model, path.stat().st_mtime_ns // 1_000_000)
    except OSError as error:
        raise BadContentError("", error.strerror or str(error)).in_file(str(path)) from error
    try:
        return _finished(_read(path, data, defaults))
    except BadContentError as error:
        raise error.in_file(str(path)) from error


def _read(path: Path, data: bytes, defaults: Defaults) -> Taken:
    if data.startswith(b"SQLite format 3\0"):
        return read_llm_logs(path, defaults)
    if data.startswith(b"PK\x03\x04"):
        return _read_zip(data, defaults)
    return _read_text(_decoded(data), defaults)


def _finished(taken: Taken) -> Taken:
    """With every chat as the store would hand it out."""
    chats = [ordered(chat, f"/chats/{index}") for index, chat in enumerate(taken.chats)]
    taken.num_closed = sum(turn.status is TurnStatus.RUNNING for chat in chats for turn in chat.turns)
    taken.chats = [closed(chat) for chat in chats]
    return taken


def _read_text(text: str, defaults: Defaults) -> Taken:
    if _is_jsonl(text):
        return read_openai(text, defaults)
    value = _parsed(text)
    if isinstance(value, dict) and value.get("format") == FORMAT:
        return _read_own(value.get("version"), text)
    if is_chatgpt(value):
        return read_chatgpt(value, defaults)
    raise BadContentError("", _UNKNOWN)


def _is_jsonl(text: str) -> bool:
    """Whether the first line with anything in it is a whole object with messages."""
    first = next((line for line in io.StringIO(text, newline="\n") if line.strip()), "")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "messages" in value and "mapping" not in value


def _read_own(version: object, text: str) -> Taken:
    if version not in READABLE:
        raise BadContentError("/version", f"is {version!r}, and this octavo reads up to {VERSION}; update it")
    try:
        document = msgspec.json.decode(text, type=Document)  # stricter than json: no text with half a character
    except msgspec.DecodeError as error:
        reason, _, path = str(error).partition(" - at ")
        raise BadContentError(re.sub(r"\.|\[", "/", path.strip("`$")).replace("]", ""), reason) from None
    return Taken("Octavo", list(document.chats))


def _read_zip(data: bytes, defaults: Defaults) -> Taken:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = sorted(filter(_is_conversations, archive.namelist()))
            if not names:
                raise BadContentError("", "a zip without a conversations.json in it")
            return _joined([_read_member(archive, name, defaults) for name in names])
    except _BAD_ZIP as error:
        raise BadContentError("", f"a damaged zip: {error}") from error


def _is_conversations(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith("conversations") and last.endswith(".json")


def _read_member(archive: zipfile.ZipFile, name: str, defaults: Defaults) -> Taken:
    try:
        value = _parsed(_decoded(archive.read(name)))
        if not is_chatgpt(value) and value != []:
            raise BadContentError("", "not a list of ChatGPT's conversations")
        return read_chatgpt(value, defaults)
    except BadContentError as error:
        raise error.within(f"{name}: " if error.place else name) from None


def _joined(parts: list[Taken]) -> Taken:
    whole = parts[0]
    for part in parts[1:]:
        whole.chats += part.chats
        whole.skipped += part.skipped
    return whole


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        reason = _UNKNOWN if error.pos == 0 else f"not whole JSON: {error.msg}"
        raise BadContentError(f"line {error.lineno}, column {error.colno}", reason) from None
    except (ValueError, RecursionError) as error:
        raise BadContentError("", f"not JSON that can be read: {error}") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadContentError(f"byte {error.start}", f"{_UNKNOWN}: not UTF-8") from None
