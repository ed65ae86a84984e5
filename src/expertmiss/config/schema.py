"""Every option of the project, once, with its type, default and one sentence; those of the experiments stand in ``experiments.py``.

``config/README.md`` and ``config/schema.json`` are generated from these files (``make config-docs``); a test fails when they drift.
"""

from __future__ import annotations

from dataclasses import dataclass

from expertmiss.config.experiments import BConfig, E1Config, E2Config, E4Config, E5Config
from expertmiss.config.option import opt

MISS_RULES = (
    "fetch_all", "substitute_all", "first_choice", "threshold", "cumulative", "score_margin", "cache_prior", "max_rank", "drop_cold",
)  # fmt: skip


@dataclass
class MissRuleConfig:
    """Which misses are waited for; only the chosen rule's own parameters may be set."""

    name: str = opt("fetch_all", "Miss rule.", MISS_RULES)
    tau: float | None = opt(None, "threshold: gate weight from which a miss is fetched.")
    T1: float | None = opt(None, "cumulative: fetched while the weight of better-ranked calls is at most T1.")
    T2: float | None = opt(None, "cumulative: dropped once the weight of better-ranked calls is above T2.")
    alpha: float | None = opt(None, "score_margin: relative margin around the (K+1)-th score.")
    lam: float | None = opt(None, "cache_prior: lambda, the bonus of residents in units of the mean logit range.")
    J: int | None = opt(None, "cache_prior, max_rank: number of first ranks that are always executed.")
    M: int | None = opt(None, "max_rank: ranks below M may replace missing experts.")
    F: float | None = opt(None, "drop_cold: misses lighter than F/K are dropped.")


@dataclass
class ChooserConfig:
    """Which resident expert stands in."""

    name: str = opt("router_rank", "Chooser of the substitute.", ("router_rank", "random", "matched_random"))
    margin: float | None = opt(None, "matched_random: largest logit distance from the best candidate.")
    seed: int | None = opt(None, "random, matched_random: seed of the draws.")


@dataclass
class WeightsConfig:
    """Which weights the executed experts carry."""

    name: str = opt("own", "Weight convention.", ("own", "inherit", "scaled"))
    a: float | None = opt(None, "scaled: factor on the probability of substitutes.")


@dataclass
class EvictionConfig:
    """Which resident leaves."""

    name: str = opt("lru", "Eviction.", ("lru", "fifo", "lfu", "lfru", "opt"))
    variant: str | None = opt(None, "lfu: how requests are counted.", ("lifetime", "in_cache", "half_life"))
    half_life: int | None = opt(None, "lfu half_life: tokens after which a count weighs half (128 when left out).")


@dataclass
class AdmissionConfig:
    """Which substituted experts are loaded in the background."""

    name: str = opt("fetched_only", "Admission.", ("fetched_only", "every_miss", "background"))
    beta: float | None = opt(None, "background: accumulated substituted mass that triggers a load.")
    delay: int | None = opt(None, "background: tokens until a load lands.")


@dataclass
class PolicyConfig:
    """A policy, as in the definitions: what happens at a miss, who stands in, who leaves, who is loaded."""

    name: str = opt("fetch_all", "Name in tables, figures and results.")
    miss_rule: MissRuleConfig = opt(MissRuleConfig, "Which misses are waited for.")
    chooser: ChooserConfig = opt(ChooserConfig, "Which resident expert stands in.")
    weights: WeightsConfig = opt(WeightsConfig, "Which weights the executed experts carry.")
    eviction: EvictionConfig = opt(EvictionConfig, "Which resident leaves.")
    admission: AdmissionConfig = opt(AdmissionConfig, "Which substituted experts are loaded in the background.")
    fallback: str = opt("fetch", "What a substitution without a candidate becomes.", ("fetch", "drop"))
    update: str = opt("requests", "What updates recency and frequency.", ("requests", "executed"))
    scope: str = opt("layer", "One pool a layer, or one for all layers.", ("layer", "global"))
    state: str = opt("reset", "Whether a new document starts from the initial state.", ("reset", "carry"))
    prompt: str = opt("ignore", "What prompt tokens do to the state.", ("ignore",))
    upload_cap: int | None = opt(None, "Largest number of landings per pool and token; none when left out.")
    initial: str = opt("warm", "Initial residents.", ("warm", "cold", "random"))


