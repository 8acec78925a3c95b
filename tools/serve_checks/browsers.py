# SPDX-License-Identifier: Apache-2.0
"""Pages in a browser call the server: of allowed origins and others, with and without key and TLS.

The page is served at two names of this machine, which are two origins: localhost is allowed,
127.0.0.1 is not.
"""

import html
import http.server
import re
import subprocess
import tempfile
import threading
import urllib.parse

from serve_checks import chromium
from serve_checks import server as serving
from serve_checks.server import Server

SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
NUM_TOKENS = 50
PAGE = b"""<!DOCTYPE html><title>caller</title><body><script>
const wanted = new URLSearchParams(location.search);
const headers = {'Content-Type': 'application/json'};
if (wanted.get('key')) headers.Authorization = 'Bearer ' + wanted.get('key');
const body = {prompt: 'Once', max_tokens: Number(wanted.get('tokens')), ignore_eos: true,
              stream: true};
fetch(wanted.get('url') + '/v1/completions', {method: 'POST', headers, body: JSON.stringify(body)})
  .then(async response => {
    const text = await response.text();
    return `${response.status}, ${text.split('data: ').length - 1} events`;
  })
  .catch(error => `blocked`)
  .then(found => { document.body.textContent = found; });
</script>
"""


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_):
        pass


def call_from(browser, origin, **fields):
    """The answers that a page of this origin gets."""
    address = f"{origin}/?" + urllib.parse.urlencode({**fields, "tokens": NUM_TOKENS})
    done = subprocess.run(
        [*browser, "--ignore-certificate-errors", "--timeout=60000",
         "--virtual-time-budget=60000", "--dump-dom", address],
        capture_output=True, text=True, timeout=120, preexec_fn=serving.die_with_parent)
    found = re.search(r"<body>(.*?)</body>", done.stdout, re.DOTALL)
    return html.unescape(found[1]).strip() if found else f"no page: {done.stderr[-200:]}"


def check_server(program, faults, browser, port, certificate, key):
    allowed, other = f"http://localhost:{port}", f"http://127.0.0.1:{port}"
    options = ["--allowed-origins", allowed] + (["--api-key", key] if key else [])
    how = f"{'with' if key else 'without'} a key, {'by' if certificate else 'without'} TLS"
    with Server(program, SCENARIO, *options, variant="budget", speed=20,
                certificate=certificate) as server:
        expected = f"200, {NUM_TOKENS + 1} events"
        faults.equal(call_from(browser, allowed, url=server.url, key=key), expected,
                     f"a page of an allowed origin, {how}")
        faults.equal(call_from(browser, other, url=server.url, key=key), "blocked",
                     f"a page of another origin, {how}")
        if key:
            faults.equal(call_from(browser, allowed, url=server.url, key="other"),
                         "401, 0 events", "a page with a wrong key")
        served = server.metrics()["vllm:request_success_total:length"]
        faults.equal(served, 1, f"requests that were computed, {how}")
        faults.equal(server.stop(), 0, "exit code")


def check(program, faults, _):
    with tempfile.TemporaryDirectory() as scratch:
        browser = chromium.command(scratch + "/profile")
        if browser is None:
            faults.say("no chromium (tools/setup --browser installs it): left out")
            return
        pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        for certificate in (None, serving.make_certificate(scratch)):
            for key in ("", "secret"):
                check_server(program, faults, browser, pages.server_port, certificate, key)
        pages.shutdown()
