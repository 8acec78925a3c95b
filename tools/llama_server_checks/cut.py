# SPDX-License-Identifier: Apache-2.0
"""A GGUF file with the first layers of another. Batches do not depend on the number of layers, and
one layer of a small model keeps a busy CPU fast enough."""

import re
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of GGUF's types
STRING, ARRAY = 8, 9
DEFAULT_ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def text(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            kind, count = self.take("I"), self.take("Q")
            if kind in SIZES:
                self.at += SIZES[kind] * count
            else:
                for _ in range(count):
                    self.skip_value(kind)
        else:
            self.at += SIZES[kind]


def first_layers(source, target, num_layers):
    data = source.read_bytes()
    reader = Reader(data)
    magic, version, num_tensors, num_keys = (reader.take("4s"), reader.take("I"),
                                             reader.take("Q"), reader.take("Q"))
    keys = b""
    for _ in range(num_keys):
        begin = reader.at
        key, kind = reader.text(), reader.take("I")
        value_at = reader.at
        reader.skip_value(kind)
        entry = data[begin:reader.at]
        if key.endswith(b".block_count"):
            entry = data[begin:value_at] + struct.pack("<I", num_layers)
        keys += entry
    tensors = []
    for _ in range(num_tensors):
        begin = reader.at
        name, dims = reader.text(), reader.take("I")
        reader.at += 8 * dims + 4
        tensors.append((name, data[begin:reader.at], reader.take("Q")))
    start = -(-reader.at // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
    ends = sorted([offset for _, _, offset in tensors] + [len(data) - start])
    infos, body, kept = b"", b"", 0
    for name, head, offset in tensors:
        layer = re.match(rb"blk\.(\d+)\.", name)
        if layer and int(layer[1]) >= num_layers:
            continue
        kept += 1
        infos += head + struct.pack("<Q", len(body))
        body += data[start + offset:start + ends[ends.index(offset) + 1]]
        body += bytes(-len(body) % DEFAULT_ALIGNMENT)
    out = magic + struct.pack("<IQQ", version, kept, num_keys) + keys + infos
    target.write_bytes(out + bytes(-len(out) % DEFAULT_ALIGNMENT) + body)