@dataclass
class ModelConfig:
    """The model whose routers are recorded."""

    name: str = opt("builtin", "Name in paths, tables and results.")
    path: str = opt("models/builtin", "Folder or hub name that transformers loads.")
    revision: str | None = opt(None, "Hub revision; none for a folder.")
    dtype: str = opt("float32", "Type the model runs in.", ("float32", "bfloat16", "float64"))
    device: str = opt("cpu", "Torch device.")
    substrate: str = opt("builtin_trained", "Label: what kind of model this is.", ("real_model", "builtin_trained", "random_weights"))
    title: str = opt("a small model trained by this project", "How prose names the model.")


@dataclass
class HubDataset:
    """One data set of a hub corpus."""

    domain: str = opt("text", "Domain its documents belong to.")
    path: str = opt("", "Name on the hub.")
    configuration: str | None = opt(None, "Its configuration.")
    revision: str | None = opt(None, "Its revision.")
    split: str = opt("test", "Its split.")
    fields: list[str] = opt(lambda: ["text"], "Fields whose text is joined into a document.")


@dataclass
class CorpusConfig:
    """The text that is evaluated: cut from pinned wheels and generated (builtin), your own (local), or from a hub (hub)."""

    name: str = opt("builtin", "Name in paths, tables and results.")
    kind: str = opt("builtin", "Where the text comes from.", ("builtin", "local", "hub"))
    splits: list[str] = opt(list, "builtin, hub: splits to build.")
    domains: list[str] = opt(list, "builtin: domains to build.")
    packages: str = opt("config/corpus/packages", "builtin: folder of the hash-pinned package lists.")
    cache: str = opt(".cache/wheels", "builtin: folder that downloaded wheels are kept in.")
    folder: str = opt("", "local: folder of .txt and .jsonl files; its sub-folders are the domains.")
    hub_datasets: list[HubDataset] = opt(list, "hub: data sets.")
    seed: int = opt(0, "Seed of generators and samples.", low=0, high=2**63 - 1)
    characters: int = opt(4000, "Characters of a document before it is cut to equal length in tokens.", low=200)
    documents_per_source: int = opt(2, "builtin: most documents of one package or template.", low=1)
    documents_per_domain: int = opt(48, "Most documents of one domain and split.", low=1)
    near_duplicate_threshold: float = opt(
        0.3, "Share of common shingles from which a document counts as a near-duplicate and is left out.", low=0.01, high=1
    )
    problems_per_template: int = opt(4, "builtin: scored problems generated from each template.", low=1)
    scored_steps: list[int] = opt(lambda: [1, 3], "builtin: fewest and most steps of arithmetic in a scored word problem.", low=1)
    scored_largest: list[int] = opt(lambda: [1, 99], "builtin: range of the largest number in a scored word problem and its steps.", low=1)
    scored_parts: list[int] = opt(lambda: [0, 3], "builtin: fewest and most conditions and changes in a scored function.", low=0, high=3)
    tokens: int = opt(512, "Tokens of every document; shorter ones are left out and counted.", low=32, high=1_000_000)
    shift_split: str = opt("exploratory", "Topic-shift streams: split whose documents they are cut from.")
    shift_streams: int = opt(60, "Topic-shift streams: how many.", low=1)
    shift_piece_tokens: int = opt(192, "Topic-shift streams: tokens between two document changes.", low=32)
    shift_topics: int = opt(2, "Topic-shift streams: topics in one stream.", low=2)
    train_characters_per_source: int = opt(2_000_000, "Training: most characters of one package.", low=1)
    train_characters_generated: int = opt(14_000_000, "Training: characters of each generated domain.", low=1)
    tokenizer_characters: int = opt(3_000_000, "Training: characters of each domain that the tokenizer is trained on.", low=1)
    vocab: int = opt(4096, "Training: size of the tokenizer's vocabulary.", low=300, high=65_536)


