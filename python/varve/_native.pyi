"""Types of the native module. Everything here is imported from `varve`."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

__version__: str

# NumPy arrays, torch tensors: the buffer protocol or DLPack.
_Tensor = Any

class Error(RuntimeError):
    code: str

class RungDict(TypedDict):
    rung: str
    state: str
    pages: int
    bytes: int

class StatsDict(TypedDict):
    bytes_used: int
    bytes_held: int
    bytes_tables: int
    bytes_scratch: int
    bytes_f16: int
    bytes_f16_seen: int
    bytes_codebooks: int
    bytes_compressors: int
    pages: int
    sequences: int
    pages_sealed: int
    pages_demoted: int
    pages_dropped: int
    rungs: list[RungDict]

class StageDict(TypedDict):
    state: str
    age: str
    k: str
    v: str
    pages: int
    tokens: int
    layer_bytes: int
    layer_payload: int

class RangeDict(TypedDict):
    first_layer: int
    last_layer: int
    stages: list[StageDict]
    bytes: int
    payload: int
    policy_bytes: int
    has_budget: bool

class FallbackDict(TypedDict):
    first_layer: int
    last_layer: int
    part: str
    asked: str
    used: str
    reason: str

class CostDict(TypedDict):
    bytes: int
    payload: int
    bytes_f16: int
    idle_bytes: int
    page_tokens: int
    codebook_bytes: int
    compressor_bytes: int
    ranges: list[RangeDict]
    fallbacks: list[FallbackDict]
    notes: list[str]

class FileSequenceDict(TypedDict):
    next_position: int
    num_tokens: int
    live_rows: int
    tokens_seen: int

class FileInfoDict(TypedDict):
    version: int
    shape: Shape
    plan: Plan
    model_fingerprint: int
    model_name: str
    sequences: list[FileSequenceDict]
    pages: int
    pages_shared: int
    rungs: list[RungDict]
    file_bytes: int
    page_bytes: int
    bytes_f16: int
    bytes_f16_seen: int

class SequenceDict(TypedDict):
    next_position: int
    live_rows: int
    pages: list[PageSpan]

class Shape:
    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        key_dim: int,
        value_dim: int = 0,
        group_size: int = 1,
        page_tokens: int = 0,
    ) -> None: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def key_dim(self) -> int: ...
    @property
    def value_dim(self) -> int: ...
    @property
    def group_size(self) -> int: ...
    @property
    def page_tokens(self) -> int: ...

class Plan:
    def __init__(self, text: str | Plan = "") -> None: ...
    @staticmethod
    def from_json(json: str) -> Plan: ...
    def to_json(self) -> str: ...
    def check_supported(self) -> None: ...
    @property
    def page_tokens(self) -> int: ...
    def estimate(
        self,
        shape: Shape,
        num_tokens: int,
        codebook: Codebook | None = None,
        compressor: Compressor | None = None,
        model_fingerprint: int = 0,
        assumed: bool = False,
    ) -> CostDict: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class CodebookGrain:
    MODEL: CodebookGrain
    LAYER: CodebookGrain
    HEAD: CodebookGrain

class CodebookTable:
    def __init__(
        self,
        *,
        part: str,
        dim: int,
        num_subspaces: int,
        bits: int,
        grain: CodebookGrain,
        scales: bytes,
        centroids: bytes,
        rotation: bytes = b"",
    ) -> None: ...
    @property
    def part(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def num_subspaces(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def grain(self) -> CodebookGrain: ...
    @property
    def num_bytes(self) -> int: ...

class Codebook:
    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        tables: Sequence[CodebookTable],
        model_fingerprint: int = 0,
        model_name: str = "",
        trained_on: str = "",
    ) -> None: ...
    @staticmethod
    def load(path: str) -> Codebook: ...
    @staticmethod
    def parse(bytes: bytes | bytearray | memoryview) -> Codebook: ...
    def save(self, path: str) -> None: ...
    def to_bytes(self) -> bytes: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def model_fingerprint(self) -> int: ...
    @property
    def model_name(self) -> str: ...
    @property
    def trained_on(self) -> str: ...
    @property
    def tables(self) -> list[CodebookTable]: ...
    @property
    def hash(self) -> int: ...

class Compressor:
    @staticmethod
    def load(path: str) -> Compressor: ...
    @property
    def factor(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def hash(self) -> int: ...

class PageSpan:
    @property
    def first_position(self) -> int: ...
    @property
    def num_positions(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_live_rows(self) -> int: ...

class AttentionEvent:
    @property
    def layer(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def first_position(self) -> int: ...
    @property
    def pages(self) -> list[PageSpan]: ...
    @property
    def mass(self) -> Any: ...

class PageDecision:
    @property
    def page(self) -> PageSpan: ...
    @property
    def score(self) -> float: ...
    @property
    def fate(self) -> str: ...
    @property
    def rung(self) -> str: ...

class RetentionEvent:
    @property
    def sequence(self) -> int: ...
    @property
    def layer(self) -> int: ...
    @property
    def next_position(self) -> int: ...
    @property
    def pages(self) -> list[PageDecision]: ...
    @property
    def target_bytes(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def floors_bind(self) -> bool: ...

class PagePool:
    def __init__(self, max_bytes: int = 0) -> None: ...
    @property
    def bytes_held(self) -> int: ...

class Step:
    def append(self, layer: int, sequence: int, keys: _Tensor, values: _Tensor) -> None: ...
    def append_batch(
        self,
        layer: int,
        sequences: Sequence[int],
        keys: _Tensor,
        values: _Tensor,
        starts: Sequence[int],
        counts: Sequence[int],
    ) -> None: ...
    def attend(
        self,
        layer: int,
        sequence: int,
        queries: _Tensor,
        out: _Tensor | None = None,
        *,
        scale: float = 0.0,
        soft_cap: float = 0.0,
        window: int = 0,
        causal: bool = True,
    ) -> _Tensor: ...
    def attend_batch(
        self,
        layer: int,
        sequences: Sequence[int],
        queries: _Tensor,
        out: _Tensor,
        starts: Sequence[int],
        counts: Sequence[int],
        *,
        scale: float = 0.0,
        soft_cap: float = 0.0,
        window: int = 0,
        causal: bool = True,
    ) -> None: ...
    def append_attend_batch(
        self,
        layer: int,
        sequences: Sequence[int],
        keys: _Tensor,
        values: _Tensor,
        queries: _Tensor,
        out: _Tensor,
        starts: Sequence[int],
        counts: Sequence[int],
        scale: float = 0.0,
        soft_cap: float = 0.0,
        window: int = 0,
    ) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    @property
    def is_open(self) -> bool: ...
    def __enter__(self) -> Step: ...
    def __exit__(self, type: Any, value: Any, traceback: Any) -> None: ...

class Cache:
    def __init__(
        self,
        shape: Shape,
        plan: Plan | str = "",
        *,
        codebook: Codebook | None = None,
        compressor: Compressor | None = None,
        model_fingerprint: int = 0,
        max_bytes: int = 0,
        num_threads: int = 0,
        pool: PagePool | None = None,
        device: Any = "cpu",
        device_chunk_bytes: int = ...,
        stream: int = 0,
        on_attention: Callable[[AttentionEvent], object] | None = None,
        on_retention: Callable[[RetentionEvent], object] | None = None,
        on_log: Callable[[str], object] | None = None,
        time_stages: bool = False,
    ) -> None: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def device(self) -> str: ...
    def create_sequence(self) -> int: ...
    def fork(self, source: int) -> int: ...
    def free(self, sequence: int) -> None: ...
    def truncate(self, sequence: int, position: int) -> None: ...
    def remove_range(self, sequence: int, begin: int, end: int) -> None: ...
    def keep_only(self, sequence: int, begin: int, end: int) -> None: ...
    def slide_window(self, sequence: int, num_tokens: int, sink_tokens: int = 0) -> None: ...
    def rest(self, sequence: int, begin: int, end: int) -> int: ...
    def next_position(self, sequence: int) -> int: ...
    def tokens_seen(self, sequence: int) -> int: ...
    def find_cut(self, sequence: int, num_tokens: int) -> tuple[int, int]: ...
    def describe(self, sequence: int, layer: int) -> SequenceDict: ...
    def max_step_tokens(self, sequence: int) -> int: ...
    def step(self, sequence: int | Sequence[tuple[int, int]], num_tokens: int = 1) -> Step: ...
    def attend(
        self,
        layer: int,
        sequence: int,
        queries: _Tensor,
        out: _Tensor | None = None,
        *,
        scale: float = 0.0,
        soft_cap: float = 0.0,
        window: int = 0,
        causal: bool = True,
    ) -> _Tensor: ...
    def begin_prompt(self, sequence: int) -> None: ...
    def end_prompt(self, sequence: int, fold: bool = True) -> None: ...
    def read_rows(self, sequence: int, layer: int, part: str, begin: int = 0, end: int | None = None) -> Any: ...
    def read_batch(self, layer: int, part: str, sequences: Sequence[int], out: _Tensor) -> None: ...
    def wait_for_packing(self) -> None: ...
    def export_pages(
        self, sequence: int, begin: int, end: int, settled: bool = False, resting: bool = False
    ) -> bytes: ...
    def import_pages(self, sequence: int, image: bytes | bytearray | memoryview) -> None: ...
    def stats(self) -> StatsDict: ...
    def properties(self) -> dict[str, int | float | str]: ...
    def property(self, name: str) -> int | float | str: ...
    def save(
        self,
        path: str,
        sequences: dict[int, Sequence[int]] | None = None,
        *,
        model_fingerprint: int = 0,
        model_name: str = "",
    ) -> None: ...
    def load(self, path: str, *, model_fingerprint: int = 0) -> list[tuple[int, list[int]]]: ...

def backends() -> list[str]: ...
def rung_bytes_per_row(rung: str, dim: int, page_tokens: int = 64) -> float: ...
def cache_file_info(path: str) -> FileInfoDict: ...
def verify_cache_file(path: str) -> None: ...
