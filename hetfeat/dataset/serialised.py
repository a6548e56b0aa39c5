"""Modules as TVM serialises them: base64 of eight bytes, the length, and of JSON.

Stores keep the JSON without its line breaks and indents, half of it. Strings have no line breaks.
"""

import base64
import re

HEADER_BYTES = 8
_INDENT = re.compile(r"\n\s*")


def to_text(module: str) -> str:
    """The JSON of a serialised module, in one line; what is none stays as it is."""
    try:
        text = base64.b64decode(module, validate=True)[HEADER_BYTES:].decode()
    except ValueError:
        return module
    return _INDENT.sub("", text) if of_text(text) == module else module


def of_text(text: str) -> str:
    """The serialised module of its JSON; base64, of older stores, has no brace and stays."""
    if not text.startswith("{"):
        return text
    data = text.encode(errors="surrogatepass")
    return base64.b64encode(len(data).to_bytes(HEADER_BYTES, "little") + data).decode()
