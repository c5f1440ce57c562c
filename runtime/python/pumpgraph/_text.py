# SPDX-License-Identifier: Apache-2.0
"""Names from outside (of steps, tensors, kernels, files, devices) as reports and messages print them."""

from __future__ import annotations

# As in graph/Printable.cpp: controls, separators of lines, and what moves, hides or fakes the rest of a line. Half of a
# surrogate pair, which a file's name may have, is no character.
_UNSAFE = (
    (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x61C, 0x61C), (0x180E, 0x180E), (0x200B, 0x200F), (0x2028, 0x202E),
    (0x2060, 0x206F), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xFFFE, 0xFFFF), (0xE0000, 0xE007F),
)


def printable(text: object) -> str:
    """`text` as one line that a terminal shows and does not obey: "\\x1b", "\\u202e" for what it would not show."""
    text = str(text)
    return text if text.isprintable() and text.isascii() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    point = ord(character)
    if not any(first <= point <= last for first, last in _UNSAFE):
        return character
    return f"\\x{point:02x}" if point < 0x80 else f"\\u{point:04x}"
