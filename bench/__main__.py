"""``script/bench``: every row in one run, a table per runtime, and JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

from bench.bare import BareFailed
from bench.client import Client, Refused
from bench.report import Row, machine, table
from bench.scenarios import SCENARIOS as _COMMANDS_AND_FILES
from bench.scenarios import Sides
from bench.server import ROOT, Server, ServerFailed
from bench.sides import Api, Direct, new_name
from bench.terminals import terminals
from sandboxes.engine.base import Limits
from sandboxes.engine.oci.cgroups import hierarchies
from sandboxes.engine.oci.config import OciConfig
from sandboxes.engine.oci.mounts import read_mounts
from sandboxes.errors import SandboxError

SCENARIOS = {**_COMMANDS_AND_FILES, "terminals": terminals}
_QUICK, _FULL, _BULK_PART = 5, 30, 3


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="sandboxhub-bench-", ignore_cleanup_errors=True) as scratch:
        try:
            rows = asyncio.run(_measure(options, Path(scratch)))
        except (SandboxError, ServerFailed, Refused, BareFailed) as error:
            print(f"bench: {getattr(error, 'detail', error)}", file=sys.stderr)
            return 2
    print()
    for runtime in options.runtimes:
        print(table(runtime, rows), end="\n\n")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": machine(), "rows": [row.as_json() for row in rows]}, indent=1) + "\n")
    missed = [row for row in rows if row.met is False]
    print(f"{sum(row.met is True for row in rows)} targets met, {len(missed)} missed; all numbers are in {options.json}")
    return 1 if options.check and missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="script/bench", description=__doc__, epilog="Exit status: 0, 1 a target was missed (with --check), 2 something broke."
    )
    parser.add_argument("--runtimes", type=_names(("gvisor", "runc")), default=["gvisor", "runc"], help="default: gvisor,runc")
    parser.add_argument("--only", type=_names(tuple(SCENARIOS)), default=list(SCENARIOS), help=f"scenarios, of {','.join(SCENARIOS)}")
    parser.add_argument("--rounds", type=int, default=_FULL, help="samples of each (default: %(default)s); fewer of bulky ones")
    parser.add_argument("--quick", dest="rounds", action="store_const", const=_QUICK, help=f"{_QUICK} rounds")
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    parser.add_argument("--json", type=Path, default=ROOT / "var" / "bench.json", metavar="FILE", help="default: var/bench.json")
    parser.add_argument("--database", metavar="URL", help="an empty database for the server, instead of SQLite")
    return parser.parse_args()


def _names(known: tuple[str, ...]) -> object:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if not set(names) <= set(known):
            raise argparse.ArgumentTypeError(f"choose from {','.join(known)}")
        return names

    return parse


async def _measure(options: argparse.Namespace, scratch: Path) -> list[Row]:
    # The programs and limits of the deployment, from its settings; its data are out of reach.
    os.environ["SANDBOXHUB_HOME"] = str(scratch / "settings")
    os.environ["DJANGO_SETTINGS_MODULE"] = "sandboxhub.settings"
    os.environ.pop("DATABASE_URL", None)
    from django.conf import settings

    programs = {"gvisor": settings.SANDBOXHUB_RUNSC, "runc": settings.SANDBOXHUB_RUNC}
    config = OciConfig(
        instance=secrets.token_hex(6),
        home=scratch / "direct",
        guest=settings.SANDBOXHUB_GUEST,
        runtimes={name: programs[name] for name in options.runtimes},
        state=scratch / "direct-state",
    )
    limits = Limits(
        memory=settings.SANDBOXHUB_MEMORY, cpus=settings.SANDBOXHUB_CPUS, pids=settings.SANDBOXHUB_PIDS, disk=settings.SANDBOXHUB_DISK
    )
    direct, server = Direct(config, limits), Server(scratch / "server", options.runtimes, options.database)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cast("asyncio.Task[object]", asyncio.current_task()).cancel)
    async with AsyncExitStack() as after:
        after.callback(_clean_up, scratch, config)
        after.callback(server.stop)
        key = server.start()
        after.push_async_callback(direct.close)
        await direct.open()
        api = Api(server, key, await Client(server.port, key).open())
        after.push_async_callback(api.close)
        rows: list[Row] = []
        for runtime in options.runtimes:
            rows += await _one(runtime, direct, api, options, scratch)
    return rows


async def _one(runtime: str, direct: Direct, api: Api, options: argparse.Namespace, scratch: Path) -> list[Row]:
    """Every scenario on one runtime."""
    rows: list[Row] = []
    name, guest = await direct.start(runtime)
    bare = direct.bare(runtime, name, scratch / f"bare-{runtime}")
    container, lease = new_name(), await api.lease(runtime)
    try:
        bare.prepare(container)
        bare.start(container)
        sides = Sides(runtime, bare, container, guest, api, lease)
        for scenario in options.only:
            print(f"{runtime}: {scenario} ...", flush=True)
            rounds = max(1, options.rounds // _BULK_PART) if scenario == "bulk" else options.rounds
            rows += await SCENARIOS[scenario](sides, rounds)
    finally:
        guest.close()
        bare.close()
    await api.end(lease)
    return rows


def _clean_up(scratch: Path, config: OciConfig) -> None:
    """Remove what deployments keep outside of their homes for their next start."""
    instances = [config.instance, *(path.name for path in (scratch / "server" / "oci").glob("?" * 12))]
    states = [Path("/run") / f"sandboxhub-{instance}" for instance in instances]
    for mount in reversed(read_mounts()):
        if any(Path(mount.target).is_relative_to(place) for place in (scratch, *states)):
            subprocess.run(["umount", mount.target], check=True)
    for state in states:
        shutil.rmtree(state, ignore_errors=True)
    if not config.rootless:
        for parent in (hierarchy / f"sandboxhub-{instance}" for hierarchy in hierarchies() for instance in instances):
            if parent.exists():
                parent.rmdir()


if __name__ == "__main__":
    sys.exit(main())