@dataclass
class HostTimingConfig:
    """What the time model knows of a machine with one model on it; calibrate_host measures it."""

    compute_s: float | None = opt(None, "Seconds of computing of one token in one layer, everything resident.", low=0)
    policy_s: float | None = opt(None, "Seconds of the policy core, one token in one layer.", low=0)
    read_s: float | None = opt(None, "Seconds of one read of the slow tier apart from its bytes.", low=0)
    read_bytes_per_s: float | None = opt(None, "Bytes a second of one read.", low=1)
    busy_read_s: float | None = opt(None, "As read_s, while background reads are under way.", low=0)
    busy_read_bytes_per_s: float | None = opt(None, "As read_bytes_per_s, while background reads are under way.", low=1)
    device_bytes_per_s: float | None = opt(None, "Bytes a second of all reads together.", low=1)
    io_threads: int | None = opt(None, "Reads under way at once.", low=1)
    host_compute_bytes_per_s: float | None = opt(None, "Bytes of weights a second that the processor multiplies.", low=1)
    expert_bytes: int | None = opt(None, "Bytes of one expert.", low=1)
    expert_reads: int | None = opt(None, "Reads of one expert.", low=1)
    fetch_s: list[float] = opt(list, "Seconds that a layer with 1, 2, ... top-K misses adds to a token; empty: not measured.", low=0)
    landing_layer_s: float = opt(0.0, "Seconds that admissions add to a token for each layer with some.", low=0)
    landing_s: float = opt(0.0, "The same for each expert.", low=0)
    background_s: float = opt(0.0, "Seconds of an expert when background reads never stop.", low=0)


@dataclass
class HostConfig:
    """The machine that results are labelled with."""

    name: str = opt("this_host", "Label of the machine.")
    assumed: bool = opt(False, "Whether nobody measured it: for predictions only.")
    timing: HostTimingConfig = opt(HostTimingConfig, "Its times with one model, for predictions (expertmiss predict).")


@dataclass
class CardConfig:
    """Stage describe_model."""

    documents: int = opt(64, "Most documents read of each of the splits calibration and pilot.", low=1)
    problems: int = opt(400, "Most pilot problems of each task that are solved.", low=1)
    batch: int = opt(8, "Documents in one forward pass.", low=1)
    threads: int = opt(1, "Threads of a forward pass.", low=1, high=1024)


@dataclass
class TaskConfig:
    """A task of the generation test: one file of config/task each. A task whose problems, prompt or scoring change gets another version."""

    name: str = opt("word_problems", "Which task.", ("word_problems", "functions", "gsm8k", "humaneval"))
    version: int = opt(1, "Version, part of every label.", low=1)
    kind: str = opt("synthetic", "Where its problems come from.", ("synthetic", "gsm8k", "humaneval"))
    tokens: int = opt(96, "Most tokens of an answer, the same in all arms; longer ones are truncated and counted.", low=1)
    primary: str = opt(
        "strict-1", "How answers are scored; the other extraction is shown beside it.", ("strict-1", "last_number-1", "pass@1")
    )
    problems_per_template: int = opt(10, "synthetic: problems generated from each template.", low=1)
    path: str | None = opt(None, "gsm8k: name on the hub.")
    configuration: str | None = opt(None, "gsm8k: its configuration.")
    revision: str | None = opt(None, "gsm8k: its revision.")
    split: str = opt("test", "gsm8k: its split.")
    file: str | None = opt(None, "gsm8k: a local JSONL file instead of the hub, one object a line with question and answer.")


