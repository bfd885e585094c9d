"""Attacks that run inside a sandbox, as Python programs, and what they print."""

from __future__ import annotations

_CALLS = """
import ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def tell(name, result):
    error = ctypes.get_errno()
    print(name, "ok" if result not in (-1, None) else os.strerror(error), flush=True)
def attempt(name, action):
    try:
        action()
    except OSError as error:
        print(name, error.strerror or error, flush=True)
    else:
        print(name, "ok", flush=True)
"""

#: Everything that one process can do to another, done to the guest. One line per attempt: its name, and ``ok`` or why not.
ATTACK_FIRST_PROCESS = (
    _CALLS
    + """
for signal in (9, 19, 11, 3, 6, 15, 1, 10):
    attempt(f"kill-{signal}", lambda: os.kill(1, signal))
attempt("killpg", lambda: os.killpg(1, 9))
attempt("pidfd", lambda: __import__("signal").pidfd_send_signal(os.pidfd_open(1), 9))
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
tell("ptrace-attach", libc.ptrace(PTRACE_ATTACH, 1, None, None))
tell("ptrace-seize", libc.ptrace(PTRACE_SEIZE, 1, None, None))
limit = struct.pack("QQ", 0, 0)
for resource in (7, 6, 0, 9):  # NOFILE, NPROC, CPU, AS
    tell(f"prlimit-{resource}", libc.prlimit(1, resource, limit, None))
buffer = ctypes.create_string_buffer(64)
class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
local = IoVec(ctypes.cast(buffer, ctypes.c_void_p), 64)
remote = IoVec(ctypes.c_void_p(0x400000), 64)
tell("vm-read", libc.process_vm_readv(1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))
tell("vm-write", libc.process_vm_writev(1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))
PIDFD_GETFD = 438
pidfd = os.pidfd_open(1)
for fd in range(12):
    tell(f"pidfd-getfd-{fd}", libc.syscall(PIDFD_GETFD, pidfd, fd, 0))
for name, flags in (("mem", os.O_RDWR), ("environ", os.O_RDONLY), ("maps", os.O_RDONLY), ("auxv", os.O_RDONLY), ("syscall", os.O_RDONLY)):
    attempt(f"proc-{name}", lambda: os.read(os.open(f"/proc/1/{name}", flags), 1))
for name in ("fd", "fdinfo", "map_files"):
    attempt(f"proc-{name}", lambda: os.listdir(f"/proc/1/{name}"))
for name in ("root", "cwd", "exe"):
    attempt(f"proc-{name}", lambda: os.readlink(f"/proc/1/{name}"))
for fd in range(12):
    attempt(f"open-fd-{fd}", lambda: os.open(f"/proc/1/fd/{fd}", os.O_WRONLY))
for name, text in (("oom_score_adj", "1000"), ("coredump_filter", "0"), ("clear_refs", "1"), ("setgroups", "deny"), ("uid_map", "0 0 1")):
    attempt(f"write-{name}", lambda: os.write(os.open(f"/proc/1/{name}", os.O_WRONLY), text.encode()))
attempt("setpriority", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
tell("sched-setscheduler", libc.sched_setscheduler(1, 3, struct.pack("i", 0)))
attempt("setuid", lambda: os.setuid(0))
attempt("setgid", lambda: os.setgid(0))
attempt("setgroups", lambda: os.setgroups([0]))
"""
)

#: Talk to the guest's socket as itself would. Prints what came back, in bytes; nothing may.
SPEAK = (
    _CALLS
    + """
came = 0
for first in (b"F", b"C", b"\\0" * 9, b"\\xff" * 64):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(15)
        sock.connect("\\0guest")
        ours, theirs = socket.socketpair()
        ours.settimeout(15)
        try:
            socket.send_fds(sock, [first], [theirs.fileno(), theirs.fileno()])
            came += len(sock.recv(100))
        except OSError:
            pass
        theirs.close()
        try:
            came += len(ours.recv(100))
        except OSError:
            pass
print("came", came)
"""
)

#: 3000 connections to the guest's socket that say nothing, held until the file ``enough`` is there.
CONNECT_3000 = (
    _CALLS
    + """
import resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
for _ in range(3000):
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    try:
        sock.connect("\\0guest")
    except OSError:
        pass
    held.append(sock)
print("holding", len(held), flush=True)
while not os.path.exists("enough"):
    time.sleep(0.1)
"""
)

#: Bytes that look like frames (an EXIT, a HELLO, a length without end) into every descriptor of every process that can be opened.
FORGE = """
import glob, os
frames = b"".join((
    b"\\0\\0\\0\\x09\\x87\\0\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\0\\0\\0",
    b"\\0\\0\\0\\x34\\x81\\0\\0\\0\\0" + b"\\0" * 52,
    b"\\xff\\xff\\xff\\xff\\x83\\0\\0\\0\\x01",
))
wrote = 0
for path in glob.glob("/proc/[0-9]*/fd/*"):
    if path.startswith((f"/proc/{os.getpid()}/", "/proc/self/", "/proc/thread-self/")):
        continue
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        wrote += os.write(fd, frames) > 0
    except OSError:
        pass
print("wrote", wrote)
"""
