"""Two guests with Mooncake's transfer engine: one writes the other one's memory and reads it, by RDMA.

Usage: mooncake.py [ADDRESS], with the address of the guest that was started without one.
"""
import hashlib
import os
import socket
import sys

import numpy
from mooncake.engine import TransferEngine

SIZE = 32 << 20
PORT = 7000

engine = TransferEngine()
assert engine.initialize(os.environ["VRNIC_ADDRESS"], "P2PHANDSHAKE", "rdma", os.environ["VRNIC_DEVICE"]) == 0
block = numpy.zeros(SIZE, dtype=numpy.uint8)
assert engine.register_memory(block.ctypes.data, SIZE) == 0


def fill():
    block[:] = numpy.frombuffer(os.urandom(SIZE), dtype=numpy.uint8)


def digest():
    return hashlib.sha256(block).hexdigest()


def serve():
    listener = socket.create_server((os.environ["VRNIC_ADDRESS"], PORT))
    print("ready", flush=True)
    stream = listener.accept()[0].makefile("rw")
    print(engine.get_rpc_port(), block.ctypes.data, file=stream, flush=True)
    assert stream.readline() == "written\n"
    print(digest(), file=stream, flush=True)
    fill()
    print(digest(), file=stream, flush=True)
    assert stream.readline() == "read\n"


def use(peer):
    stream = socket.create_connection((peer, PORT)).makefile("rw")
    port, address = map(int, stream.readline().split())
    other = f"{peer}:{port}"
    fill()
    assert engine.transfer_sync_write(other, block.ctypes.data, address, SIZE) == 0
    print("written", file=stream, flush=True)
    assert stream.readline() == digest() + "\n", "guest b has other data than what was written"
    expected = stream.readline()
    assert engine.transfer_sync_read(other, block.ctypes.data, address, SIZE) == 0
    assert digest() + "\n" == expected, "other data was read than what guest b has"
    print("read", file=stream, flush=True)
    print("mooncake: 32 MiB written and 32 MiB read, hashes equal")


if sys.argv[1:]:
    use(sys.argv[1])
else:
    serve()
