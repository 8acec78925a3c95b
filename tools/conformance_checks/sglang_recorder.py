# SPDX-License-Identifier: Apache-2.0
"""Drives the real scheduler of an SGLang package in virtual time, and records its decisions.

Real are the scheduler with both event loops, its prefill adder, queue order, batches and
result processing, the allocators and the radix tree. Not real are torch (sglang_tensors.py), the
model, configuration, metrics and everything that talks to other processes. There is no model: token
k of request i is 100000 + 1000 * i + k, and 7 ends a text. Cases and steps are those of
tests/goldens/README.md.
"""

import array
import importlib
import os
from types import SimpleNamespace

import sglang_tensors as tensors
from sglang_standins import (Adapters, Idle, Metrics, NoLeaks, NoSpeculation, install,  # noqa: F401
                             no, nothing, settings)

END_OF_TEXT = 7
# An idle round repeats as long as nothing arrives; after these the case is stuck.
ROUNDS_UNTIL_STUCK = 12
FIELDS = ("batch", "scheduled", "admitted_computed", "chunked", "preempted", "running", "waiting",
          "free_tokens", "evictable_tokens", "evicted_tokens", "stuck", "new_token_ratio",
          "batch_is_full", "aborted", "finished")


# ---- The scheduler ----

def make_settings(config):
    """The answers of runtime_context for this case; a missing name is an error."""
    priority = config.get("enable_priority_scheduling", False)
    spaces = {
        "schedule": dict(
            page_size=config["page_size"], chunked_prefill_size=config["chunked_prefill_size"],
            schedule_policy=config["schedule_policy"],
            schedule_conservativeness=config["schedule_conservativeness"],
            enable_mixed_chunk=config["enable_mixed_chunk"],
            enable_priority_scheduling=priority,
            schedule_low_priority_values_first=config.get(
                "schedule_low_priority_values_first", False),
            priority_scheduling_preemption_threshold=config.get(
                "priority_scheduling_preemption_threshold", 10),
            disable_priority_preemption=config.get("disable_priority_preemption", False),
            retraction_policy=config.get("retraction_policy", "length"),
            scheduler_recv_interval=config.get("scheduler_recv_interval", 1),
            prefill_decode_interval=config.get("prefill_decode_interval"),
            prefill_decode_interval_min_bs=config.get("prefill_decode_interval_min_bs", 0),
            prefill_max_requests=config.get("prefill_max_requests"),
            enable_prefill_delayer=False),
        "memory": dict(radix_eviction_policy="lru", enable_flexkv=False, enable_hisparse=False),
        "disagg": dict(disaggregation_mode="null",
                       disaggregation_decode_enable_offload_kvcache=False),
        "exec": dict(features=SimpleNamespace(
            enable_encoder_swa_bounded_replay=False, return_hidden_states_mode=None,
            enable_return_hidden_states=False),
                     mamba=SimpleNamespace(enable_mamba_extra_buffer=False,
                                           enable_mamba_extra_buffer_lazy=False)),
        "parallel": dict(pp_max_micro_batch_size=config["max_running_requests"], pp_size=1,
                         pp_rank=0, tp_size=1, dcp_enabled=False, attn_dp_enabled=False),
        "spec": dict(speculative_algorithm=None),
        "serving": dict(strip_thinking_cache=False, weight_version=None),
        "observability": dict(enable_metrics=False),
        "lora": {}, "mm": {}, "device": {}, "model": {}, "platform": {}}
    settings.spaces = {name: SimpleNamespace(**values) for name, values in spaces.items()}


def set_environment(config):
    schedule_policy = importlib.import_module("sglang.srt.managers.schedule_policy")
    schedule_policy.CLIP_MAX_NEW_TOKENS = config["clip_max_new_tokens"]
    for key in ("init_new_token_ratio", "min_new_token_ratio_factor",
                "new_token_ratio_decay_steps", "retract_decode_steps"):
        os.environ["SGLANG_" + key.upper()] = str(config[key])
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = "python"  # the wheel has no other


class CaseIsOver(Exception):
    pass


