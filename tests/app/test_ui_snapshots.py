"""Pictures of the UI, driven by key presses: what a person sees at several sizes."""

from collections.abc import Callable

import pytest
from tests.app.ui_fakes import READY, FakeSession, FakeWorkspace
from tests.app.ui_stage import settle, stored
from textual.pilot import Pilot

from octavo.session import SessionState
from octavo.ui import status_line
from octavo.ui.app import OctavoApp
from octavo.workspace import HostState, HostView

Compare = Callable[..., bool]
REPLY = """A block holds the keys and values of a fixed number of tokens, for every layer.

```python
block = pool.allocate()
block.write(layer, keys, values)
```

Blocks whose content is known can be shared between chats that begin alike."""
HALF = "Each chat holds a reference, and the pool gives the block back when the last one lets go. 漢字かな🙂"


class Scene:
    """Four chats in four states; the first is in view, half through its reply."""

    def __init__(self, host: HostView = READY) -> None:
        self.first = stored("Paged attention explained", "1", ("What does a KV cache block hold?", REPLY))
        self.second = FakeSession("Haiku about autumn rain", "2")
        failed = stored("漢字かな交じり文の組版", "3", ("p", "r"))
        failed.state = SessionState.FAILED
        self.workspace = FakeWorkspace(self.first, self.second, failed, stored("Weekend", "4", ("p", "r")), host=host)
        self.app = OctavoApp(self.workspace, "1")

    async def half_way(self, pilot: Pilot[int]) -> None:
        await self.still(pilot)
        await pilot.press(*"And two?", "enter")
        self.second.begin("A haiku")
        self.first.rate = 38.24
        self.first.say(HALF)
        await pilot.press(*"then")
        self.app.status.blocks = "48/512 blocks"
        await settle(self.app, pilot)

    async def still(self, pilot: Pilot[int]) -> None:
        self.app.view.composer.cursor_blink = False
        await settle(self.app, pilot)


@pytest.mark.parametrize("size", [(100, 30), (80, 24), (60, 16), (40, 12)])
def test_two_chats_at_once(snap_compare: Compare, size: tuple[int, int]) -> None:
    scene = Scene()
    assert snap_compare(scene.app, terminal_size=size, run_before=scene.half_way)


def test_a_new_chat_says_what_to_do(snap_compare: Compare) -> None:
    scene = Scene()
    assert snap_compare(scene.app, terminal_size=(80, 24), run_before=scene.still, press=["ctrl+n"])


def test_a_stopped_reply(snap_compare: Compare) -> None:
    scene = Scene()

    async def stop(pilot: Pilot[int]) -> None:
        await scene.half_way(pilot)
        await pilot.press("escape")
        await settle(scene.app, pilot)

    assert snap_compare(scene.app, terminal_size=(80, 24), run_before=stop)


def test_without_a_host(snap_compare: Compare) -> None:
    remedy = "Fetch it: octavo models pull smollm2-135m"
    error = 'The model "smollm2-135m" is not on this machine'
    scene = Scene(HostView(state=HostState.FAILED, model="smollm2-135m", error=error, remedy=remedy))
    assert snap_compare(scene.app, terminal_size=(80, 24), run_before=scene.still)


def test_asking_before_quitting(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_line, "NOTICE_S", 60.0)  # a slow machine may look later than a person
    scene = Scene()

    async def ask(pilot: Pilot[int]) -> None:
        await scene.still(pilot)
        await pilot.press("ctrl+c")

    assert snap_compare(scene.app, terminal_size=(40, 12), run_before=ask)
