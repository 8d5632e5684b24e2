"""The schema of every command's config: types, defaults and units. Values live in configs/.

Hydra merges the YAML files into these dataclasses, so an unknown key or a wrong type fails before
anything runs. Rules across fields are in `check.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class ModelConfig:
    """The base model (group `model`)."""

    path: str = MISSING
    """Folder or hub name of the base model, in transformers format."""
    tokenizer: str = "${model.path}"
    """Folder or hub name of its tokenizer."""
    init: str = "pretrained"
    """`pretrained` loads weights; `random` builds the model of `path`/config.json anew."""


@dataclass
class SourceConfig:
    """One source of documents."""

    path: str = MISSING
    """A file, a folder (searched recursively) or a glob, here or at an address of fsspec (`s3://`, `gs://`,
    `hf://`, `https://`). Names that begin with a dot are left out. With `format: dataset`, a name on the hub."""
    format: str = "auto"
    """`jsonl`, `json`, `csv`, `text` (a file is a document), `parquet`, `arrow`, `mds`, `megatron`; `dataset`
    streams a dataset of the hub, or a local folder of one; `auto`: by file name."""
    pattern: str = "*"
    """In a folder, the file names to read, as a glob."""
    text_field: str = "text"
    """The field of a record that holds the text."""
    where: dict[str, str] = field(default_factory=dict)
    """Keep only records whose fields equal these values (numbers and true, false as JSON writes them)."""
    token_field: str | None = None
    """The field that holds token ids, of records that are tokenized already; instead of text_field."""
    mask_field: str | None = None
    """The field that says which of those tokens are trained on: a list of true and false, or of 1 and 0."""
    boundary_field: str | None = None
    """The field that says where the documents in those tokens lie: their ends, pairs of start and end, or
    objects with `end`. Null: a record is one document."""
    group_by: list[str] = field(default_factory=list)
    """Join the records of a file that are equal in these fields into one document."""
    group_separator: str = "\n\n"
    """Text between them."""
    split: str | None = None
    """Which split of a saved dataset, or one of the hub, to read. Null: the only one."""
    subset: str | None = None
    """Which configuration of a dataset of the hub."""
    revision: str | None = None
    """Which revision of a dataset of the hub. Null: the newest."""
    strict: bool = False
    """Stop at the first bad record, instead of skipping and counting it."""
    max_bad_fraction: float = 0.05
    """Stop where more of the records are bad. The first hundred bad ones never stop anything."""
    storage_options: dict[str, Any] = field(default_factory=dict)
    """What fsspec needs to open the path, such as `{anon: true}`. Keys and passwords belong into its own
    environment variables."""
    min_document_tokens: int | None = None
    """Documents of this source with fewer tokens are not packed. Null: `data.min_document_tokens`."""
    upsample_from_tokens: int = 0
    """With keep_short_fraction: documents from so many tokens on are all kept for training. 0: no upsampling."""
    keep_short_fraction: float = 1.0
    """Share of the shorter documents that are kept for training, chosen at random."""


@dataclass
class DataConfig:
    """A packed data set (group `data`): what `pack` makes, and what `train` and `evaluate` read."""

    sources: dict[str, SourceConfig] = field(default_factory=dict)
    """Sources by name; needed by `pack` alone."""
    tokenizer: str = MISSING
    """Folder or hub name of the tokenizer to pack with."""
    store: str = MISSING
    """Folder of the token stores, one sub-folder a source; shared by all window lengths."""
    index: str = MISSING
    """Folder of the pack index, for one window length."""
    window_tokens: int = MISSING
    """Rows of a window, anchors and end-of-document tokens included."""
    end_of_document: str = "eos"
    """`eos` ends every document's last piece with the EOS token; `none` does not."""
    held_out_fraction: float = 0.01
    """Share of documents, chosen by a hash of their text, kept for the `held_out` split."""
    seed: int = 0
    """Seed of everything that `pack` decides by chance: the order of windows, documents of a mixture."""
    algorithm: str = "best_fit_decreasing"
    """`best_fit_decreasing`, `first_fit`, `concat_and_chop` (cuts documents that would fit) or
    `one_document` a window."""
    long_documents: str = "split"
    """A document longer than a window: `split` over windows, `head` (its first window), or `drop`."""
    min_document_tokens: int = 1
    """Documents with fewer tokens are not packed; a source can say otherwise."""
    last_windows: str = "keep"
    """`drop` leaves out the emptiest window of each split (of concat_and_chop the last) unless it is full."""
    mixture: dict[str, float] = field(default_factory=dict)
    """Weight of each source in the training tokens, any positive numbers. Empty: every source as it is."""
    total_tokens: int | None = None
    """Training tokens to pack. Null: as many as the mixture allows without repeating a document."""
    exhausted: str = "error"
    """A source that has fewer tokens than the mixture wants: `error`, or `repeat` its documents."""
    interleave_chunk_tokens: int = 0
    """Cut the documents of a window into chunks of so many tokens and mix these; 0: documents whole."""
    domain_tags: dict[str, str] = field(default_factory=dict)
    """By source, the token (its text) that follows the anchor in each of the source's pieces."""


