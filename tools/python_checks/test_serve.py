# SPDX-License-Identifier: Apache-2.0
"""Servers of Python: what clients get beside the command's, with policies of Python, too."""

import concurrent.futures
import importlib.util
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import common
import metronome

TINY = {
    "model": "tiny-qwen3", "hardware": "h100-sxm", "seed": 7,
    "engine": {"max_num_seqs": 8},
    "kv_cache": {"num_blocks": 128, "block_size": 16},
    "scheduler": {"policy": "python_longest_first", "max_num_batched_tokens": 64},
    "workload": {"num_requests": 1, "arrivals": {"process": "burst"},
                 "prompt_tokens": {"value": 16}, "output_tokens": {"value": 8}},
}


@metronome.register
class LongestFirst(metronome.Policy):
    """Decodes, then the prompt with the most tokens left."""

    name = "python_longest_first"
    keys = ("max_num_batched_tokens",)
    seen: list = []  # of all runs: request and tokens

    def fill(self, books):
        books.plan_decodes()
        left = self.max_num_batched_tokens - books.planned_tokens
        prompts = [r for r in books.unfinished_prefills() if r.state == "prefill"]
        for request in sorted(prompts, key=lambda r: -r.uncomputed_tokens):
            tokens = min(left, request.uncomputed_tokens)
            if tokens > 0 and books.plan_prefill(request, tokens):
                left -= tokens
        while left > 0 and (request := books.next_waiting()) is not None:
            tokens = min(left, books.uncomputed_tokens(request))
            if not books.admit(request, tokens):
                return
            self.seen.append((request.id, tokens))
            left -= tokens


@metronome.register
class Failing(LongestFirst):
    name = "python_failing"

    def fill(self, books):
        if books.next_waiting() is not None:
            raise ValueError("a mistake of the policy")
        super().fill(books)


