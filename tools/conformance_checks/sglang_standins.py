# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for torch, configuration, metrics and other processes of an SGLang package.

`REAL` lists the modules that are imported from the package.
"""

import copy
import logging
from types import SimpleNamespace

import sglang_tensors as tensors
from standins import StandIns

REAL = (
    "sglang.srt.beam_search.batch_tail", "sglang.srt.dllm.mixin.req", "sglang.srt.environ",
    "sglang.srt.managers.schedule_batch", "sglang.srt.managers.schedule_policy",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.scheduler_components.batch_result_processor",
    "sglang.srt.managers.scheduler_components.new_token_ratio_tracker",
    "sglang.srt.managers.scheduler_components.recv_skipper",
    "sglang.srt.managers.utils", "sglang.srt.mem_cache.allocation",
    "sglang.srt.mem_cache.allocator.base", "sglang.srt.mem_cache.allocator.paged",
    "sglang.srt.mem_cache.allocator.token", "sglang.srt.mem_cache.base_prefix_cache",
    "sglang.srt.mem_cache.cache_init_params", "sglang.srt.mem_cache.common",
    "sglang.srt.mem_cache.evict_policy", "sglang.srt.mem_cache.memory_pool",
    "sglang.srt.mem_cache.prefill_budget", "sglang.srt.mem_cache.radix_cache",
    "sglang.srt.mem_cache.unified_cache", "sglang.srt.mem_cache.unified_radix_cache",
    "sglang.srt.mem_cache.utils", "sglang.srt.model_executor.forward_batch_info",
    "sglang.srt.session.streaming_session")
LIBRARIES = ("torch", "triton", "numpy", "msgspec", "zmq", "psutil", "setproctitle", "transformers",
             "fastapi", "pybase64", "requests", "PIL", "packaging", "IPython", "orjson", "xxhash")


class Field:
    """msgspec.field"""

    def __init__(self, default_factory):
        self.default_factory = default_factory

    def __copy__(self):
        return self.default_factory()


class Struct:
    """msgspec.Struct: a class whose annotations are its fields."""

    def __init_subclass__(cls, **options):
        pass

    def __init__(self, *values, **named):
        fields = [field for base in reversed(type(self).__mro__)
                  for field in vars(base).get("__annotations__", ())]
        named.update(zip(fields, values))
        for field in fields:
            if field in named:
                setattr(self, field, named.pop(field))
            else:  # a default value, or an error
                setattr(self, field, copy.copy(getattr(type(self), field)))
        if named:
            raise TypeError(f"{type(self).__name__} has no fields {list(named)}")


def unchanged(function):
    return function


def decorator(*arguments, **options):
    """A decorator, with or without arguments, that changes nothing."""
    return arguments[0] if arguments and callable(arguments[0]) else unchanged


def no(*arguments, **options):
    return False


def nothing(*arguments, **options):
    return None


class Silent:
    """Takes every call and answers nothing: metrics, logs, streams of outputs."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return nothing


