"""`afinar chat` in a terminal: what it draws, the keys that edit a line, and a long paste."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

from chain_model import write_model

AFINAR = os.environ["AFINAR"]
MODEL = os.path.join(os.environ["AF_SOURCE"], "examples", "demo", "base")
LIMIT = 120  # seconds; 8000 characters took a quarter of an hour when every key measured the whole line


def chat(keys, columns, term="xterm", later=()):
    """What the program prints for these bytes, and for those of `later` at each further prompt; /exit is the end."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = term
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execv(AFINAR, [AFINAR, "chat", MODEL, "--device", "cpu", "-q", "--temperature", "0", "-n", "20"])
    out, begin, prompts = b"", time.time(), 1
    while time.time() - begin < LIMIT:
        typed = b"> " in out  # before that the terminal is not in raw mode
        if later and out.count(b"> ") > prompts:
            keys, later, prompts = keys + later[0], later[1:], prompts + 1
        readable, writable, _ = select.select([fd], [fd] if typed and keys else [], [], 1)
        if writable:
            keys = keys[os.write(fd, keys[:256]):]
        if readable:
            try:
                more = os.read(fd, 65536)
            except OSError:
                break
            out += more
    if time.time() - begin >= LIMIT:
        os.kill(pid, 9)
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit("FAILED: no regular end after %.0f s: %r" % (time.time() - begin, out[-300:]))
    return out


def check(ok, what):
    if not ok:
        sys.exit("FAILED: " + what)


EXIT = b"/exit\r"
answer = b"\r\n" + chat(b"Hello\r" + EXIT, 80).split(b"\r\n")[1] + b"\r\n"
check(len(answer) > 8, "an answer: %r" % answer)
for keys in (b"ello\x1b[D\x1b[D\x1b[D\x1b[DH\r", "Hell\u00e9\U0001f600".encode() + b"\x7f\x7fo\r", b"x y\x17\x15Hello\r",
             b"elloX\x02\x1b[3~\x01H\r"):
    check(answer in chat(keys + EXIT, 80), "the line of %r is not 'Hello'" % keys)
out = chat(b"abcdefghijkl\x01\x15\x0b" + EXIT, 12)  # nine columns beside the prompt
check(b"\r> efghijkl\x1b[K\r> abcdefghi\x1b[K\x1b[9D" in out, "a line that does not fit: %r" % out)
out = chat("\u65e5\u672c\u8a9e\u65e5\u672c\u8a9e".encode() + b"\x01\x0b" + EXIT, 12)
check("\r> \u65e5\u672c\u8a9e\u65e5\x1b[K\x1b[8D".encode() in out, "wide characters: %r" % out)
chat(b"word " * 1600 + b"\x15" + EXIT, 80)
out = chat(b"Hello\rH\xe9\rHello\r" + EXIT, 80)
check(out.count(b"not valid UTF-8") == 1 and len(out.split(b"UTF-8")[1].split(b"\r\n")) > 3, "a line that is not UTF-8: %r" % out)
out = chat(b"Hello\rH\xe9\rHello\r" + EXIT, 80, term="dumb")
check(b"\x1b" not in out and answer.strip() in out and out.count(b"> ") == 4, "a terminal without a cursor: %r" % out)
out = chat(b"\x03", 80, term="dumb", later=(b"Hello\r", EXIT))
check(b"^C" in out and answer.strip() in out and out.count(b"> ") == 3, "an interrupt without a cursor: %r" % out)


TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant{# <|channel|> #}"


def check_channels():
    """gpt-oss: thoughts are shown, and the conversation keeps the answer alone."""
    words = ["<|endoftext|>", "<|start|>", "user", "assistant", "<|message|>", "<|end|>", "<|return|>", "Hi", " to=python", "Hm.", "Yes.", "<|channel|>"]
    chain = ["assistant", " to=python", "<|message|>", "Hm.", "<|end|>", "Yes.", "<|return|>"]
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, words, chain, TEMPLATE)
        for args, want in (([], "Hm.\n\nYes.\n"), (["--json"], '{"text": "Yes.", "stop": "stop"}\n')):
            r = subprocess.run([AFINAR, "chat", folder, "--device", "cpu", "-q", "--temperature", "0"] + args, input="Hi\nHi\n", text=True,
                               capture_output=True)
            check(r.returncode == 0 and r.stdout == want * 2, "channels %s: %r %r" % (args, r.stdout, r.stderr))


check_channels()
