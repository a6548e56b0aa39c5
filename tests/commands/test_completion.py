"""What the Tab key offers, asked for as a shell does it."""

import os
import subprocess
import sys

import pytest

LISTS_WHAT_IT_IMPORTS = """
import atexit, sys
atexit.register(lambda: print("IMPORTED", *{name.partition(".")[0] for name in sys.modules}))
import mlproject
mlproject.main()
"""


def completed(project, words: str, code: str = "import mlproject; mlproject.main()") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=os.environ
        | {
            "_HETFEAT_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def values(project, words: str) -> list[str]:
    """What is offered; a file's own beginning stands for all files."""
    return [line.partition(",")[2] for line in completed(project, words).splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("hetfeat de", ["demo", "deploy", "devices"]),
        ("hetfeat devices p", ["probe"]),
        ("hetfeat deploy --ef", ["--effort"]),
        ("hetfeat deploy --effort q", ["quick"]),
        ("hetfeat promote x 1 --to st", ["staging"]),
        ("hetfeat train --model m", ["mlp"]),
        ("hetfeat train --split by_ta", ["by_task", "by_target"]),
        ("hetfeat search --strategy gbfs,na", ["gbfs,na2c"]),
        ("hetfeat import log --format kernel", ["kernel-tuner"]),
        ("hetfeat deploy x --device nvidia-a1", ["nvidia-a1", "nvidia-a100"]),
        ("hetfeat devices show nvidia-a1", ["nvidia-a1", "nvidia-a100"]),
        ("hetfeat collect --device local,nvidia-a1", ["local,nvidia-a1", "local,nvidia-a100"]),
        ("hetfeat deploy bert_b", ["bert_b", "bert_base"]),
        ("hetfeat collect --network vgg16,bert_b", ["vgg16,bert_b", "vgg16,bert_base"]),
        ("hetfeat run bun", ["bun"]),
        ("hetfeat import lo", ["lo"]),
        ("hetfeat train --records rec", ["rec"]),
        ("hetfeat nothing", []),
    ],
)
def test_offers(project, words, offered):
    assert values(project, words) == offered


def test_names_of_commands_are_offered_without_importing_one(project):
    printed = completed(project, "hetfeat ", LISTS_WHAT_IT_IMPORTS)
    imported = printed.split("IMPORTED")[1].split()
    assert "registry" in imported
    assert not {"mlflow", "numpy", "tvm", "torch", "pandas", "yaml"} & set(imported)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(project, shell):
    done = subprocess.run(
        [sys.executable, "-m", "mlproject"],
        cwd=project,
        env=os.environ | {"_HETFEAT_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"_HETFEAT_COMPLETE={shell}_complete" in done.stdout