@dataclass
class GenerateConfig:
    """The generation test: answers to problems under every arm."""

    batch: int = opt(64, "describe_model: problems decoded together.", low=1)
    tasks: list[str] = opt(lambda: ["word_problems", "functions"], "Names of files in config/task; none: the test is not run.")
    registered: bool = opt(
        False, "Whether the registered problems (prereg/generation.yaml) are answered once the plan is locked; pilot problems before."
    )
    split: str = opt("pilot", "Split of synthetic problems outside the registered run.", ("calibration", "pilot", "exploratory"))
    problems: int = opt(32, "Most problems of each task, templates taking turns.", low=1)
    arms: list[str] = opt(
        lambda: [
            "fetch_all", "rule_015", "rule_015_background", "quality_first", "first_choice", "first_choice_background", "speed_first", "substitute_all",
        ],
        "Names of files in config/policy; fetch_all is the reference and must be among them.",
        filled=True,
    )  # fmt: skip
    run_on: str = opt(
        "emulator", "What answers: the emulator, all arms in one batch, or the engine (make setup-engine).", ("emulator", "engine")
    )
    residency: float = opt(0.25, "Resident share of each layer's experts.", low=0, high=1)
    samples: int = opt(1, "Answers to each problem under each arm; more than one needs a temperature.", low=1, high=1000)
    temperature: float = opt(
        0.0, "0: the most probable token; above: tokens are drawn, with the same random numbers under every arm.", low=0, high=10
    )
    seed: int = opt(0, "Seed of drawn tokens.", low=0, high=2**63 - 1)
    pass_at: list[int] = opt(lambda: [1], "k of pass@k (unbiased), at most `samples`.", low=1, filled=True)
    rows: int = opt(192, "Most rows (problems x arms) in one batch.", low=1)
    threads: int = opt(2, "Threads that walk the policy core (emulator).", low=1, high=1024)


@dataclass
class SandboxConfig:
    """Where programs that a model wrote are run."""

    seconds: float = opt(5.0, "Wall time of a program with its tests.", low=0.5, high=600)
    memory_mib: int = opt(512, "Address space of each of its processes, in MiB.", low=64, high=65_536)
    processes: int = opt(4, "Processes and threads at once.", low=3, high=1024)
    allow_weak: bool = opt(
        False, "Whether limits of time and memory alone, which leave files and network open, will do where no sandbox holds; recorded."
    )


@dataclass
class CaptureConfig:
    """Stage capture_traces."""

    depth: int = opt(128, "M: experts kept per row of a trace (at most E).", low=1, high=65_535)
    batch: int = opt(8, "Documents in one forward pass.", low=1)
    threads: int = opt(
        1,
        "Threads of a forward pass; hundreds of small experts are fastest with 1, since each product waits for its threads.",
        low=1,
        high=1024,
    )
    splits: list[str] = opt(
        lambda: ["calibration", "exploratory"], "Splits that are recorded; warm starts count requests in calibration.", filled=True
    )
    documents: int = opt(160, "Most documents recorded of each split, spread evenly over its packages and templates.", low=1)


@dataclass
class SimulateConfig:
    """Stage simulate_policies."""

    policies: list[str] = opt(
        list, "Names of files in config/policy that are simulated; the selected `policy` is always added.", filled=True
    )
    residency: list[float] = opt(
        [0.25], "Resident shares of each layer's experts; C is the nearest integer to share x E, halves up.", low=0, high=1, filled=True
    )
    seeds: list[int] = opt([0], "Seeds of policies that draw (others run once).", low=0, high=2**63 - 1, filled=True)
    threads: int = opt(2, "Layers simulated at the same time.", low=1, high=1024)
    max_past_depth: float = opt(
        1e-4, "Largest share of steps that may look past the trace's depth before the run is refused.", low=0, high=1
    )


