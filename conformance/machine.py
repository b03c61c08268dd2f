"""What the commands that boot machines share: tools, Debian packages, the program under test and a package for it.

Machines run under qemu's own emulation (no /dev/kvm): for what is enforced, never for how fast. Everything that is made
lies in target/conformance and is used again.
"""

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "conformance"

# What is emulated, by Debian's names: qemu's words for it, and which of its lines Linux speaks on and results are written to. A machine for
# arm64 has one line for both.
EMULATED = {
    "amd64": {"qemu": "qemu-system-x86_64 -M q35 -cpu max", "console": "ttyS0", "results": "ttyS1", "target": None},
    "arm64": {
        "qemu": "qemu-system-aarch64 -M virt -cpu cortex-a72",
        "console": "ttyAMA0",
        "results": "ttyAMA0",
        "target": "aarch64-unknown-linux-musl",
    },
}


def tools(packages):
    """Installs Debian packages by the programs that they bring, where these are missing."""
    missing = sorted({package for program, package in packages.items() if not shutil.which(program, path=PATH)})
    if not missing:
        return
    print("installing", *missing, file=sys.stderr)
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing]
    subprocess.run([*as_root, "apt-get", "-qq", "update"], check=True)
    subprocess.run([*as_root, *environment, *install], check=True, stdout=subprocess.DEVNULL)


# mke2fs is not on an ordinary user's path.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def program(name):
    """The path of a program of this machine."""
    return shutil.which(name, path=PATH) or sys.exit(f"error: {name} is not installed")


def smcp(architecture="amd64"):
    """The program under test: SMCP_UNDER_TEST, else what is built here; for arm64 SMCP_UNDER_TEST_ARM64, else what is released for it."""
    named = os.environ.get("SMCP_UNDER_TEST" if architecture == "amd64" else f"SMCP_UNDER_TEST_{architecture.upper()}")
    if named:
        return Path(named).resolve()
    target = EMULATED[architecture]["target"]
    if target:
        made = subprocess.run([ROOT / "packaging" / "cross", target], check=True, stdout=subprocess.PIPE, text=True)
        return Path(made.stdout.strip())
    subprocess.run(["cargo", "build", "--locked", "--quiet", "--package", "smcp"], cwd=ROOT, check=True)
    return ROOT / "target" / "debug" / "smcp"


def probe(architecture="amd64"):
    """The tests' probe, one static program."""
    target = EMULATED[architecture]["target"]
    if target:
        made = subprocess.run([ROOT / "packaging" / "cross", "--probe", target], check=True, stdout=subprocess.PIPE, text=True)
        return Path(made.stdout.strip())
    made = WORK / "probe"
    sources = sorted((ROOT / "tests" / "probe").glob("*.rs"))
    if not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        WORK.mkdir(parents=True, exist_ok=True)
        flags = ["--edition", "2024", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-O"]
        subprocess.run(["rustc", *flags, "-o", made, ROOT / "tests" / "probe" / "probe.rs"], check=True)
    return made


def layout(directory, architecture="amd64"):
    """An OCI image layout with the probe as a package, tagged v1: /usr/bin/probe, and the same as /usr/bin/other."""
    program = probe(architecture).read_bytes()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ["usr", "usr/bin"]:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name in ["usr/bin/probe", "usr/bin/other"]:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(program), 0o755
            tar.addfile(entry, io.BytesIO(program))
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def blob(media_type, content):
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    of_oci = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 1,
        "name": "test/probe",
        "version": "1.0.0",
        "mcp": {"serverName": "io.example/probe", "transport": {"type": "stdio"}},
        "entrypoint": {"args": ["/usr/bin/probe"], "workdir": "/usr/bin"},
    }
    layer = blob(f"{of_oci}.layer.v1.tar", layer.getvalue())
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/probe"],
            "Labels": {"info.mcp-hub.smcp.manifest.v1": json.dumps(manifest)},
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    image = {
        "schemaVersion": 2,
        "mediaType": f"{of_oci}.manifest.v1+json",
        "artifactType": "application/vnd.smcp.package.v1+json",
        "config": blob(f"{of_oci}.config.v1+json", json.dumps(config).encode()),
        "layers": [layer],
    }
    descriptor = blob(image["mediaType"], json.dumps(image).encode())
    descriptor["annotations"] = {"org.opencontainers.image.ref.name": "v1"}
    (directory / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))


def place(path, root, as_name=None):
    """Copies a program into a machine's root, with the libraries that it is linked with at their own paths."""
    to = root / (as_name or str(path).lstrip("/"))
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, to)
    linked = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", linked):
        there = root / library.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, there)


