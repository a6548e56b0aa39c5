"""A child that says what its environment is."""

import os
import sys
from multiprocessing.connection import Connection
from typing import Literal

from hetfeat.measure.messages import Message
from hetfeat.measure.worker_loop import serve


class Variable(Message[str | None]):
    do: Literal["variable"] = "variable"
    name: str


def variable(request: Variable) -> str | None:
    return os.environ.get(request.name)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), {Variable: variable}, lambda request, error: "run")
