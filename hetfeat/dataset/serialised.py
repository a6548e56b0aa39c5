"""Modules as TVM serialises them: base64 of eight bytes, the length, and of JSON.

Stores keep the JSON, of which gzip leaves two thirds of what it leaves of base64.
"""

import base64

HEADER_BYTES = 8


def to_text(module: str) -> str:
    """The JSON of a serialised module; what is none stays as it is."""
    try:
        text = base64.b64decode(module, validate=True)[HEADER_BYTES:].decode()
    except ValueError:
        return module
    return text if of_text(text) == module else module


def of_text(text: str) -> str:
    """The serialised module of its JSON; base64, of older stores, has no brace and stays."""
    if not text.startswith("{"):
        return text
    data = text.encode(errors="surrogatepass")
    return base64.b64encode(len(data).to_bytes(HEADER_BYTES, "little") + data).decode()
