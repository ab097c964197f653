"""Which model a stored chat goes on with: its own, if that is on this machine."""

from dataclasses import dataclass

import msgspec

from octavo.config import Settings
from octavo.errors import OctavoError
from octavo.launcher import HostSpec
from octavo.paths import Paths


@dataclass(frozen=True, slots=True)
class GoingOn:
    """The settings with the model of the next turn; `notice` and `remedy` where that is not the chat's own."""

    settings: Settings
    notice: str = ""
    remedy: str = ""


def going_on(model: str, settings: Settings, paths: Paths) -> GoingOn:
    """How a chat that was begun with `model` ("" for a new one) goes on, with `settings` for all but the model.

    Where its own model is not here, the one of the settings goes on: reading and asking matter more than who answers.
    """
    if model in ("", settings.model):
        return GoingOn(settings)
    own = msgspec.structs.replace(settings, model=model)
    try:
        HostSpec.of(own, paths)
    except OctavoError as error:
        notice = f"{model}, which this chat was begun with, cannot be used here, so {settings.model} goes on"
        return GoingOn(settings, notice, error.remedy)
    return GoingOn(own)
