# SPDX-License-Identifier: Apache-2.0
"""Drives the real scheduler of a vLLM package in virtual time, and records its decisions.

Real are vllm.v1.core (scheduler, cache manager, block pool) and vllm.v1.request. The engine
loop is that of vllm/v1/engine/core.py: schedule; take a result when as many steps are queued as may
be in flight, or when nothing was scheduled. There is no model: token k of request i is
100000 + 1000 * i + k. Cases and steps are those of tests/goldens/README.md.
"""

import collections
import hashlib
import math
from types import SimpleNamespace

from standins import StandIns

MAX_STEPS = 20_000  # a lone request without room preempts itself for ever
FIRST_WITH_RETENTION_SETTING = 29  # an environment variable before
REAL = ("vllm.v1.core", "vllm.v1.request", "vllm.v1.kv_cache_interface",
        "vllm.v1.kv_cache_spec_registry", "vllm.v1.engine", "vllm.v1.outputs",
        "vllm.v1.spec_decode.dynamic", "vllm.utils.math_utils", "vllm.utils.hashing")
LIBRARIES = ("torch", "numpy", "msgspec", "cbor2", "xxhash", "pydantic", "transformers",
             "cachetools", "prometheus_client", "zmq", "PIL", "regex")


class SameList:
    """A read-only view of a list: the list."""

    def __new__(cls, values):
        return values

    def __class_getitem__(cls, item):
        return cls


class NoStructure:
    """No request wants structured output."""

    from_sampling_params = staticmethod(lambda parameters: None)

    def __class_getitem__(cls, item):
        return cls


def features_in_window(features, start, end):
    """The places [first, last) of the features that overlap [start, end), as vLLM's function of
    this purpose; its module needs libraries."""
    overlapping = [i for i, feature in enumerate(features)
                   if feature.mm_position.offset + feature.mm_position.length > start
                   and feature.mm_position.offset < end]
    return (overlapping[0], overlapping[-1] + 1) if overlapping else (0, 0)


class LargestImage:
    """The encoder's budget by vLLM's own function, from the largest image of the case."""

    def __init__(self, vllm_config, registry):
        from vllm.v1.core.encoder_cache_manager import compute_mm_encoder_budget
        self.mm_max_toks_per_item = {"image": vllm_config.largest_image}
        self.encoder_compute_budget, self.encoder_cache_size = compute_mm_encoder_budget(
            vllm_config.scheduler_config, self.mm_max_toks_per_item)


class ImageSpan:
    """Where an image is in a prompt, and which of its tokens have an embedding. vLLM's own class
    has a tensor for them."""

    def __init__(self, offset, length, first=0, count=None):
        self.offset = offset
        self.length = length
        self.first = first
        self.count = length if count is None else count

    def get_num_embeds(self):
        return self.count

    def get_embeds_indices_in_range(self, begin, end):
        return tuple(min(max(place - self.first, 0), self.count) for place in (begin, end))


VALUES = {"vllm.v1.structured_output.request": {"StructuredOutputRequest": NoStructure},
          "vllm.v1.utils": {"ConstantList": SameList},
          "vllm.multimodal.utils": {
              "strip_covered_mm_data": lambda features, *rest, **more: features,
              "get_mm_features_in_window": features_in_window},
          "vllm.multimodal.encoder_budget": {"MultiModalBudget": LargestImage},
          "vllm.v1.metrics.stats": {"KV_FETCH_STAGES": ()},
          "vllm.utils": {"length_from_prompt_token_ids_or_embeds": lambda ids, embeds: len(ids)}}


def install(folder):
    StandIns(folder, "vllm", REAL, LIBRARIES, VALUES).install()


