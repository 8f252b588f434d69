"""The manual pages and the units of systemd: whole, and without mistakes of form."""

import os
import re
import shutil
import subprocess

import pytest

from conftest import find_program
from tree import ROOT


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


@pytest.mark.parametrize("name", ["qbouncer", "qbouncer-work"])
def test_every_option_is_in_the_manual(name):
    program = os.path.join(os.path.dirname(find_program()), name)
    told = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    page = read("doc", name + ".1").replace("\\", "")
    options = re.findall(r"--[a-z-]+", told)
    assert len(options) >= 8
    for option in options:
        assert option in page, option


@pytest.mark.parametrize("page", ["qbouncer.1", "qbouncer.5", "qbouncer-work.1"])
def test_pages_are_good_roff(page):
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", os.path.join(ROOT, "doc", page)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_units(program, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    for made in "qbouncer.service", "qbouncer-work@.service":
        unit = read("etc", made + ".in").replace("@bindir@/qbouncer", program).replace(program + "-work", program)
        for name, value in (("sysconfdir", "/etc"), ("docdir", "/usr/share/doc/qbouncer"), ("service_type", "notify")):
            unit = unit.replace("@%s@" % name, value)
        assert not re.search(r"@[a-z_]+@", unit)
        # system calls are named with an @, too: groups
        (tmp_path / made).write_text(unit, encoding="utf-8")
    (tmp_path / "qbouncer.socket").write_text(read("etc", "qbouncer.socket"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *(str(tmp_path / u) for u in (
        "qbouncer.service", "qbouncer.socket", "qbouncer-work@mail.service"))],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert "qbouncer" not in done.stdout, done.stdout