class Idle(Silent):
    """A part that has nothing to do, used as a context too."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def record(self, *arguments, **options):
        return self

    region = record


class Sampling:
    """SamplingBatchInfo: no penalties."""

    penalizer_orchestrator = SimpleNamespace(is_required=False)

    @classmethod
    def from_schedule_batch(cls, batch, vocab_size):
        return cls()

    def copy_for_forward(self):
        return self

    def filter_batch(self, keep, keep_on_device):
        pass

    def merge_batch(self, other):
        pass


class Adapters(Silent):
    """Hooks that change a batch for data parallelism, n-grams or beams: none does here."""

    def maybe_prepare_mlp_sync_batch(self, batch, need_sync=False):
        return batch

    def maybe_convert_decode_to_extend(self, batch):
        return batch

    def prepare_for_forward(self, batch, chunked_req=None):
        return batch

    def pending_member_rows(self, batch):
        return 0


class Metrics(Idle):
    enable_metrics = False
    num_generated_tokens = 0
    forward_ct_decode = 0


class NoLeaks(Silent):
    def _check_all_pools(self, stats):
        return False, []


class TimeStats(Silent):
    """Only the time at which a request joined the queue counts."""

    now = 0

    def __init__(self, **options):
        self.wait_queue_entry_time = 0

    def set_wait_queue_entry_time(self, *time):
        TimeStats.now += 1
        self.wait_queue_entry_time = TimeStats.now


class NoSpeculation:
    """SpeculativeAlgorithm.NONE."""

    is_none = staticmethod(lambda: True)

    def __getattr__(self, name):
        if name.startswith(("is_", "supports_")):
            return no
        raise AttributeError(name)


def align_up(value, size):
    return -(-value // size) * size


def page_shards(allocator):
    return 1


def count_new_pages(seq_lens, page_size, prefix_lens=None, decode=False):
    ends = seq_lens.tolist()
    begins = [end - 1 for end in ends] if decode else prefix_lens.tolist()
    return sum(align_up(end, page_size) - align_up(begin, page_size)
               for begin, end in zip(begins, ends)) // page_size


COMMON = {
    "get_num_new_pages": count_new_pages, "async_d2h": unchanged,
    "ceil_align": align_up, "ceil_div": lambda value, size: -(-value // size),
    "is_pin_memory_available": no, "flatten_arrays_to_pinned_cpu": nothing,
    "get_bool_env_var": no, "get_int_env_var": lambda name, default=0: default,
    "DynamicGradMode": decorator, "support_triton": no, "is_confidential_compute": no,
    "is_gfx95_supported": no, "next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length(),
    **{f"is_{device}": no for device in ("cuda", "hip", "npu", "xpu", "cpu", "hpu", "musa", "mps")}}

SETTINGS = ("schedule", "memory", "disagg", "exec", "parallel", "spec", "serving", "observability",
            "lora", "mm", "device", "model", "platform")


class Settings:
    """The namespaces of runtime_context; a case sets what it needs."""

    def __init__(self):
        self.spaces = {}

    def accessor(self, name):
        return lambda: self.spaces[name]


settings = Settings()
MIXINS = {
    "sglang.srt.disaggregation.decode": "SchedulerDisaggregationDecodeMixin",
    "sglang.srt.disaggregation.prefill": "SchedulerDisaggregationPrefillMixin",
    "sglang.srt.multiplex.multiplexing_mixin": "SchedulerMultiplexMixin",
    "sglang.srt.managers.scheduler_pp_mixin": "SchedulerPPMixin",
    "sglang.srt.dllm.mixin.scheduler": "SchedulerDllmMixin",
    "sglang.srt.disaggregation.decode_schedule_batch_mixin":
        "ScheduleBatchDisaggregationDecodeMixin"}
VALUES = {
    "torch": {**tensors.VALUES, "compile": decorator, "no_grad": decorator,
              "profiler": SimpleNamespace(record_function=decorator)},
    "msgspec": {"Struct": Struct, "field": Field},
    "numpy": {"float64": float},
    "triton": {"jit": decorator},
    "sglang.srt.utils": COMMON,
    "sglang.srt.utils.common": COMMON,
    "sglang.srt.utils.rank_consensus_checker": {"rank_consensus": decorator},
    "sglang.srt.observability.scheduler_stage_metrics": {
        "scheduler_stage_method": lambda stage: unchanged},
    "sglang.srt.runtime_context": {
        **{f"get_{name}": settings.accessor(name) for name in SETTINGS},
        "attention_backends": lambda: ("torch_native", "torch_native"),
        "get_context": lambda: SimpleNamespace(is_config_namespace_published=no)},
    "sglang.srt.utils.torch_memory_saver_adapter": {
        "TorchMemorySaverAdapter": SimpleNamespace(create=lambda enable: Idle())},
    "sglang.srt.sampling.sampling_batch_info": {"SamplingBatchInfo": Sampling},
    "sglang.srt.observability.req_time_stats": {"SchedulerReqTimeStats": TimeStats},
    "sglang.srt.mem_cache.allocator.page_interleave": {"page_interleave_shard_size": page_shards},
    "sglang.srt.mem_cache.allocator.swa": {"is_swa_req_ring": no},
    "sglang.srt.platforms": {"current_platform": SimpleNamespace(
        capabilities=SimpleNamespace(supports_triton=False), device_type="cpu")},
    "sglang.srt.hardware_backend.mlx.runtime": {"use_mlx": no},
    **{module: {name: type(name, (), {})} for module, name in MIXINS.items()}}


def install(folder):
    StandIns(folder, "sglang", REAL, LIBRARIES, VALUES).install()
    logging.disable(logging.CRITICAL)  # retractions are warned of
