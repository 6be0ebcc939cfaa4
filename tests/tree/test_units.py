"""The systemd units in dist/systemd are as closed as they are said to be, and systemd understands them."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from metadata import ROOT

UNITS = sorted((Path(ROOT) / "dist/systemd").glob("*.service"))
# It changes the machine's network, and needs a device for it.
TUN = Path(ROOT) / "dist/systemd/tun/hoop-agent-tun.service"
AGENT = Path(ROOT) / "dist/systemd/user/hoop-agent.service"

# systemd's own measure, from 0 (closed) to 10, times ten.
EXPOSURE_MAX = "20"

# Each settles something that the measure alone does not.
SETTINGS = ["Type=notify", "WatchdogSec=60", "UMask=0077", "StateDirectoryMode=0700", "LimitCORE=0", "CapabilityBoundingSet=",
            "MemoryDenyWriteExecute=yes", "PrivateDevices=yes", "RestrictNamespaces=yes", "Restart=on-failure", "ExecReload=/bin/kill -HUP $MAINPID",
            "WantedBy=multi-user.target"]


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, check=False)


class Units(unittest.TestCase):
    def test_there_is_one_for_each_server(self):
        self.assertEqual([unit.stem for unit in UNITS], ["hoop-gateway", "hoop-relay", "hoop-service"])

    def test_each_exposes_at_most_two(self):
        for unit in UNITS:
            with self.subTest(unit=unit.name):
                ran = analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", str(unit))
                self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
                self.assertIn("Overall exposure level", ran.stdout)

    def test_an_open_unit_would_be_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder) / "open.service"
            unit.write_text("[Service]\nExecStart=/bin/true\n")
            self.assertNotEqual(analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", str(unit)).returncode, 0)

    def test_systemd_understands_each_line(self):
        for unit in UNITS:
            with self.subTest(unit=unit.name), tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / unit.name
                # The program need not be installed here.
                copy.write_text(unit.read_text().replace("/usr/local/bin/hoop", "/bin/true"))
                ran = analyze("verify", "--man=no", "--recursive-errors=no", str(copy))
                self.assertEqual((ran.returncode, ran.stderr.strip()), (0, ""))

    def test_systemd_understands_the_agents_units(self):
        for unit in [AGENT, TUN]:
            with self.subTest(unit=unit.name), tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / unit.name
                copy.write_text(unit.read_text().replace("/usr/local/bin/hoop", "/bin/true"))
                ran = analyze("verify", "--man=no", "--recursive-errors=no", str(copy))
                self.assertEqual((ran.returncode, ran.stderr.strip()), (0, ""))

    def test_the_one_with_a_tun_has_one_capability_and_one_device(self):
        ran = analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", str(TUN))
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        lines = TUN.read_text().splitlines()
        for setting in ["CapabilityBoundingSet=CAP_NET_ADMIN", "AmbientCapabilities=CAP_NET_ADMIN", "DevicePolicy=closed", "DeviceAllow=/dev/net/tun rw",
                        "DynamicUser=yes", "NoNewPrivileges=yes", "WatchdogSec=60", "LimitCORE=0"]:
            self.assertIn(setting, lines)

    def test_each_has_what_the_measure_does_not_weigh(self):
        for unit in UNITS:
            lines = unit.read_text().splitlines()
            for setting in SETTINGS:
                self.assertIn(setting, lines, unit.name)

    def test_each_flag_that_a_unit_gives_is_one_of_its_role(self):
        for unit in UNITS:
            role = unit.stem.removeprefix("hoop-")
            source = next((Path(ROOT) / "crates/hoop/src").rglob(f"{role}.rs")).read_text()
            for flag in re.findall(r" --([a-z-]+)", unit.read_text()):
                self.assertRegex(source, rf"\b{flag.replace('-', '_')}: ", f"{unit.name}: --{flag}")

    def test_install_puts_each_where_systemd_looks(self):
        with tempfile.TemporaryDirectory() as folder:
            built, to = Path(folder) / "built", Path(folder) / "to"
            built.mkdir()
            (built / "hoop").write_text("#!/bin/sh\n")
            environment = {**os.environ, "BUILT": str(built), "DESTDIR": str(to)}
            command = [str(Path(ROOT) / "dist/install"), "/opt/hoop"]
            subprocess.run(command, env=environment, check=True, capture_output=True)
            root = to / "opt/hoop"
            self.assertTrue(os.access(root / "bin/hoop", os.X_OK))
            self.assertTrue((root / "lib/sysusers.d/hoop.conf").is_file())
            for unit in [*UNITS, TUN]:
                text = (root / "lib/systemd/system" / unit.name).read_text()
                self.assertIn("ExecStart=/opt/hoop/bin/hoop ", text)
                self.assertNotIn("/usr/local", text)
            self.assertIn("ExecStart=/opt/hoop/bin/hoop agent ", (root / "lib/systemd/user" / AGENT.name).read_text())


if __name__ == "__main__":
    unittest.main()