class Recorder:
    """One case of the protocol on one scheduler."""

    def __init__(self, case):
        from vllm.v1.core import kv_cache_utils
        self.case = case
        self.config = case["config"]
        self.depth = self.config.get("async_depth", 1)
        self.num_drafts = self.config.get("num_speculative_tokens", 0)
        self.states = self.config.get("mamba")
        self.images = self.config.get("images")
        self.scheduler = self.make_scheduler()
        self.hasher = None
        if self.config["enable_prefix_caching"]:
            kv_cache_utils.NONE_HASH = b"\0" * 32
            options = [self.hash_unit(), lambda x: hashlib.sha256(repr(x).encode()).digest()]
            if self.hash_lookahead():
                options.append(self.hash_lookahead())
            self.hasher = kv_cache_utils.get_request_block_hasher(*options)
        self.index = {request["id"]: i for i, request in enumerate(case["requests"])}
        self.requests = {}
        self.num_generated = {}
        self.num_verified = collections.Counter()  # verifications of each request
        self.num_proposed = collections.Counter()  # its steps after which drafts were proposed

    # ---- The scheduler and its settings ----

    def cache_groups(self):
        from vllm.v1 import kv_cache_interface as interface
        import torch
        config = self.config
        common = dict(block_size=config["block_size"], num_kv_heads=1, head_size=1,
                      dtype=torch.float16)
        specs = [interface.FullAttentionSpec(**common)]
        if config.get("sliding_window"):
            window = interface.SlidingWindowSpec(sliding_window=config["sliding_window"], **common)
            specs += [window] * config.get("num_window_groups", 1)
        if self.states:
            alignment = self.states.get("prefill_checkpoint_alignment")
            is_cached = self.states["cache_mode"] == "align"
            specs += [interface.MambaSpec(
                block_size=config["block_size"] if is_cached else config["max_model_len"],
                shapes=((1,),), dtypes=(torch.float16,), mamba_cache_mode=self.states["cache_mode"],
                num_speculative_blocks=self.num_drafts,
                num_prefill_checkpoint_blocks=0 if alignment is None else 1,
                prefill_checkpoint_alignment=alignment)] * self.states.get("num_groups", 1)
        further = specs[1:]
        if config.get("states_before_windows"):
            further.sort(key=lambda spec: not isinstance(spec, interface.MambaSpec))
        at = config.get("num_groups_before_full", 0)
        specs = further[:at] + specs[:1] + further[at:]
        return [interface.KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)]

    def retention_interval(self):
        minor = int(self.config["version"].split(".")[1])
        default = 0 if minor >= FIRST_WITH_RETENTION_SETTING else None
        return self.config.get("prefix_cache_retention_interval", default)

    def hash_unit(self):
        return (self.states or {}).get("prefix_match_unit") or self.config["block_size"]

    def reads_ahead(self):
        return self.config.get("spec_method") in ("eagle", "mtp")

    def hash_lookahead(self):
        return 1 if self.reads_ahead() and self.config["enable_prefix_caching"] else 0

    def speculative_config(self):
        if not self.num_drafts:
            return None
        return SimpleNamespace(
            method=self.config["spec_method"], num_speculative_tokens=self.num_drafts,
            num_speculative_tokens_per_batch_size=self.config.get(
                "num_speculative_tokens_per_batch_size"),
            max_num_new_slots_for_drafting=int(self.config["spec_method"] == "draft_model"),
            use_eagle=self.reads_ahead, use_eagle_block_drop=self.reads_ahead,
            needs_eagle_block_drop=self.reads_ahead, disable_eagle_block_drop=False)

    def make_scheduler(self):
        from vllm import envs
        from vllm.v1.kv_cache_interface import KVCacheConfig
        config = self.config
        # Of versions that have no setting yet.
        envs.VLLM_PREFIX_CACHE_RETENTION_INTERVAL = self.retention_interval()
        if self.depth > 1:
            from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Scheduler
        else:
            from vllm.v1.core.sched.scheduler import Scheduler
        cache = KVCacheConfig(num_blocks=config["num_blocks"], kv_cache_tensors=[],
                              kv_cache_groups=self.cache_groups())
        cache.prefix_cache_retention_interval = self.retention_interval()
        options = {}
        if self.states:
            options["hash_block_size"] = self.hash_unit()
        return Scheduler(vllm_config=self.vllm_config(), kv_cache_config=cache,
                         structured_output_manager=SimpleNamespace(
                             accept_tokens=lambda request, tokens: True,
                             validate_tokens=lambda request, tokens: tokens,
                             should_advance=lambda request, **more: False),
                         block_size=self.scheduler_block_size(), **options)

    # Without caching a state's block is as long as a request may be.
    def scheduler_block_size(self):
        sizes = [group.kv_cache_spec.block_size for group in self.cache_groups()]
        return math.lcm(*sizes)

    def vllm_config(self):
        config = self.config
        budget = config["max_num_batched_tokens"]
        return SimpleNamespace(
            scheduler_config=SimpleNamespace(
                max_num_seqs=config["max_num_seqs"],
                max_num_active_seqs=config.get("max_num_active_seqs"),
                max_num_batched_tokens=budget, max_num_scheduled_tokens=None,
                max_num_encoder_input_tokens=budget, encoder_cache_size=budget,
                long_prefill_token_threshold=config["long_prefill_token_threshold"],
                long_prefill_token_threshold_adaptive=config.get(
                    "long_prefill_token_threshold_adaptive", False),
                prefill_schedule_interval=config.get("prefill_schedule_interval", 1),
                enable_chunked_prefill=config["enable_chunked_prefill"],
                policy=config["policy"], watermark=config.get("watermark", 0.0),
                scheduler_reserve_full_isl=config["scheduler_reserve_full_isl"],
                disable_chunked_mm_input=(self.images or {}).get(
                    "disable_chunked_mm_input", False),
                async_scheduling=self.depth > 1,
                max_num_partial_prefills=1, max_long_partial_prefills=1,
                disable_hybrid_kv_cache_manager=False),
            cache_config=SimpleNamespace(
                num_gpu_blocks=config["num_blocks"], block_size=config["block_size"],
                enable_prefix_caching=config["enable_prefix_caching"],
                mamba_cache_mode=(self.states or {}).get("cache_mode", "none"),
                mamba_block_size=None, kv_offloading_size=None,
                enable_mamba_shared_prefix_checkpoint=False,
                enable_mamba_fine_grained_prefix_cache=False,
                prefix_cache_retention_interval=self.retention_interval(),
                prefix_caching_hash_algo="sha256"),
            model_config=SimpleNamespace(
                uses_mrope=False, uses_xdrope=False, is_encoder_decoder=False,
                max_model_len=config["max_model_len"],
                runner_type="generate", is_diffusion=False,
                supports_multimodal_inputs=self.images is not None,
                is_multimodal_model=self.images is not None, return_sampling_mask=False,
                enable_return_routed_experts=False, is_hybrid=False, hf_config=SimpleNamespace()),
            parallel_config=SimpleNamespace(
                data_parallel_index=0, data_parallel_rank=0, data_parallel_size=1,
                decode_context_parallel_size=1, prefill_context_parallel_size=1,
                pipeline_parallel_size=1, tensor_parallel_size=1, world_size=1),
            observability_config=SimpleNamespace(
                per_request_spec_decode_metrics=None, kv_cache_metrics=False,
                enable_mfu_metrics=False, enable_logging_iteration_details=False),
            kv_events_config=None, kv_transfer_config=None, ec_transfer_config=None,
            lora_config=None, speculative_config=self.speculative_config(), is_mm_encoder_only=False,
            is_encoder_only=False,
            ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
            aux_output_config=SimpleNamespace(enabled=False),
            largest_image=(self.images or {}).get("max_embeddings", 0),
            num_speculative_tokens=self.num_drafts,
            num_lookahead_tokens=(
                0 if self.config.get("spec_method") == "ngram" else self.num_drafts),
            num_prefill_lookahead_tokens=int(self.reads_ahead()),
            num_hash_lookahead_tokens=self.hash_lookahead(), max_concurrent_batches=self.depth,
            max_in_flight_tokens=self.depth * budget, use_v2_model_runner=True)

    # ---- The engine loop ----

    def add(self, listed):
        from vllm.v1.request import Request
        i = self.index[listed["id"]]
        parameters = SimpleNamespace(
            max_tokens=min(listed["max_tokens"],
                           self.config["max_model_len"] - len(listed["prompt"])),
            min_tokens=0, eos_token_id=None, stop_token_ids=(), ignore_eos=True, extra_args=None,
            repetition_detection=None, skip_reading_prefix_cache=None, num_logprobs=None,
            logprobs=None, prompt_logprobs=None, structured_outputs=None, all_stop_token_ids=set())
        options = dict(request_id=listed["id"], prompt_token_ids=list(listed["prompt"]),
                       sampling_params=parameters, pooling_params=None, arrival_time=float(i),
                       priority=listed.get("priority", 0), block_hasher=self.hasher)
        if "eos_token_id" in Request.__init__.__code__.co_varnames:
            options["eos_token_id"] = None
        if self.images is not None:
            options["mm_features"] = [self.feature(image) for image in listed.get("images", ())]
        request = Request(**options)
        self.requests[listed["id"]] = request
        self.num_generated[listed["id"]] = 0
        self.scheduler.add_request(request)

    @staticmethod
    def feature(image):
        marks = image.get("embeddings", ())
        position = ImageSpan(image["offset"], image["length"], *marks)
        return SimpleNamespace(data=None, modality="image", identifier=image["id"],
                               mm_position=position)

    def num_accepted(self, name, output, admitted):
        """Drafts of a step that the model accepts. Those of a request that the step admitted are
        padding."""
        num_drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
        if num_drafts == 0 or name in admitted:
            return 0
        accepted = self.case["requests"][self.index[name]]["accepted"]
        self.num_verified[name] += 1
        return min(num_drafts, accepted[(self.num_verified[name] - 1) % len(accepted)])

    def propose(self, output):
        """The drafts after a step; with a step in flight the scheduler counts on the most."""
        from vllm.v1.outputs import DraftTokenIds
        if not self.num_drafts or self.depth > 1:
            return
        ids = list(output.num_scheduled_tokens)
        drafts = []
        for name in ids:
            # A schedule by batch size counts for every drafter.
            count = most = getattr(output, "num_spec_tokens_to_schedule", self.num_drafts)
            if proposed := self.case["requests"][self.index[name]].get("proposed"):
                count = proposed[self.num_proposed[name] % len(proposed)]
            self.num_proposed[name] += 1
            count = 0 if getattr(output, "skip_drafts", False) else min(count, most)
            drafts.append([0] * count)
        self.scheduler.update_draft_token_ids(DraftTokenIds(ids, drafts))

    def settle(self, output, samples, admitted, step):
        """Returns a step's tokens; the requests that ended."""
        from vllm.v1.outputs import ModelRunnerOutput
        ids = list(output.num_scheduled_tokens)
        tokens = []
        for name in ids:
            count = 1 + self.num_accepted(name, output, admitted) if name in samples else 0
            first = 100_000 + 1000 * self.index[name] + self.num_generated[name]
            tokens.append(list(range(first, first + count)))
            self.num_generated[name] += count
        if self.num_drafts:
            step["sampled"] = {name: len(own) for name, own in zip(ids, tokens)
                               if own and not self.requests[name].is_finished()}
        before = {name for name, request in self.requests.items() if not request.is_finished()}
        self.scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=ids, req_id_to_index={name: i for i, name in enumerate(ids)},
            sampled_token_ids=tokens, logprobs=None, prompt_logprobs_dict={}, pooler_output=None))
        self.propose(output)
        return [name for name in self.index
                if name in before and self.requests[name].is_finished()]

    def steps(self):
        waiting = sorted(self.case["requests"], key=lambda request: request["arrival_step"])
        queued = []
        steps = []
        t = 0
        while True:
            while waiting and waiting[0]["arrival_step"] <= t:
                self.add(waiting.pop(0))
            preemptions = {name: request.num_preemptions
                           for name, request in self.requests.items()}
            output = self.scheduler.schedule()
            step = self.describe(output, preemptions)
            # A request samples when its known tokens are computed once this step is.
            samples = {name for name in output.num_scheduled_tokens
                       if not self.requests[name].is_prefill_chunk}
            is_empty = not output.num_scheduled_tokens
            is_idle = is_empty and not step["preempted"] and not queued and not waiting
            if not is_empty:
                queued.append((output, samples, step.get("admitted_computed", {})))
            step["finished"] = []
            if self.num_drafts:
                step["sampled"] = {}
            if queued and (is_empty or len(queued) == self.depth):
                step["finished"] = self.settle(*queued.pop(0), step)
            elif is_empty:
                self.scheduler.update_from_output(output, self.empty_result())
            steps.append(step)
            if not waiting and all(request.is_finished() for request in self.requests.values()):
                return steps
            if is_idle:
                step["stuck"] = True
                return steps
            t += 1
            if t > MAX_STEPS:
                raise ValueError(f"requests remain after {MAX_STEPS} steps")

    @staticmethod
    def empty_result():
        from vllm.v1.outputs import ModelRunnerOutput
        return ModelRunnerOutput(req_ids=[], req_id_to_index={}, sampled_token_ids=[],
                                 logprobs=None, prompt_logprobs_dict={}, pooler_output=None)

    def describe(self, output, preemptions):
        """The scheduler's decision, in the protocol's words."""
        scheduler = self.scheduler
        step = {"scheduled": dict(output.num_scheduled_tokens),
                "preempted": [name for name in self.index if name in preemptions
                              and self.requests[name].num_preemptions > preemptions[name]],
                "running": [request.request_id for request in scheduler.running],
                "waiting": [request.request_id for request in scheduler.waiting],
                "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks()}
        admitted = self.admitted(output)
        if admitted:
            step["admitted_computed"] = admitted
        step["block_tables"] = {
            request.request_id: self.tables(request.request_id) for request in scheduler.running}
        if self.images is not None:
            step["encoded"] = {name: list(items) for name, items
                               in output.scheduled_encoder_inputs.items()}
            step["freed"] = list(output.free_encoder_mm_hashes)
        if self.num_drafts:
            step["drafts"] = {name: len(drafts) for name, drafts
                              in output.scheduled_spec_decode_tokens.items() if drafts}
        return step

    def admitted(self, output):
        admitted = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        for name, computed in zip(cached.req_ids, cached.num_computed_tokens):
            if name in cached.resumed_req_ids:
                admitted[name] = computed
        return admitted

    def tables(self, name):
        tables = self.scheduler.kv_cache_manager.get_block_ids(name)
        return [list(table) for table in tables] if len(tables) > 1 else list(tables[0])


def record(case):
    return Recorder(case).steps()
