"""The records of a .wandb file, with the standard library only."""
import struct
import zlib


def records(path):
    """The frames of a .wandb file, joined."""
    data, at, parts = path.read_bytes(), 7, []
    assert data[:7] == b":W&B\xe1\xbe\x00"
    while at < len(data):
        if 32768 - at % 32768 < 7:
            assert not any(data[at : at + 32768 - at % 32768])
            at += 32768 - at % 32768
        crc, n, kind = struct.unpack_from("<IHB", data, at)
        part = data[at + 7 : at + 7 + n]
        assert crc == zlib.crc32(bytes([kind]) + part) and len(part) == n
        assert (at % 32768) + 7 + n <= 32768 and (kind in (1, 2)) == (not parts), (at, kind)
        parts.append(part)
        at += 7 + n
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []
    assert not parts


def fields(data):
    """Protobuf: (field, value) of a message of varints and strings."""
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            c = data[at]
            at += 1
            v |= (c & 127) << shift
            shift += 7
            if c < 128:
                return v

    while at < len(data):
        tag, v = varint(), varint()
        if tag & 7 == 2:
            v, at = data[at : at + v], at + v
        yield tag >> 3, v
