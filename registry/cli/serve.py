"""`hetfeat serve`: serves a bundle over HTTP, verified by what is installed here."""

import click

from registry.cli import app


@app.command("serve")
@app.argument("bundle", metavar="BUNDLE-or-URI")
@app.option("--stage", help="For a registered name; production if nothing else is said.")
@app.option("--host", default="127.0.0.1", help="Address to listen on.")
@app.option("--port", type=click.IntRange(1, 65535), default=5000, help="Port to listen on.")
@app.option("--max-bytes", type=click.IntRange(1), default=32 << 20, help="Of a request; 413.")
@app.option("--max-waiting", type=click.IntRange(1), default=32, help="Requests at once; 503.")
@app.unrecorded
def command(
    bundle: str,
    stage: str | None,
    host: str,
    port: int,
    max_bytes: int,
    max_waiting: int,
    unrecorded: bool,
) -> None:
    """Serve a bundle as `mlflow models serve` does, verified by the code installed here.

    With HETFEAT_PUBLIC_KEY set, only one that is signed by the key. Nothing of the bundle's own
    Python code runs.
    """
    from registry.jobs.serve import serve

    if stage is None and "/" not in bundle and "@" not in bundle:
        stage = "production"
    serve(bundle, stage, host, port, max_bytes, max_waiting, unrecorded)
