"""Our persistent builder and runner behind TVM's interfaces, for its own search to use.

Run as a module this is the measuring child: its programs are scheduled modules, not traces.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tvm
import tvm.s_tir.meta_schedule as ms
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from hetfeat.measure.child import Service, main
from hetfeat.measure.local import LocalMeasurer
from hetfeat.measure.messages import AddTask
from hetfeat.records import Program, Task

TASK = Task("scheduled", "scheduled", (), "float32", 0.0)


class ScheduledService(Service):
    """Builds modules that TVM's search has scheduled."""

    def add_task(self, request: AddTask) -> None:
        """Nothing is known beforehand."""

    def _compile(self, task, trace):
        module = tvm.ir.load_json(trace)
        arguments = ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True)
        shapes = [(tuple(int(n) for n in a.shape), str(a.dtype)) for a in arguments]
        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
        return tvm.compile(module, self._target), shapes


@contextmanager
def builder_and_runner(profile) -> Iterator[dict[str, object]]:
    """`builder` and `runner` for `tune_relax`: the builder hands modules on, the runner does all.

    Our measurer builds ahead of running by itself; TVM's loop would wait between the two.
    """

    @derived_object
    class Builder(PyBuilder):
        def build(self, build_inputs):
            made = []
            for given in build_inputs:
                folder = Path(tempfile.mkdtemp())  # TVM removes the folder of each artifact
                (folder / "module.json").write_text(tvm.ir.save_json(given.mod))
                made.append(BuilderResult(str(folder / "module.json"), None))
            return made

    @derived_object
    class Future(PyRunnerFuture):
        def __init__(self, measured):
            super().__init__()
            self.measured = measured

        def done(self):
            return True

        def result(self):
            error = self.measured.error
            return RunnerResult(None if error else list(self.measured.latencies_s), error)

    @derived_object
    class Runner(PyRunner):
        def run(self, runner_inputs):
            programs = [Program(TASK, Path(g.artifact_path).read_text()) for g in runner_inputs]
            unique = list({program.key: program for program in programs}.values())
            found = {m.program.key: m for m in measurer.measure(unique)}
            return [Future(found[program.key]) for program in programs]

    with LocalMeasurer(profile, child="benchmarks.stock_measurer") as measurer:
        measurer.add_task(TASK, "")
        yield {"builder": Builder(), "runner": Runner()}


if __name__ == "__main__":
    main(ScheduledService, sys.argv)
