"""What cargo says about the workspace, as this host builds it."""

import functools
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@functools.cache
def packages():
    """The packages that this host builds, ours and others', by name; several of one name are a list."""
    host = next(line.split()[1] for line in output("rustc", "-vV").splitlines() if line.startswith("host:"))
    everything = json.loads(output("cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", host))
    used = {node["id"] for node in everything["resolve"]["nodes"]}
    by_name = {}
    for package in everything["packages"]:
        if package["id"] in used:
            by_name.setdefault(package["name"], []).append(package)
    return by_name
