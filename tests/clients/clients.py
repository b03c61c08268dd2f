"""Asks by many clients at once: Python's, and programs that this one starts.

On stdin, in one line, a JSON array of [CLIENT, URL]; on stdout a JSON array, in the same order, of
{"client", "url", "reached": what the server said, "failed": why not}, one of the last two.
TLS trusts the certificates of the file CLIENTS_CA alone.
"""

import asyncio
import faulthandler
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.environ.get("CLIENTS_SITE", os.path.join(HERE, "site")))
CA = os.environ.get("CLIENTS_CA")
PATIENCE = 100


def context():
    return ssl.create_default_context(cafile=CA)


def of_urllib(url):
    import urllib.request

    with urllib.request.urlopen(url, timeout=PATIENCE, context=context()) as answer:
        return answer.read().decode()


def of_http_client(url):
    import http.client

    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=PATIENCE, context=context())
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE)
    connection.request("GET", parts.path or "/")
    return connection.getresponse().read().decode()


def of_requests(url):
    import requests

    return requests.get(url, timeout=PATIENCE, verify=CA).text


def of_httpx(url):
    import httpx

    return httpx.get(url, timeout=PATIENCE, verify=context()).text


def of_urllib3(url):
    import urllib3

    return urllib3.PoolManager(ca_certs=CA).request("GET", url, timeout=PATIENCE, retries=False).data.decode()


def of_aiohttp(url):
    import aiohttp

    async def ask():
        connector = aiohttp.TCPConnector(ssl=context())
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            async with session.get(url) as answer:
                return await answer.text()

    return asyncio.run(ask())


def of_websockets(url):
    import websockets.sync.client

    url = url.replace("http", "ws", 1)
    tls = context() if url.startswith("wss") else None
    with websockets.sync.client.connect(url, ssl=tls, open_timeout=PATIENCE, proxy=None) as connection:
        connection.send("there and back")
        return connection.recv(timeout=PATIENCE)


def of_socket(url):
    parts = urllib.parse.urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), PATIENCE) as connection:
        connection.sendall(b"there and back\n")
        connection.shutdown(socket.SHUT_WR)
        said = b""
        while more := connection.recv(4096):
            said += more
        return said.decode()


def of_program(line, given=None, env=None):
    pipe = subprocess.PIPE if given is not None else subprocess.DEVNULL
    env = {**os.environ, **(env or {})}
    program = subprocess.Popen(line, stdin=pipe, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, start_new_session=True)
    try:
        said, errors = program.communicate(given, PATIENCE)
    except subprocess.TimeoutExpired:
        # With what it started, which holds its streams open: git's helper does.
        os.killpg(program.pid, signal.SIGKILL)
        said, errors = program.communicate()
        raise OSError(f"no end: {said.decode(errors='replace')[-300:]} {errors.decode(errors='replace')[-300:]}")
    said = said.decode(errors="replace")
    if program.returncode != 0:
        raise OSError(f"exit {program.returncode}: {said[-300:]} {errors.decode(errors='replace')[-300:]}")
    return said


def of_curl(url):
    return of_program(["curl", "--silent", "--show-error", "--fail", *(["--cacert", CA] if CA else []), url])


def of_git(url):
    env = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", **({"GIT_SSL_CAINFO": CA} if CA else {})}
    return of_program(["git", "ls-remote", url.rstrip("/") + "/repository.git"], env=env)


def of_openssl(url):
    parts = urllib.parse.urlsplit(url)
    port = parts.port or 443
    program = os.path.join(HERE, "openssl")
    line = [program if os.path.exists(program) else "openssl", "s_client", "-connect", f"{parts.hostname}:{port}", "-servername", parts.hostname, "-quiet"]
    line += ["-verify_return_error", "-CAfile", CA]
    said = of_program(line, given=f"GET / HTTP/1.0\r\nHost: {parts.hostname}\r\n\r\n".encode())
    if " 200 " not in said:
        raise OSError(f"no answer: {said}")
    return said


def of_go(url):
    said = of_program(["hey", "-n", "1", "-c", "1", "-disable-keepalive", url])
    if "[200]" not in said:
        raise OSError(said[said.find("Error distribution") :])
    return said


def of_rust(url):
    return of_program([os.environ.get("CLIENTS_RUST", os.path.join(HERE, "rust")), "fetch", url])


def answer(pair):
    client, url = pair
    try:
        return {"client": client, "url": url, "reached": globals()["of_" + client](url)}
    except KeyError as unknown:
        raise SystemExit(f"no client {unknown}")
    except Exception as error:
        return {"client": client, "url": url, "failed": f"{type(error).__name__}: {error}"}


# Where it hangs, if it does, before the test's patience ends.
faulthandler.dump_traceback_later(160, exit=True)
asked = json.loads(sys.stdin.readline())
with ThreadPoolExecutor(len(asked)) as pool:
    print(json.dumps(list(pool.map(answer, asked))))
