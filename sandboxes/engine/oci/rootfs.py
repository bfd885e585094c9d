"""Root file systems: the built-in ``host``, those that the operator put into ``images``, and the directory of the guest. Blocking calls."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandboxes.engine.oci.config import HOST_IMAGE, IMAGE_NAME, TENANT_ID, Paths
from sandboxes.errors import EngineError

_PROGRAM_DIRECTORIES = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_DIRECTORIES = ("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr", "var", "work", ".guest", "mnt/data")
_LINKS = {"var/tmp": "../tmp", "var/run": "../run", "etc/mtab": "../proc/self/mounts"}

#: What programs in the host's /usr need of its /etc, and what no secret is kept in. Only what everybody may read is taken.
_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "ethertypes",
    "fonts",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "magic",
    "magic.mime",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "rpc",
    "services",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xattr.conf",
)
_ETC_PATTERNS = ("java-*-openjdk", "python3*")
_OWN = {
    "etc/passwd": (
        f"root:x:0:0:root:/root:/bin/sh\nsandbox:x:{TENANT_ID}:{TENANT_ID}:sandbox:/work:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    ),
    "etc/group": f"root:x:0:\ntty:x:5:\nsandbox:x:{TENANT_ID}:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "etc/hostname": "sandbox\n",
    "etc/resolv.conf": "",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    "etc/shells": "/bin/sh\n/bin/bash\n",
    "etc/profile": '[ -z "$BASH_VERSION" ] || [ -z "$PS1" ] || . /etc/bash.bashrc\n',
    "etc/bash.bashrc": "[ -z \"$PS1\" ] || PS1='\\w \\$ '\n",
}


@dataclass(frozen=True)
class Root:
    path: Path
    usr: Path | None  #: the host's directory to mount at /usr


class RootFilesystems:
    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._in_use: list[int] = []
        self._host = self.guest = paths.base  # until `prepare`

    def prepare(self, guest: Path, used: set[str]) -> None:
        """Make the ``host`` image as the host is now, and a directory with a copy of the program ``guest``.

        A copy, because one that runs must not change under an upgrade.
        Those of earlier times are removed unless a sandbox (``used``: their paths) or another process uses them.
        """
        self._host = self._place(self._paths.rootfs, "host-", dict(_host_entries(Path("/"))))
        try:
            program = guest.read_bytes()
        except OSError as error:
            raise EngineError(f"the guest program {guest} cannot be read: {error.strerror}") from error
        self.guest = self._place(self._paths.guests, "", {"guest": (0o755, program)})
        for parent in (self._paths.rootfs, self._paths.guests):
            _remove_old(parent, used)

    def close(self) -> None:
        for fd in self._in_use:
            os.close(fd)
        self._in_use.clear()

    def names(self) -> tuple[str, ...]:
        """``host`` first."""
        try:
            found = sorted(entry.name for entry in self._paths.images.iterdir() if entry.is_dir() and IMAGE_NAME.fullmatch(entry.name))
        except FileNotFoundError:
            found = []
        return (HOST_IMAGE, *(name for name in found if name != HOST_IMAGE))

    def find(self, image: str, mountpoints: tuple[str, ...]) -> Root:
        """The root file system of ``image``, with ``mountpoints`` (absolute, inside) made where they are missing."""
        if image == HOST_IMAGE:
            root = Root(self._host, Path("/usr"))
        elif IMAGE_NAME.fullmatch(image) and (self._paths.images / image).is_dir():
            root = Root((self._paths.images / image).resolve(), None)
        else:
            raise EngineError("there is no such image")
        for mountpoint in mountpoints:
            _make_directory(root.path, mountpoint)
        return root

    def _place(self, parent: Path, prefix: str, entries: dict[str, tuple[int, bytes | str]]) -> Path:
        """A directory that holds ``entries``, named after them, and locked against removal as long as this process uses it."""
        digest = hashlib.sha256(repr(sorted(entries.items())).encode()).hexdigest()[:16]
        path = parent / f"{prefix}{digest}"
        if not path.exists():
            new = parent / f".new-{secrets.token_hex(8)}"
            _public_directory(new)
            fd = _lock(new)
            try:
                _write_tree(new, entries)
                new.rename(path)
            except FileExistsError:  # another process was first
                shutil.rmtree(new)
            finally:
                os.close(fd)
        self._in_use.append(_lock(path))
        return path


def _host_entries(host: Path) -> Iterator[tuple[str, tuple[int, bytes | str]]]:
    """Path to mode and content: bytes of a file, text of a link; a directory has no bytes and mode with S_IFDIR."""
    for name in _DIRECTORIES:
        yield name, (stat.S_IFDIR | (0o1777 if name == "tmp" else 0o755), b"")
    for name, target in _LINKS.items():
        yield name, (0o777, target)
    for name in _PROGRAM_DIRECTORIES:
        if (host / name).is_symlink():
            yield name, (0o777, os.readlink(host / name))
        elif (host / name).is_dir():
            raise EngineError(f"the image `host` needs a host whose /{name} is a link into /usr; use an image of your own instead")
    own = {PurePosixPath(name) for name in _OWN}
    patterns = [match.name for pattern in _ETC_PATTERNS for match in sorted((host / "etc").glob(pattern))]
    for name in (*_ETC, *patterns):
        for path, entry in _copy_entries(host, f"etc/{name}"):
            if PurePosixPath(path) not in own:
                yield path, entry
    for name, text in _OWN.items():
        yield name, (0o644, text.encode())


def _copy_entries(host: Path, name: str) -> Iterator[tuple[str, tuple[int, bytes | str]]]:
    path = host / name
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(info.st_mode):
        yield name, (0o777, os.readlink(path))
    elif stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_IROTH and info.st_mode & stat.S_IXOTH:
        yield name, (stat.S_IFDIR | 0o755, b"")
        for child in sorted(os.listdir(path)):
            yield from _copy_entries(host, f"{name}/{child}")
    elif stat.S_ISREG(info.st_mode) and info.st_mode & stat.S_IROTH:
        yield name, (0o644, path.read_bytes())


def _write_tree(root: Path, entries: dict[str, tuple[int, bytes | str]]) -> None:
    """Modes are set, not asked for: the server's umask is not the sandboxes'."""
    for name, (mode, content) in sorted(entries.items()):
        path = root / name
        for parent in reversed(path.relative_to(root).parents[:-1]):
            _public_directory(root / parent)
        if isinstance(content, str):
            path.symlink_to(content)
        elif stat.S_ISDIR(mode):
            _public_directory(path)
            path.chmod(stat.S_IMODE(mode))
        else:
            path.write_bytes(content)
            path.chmod(mode)


def _public_directory(path: Path) -> None:
    if not path.exists():
        path.mkdir()
        path.chmod(0o755)


def _make_directory(root: Path, inside: str) -> None:
    """Make the directory ``inside`` beneath ``root``, through no link: an image's links are not to be followed on the host."""
    parts = PurePosixPath(inside).parts[1:]
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            try:
                os.mkdir(part, dir_fd=fd)
                made = True
            except FileExistsError:
                made = False
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = below
            if made:
                os.fchmod(fd, 0o755)
    except OSError as error:
        raise EngineError(f"the image has no place for {inside}: {error.strerror}") from error
    finally:
        os.close(fd)


def _lock(directory: Path) -> int:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def _remove_old(parent: Path, used: set[str]) -> None:
    for entry in parent.iterdir():
        if str(entry) in used:
            continue
        try:
            fd = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # another process removed it
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry)
        except BlockingIOError:
            pass  # a process uses it, this one perhaps
        finally:
            os.close(fd)
