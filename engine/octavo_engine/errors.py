"""Every error that the engine raises on purpose; each says the bad value and the remedy."""


class EngineError(Exception):
    """The base of all errors of the engine."""


class ParameterError(EngineError, ValueError):
    """A sampling parameter or an engine setting lies outside its range."""


class RequestRefusedError(EngineError):
    """A request can never be served as it is: too long for the context or for the pool."""


class ModelError(EngineError):
    """A model cannot be loaded or cannot be run correctly by this engine."""


class MemoryShortError(ModelError):
    """A model that could run does not fit into the memory that is free."""


class ChatFormatError(EngineError):
    """A chat template refuses the messages it was given."""


class DeviceLostError(EngineError):
    """The device answers nothing but errors; only another process can use it again."""


class DeviceMemoryError(EngineError):
    """A step needs more memory than the device has left; a smaller one may fit."""