@dataclass
class OrderConfig:
    """The order in which training takes windows."""

    balance_steps: int = 16
    """Steps of a block whose windows are sorted by attention work and cut into steps anew, so that the
    data-parallel ranks of a step work alike; 0: the plain permutation. The price: windows of one
    step are of like document lengths, though every block keeps the mixture."""


@dataclass
class AttentionConfig:
    """The attention recipe (group `attention`, one file an arm)."""

    arm: str = MISSING
    """`full`, `document`, `document_reset` or `anchor`."""
    kernel: str = "auto"
    """`auto`; `flash`, `flash3`, `flash4` or `flex` on a GPU; `cpu`; or `math`, the slow float64 oracle."""


@dataclass
class RopeConfig:
    """Rotary positions (group `rope`)."""

    base: float | None = None
    """Theta. Null keeps the model's."""
    compute: str = "float32"
    """`float32`: angles and rotation in float32, q and k rounded once. `bf16`: as transformers."""


@dataclass
class CostsConfig:
    """What planning goes by: speeds of one rank, of which only the ratio matters, and shapes.

    Shapes that are null are the model's (in `simulate`: Llama-3-8B's in BF16).
    """

    flops_per_second: float = 500e12
    """What the attention kernel reaches on one rank's device, not the data sheet's figure."""
    bytes_per_second: float = 300e9
    """What one rank receives from the others while all of them receive."""
    query_heads: int | None = None
    key_heads: int | None = None
    head_dim: int | None = None
    bytes_per_element: int | None = None
    """Of keys and values on their way: 2 in bf16, 4 in float32."""


@dataclass
class ContextParallelConfig:
    """Ranks that share a window (group `context_parallel`)."""

    size: int = 1
    """Ranks a window."""
    exchange: str = "gather"
    """How keys and values move between them."""
    policy: str = "auto"
    """Which rank holds which rows: `contiguous`, `chunks`, `hybrid`, `zigzag`, or `auto` for the cheapest."""
    max_gathered_rows: int | None = None
    """The most key and value rows that a rank may hold of other ranks at one time; plans beyond are
    not taken, and a window that has no other is refused. Null: no cap."""
    costs: CostsConfig = field(default_factory=CostsConfig)
    head_groups: int | None = None
    """Groups of key heads computed one after the other, each while the next one's rows travel; must
    divide the key heads. Null: 1 on a CPU and for `ring`, else up to 4. Same result for any number."""
    check_plans: bool = False
    """Compare the ranks' context plans before every step: for debugging."""


@dataclass
class DeepSpeedConfig:
    """ZeRO and offload (group `deepspeed`)."""

    zero_stage: int = 1
    """0 to 3. BF16 needs at least 1."""
    offload_optimizer: str = "none"
    """`none` or `cpu` (GPU training only)."""
    offload_parameters: str = "none"
    """`none` or `cpu`; needs zero_stage=3."""


