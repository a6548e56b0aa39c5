"""OpenStack Swift with its S3 interface: four processes, one copy of everything."""

import getpass
import secrets
import subprocess
from pathlib import Path

from common import ServiceError, background, free_ports, log, virtual_environment, wait_for

REQUIREMENTS = ["setuptools<81", "swift==2.38.3", "keystonemiddleware==13.0.1"]
REGION = "us-east-1"
KINDS = ("account", "container", "object")
PIPELINE = (
    "catch_errors gatekeeper healthcheck cache listing_formats bulk s3api tempauth copy slo dlo "
    "versioned_writes symlink proxy-server"
)
PLAIN_FILTERS = [
    name
    for name in PIPELINE.split()
    if name not in ("cache", "s3api", "tempauth", "versioned_writes", "proxy-server")
]


def start(folder: Path, environment: Path) -> tuple[dict[str, str], list[int]]:
    """Starts the servers; returns `endpoint`, `user`, `password`, and the process ids."""
    python = virtual_environment(environment, REQUIREMENTS)
    programs = python.parent
    (folder / "disk" / "d1").mkdir(parents=True)
    proxy_port, *ports, no_cache_port = free_ports(5)
    password = secrets.token_hex(16)
    (folder / "swift.conf").write_text(
        "[swift-hash]\n"
        f"swift_hash_path_prefix = {secrets.token_hex(8)}\n"
        f"swift_hash_path_suffix = {secrets.token_hex(8)}\n"
        "[storage-policy:0]\nname = single\ndefault = yes\n"
    )
    for kind, port in zip(KINDS, ports, strict=True):
        _ring(programs, folder, kind, port)
        (folder / f"{kind}.conf").write_text(
            _section(
                "DEFAULT",
                bind_port=port,
                devices=folder / "disk",
                mount_check="false",
                disable_fallocate="true",
                **_common(folder),
            )
            + _section("pipeline:main", pipeline=f"{kind}-server")
            + _section(f"app:{kind}-server", use=f"egg:swift#{kind}")
        )
    proxy = folder / "proxy.conf"
    proxy.touch(mode=0o600)
    proxy.write_text(_proxy(folder, proxy_port, no_cache_port, password))
    pids = []
    for kind in (*KINDS, "proxy"):
        command = [str(programs / f"swift-{kind}-server"), str(folder / f"{kind}.conf")]
        pids.append(background(command, folder / f"{kind}.log", {}))
    endpoint = f"http://127.0.0.1:{proxy_port}"
    wait_for(f"{endpoint}/healthcheck", folder / "proxy.log")
    log(f"S3 on port {proxy_port}")
    return {"endpoint": endpoint, "user": "hetfeat:hetfeat", "password": password}, pids


def make_bucket(storage: dict[str, str], bucket: str) -> None:
    """Creates a bucket."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3",
        endpoint_url=storage["endpoint"],
        region_name=REGION,
        aws_access_key_id=storage["user"],
        aws_secret_access_key=storage["password"],
    )
    try:
        client.create_bucket(Bucket=bucket)
    except (BotoCoreError, ClientError) as error:
        raise ServiceError(f"no bucket: {error}") from error


def _ring(programs: Path, folder: Path, kind: str, port: int) -> None:
    builder = str(folder / f"{kind}.builder")
    for step in (
        ["create", "6", "1", "0"],
        ["add", f"r1z1-127.0.0.1:{port}/d1", "1"],
        ["rebalance"],
    ):
        command = [str(programs / "swift-ring-builder"), builder, *step]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 1):  # 1 is a warning
            raise ServiceError(f"swift-ring-builder {step[0]} failed: {done.stdout.strip()}")


def _proxy(folder: Path, port: int, no_cache_port: int, password: str) -> str:
    parts = [
        _section("DEFAULT", bind_port=port, **_common(folder)),
        _section("pipeline:main", pipeline=PIPELINE),
        _section("app:proxy-server", use="egg:swift#proxy", account_autocreate="true"),
        # Nobody listens there: a single node does without memcached.
        _section(
            "filter:cache", use="egg:swift#memcache", memcache_servers=f"127.0.0.1:{no_cache_port}"
        ),
        _section("filter:s3api", use="egg:swift#s3api", location=REGION),
        _section(
            "filter:tempauth", use="egg:swift#tempauth", user_hetfeat_hetfeat=f"{password} .admin"
        ),
        _section(
            "filter:versioned_writes",
            use="egg:swift#versioned_writes",
            allow_versioned_writes="true",
            allow_object_versioning="true",
        ),
    ]
    parts += [_section(f"filter:{name}", use=f"egg:swift#{name}") for name in PLAIN_FILTERS]
    return "".join(parts)


def _common(folder: Path) -> dict[str, object]:
    return {
        "bind_ip": "127.0.0.1",
        "workers": 0,
        "user": getpass.getuser(),
        "swift_dir": folder,
        # Otherwise each goes to the system's log.
        "log_level": "WARNING",
    }


def _section(name: str, **settings: object) -> str:
    lines = [f"{key} = {value}" for key, value in settings.items()]
    return "\n".join([f"[{name}]", *lines, "", ""])