def ask(server, **body):
    """The answer to a completion, as JSON."""
    request = urllib.request.Request(
        server.url + "/v1/completions", json.dumps({"max_tokens": 8, **body}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Simulated(common.InFolder):
    def test_answers_as_the_command(self):
        """The same texts and counts: a server of Python is the command's."""
        import socket
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = subprocess.Popen(
            [common.METRONOME, "serve", "quickstart", "--variant", "chunked-512", "--port",
             str(port), "--quiet"], cwd=self.folder)
        self.addCleanup(command.kill)
        with metronome.serve("quickstart", variant="chunked-512") as server:
            class Theirs:
                url = f"http://127.0.0.1:{port}"
            for _ in range(200):
                try:
                    urllib.request.urlopen(Theirs.url + "/health").close()
                    break
                except urllib.error.URLError:
                    time.sleep(0.05)
            for prompt in ("Hello", "A longer prompt, of several words"):
                ours, theirs = ask(server, prompt=prompt, seed=3), ask(Theirs, prompt=prompt, seed=3)
                for answer in (ours, theirs):
                    answer.pop("id")
                    answer.pop("created")
                self.assertEqual(ours, theirs)
        command.send_signal(signal.SIGTERM)
        self.assertEqual(command.wait(timeout=60), 0)

    def test_policy(self):
        LongestFirst.seen.clear()
        with metronome.serve(TINY, out="served") as server:
            with concurrent.futures.ThreadPoolExecutor(4) as clients:
                answers = list(clients.map(lambda n: ask(server, prompt="x" * n),
                                           [10, 90, 40, 200]))
        self.assertEqual([a["usage"]["prompt_tokens"] for a in answers], [10, 90, 40, 200])
        self.assertEqual([a["usage"]["completion_tokens"] for a in answers], [8] * 4)
        self.assertEqual(len({number for number, _ in LongestFirst.seen}), 4)
        result = json.loads(pathlib.Path("served/result.json").read_text())
        self.assertEqual(result["config"]["scheduler"]["policy"], "python_longest_first")
        self.assertEqual(result["completed"], 4)

    def test_one_more_server(self):
        """Two servers at once, beside a run."""
        with metronome.serve(TINY) as one, metronome.serve(
                "quickstart", variant="chunked-512", speed=100) as other:
            self.assertNotEqual(one.port, other.port)
            metronome.run("quickstart", {"workload.num_requests": 5}, variants="chunked-512")
            self.assertEqual(ask(one, prompt="Hi")["usage"]["completion_tokens"], 8)
            self.assertEqual(ask(other, prompt="Hi")["usage"]["completion_tokens"], 8)
            self.assertIn("vllm:", other.get("/metrics"))
        self.assertFalse(one.is_running)
        self.assertIn("ended", repr(one))

    def test_failing_policy(self):
        server = metronome.serve(TINY, {"scheduler.policy": "python_failing"})
        with self.assertRaises(urllib.error.HTTPError) as raised:
            ask(server, prompt="Hello")
        with raised.exception as answer:
            self.assertEqual(answer.code, 500)
        with self.assertRaisesRegex(metronome.RunError, "a mistake of the policy"):
            server.wait()

    def test_refusals(self):
        with self.assertRaisesRegex(metronome.ArgumentError, "has no 'sped', did you mean 'speed'"):
            metronome.serve("quickstart", sped=2)
        with self.assertRaisesRegex(metronome.ArgumentError, "variant: .*allowed: unchunked"):
            metronome.serve("quickstart")
        with self.assertRaisesRegex(metronome.ScenarioError, "scheduler.policy"):
            metronome.serve(TINY, {"scheduler.policy": "python_unknown"})
        with metronome.serve(TINY) as server:
            with self.assertRaisesRegex(metronome.ArgumentError, "in use"):
                metronome.serve(TINY, port=server.port)

    def test_abort(self):
        """close(at_once=True) does not wait for an answer of a minute."""
        server = metronome.serve("quickstart", variant="chunked-512")
        ended = []

        def stream():
            try:
                ended.append(ask(server, prompt="Hello", max_tokens=4000))
            except OSError as error:
                ended.append(error)

        client = threading.Thread(target=stream)
        client.start()
        while "vllm:num_requests_running" not in (text := server.get("/metrics")) or not re.search(
                r"^vllm:num_requests_running\S* 1", text, re.MULTILINE):
            time.sleep(0.01)
        server.close(at_once=True)
        client.join()
        self.assertEqual(len(ended), 1)

    def test_options(self):
        """Each option of the command is an argument."""
        text = common.command("serve", "--help", cwd=self.folder)
        options = set(re.findall(r"^  (?:-\w \[ )?--([a-z-]+)", text, re.MULTILINE))
        own = {"set", "variant", "backend", "host", "port", "quiet", "help"}
        self.assertEqual({name.replace("-", "_") for name in options - own},
                         set(metronome.Served.__annotations__))

    def test_end_of_process(self):
        """A process whose server runs ends when its program does."""
        done = subprocess.run(
            [sys.executable, "-c", "import metronome\n"
             "server = metronome.serve('quickstart', variant='chunked-512')\nprint(server.port)"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreater(int(done.stdout), 0)

    def test_ctrl_c(self):
        process = subprocess.Popen(
            [sys.executable, "-c", "import metronome\n"
             "server = metronome.serve('quickstart', variant='chunked-512')\n"
             "print(server.port, flush=True)\nserver.wait()"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", errors)
        self.assertEqual(process.returncode, -signal.SIGINT)


class Computed(common.InFolder):
    def test_policy(self):
        """Tokens that the CPU computes do not depend on the policy that schedules them."""
        answers = []
        for policy in ("python_longest_first", "token_budget"):
            with metronome.serve(TINY, {"scheduler.policy": policy, "weights": "random"},
                                 backend="cpu") as server:
                with concurrent.futures.ThreadPoolExecutor(3) as clients:
                    answers.append([answer["choices"][0]["text"] for answer in clients.map(
                        lambda n: ask(server, prompt="x" * n, temperature=0), [5, 150, 60])])
        self.assertEqual(answers[0], answers[1])


@unittest.skipUnless(importlib.util.find_spec("openai"), "needs the package openai")
class OpenAi(common.InFolder):
    def test_stream(self):
        import openai
        with metronome.serve(TINY) as server, openai.OpenAI(
                base_url=server.url + "/v1", api_key="none") as client:
            model = client.models.list().data[0].id
            chunks = list(client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=6,
                stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1].usage.completion_tokens, 6)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "length")


if __name__ == "__main__":
    unittest.main()
