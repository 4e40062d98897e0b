"""A small hub of our own for tests: two loopback ports (the hub, and a second host for large files), the standard
library alone. It answers what afinar asks, misbehaves on request, and keeps a log of requests.

    hub = StandIn({"models/org/name": {"main": {"config.json": b"{}"}}})
    hub.faults.append({"kind": "cut", "path": "model.safetensors", "after": 1000, "times": 1})
"""
import base64
import hashlib
import json
import select
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

TOKENS = {"hf_owner": ("write", True), "hf_friend": ("read", True), "hf_reader": ("read", False)}
LARGE = (".safetensors", ".gguf", ".parquet", ".bin")


class File:
    def __init__(self, path, data):
        self.data, self.large = data, path.endswith(LARGE)
        self.sha256 = hashlib.sha256(data).hexdigest()
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(data)}\n".encode() if self.large else data
        self.oid = hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()
        self.etag = self.sha256 if self.large else self.oid


class Refuse(Exception):
    pass


class StandIn:
    def __init__(self, repos, gated=(), private=(), moved=None, part_size=1 << 20, page=1000):
        self.gated, self.private, self.moved, self.part_size, self.page = set(gated), set(private), moved or {}, part_size, page
        self.repos, self.commits, self.faults, self.log, self.parts = {}, {}, [], [], {}
        self.lock = threading.Lock()
        self.busy, self.idle = 0, threading.Condition()
        for name, branches in repos.items():
            self.repos[name] = {}
            for branch, files in branches.items():
                self.commit(name, branch, {p: File(p, d) for p, d in files.items()})
        self.servers = []
        for side in ("hub", "cdn"):
            handler = type("Handler", (Answer,), {"hub": self, "side": side})
            server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.servers.append(server)
        self.url, self.cdn = (f"http://127.0.0.1:{s.server_address[1]}" for s in self.servers)

    def commit(self, name, branch, files):
        sha = hashlib.sha1(json.dumps([name, sorted((p, f.etag) for p, f in files.items())]).encode()).hexdigest()
        self.repos[name][branch], self.commits[sha] = sha, files
        return sha

    def fault(self, kinds, line, part=""):
        """The next fault of these kinds; one at a byte waits for the request of the part ("bytes=FIRST-LAST") with this byte."""
        first, _, last = (part or "")[6:].partition("-")
        with self.lock:
            for f in self.faults:
                if f["kind"] in kinds and f.get("path", "") in line and f.get("times", 1) > 0:
                    if "at" in f and not int(first or 0) <= f["at"] <= int(last or f["at"]):
                        continue
                    if f.get("skip", 0) > 0:
                        f["skip"] -= 1
                        continue
                    f["times"] = f.get("times", 1) - 1
                    return f
        return None

    def answering(self, change):
        with self.idle:
            self.busy += change
            self.idle.notify_all()

    def settle(self):
        """Waits for the requests whose client has ended already: they are in the log then."""
        with self.idle:
            assert self.idle.wait_for(lambda: self.busy == 0, 300), "a request does not end"

    def close(self):
        for s in self.servers:
            s.shutdown()
            s.server_close()