def make_scheduler_class():
    from sglang.srt.managers.schedule_policy import PrefillAdder
    from sglang.srt.managers.scheduler import Scheduler

    class OrderedAdder(PrefillAdder):
        """Lists the preempted requests in the order of the batch. The package lists a set of them,
        so by address."""

        def preempt_to_schedule(self, req):
            batch = self.running_batch.reqs
            num_before = len(self.preempt_list)
            done = super().preempt_to_schedule(req)
            self.preempt_list[num_before:] = sorted(self.preempt_list[num_before:], key=batch.index)
            return done

    class DrivenScheduler(Scheduler):
        """The scheduler without the parts that need a device or another process."""

        def __init__(self, recorder):
            self.recorder = recorder
            config = recorder.config
            self.set_configuration(config)
            self.set_standins()
            self.make_memory(config)
            self.init_running_status()
            self.init_chunked_prefill()
            self.init_schedule_policy()
            self.init_batch_result_processor()

        def set_configuration(self, config):
            schedule = settings.spaces["schedule"]
            self.page_size = config["page_size"]
            self.schedule_policy = schedule.schedule_policy
            self.enable_priority_scheduling = schedule.enable_priority_scheduling
            self.schedule_low_priority_values_first = schedule.schedule_low_priority_values_first
            self.priority_scheduling_preemption_threshold = (
                schedule.priority_scheduling_preemption_threshold)
            self.abort_on_priority_when_disabled = False
            self.enable_overlap = config["overlap"]
            self.max_total_num_tokens = config["num_tokens"]
            self.max_prefill_tokens = config["max_prefill_tokens"]
            self.max_running_requests = config["max_running_requests"]
            self.max_req_len = min(config["context_length"], config["num_tokens"]) - 1
            self.max_new_tokens_limit = None
            self.max_queued_requests = None
            self.sliding_window_size = None
            self.device = tensors.CPU

        def set_standins(self):
            """Features that are off, and parts that only watch."""
            from sglang.srt.disaggregation.utils import DisaggregationMode
            self.disaggregation_mode = DisaggregationMode.NULL
            self.spec_algorithm = NoSpeculation()
            self.is_generation = True
            for name in ("enable_hierarchical_cache", "enable_lmcache", "enable_hisparse",
                         "enable_hicache_storage", "enable_unified_cache_external_linker",
                         "enable_lora", "enable_pdmux", "enable_unified_memory", "enable_fpm",
                         "is_hybrid_swa", "require_mlp_sync", "attn_dp_enabled",
                         "enable_overlap_mlx", "_war_barrier_enabled"):
                setattr(self, name, False)
            for name in ("dllm_config", "draft_worker", "dynamic_chunk_sizer",
                         "min_free_slots_delayer", "hisparse_coordinator", "metrics_collector",
                         "decode_offload_manager", "scripted_scheduler_hook", "forward_sleep_time",
                         "truncation_align_size", "session_controller", "metrics_collector_context",
                         "_confidence_budget_prepare", "enable_async_d2h_copy",
                         "load_snapshot_writer", "idle_sleeper"):
                setattr(self, name, None)
            for name in ("load_publisher", "load_inquirer",
                         "profiler_manager", "output_streamer", "kv_events_publisher",
                         "pool_stats_observer", "future_map",
                         "scheduler_stage_metrics", "forward_stream", "schedule_stream",
                         "forward_stream_ctx", "copy_stream", "copy_stream_ctx",
                         "server_args", "send_to_tokenizer"):
                setattr(self, name, Idle())
            self.dp_attn_adapter = self.ngram_embedding_manager = Adapters()
            self.invariant_checker = NoLeaks()
            self.metrics_reporter = Metrics()
            self.grammar_manager = SimpleNamespace(has_waiting_grammars=no, grammar_queue=())
            self.dllm_manager = SimpleNamespace(any_staging_reqs=no)
            self.device_module = SimpleNamespace(Event=Idle)
            self.model_config = SimpleNamespace(vocab_size=1 << 30, is_encoder_decoder=False,
                                                self_opened_think_start_ids=None,
                                                is_multimodal=False)
            self.tp_worker = self.model_worker = self.recorder.model
            self.batch_record_buf = [None] * 2
            self.batch_record_ct = 0
            self.forward_ct = 0
            self.processed_tokens_counter = 0
            self._sched_idled = False

        def init_beam_coordinator(self):
            self.beam_coordinator = Adapters()

        def _record_step_counters(self, batch, result):
            """Only measures time."""

        def make_memory(self, config):
            from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
            from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
            from sglang.srt.mem_cache.cache_init_params import CacheInitParams
            from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
            from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
            from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
            self.req_to_token_pool = ReqToTokenPool(
                config["req_pool_size"], config["context_length"] + 4, tensors.CPU, False)
            common = dict(dtype=None, device=tensors.CPU, kvcache=None, need_sort=False)
            if self.page_size == 1:
                allocator = TokenToKVPoolAllocator(config["num_tokens"], **common)
            else:
                allocator = PagedTokenToKVPoolAllocator(config["num_tokens"], self.page_size,
                                                        **common)
            self.token_to_kv_pool_allocator = allocator
            self.tree_cache = UnifiedRadixCache(CacheInitParams(
                disable=config["disable_radix_cache"], req_to_token_pool=self.req_to_token_pool,
                token_to_kv_pool_allocator=allocator, page_size=self.page_size,
                tree_components=(ComponentType.FULL,)))

        def get_prefill_adder_class(self):
            return OrderedAdder

        # ---- Where the recorder listens ----

        def ingest_requests(self, stop_at_pause=False):
            self.recorder.begin_round(self)

        def _should_defer_prefill(self, running_batch):
            self.recorder.is_deferred = super()._should_defer_prefill(running_batch)
            return self.recorder.is_deferred

        def get_next_batch_to_run(self, running_batch, last_batch):
            plan = super().get_next_batch_to_run(running_batch, last_batch)
            self.recorder.note_plan(self, plan)
            return plan

        def send_abort_output(self, abort_req, req):
            self.recorder.aborted.append(req.rid)

    return DrivenScheduler


