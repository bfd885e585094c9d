"""How the guest gets to be the first process of a pod, whatever the image. Pure.

An image may bring the guest along. Into any other the first exec puts it: the pod's first process waits for the file and turns into it.
Either way the guest is process 1: it reaps, and its death is the pod's. It takes ``sh``, ``sleep``, ``head``, ``wc``, ``chmod`` and ``mv``.
"""

from __future__ import annotations

IMAGE_GUEST = "/.guest/guest"  #: where an image has it
UPLOAD_DIRECTORY = "/.sandboxhub"  #: a volume of the pod's own
_UPLOAD_GUEST = f"{UPLOAD_DIRECTORY}/guest"

#: What the exec of a connection says first, of itself: all that follows comes from the guest, or it waits for the guest program.
FOUND_GUEST, ASKS_FOR_GUEST = b"G", b"U"

# dash knows the limit of processes as -p, others as -u.
_FIRST_PROCESS = """\
trap 'exit 143' TERM
if [ -n "$2" ]; then ulimit -u "$2" 2>/dev/null || ulimit -p "$2" || exit 1; fi
guest={image}
if [ ! -x $guest ]; then
  guest={upload}
  until [ -x $guest ]; do sleep 0.05 2>/dev/null || sleep 1; done
fi
exec $guest init --workdir "$1"
"""

# Nothing comes into being under the final name but the whole program: a stream that breaks looks like an end of input here.
_CONNECT = """\
guest={image}
[ -x $guest ] || guest={upload}
if [ -x $guest ]; then
  printf {found}
else
  printf {ask}
  new=$guest.$$
  head -c "$1" >$new && [ "$(wc -c <$new)" -eq "$1" ] && chmod 755 $new && mv -f $new $guest || exit 1
fi
exec $guest connect
"""

_RUN_GUEST = """\
guest={image}
[ -x $guest ] || guest={upload}
exec $guest "$@"
"""


def first_process(workdir: str, pids: int | None) -> list[str]:
    """The command of a pod. ``pids``: the most processes that its user may have; None when the node counts them."""
    script = _FIRST_PROCESS.format(image=IMAGE_GUEST, upload=_UPLOAD_GUEST)
    return ["sh", "-c", script, "sandbox", workdir, "" if pids is None else str(pids)]


def connect(size: int) -> list[str]:
    """The command of an exec whose stdin and stdout become a connection to the guest, after at most one upload of ``size`` bytes."""
    script = _CONNECT.format(image=IMAGE_GUEST, upload=_UPLOAD_GUEST, found=FOUND_GUEST.decode(), ask=ASKS_FOR_GUEST.decode())
    return ["sh", "-c", script, "connect", str(size)]


def run_guest(*arguments: str) -> list[str]:
    """A command that runs the guest program once more in a sandbox whose guest is up."""
    return ["sh", "-c", _RUN_GUEST.format(image=IMAGE_GUEST, upload=_UPLOAD_GUEST), "guest", *arguments]
