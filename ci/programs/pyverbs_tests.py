"""The tests of rdma-core with pyverbs (ci/ports/pyverbs), with regions in DMA buffers.

`DmaBufMR` of pyverbs 56.1 ends with an AttributeError for every buffer that pyverbs has allocated: it calls
`DmaBuf.add_ref`, which Cython hides from a caller that has not declared the buffer's type (pyverbs/mr.pyx). The lines
are in rdma-core 44 to 64.
The classes here are those of pyverbs with that method. Everything else is as it was.

Usage: pyverbs_tests.py ARGUMENTS…, with those of run_tests.py. The folder tests is beside this file.
"""

import runpy
import sys
from pathlib import Path

FOLDER = str(Path(__file__).resolve().parent / "tests")
sys.path.insert(1, FOLDER)

from pyverbs.dmabuf import DmaBuf
from pyverbs.mr import DmaBufMR
from tests import test_mr


class Buffer(DmaBuf):
    def add_ref(self, region):
        """Does nothing: the region keeps the buffer, and not the buffer its regions."""


class Region(DmaBufMR):
    def __init__(self, pd, length, access, dmabuf=None, offset=0, gpu=0, gtt=0):
        if dmabuf is None:
            dmabuf = Buffer(length + offset, gpu, gtt)
        super().__init__(pd, length, access, dmabuf, offset, gpu, gtt)


test_mr.DmaBufMR = Region
runpy.run_path(f"{FOLDER}/run_tests.py", run_name="__main__")
