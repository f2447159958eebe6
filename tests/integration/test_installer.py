"""The installer as root, in a root file system of its own: nothing that the service user can write
leads it astray.

In a mount name space, with a stubbed systemctl; as another user than root in a user name space as
well, in which both root and the service user are that user.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICE_USER = 64000
DATA = "/var/lib/pykoclaw/.local/share/pykoclaw"
STATE = f"/var/lib/pykoclaw/.local/state/pykoclaw/{hashlib.sha256(DATA.encode()).hexdigest()[:12]}"
# Holds the lock of the data directory as a daemon does, until SIGTERM; the pid that it writes down
# is the argument's.
HOLDER = f"""
import fcntl, os, sys, time
os.makedirs("{DATA}", exist_ok=True)
os.makedirs("{STATE}", mode=0o700, exist_ok=True)
lock = os.open("{DATA}/pykoclaw-acp.lock", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(lock, (sys.argv[1:] or [str(os.getpid())])[0].encode() + b"\\n/run/pykoclaw/acp.sock\\n")
with open("/var/lib/pykoclaw/held.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("/var/lib/pykoclaw/held.new", "/var/lib/pykoclaw/held")
time.sleep(600)
"""
STUB = """#!/bin/sh
echo "$(basename "$0") $*" >> /said
case "$*" in *MainPID*) echo 0 ;; esac
"""
# A new root of which this user is root: /usr and the program are those of the machine, all else is
# empty.
ENTER = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$NEW"
cd "$NEW"
mkdir -p etc/systemd/system run/pykoclaw var/lib/pykoclaw/.local/bin tmp dev proc usr stub root opt
for link in bin sbin lib lib64; do [ ! -L /$link ] || cp -P /$link .; done
mount --rbind /usr usr; mount --rbind /proc proc; mount --rbind /dev dev
for place in "$REPOSITORY" "$PYTHON" "$ENVIRONMENT"; do
    mkdir -p ".$place"; mount --rbind "$place" ".$place"
done
printf 'root:x:0:0::/root:/bin/sh\\npykoclaw:x:%s:%s::/var/lib/pykoclaw:/bin/sh\\n' "$OWNER" "$OWNER" > etc/passwd
printf 'root:x:0:\\npykoclaw:x:%s:\\n' "$OWNER" > etc/group
for name in systemctl systemd-sysusers systemd-tmpfiles; do printf '%s' "$STUB" > stub/$name; done
# Where there is one user only, nobody can become another.
[ "$OWNER" != 0 ] || printf '#!/bin/sh\\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\\n' > stub/setpriv
printf '#!/bin/sh\\nexec %s/bin/python -m pykoclaw_acp "$@"\\n' "$ENVIRONMENT" > opt/pykoclaw-acp
printf '%s' "$HOLDER" > opt/holder.py
chmod 755 stub/* opt/*; chmod 1777 tmp; chmod 700 run/pykoclaw var/lib/pykoclaw
chown -R "$OWNER:$OWNER" run/pykoclaw var/lib/pykoclaw
exec chroot . /bin/sh -c "$SCRIPT"
"""
COMMON = r"""
as_service() { setpriv --reuid=pykoclaw --regid=pykoclaw --clear-groups -- env HOME=/var/lib/pykoclaw "$@"; }
hold() {
    as_service $ENVIRONMENT/bin/python /opt/holder.py "$@" &
    until [ -e /var/lib/pykoclaw/held ]; do sleep 0.05; done
    holder=$(cat /var/lib/pykoclaw/held)
}
install() {
    status=0
    $REPOSITORY/deploy/install.sh --system --program /opt/pykoclaw-acp "$@" 2>&1 || status=$?
    echo STATUS $status
}
end() { kill $holder $victim 2>/dev/null; wait; }
trap end EXIT
"""
# Another user than root, who can reach the program: from there on it is as for anybody.
BECOME_ANOTHER = """
set -e
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/python /mnt/new
chown 65533 /mnt/new
mount --rbind "$PYTHON" /mnt/python
case $PYTHON in /root/*)
    mount -t tmpfs -o mode=755 tmpfs /root
    mkdir -p "$PYTHON"
    mount --rbind /mnt/python "$PYTHON" ;;
esac
export NEW=/mnt/new
exec setpriv --reuid=65533 --regid=65533 --clear-groups unshare --user --map-root-user --mount sh -c "$ENTER"
"""

Inside = Callable[[str], str]


@pytest.fixture(params=["root", "another user"])
def inside(request: pytest.FixtureRequest, tmp_path: Path) -> Inside:
    """Runs a script in there; gives what it says."""
    if not all(shutil.which(name) for name in ("unshare", "setpriv", "chroot")):
        pytest.skip("util-linux is not installed")
    is_root = request.param == "root"
    if is_root and os.geteuid() != 0:
        pytest.skip("only root is root")
    if os.geteuid() != 0:
        enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    else:
        enter = ["unshare", "--mount", "--propagation=private", "sh", "-c"]
    becoming = BECOME_ANOTHER if os.geteuid() == 0 and not is_root else ENTER
    new = tmp_path / "new"
    new.mkdir()

    def run(script: str) -> str:
        common = COMMON.replace("$ENVIRONMENT", sys.prefix).replace("$REPOSITORY", str(ROOT))
        environment = {
            "NEW": str(new),
            "REPOSITORY": str(ROOT),
            "PYTHON": sys.base_prefix,
            "ENVIRONMENT": sys.prefix,
            "OWNER": str(SERVICE_USER if is_root else 0),
            "STUB": STUB,
            "HOLDER": HOLDER,
            "ENTER": ENTER,
            "SCRIPT": f"cd /; {common}\n{script}\nexit",
            "PATH": "/stub:/usr/sbin:/usr/bin:/sbin:/bin",
        }
        done = subprocess.run(
            [*enter, becoming],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tried = subprocess.run(
        [*enter, "mount -t tmpfs tmpfs /mnt"], check=False, capture_output=True, text=True
    )
    if tried.returncode:
        pytest.skip(f"name spaces cannot be made here: {tried.stderr}")
    return run


def test_a_daemon_of_a_client_hands_over(inside: Inside) -> None:
    said = inside("hold; install; kill -0 $holder 2>/dev/null && echo ALIVE; cat /said")
    assert "hands over to the service" in said
    assert "STATUS 0" in said
    assert "ALIVE" not in said
    assert "systemctl --system start pykoclaw-acp.socket pykoclaw-acp.service" in said


def test_no_client_starts_daemon_before_the_service(inside: Inside) -> None:
    """Also if none has run as the installer looked."""
    looks = f'case "$*" in *" start "*.service) flock -n {STATE}/spawn.lock true || echo BLOCKED >>/said ;; esac'
    said = inside(f"printf '%s\\n' '{looks}' >>/stub/systemctl; install; cat /said")
    assert "STATUS 0" in said
    assert said.count("BLOCKED") == 1


def test_pid_in_lock_file_requires_kernel_confirmation(inside: Inside) -> None:
    """The file is the service user's: root ended the process that it named."""
    said = inside("sleep 600 & victim=$!; hold $victim; install; kill -0 $victim && echo UNHARMED")
    assert "UNHARMED" in said
    assert "hands over" not in said


@pytest.mark.parametrize("name", ["spawn.lock", "pykoclaw-acp.lock"])
def test_no_link_of_the_service_user_is_followed(inside: Inside, name: str) -> None:
    """Root opened spawn.lock for writing, and so truncated what it led to."""
    place = f"{STATE}/{name}" if name == "spawn.lock" else f"{DATA}/{name}"
    said = inside(
        f"hold; echo precious > /root/precious; rm -f {place}; ln -s /root/precious {place}; install;"
        " cat /root/precious"
    )
    assert said.endswith("precious\n")


def test_pipe_as_lock_file_does_not_block_installer(inside: Inside) -> None:
    said = inside(
        f"as_service mkdir -p {DATA}; as_service mkfifo {DATA}/pykoclaw-acp.lock; install; cat /said"
    )
    assert "STATUS 0" in said


@pytest.mark.parametrize(
    "program", ["setsid", "setpriv", "env", "pykoclaw-acp", "systemctl", "stat", "sh"]
)
def test_service_users_programs_are_never_run_as_root(inside: Inside, program: str) -> None:
    said = inside(
        f"bin=/var/lib/pykoclaw/.local/bin; printf '#!/bin/sh\\nid -u >> /var/lib/pykoclaw/ran\\n' > $bin/{program};"
        f" chmod 755 $bin/{program}; touch /var/lib/pykoclaw/ran; chmod 666 /var/lib/pykoclaw/ran; hold;"
        " install; echo RAN $(cat /var/lib/pykoclaw/ran); id -u pykoclaw"
    )
    ran = said.partition("RAN")[2].split()
    owner = ran.pop()
    assert set(ran) <= {owner}


@pytest.mark.parametrize(
    "spoil",
    [
        "mkdir /tmp/other; ln -s /tmp/other /etc/pykoclaw",
        "mkdir -m 777 /etc/pykoclaw",
        "mkdir -m 775 /etc/systemd/system/pykoclaw-acp.service.d",
        "chmod 777 /etc/systemd",
        "mkdir /etc/pykoclaw; : >/root/other; ln -s /root/other /etc/pykoclaw/environment",
        "mkdir /etc/pykoclaw; ln -s /nowhere /etc/pykoclaw/environment",
        "mkdir /etc/pykoclaw; : >/etc/pykoclaw/environment; chmod 666 /etc/pykoclaw/environment",
    ],
)
def test_what_others_can_write_is_refused(inside: Inside, spoil: str) -> None:
    said = inside(f"{spoil}; install; ls /etc/systemd/system/*.service /tmp/other 2>/dev/null; :")
    assert "must be root's, no link, and writable by nobody else" in said
    assert "STATUS 1" in said
    assert "pykoclaw-acp.service\n" not in said


@pytest.mark.parametrize("place", ["/etc/pykoclaw", "/etc/pykoclaw/environment"])
def test_settings_of_the_service_user_are_refused(inside: Inside, place: str) -> None:
    said = inside(
        f"mkdir -m 755 /etc/pykoclaw; : >/etc/pykoclaw/environment; chown pykoclaw {place}; install; id -u pykoclaw"
    )
    if said.splitlines()[-1] == "0":
        pytest.skip("in this name space the service user is root")
    assert "STATUS 1" in said


def test_no_umask_opens_what_it_makes(inside: Inside) -> None:
    said = inside(
        "umask 000; install; find /etc -perm /022 ! -type l; stat -c '%a' /etc/pykoclaw/*"
    )
    assert said.endswith("STATUS 0\n600\n600\n")


def test_program_that_the_service_cannot_see_is_refused(inside: Inside) -> None:
    said = inside(
        "cp /opt/pykoclaw-acp /root/; $REPOSITORY/deploy/install.sh --system --program /root/pykoclaw-acp"
        " 2>&1 || echo STATUS $?; ls /etc/systemd/system"
    )
    assert "sees nothing below /home, /root" in said
    assert said.endswith("STATUS 1\n")


def test_unit_path_with_special_characters_is_refused(inside: Inside) -> None:
    said = inside('cp /opt/pykoclaw-acp "/opt/a b%n"; install --program "/opt/a b%n"')
    assert "has a character that a unit cannot hold" in said


DROPIN = "/etc/systemd/system/pykoclaw-acp.service.d/program.conf"
PLAIN = "$REPOSITORY/deploy/install.sh --system 2>&1 || echo STATUS $?"


def test_only_a_chosen_program_is_kept(inside: Inside) -> None:
    """One that PATH led to gives way to another that it leads to later."""
    said = inside(
        "mkdir /opt/old /opt/new; cp /opt/pykoclaw-acp /opt/old; cp /opt/pykoclaw-acp /opt/new\n"
        f"(PATH=/opt/old:$PATH; {PLAIN}); (PATH=/opt/new:$PATH; {PLAIN}); cat {DROPIN}\n"
        f"install; (PATH=/opt/new:$PATH; {PLAIN}); cat {DROPIN}"
    )
    assert "the service runs /opt/old/pykoclaw-acp" in said
    assert "the service runs /opt/new/pykoclaw-acp" in said
    assert "keeps /opt/pykoclaw-acp, which was chosen with --program" in said
    ran = [line for line in said.splitlines() if line.startswith('ExecStart="')]
    assert ran == ['ExecStart="/opt/new/pykoclaw-acp" serve', 'ExecStart="/opt/pykoclaw-acp" serve']


def test_drop_in_that_cannot_be_read_is_refused(inside: Inside) -> None:
    said = inside(
        f"install; sed -i 's/\"//g' {DROPIN}; (PATH=/opt:$PATH; {PLAIN}); grep ExecStart=/ {DROPIN}"
    )
    assert "is not as this script writes it" in said
    assert said.splitlines()[-2:] == ["STATUS 1", "ExecStart=/opt/pykoclaw-acp serve"]


def test_kept_program_hidden_from_service_is_refused(inside: Inside) -> None:
    said = inside(f"install; cp /opt/pykoclaw-acp /root/; sed -i s-/opt/-/root/- {DROPIN}; {PLAIN}")
    assert "sees nothing below /home, /root" in said
    assert said.splitlines()[-1] == "STATUS 1"


def test_users_daemon_is_looked_for_from_home(inside: Inside) -> None:
    """A trusted ./.env of where the installer is called would say where the data is."""
    said = inside(
        "printf '#!/bin/sh\\npwd > /where; echo none\\n' > /opt/probe; chmod 755 /opt/probe\n"
        "chown 0:0 /root; mkdir /tmp/project; cd /tmp/project\n"
        "HOME=/root XDG_RUNTIME_DIR=/tmp $REPOSITORY/deploy/install.sh --program /opt/probe 2>&1\n"
        "cat /where"
    )
    assert said.splitlines()[-1] == "/root"


def test_users_manager_is_found_without_a_login(inside: Inside) -> None:
    """As with su, cron and sudo, with which the variable is unset or another user's."""
    said = inside(
        "printf '#!/bin/sh\necho $XDG_RUNTIME_DIR >>/asked\n' > /stub/systemctl; chown 0:0 /root\n"
        "mkdir -p -m 700 /run/user/$(id -u); export HOME=/root\n"
        "for XDG_RUNTIME_DIR in '' /nowhere; do export XDG_RUNTIME_DIR\n"
        "$REPOSITORY/deploy/install.sh --program /opt/pykoclaw-acp 2>&1; done; sort -u /asked"
    )
    assert "No systemd manager" not in said
    assert said.splitlines()[-1] == "/run/user/0"


def test_user_install_as_root_refuses_foreign_home(inside: Inside) -> None:
    install = f"{ROOT}/deploy/install.sh --program /opt/pykoclaw-acp"
    script = f"HOME=/var/lib/pykoclaw {install} 2>&1 && echo DONE; id -u pykoclaw"
    said = inside(script)
    if said.splitlines()[-1] == "0":
        pytest.skip("in this name space the service user is root")
    assert "is not yours" in said
    assert "DONE" not in said
