"""A small machine of its own, with a systemd of its own, in namespaces: its units can be started, and nothing of the machine around it is touched.

Its root is a new file system in memory with this machine's /usr in it, for reading alone: systemd clears /tmp and writes to /etc and /var where it starts.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HOOP = Path(os.environ.get("HOOP_BINARY", ROOT / "target/debug/hoop"))

# What begins the machine, as process 1 of new namespaces. $1: the root that is to be, $2: a control group for it alone, $3: the program.
BEGIN = r"""
set -eu
root=$1 group=$2 hoop=$3
mount --make-rprivate /
mount -t tmpfs -o mode=755 machine "$root"
cd "$root"
mkdir -p usr proc sys dev run tmp etc/systemd/system etc/sysusers.d etc/hoop var/lib srv
mount --bind /usr usr
mount -o remount,bind,ro usr
mount -t tmpfs -o mode=755 local usr/local
mkdir usr/local/bin
touch usr/local/bin/hoop
mount --bind "$hoop" usr/local/bin/hoop
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
cp /etc/ld.so.cache etc/
mkdir -p etc/ssl
cp /etc/ssl/openssl.cnf etc/ssl/
printf 'root:x:0:0::/srv:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n' > etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\n' > etc/group
printf 'passwd: files\ngroup: files\nhosts: files\n' > etc/nsswitch.conf
printf '127.0.0.1 localhost\n::1 localhost\n' > etc/hosts
printf '%032d\n' 1 > etc/machine-id
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t tmpfs -o mode=755 dev dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 run run
cat > etc/systemd/system/machine.target <<'UNIT'
[Unit]
Description=A machine for a test
Requires=basic.target
After=basic.target
AllowIsolate=yes
UNIT
mkdir old
pivot_root . old
umount -l old
rmdir old
# As systemd has it but in a container: credentials are mounted in a namespace of their own, and appear here.
mount --make-rshared /
exec env -i container=test PATH=/usr/local/bin:/usr/bin:/usr/sbin /usr/lib/systemd/systemd --system --unit=machine.target
"""


class Machine:
    """A running one, until `stop`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.group = self._make_group()
        root = Path(self.folder.name) / "root"
        root.mkdir()
        self.log = open(Path(self.folder.name) / "log", "w+b")
        # The control group is entered first: the namespace of control groups begins where its first process is.
        enter = f'echo $$ > "{self.group}/cgroup.procs"; exec "$@"'
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup"]
        begin = ["sh", "-c", BEGIN, "machine", str(root), str(self.group), str(HOOP)]
        self.outer = subprocess.Popen(["sh", "-c", enter, "enter", *unshare, *begin], stdin=subprocess.DEVNULL,
                                      stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self.pid = self._first_process()
            self._until("systemd is there", lambda: self._is_up())
        except BaseException:
            self.stop()
            raise

    def _is_up(self):
        ran = self.run("systemctl", "is-active", "machine.target", check=False)
        return ran.stdout.strip() == "active"

    @staticmethod
    def _make_group():
        """A control group of version 2, which is where it is mounted alone, or beside version 1."""
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        place = next(Path(fields[1]) for fields in mounts if fields[2] == "cgroup2")
        group = place / f"hoop-test-{os.getpid()}"
        group.mkdir()
        return group

    def _first_process(self):
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children")
        found = self._until("the first process", lambda: children.read_text().split() if self._lives() else None)
        return int(found[0])

    def _lives(self):
        if self.outer.poll() is not None:
            raise AssertionError(f"the machine did not begin: {self.said()}")
        return True

    def said(self):
        """What the machine's first process said."""
        self.log.flush()
        return Path(self.log.name).read_text(errors="replace")

    def _until(self, what, ask):
        end = time.monotonic() + 90
        while True:
            found = self._lives() and ask()
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"{what} never came about: {self.said()}")
            time.sleep(0.1)

    def command(self, *arguments):
        """The same command within the machine."""
        return ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--uts", "--ipc", "--net", "--root", "--wd=/srv", *arguments]

    def run(self, *arguments, check=True, text=None):
        """Runs a command within the machine."""
        ran = subprocess.run(self.command(*arguments), capture_output=True, text=True, input=text, check=False, timeout=120)
        if check and ran.returncode != 0:
            raise AssertionError(f"{arguments}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return ran

    def write(self, path, text):
        """Writes a file of the machine."""
        self.run("sh", "-c", f'mkdir -p "$(dirname {path})" && cat > {path}', text=text)

    def property(self, unit, name):
        """What systemd says of a unit."""
        return self.run("systemctl", "show", "--value", "--property", name, unit).stdout.strip()

    def stop(self):
        """Ends all that runs in it, by the end of its process 1."""
        self.outer.kill()
        self.outer.wait()
        self.log.close()
        for _ in range(100):
            try:
                self._remove_group(self.group)
                break
            except OSError:
                time.sleep(0.1)
        self.folder.cleanup()

    def _remove_group(self, group):
        if group.exists():
            for child in [entry for entry in group.iterdir() if entry.is_dir()]:
                self._remove_group(child)
            group.rmdir()
