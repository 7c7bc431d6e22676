#!/usr/bin/env python3
"""A worker for the kind "greet", with nothing but Python's standard library.

    tidegate serve &
    python3 examples/python/worker.py
    tidegate enqueue greet --data '{"name": "Ada"}' --store http://127.0.0.1:7433

Environment: TIDEGATE_STORE (the server, http://127.0.0.1:7433 unless said), TIDEGATE_KEY (if the server has keys).
With --idle SECONDS it ends when there was nothing to do for that long; SIGTERM, Ctrl-C and `tidegate workers drain` end
it after the job it has.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.parse

LEASE_MS = 15_000
QUEUE = "greetings"


class Refused(Exception):
    """The server understood the request and will not do it; trying again changes nothing."""


class Server:
    """One connection, kept open. Each thread has its own."""

    def __init__(self, url, key):
        self.address = urllib.parse.urlsplit(url)
        self.headers = {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"
        self.connection = None

    def call(self, method, path, body=None, timeout=30):
        """Sends a request and returns the reply. Every request of a worker is safe to send again."""
        for attempt in range(10):
            try:
                return self.once(method, path, body, timeout)
            except (OSError, http.client.HTTPException) as error:
                self.connection = None
                if attempt == 9:
                    raise
                print(f"{self.address.netloc} did not answer ({error}); trying again", file=sys.stderr)
                time.sleep(min(0.1 * 2**attempt, 5))

    def once(self, method, path, body, timeout):
        if self.connection is None:
            secure = self.address.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self.connection = kind(self.address.netloc, timeout=timeout)
        if self.connection.sock:
            self.connection.sock.settimeout(timeout)
        text = None if body is None else json.dumps(body)
        self.connection.request(method, path, text, self.headers)
        response = self.connection.getresponse()
        data = response.read()
        if response.status in (429, 503):
            raise OSError(f"HTTP {response.status}")
        if response.status >= 400:
            problem = json.loads(data)
            raise Refused(f"{problem['code']}: {problem['detail']} ({problem['hint']})")
        return json.loads(data) if data else None


def greet(job):
    """The work itself: returns the result, or raises."""
    name = job["payload"].get("name")
    if not name:
        raise ValueError("the payload has no name")
    print(f"hello {name}", flush=True)
    return {"greeting": f"hello {name}"}


def outcome(job):
    """Runs a job and says what became of it."""
    try:
        return {"ticket": job["ticket"], "outcome": "complete", "result": greet(job)}
    except ValueError as error:
        # The same payload will not become valid by trying again: the job goes to the dead letters.
        failure = {"category": "INVALID_INPUT", "code": "NO_NAME", "message": str(error)}
    except OSError as error:
        # Somebody else's server was away: tried again with growing pauses.
        failure = {"category": "TRANSIENT_NETWORK", "code": "NETWORK", "message": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever it is, the job must be settled
        failure = {"category": "LOGIC_ERROR", "code": type(error).__name__, "message": str(error)}
    return {"ticket": job["ticket"], "outcome": "fail", "failure": failure}


class Heart(threading.Thread):
    """Keeps the lease alive while jobs run, at a third of its time."""

    def __init__(self, server, lease):
        super().__init__(daemon=True)
        self.server, self.lease, self.over = server, lease, threading.Event()
        self.lost = False
        self.cancelled = set()

    def run(self):
        while not self.over.wait(LEASE_MS / 3000):
            [beat] = self.server.call("POST", "/v1/heartbeats", {"leases": [self.lease]})["beats"]
            self.lost = beat["until"] is None
            self.cancelled.update(beat["cancel"])

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


class Presence(threading.Thread):
    """Says every few seconds that this worker is alive (`tidegate workers ls`), and hears whether it should end."""

    EVERY, LASTS_MS = 5, 15_000

    def __init__(self, server, name, asked_to_end):
        super().__init__(daemon=True)
        self.server, self.path, self.asked_to_end = server, f"/v1/workers/{name}", asked_to_end
        self.over, self.running = threading.Event(), 0
        self.about = {
            "role": "worker",
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "queues": [QUEUE],
            "kinds": ["greet"],
            "concurrency": 1,
        }

    def run(self):
        while not self.over.is_set():
            try:
                about = self.about | {"running": self.running, "draining": self.asked_to_end.is_set()}
                reply = self.server.once("PUT", self.path, {"about": about, "ttl_ms": self.LASTS_MS}, 5)
                if (reply["order"] or {}).get("order") == "drain":
                    self.asked_to_end.set()
            except (OSError, http.client.HTTPException, Refused) as error:
                self.server.connection = None
                print(f"{self.path} was not kept ({error}); jobs do not depend on it", file=sys.stderr)
            self.over.wait(self.EVERY)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        try:
            self.server.once("DELETE", self.path, None, 1)
        except (OSError, http.client.HTTPException, Refused):
            pass  # it is forgotten when its time is over


def main():
    arguments = argparse.ArgumentParser(description="Runs jobs of kind greet.")
    arguments.add_argument("--idle", type=float, help="end after this many seconds without a job")
    idle = arguments.parse_args().idle
    url, key = os.environ.get("TIDEGATE_STORE", "http://127.0.0.1:7433"), os.environ.get("TIDEGATE_KEY")
    server, beats = Server(url, key), Server(url, key)

    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: stop.set())

    # Registering what is registered already changes nothing.
    server.call("POST", "/v1/queues", {"name": QUEUE})
    server.call("PUT", "/v1/kinds/greet", {"queue": QUEUE, "timeout_ms": 30_000})

    name = f"python-{socket.gethostname()}-{os.getpid()}"
    with Presence(Server(url, key), name, stop) as presence:
        work(server, beats, name, presence, stop, idle)


def work(server, beats, name, presence, stop, idle):
    """Claims and runs jobs until it is told to stop, or has been idle for too long."""
    wait = min(idle, 5) if idle else 5
    last = time.monotonic()
    while not stop.is_set():
        claim = {
            "worker": name,
            "queues": [{"name": QUEUE}],
            "max": 10,
            "lease_ms": LEASE_MS,
            "wait_ms": int(wait * 1000),
        }
        claimed = server.call("POST", "/v1/claims", claim, timeout=wait + 10)
        jobs = claimed["jobs"]
        if not jobs:
            if idle and time.monotonic() - last >= idle:
                return
            continue
        settled = []
        presence.running = 1
        with Heart(beats, claimed["lease"]["id"]) as heart:
            for job in jobs:
                if heart.lost:
                    break  # somebody else has these jobs now; what is left must not run here
                if stop.is_set():
                    settled.append({"ticket": job["ticket"], "outcome": "release"})
                elif job["ticket"] in heart.cancelled:
                    settled.append({"ticket": job["ticket"], "outcome": "cancel"})
                else:
                    settled.append(outcome(job))
            if settled:
                server.call("POST", "/v1/settlements", {"settlements": settled})
        presence.running = 0
        last = time.monotonic()


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(str(refused))
