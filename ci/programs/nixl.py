"""Two agents of NIXL: one writes the other one's memory with a notification, and reads it, by UCX.

Usage: nixl.py [ADDRESS], with the address of the guest that was started without one.
"""
import hashlib
import os
import socket
import sys
import time

import numpy

try:
    from nixl_cu12 import nixl_agent, nixl_agent_config
except ImportError:
    from nixl_cu13 import nixl_agent, nixl_agent_config

SIZE = 32 << 20
PORT = 7000
TIMEOUT = 120

name = os.environ["VRNIC_NAME"]
agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
block = numpy.zeros(SIZE, dtype=numpy.uint8)
place = [(block.ctypes.data, SIZE, 0)]
assert agent.register_memory([(block.ctypes.data, SIZE, 0, "")], "DRAM")


def fill():
    block[:] = numpy.frombuffer(os.urandom(SIZE), dtype=numpy.uint8)


def digest():
    return hashlib.sha256(block).hexdigest()


def wait(what, condition):
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, f"no {what} in {TIMEOUT} s"
        time.sleep(0.001)


def serve():
    listener = socket.create_server((os.environ["VRNIC_ADDRESS"], PORT))
    print("ready", flush=True)
    stream = listener.accept()[0].makefile("rw")
    print(agent.get_agent_metadata().hex(), block.ctypes.data, file=stream, flush=True)
    wait("notification", lambda: b"written" in agent.get_new_notifs().get("a", []))
    print(digest(), file=stream, flush=True)
    fill()
    print(digest(), file=stream, flush=True)
    assert stream.readline() == "read\n"


def transfer(operation, address, message=b""):
    local = agent.get_xfer_descs(place, "DRAM")
    remote = agent.get_xfer_descs([(address, SIZE, 0)], "DRAM")
    request = agent.initialize_xfer(operation, local, remote, "b", message)
    assert agent.transfer(request) != "ERR"
    wait(f"end of the {operation}", lambda: agent.check_xfer_state(request) != "PROC")
    assert agent.check_xfer_state(request) == "DONE"
    agent.release_xfer_handle(request)


def use(peer):
    stream = socket.create_connection((peer, PORT)).makefile("rw")
    metadata, address = stream.readline().split()
    agent.add_remote_agent(bytes.fromhex(metadata))
    fill()
    transfer("WRITE", int(address), b"written")
    assert stream.readline() == digest() + "\n", "guest b has other data than what was written"
    expected = stream.readline()
    transfer("READ", int(address))
    assert digest() + "\n" == expected, "other data was read than what guest b has"
    print("read", file=stream, flush=True)
    print("nixl: 32 MiB written with a notification and 32 MiB read, hashes equal", flush=True)


if sys.argv[1:]:
    use(sys.argv[1])
else:
    serve()
# NIXL crashes at its end, with and without a device.
os._exit(0)
