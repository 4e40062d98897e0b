"""A server that is asked once and then stopped, as one command for the sweep: served.py PROGRAM serve MODEL ...

Prints the answer and ends as the server does. An error of the server (an HTTP status of 500 and above) is that of the
command: its sentence goes to stderr, and the exit status is 1; the server itself has to live on and to end cleanly."""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile


def ask(url):
    """(status, the text generated or the sentence); status 0 when the connection was closed without an answer"""
    c = http.client.HTTPConnection("127.0.0.1", int(url.rsplit(":", 1)[1]), timeout=100)
    body = json.dumps({"prompt": "hello", "max_tokens": 4, "temperature": 0})
    try:
        c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        r = c.getresponse()
        text = r.read().decode()
        if r.headers["Content-Type"] != "application/json":
            return r.status, text
        answer = json.loads(text)
        return r.status, answer["choices"][0]["text"] if r.status == 200 else answer["error"]["message"]
    except (OSError, ValueError, http.client.HTTPException):
        return 0, "closed without an answer"
    finally:
        c.close()


def main():
    log = tempfile.TemporaryFile("w+")
    server = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ, AF_SERVED="1"))
    words = server.stdout.readline().split()
    status, answer = 200, ""
    if words:
        status, answer = ask(words[-1])
        server.send_signal(signal.SIGTERM)
    rc = server.wait()
    log.seek(0)
    sys.stderr.write(log.read())
    if rc == 0 and status == 200:
        print(answer)
    elif rc == 0:
        print("afinar serve:", answer, file=sys.stderr)
        rc = 1
    sys.exit(rc if rc >= 0 else 128 - rc)


main()