@dataclass
class EmulateConfig:
    """Stage emulate_policies: the model runs while policies decide which experts its tokens get."""

    rows: int = opt(64, "Most policies in one forward pass, the reference among them; more rows need more memory.", low=2)
    threads: int = opt(2, "Threads that walk the policy core.", low=1, high=1024)
    torch_threads: int = opt(1, "Threads of a forward pass (see capture.threads).", low=1, high=1024)


@dataclass
class EngineConfig:
    """The engine in the stages calibrate_host, run_engine and compare_engine, and in generate_answers where it answers."""

    type: str = opt("F32", "Type of the matrices in the GGUF file.", ("F32", "F16", "BF16", "Q8_0", "Q4_0"))
    store: str = opt("direct", "Slow tier: the disk past the page cache, or host memory.", ("direct", "mapped"))
    device: str = opt("cpu", "Fast tier: cpu, CUDA0 ..., rpc:HOST:PORT.")
    threads: int = opt(1, "Threads of the model (see capture.threads).", low=1, high=1024)
    io_threads: int = opt(8, "Reads under way at once.", low=1, high=1024)
    calibration_rounds: int = opt(12, "calibrate_host: rounds, over which its intervals are.", low=3)
    calibration_tokens: int = opt(384, "calibrate_host: tokens decoded in a round, under every policy that it needs.", low=18)
    calibration_residency: list[float] = opt(
        lambda: [0.125, 0.5], "calibrate_host: resident shares at which misses and admissions are timed.", low=0, high=1, filled=True
    )
    calibration_reads: int = opt(48, "calibrate_host: reads of each size in a round.", low=4)


@dataclass
class StatsConfig:
    """Intervals of every table."""

    resamples: int = opt(2000, "Bootstrap resamples.", low=100, high=1_000_000)
    confidence: float = opt(0.95, "Coverage of the intervals.", low=0.5, high=0.999)
    seed: int = opt(1, "Seed of the resampling.", low=0, high=2**63 - 1)
    min_clusters: int = opt(40, "Fewest packages or templates for an interval to count as reliable.", low=2)


@dataclass
class ReportConfig:
    """Stage render_report."""

    title: str = opt("Which expert misses are worth waiting for?", "Title of the report.")
    quick: bool = opt(True, "Whether every claim is marked as a quick run.")


@dataclass
class Config:
    """The whole configuration."""

    model: ModelConfig = opt(ModelConfig, "The model (group model/).")
    corpus: CorpusConfig = opt(CorpusConfig, "The text (group corpus/).")
    policy: PolicyConfig = opt(PolicyConfig, "One policy of your own choice (group policy/), simulated beside simulate.policies.")
    host: HostConfig = opt(HostConfig, "The machine (group host/).")
    card: CardConfig = opt(CardConfig, "The model's card.")
    generate: GenerateConfig = opt(GenerateConfig, "The generation test (E7).")
    sandbox: SandboxConfig = opt(SandboxConfig, "Where programs that a model wrote are run.")
    capture: CaptureConfig = opt(CaptureConfig, "Recording of router traces.")
    simulate: SimulateConfig = opt(SimulateConfig, "The simulator's grid.")
    experiments: list[str] = opt(
        lambda: ["e1", "e2", "e4", "e5"], "Experiments that are run; e5 needs the engine (make setup-engine).", ("e1", "e2", "e4", "e5")
    )
    emulate: EmulateConfig = opt(EmulateConfig, "The emulator.")
    engine: EngineConfig = opt(EngineConfig, "The engine.")
    e1: E1Config = opt(E1Config, "Experiment E1.")
    e2: E2Config = opt(E2Config, "Experiment E2.")
    e4: E4Config = opt(E4Config, "Experiment E4.")
    e5: E5Config = opt(E5Config, "Experiment E5.")
    b: BConfig = opt(BConfig, "Experiment B.")
    stats: StatsConfig = opt(StatsConfig, "Intervals.")
    report: ReportConfig = opt(ReportConfig, "The report.")
