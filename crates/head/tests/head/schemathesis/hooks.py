"""Generators for values that JSON Schema cannot describe."""

import schemathesis
from hypothesis import strategies as st

NUMBERS = st.integers(0, 1000)
RANGES = st.tuples(NUMBERS, NUMBERS).map(lambda ends: f"{min(ends)}-{max(ends)}")
INDICES = st.lists(st.one_of(NUMBERS.map(str), RANGES), min_size=1, max_size=3).map(",".join)
FEATURES = st.sampled_from(["ssd", "!old", "gpu", "(intel|amd)", "rack-2"])
KEYS = st.sampled_from("ABCDEFGH").map(lambda c: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{c * 42}A")

schemathesis.openapi.format("index-list", INDICES)
schemathesis.openapi.format("array", st.tuples(INDICES, st.sampled_from(["", "%1", "%10"])).map("".join))
schemathesis.openapi.format("dependency", st.sampled_from(["1", "after:1", "afterany:2", "afterok:3", "afternotok:4"]))
schemathesis.openapi.format("node-constraint", st.lists(FEATURES, min_size=1, max_size=3).map("&".join))
schemathesis.openapi.format("node-patterns", st.sampled_from(["*", "n1,n3", "n[1-4,7]", "gpu*"]))
schemathesis.openapi.format("ssh-public-key", KEYS)
schemathesis.openapi.format(
    "image-reference", st.sampled_from(["dir:/data/root", "oci:images:12", "docker-archive:a.tar", "docker://debian:12"])
)
schemathesis.openapi.format("address", st.sampled_from(["head.example:7760", "192.0.2.1", "[2001:db8::1]:7760"]))

# A pack without chunks.
schemathesis.openapi.media_type("application/octet-stream", st.just(b""))


def whole(value):
    """Write whole numbers as integers: for JSON Schema `4.0` is one, and for the head it is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value


@schemathesis.hook
def map_body(context, body):
    """Change generated bodies before they are sent."""
    return whole(body)
