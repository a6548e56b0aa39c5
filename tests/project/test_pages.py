"""The pages are for people: short sentences, bounded length, and nothing that cannot be redone."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import HOW_TOS, README, TUTORIALS

import mlproject
from hetfeat.tune.session import BUDGETS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAX_SENTENCE_WORDS = 25

EVALUATIONS = ["docs/accuracy.md", "docs/performance.md"]
EXPERIMENTS = sorted(
    str(path.relative_to(ROOT)) for path in (DOCS / "experiments").glob("[0-9]*.md")
)
DECISIONS = sorted(str(path.relative_to(ROOT)) for path in (DOCS / "decisions").glob("*.md"))
EVERY_PAGE = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))]

FENCED = re.compile(r"^(\s*)```.*?^\1```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
PAPER = re.compile(r"\(https://arxiv\.org/abs/(?:2304\.05430|1909\.10616)\)")
END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\n+")


def text(page: str) -> str:
    return (ROOT / page).read_text()


def prose(markdown: str) -> str:
    """Without code, tables, headings and markup; a list item is a paragraph, code one word."""
    markdown = IMAGE.sub("", COMMENT.sub("", FENCED.sub("\n", markdown)))
    lines = []
    in_item = False
    for line in markdown.splitlines():
        in_item = bool(ITEM.match(line)) or (in_item and line.startswith("  "))
        is_code = line.startswith("    ") and not in_item
        lines.append("" if is_code or line.startswith(("|", "#")) else line)
    plain = LINK.sub(r"\1", CODE.sub("code", "\n".join(lines)))
    return ITEM.sub("\n\n", plain).replace("*", "")


def sentences(page: str) -> list[str]:
    parts = (" ".join(part.split()) for part in END_OF_SENTENCE.split(prose(text(page))))
    return [part for part in parts if part]


def lines(page: str) -> int:
    """As people see them: without comments."""
    return len(COMMENT.sub("", text(page)).splitlines())


def words(page: str) -> int:
    return len(text(page).split())


def test_prose_leaves_out_what_is_no_prose():
    page = "# T\n\nOne `a b` [two](x.md).\n\n    code\n\n| cell |\n\n- item\n  goes on\n\n"
    page += "<!-- figures: x -->\n```\nx\n```\n"
    assert prose(page).split() == ["One", "code", "two.", "item", "goes", "on"]


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_sentences_are_short(page: str):
    long = [each for each in sentences(page) if len(each.split()) > MAX_SENTENCE_WORDS]
    assert long == [], f"{page}: at most {MAX_SENTENCE_WORDS} words a sentence"


def test_the_readme_is_a_screen_and_a_half():
    assert lines("README.md") <= 90


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_has_at_most_800_words(page: str):
    assert words(page) <= 800


@pytest.mark.parametrize("page", HOW_TOS + DECISIONS)
def test_a_how_to_and_a_page_of_decisions_have_at_most_150_lines(page: str):
    assert lines(page) <= 150


@pytest.mark.parametrize("page", EVALUATIONS)
def test_an_evaluation_is_one_page(page: str):
    assert lines(page) <= 80


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_nothing_rests_on_a_script_that_is_gone(page: str):
    told = r"not kept|not in the repository|changed copy|not built in"
    assert re.findall(told, prose(text(page))) == []


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_a_paper_is_linked_where_a_page_first_speaks_of_it(page: str):
    """By its authors' names in headings, which hold no links."""
    shown = "\n".join(
        line for line in text(page).splitlines() if not line.startswith(("#", "    "))
    )
    before = PAPER.split(shown)[0]
    assert re.findall(r"\b[Tt]he papers?\b(?!\])", before) == []


@pytest.mark.parametrize("page", EXPERIMENTS)
def test_an_experiment_has_its_five_parts_and_stands_in_the_index(page: str):
    headings = re.findall(r"^## (.+)$", text(page), re.MULTILINE)
    assert headings == ["Set-up", "Command", "Figures", "Answer"]
    question, answer = text(page).splitlines()[0][2:], text(page).split("## Answer\n\n")[1]
    row = f"| [{question}]({Path(page).name}) | {answer.splitlines()[0]} |"
    assert row in text("docs/experiments/index.md").splitlines()


