"""Copies of one process in which a call fails (the socket of inject_fork.c): the way to the n-th call is gone only once."""
import os
import select
import shutil
import signal
import socket
import subprocess

import __main__ as sweep

PATIENCE = 20  # seconds for a copy; a run of its own is given sweep.TIMEOUT


def restore(folder, start, was):
    """The folder as it was at the start, whatever a copy wrote."""
    now = sweep.signature(folder)
    for rel in sorted(set(now) - set(was), reverse=True):
        path = os.path.join(folder, rel)
        os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    for rel in sorted(was):
        source, path = os.path.join(start, rel), os.path.join(folder, rel)
        if os.path.isdir(source):
            os.makedirs(path, exist_ok=True)
        elif now.get(rel) != was[rel]:
            shutil.copy2(source, path, follow_symlinks=False)


class Original:
    """The process that is copied, standing at its n-th call."""

    def __init__(self, s):
        self.s, self.folder = s, s.fresh()
        ours, theirs = socket.socketpair()
        ours.settimeout(sweep.TIMEOUT)
        self.out, self.err = (open(self.folder + end, "wb+") for end in (".out0", ".err0"))
        env = sweep.environment(self.folder, s.faults_env(self.folder, fork=theirs.fileno()))
        with open(os.path.join(self.folder, s.case.stdin) if s.case.stdin else os.devnull, "rb") as source:
            self.process = subprocess.Popen([sweep.AFINAR] + s.case.args, cwd=self.folder, env=env, stdin=source,
                                            stdout=self.out, stderr=self.err, pass_fds=[theirs.fileno()])
        theirs.close()
        self.socket, self.lines = ours, b""
        self.base, self.files = s.start, s.untouched  # to be put back after a copy

    def number(self):
        while b"\n" not in self.lines:
            data = self.socket.recv(256)
            if not data:
                return 0
            self.lines += data
        line, self.lines = self.lines.split(b"\n", 1)
        return int(line)

    def next_call(self):
        """its number, 0 after the end"""
        n = self.number()
        if n < 0:
            self.base, self.files = self.folder + ".base", sweep.signature(self.folder)
            shutil.rmtree(self.base, ignore_errors=True)
            shutil.copytree(self.folder, self.base, symlinks=True)
        return abs(n)

    def tell(self, text):
        self.socket.sendall((text + "\n").encode())

    def printed(self, file, end):
        """what went to stdout or stderr before the copy was made, and from it"""
        with open(file.name, "rb") as f, open(self.folder + ".copy" + end, "rb") as g:
            return f.read() + g.read()

    def copy(self, job):
        """One copy, to its end; what Sweep.one gives."""
        n, sticky, error = job
        self.tell(f"{int(sticky)} {0 if error is None else error} {self.folder}.copy")
        pid = self.number()
        if pid <= 0:
            raise OSError("no copy can be made")
        if not self.lines and not select.select([self.socket], [], [], PATIENCE)[0]:
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(self.number())
        r = subprocess.CompletedProcess([], code, self.printed(self.out, ".out"), self.printed(self.err, ".err"))
        wrong = self.s.verdict(self.folder, r, n, error)
        if sweep.signature(self.folder) != self.files:
            restore(self.folder, self.base, self.files)
        text = r.stderr.decode(errors="replace").strip().splitlines()
        return job, wrong, code, text[-1][:300] if text else ""

    def close(self):
        self.socket.close()  # the process ends when it finds it closed
        self.process.wait(sweep.TIMEOUT)
        self.out.close()
        self.err.close()


def each(s, jobs):
    """Of the jobs {n: [faults]}, those of calls at which the process can be copied: each with the outcome of its copy."""
    wanted = sorted(jobs, reverse=True)
    original = Original(s)
    try:
        while wanted and (n := original.next_call()) > 0:
            for job in jobs.get(n, []):
                yield job, original.copy(job)
            while wanted and wanted[-1] <= n:
                wanted.pop()
            original.tell(f"go {wanted[-1] if wanted else 0}")
    finally:
        original.close()
