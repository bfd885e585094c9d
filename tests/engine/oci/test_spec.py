"""The runtime's configuration, as it is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.engine.base import Limits, Spec
from sandboxes.engine.oci import seccomp
from sandboxes.engine.oci.spec import Place, build, sentry_pids, tmpfs_sizes

SPEC = Spec(
    "m-" + "0" * 24 + "-0001",
    "gvisor",
    "host",
    "/mnt/data",
    limits=Limits(memory=1 << 30, cpus=1.5, pids=100, disk=1 << 30),
    labels={"lease": "m_1"},
)
ROOT = Place(
    runtime="gvisor",
    rootfs=Path("/h/rootfs"),
    usr=Path("/usr"),
    workdir=Path("/h/mnt"),
    guest=Path("/h/guest"),
    cgroup="/hub/m",
    user=None,
    bounds_disk=True,
    bounds_pids=True,
    ceilings={},
)
RUNC = replace(ROOT, runtime="runc", bounds_pids=False)
ROOTLESS = replace(ROOT, cgroup=None, user=(1234, 5678), bounds_disk=False)


def limits_of(config) -> dict[str, int]:
    assert all(limit["soft"] == limit["hard"] for limit in config["process"]["rlimits"])
    return {limit["type"]: limit["hard"] for limit in config["process"]["rlimits"]}


@pytest.mark.parametrize("place", [ROOT, RUNC, ROOTLESS, replace(ROOTLESS, runtime="runc")])
def test_what_holds_in_every_mode(place: Place):
    config = build(SPEC, place)
    json.dumps(config)
    assert config["root"] == {"path": "/h/rootfs", "readonly": True}
    assert config["hostname"] == "sandbox"
    assert config["process"]["noNewPrivileges"]
    assert config["process"]["env"] == ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]
    assert {"network", "pid", "mount", "ipc", "uts"} <= {namespace["type"] for namespace in config["linux"]["namespaces"]}
    assert all("path" not in namespace for namespace in config["linux"]["namespaces"])
    assert limits_of(config)["RLIMIT_CORE"] == 0
    assert config["annotations"] == {"sandboxhub.lease": "m_1"}
    writable = [m["destination"] for m in config["mounts"] if m["type"] == "bind" and "ro" not in m["options"]]
    assert writable == ["/mnt/data"]
    for mount in config["mounts"]:
        assert "nosuid" in mount["options"], mount
        assert mount["type"] != "tmpfs" or any(option.startswith("size=") for option in mount["options"]), mount


def test_as_root_the_guest_has_three_capabilities_and_the_commands_a_user_of_their_own():
    process = build(SPEC, ROOT)["process"]
    assert process["user"] == {"uid": 0, "gid": 0}
    assert set(process["capabilities"]["bounding"]) == {"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}
    assert "--uid 1000 --gid 1000" in " ".join(process["args"])


@pytest.mark.parametrize(("place", "own"), [(ROOT, True), (RUNC, False), (ROOTLESS, False)])
def test_the_guest_is_told_when_commands_cannot_use_up_its_threads(place: Place, own: bool):
    assert ("--own-pids" in build(SPEC, place)["process"]["args"]) is own


@pytest.mark.parametrize("runtime", ["gvisor", "runc"])
def test_rootless_has_no_capability_and_no_cgroup(runtime: str):
    config = build(SPEC, replace(ROOTLESS, runtime=runtime))
    assert set(map(len, config["process"]["capabilities"].values())) == {0}
    assert "--uid" not in config["process"]["args"]
    assert "cgroupsPath" not in config["linux"]
    assert "resources" not in config["linux"]
    assert limits_of(config)["RLIMIT_FSIZE"] == 1 << 30
    if runtime == "runc":
        assert config["linux"]["uidMappings"] == [{"containerID": 0, "hostID": 1234, "size": 1}]
        assert config["linux"]["gidMappings"] == [{"containerID": 0, "hostID": 5678, "size": 1}]


def test_limits_of_gvisor_leave_the_sentry_room():
    config = build(SPEC, ROOT)
    assert limits_of(config)["RLIMIT_NPROC"] == 100
    assert config["linux"]["resources"]["pids"]["limit"] == sentry_pids(100) == 456
    assert config["linux"]["resources"]["memory"] == {"limit": 1 << 30, "swap": 1 << 30}
    assert config["linux"]["resources"]["cpu"] == {"quota": 150_000, "period": 100_000}


def test_limits_of_runc_are_the_cgroup_s():
    """RLIMIT_NPROC counts a user's processes on the whole host."""
    config = build(SPEC, RUNC)
    assert "RLIMIT_NPROC" not in limits_of(config)
    assert 100 < config["linux"]["resources"]["pids"]["limit"] <= 132
    assert config["linux"]["seccomp"] == seccomp.profile()
    assert "seccomp" not in build(SPEC, ROOT)["linux"]


def test_no_limit_exceeds_the_engine_s_own():
    """Without CAP_SYS_RESOURCE even root cannot raise one."""
    assert limits_of(build(SPEC, replace(ROOT, ceilings={"RLIMIT_NOFILE": 1024})))["RLIMIT_NOFILE"] == 1024


@pytest.mark.parametrize("memory", [16 << 20, 128 << 20, 1 << 30, 64 << 30])
def test_memory_file_systems_fit_into_half_of_memory(memory: int):
    sizes = tmpfs_sizes(memory)
    assert sizes.tmp + sizes.shm + sizes.run + (1 << 20) <= memory // 2
    assert min(sizes.tmp, sizes.shm, sizes.run) >= 1 << 20


def test_an_image_with_its_own_usr_keeps_it():
    assert "/usr" not in [mount["destination"] for mount in build(SPEC, replace(ROOT, usr=None))["mounts"]]


@pytest.mark.parametrize(
    ("place", "option"), [(ROOT, "rbind"), (RUNC, "bind"), (ROOTLESS, "rbind"), (replace(ROOTLESS, runtime="runc"), "rro")]
)
def test_what_is_mounted_beneath_usr_is_never_writable(place: Place, option: str):
    """Under runc a read-only bind leaves the mounts beneath it as they are: they are left out, or made read-only as well."""
    (usr,) = [mount for mount in build(SPEC, place)["mounts"] if mount["destination"] == "/usr"]
    assert option in usr["options"]
    assert "ro" in usr["options"]
    assert place.runtime == "gvisor" or "rbind" not in usr["options"] or "rro" in usr["options"]


def test_seccomp_refuses_sockets_that_no_namespace_bounds():
    rules = seccomp.profile()["syscalls"]
    assert {rule["args"][0]["value"] for rule in rules if rule["names"] == ["socket"]} == {38, 40}  # AF_ALG, AF_VSOCK
    assert "socketcall" in {name for rule in rules for name in rule["names"]}


def test_seccomp_refuses_namespaces_and_lets_threads_be():
    rules = seccomp.profile()["syscalls"]
    masks = [rule["args"][0]["value"] for rule in rules if rule["names"] == ["clone"]]
    assert 0x10000000 in masks  # CLONE_NEWUSER
    threads = 0x3D0F00  # what the C library asks for to make one
    assert not any(threads & mask for mask in masks)
    assert {"unshare", "mount", "setns", "bpf"} <= {name for rule in rules for name in rule["names"]}
