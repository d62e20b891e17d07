"""No image is `latest` or without a tag, and `tools/pin_images.sh` writes digests."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PLACES = ("docker-compose.yml", "docker", "k8s", "tools/pin_images.sh")
BUILT_HERE = "solar"
#: Stub for each tool: the digest of an image is the hash of its name, and `docker buildx` exists.
STUB = """#!/bin/sh
case "$*" in *"$BROKEN"*) [ -z "$BROKEN" ] || { echo "no such host" >&2; exit 1; } ;; esac
for last; do :; done
echo "$*" >>"$CALLS"
printf 'sha256:%s\\n' "$(printf %s "${last#docker://}" | sha256sum | cut -c 1-64)"
"""
#: All that the script needs besides a tool that asks the registry.
COMMANDS = (
    *("awk", "cat", "cmp", "cut", "dirname", "find", "grep", "mktemp", "rm", "sha256sum", "sort"),
    *("tail", "tr", "wc"),
)


# ---- every image has a version ----


def images(root: Path) -> Iterator[tuple[Path, str]]:
    """Every image of compose, Kubernetes and Dockerfiles, with the tags of the kustomizations."""
    tags = dict(kustomized(root))
    for path in sorted(root.rglob("*.y*ml")):
        for document in yaml.safe_load_all(path.read_text()):
            for image in _images(document):
                yield path, image if ":" in image else tags.get(image, image)
    for path in sorted(root.rglob("Dockerfile*")):
        text = path.read_text()
        stages = {"scratch", *re.findall(r"^FROM .* AS (\S+)", text, re.MULTILINE)}
        for image in re.findall(r"^(?:FROM (?:--\S+ )*|ARG \w*IMAGE=)(\S+)", text, re.MULTILINE):
            if not image.startswith("$") and image not in stages:
                yield path, image


def kustomized(root: Path) -> Iterator[tuple[str, str]]:
    for path in root.rglob("kustomization.yaml"):
        for one in yaml.safe_load(path.read_text()).get("images", ()):
            digest = f"@{one['digest']}" if "digest" in one else ""
            tag = f":{one['newTag']}" if "newTag" in one else ""
            yield one["name"], f"{one.get('newName', one['name'])}{tag}{digest}"


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("image"), str):
            yield value["image"]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _images(one)


def unpinned(root: Path) -> list[str]:
    """Images without a tag or digest, or with the tag `latest`."""
    return [
        f"{path.relative_to(root)}: {image}"
        for path, image in images(root)
        if "@sha256:" not in image
        and (":" not in image.rpartition("/")[2] or image.endswith(":latest"))
    ]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the files that name images, and of the script."""
    folder = tmp_path / "copy"
    for place in PLACES:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / place).is_dir():
            shutil.copytree(
                ROOT / place, folder / place, ignore=shutil.ignore_patterns("secrets*", "__py*")
            )
        else:
            shutil.copy(ROOT / place, folder / place)
    return folder


def test_no_image_is_latest_or_without_a_tag(copy: Path) -> None:
    assert len(set(images(copy))) >= 10
    assert unpinned(copy) == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("docker-compose.yml", "redis:7.4.11-alpine", "redis"),
        ("docker-compose.yml", "redis:7.4.11-alpine", "redis:latest"),
        ("docker-compose.yml", "solar:local", "solar:latest"),
        ("docker/Dockerfile", "python:3.11.14-slim-bookworm", "python"),
        ("docker/Dockerfile", "FROM ${PYTHON_IMAGE}\n", "FROM --platform=x python:latest\n"),
        ("k8s/overlays/single/redis.yaml", "valkey/valkey", "host:5000/valkey"),
        ("k8s/overlays/single/kustomization.yaml", "newTag: 9.1.2", "newTag: latest"),
        ("k8s/overlays/single/kustomization.yaml", "    newTag: 9.1.2\n", ""),
    ],
)
def test_a_planted_image_without_a_version_is_found(
    copy: Path, file: str, old: str, new: str
) -> None:
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    assert unpinned(copy) != []


# ---- digests ----


