# SPDX-License-Identifier: Apache-2.0
"""Many streams at once in one loop over raw sockets, so that the client is not the bottleneck."""

import heapq
import json
import re
import select
import socket
import struct
import time

from serve_checks.server import request_bytes

# asm-generic/socket.h: each read reports when the kernel received the data. That is the time of
# sending, however late this process reads it.
SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("@qq")
SPACE = socket.CMSG_SPACE(TIMESPEC.size)

TEXT = re.compile(rb'"text":"((?:[^"\\]|\\.)*)"')
ID = re.compile(rb'"id":"([^"]+)"')
CONNECT_S = 30


class Stream:
    """One streamed completion: the times of its tokens, and its text."""

    def __init__(self, body, start_s=0.0):
        self.body = body
        self.start_s = start_s  # after the beginning of the loop
        self.connection = None
        self.data = b""
        self.status = None
        self.id = None
        self.sent = 0.0
        self.times = []  # of tokens, in seconds of the system's clock
        self.texts = []
        self.finish = None
        self.fault = None
        self.is_done = False

    @property
    def text(self):
        return json.loads(b'"' + b"".join(self.texts) + b'"')

    def gaps(self):
        return [after - before for before, after in zip(self.times, self.times[1:])]

    def read(self, data, moment):
        """Adds bytes; true once the response is complete."""
        self.data += data
        if self.status is None:
            head, separator, rest = self.data.partition(b"\r\n\r\n")
            if not separator:
                return False
            self.status = int(head.split(b" ", 2)[1])
            self.data = rest
            if self.status != 200:
                return True
        end = self.data.rfind(b"\n\n")
        if end < 0:
            return False
        events, self.data = self.data[:end], self.data[end + 2:]
        found = TEXT.findall(events)
        if found:
            self.texts += found
            self.times += [moment] * len(found)
            if self.id is None:
                self.id = ID.search(events)[1]
            if events.count(self.id) != len(found):
                self.fault = f"events of several answers: {events[:300]}"
        if events.endswith(b"data: [DONE]"):
            self.finish = "done"
        return self.finish is not None and self.data.endswith(b"0\r\n\r\n")


class Loop:
    """Sends requests when they are due and reads the answers until all are complete."""

    def __init__(self, port, streams, on_end=None):
        self.port = port
        self.on_end = on_end  # called with a completed stream; returns the next one on its
        #                       connection, or None
        self.due = [(stream.start_s, i, stream) for i, stream in enumerate(streams)]
        heapq.heapify(self.due)
        self.poll = select.epoll()
        self.open = {}
        self.cpu_s = self.wall_s = 0.0
        self.num_unstamped = 0  # reads without a time from the kernel

    def run(self, timeout_s):
        """False if some were not complete in time."""
        begin, cpu = time.monotonic(), time.process_time()
        deadline = begin + timeout_s
        while (self.due or self.open) and time.monotonic() < deadline:
            now = time.monotonic() - begin
            while self.due and self.due[0][0] <= now:
                self.start(heapq.heappop(self.due)[2])
            wait = min(self.due[0][0] - now, 1) if self.due else 1
            for number, _ in self.poll.poll(max(wait, 0)):
                self.read(self.open[number])
        self.cpu_s, self.wall_s = time.process_time() - cpu, time.monotonic() - begin
        left = list(self.open.values())
        for stream in left:
            self.close(stream, "was not done in time")
        self.poll.close()
        return not left and not self.due

    def start(self, stream):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.send(stream, connection)
        connection.setblocking(False)
        self.open[connection.fileno()] = stream
        self.poll.register(connection.fileno(), select.EPOLLIN)

    def send(self, stream, connection):
        stream.connection = connection
        stream.sent = time.time()
        connection.sendall(request_bytes("/v1/completions", stream.body))

    def read(self, stream):
        try:
            data, ancillary, _, _ = stream.connection.recvmsg(65536, SPACE)
        except BlockingIOError:
            return
        except OSError as error:
            return self.close(stream, repr(error))
        if not data:
            return self.close(stream, "the connection ended in the middle")
        if ancillary and ancillary[0][1] == SO_TIMESTAMPNS:
            seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
            moment = seconds + nanoseconds / 1e9
        else:
            self.num_unstamped += 1
            moment = time.time()
        if stream.read(data, moment):
            self.end(stream)

    def end(self, stream):
        stream.is_done = True
        following = self.on_end(stream) if self.on_end else None
        if following is None:
            return self.close(stream)
        self.open[stream.connection.fileno()] = following
        self.send(following, stream.connection)

    def close(self, stream, fault=None):
        stream.fault = stream.fault or fault
        self.poll.unregister(stream.connection.fileno())
        del self.open[stream.connection.fileno()]
        stream.connection.close()


def body_of(**fields):
    return json.dumps({"stream": True, "ignore_eos": True, **fields}).encode()
