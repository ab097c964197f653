"""Lets an error in one handler of a message be told, where Textual would end the app."""

from textual import events
from textual.message import Message
from textual.message_pump import MessagePump

from octavo.ui.messages import HandlerFailed

_VITAL = (events.Compose, events.Mount, HandlerFailed)  # without these there is nothing to go on with


class Sturdy(MessagePump):
    """A base of the app and of its widgets; `HandlerFailed` bubbles up to the app, which tells it."""

    async def _dispatch_message(self, message: Message) -> None:
        # Textual's own, and the only place: its handler of exceptions is called when the queue is given up already
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # a border
            if isinstance(message, _VITAL):
                raise
            self.post_message(HandlerFailed(error))
