"""Containers without an engine: an image that buildah mounted, run as an engine would.

The image's own configuration is used (entrypoint, environment, user, health check). The process is
number 1 of namespaces of its own; the root is read-only, there are no capabilities and no way to
more rights, /tmp is a small tmpfs and /data a folder. The network is this machine's unless a
network namespace is named. (runc and crun want more of the machine's cgroups than every one gives.)
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
#: What is mounted, where, and whether it may be written: "rw" or "ro".
Mount = tuple[Path, str, str]
PATIENCE = 60.0  # seconds

#: In namespaces of its own: $1 is the image's root, $2 where to mount it; then what else to mount,
#: where, and how (rw, ro), up to --; the rest is the command.
ENTER = """
root=$1 new=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$new"
mount -o remount,bind,ro "$new"
mount -t proc -o nosuid,nodev,noexec proc "$new/proc"
mount -t tmpfs -o nosuid,nodev,noexec,mode=1777,size=64m tmpfs "$new/tmp"
mount -t tmpfs -o nosuid,noexec,mode=755,size=64k tmpfs "$new/dev"
for one in null zero random urandom; do
    : >"$new/dev/$one"
    mount --bind "/dev/$one" "$new/dev/$one"
done
ln -s /proc/self/fd "$new/dev/fd"
for one in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${one%:*}" "$new/dev/${one#*:}"; done
while [ "$1" != -- ]; do
    mount --bind "$1" "$new$2"
    mount -o "remount,bind,$3" "$new$2"
    shift 3
done
shift
exec chroot "$new" "$@"
"""


@dataclass(frozen=True)
class Image:
    """A built image: where its files are mounted, and what it says of itself."""

    root: Path
    config: Mapping[str, Any]

    @property
    def user(self) -> tuple[int, int]:
        """Its user and group, by numbers."""
        uid, gid = self.config["User"].split(":")
        return int(uid), int(gid)

    def confined(self, environ: Mapping[str, str]) -> list[str]:
        """What makes a process of the image's user of one of root, with its environment."""
        uid, gid = self.user
        given = [*self.config["Env"], *(f"{key}={value}" for key, value in environ.items())]
        rights = ["--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        place = ["env", "-i", "-C", self.config["WorkingDir"], *given]
        return [*place, "setpriv", f"--reuid={uid}", f"--regid={gid}", *rights, "--"]


@dataclass
class Container:
    """A container that runs."""

    name: str
    place: Path
    image: Image
    environ: Mapping[str, str]
    process: "subprocess.Popen[bytes]"

    @property
    def first(self) -> int:
        """The container's process 1, by its number here."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(until(lambda: children.read_text().split())[0])

    def entered(self) -> bool:
        """Whether its process 1 is the image's user by now, or has ended already."""
        if self.process.poll() is not None:
            return True
        return Path(f"/proc/{self.first}").stat().st_uid == self.image.user[0]

    def logged(self) -> str:
        """All that it wrote."""
        return (self.place / "log").read_text()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Another command within, as `docker exec` does."""
        enter = ["nsenter", f"--target={self.first}", "--mount", "--pid", "--ipc", "--uts", "--net",
                 "--root", "--wd", "--"]  # fmt: skip
        words = [*enter, *self.image.confined(self.environ), *command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def healthy(self) -> bool:
        """What the image's health check says."""
        kind, *command = self.image.config["Healthcheck"]["Test"]
        assert kind == "CMD", kind
        return self.run(*command).returncode == 0

    def kill(self) -> None:
        """At once, with all that runs in it."""
        os.kill(self.first, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def stop(self) -> tuple[int, float]:
        """As `docker stop` does; how it ended, and after how many seconds."""
        began = time.monotonic()
        os.kill(self.first, signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        return code, time.monotonic() - began


@contextmanager
def running(
    image: Image,
    name: str,
    place: Path,
    command: Sequence[str] | None = None,
    *,
    mounts: Sequence[Mount],
    environ: Mapping[str, str] | None = None,
    entrypoint: Sequence[str] | None = None,
    netns: str = "",
) -> Iterator[Container]:
    """Run an image until the end of the block."""
    (place / "root").mkdir(parents=True)
    words = [*(entrypoint or image.config["Entrypoint"]), *(command or image.config["Cmd"])]
    binds = [word for mount in mounts for word in map(str, mount)]
    for source, target, _ in mounts:  # as an engine would
        point = image.root / target.lstrip("/")
        point.parent.mkdir(parents=True, exist_ok=True)
        point.mkdir(exist_ok=True) if source.is_dir() else point.touch()
    network = ["nsenter", f"--net=/run/netns/{netns}", "--"] if netns else []
    isolated = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--"]
    entering = ["sh", "-euc", ENTER, "enter", str(image.root), str(place / "root")]
    started = [*network, *isolated, *entering, *binds, "--", *image.confined(environ or {}), *words]
    with (place / "log").open("wb") as log:
        os.chown(place / "log", *image.user)  # as an engine does: a program may open it by name
        process = subprocess.Popen(started, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    container = Container(name, place, image, environ or {}, process)
    try:
        until(container.entered)
        yield container
    finally:
        if process.poll() is None:
            container.kill()


def folder(path: Path, owner: tuple[int, int]) -> Path:
    """A folder for the data of a container."""
    path.mkdir(parents=True)
    os.chown(path, *owner)
    path.chmod(0o700)
    return path


def until(asked: Callable[[], T | None], *, seconds: float = PATIENCE) -> T:
    """Ask until the answer is true; what it was."""
    ends = time.monotonic() + seconds
    while not (found := asked()):
        if time.monotonic() > ends:
            raise TimeoutError(f"in {seconds:g} s it did not happen")
        time.sleep(0.1)
    return found
