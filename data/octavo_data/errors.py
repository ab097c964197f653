"""Every error that the store raises on purpose; each says what happened and what to do."""


class StoreError(Exception):
    """The base of all errors of the store.

    `message` names the bad value and has no full stop; `remedy` is a sentence. A command line prints both in one line.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}. {self.remedy}"


class StoreOpenError(StoreError):
    """The file cannot be opened, or it is not a store."""


class StoreReadError(StoreError):
    """A read failed: the file is damaged, gone, or of a version that this one does not understand."""


class StoreWriteError(StoreError):
    """A write failed and changed nothing: disk full, file read-only, or locked for longer than the busy timeout."""


class StoreReadOnlyError(StoreWriteError):
    """A write to a store that is open for reading only, because a newer version made it."""


class ChatNotFoundError(StoreError):
    """No chat has this id or begins with it."""


class AmbiguousChatError(StoreError):
    """Several chats begin with this prefix."""


class NoChatsError(StoreError):
    """The store holds no chat yet."""


class TurnNotFoundError(StoreError):
    """No turn has this id."""


class TurnClosedError(StoreError):
    """A turn that is over already was to be flushed or ended again; it was left as it is."""


class ChatMovedError(StoreError):
    """Another process added a turn to the chat, so a prompt that was built on the old tip is out of date."""


class ChatTrashedError(StoreError):
    """A turn was to be added to a chat in the trash."""


class TagError(StoreError):
    """A word that cannot be a tag."""


class TokenIdsError(StoreError):
    """More token ids were to be kept of a turn than it has."""
