"""Replace look-alike characters by the plain one: minus signs, digits and spaces of any script."""

from __future__ import annotations

import re
import unicodedata

# Hyphens and dashes that are read as a minus; a long dash is one only directly before a number.
_MINUS = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe58\ufe63\uff0d\u02d7\u2796", "-"))
_LONG_DASH = re.compile("[\u2014\u2015](?=[\\d.$\\\\])")
# thousands, separated by narrow spaces
_GROUPED = re.compile("(?<![\\d.,])[1-9]\\d{0,2}(?:[\u00a0\u2009\u202f]\\d{3})+(?!\\d)")
_INVISIBLE = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF, 0xAD])
_DIGIT = re.compile(r"[^\x00-\x7f]")


def plain(text: str) -> str:
    """Return the text with ASCII digits, spaces and minus signs, and full-width characters in their usual width."""
    if text.isascii():
        return text
    text = _GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    text = _LONG_DASH.sub("-", text.translate(_INVISIBLE).translate(_MINUS))
    return _DIGIT.sub(lambda match: _plain(match[0]), text)


def _plain(character: str) -> str:
    digit = unicodedata.digit(character, None)
    if digit is not None and unicodedata.category(character) == "Nd":
        return str(digit)
    if unicodedata.category(character) == "Zs":
        return " "
    if 0xFF01 <= ord(character) <= 0xFF5E:
        return chr(ord(character) - 0xFEE0)
    return character
