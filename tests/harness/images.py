"""What ``images/build`` makes of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal

from harness.means import missing

_BUILD = Path(__file__).parents[2] / "images" / "build"


def build_image(name: str, form: Literal["--image", "--rootfs"], out: Path) -> None:
    """Minutes for the first time on a machine, seconds later. The test is skipped where nothing can be built."""
    absent = [program for program in ("buildah", "mmdebstrap") if shutil.which(program) is None]
    if absent or os.geteuid():
        missing(f"images cannot be built: {', '.join(absent) or 'root'} is missing")
    subprocess.run([_BUILD, name, form, out], check=True)
