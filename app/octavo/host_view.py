"""How the host of a user interface fares, as plain data."""

from dataclasses import dataclass
from enum import StrEnum

from octavo.client import Client, lost_error
from octavo.errors import OctavoError


class HostState(StrEnum):
    """How the host of this workspace fares."""

    STARTING = "starting"  # looked for, or its process is coming up
    LOADING = "loading"  # connected; the model is being loaded, asks wait in its queue
    READY = "ready"
    FAILED = "failed"  # it could not start or could not load the model, or it was stopped
    LOST = "lost"  # it went away without a word; like after a failure, the next ask starts it again


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The host's state, its model and device ("" until known), while it loads what it does, and for `failed` and `lost`
    why and what to do.
    """

    state: HostState = HostState.STARTING
    model: str = ""
    device: str = ""
    max_model_len: int = 0
    loading: str = ""
    error: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, client: Client) -> "HostView":
        """What a connection knows at this moment."""
        if client.failure:
            failure = OctavoError(client.failure.error, client.failure.remedy)
            return cls.failed(client.model, failure)
        if client.closed.is_set():
            return cls.failed(client.model, lost_error(), HostState.LOST)
        return cls(
            state=HostState.READY if client.is_ready else HostState.LOADING,
            model=client.model,
            device=client.device,
            max_model_len=client.max_model_len,
            loading=str(client.loading or ""),
        )

    @classmethod
    def failed(cls, model: str, error: OctavoError, state: HostState = HostState.FAILED) -> "HostView":
        """A host that cannot be asked."""
        return cls(state=state, model=model, error=error.message, remedy=error.remedy)