@dataclass
class OptimConfig:
    """AdamW and its schedule (group `optim`)."""

    lr: float = MISSING
    """Peak learning rate."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    eps: float = 1e-8
    weight_decay: float = 0.1
    """Decoupled; applied to matrices, not to norms and biases."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm over all parameters; 0 never clips."""
    schedule: str = "constant"
    """`constant`, `linear` or `cosine`, after warm-up; the last two would reach 0 one step after the last."""
    warmup_steps: int = 0


@dataclass
class LoggerConfig:
    """Trackers beside metrics.jsonl (group `logger`)."""

    name: str = "none"
    """`none` or `wandb` (offline unless logged in)."""
    project: str = "anchorcontext"


@dataclass
class TrainingConfig:
    """How long and how to train."""

    steps: int = MISSING
    """Optimizer steps of the whole run, resumed parts included."""
    windows_per_step: int = MISSING
    """Global batch, in windows."""
    micro_batch_windows: int = 1
    """Windows a data-parallel rank computes at once; they stand behind one another in one row."""
    precision: str = "bf16"
    """`bf16` (float32 master weights, accumulation and reduction) or `float32`."""
    gradient_checkpointing: bool = True
    """Recompute each layer's activations in the backward pass instead of keeping them."""
    keep_attention: bool = False
    """Keep each layer's attention output and logsumexp, so that recomputing a layer repeats no
    attention and no exchange; needs gradient_checkpointing. Costs as much memory as the layer inputs
    that are kept anyway, for models whose heads together are as wide as the model."""
    loss_chunk_rows: int = 1024
    """Rows whose logits exist at one time."""
    seed: int = 0
    """Seed of the data order and of random weights."""
    save_every_steps: int = 0
    """Steps between checkpoints; 0 saves only the last."""
    keep_checkpoints: int = 2
    """Checkpoints kept, the newest; older ones go once a newer one is committed."""
    log_every_steps: int = 1


@dataclass
class RunConfig:
    """Where a run lives (the same on every rank, never from a clock)."""

    name: str = MISSING
    folder: str = "runs/${run.name}"
    resume: str = "auto"
    """`auto` goes on from the newest checkpoint of the folder, or starts where there is none;
    `never` refuses a folder that holds a run; else the path of a checkpoint to go on from."""


@dataclass
class TrainConfig:
    """Config of `anchorcontext train`."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    order: OrderConfig = field(default_factory=OrderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    rope: RopeConfig = field(default_factory=RopeConfig)
    context_parallel: ContextParallelConfig = field(default_factory=ContextParallelConfig)
    deepspeed: DeepSpeedConfig = field(default_factory=DeepSpeedConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    run: RunConfig = field(default_factory=RunConfig)


@dataclass
class BalanceConfig:
    """The ranks whose balance the report of an index tells, and what a row costs them."""

    windows_per_step: int = 8
    """Windows of a step."""
    data_ranks: int | None = None
    """Data-parallel ranks that share them. Null: one a window."""
    row_pairs: int = 25_000
    """What everything but attention costs a row, in query-key pairs: about six times a Llama's width,
    which is 4,096 for 7B and 8B."""
    context_ranks: list[int] = field(default_factory=lambda: [2, 4, 8])
    """Numbers of ranks that share a window."""
    sample_windows: int = 32
    """Windows, spread over the split, that are planned for them."""


@dataclass
class PackConfig:
    """Config of `anchorcontext pack`."""

    data: DataConfig = field(default_factory=DataConfig)
    balance: BalanceConfig = field(default_factory=BalanceConfig)
    workers: int = 0
    """Tokenizing processes; 0 takes one a core."""
    limit: str | None = None
    """Pack a sample of every source, into folders of its own: a share (`1%`), bytes in storage (`500MB`) or
    records (`10000_records`). Null: all."""
    page: bool = True
    """Draw the index's report, a page with plots, beside it (`report.html`)."""
    overwrite: bool = False
    """Replace an index that was packed with other options, and token stores made from other files or options."""


