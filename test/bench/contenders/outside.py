"""Contenders with programs of their own.

For:     loads/outside.py.
Must not know: how they are loaded.
Entry points: Outside; Missing, which says why one is left out.
"""

import os
import socket
import subprocess
import time

from common import Failed
from pgcluster import free_port


class Missing(Exception):
    """It cannot be had here; the text says why."""


class Outside:
    """One of them, running. note: what differs from the others' work."""

    name = ""
    note = ""

    def __init__(self, rig):
        self.rig = rig
        self.process = None
        rig.running.append(self)

    @classmethod
    def fetch(cls):
        """Installs what it needs; Failed when that cannot be had."""
        raise NotImplementedError

    def start(self):
        """Brings it up with an empty queue. Missing when it cannot be."""
        raise NotImplementedError

    def rate(self, load, clients, seconds, jobs):
        """Jobs per second of a load: cycle and push for so many seconds; drain: so many jobs."""
        raise NotImplementedError

    def stop(self):
        """Away with it."""
        if self in self.rig.running:
            self.rig.running.remove(self)
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def serve(self, command, port, name):
        """Starts a server of this name, returns when its port answers."""
        with open(os.path.join(self.rig.dir, name + ".out"), "ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, cwd=self.rig.dir,
                                            preexec_fn=self.rig.become)
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise Failed("%s does not start" % name)

    def folder(self, name):
        """An empty folder that the unprivileged user owns."""
        path = os.path.join(self.rig.dir, "%s-%d" % (name, free_port()))
        os.mkdir(path)
        if self.rig.owner:
            os.chown(path, self.rig.owner.pw_uid, self.rig.owner.pw_gid)
        return path
