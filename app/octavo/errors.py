"""Every error that Octavo raises on purpose: one line that says what is wrong, and the remedy."""


class OctavoError(Exception):
    """The base: `message` names the bad value, `remedy` is a whole sentence (or empty) that says what to do."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}. {self.remedy}" if self.remedy else self.message


class ConfigError(OctavoError):
    """config.toml cannot be read, or a key or a value in it is wrong."""


class UnsafeFolderError(OctavoError):
    """A folder for sockets belongs to somebody else, who could read what passes through it."""


class ModelNameError(OctavoError):
    """A model name is none that Octavo understands."""


class ModelMissingError(OctavoError):
    """A model that is known is not on this machine yet."""


class ModelFolderError(OctavoError):
    """A folder or file named as a model lacks what a model needs."""


class PullError(OctavoError):
    """A model could not be downloaded or converted; nothing half-made was left."""


class HostError(OctavoError):
    """The host could not be started, or it failed."""


class HostLostError(HostError):
    """The connection to the host ended while something waited for it."""


class RequestRejectedError(OctavoError):
    """The host refused a request; nothing was stored."""