class Model:
    """Stands for the worker: answers with the case's tokens."""

    last_shared_read_runner = None

    def __init__(self, recorder):
        self.recorder = recorder
        self.model_runner = SimpleNamespace(attn_backend=SimpleNamespace(),
                                            prefill_aware_swa=False)

    def forward_batch_generation(self, batch, **options):
        from sglang.srt.managers.utils import GenerationBatchResult
        ends = batch.seq_lens_cpu.tolist()
        return GenerationBatchResult(next_token_ids=tensors.tensor(
            [self.recorder.token(req, end) for req, end in zip(batch.reqs, ends)]))


class Recorder:
    """One case of the protocol on one scheduler."""

    def __init__(self, case):
        self.config = case["config"]
        make_settings(self.config)
        set_environment(self.config)
        self.listed = case["requests"]
        self.index = {request["id"]: i for i, request in enumerate(self.listed)}
        self.requests = {}
        self.arrivals = sorted(self.listed, key=lambda request: request["arrival_step"])
        self.model = Model(self)
        self.steps = []
        self.aborted = []  # in this round
        self.num_ended = 0
        self.num_idle = 0
        self.has_lost_chunk = False
        self.scheduler = make_scheduler_class()(self)
        skipper = importlib.import_module("sglang.srt.managers.scheduler_components.recv_skipper")
        self.skipper = skipper.SchedulerRecvSkipper.maybe_create()
        self.num_evicted = 0
        self.listen_to_evictions()

    def token(self, req, end):
        """The one after the request's first `end` tokens."""
        i = self.index[req.rid]
        k = end - len(req.origin_input_ids)
        is_last = self.listed[i].get("output_len") == k + 1
        return END_OF_TEXT if is_last else 100_000 + 1000 * i + k

    def listen_to_evictions(self):
        tree = self.scheduler.tree_cache
        evict = tree.evict_for_alloc

        def counted(*arguments, **options):
            result = evict(*arguments, **options)
            self.num_evicted += result.num_tokens_evicted
            return result
        tree.evict_for_alloc = counted
        tree.pretty_print = nothing  # before an error

    # ---- A round ----

    def begin_round(self, scheduler):
        if self.steps:
            self.end_round()
        t = len(self.steps)
        receives = self.skipper is None or self.skipper.handle(scheduler.last_batch)
        while receives and self.arrivals and self.arrivals[0]["arrival_step"] <= t:
            self.add(self.arrivals.pop(0))
        self.finished = {name for name, req in self.requests.items() if req.finished()}
        self.retractions = {name: req.retraction_count for name, req in self.requests.items()}
        self.holding = {name for name, req in self.requests.items() if req.kv.holds_kv}
        self.num_evicted = 0

    def add(self, listed):
        from sglang.srt.managers.schedule_batch import Req
        sampling = SimpleNamespace(
            max_new_tokens=listed["max_tokens"], min_new_tokens=0,
            ignore_eos=listed.get("ignore_eos", False), stop_token_ids=set(), stop_strs=[],
            stop_regex_strs=[], custom_params=None)
        req = Req(listed["id"], "", array.array("q", listed["prompt"]), sampling,
                  eos_token_ids={END_OF_TEXT}, vocab_size=1 << 30, priority=listed.get("priority"))
        self.scheduler.init_req_max_new_tokens(req)
        if sampling.max_new_tokens != listed["max_tokens"]:
            listed["clipped_max_tokens"] = sampling.max_new_tokens
        self.requests[listed["id"]] = req
        self.scheduler._add_request_to_queue(req)

    def note_plan(self, scheduler, plan):
        batch = plan.batch_to_run
        self.has_lost_chunk |= loses_chunk(batch, scheduler.chunked_req)
        retracted = [name for name in self.index if name in self.retractions
                     and self.requests[name].retraction_count > self.retractions[name]
                     and name not in self.aborted]
        step = {"batch": "idle", "scheduled": {}}
        if batch is not None:
            step.update(self.describe(batch))
        step.update({
            "chunked": scheduler.chunked_req.rid if scheduler.chunked_req else None,
            "preempted": retracted,
            "running": [req.rid for req in plan.running_batch.reqs],
            "waiting": [req.rid for req in scheduler.waiting_queue],
            "free_tokens": scheduler.token_to_kv_pool_allocator.available_size(),
            "evictable_tokens": scheduler.tree_cache.evictable_size()})
        if self.num_evicted:
            step["evicted_tokens"] = self.num_evicted
        step["new_token_ratio"] = scheduler.new_token_ratio_tracker.current
        step["batch_is_full"] = plan.running_batch.batch_is_full
        if self.aborted:
            step["aborted"] = list(self.aborted)
        self.steps.append(step)

    def describe(self, batch):
        mode = batch.forward_mode
        kind = "decode" if mode.is_decode() else "mixed" if mode.is_mixed() else "prefill"
        lens = [1] * len(batch.reqs) if mode.is_decode() else batch.extend_lens
        described = {"batch": kind,
                     "scheduled": {req.rid: n for req, n in zip(batch.reqs, lens)}}
        admitted = {req.rid: batch.prefix_lens[i] for i, req in enumerate(batch.reqs)
                    if req.rid not in self.holding}
        if admitted:
            described["admitted_computed"] = admitted
        return described

    def end_round(self):
        step = self.steps[-1]
        step["finished"] = [name for name in self.index if name in self.requests
                            and self.requests[name].finished() and name not in self.finished]
        self.num_ended += len(step["finished"]) + len(self.aborted)
        self.aborted.clear()
        if self.num_ended == len(self.listed):
            raise CaseIsOver
        if self.arrivals:
            return
        is_idle = (step["batch"] == "idle" and not step["preempted"] and not step["finished"]
                   and not self.is_deferred)
        self.num_idle = self.num_idle + 1 if is_idle else 0
        if self.num_idle == ROUNDS_UNTIL_STUCK:
            del self.steps[-ROUNDS_UNTIL_STUCK + 1:]
            self.steps[-1]["stuck"] = True
            raise CaseIsOver

    def ordered_steps(self):
        return [{field: step[field] for field in FIELDS if field in step} for step in self.steps]

    def run(self):
        loop = (self.scheduler.event_loop_overlap if self.config["overlap"]
                else self.scheduler.event_loop_normal)
        try:
            loop()
        except CaseIsOver:
            return self.ordered_steps()


def loses_chunk(batch, chunked):
    """Whether a prompt goes on as if it were complete: the scheduler remembers one chunk, and this
    batch has another one too."""
    return batch is not None and batch.forward_mode.is_extend() and any(
        req is not chunked and req.extend_end < len(req.full_untruncated_fill_ids)
        for req in batch.reqs)


def record(case):
    """The steps. A fault of the package itself is named in the case."""
    recorder = Recorder(case)
    try:
        steps = recorder.run()
    except RuntimeError as error:  # raised by its allocation alone
        if "ut of memory" not in str(error):
            raise
        case["fault"] = "out of memory"
        return recorder.ordered_steps()
    if recorder.has_lost_chunk:
        case["fault"] = "lost chunk"
    return steps
