"""The system calls that runc sandboxes are refused. Pure.

runc shares the host's kernel. This takes away the parts that no command of a tenant needs and that have carried most of the ways out:
namespaces, mounts, kernel keys, BPF, io_uring and the like. gVisor has no use for it: its kernel is its own.
"""

from __future__ import annotations

import platform
from typing import Any

_EPERM = 1
_ENOSYS = 38
_EAFNOSUPPORT = 97
#: Sockets that no network namespace bounds: AF_VSOCK reaches the hypervisor and its other machines, AF_ALG the kernel's ciphers.
_REFUSED_FAMILIES = (38, 40)
_CLONE_NAMESPACES = 0x7E020000  # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET

_REFUSED = [
    "acct",
    "add_key",
    "bpf",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setns",
    "socketcall",
    "settimeofday",
    "stime",
    "swapoff",
    "swapon",
    "syslog",
    "umount",
    "umount2",
    "unshare",
    "userfaultfd",
    "uselib",
    "vhangup",
    "vm86",
    "vm86old",
]

_ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}


def profile() -> dict[str, Any]:
    """``linux.seccomp`` of a runtime configuration."""
    rules: list[dict[str, Any]] = [
        {"names": _REFUSED, "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
        # What clone3 is asked for lies in memory that a filter cannot read: the C libraries fall back to clone on ENOSYS.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
    ]
    # A rule's conditions are all to hold, so each namespace has its own.
    for bit in range(32):
        if _CLONE_NAMESPACES & 1 << bit:
            condition = {"index": 0, "value": 1 << bit, "valueTwo": 1 << bit, "op": "SCMP_CMP_MASKED_EQ"}
            rules.append({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM, "args": [condition]})
    for family in _REFUSED_FAMILIES:
        condition = {"index": 0, "value": family, "op": "SCMP_CMP_EQ"}
        rules.append({"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": _EAFNOSUPPORT, "args": [condition]})
    found: dict[str, Any] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}
    architectures = _ARCHITECTURES.get(platform.machine())
    if architectures:
        found["architectures"] = architectures
    return found
