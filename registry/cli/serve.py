"""`hetfeat serve`: serves a bundle over HTTP, verified by what is installed here."""

from dataclasses import dataclass

import click

from registry.cli import app
from registry.cli.options import argument, option, unrecorded_option
from registry.cli.params import VERSION_OR_FOLDER


@dataclass(frozen=True)
class ServeOptions:
    """Options of `hetfeat serve`."""

    bundle: str = argument(metavar="BUNDLE-or-URI", type=VERSION_OR_FOLDER)
    stage: str | None = option(None, "For a registered name; production if nothing else is said.")
    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(5000, "Port to listen on.", type=click.IntRange(1, 65535))
    max_bytes: int = option(32 << 20, "Of a request; 413.", type=click.IntRange(1))
    max_waiting: int = option(32, "Requests at once; 503.", type=click.IntRange(1))
    unrecorded: bool = unrecorded_option()


@app.command("serve", ServeOptions, example="hetfeat serve bundle --port 8080")
def command(options: ServeOptions) -> None:
    """Serve a bundle as `mlflow models serve` does, verified by the code installed here.

    With HETFEAT_PUBLIC_KEY set, only one that is signed by the key. Nothing of the bundle's own
    Python code runs.
    """
    from registry.jobs.serve import serve

    bundle, stage = options.bundle, options.stage
    if stage is None and "/" not in bundle and "@" not in bundle:
        stage = "production"
    serve(
        bundle,
        stage,
        options.host,
        options.port,
        options.max_bytes,
        options.max_waiting,
        options.unrecorded,
    )