@dataclass
class InspectConfig:
    """Config of `anchorcontext inspect`."""

    data: DataConfig = field(default_factory=DataConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    split: str = "train"
    """`train` or `held_out`."""
    window: int = 0
    """Number of the window in the index."""
    boundary_tokens: int = 8
    """Tokens shown on each side of a boundary."""
    max_pieces: int = 20
    """Pieces shown in full; the rest are counted."""
    picture: str | None = None
    """File for the picture of the mask (.png, .svg or .pdf); null draws none."""
    browse: bool = False
    """Walk through the split in the terminal, boundary by boundary, from `window` on."""
    verify: bool = False
    """Only read the index and its token stores (without data.index: those in data.store) to the last byte,
    and say what is wrong."""
    statistics: str | None = None
    """File for the page on the whole index, with plots (.html); null draws none."""
    balance: BalanceConfig = field(default_factory=BalanceConfig)


@dataclass
class ExportDataConfig:
    """Config of `anchorcontext export_data`."""

    data: DataConfig = field(default_factory=DataConfig)
    splits: list[str] = field(default_factory=list)
    """`train`, `held_out` or both; empty: those that have windows."""
    windows: int = 0
    """Windows exported of each split, the first; 0 takes all."""
    file_tokens: int = 33_554_432
    """Rows of all windows in a file, at most (but one window at least); so many ids are held in memory."""
    overwrite: bool = False
    """Replace an earlier export in the folder."""
    output: str = MISSING
    """Folder of the dataset."""


@dataclass
class EvaluateConfig:
    """Config of `anchorcontext evaluate`."""

    models: dict[str, str] = field(default_factory=dict)
    """Checkpoints in Hugging Face format, by the name the results carry."""
    data: DataConfig = field(default_factory=DataConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    context_parallel: ContextParallelConfig = field(default_factory=ContextParallelConfig)
    split: str = "held_out"
    windows: int = 16
    """Windows evaluated, the first of the split; 0 takes all."""
    buckets: list[int] = field(default_factory=list)
    """Upper edges of the position buckets, in rows; empty: powers of two up to the window."""
    precision: str = "float32"
    """`float32` or `bf16`."""
    loss_chunk_rows: int = 1024
    output: str = MISSING
    """Folder for the JSONL, the CSV and the plot."""


@dataclass
class SimulateConfig:
    """Config of `anchorcontext simulate`."""

    data: DataConfig = field(default_factory=DataConfig)
    """`data.index`, if given, is simulated as the mix `index`."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    context_parallel: ContextParallelConfig = field(default_factory=ContextParallelConfig)
    """Of it, `costs`, `head_groups` and `max_gathered_rows`; the rest is what is simulated."""
    split: str = "train"
    """Of `data.index`."""
    mixes: list[str] = field(default_factory=list)
    """Of `web`, `long`, `8K` and `one_document`."""
    window_tokens: int = 131072
    """Rows of a window of these mixes."""
    windows: int = 10
    """Windows of each mix, drawn by their number; or the first of `data.index`."""
    ranks: list[int] = field(default_factory=list)
    """Ranks that share a window, each simulated."""
    policies: list[str] = field(default_factory=list)
    exchanges: list[str] = field(default_factory=list)
    output: str = MISSING
    """Folder for the CSV, the JSON and the plot."""


@dataclass
class ReportConfig:
    """Config of `anchorcontext report`."""

    title: str = "AnchorContext"
    runs: dict[str, str] = field(default_factory=dict)
    """Run folders by name: their loss curves."""
    evaluations: dict[str, str] = field(default_factory=dict)
    """Output folders of `evaluate` by name: loss by position."""
    indexes: dict[str, str] = field(default_factory=dict)
    """Pack indexes by name: their packing figures."""
    pictures: dict[str, str] = field(default_factory=dict)
    """Further images by caption, such as `inspect`'s mask."""
    output: str = MISSING
    """Folder for index.html."""


SCHEMAS: dict[str, Any] = {
    "pack": PackConfig,
    "inspect": InspectConfig,
    "export_data": ExportDataConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "simulate": SimulateConfig,
    "report": ReportConfig,
}
