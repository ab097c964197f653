"""The colours: paper and ink by lamplight."""

from textual.theme import Theme

LAMPLIGHT = Theme(
    name="lamplight",
    dark=True,
    background="#191816",
    surface="#201f1c",
    panel="#33302b",
    foreground="#dcd6c8",
    primary="#d6a95c",
    accent="#d6a95c",
    secondary="#8fa9b8",
    success="#93b87a",
    warning="#d9a05b",
    error="#dc7a6b",
    variables={
        "text-muted": "#8f887b",
        "border": "#8fa9b8",
        "input-cursor-background": "#dcd6c8",
        "input-cursor-foreground": "#191816",
        "input-selection-background": "#4a4436",
        "screen-selection-background": "#4a4436",
    },
)
