"""A child that says what its environment is."""

import os
import sys
from multiprocessing.connection import Connection

from hetfeat.measure.worker_loop import serve


class Service:
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), Service(), lambda request, error: "run")
