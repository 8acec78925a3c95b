# SPDX-License-Identifier: Apache-2.0
"""A port before a server that passes all bytes on and remembers the requests of its clients."""

import json
import re
import socket
import threading

PART_BYTES = 65536


class Tap:
    """Listens during the `with` block."""

    def __init__(self, port):
        self.server = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.sent = []  # a bytearray for each connection: what its client sent

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
                server = socket.create_connection(self.server)
            except OSError:
                return
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sent = bytearray()
            self.sent.append(sent)
            for source, target, copy in ((client, server, sent), (server, client, None)):
                threading.Thread(target=pass_on, args=(source, target, copy), daemon=True).start()

    def calls(self):
        """{"POST /path": names of the fields of all bodies}, of what was sent until now."""
        calls = {}
        for sent in self.sent:
            for line, body in requests_of(bytes(sent)):
                calls.setdefault(line, set()).update(fields_of(body))
        return calls


def pass_on(source, target, copy):
    try:
        while part := source.recv(PART_BYTES):
            if copy is not None:
                copy += part
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


def requests_of(data):
    """("POST /path", body) of each complete request; bodies have a Content-Length."""
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        if not separator:
            return
        if re.search(rb"\r\ntransfer-encoding:", head, re.IGNORECASE):
            raise ValueError("a client sends its body in chunks, which the tap does not read")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        size = int(length[1]) if length else 0
        method, path = head.split(b" ", 2)[:2]
        yield f"{method.decode()} {path.decode().partition('?')[0]}", data[:size]
        data = data[size:]


def fields_of(body):
    """The names in a JSON object, and those in its `sampling_params` with that prefix."""
    if not body:
        return set()
    fields = json.loads(body)
    inner = fields.get("sampling_params") or {}
    return set(fields) | {f"sampling_params.{name}" for name in inner}
