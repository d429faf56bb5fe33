"""A real sshd on loopback, with keys and a configuration of its own, and the client's side of it."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNPACKED = ROOT / ".make" / "sshd"


class SshServer:
    """Accepts the user who runs the tests, by one key; ``destination`` is what ssh takes to get there.

    Sessions get ``environment``. Debian's server runs in a mount namespace, in which its user and its folder exist: nothing of the
    system is changed.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        public = (folder / "host.pub").read_text()
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {public}")
        (folder / "client").write_text(
            f"Host there\n HostName 127.0.0.1\n Port {self.port}\n IdentityFile {folder / 'user'}\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {folder / 'known'}\n StrictHostKeyChecking yes\n"
        )
        self.binaries = folder / "bin"
        self.binaries.mkdir()
        # ssh reads its user's configuration, never $HOME's: it is given as an argument by a command of the same name.
        wrapper = self.binaries / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder / "client"} "$@"\n')
        wrapper.chmod(0o755)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Listen; returns when a connection would be accepted."""
        settings = "".join(f"SetEnv {name}={value}\n" for name, value in self.environment.items())
        (self.folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {self.folder / 'host'}\nPidFile none\nStrictModes no\nUsePAM no\n"
            f"AuthorizedKeysFile {self.folder / 'user.pub'}\nPasswordAuthentication no\n{settings}"
        )
        program = UNPACKED / "usr/sbin/sshd"
        serve = (
            f"exec {program if program.exists() else '/usr/sbin/sshd'} -D -e -f {self.folder / 'sshd_config'}"
        )
        command = ["sh", "-c", serve]
        if os.geteuid() == 0:
            users = Path("/etc/passwd").read_text()
            if "\nsshd:" not in users:
                users += "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin\n"
            (self.folder / "passwd").write_text(users)
            prepare = f"mount --bind {self.folder / 'passwd'} /etc/passwd && mount -t tmpfs tmpfs /run && mkdir /run/sshd"
            command = ["unshare", "--mount", "sh", "-c", f"{prepare} && {serve}"]
        libraries = ":".join(str(path) for path in UNPACKED.glob("**/x86_64-linux-gnu"))
        self.process = subprocess.Popen(
            command, env={**os.environ, "LD_LIBRARY_PATH": libraries}, stderr=subprocess.PIPE
        )
        said = b""
        assert self.process.stderr is not None
        while b"Server listening" not in said:
            line = self.process.stderr.readline()
            assert line, f"sshd ended: {said.decode()}"
            said += line

    def cut(self) -> None:
        """End the server and every session, as when the network goes."""
        assert self.process is not None
        for child in _descendants(self.process.pid):
            os.kill(child, 9)
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def _descendants(pid: int) -> list[int]:
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*(each for child in children for each in _descendants(child)), *children]
