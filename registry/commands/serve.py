"""`hetfeat serve`: serves a bundle over HTTP, verified by what is installed here."""

import click

from registry.commands import _cli


@_cli.command("serve")
@_cli.argument("bundle", metavar="BUNDLE-or-URI")
@_cli.option("--stage", help="For a registered name; production if nothing else is said.")
@_cli.option("--host", default="127.0.0.1", help="Address to listen on.")
@_cli.option("--port", type=click.IntRange(1, 65535), default=5000, help="Port to listen on.")
@_cli.option("--max-bytes", type=click.IntRange(1), default=32 << 20, help="Of a request; 413.")
@_cli.option("--max-waiting", type=click.IntRange(1), default=32, help="Requests at once; 503.")
@_cli.unrecorded
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
    from registry.serving import serve

    if stage is None and "/" not in bundle and "@" not in bundle:
        stage = "production"
    serve(bundle, stage, host, port, max_bytes, max_waiting, unrecorded)