class Answer(BaseHTTPRequestHandler):
    protocol_version, hub, side = "HTTP/1.1", None, "hub"

    def log_message(self, *args):
        pass

    def handle(self):
        try:
            super().handle()
        except ConnectionResetError:  # the client was killed
            pass

    def send(self, status, data=b"", **headers):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.status = status
        self.send_response(status)
        for k, v in {"Content-Length": len(data), **headers}.items():
            self.send_header(k.replace("_", "-"), str(v))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
            self.sent += len(data)

    def refuse(self, status, code="", message="no", **more):
        self.send(status, {"error": message}, X_Error_Code=code, X_Error_Message=message, **more)
        raise Refuse

    def handle_one(self):
        url = urlsplit(self.path)
        self.route, self.query, self.sent, self.status = unquote(url.path), parse_qs(url.query), 0, 0
        self.data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.line = f"{self.side} {self.command} {self.route}"
        row = {"side": self.side, "method": self.command, "path": self.route, "range": self.headers.get("Range"),
               "auth": self.headers.get("Authorization"), "agent": self.headers.get("User-Agent"), "start": time.time()}
        self.hub.answering(1)
        try:
            self.misbehave()
            (self.cdn if self.side == "cdn" else self.main)()
        except (Refuse, BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self.hub.log.append({**row, "status": self.status, "sent": self.sent})
            self.hub.answering(-1)

    do_GET = do_HEAD = do_POST = do_PUT = handle_one

    def misbehave(self):
        f = self.hub.fault(("status", "flood", "endless", "elsewhere", "close", "loop"), self.line)
        if not f:
            return
        if f["kind"] == "status":
            self.refuse(f["code"], message=f.get("message", "busy"), **({"Retry_After": f["retry_after"]} if "retry_after" in f else {}))
        if f["kind"] == "elsewhere":
            self.send(302, Location=f["to"])
        if f["kind"] == "loop":
            self.send(302, Location=self.path)
        self.close_connection = True
        if f["kind"] == "flood":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 100) for i in range(5000)))
        if f["kind"] == "endless":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(3000):
                self.wfile.write(b"[" * 65536)
                self.sent += 65536
        raise Refuse

    # --- bytes of a file, whole or a range, with the faults of bodies
    def pour(self, file, **headers):
        f = self.hub.fault(("cut", "flip", "short", "stall", "norange", "slow", "more"), self.line, self.headers.get("Range"))
        kind, data = f["kind"] if f else "", file.data
        if kind == "flip":
            data = data[:f["at"]] + bytes([data[f["at"]] ^ 1]) + data[f["at"] + 1:]
        if kind == "short":
            data = data[:-f["delta"]]
        first, last, status, ask = 0, len(data) - 1, 200, self.headers.get("Range")
        if ask and kind != "norange":
            a, b = ask[6:].split("-")
            first, last, status = int(a), min(int(b or last), last), 206
            if first > last:
                return self.send(416, Content_Range=f"bytes */{len(data)}")
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        body = data[first:last + 1] + (b"more" if kind == "more" else b"")
        self.status = status
        self.send_response(status)
        for k, v in {**headers, "Content-Length": len(body)}.items():
            self.send_header(k.replace("_", "-"), str(v))
        self.end_headers()
        end = min(len(body), f["after"]) if kind in ("cut", "stall") else len(body)
        step = 1 << 16 if kind != "slow" else 1 << 14
        for at in range(0, end, step):
            self.wfile.write(body[at:min(at + step, end)])
            self.sent = min(at + step, end)
            if kind == "slow":
                time.sleep(f["seconds"])
        if kind == "stall":
            select.select([self.connection], [], [], f["seconds"])  # until the client gives up
        if end < len(body):
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)

    def cdn(self):
        if self.headers.get("Authorization"):
            self.refuse(400, message="a token at another host")
        kind, oid, *part = self.route.strip("/").split("/")
        if self.command == "PUT" and kind == "upload":
            self.hub.parts.setdefault(oid, {})[int(part[0])] = self.data
            return self.send(200, ETag=f'"{hashlib.md5(self.data).hexdigest()}"')
        if self.hub.fault(("expired",), self.line) or self.query.get("sig") != [oid[::-1]]:
            self.refuse(403, message="Request has expired")
        file = next(f for c in self.hub.commits.values() for f in c.values() if f.sha256 == oid)
        self.pour(file, ETag='"md5"')

    # --- the hub
    def main(self):
        token = (self.headers.get("Authorization") or "")[7:]
        self.role, self.gates = TOKENS.get(token, ("", False))
        if token and not self.role:
            self.refuse(401, message="Invalid credentials in Authorization header")
        words = [unquote(w) for w in urlsplit(self.path).path.strip("/").split("/")]  # a revision may have slashes
        if words[0] == "api" and words[1] in ("repos", "complete"):
            return self.create() if words[1] == "repos" else self.complete(words[2])
        if words[0] == "api" and words[1] == "small":
            return self.pour(self.hub.commits[words[2]]["/".join(words[3:])])
        api = words[0] == "api"
        words = words[1:] if api else words if words[0] == "datasets" else ["models"] + words
        name, rest = "/".join(words[:3]), words[3:]
        lfs = name.endswith(".git")
        name = name[:-4] if lfs else name
        if name in self.hub.moved:
            return self.send(307, Location=self.path.replace(name[name.index("/") + 1:], self.hub.moved[name], 1))
        if name not in self.hub.repos or (name in self.hub.private and not self.gates):
            self.refuse(404 if self.role else 401, "RepoNotFound", "Repository not found")
        if self.command != "GET" and self.role != "write":
            self.refuse(403, message="You may not write here")
        if lfs:
            return self.batch() if rest[-1] == "batch" else self.verify()
        if not rest:
            return self.send(200, {"id": name, "private": name in self.hub.private})
        getattr(self, "on_" + rest[0])(name, rest[1], "/".join(rest[2:]))

    def find(self, name, rev):
        sha = self.hub.repos[name].get(unquote(rev)) or (rev if rev in self.hub.commits else None)
        if not sha:
            self.refuse(404, "RevisionNotFound", "Invalid rev id")
        return sha

    def on_revision(self, name, rev, _):
        self.send(200, {"id": name, "sha": self.find(name, rev)})

    def on_tree(self, name, rev, _):
        files, at = self.hub.commits[self.find(name, rev)], int(self.query.get("cursor", ["0"])[0])
        rows = [{"type": "file", "path": p, "size": len(f.data), "oid": f.oid, **({"lfs": {"oid": f.sha256, "size": len(f.data)}} if f.large else {})}
                for p, f in sorted(files.items())]
        huge = self.hub.fault(("huge",), self.line)
        if huge:
            n = huge.get("size", 10**18)
            rows = [{**r, "size": n, "lfs": {**r["lfs"], "size": n}} if "lfs" in r else r for r in rows]
        more = at + self.hub.page < len(rows)
        link = {"Link": f'<{self.hub.url}{quote(self.route)}?recursive=true&cursor={at + self.hub.page}>; rel="next"'} if more else {}
        self.send(200, rows[at:at + self.hub.page], **link)

    def on_resolve(self, name, rev, path):
        if name in self.hub.gated and not self.gates:
            self.refuse(403 if self.role else 401, "GatedRepo", "Access is restricted")
        sha = self.find(name, rev)
        file, size, etag = self.hub.commits[sha][path], 0, None
        f = self.hub.fault(("size", "etag"), self.line)
        if f:
            size, etag = (7, None) if f["kind"] == "size" else (0, "0" * 64)
        head = {"X-Repo-Commit": sha, "X-Linked-Size": len(file.data) + size, "X-Linked-ETag": f'"{etag or file.etag}"', "ETag": f'"{etag or file.etag}"'}
        where = f"{self.hub.cdn}/cdn/{file.sha256}?sig={file.sha256[::-1]}" if file.large else f"/api/small/{sha}/{quote(path)}"
        self.send(302 if file.large else 307, Location=where, **head)

    def create(self):
        ask = json.loads(self.data)
        name = f"{ask['type']}s/{ask['organization']}/{ask['name']}"
        if self.role != "write":
            self.refuse(403, message="no rights")
        if name in self.hub.repos:
            self.refuse(409, message="You already created this repo")
        self.hub.repos[name] = {}
        self.hub.commit(name, "main", {})
        if ask.get("private"):
            self.hub.private.add(name)
        self.send(200, {"url": f"{self.hub.url}/{name}"})

    def on_branch(self, name, rev, _):
        if rev.startswith("refs/"):
            self.refuse(400, message="Invalid reference for a branch")
        if rev in self.hub.repos[name]:
            self.refuse(409, message="exists")
        self.hub.repos[name][rev] = self.hub.repos[name]["main"]
        self.send(200, {})

    def on_preupload(self, name, rev, _):
        now = self.hub.commits[self.find(name, rev)]
        self.send(200, {"files": [{"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(LARGE) else "regular", "shouldIgnore": False,
                                   "oid": now[f["path"]].etag if f["path"] in now else None} for f in json.loads(self.data)["files"]]})

    def stored(self, oid):
        data = b"".join(d for _, d in sorted(self.hub.parts.get(oid, {}).items()))
        return data if hashlib.sha256(data).hexdigest() == oid else None

    def batch(self):
        rows, size = [], self.hub.part_size
        for o in json.loads(self.data)["objects"]:
            row = {"oid": o["oid"], "size": o["size"]}
            if self.stored(o["oid"]) is None:
                put = lambda k: f"{self.hub.cdn}/upload/{o['oid']}/{k}"  # noqa: E731
                up = {"href": put(1)}
                if o["size"] > size:
                    up = {"href": f"{self.hub.url}/api/complete/{o['oid']}",
                          "header": {"chunk_size": str(size), **{f"{k + 1:05d}": put(k + 1) for k in range(-(-o["size"] // size))}}}
                row["actions"] = {"upload": up, "verify": {"href": self.hub.url + self.route.replace("/batch", "/verify")}}
            rows.append(row)
        self.send(200, {"objects": rows})

    def complete(self, oid):
        have = [f'"{hashlib.md5(d).hexdigest()}"' for _, d in sorted(self.hub.parts[oid].items())]
        self.send(200 if have == [p["etag"] for p in json.loads(self.data)["parts"]] else 400, {})

    def verify(self):
        data = self.stored(json.loads(self.data)["oid"])
        self.send(200 if data is not None and len(data) == json.loads(self.data)["size"] else 404, {})

    def on_commit(self, name, rev, _):
        files = dict(self.hub.commits[self.find(name, rev)])
        for line in self.data.splitlines():
            row = json.loads(line)
            v = row["value"]
            if row["key"] == "header":
                self.hub.message = v["summary"]
            if row["key"] == "file":
                files[v["path"]] = File(v["path"], base64.b64decode(v["content"]))
            if row["key"] == "lfsFile":
                files[v["path"]] = File(v["path"], self.stored(v["oid"]) if v["size"] else b"")
        sha = self.hub.commit(name, rev, files)
        escape = "\x1b]0;x\x07" if self.hub.fault(["terminal"], self.path) else ""
        self.send(200, {"commitOid": sha, "commitUrl": f"{self.hub.url}/{name}/commit/{sha}{escape}"})
