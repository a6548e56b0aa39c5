"""MkDocs' hook: pages made of what is elsewhere, and links to what is outside docs/.

README.md is the front page, and `hetfeat COMMAND --help` the reference of the commands. A link to
a file that is not among the pages becomes the file's path; one to nothing is an error.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
sys.path.insert(0, str(ROOT))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    readme = with_links_from((ROOT / "README.md").read_text(), ROOT, "README.md")
    files.append(File.generated(config, "index.md", content=readme))
    files.append(File.generated(config, "reference/commands.md", content="\n".join(commands())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    if page.file.generated_by:
        return markdown
    return with_links_from(markdown, (DOCS / uri).parent, uri)


def with_links_from(markdown: str, folder: Path, page: str) -> str:
    def link(found: re.Match[str]) -> str:
        text, target, anchor = found.groups()
        path = Path(os.path.normpath(folder / target))
        if path.is_relative_to(DOCS) and folder != ROOT:
            return found[0]  # MkDocs itself checks it
        if not path.exists():
            raise PluginError(f"{page} links to '{target}', which is not there")
        if path.is_relative_to(DOCS):
            return f"[{text}]({path.relative_to(DOCS).as_posix()}{anchor or ''})"
        return text if text.startswith("`") else f"{text} (`{path.relative_to(ROOT).as_posix()}`)"

    return LINK.sub(link, markdown)


def commands() -> Iterator[str]:
    from mlproject import cli

    yield "# Commands\n\nWhat `hetfeat COMMAND --help` says. An empty value is the same as none.\n"
    yield from described(cli, click.Context(cli, info_name="hetfeat"))


def described(command: click.Command, context: click.Context) -> Iterator[str]:
    depth = "#" * (2 if context.parent is None else context.command_path.count(" ") + 1)
    yield f"{depth} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from described(inner, click.Context(inner, parent=context, info_name=name))
