"""What strangers may send: slow, many, large, malformed. Nobody else notices, nothing is left behind."""
import json
import os
import select
import socket
import ssl
import sys
import threading
import time

from serve_start import MODEL, Server, check, finish

TEXT = "/v1/completions"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n13\r\n{\"prompt\": \"Hello\"}\r\n"


def ask(s):
    begin = time.time()
    status, a = s.post(TEXT, prompt="Hello", max_tokens=4, temperature=0)
    check(status == 200 and a["choices"][0]["text"], "an honest client is served")
    return time.time() - begin


def status_of(c):
    try:
        data = c.recv(65536)
    except OSError:
        return 0
    return int(data.split()[1]) if data.startswith(b"HTTP/1.1 ") else 0


def malformed(s):
    cases = [
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "no Host"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "two Hosts"),
        (b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, "another version"),
        (b"GET /health\r\nHost: localhost\r\n\r\n", 400, "no version"),
        (b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "two spaces"),
        (b"GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "no slash"),
        (b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "absolute form"),
        (b"GET /health HTTP/1.1\nHost: localhost\n\n", 400, "LF alone"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n", 400, "space before the colon"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: y\r\n z\r\n\r\n", 400, "folded line"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n", 400, "no colon"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400, "NUL"),
        (b"GET /he\x01alth HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "control character"),
        (b"GET /h\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "byte above 127"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "TLS"),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400, "two lengths"),
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400, "length and chunked"),
        (HEAD + b"Content-Length: -2\r\n\r\n{}", 400, "negative length"),
        (HEAD + b"Content-Length: +2\r\n\r\n{}", 400, "signed length"),
        (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n{}", 400, "length of 20 digits"),
        (HEAD + b"Content-Length: 17000000\r\n\r\n", 413, "body too large, not sent"),
        (HEAD + b"Content-Length: 900000000000\r\n\r\n", 413, "body absurdly large"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "another coding"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "chunk without size"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx", 400, "chunk without end"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n" + b"x" * 100, None, "large chunk"),
        (b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "path escape"),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "path escape"),
        (b"GET /v1/models/..%2f..%2fetc HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "path escape in a name"),
        (b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "rebound name"),
        (b"GET /health HTTP/1.1\r\nHost: localhost@evil.example\r\n\r\n", 403, "name with @"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403, "another page"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431, "header flood"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 16400 + b"\r\n\r\n", 431, "head of 16 KiB"),
        (b"GET /" + b"y" * 70000 + b" HTTP/1.1\r\n", 431, "endless request line"),
        (b"\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "empty lines first"),
        (b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n", 200, "HTTP/1.0"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n13\r\nmpt\":\"Hello\",\"n\":1}\r\n0\r\n\r\n", 200, "chunked"),
        (CHUNKED + b"0;name=value\r\nX-Checksum: 1\r\nY: 2\r\n\r\n", 200, "trailers"),
        (CHUNKED + b"0\r\nX: 1\n\r\n", 400, "a trailer that ends in LF alone"),
        (CHUNKED + b"0\r\n" + b"X: y\r\n" * 3000, 400, "endless trailers"),
        (CHUNKED + b"0\r\nX: " + b"y" * 17000, 400, "an endless trailer"),
        (HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}", 100, "expects 100"),
    ]
    for data, want, what in cases:
        if want is None:
            with s.connect() as c:
                c.sendall(data)
        else:
            got = s.send(data)
            check(got == want, "%s: %d, not %d" % (what, got, want))
    # a head just below the limit
    data = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "
    check(s.send(data + b"y" * (16384 - len(data) - 4) + b"\r\n\r\n") == 200, "a head of exactly 16 KiB")
    # a body in chunks whose end comes later
    for data in (CHUNKED + b"0\r\n\r\n", CHUNKED + b"0\r\nX: y\r\n\r\n"):
        for rest in range(1, 12):
            with s.connect() as c:
                c.sendall(data[:-rest])
                time.sleep(0.05)
                c.sendall(data[-rest:])
                check(status_of(c) == 200, "the last %d bytes of chunks come later" % rest)
    # trailers of one request do not count for the next one of the connection
    with s.connect() as c:
        for k in range(3):
            c.sendall(CHUNKED + b"0\r\n" + b"X: y\r\n" * 1500 + b"\r\n")
            check(status_of(c) == 200, "trailers of request %d" % k)
    # two requests at once are answered in order
    with s.connect() as c:
        one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        c.sendall(one + one + b"GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b""
        while True:
            part = c.recv(65536)
            if not part:
                break
            text += part
        check([p[:3] for p in text.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"], "pipelined")
    # small ones with a large one after them: each answer must not read more than the last request needs
    def post(body):
        return HEAD.replace(TEXT.encode(), b"/tokenize") + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with s.connect() as c:
        c.sendall(post(b"{}") * 8 + post(b'{"content": "' + b"a" * 200000 + b'"}') + post(b"{}"))
        text = b""
        while text.count(b"tokens") < 10:
            part = c.recv(65536)
            if not part:
                break
            text += part
        check([p[:3] for p in text.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 10, "pipelined bodies: %s" % text[-200:])
    # a refused body that is sent nevertheless does not keep the answer from arriving
    status = s.raw("POST", TEXT, b"x" * (17 << 20))[0]
    check(status == 413, "413 while the body comes")


def bodies(s):
    deep = b"[" * 100000
    for data, what in ((deep, "deep nesting"), (b'{"prompt": ' + b'{"a":' * 50000, "deep objects"), (b'{"prompt": "\xed\xa0\x80"}', "surrogate"),
                       (b'{"prompt": "\\ud800"}', "lone surrogate"), (b'{"prompt": "\xc0\x80"}', "overlong"),
                       (b'{"prompt": [' + b"1," * 100000 + b"1]}", "long prompt"),
                       (b'{"prompt": "x", "max_tokens": 1e999}', "infinite number"),
                       (b'{"prompt": "x", "n": 99999999999999999999}', "large integer"),
                       (b'{"prompt": "x", "grammar": "root ::= root"}', "left recursion"),
                       (b'{"prompt": "x", "stop": [' + b'"a",' * 100 + b'"a"]}', "many stops")):
        status, _, text = s.raw("POST", TEXT, data)
        check(status == 400 and "error" in json.loads(text), "%s: %d" % (what, status))
    check(s.raw("POST", TEXT, b'{"prompt": "a\\u0000b", "max_tokens": 1}')[0] == 200, "NUL in a text is a character")


def slow(port_server):
    s = port_server  # --header-timeout 1; without it 10
    with s.connect() as c:
        begin = time.time()
        c.sendall(b"GET /health HTTP/1.1\r\n")
        end = begin + 60
        got = 0
        c.settimeout(0.2)
        while time.time() < end and not got:
            try:
                c.sendall(b"X: y\r\n")  # goes on and on
            except OSError:
                end = 0  # closed; its answer may still be unread
            got = status_of(c)
        check(got == 408 and 0.8 < time.time() - begin < 9, "slow head: %d after %.1f s" % (got, time.time() - begin))
    with s.connect() as c:
        begin = time.time()
        c.sendall(HEAD + b"Content-Length: 10\r\n\r\n{")
        check(status_of(c) == 408 and time.time() - begin < 9, "body that does not come")


def https(s):
    """A client that takes the address for https is told so at once, and not after the ten seconds for a head."""
    begin = time.time()
    try:
        ssl.create_default_context().wrap_socket(s.connect(), server_hostname="localhost")
        check(False, "TLS")
    except (ssl.SSLError, OSError):
        check(time.time() - begin < 8, "TLS: an error after %.1f s" % (time.time() - begin))


def crowd(s, count):
    alone = min(ask(s) for _ in range(3))
    conns = []
    for i in range(count):
        try:
            c = s.connect()
        except OSError as e:
            check(False, "connection %d: %s" % (i, e))
            break
        if i % 2:
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        conns.append(c)
    check(s.metric("afinar_connections") >= count * 0.9, "all connections are open")
    took = [ask(s) for _ in range(5)]
    check(min(took) < 1 + 10 * alone, "an honest client among %d others waits %.2f s, alone %.2f s" % (count, min(took), alone))
    for c in conns:
        c.close()
    begin = time.time()
    while s.metric("afinar_connections") > 2 and time.time() - begin < 60:
        time.sleep(0.05)
    check(s.metric("afinar_connections") <= 2, "closed connections are forgotten")


def queue_full():
    """1 sequence at a time, many requests: those beyond the queue get 503, all others an answer."""
    s = Server("--parallel", "1")
    body = json.dumps({"prompt": "Hello", "max_tokens": 200, "ignore_eos": True}).encode()
    conns = []
    for _ in range(1100):
        c = s.connect()
        c.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        conns.append(c)
    conns[-1].settimeout(60)
    got = status_of(conns[-1])
    waiting = s.metric("afinar_requests_deferred")
    check(got == 503 or waiting < 1024, "the request after 1024 that wait: %d, %d wait" % (got, waiting))
    for c in conns:
        c.close()
    begin = time.time()
    while s.metric("afinar_requests_processing") + s.metric("afinar_requests_deferred") and time.time() - begin < 300:
        time.sleep(0.05)
    check(s.metric("afinar_requests_deferred") == 0, "requests of closed connections are dropped")
    ask(s)
    check(s.stop()[0] == 0, "exit after a full queue")


def large_bodies():
    """Bodies that never end: memory has a limit, and small requests are still answered."""
    s = Server("--max-body", "1MiB")
    check(s.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx") == 400, "a chunk that is wrong")
    conns = []
    for _ in range(80):
        c = s.connect()
        c.settimeout(300)
        try:
            c.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n" + b" " * 990000)
        except OSError:
            pass  # refused while it was sent
        conns.append(c)
    # which ones, depends on the order in which the server read them
    ready = select.select(conns, [], [], 300)[0]
    check(any(status_of(c) == 503 for c in ready), "too many large bodies")
    ask(s)
    for c in conns:
        c.close()
    begin = time.time()
    while s.metric("afinar_connections") > 2 and time.time() - begin < 60:
        time.sleep(0.05)
    check(s.raw("POST", TEXT, json.dumps({"prompt": "Hello", "user": "x" * 900000}))[0] == 200, "a large body, when there is space again")
    check(s.stop()[0] == 0, "exit after large bodies")


def memory(pid):
    return int([l for l in open("/proc/%d/status" % pid) if l.startswith("VmRSS")][0].split()[1])


def main():
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4000, hard) if hard > 0 else 4000, hard))
    s = Server("--header-timeout", "1")
    slow_thread = threading.Thread(target=slow, args=(s,))
    slow_thread.start()
    malformed(s)
    bodies(s)
    slow_thread.join()
    ask(s)
    code, err = s.stop()
    check(code == 0 and "ERROR" not in err, "exit: %s %s" % (code, err[-2000:]))
    s = Server()
    https(s)
    crowd(s, 1000 if hard < 0 or hard >= 1500 else 300)
    before = memory(s.process.pid)
    for _ in range(3):
        crowd(s, 200)
    limit = 400000 if "ASAN_OPTIONS" in os.environ else 20000  # KB; freed memory is kept for a while there
    check(memory(s.process.pid) - before < limit, "memory stays: %d to %d KB" % (before, memory(s.process.pid)))
    check(s.stop()[0] == 0, "exit after a crowd")
    queue_full()
    large_bodies()
    finish()


main()
