# SPDX-License-Identifier: Apache-2.0
"""Changes a vLLM server as it starts. The check puts this folder on PYTHONPATH, so that each of the
server's processes imports this file; vLLM's own files stay as they are.

  METRONOME_ASYNC=1       asynchronous scheduling on a CPU: vLLM's CPU platform turns it off, and
                          its model runner waits for CUDA streams and events, which become empty
  METRONOME_RECORD=FILE   the scheduler's requests and decisions, to FILE.PID
"""

import importlib.abc
import importlib.util
import os
import sys

PLATFORM = "vllm.platforms.cpu"
RUNNER = "vllm.v1.worker.cpu_model_runner"
SCHEDULER = "vllm.v1.core.sched.scheduler"


def allow_async(module):
    """The platform's settings without the line that turns asynchronous scheduling off."""
    original = module.CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls, vllm_config):
        is_async = vllm_config.scheduler_config.async_scheduling
        original(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = is_async

    module.CpuPlatform.check_and_update_config = classmethod(check_and_update_config)


class Nothing:
    """A stream or an event of a device that computes while the host waits."""

    def __init__(self, *args, **kwargs):
        self.device = None

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def record(self, *args):
        pass

    wait = synchronize = wait_stream = wait_event = record_stream = record

    def query(self):
        return True


def replace_streams(module):
    import torch
    torch.cuda.Event = torch.Event = Nothing
    torch.cuda.Stream = Nothing
    torch.cuda.stream = Nothing
    torch.cuda.current_stream = Nothing
    torch.cuda.synchronize = Nothing


class Recorder:
    """The decisions of the scheduler of one process, a JSON line each, in the words of
    tests/goldens/README.md."""

    def __init__(self, path):
        self.path = f"{path}.{os.getpid()}"
        self.file = None
        self.requests = {}

    def write(self, entry):
        import json
        if self.file is None:
            self.file = open(self.path, "w", encoding="utf-8")
        self.file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        self.file.flush()

    def settings(self, scheduler):
        config = scheduler.scheduler_config
        cache = scheduler.cache_config
        groups = scheduler.kv_cache_config.kv_cache_groups
        speculative = scheduler.vllm_config.speculative_config
        self.write({"config": {
            "num_blocks": scheduler.kv_cache_config.num_blocks,
            "block_size": groups[0].kv_cache_spec.block_size,
            "num_groups": len(groups),
            "max_num_seqs": config.max_num_seqs,
            "max_num_batched_tokens": config.max_num_batched_tokens,
            "max_model_len": scheduler.max_model_len,
            "enable_prefix_caching": bool(cache.enable_prefix_caching),
            "long_prefill_token_threshold": config.long_prefill_token_threshold,
            "enable_chunked_prefill": bool(config.enable_chunked_prefill),
            "policy": getattr(config.policy, "value", config.policy),
            "scheduler_reserve_full_isl": bool(config.scheduler_reserve_full_isl),
            "async_depth": 2 if config.async_scheduling else 1,
            "spec_method": getattr(speculative, "method", None),
            "num_speculative_tokens": getattr(speculative, "num_speculative_tokens", 0) or 0}})

    def add(self, request):
        self.requests[request.request_id] = request
        self.write({"request": {
            "id": request.request_id, "prompt": list(request.prompt_token_ids),
            "max_tokens": request.max_tokens, "priority": request.priority,
            "arrival_time": request.arrival_time}})

    def plan(self, scheduler, output, preemptions):
        admitted = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        for name, computed in zip(cached.req_ids, cached.num_computed_tokens):
            if name in cached.resumed_req_ids:
                admitted[name] = computed
        manager = scheduler.kv_cache_manager
        step = {"scheduled": dict(output.num_scheduled_tokens),
                "preempted": [name for name, count in preemptions.items()
                              if self.requests[name].num_preemptions > count],
                "running": [request.request_id for request in scheduler.running],
                "waiting": [request.request_id for request in scheduler.waiting],
                "free_blocks": manager.block_pool.get_num_free_blocks()}
        if admitted:
            step["admitted_computed"] = admitted
        step["block_tables"] = {request.request_id: list(manager.get_block_ids(
            request.request_id)[0]) for request in scheduler.running}
        step["drafts"] = {name: len(drafts) for name, drafts
                          in output.scheduled_spec_decode_tokens.items() if drafts}
        self.write({"step": step})

    def settle(self, output, result, before):
        sampled = {}
        if result.sampled_token_ids:
            for name, i in result.req_id_to_index.items():
                sampled[name] = [int(token) for token in result.sampled_token_ids[i]]
        self.write({"result": {
            "of": list(output.num_scheduled_tokens), "sampled": sampled,
            "finished": [name for name in before if self.requests[name].is_finished()]}})
        for name in before:
            if self.requests[name].is_finished():
                del self.requests[name]

    def propose(self, drafts):
        self.write({"proposed": {name: len(own) for name, own
                                 in zip(drafts.req_ids, drafts.draft_token_ids)}})


def record(module, path):
    recorder = Recorder(path)
    scheduler = module.Scheduler
    add_request, schedule = scheduler.add_request, scheduler.schedule
    update, propose = scheduler.update_from_output, scheduler.update_draft_token_ids
    create = scheduler.__init__

    def __init__(self, *args, **kwargs):
        create(self, *args, **kwargs)
        recorder.settings(self)

    def recorded_add(self, request):
        recorder.add(request)
        return add_request(self, request)

    def recorded_schedule(self, *args, **kwargs):
        preemptions = {name: request.num_preemptions
                       for name, request in recorder.requests.items()}
        output = schedule(self, *args, **kwargs)
        recorder.plan(self, output, preemptions)
        return output

    def recorded_update(self, output, result):
        before = list(recorder.requests)
        done = update(self, output, result)
        recorder.settle(output, result, before)
        return done

    def recorded_propose(self, drafts):
        recorder.propose(drafts)
        return propose(self, drafts)

    scheduler.__init__ = __init__
    scheduler.add_request = recorded_add
    scheduler.schedule = recorded_schedule
    scheduler.update_from_output = recorded_update
    scheduler.update_draft_token_ids = recorded_propose


class Patches(importlib.abc.MetaPathFinder):
    """Applies a change right after its module was imported."""

    def __init__(self, changes):
        self.changes = changes

    def find_spec(self, name, path, target=None):
        if name not in self.changes:
            return None
        change = self.changes.pop(name)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


CHANGES = {}
if os.environ.get("METRONOME_ASYNC") == "1":
    CHANGES[PLATFORM] = allow_async
    CHANGES[RUNNER] = replace_streams
if os.environ.get("METRONOME_RECORD"):
    CHANGES[SCHEDULER] = lambda module: record(module, os.environ["METRONOME_RECORD"])
if CHANGES:
    sys.meta_path.insert(0, Patches(CHANGES))
