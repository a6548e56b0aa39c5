"""What the Tab key offers: names that are read at once, and nothing where they cannot be.

What takes long to import is imported where a name of it is asked for: the door stays quick.
"""

import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click import shell_completion
from click.shell_completion import CompletionItem, split_arg_string

Source = Callable[[click.Context, str], Iterable[str]]
"""Callable that gives names for a command line and the beginning of a word."""

PREFIX = "models:/"
BERTS = ("bert_tiny", "bert_mini", "bert_small", "bert_medium", "bert_base")
"""Those of `hetfeat.workloads.transformers`, which needs torch."""
_CLASSIFIER = re.compile(r"^@register_model\(\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)
"""Pattern of a classifier in torchvision's sources: to import them takes seconds."""
_BREAKS = (":", "@")
"""Characters at which bash breaks words, and we do not."""


def devices(context: click.Context, incomplete: str) -> Iterable[str]:
    """`local` and the presets."""
    from hetfeat.devices.presets import preset_names

    return "local", *preset_names()


def networks(context: click.Context, incomplete: str) -> Iterator[str]:
    """Classifiers of torchvision, where it is installed, and the BERTs."""
    yield from BERTS
    spec = importlib.util.find_spec("torchvision")
    if spec is not None and spec.origin is not None:
        for source in sorted((Path(spec.origin).parent / "models").glob("*.py")):
            yield from sorted(_CLASSIFIER.findall(source.read_text()))


def model_names(context: click.Context, incomplete: str) -> Iterable[str]:
    """Names of registered models."""
    from registry.cli import registered

    return registered.registered_names()


def model_versions(context: click.Context, incomplete: str) -> Iterator[str]:
    """Registered models, and versions and aliases of the one that is named."""
    from registry.cli import registered

    prefix = PREFIX if incomplete.startswith(PREFIX[:-1]) else ""
    asked = incomplete[len(prefix) :]
    if "@" in asked:
        from registry.models.aliases import ALIASES

        name = asked.partition("@")[0]
        yield from (f"{prefix}{name}@{alias}" for alias in ALIASES)
        return
    names = [name for name in registered.registered_names() if name.startswith(asked)]
    yield from (f"{prefix}{name}" for name in names)
    if asked in names or "/" in asked:
        name = asked.partition("/")[0]
        yield from (f"{prefix}{name}/{number}" for number in registered.version_numbers(name))


def versions_of_the_name(context: click.Context, incomplete: str) -> Iterator[str]:
    """Numbers of the versions of the model that the argument NAME has."""
    from registry.cli import registered

    yield from map(str, registered.version_numbers(context.params["name"]))


def items(
    source: Source,
    context: click.Context,
    incomplete: str,
    *,
    several: bool = False,
    files: bool = False,
) -> list[CompletionItem]:
    """What a source has that begins as the word does; nothing where anything goes wrong.

    Args:
        source: Source of the names.
        context: Context of the command.
        incomplete: Beginning of the word.
        several: Whether the word is a list, of which the last name is completed; default False.
        files: Whether a file may be meant, too; default False.
    """
    before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
    try:
        names = [name for name in source(context, last) if name.startswith(last)]
    except Exception:  # a line of it would stand in what is being typed
        names = []
    # First: bash forgets what came before it.
    first = [CompletionItem(incomplete, type="file")] if files else []
    return first + [CompletionItem(f"{before}{comma}{name}") for name in names]


class BashComplete(shell_completion.BashComplete):
    """Bash's, which breaks `models:/NAME@alias` into five words: they are one here."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is completed, and its beginning."""
        words, at = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
        current = words[at] if at < len(words) else ""
        whole: list[str] = []
        is_open = False
        for word in (*words[1:at], current):
            if whole and (is_open or word in _BREAKS):
                whole[-1] += word
            else:
                whole.append(word)
            is_open = word in _BREAKS
        *before, incomplete = whole or [""]
        kept = "" if current in _BREAKS else current
        # Bash puts an answer in the place of its own word, the last of the five.
        self.left_out = len(incomplete) - len(kept)
        return before, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """A line for bash, less what it has already."""
        return f"{item.type},{item.value[self.left_out :]}"


shell_completion.add_completion_class(BashComplete)