def mirror():
    """Where this machine gets Debian's packages from, by its own apt configuration; Debian's default where it names none."""
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(path.read_text() for path in lists if path.is_file())
    found = re.search(r"^(?:URIs:|deb(?: \[[^]]*\])?)\s+(\S+/debian/?)\s", text, re.MULTILINE)
    return found.group(1) if found else "http://deb.debian.org/debian"


def keyring():
    """The keys of Debian's archive."""
    return "/usr/share/keyrings/debian-archive-keyring.gpg"


def foreign(architecture, names):
    """Debian packages for another machine, unpacked into one directory."""
    place = WORK / f"foreign-{architecture}"
    if (place / "done").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    with tempfile.TemporaryDirectory() as private:
        apt = Apt(Path(private), "bookworm", architecture)
        apt.run("apt-get", "-q", "download", *names)
        place.mkdir(parents=True)
        for package in Path(private).glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, place], check=True)
    (place / "done").touch()
    return place


def kernel(version, architecture="amd64"):
    """The newest cloud kernel of this version (`6.1`) in Debian's archive, unpacked: the directory that holds `boot` and
    `lib/modules` or `usr/lib/modules`."""
    suite = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie"}.get(version, "trixie-backports")
    place = WORK / "kernels" / (version if architecture == "amd64" else f"{version}-{architecture}")
    if (place / "done").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    with tempfile.TemporaryDirectory() as private:
        apt = Apt(Path(private), suite, architecture)
        pattern = rf"^linux-image-{re.escape(version)}[.][0-9][^ ]*-cloud-{architecture}$"
        names = apt.run("apt-cache", "--names-only", "search", pattern).stdout.split("\n")
        names = [name.split(" ")[0] for name in names if name]
        if not names:
            sys.exit(f"error: suite {suite} has no package that matches {pattern}")
        newest = max(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
        print(f"fetching {newest}", file=sys.stderr)
        apt.run("apt-get", "-q", "download", newest)
        package = next(Path(private).glob("*.deb"))
        place.mkdir(parents=True)
        subprocess.run(["dpkg-deb", "--extract", package, place], check=True)
    (place / "done").touch()
    return place


class Apt:
    """An apt of its own, which changes nothing of the machine's."""

    def __init__(self, directory, suite, architecture="amd64"):
        self.directory = directory
        for name in ["state/lists/partial", "cache/archives/partial", "preferences"]:
            (directory / name).mkdir(parents=True)
        (directory / "state/status").touch()
        (directory / "suite.sources").write_text(
            f"Types: deb\nURIs: {mirror()}\nSuites: {suite}\nComponents: main\nArchitectures: {architecture}\n"
            f"Signed-By: {keyring()}\n"
        )
        (directory / "apt.conf").write_text(
            f'APT::Architecture "{architecture}"; APT::Architectures {{ "{architecture}"; }};\n'
            f'Dir::State "{directory}/state"; Dir::State::status "{directory}/state/status";\n'
            f'Dir::Cache "{directory}/cache"; Dir::Etc::sourcelist "{directory}/suite.sources";\n'
            f'Dir::Etc::sourceparts "-"; Dir::Etc::preferencesparts "{directory}/preferences";\n'
            # Suites of years ago say that they are old.
            'Acquire::Check-Valid-Until "false"; APT::Sandbox::User "root";\n'
        )
        self.run("apt-get", "-qq", "update")

    def run(self, *command):
        environment = {**os.environ, "APT_CONFIG": str(self.directory / "apt.conf")}
        done = subprocess.run(command, cwd=self.directory, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(command)}: {done.stderr.strip()}")
        return done


def modules(kernel, wanted):
    """The files of these modules and of what they depend on, in the order in which they must be loaded."""
    files = {}
    for path in kernel.glob("**/lib/modules/*/kernel/**/*.ko*"):
        files[path.name.split(".ko")[0].replace("-", "_")] = path
    ordered = []

    def add(name):
        path = files.get(name.replace("-", "_"))
        # What is no module is part of the kernel.
        if path is None or path in ordered:
            return
        named = re.search(rb"\0depends=([^\0]*)\0", b"\0" + content(path))
        for needed in named.group(1).decode().split(",") if named else []:
            add(needed)
        ordered.append(path)

    for name in wanted:
        add(name)
    return ordered


def content(module):
    """A module's bytes, unpacked."""
    text = module.read_bytes()
    return lzma.decompress(text) if module.suffix == ".xz" else text


def file_system(directory, image, slack=64):
    """An ext4 image of a directory's content, owned by root, with this many MiB free."""
    used = int(subprocess.run(["du", "-sm", directory], capture_output=True, text=True, check=True).stdout.split()[0])
    size = f"{used * 5 // 4 + slack}M"
    owner = ["-E", "root_owner=0:0"]
    command = [program("mke2fs"), "-q", "-t", "ext4", "-O", "^has_journal", *owner, "-d", directory, image, size]
    image.unlink(missing_ok=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# The first process of a booted kernel.
FIRST = """#!/bin/busybox sh
# Loads what the disk needs and hands over to it.
/bin/busybox mkdir -p /dev /new
/bin/busybox mount -t devtmpfs devtmpfs /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module; done
while ! [ -b /dev/vda ]; do /bin/busybox usleep 20000; done
/bin/busybox mount -t ext4 /dev/vda /new
exec /bin/busybox switch_root /new INIT
"""


def initramfs(kernel, init, image, busybox):
    """What a kernel needs to find its disk, as a cpio archive."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for name in ["bin", "modules"]:
            (root / name).mkdir()
        shutil.copy2(busybox, root / "bin" / "busybox")
        (root / "init").write_text(FIRST.replace("INIT", init))
        (root / "init").chmod(0o755)
        order = modules(kernel, ["virtio_pci", "virtio_blk", "ext4"])
        for number, module in enumerate(order):
            (root / "modules" / f"{number}.ko").write_bytes(content(module))
        (root / "modules" / "order").write_text("\n".join(f"{number}.ko" for number in range(len(order))))
        names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
        pack = ["busybox", "cpio", "-o", "-H", "newc"]
        image.write_bytes(subprocess.run(pack, cwd=root, input=names.encode(), capture_output=True, check=True).stdout)


def busybox(architecture="amd64"):
    """A static busybox for a machine."""
    if architecture == "amd64":
        return program("busybox")
    return foreign(architecture, GUEST_PACKAGES) / "bin" / "busybox"


# What machines of another kind have in place of this machine's programs: setpriv with its libraries.
GUEST_PACKAGES = ["busybox-static", "util-linux", "libc6", "libcap-ng0"]


def boot(name, version, init, parameters, disks, memory="1024", patience=900, architecture="amd64"):
    """Boots a machine without a network and waits for its end. What `parse` makes of its second serial line; all that
    it wrote is kept in target/conformance/NAME.log."""
    unpacked = kernel(version, architecture)
    emulated = EMULATED[architecture]
    qemu, *kind = emulated["qemu"].split()
    apart = emulated["results"] != emulated["console"]
    with tempfile.TemporaryDirectory() as place:
        out, console, early = Path(place, "out"), Path(place, "console"), Path(place, "early.cpio")
        initramfs(unpacked, init, early, busybox(architecture))
        vmlinuz = next((unpacked / "boot").glob("vmlinuz-*"))
        drives = [f"file={disk},if=virtio,format=raw,snapshot=on" for disk in disks]
        command = [
            *[program(qemu), *kind, "-accel", "tcg,thread=multi", "-smp", "2"],
            *["-m", memory, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none"],
            *["-kernel", vmlinuz, "-initrd", early, "-monitor", "none"],
            *["-append", f"console={emulated['console']} quiet loglevel=3 panic=-1 mitigations=off smcp.results={emulated['results']} {parameters}"],
            *[word for drive in drives for word in ("-drive", drive)],
            *[word for file in ([console, out] if apart else [out]) for word in ("-serial", f"file:{file}")],
        ]
        text = lambda path: path.read_bytes().decode(errors="replace").replace("\r", "") if path.exists() else ""
        # A kernel that patches its own code now and then trips over an emulator with two threads; whatever else it may be shows again.
        for _ in range(3):
            print(f"booting {name}", file=sys.stderr)
            try:
                subprocess.run(command, timeout=patience, check=True)
            except subprocess.TimeoutExpired:
                print(f"the machine did not end within {patience} s", file=sys.stderr)
            if "Oops: int3" not in text(console):
                break
        said = text(out)
        (WORK / f"{name.replace(' ', '-')}.log").write_text(f"{said}\n== console\n{text(console)}")
        return parse(said)


def parse(out):
    """Lines `== case GROUP NAME`, what was said, `== exit CODE`; `== kernel RELEASE` before them and `== done` after."""
    results = {"release": "", "done": "== done" in out}
    group, name, said = None, None, []
    for line in out.splitlines():
        match line.split(" "):
            case ["==", "kernel", release]:
                results["release"] = release
            case ["==", "case", group, name]:
                said = []
            case ["==", "exit", code]:
                results[group, name] = {"exit": int(code), "said": "\n".join(said)}
            case _:
                said.append(line)
    return results