def test_what_the_readme_shows_of_the_quick_start_is_the_experiments():
    """Typed nowhere but there."""
    experiment = text("docs/experiments/2026-11-28-the-quick-start.md")
    [block] = re.findall(r"(?:^    \w.* {2,}\S.*\n){5,}", experiment, re.MULTILINE)
    assert block in text("README.md")


@pytest.mark.parametrize("page", EXPERIMENTS)
def test_a_benchmark_that_an_experiment_names_is_there(page: str):
    named = re.findall(r"\b((?:benchmarks|tools)/[\w/]+\.(?:py|json\.gz))", text(page))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", README + TUTORIALS + HOW_TOS)
def test_commands_and_options_that_a_page_shows_exist(page: str):
    """Of every indented line `hetfeat COMMAND ...`, and of tables of options."""
    unknown = []
    for line in re.findall(r"^    (?:\w+=\S+ )*hetfeat ([a-z].*)$", text(page), re.MULTILINE):
        command, options = line.split()[0], re.findall(r"(?<=\s)--[a-z][a-z-]*", line)
        unknown += [f"{command} {each}" for each in options if each not in options_of(command)]
    assert unknown == []


@pytest.mark.parametrize("page", HOW_TOS)
def test_a_table_of_options_is_of_the_command_that_it_links_to(page: str):
    tables = re.findall(
        r"((?:^\| `--.*\n)+)[^#]*?commands\.md#hetfeat-(\w+)\)", text(page), re.MULTILINE
    )
    for table, command in tables:
        named = set(re.findall(r"^\| `(--[a-z-]+)`", table, re.MULTILINE))
        assert named and named <= options_of(command), f"{page}: options of {command}"


def test_the_seconds_of_an_effort_are_the_codes():
    [row] = [
        line for line in text("docs/deploy.md").splitlines() if line.startswith("| `--effort`")
    ]
    for effort, budget in BUDGETS.items():
        assert f"`{effort}` {budget.seconds:,} s" in row


def test_the_page_of_your_mlflow_has_every_variable():
    """Of those that the packages and the examples name."""
    files = [
        path
        for folder in ("hetfeat", "registry", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = re.compile(r"\b(?:HETFEAT|MLFLOW|WEBHOOK)_[A-Z0-9_]+\b|\bSOURCE_DATE_EPOCH\b")
    variables = {name for path in files for name in named.findall(path.read_text())}
    table = text("docs/your-mlflow.md").split("## Variables")[1]
    assert variables - set(named.findall(table)) == set()


def options_of(command: str) -> set[str]:
    found = mlproject.cli.load(command)
    commands = [found, *getattr(found, "commands", {}).values()]
    return {name for each in commands for option in each.params for name in option.opts}


def navigation() -> list[dict[str, Any]]:
    """What mkdocs.yml lists, without the tags that only MkDocs reads."""
    listed: list[dict[str, Any]] = yaml.safe_load(re.sub(r"!!\S+", "", text("mkdocs.yml")))["nav"]
    return listed


def titled(entries: list[Any], of: str = "") -> Iterator[tuple[str, str]]:
    """Pages of the navigation with their titles; a page without one has that of its section."""
    for entry in entries:
        for title, value in (entry if isinstance(entry, dict) else {of: entry}).items():
            yield from [(value, title)] if isinstance(value, str) else titled(value, title)


def test_the_navigation_has_every_kind_of_page():
    listed = {page for page, _ in titled(navigation())}
    assert {page.removeprefix("docs/") for page in TUTORIALS + HOW_TOS + EVALUATIONS} <= listed
    assert {page.removeprefix("docs/") for page in EXPERIMENTS} <= listed


def test_llms_txt_has_every_page_of_the_navigation_in_its_order():
    """Of experiments and of decisions their index alone."""
    lines = re.findall(r"^- \[(.+?)\]\((.+?)\.html\): \S", text("docs/llms.txt"), re.MULTILINE)
    pages = [
        (title, page.removesuffix(".md"))
        for page, title in titled(navigation())
        if page.endswith("index.md") or not page.startswith(("experiments/", "decisions/"))
    ]
    assert lines == pages
    assert len(text("docs/llms.txt").splitlines()) <= 80
