"""Programs that are measured: found, installed from Debian, built; and what is known of them.

For:     run.py, contenders/.
Must not know: how anything is measured.
Entry points: install, installed, newest_pgbouncer, prepares, npm_install, build, check_program, facts.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import time

from common import REPO, Failed, run

PACKAGES = {"pgbouncer": "pgbouncer", "gcc": "gcc libc6-dev libssl-dev", "valgrind": "valgrind",
            "beanstalkd": "beanstalkd", "redis-server": "redis-server", "pgqd": "pgqd",
            "nats-server": "nats-server", "rabbitmq-server": "rabbitmq-server",
            "npm": "nodejs npm", "openssl": "openssl"}

# packages that start a service of their own, which nobody here wants
SERVICES = ("pgbouncer", "beanstalkd", "redis-server", "pgqd", "nats-server", "rabbitmq-server")


def install(packages):
    """Installs those of the packages that are missing. Failed when it cannot be done."""
    script = 'uid=$(id -u); . "$1/dev/packages.sh"; packages_install /dev/stderr %s' % packages
    done = subprocess.run(["sh", "-c", script, "sh", REPO], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failed("%s: could not be installed" % packages)


def _find(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def installed(program):
    """The path of a program; installs its package when there is none."""
    if _find(program) is None:
        print("installing %s" % program, file=sys.stderr)
        install(PACKAGES[program])
        if program in SERVICES:
            subprocess.run(["sh", "-c", "command -v service >/dev/null && service %s stop" % program],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
    path = _find(program)
    if path is None:
        raise Failed("%s is missing and could not be installed" % program)
    return path


# of the newest suite: what pgbouncer is linked with is newer than what is installed here
NEWEST = ["pgbouncer", "libc6", "libcares2", "libevent-2.1-7t64", "libldap2", "libpam0g", "libssl3t64", "libsystemd0",
          "libsasl2-2", "libaudit1", "libcap-ng0", "libcap2", "libzstd1", "zlib1g"]

# apt as it would be on a machine of that suite on which nothing is installed
NEWEST_APT = """Dir::Etc::SourceList "{0}/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "{0}/lists";
Dir::State::Status "/dev/null";
Dir::Cache "{0}/cache";
APT::Sandbox::User "root";
"""


def debian_mirror():
    """The first archive that this machine's apt has which is not of security updates."""
    for uri in run(["apt-get", "indextargets", "--format", "$(REPO_URI)"]).split():
        if "security" not in uri:
            return uri
    raise Failed("apt knows no archive")


def newest_pgbouncer(where, suite="sid"):
    """The path of pgbouncer as Debian's newest suite has it, unpacked with its libraries into a folder."""
    where = os.path.abspath(where)
    program, root = os.path.join(where, "pgbouncer"), os.path.join(where, "root")
    if os.path.exists(program):
        return program
    print("unpacking pgbouncer of Debian %s" % suite, file=sys.stderr)
    for name in ("lists/partial", "cache/archives/partial", "packages", "root"):
        os.makedirs(os.path.join(where, name), exist_ok=True)
    for name, text in (("sources.list", "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n"
                        % (debian_mirror(), suite)),
                       ("apt.conf", NEWEST_APT.format(where))):
        with open(os.path.join(where, name), "w", encoding="utf-8") as out:
            out.write(text)
    env = dict(os.environ, APT_CONFIG=os.path.join(where, "apt.conf"))
    packages = os.path.join(where, "packages")
    run(["apt-get", "-qq", "update"], env=env, timeout=180)
    run(["apt-get", "-qq", "download", *NEWEST], env=env, cwd=packages, timeout=180)
    for package in os.listdir(packages):
        run(["dpkg-deb", "-x", os.path.join(packages, package), root])
    with open(program, "w", encoding="utf-8") as out:
        out.write('#!/bin/sh\nexec "{0}/usr/lib64/ld-linux-x86-64.so.2" --library-path '
                  '"{0}/usr/lib/x86_64-linux-gnu" "{0}/usr/sbin/pgbouncer" "$@"\n'.format(root))
    os.chmod(program, 0o755)
    return program


def prepares(pgbouncer):
    """Does this pgbouncer follow prepared statements in transaction pooling, as it is configured by default?"""
    version = re.search(r"(\d+)\.(\d+)", run([pgbouncer, "--version"]))
    return tuple(map(int, version.groups())) >= (1, 24)


def npm_install(where, *packages):
    """Packages of npm, with their versions, into a folder; the first one tells whether it is there."""
    installed("npm")
    os.makedirs(where, exist_ok=True)
    if not os.path.exists(os.path.join(where, "node_modules", packages[0].rsplit("@", 1)[0])):
        run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", where, *packages],
            timeout=180)


def build(where):
    """A release build out of the tree; returns the program."""
    os.makedirs(where, exist_ok=True)
    if not os.path.exists(os.path.join(REPO, "configure")):
        run(["sh", os.path.join(REPO, "autogen.sh")], cwd=REPO)
    if not os.path.exists(os.path.join(where, "Makefile")):
        run([os.path.join(REPO, "configure"), "-q", "CFLAGS=-O2 -g -flto=auto -ffat-lto-objects"], cwd=where)
    run(["make", "-s", "-j%d" % (os.cpu_count() or 1), "qbouncer"], cwd=where)
    return os.path.join(where, "qbouncer")


def check_program(path):
    """A sanitized build would be measured in vain."""
    with open(path, "rb") as program:
        if b"__asan_init" in program.read():
            raise Failed("%s was built with sanitizers" % path)


# -- what is known ---------------------------------------------------------------------------------


def _first_match(path, pattern):
    """The first group of the first match in a file of the system."""
    try:
        with open(path, encoding="utf-8", errors="replace") as text:
            found = re.search(pattern, text.read(), re.M)
            return found.group(1) if found else "unknown"
    except OSError:
        return "unknown"


def _commit():
    """The commit of this tree, and whether something in it is not committed."""
    try:
        git = ["git", "-c", "safe.directory=*", "-C", REPO]
        text = run([*git, "describe", "--always", "--exclude=*"]).strip()
        dirty = run([*git, "status", "--porcelain", "--untracked-files=no"]).strip()
        return text + (" with changes" if dirty else "")
    except (Failed, OSError):
        return "unknown"


def facts(rig, pgbouncer, qbouncer, plan):
    """What a figure is worth nothing without."""
    memory = int(_first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)")) / 1048576
    return [
        ("date", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
        ("machine", "%s, %d cores, %.0f GiB" % (
            _first_match("/proc/cpuinfo", r"^model name\s*: (.*)"), os.cpu_count() or 0, memory)),
        ("system", "%s, Linux %s" % (
            _first_match("/etc/os-release", r'^PRETTY_NAME="(.*)"'), platform.release())),
        ("load before", "%.2f" % os.getloadavg()[0]),
        ("Postgres", rig.psql("SHOW server_version") + ", fsync on, synchronous_commit on"),
        ("pgbouncer", run([pgbouncer, "--version"]).splitlines()[0]),
        ("qbouncer", run([qbouncer, "--version"]).splitlines()[0]),
        ("commit", _commit()),
        ("clients by", "unix socket" if rig.unix else "TCP over loopback"),
        ("plan", plan.name),
    ]