def pin(copy: Path, *arguments: str, tool: str = "skopeo", broken: str = "") -> tuple[int, str]:
    """Run the script with a stub of one tool on PATH; its exit code and output."""
    programs = copy.parent / f"with-{tool}"
    if not programs.exists():
        programs.mkdir()
        for name in COMMANDS:
            found = shutil.which(name)
            assert found is not None, name
            (programs / name).symlink_to(found)
        if tool:
            (programs / tool).write_text(STUB)
            (programs / tool).chmod(0o755)
    environ = {"PATH": str(programs), "BROKEN": broken, "CALLS": str(copy.parent / "calls")}
    ran = subprocess.run(
        ["/bin/sh", copy / "tools" / "pin_images.sh", *arguments],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stdout + ran.stderr


def contents(copy: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in copy.rglob("*") if path.is_file()}


@pytest.mark.parametrize("tool", ["skopeo", "crane", "docker"])
def test_every_image_of_others_gets_the_digest_of_its_tag(copy: Path, tool: str) -> None:
    before = contents(copy)
    code, output = pin(copy, tool=tool)
    assert code == 0, output
    found = {image for _, image in images(copy)}
    others = {image for image in found if image.partition(":")[0] != BUILT_HERE}
    assert len(others) == 7
    for image in others:
        name, _, digest = image.partition("@")
        assert digest == f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
    built = {"solar:local", f"solar:{_version()}", f"solar:{_version()}-cluster"}
    assert found - others == built
    after = contents(copy)
    for path, text in before.items():  # nothing else changed
        kept = re.sub(r"@sha256:\w{64}|\n +digest: sha256:\w{64}", "", after[path])
        assert kept == re.sub(r"@sha256:\w{64}|\n +digest: sha256:\w{64}", "", text)
    assert pin(copy, tool=tool)[0] == 0
    assert contents(copy) == after


def _version() -> str:
    (entry,) = yaml.safe_load((ROOT / "k8s" / "base" / "kustomization.yaml").read_text())["images"]
    return str(entry["newTag"])


def test_a_check_finds_missing_and_old_digests_and_changes_nothing(copy: Path) -> None:
    pin(copy)
    assert pin(copy, "--check")[0] == 0
    for path in (
        copy / "docker-compose.yml",
        copy / "k8s/overlays/single/kustomization.yaml",
    ):
        good = path.read_text()
        for changed in (
            re.sub(r"@sha256:\w+|\n +digest: sha256:\w+", "", good, count=1),
            re.sub(r"sha256:\w{64}", f"sha256:{'0' * 64}", good, count=1),
        ):
            assert changed != good
            path.write_text(changed)
            code, output = pin(copy, "--check")
            assert code == 1
            assert str(path.relative_to(copy)) in output
            assert path.read_text() == changed
        path.write_text(good)


def test_an_unreachable_registry_changes_no_file(copy: Path) -> None:
    before = contents(copy)
    code, output = pin(copy, broken="valkey")
    assert code == 1
    assert "valkey/valkey:9.1.2: skopeo found no digest" in output
    assert "no such host" in output
    assert contents(copy) == before


def test_a_missing_tool_is_named(copy: Path) -> None:
    code, output = pin(copy, tool="")
    assert code == 1
    assert "skopeo, crane or docker with buildx" in output


@pytest.mark.parametrize(("tag", "message"), [(":latest", "got latest"), ("", "expected a tag")])
def test_an_image_without_a_version_is_refused(copy: Path, tag: str, message: str) -> None:
    path = copy / "docker-compose.yml"
    path.write_text(path.read_text().replace("prom/prometheus:v3.5.0", f"prom/prometheus{tag}"))
    code, output = pin(copy)
    assert code == 1
    assert "docker-compose.yml:" in output
    assert message in output
    assert not (copy.parent / "calls").exists()


def test_a_digest_without_a_tag_is_kept(copy: Path) -> None:
    path = copy / "k8s" / "base" / "kustomization.yaml"
    entry = f"  - name: solar\n    newName: host:5000/solar\n    digest: sha256:{'a' * 64}\n"
    text = re.sub(r"  - name: solar\n(    .*\n)*", entry, path.read_text())
    path.write_text(text)
    assert pin(copy)[0] == 0
    assert path.read_text() == text
