"""Real applications behind `hoop service`, and a browser's part of using them: sessions, cookies and forms."""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HOOP = Path(os.environ.get("HOOP_BINARY", ROOT / "target/debug/hoop"))
PATIENCE = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def png(seed):
    """A picture of one pixel, different for each seed."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) + chunk(b"tEXt", b"c\0" + str(seed).encode())
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0abc")) + chunk(b"IEND", b"")


class NotFollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Session:
    """What a browser keeps: cookies."""

    def __init__(self, origin):
        self.origin, self.cookies = origin, {}

    def cookie(self):
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def ask(self, path, fields=None):
        data = None if fields is None else urllib.parse.urlencode(fields).encode()
        headers = {"Origin": self.origin, "Referer": self.origin + path}
        if self.cookies:
            headers["Cookie"] = self.cookie()
        request = urllib.request.Request(self.origin + path, data=data, headers=headers)
        try:
            answer = urllib.request.build_opener(NotFollowed).open(request, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        for set_cookie in answer.headers.get_all("Set-Cookie") or []:
            name, value = set_cookie.split(";")[0].split("=", 1)
            if value in ("", "deleted", '""'):
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return answer.status, answer.read().decode("utf-8", "replace")


class Running:
    """A program with its output in a file; up once `ask` succeeds."""

    def __init__(self, name, folder, command, is_up, **more):
        self.log = Path(folder) / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **more)
        deadline = time.monotonic() + PATIENCE
        while not is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"{name} is not up: {self.log.read_text(errors='replace')}")
            time.sleep(0.1)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # PHP's workers outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def answers(url):
    def ask():
        try:
            urllib.request.urlopen(url, timeout=30).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    return ask


class House:
    """`hoop service` before an application, and a device that uses it."""

    def __init__(self, folder, port, upstream, routes):
        self.folder, self.origin = Path(folder), f"http://127.0.0.1:{port}"
        keys, table = self.folder / "keys", self.folder / "routes.toml"
        table.write_text(routes)
        subprocess.run([HOOP, "keygen", "-o", keys], check=True, capture_output=True)
        command = [HOOP, "service", "--listen", f"127.0.0.1:{port}", "--upstream", upstream, "--origin", self.origin, "--keys", keys]
        command += ["--state-dir", self.folder / "state", "--routes", table]
        self.service = Running("service", folder, command, answers(self.origin + "/.well-known/hoop"))
        self.stop = self.service.stop

    def hoop(self, *arguments):
        environment = {**os.environ, "HOOP_STATE": str(self.folder / "device"), "HOME": str(self.folder)}
        ran = subprocess.run([HOOP, *arguments], capture_output=True, text=True, timeout=PATIENCE, env=environment)
        return ran.returncode, ran.stdout, ran.stderr

    def push(self, path, session, parts, wait="accepted"):
        """Seals a form and hands it over; `wait` for what becomes of it."""
        command = ["push", "--gateway", "none", "--json", "--wait", wait, "--timeout", "60s"]
        if session.cookies:
            command += ["-b", session.cookie()]
        command += ["-H", f"Referer: {self.origin}{path}", "-H", f"Origin: {self.origin}"]
        for name, value in parts:
            if isinstance(value, tuple):
                file = self.folder / uuid.uuid4().hex
                file.write_bytes(value[1])
                value = f"@{file};filename={value[0]};type={value[2]}"
            elif ";" in value or value.startswith(("@", "<", '"')):
                value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
            command += ["-F", f"{name}={value}"]
        code, out, err = self.hoop(*command, self.origin + path)
        try:
            return json.loads(out.strip().splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise AssertionError(f"hoop push ended with {code}: {out}\n{err}") from error

    def release(self, upload, session, *more):
        code, out, err = self.hoop("release", upload["id"], "--json", "--timeout", "60s", "-b", session.cookie(), *more)
        if not out.strip():
            raise AssertionError(f"hoop release ended with {code}: {err}")
        return json.loads(out.strip().splitlines()[-1])


def verdict(upload):
    """State and, of what is held, why."""
    code = (upload.get("reason") or {}).get("code")
    return f"held: {code}" if upload["state"] == "held" else upload["state"]


def hidden(page, name):
    """The value of a hidden field."""
    tags = re.findall(r"<input[^>]*>", page)
    tag = next(tag for tag in tags if re.search(rf'name="{re.escape(name)}"', tag))
    return re.search(r'value="([^"]*)"', tag).group(1)


def folder():
    return tempfile.TemporaryDirectory(prefix="hoop-application-")
