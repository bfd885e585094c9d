"""``script/bench``: every row in one run, a table per runtime, and JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

from bench.bare import BareFailed
from bench.client import Client, Refused
from bench.kubernetes import kubernetes
from bench.oci import oci
from bench.report import Row, machine, table
from bench.scenarios import SCENARIOS as _COMMANDS_AND_FILES
from bench.scenarios import Sides
from bench.server import ROOT, Server, ServerFailed
from bench.sides import Api, Bench
from bench.terminals import terminals
from sandboxes.engine.base import Limits
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
    parser.add_argument(
        "--engine",
        choices=("oci", "kubernetes"),
        default="oci",
        help="default: oci; kubernetes: in the cluster of KUBECONFIG, of an admin's, or one of script/cluster",
    )
    parser.add_argument("--runtimes", type=_names(("gvisor", "runc")), default=["gvisor", "runc"], help="default: gvisor,runc")
    parser.add_argument("--only", type=_names(tuple(SCENARIOS)), help=f"scenarios, of {','.join(SCENARIOS)} (terminals: oci only)")
    parser.add_argument("--rounds", type=int, default=_FULL, help="samples of each (default: %(default)s); fewer of bulky ones")
    parser.add_argument("--quick", dest="rounds", action="store_const", const=_QUICK, help=f"{_QUICK} rounds")
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    parser.add_argument("--json", type=Path, default=ROOT / "var" / "bench.json", metavar="FILE", help="default: var/bench.json")
    parser.add_argument("--database", metavar="URL", help="an empty database for the server, instead of SQLite")
    options = parser.parse_args()
    if options.engine == "kubernetes" and "terminals" in (options.only or ()):
        parser.error("terminals are measured with the oci engine")
    options.only = options.only or list(SCENARIOS if options.engine == "oci" else _COMMANDS_AND_FILES)
    return options


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

    limits = Limits(
        memory=settings.SANDBOXHUB_MEMORY, cpus=settings.SANDBOXHUB_CPUS, pids=settings.SANDBOXHUB_PIDS, disk=settings.SANDBOXHUB_DISK
    )
    home = scratch / "server"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cast("asyncio.Task[object]", asyncio.current_task()).cancel)
    async with AsyncExitStack() as after:
        if options.engine == "kubernetes":
            bench = await after.enter_async_context(kubernetes(options.runtimes, limits, settings.SANDBOXHUB_GUEST))
        else:
            programs = {"gvisor": settings.SANDBOXHUB_RUNSC, "runc": settings.SANDBOXHUB_RUNC}
            used = {name: programs[name] for name in options.runtimes}
            bench = await after.enter_async_context(oci(used, limits, settings.SANDBOXHUB_GUEST, scratch, home))
        server = Server(home, options.runtimes, options.database, bench.engine, bench.environment)
        after.callback(server.stop)
        key = server.start()
        after.push_async_callback(bench.direct.close)
        await bench.direct.open()
        api = Api(server, key, await Client(server.port, key).open())
        after.push_async_callback(api.close)
        rows: list[Row] = []
        for runtime in options.runtimes:
            rows += await _one(runtime, bench, api, options)
    return rows


async def _one(runtime: str, bench: Bench, api: Api, options: argparse.Namespace) -> list[Row]:
    """Every scenario on one runtime."""
    rows: list[Row] = []
    name, guest = await bench.direct.start(runtime)
    bare = bench.baseline(runtime, name)
    lease = await api.lease(runtime)
    try:
        await bare.open()
        sides = Sides(bench.engine, runtime, bare, guest, api, lease)
        for scenario in options.only:
            print(f"{runtime}: {scenario} ...", flush=True)
            rounds = max(1, options.rounds // _BULK_PART) if scenario == "bulk" else options.rounds
            rows += await SCENARIOS[scenario](sides, rounds)
    finally:
        guest.close()
        await bare.close()
    await api.end(lease)
    return rows


if __name__ == "__main__":
    sys.exit(main())
