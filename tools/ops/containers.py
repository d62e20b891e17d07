"""Run a mounted image as a container without a container engine.

It uses the image's configuration: entrypoint, environment, user, health check. The process is PID 1
in separate namespaces. The root is read-only, there are no capabilities and no new privileges, /tmp
is a small tmpfs and /data a folder. The network is the machine's unless a network namespace is
given. runc and crun do not work here: they need cgroup access that not every machine gives.
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
#: Source, target and mode ("rw" or "ro") of a mount.
Mount = tuple[Path, str, str]
TIMEOUT_SECONDS = 60.0

#: Runs in new namespaces. $1 is the image's root, $2 its mount point. Then come source, target and
#: mode (rw, ro) of each further mount, up to --; the rest is the command.
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
    """A built image: the mount point of its files, and its configuration."""

    root: Path
    config: Mapping[str, Any]

    @property
    def user(self) -> tuple[int, int]:
        """The image's user id and group id."""
        uid, gid = self.config["User"].split(":")
        return int(uid), int(gid)

    def confined(self, environ: Mapping[str, str]) -> list[str]:
        """The command prefix that drops root to the image's user and sets the environment."""
        uid, gid = self.user
        variables = [*self.config["Env"], *(f"{key}={value}" for key, value in environ.items())]
        limits = ["--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        environment = ["env", "-i", "-C", self.config["WorkingDir"], *variables]
        return [*environment, "setpriv", f"--reuid={uid}", f"--regid={gid}", *limits, "--"]


@dataclass
class Container:
    """A running container."""

    name: str
    place: Path
    image: Image
    environ: Mapping[str, str]
    process: "subprocess.Popen[bytes]"

    @property
    def first(self) -> int:
        """The PID of the container's process 1 on this machine."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(until(lambda: children.read_text().split())[0])

    def entered(self) -> bool:
        """Whether process 1 runs as the image's user already, or has ended."""
        if self.process.poll() is not None:
            return True
        return Path(f"/proc/{self.first}").stat().st_uid == self.image.user[0]

    def logged(self) -> str:
        """The container's log."""
        return (self.place / "log").read_text()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the container, like `docker exec`."""
        enter = ["nsenter", f"--target={self.first}", "--mount", "--pid", "--ipc", "--uts", "--net",
                 "--root", "--wd", "--"]  # fmt: skip
        words = [*enter, *self.image.confined(self.environ), *command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def healthy(self) -> bool:
        """The result of the image's health check."""
        kind, *command = self.image.config["Healthcheck"]["Test"]
        assert kind == "CMD", kind
        return self.run(*command).returncode == 0

    def kill(self) -> None:
        """Kill all processes of the container."""
        os.kill(self.first, signal.SIGKILL)
        self.process.wait(TIMEOUT_SECONDS)

    def stop(self) -> tuple[int, float]:
        """Stop it like `docker stop`; the exit code and the seconds that it took."""
        began = time.monotonic()
        os.kill(self.first, signal.SIGTERM)
        code = self.process.wait(TIMEOUT_SECONDS)
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
    """Run an image as a container until the end of the block."""
    (place / "root").mkdir(parents=True)
    words = [*(entrypoint or image.config["Entrypoint"]), *(command or image.config["Cmd"])]
    binds = [word for mount in mounts for word in map(str, mount)]
    for source, target, _ in mounts:  # an engine creates mount points too
        point = image.root / target.lstrip("/")
        point.parent.mkdir(parents=True, exist_ok=True)
        point.mkdir(exist_ok=True) if source.is_dir() else point.touch()
    network = ["nsenter", f"--net=/run/netns/{netns}", "--"] if netns else []
    isolated = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--"]
    entering = ["sh", "-euc", ENTER, "enter", str(image.root), str(place / "root")]
    full_command = [
        *network,
        *isolated,
        *entering,
        *binds,
        "--",
        *image.confined(environ or {}),
        *words,
    ]
    with (place / "log").open("wb") as log:
        os.chown(
            place / "log", *image.user
        )  # so that a program can open it by name, as with an engine
        process = subprocess.Popen(full_command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    container = Container(name, place, image, environ or {}, process)
    try:
        until(container.entered)
        yield container
    finally:
        if process.poll() is None:
            container.kill()


def folder(path: Path, owner: tuple[int, int]) -> Path:
    """Create a folder for the data of a container."""
    path.mkdir(parents=True)
    os.chown(path, *owner)
    path.chmod(0o700)
    return path


def until(condition: Callable[[], T | None], *, seconds: float = TIMEOUT_SECONDS) -> T:
    """Wait until a condition is true; its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition was not met within {seconds:g} s")
        time.sleep(0.1)
    return found
