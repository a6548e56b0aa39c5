"""Coverage guides the changes, where atheris is installed: `make fuzz ARGS="--guide coverage"`.

libFuzzer takes its process over and never returns, so each target has a process of its own.
"""

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz import run
from tests.fuzz.mutate import mutated

OURS = ["hetfeat", "registry"]
_SHARE_OF_OURS = 0.7
"""Of changes by `mutate`, which knows JSON; the others are libFuzzer's."""


def fuzz(name: str, seconds: float, seed: int) -> tuple[int, dict[str, tuple[bytes, str]]]:
    """As `run.fuzz`; what ends the process itself is found, too."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        command = [sys.executable, "-m", __name__, name, str(max(1, round(seconds))), str(seed)]
        done = subprocess.run([*command, folder], capture_output=True)
        found = {
            path.with_suffix(".place").read_text(): (
                path.with_suffix(".input").read_bytes(),
                path.read_text(),
            )
            for path in out.glob("*.report")
        }
        said = done.stderr.decode(errors="replace")
        for path in (p for kind in ("crash", "timeout", "oom") for p in out.glob(f"{kind}-*")):
            found[path.name] = path.read_bytes(), said[-2000:]
        if not (tried := re.search(r"Done (\d+) runs", said)) and not found:
            raise RuntimeError(f"libFuzzer ended with {done.returncode}: {said[-2000:]}")
        return int(tried[1]) if tried else 0, found


def _guided(name: str, seconds: str, seed: str, out: Path) -> None:
    """The target's own process."""
    import atheris

    (out / "trials").mkdir()
    (out / "corpus").mkdir()
    with atheris.instrument_imports(include=OURS):
        run.warm_up(name, out / "trials")

    def one(data: bytes) -> None:
        run.catch_alarms()  # libFuzzer has its own
        if trouble := run.trial(name, data, out / "trials"):
            place = run.place_of(trouble)
            path = out / f"{abs(hash(place))}.report"
            path.with_suffix(".input").write_bytes(data)
            path.with_suffix(".place").write_text(place)
            path.write_text(trouble)

    def changed(data: bytes, most_bytes: int, seed: int) -> bytes:
        rng = random.Random(seed)
        ours = rng.random() < _SHARE_OF_OURS
        made = mutated(data, rng) if ours else atheris.Mutate(data, most_bytes)
        return bytes(made[:most_bytes])

    options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={run.LONGEST}"]
    options += ["-timeout=0", "-rss_limit_mb=0", f"-artifact_prefix={out}/"]
    folders = [str(out / "corpus"), str(run.CORPUS / name)]
    atheris.Setup(["fuzz", *options, *folders], one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    _guided(*sys.argv[1:4], Path(sys.argv[4]))
