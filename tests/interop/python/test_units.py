"""The systemd units of dist/systemd, installed as docs/operators.md says and started by a systemd, on a machine of their own."""

import json
import time
import unittest
from pathlib import Path

from machine import Machine

ROOT = Path(__file__).resolve().parents[3]
ROLES = ["gateway", "service", "relay"]
APPLICATION = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Application(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()
HTTPServer(("127.0.0.1", 8000), Application).serve_forever()
"""
APPLICATION_UNIT = "[Service]\nExecStart=/usr/bin/python3 /srv/application.py\n"
FILES = {
    "gateway.toml": 'listen = "127.0.0.1:4667"\nallow-dest = ["127.0.0.1"]\n',
    "service.toml": 'upstream = "http://127.0.0.1:8000"\norigin = "http://127.0.0.1:4668"\n',
}


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Machine()
        cls.addClassCleanup(cls.machine.stop)
        run, write = cls.machine.run, cls.machine.write
        for unit in sorted((ROOT / "dist/systemd").glob("*.service")):
            write(f"/etc/systemd/system/{unit.name}", unit.read_text())
        write("/etc/sysusers.d/hoop.conf", (ROOT / "dist/sysusers.d/hoop.conf").read_text())
        run("systemd-sysusers")
        for name, text in FILES.items():
            write(f"/etc/hoop/{name}", text)
        run("hoop", "keygen", "-o", "/etc/hoop/kws")
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
            "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
            "-keyout", "/etc/hoop/key.pem", "-out", "/etc/hoop/fullchain.pem")
        run("hoop", "introduce", "localhost:4669", "--devices", "/etc/hoop/devices.toml", "--cert", "/etc/hoop/fullchain.pem",
            "--address", "127.0.0.1", "-o", "/srv/relay.toml", "--user", "hoop-relay")
        for role, names in {"gateway": "gateway.toml", "service": "service.toml kws", "relay": "fullchain.pem key.pem"}.items():
            run("sh", "-c", f"cd /etc/hoop && chmod 600 {names} && chown hoop-{role}: {names}")
        write("/srv/application.py", APPLICATION)
        write("/etc/systemd/system/application.service", APPLICATION_UNIT)
        run("systemctl", "daemon-reload")
        run("systemctl", "start", "application", *(f"hoop-{role}" for role in ROLES))

    def status(self, role):
        """What the kernel says of a role's process."""
        pid = self.machine.property(f"hoop-{role}", "MainPID")
        lines = self.machine.run("cat", f"/proc/{pid}/status").stdout.splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)

    def keys(self):
        return json.loads(self.machine.run("curl", "-s", "http://127.0.0.1:4668/.well-known/hoop").stdout)["signing_keys"]

    def push(self):
        self.machine.run("sh", "-c", "head -c 3000000 /dev/urandom > /srv/photo")
        return self.machine.run("hoop", "push", "--gateway", "http://127.0.0.1:4667", "--wait", "accepted", "-F", "f=@/srv/photo",
                                "http://127.0.0.1:4668/f")

    def log(self, role):
        return self.machine.run("journalctl", "--no-pager", "-o", "cat", "-u", f"hoop-{role}").stdout

    def until(self, what, ask):
        end = time.monotonic() + 90
        while not ask():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.2)

    def test_each_says_that_it_is_ready_and_may_do_nothing_more_than_it_must(self):
        for role in ROLES:
            with self.subTest(role=role):
                self.assertEqual(self.machine.property(f"hoop-{role}", "ActiveState"), "active")
                status = self.status(role)
                self.assertNotEqual(status["Uid"].split()[0], "0")
                self.assertEqual(int(status["CapEff"], 16) | int(status["CapBnd"], 16), 0)
                self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
                made = self.machine.run("stat", "-c", "%U %a", f"/var/lib/hoop-{role}").stdout.strip()
                self.assertEqual(made, f"hoop-{role} 700")
                self.assertNotIn("running as root", self.log(role))

    def test_an_upload_goes_through_gateway_and_service_as_they_are_confined(self):
        self.push()
        for role in ROLES:
            self.assertNotIn("denied", self.log(role))

    def test_a_reload_takes_new_keys_and_the_process_stays(self):
        old, pid = self.keys(), self.machine.property("hoop-service", "MainPID")
        self.machine.run("hoop", "keygen", "--rotate", "/etc/hoop/kws")
        self.assertEqual(self.machine.run("stat", "-c", "%U %a", "/etc/hoop/kws").stdout.strip(), "hoop-service 600")
        self.machine.run("systemctl", "reload", "hoop-service")
        self.until("the new key", lambda: self.keys() != old)
        self.assertEqual(self.machine.property("hoop-service", "MainPID"), pid)
        for role in ["gateway", "relay"]:
            before = self.machine.property(f"hoop-{role}", "MainPID")
            self.machine.run("systemctl", "reload", f"hoop-{role}")
            self.until("a word of it", lambda role=role: "read again" in self.log(role))
            self.assertEqual(self.machine.property(f"hoop-{role}", "MainPID"), before)
        self.push()

    def test_the_documented_lines_let_a_unit_listen_below_1024_and_the_right_is_given_up(self):
        self.machine.run("hoop", "keygen", "-o", "/etc/hoop/low")
        self.machine.run("chown", "hoop-service:", "/etc/hoop/low")
        self.machine.write("/etc/hoop/low.toml", FILES["service.toml"] + 'listen = "127.0.0.1:443"\n')
        unit = (ROOT / "dist/systemd/hoop-service.service").read_text()
        for old, new in {"service.toml": "low.toml", "/etc/hoop/kws": "/etc/hoop/low", "=hoop-service\nStateDirectoryMode": "=hoop-low\nStateDirectoryMode"}.items():
            self.assertIn(old, unit)
            unit = unit.replace(old, new)
        self.machine.write("/etc/systemd/system/hoop-low.service", unit)
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "start", "hoop-low", check=False)
        self.assertIn("docs/operators.md", self.log("low"))
        self.machine.run("systemctl", "stop", "hoop-low")
        page = (ROOT / "docs/operators.md").read_text()
        lines = page.split("```ini\n", 1)[1].split("```", 1)[0]
        self.machine.write("/etc/systemd/system/hoop-low.service.d/override.conf", lines)
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "start", "hoop-low")
        self.assertIn("signing_keys", self.machine.run("curl", "-s", "http://127.0.0.1:443/.well-known/hoop").stdout)
        self.assertEqual(int(self.status("low")["CapEff"], 16), 0)
        self.machine.run("systemctl", "stop", "hoop-low")

    def certify(self, folder):
        """Another certificate and key, root's alone, as certbot has them."""
        self.machine.run("mkdir", "-p", folder)
        self.machine.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
                         "-keyout", f"{folder}/privkey.pem", "-out", f"{folder}/fullchain.pem")
        self.machine.run("chmod", "-R", "go=", "/etc/letsencrypt")

    def shown(self):
        """The certificate that the relay shows."""
        ran = self.machine.run("sh", "-c", "openssl s_client -connect 127.0.0.1:4669 -servername localhost </dev/null 2>/dev/null | openssl x509", check=False)
        return ran.stdout.strip()

    def test_certificates_that_are_roots_alone_reach_the_relay_and_so_do_renewed_ones(self):
        live = "/etc/letsencrypt/live/relay.example"
        told = lambda: self.machine.run("cat", f"{live}/fullchain.pem").stdout.strip()
        section = (ROOT / "docs/operators.md").read_text().split("**Let's Encrypt.**", 1)[1]
        hook = section.split("```sh\n", 1)[1].split("```", 1)[0]
        self.machine.write("/etc/letsencrypt/renewal-hooks/deploy/hoop-relay", hook)
        pid = self.machine.property("hoop-relay", "MainPID")
        self.certify(live)
        self.machine.run("env", f"RENEWED_LINEAGE={live}", "sh", "/etc/letsencrypt/renewal-hooks/deploy/hoop-relay")
        self.until("the hook's certificate", lambda: self.shown() == told())
        self.assertEqual(self.machine.property("hoop-relay", "MainPID"), pid)
        drop_in = "/etc/systemd/system/hoop-relay.service.d/override.conf"
        self.machine.write(drop_in, section.split("```ini\n", 1)[1].split("```", 1)[0])
        self.machine.run("systemctl", "daemon-reload")
        for _ in range(2):
            self.certify(live)
            self.machine.run("systemctl", "restart", "hoop-relay")
            self.until("the credential's certificate", lambda: self.shown() == told())
        self.assertNotIn("denied", self.log("relay"))
        self.machine.run("rm", drop_in)
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "restart", "hoop-relay")

    def test_who_is_killed_is_started_again_and_who_is_stopped_ends_well(self):
        pid = self.machine.property("hoop-gateway", "MainPID")
        self.machine.run("kill", "-KILL", pid)
        is_new = lambda: self.machine.property("hoop-gateway", "MainPID") not in (pid, "0")
        self.until("another process", lambda: is_new() and self.machine.property("hoop-gateway", "ActiveState") == "active")
        self.push()
        self.machine.run("systemctl", "restart", "hoop-relay")
        self.machine.run("systemctl", "stop", "hoop-relay")
        self.assertEqual(self.machine.property("hoop-relay", "Result"), "success")
        self.machine.run("systemctl", "start", "hoop-relay")


if __name__ == "__main__":
    unittest.main()
