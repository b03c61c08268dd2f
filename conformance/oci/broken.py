"""A runtime with a fault, for conformance/oci/run --self-check: broken.py HOW RUNTIME ARGUMENTS... runs RUNTIME with what HOW says changed."""

import json
import os
import subprocess
import sys
from pathlib import Path


def main():
    how, runtime, *words = sys.argv[1:]
    command = next((word for word in words[2:] if not word.startswith("-")), "")
    if how.startswith("forgets ") and "--bundle" in words:
        forget(Path(words[words.index("--bundle") + 1], "config.json"), how.removeprefix("forgets "))
    match how, command:
        case ("does not kill", "kill") | ("does not delete", "delete") if "--force" not in words:
            sys.exit(0)
        case ("says running", "state"):
            said = subprocess.run([runtime, *words], capture_output=True, text=True)
            if said.returncode == 0:
                print(json.dumps({**json.loads(said.stdout), "status": "running"}))
            sys.exit(said.returncode)
        case ("never fails", "create" | "start" | "kill" | "delete"):
            subprocess.run([runtime, *words])
            sys.exit(0)
        case ("hides the exit code", "run" | "exec"):
            sys.exit(1 if subprocess.run([runtime, *words]).returncode else 0)
        case ("starts at create", "create"):
            code = subprocess.run([runtime, *words]).returncode
            sys.exit(code or subprocess.run([runtime, *words[:2], "start", words[-1]]).returncode)
        case ("leaves its caller's descriptors open", "create"):
            for number in [7, 8]:
                os.dup2(1, number)
            words.insert(words.index("create") + 1, "--preserve-fds=6")
    os.execvp(runtime, [runtime, *words])


def forget(file, field):
    """Takes a field out of a config.json, by its dotted path."""
    config = whole = json.loads(file.read_text())
    *parents, last = field.split(".")
    for parent in parents:
        config = config.get(parent, {})
    config.pop(last, None)
    file.write_text(json.dumps(whole))


main()
