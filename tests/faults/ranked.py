"""Two ranks as one command for the sweep: ranked.py RANK PROGRAM train ... Faults are for rank RANK (AF_SERVED marks it).

Ends as that rank does, also by a signal; its sentences come last. What the other prints comes first. When the other is
neither done nor stopped with a sentence of its own, the exit status is 3."""
import os
import signal
import socket
import subprocess
import sys
import tempfile

WORLD = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    meant, port, ranks = int(sys.argv[1]), free_port(), []
    for rank in range(WORLD):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(port))
        if rank == meant:
            env["AF_SERVED"] = "1"
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        ranks.append((subprocess.Popen(sys.argv[2:], env=env, stdout=out, stderr=err), out, err))
    status, wrong = 0, ""
    for rank, (process, out, err) in sorted(enumerate(ranks), key=lambda r: r[0] == meant):
        rc = process.wait()
        out.seek(0)
        err.seek(0)
        said = err.read()
        sys.stdout.buffer.write(out.read())
        sys.stderr.buffer.write(said)
        if rank == meant:
            status = rc
        elif rc not in (0, 1) or (rc == 1 and b"afinar" not in said):
            wrong = f"rank {rank} ends with {rc}"
    sys.stdout.flush()
    sys.stderr.flush()
    if wrong:
        print(wrong, file=sys.stderr)
        sys.exit(3)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    sys.exit(status)


main()
