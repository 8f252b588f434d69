"""Certificates for tests, made by the openssl program.

For:     conftest.py of test/it: the fixture pki.
Must not know: the proxy, Postgres, pytest.
Entry points: Authority(folder, name).issue(name, ...): files that a server or client is given.
"""

import os
import pwd
import subprocess


def _openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError("openssl %s:\n%s" % (" ".join(arguments), done.stdout))


def _key(path):
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
    os.chmod(path, 0o600)
    if os.geteuid() == 0:
        owner = pwd.getpwnam(os.environ.get("QB_PG_USER", "postgres"))
        os.chown(path, owner.pw_uid, owner.pw_gid)


class Pair:
    """A certificate and its key."""

    def __init__(self, folder, name):
        self.cert = os.path.join(folder, name + ".crt")
        self.key = os.path.join(folder, name + ".key")


class Authority(Pair):
    """A self-signed root that issues certificates into its folder."""

    def __init__(self, folder, name):
        super().__init__(folder, name)
        self.folder = folder
        _key(self.key)
        _openssl("req", "-x509", "-new", "-key", self.key, "-subj", "/CN=" + name, "-days", "30",
                 "-addext", "basicConstraints=critical,CA:TRUE", "-out", self.cert)

    def issue(self, name, cn="localhost", san=None, days=30):
        """san: as "DNS:localhost,IP:127.0.0.1"; None for none. days below zero: expired."""
        made = Pair(self.folder, name)
        request = os.path.join(self.folder, name + ".csr")
        extensions = os.path.join(self.folder, name + ".ext")
        _key(made.key)
        _openssl("req", "-new", "-key", made.key, "-subj", "/CN=" + cn, "-out", request)
        with open(extensions, "w", encoding="ascii") as out:
            out.write("basicConstraints=CA:FALSE\n")
            if san:
                out.write("subjectAltName=%s\n" % san)
        _openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key,
                 "-set_serial", str(int.from_bytes(os.urandom(8), "big") >> 1), "-days", str(days),
                 "-extfile", extensions, "-out", made.cert)
        return made
