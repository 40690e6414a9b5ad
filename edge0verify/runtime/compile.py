"""Compiles the project's kernels to a cubin: `python -m edge0verify.runtime.compile --arch sm_90 --out FILE`.  Needs no GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edge0verify.runtime.cuda import PORTABLE, compile_source
from edge0verify.runtime.protocol import DeviceError
from edge0verify.runtime.tuned import TUNED


def main() -> int:
    parser = argparse.ArgumentParser(description="NVRTC build of kernels/ for one NVIDIA architecture")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tuned", action="store_true", help="with the tuned forms for sm_90 and up")
    given = parser.parse_args()
    try:
        image = compile_source(given.arch, TUNED if given.tuned else PORTABLE)
    except ImportError as error:
        print(f"kernels-cuda: not built, {error}: pip install cuda-bindings nvidia-cuda-nvrtc", file=sys.stderr)
        return 2
    except DeviceError as error:
        print(f"kernels-cuda: {error}", file=sys.stderr)
        return 1
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(image)
    print(f"{given.out}: {len(image):,} bytes for {given.arch}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
