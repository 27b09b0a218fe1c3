#!/usr/bin/env python3
"""Verifies an exported audit log of Placet with nothing but Python's standard library.

usage: verify_log.py EXPORT CHECKPOINT PUBLIC_KEY [OLDER_CHECKPOINT]

EXPORT and the checkpoints are files, PUBLIC_KEY is the line NAME+HASH+BASE64. Exits with 0 if the log is sound.
"""
import base64, hashlib, json, struct, sys


def fail(why):
    sys.exit(f"not sound: {why}")


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


# Ed25519 (RFC 8032, section 5.1): slow and simple, since verifying has no secret to guard.
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, I = -121665 * pow(121666, -1, P) % P, pow(2, (P - 1) // 4, P)


def add(a, b):
    (ax, ay), (bx, by), k = a, b, D * a[0] * b[0] * a[1] * b[1]
    return (ax * by + bx * ay) * pow(1 + k, -1, P) % P, (ay * by + ax * bx) * pow(1 - k, -1, P) % P


def times(number, point):
    result = (0, 1)
    for bit in bin(number)[2:]:
        result = add(result, result)
        result = add(result, point) if bit == "1" else result
    return result


def point(code):
    y, sign = int.from_bytes(code, "little") % 2**255, code[31] >> 7
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    x = x if x * x % P == xx else x * I % P
    if y >= P or x * x % P != xx or (x == 0 and sign):
        fail("a point is not on the curve")
    return (x if x % 2 == sign else P - x), y


def signed(key, text, signature):
    base = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    h = int.from_bytes(hashlib.sha512(r + key + text).digest(), "little") % L
    return len(signature) == 64 and s < L and times(s, base) == add(point(r), times(h, point(key)))


def checkpoint(path, public_key):
    """The log, its size, its root and its last chain hash, as signed (C2SP signed-note, tlog-checkpoint)."""
    name, key_hash, key = public_key.split("+", 2)
    key = base64.b64decode(key, validate=True)
    if len(key) != 33 or key[0] != 1 or sha256(name.encode(), b"\n", key)[:4].hex() != key_hash:
        fail("the public key is not one")
    note = open(path, encoding="utf-8", newline="").read()
    text, _, signatures = note.rpartition("\n\n")
    for line in signatures.splitlines():
        dash, signer, code = line.split(" ")
        code = base64.b64decode(code, validate=True)
        if (dash, signer, code[:4].hex()) == ("\u2014", name, key_hash):
            if signed(key[1:], (text + "\n").encode(), code[4:]):
                origin, size, root, chain = text.split("\n")[:4]
                return origin, int(size), base64.b64decode(root), bytes.fromhex(chain.removeprefix("chain "))
    fail(f"{path} is not signed with {name}+{key_hash}")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def entry_hash(entry):
    """The SHA-256 of an entry's bytes in the journal: header, its CRC-32C, payload."""
    payload = entry["payload"].encode()
    numbers = [entry[name] for name in ("seq", "epoch", "at_ms", "durable_seq")]
    header = struct.pack("<4sBBHIQQqQ", b"PLJF", 1, entry["kind"], 0, len(payload), *numbers)
    header += bytes.fromhex(entry["prev"])
    return sha256(header, struct.pack("<I", crc32c(header)), payload)


def append(peaks, size, leaf):
    """Appends to the tree of RFC 9162, of which only the roots of its complete subtrees are kept."""
    node = sha256(b"\0", leaf)
    while size % 2:
        node, size = sha256(b"\1", peaks.pop(), node), size // 2
    peaks.append(node)


def root(peaks):
    node = peaks[-1] if peaks else sha256()
    for peak in reversed(peaks[:-1]):
        node = sha256(b"\1", peak, node)
    return node


def main(export, newest, public_key, *older):
    marks = [checkpoint(path, public_key) for path in (newest, *older)]
    lines = open(export, encoding="utf-8", newline="\n")
    head = json.loads(next(lines))
    if head["placet_log"] != 1 or any(mark[0] != head["origin"] for mark in marks):
        fail("the checkpoints are about another log")
    first, seq = head["first_seq"], head["first_seq"] - 1
    peaks = [bytes.fromhex(peak.removeprefix("sha256:")) for peak in head["peaks"]]
    last, missing = (bytes(32) if first == 1 else None), set(marks)
    if len(peaks) != bin(seq).count("1"):
        fail("the peaks do not fit the first entry")

    def compare():
        for mark in [mark for mark in missing if mark[1] == seq]:
            if root(peaks) != mark[2] or last not in (None, mark[3]):
                fail(f"the first {seq} entries are not those that were signed")
            missing.remove(mark)

    compare()
    for line in lines:
        entry = json.loads(line)
        if entry["seq"] != seq + 1:
            fail(f"entry {entry['seq']} stands where entry {seq + 1} is due")
        if last is not None and bytes.fromhex(entry["prev"]) != last:
            fail(f"entry {seq + 1} does not name the hash of the entry before it")
        last = entry_hash(entry)
        if last.hex() != entry["hash"]:
            fail(f"entry {seq + 1} is not what its hash says")
        append(peaks, seq, last)
        seq += 1
        compare()
    if missing:
        fail(f"the export goes from entry {first} to {seq} and does not cover every checkpoint")
    print(f"sound: entries {first} to {seq} of {head['origin']}; {marks[0][1]} entries are signed, root {marks[0][2].hex()}")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, StopIteration, KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        fail(f"{type(error).__name__}: {error}")
