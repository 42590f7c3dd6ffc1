"""Write small images of this machine's own programs: `image.py DIRECTORY [HOSTILE]`.

DIRECTORY gets `root` (a plain directory), `oci` (an OCI layout) and `saved.tar` (as `docker save` writes it). HOSTILE names an
entry or a fault of the last layer.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile

PROGRAMS = ["sh", "cat", "ls", "id", "touch", "ln", "env"]


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def hole(path, size):
    """The header of a file that consists of a hole."""
    number = b"%012o" % size
    header = bytearray(512)
    header[: len(path)] = path.encode()
    header[100:107], header[124:135], header[136:147] = b"0000644", b"0" * 11, b"0" * 11
    header[148:157], header[257:265] = b" " * 8 + tarfile.GNUTYPE_SPARSE, b"ustar  \0"
    header[386:410], header[483:495] = number + b"%011o\0" % 0, number
    header[148:155] = b"%06o\0" % sum(header)
    return bytes(header)


def layer(entries):
    """An archive of (path, content) or (path, tarinfo type, link target)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, *what in entries:
            info = tarfile.TarInfo(path)
            info.mode = 0o4755
            if len(what) == 1:
                info.size = len(what[0])
                archive.addfile(info, io.BytesIO(what[0]))
            elif what[0] == tarfile.GNUTYPE_SPARSE:
                data.write(hole(path, what[1]))
            else:
                info.type, info.linkname = what
                archive.addfile(info)
    return data.getvalue()


def programs():
    """The programs, and the libraries that they load."""
    files = {}
    for name in PROGRAMS:
        path = os.path.realpath(f"/bin/{name}")
        files[f"bin/{name}"] = path
        told = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", told):
            files[library.lstrip("/")] = library
    return [(path, open(source, "rb").read()) for path, source in sorted(files.items())]


def main(directory, hostile=None):
    # In the lower layer: links in place of what the sandbox mounts, to where they could do harm.
    lower = [
        *programs(),
        ("etc/image", b"from the lower layer\n"),
        ("etc/removed", b"removed\n"),
        ("opaque/removed", b"removed\n"),
        ("dev", tarfile.SYMTYPE, "/home"),
        ("proc", tarfile.SYMTYPE, "../../../etc"),
        ("tmp", tarfile.SYMTYPE, "/etc"),
        ("etc/passwd", tarfile.SYMTYPE, "/etc/image"),
        ("etc/hosts", tarfile.LNKTYPE, "etc/image"),
    ]
    upper = [
        ("etc/.wh.removed", b""),
        ("opaque/.wh..wh..opq", b""),
        ("opaque/kept", b""),
        ("etc/image", b"from the upper layer\n"),
        ("device", tarfile.BLKTYPE, ""),
    ]
    upper += {
        "parent": [("../../escaped", b"x")],
        "through a link": [("out", tarfile.SYMTYPE, "/"), ("out/../../escaped", b"x")],
        "bomb": [("bomb", tarfile.GNUTYPE_SPARSE, (64 << 30) - 1)],
    }.get(hostile, [])
    if hostile == "large":
        upper += [(f"large-{number}", os.urandom(1 << 20)) for number in range(150)]
    plain = [layer(lower), layer(upper)]
    packed = [gzip.compress(data, 1 if hostile == "large" else 6) for data in plain]
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = json.dumps(
        {
            "architecture": machine,
            "os": "linux",
            "config": {
                "Env": ["PATH=/bin", "OF_IMAGE=yes", "HOSTLER_JOB_ID=forged"],
                "User": "root",
                "Entrypoint": ["sh", "-c", 'pwd; id -u; echo "$@"; touch "$FOLDER/made"', "sh"],
                "Cmd": ["of", "the image"],
                "WorkingDir": "/opaque",
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(data) for data in plain]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "config": {"digest": digest(config), "size": len(config)},
            "layers": [{"digest": digest(data), "size": len(data)} for data in packed],
        }
    ).encode()
    if hostile == "exchanged":
        packed[1] = gzip.compress(layer([*upper, ("etc/added", b"x")]))
    blobs = os.path.join(directory, "oci/blobs/sha256")
    os.makedirs(blobs)
    named = json.loads(manifest)["layers"]
    contents = [(digest(config), config), (digest(manifest), manifest)]
    contents += [(item["digest"], data) for item, data in zip(named, packed)]
    for name, data in contents:
        with open(os.path.join(blobs, name.split(":")[1]), "wb") as file:
            file.write(data)
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                "digest": digest(manifest),
                "size": len(manifest),
                "annotations": {"org.opencontainers.image.ref.name": "1"},
                "platform": {"architecture": machine, "os": "linux"},
            }
        ],
    }
    with open(os.path.join(directory, "oci/index.json"), "w") as file:
        json.dump(index, file)
    saved = [{"Config": "config.json", "RepoTags": ["test:1"], "Layers": ["0/layer.tar", "1/layer.tar"]}]
    with open(os.path.join(directory, "saved.tar"), "wb") as file:
        parts = [("0/layer.tar", plain[0]), ("1/layer.tar", plain[1]), ("config.json", config)]
        file.write(layer([*parts, ("manifest.json", json.dumps(saved).encode())]))
    if hostile is None:
        for path, data in programs() + [("etc/image", b"from the upper layer\n"), ("opaque/kept", b"")]:
            target = os.path.join(directory, "root", path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(data)
            os.chmod(target, 0o755)
        os.symlink("/home", os.path.join(directory, "root/dev"))


main(*sys.argv[1:])
