"""Where does the time of a training step go, and that of a decoding step, and what could be had at best?

    python benchmarks/profile_steps.py --size tiny

The operations of each are grouped by kind, by torch's profiler. The bound is the share of its time that its
matrix products would take at the rate that one large product reaches here.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from report import main, matmul_rate, parser, print_table, set_up, synchronized, write
from timing import in_turns
from torch.profiler import ProfilerActivity, profile
from train import count_operations
from trainees import Trainee, ours
from workload import CONFIGS, random_batches

from annotated.decoding import beam_search, greedy_decode
from annotated.model import EncoderDecoder
from annotated.tokenizers import START

# What is in a kernel's name tells its kind; the first that fits counts.
KINDS = {
    "matrix products": ("mm", "gemm", "linear", "matmul"),
    "fused attention": ("scaled_dot_product", "flash", "fmha"),
    "layer norm": ("layer_norm",),
    "Adam": ("adam",),
    "softmax": ("softmax", "exp"),
    "drawing dropout": ("random", "dropout", "bernoulli"),
    "best tokens": ("topk", "argmax", "sort", "max"),
    "moving and selecting": (
        "copy",
        "cat",
        "index",
        "gather",
        "scatter",
        "embedding",
        "clone",
        "stack",
        "select",
    ),
    "adding and multiplying": ("add", "mul", "sub", "div", "sum", "ge", "relu", "threshold", "fill", "where"),
}
OTHER = "all else"


def kind_of(name: str) -> str:
    """The kind of an operation by its name."""
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), OTHER)


def by_kind(step: Callable[[], object], device: torch.device) -> dict[str, float]:
    """What share of the operations' time each kind takes."""
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (device.type == "cuda")]
    with profile(activities=activities) as profiler:
        step()
    times: dict[str, float] = dict.fromkeys([*KINDS, OTHER], 0.0)
    for event in profiler.key_averages():
        on_gpu = getattr(event, "self_device_time_total", 0.0)
        times[kind_of(event.key.lower())] += on_gpu if device.type == "cuda" else event.self_cpu_time_total
    return {kind: each / sum(times.values()) for kind, each in times.items()}


def steps(options, device: torch.device) -> dict[str, Callable[[], object]]:
    """An update of the weights, and decoding to a length that no end symbol cuts."""
    config = CONFIGS[options.size]
    torch.manual_seed(0)
    model = EncoderDecoder.from_config(config).to(device).train()
    trainee = Trainee(model, ours(model))
    batch = random_batches(config, options.tokens, 1)[0].to(device)
    src = torch.randint(4, config.src_vocab, (options.rows, 16), device=device)
    mask = torch.ones(options.rows, 1, 16, dtype=torch.bool, device=device)
    length = options.length
    return {
        "training step": partial(trainee.step, batch),
        f"greedy, {length} tokens": partial(greedy_decode, model, src, mask, length + 1, START),
        f"beam 5, {length} tokens": partial(beam_search, model, src, mask, length, beam=5),
    }


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record."""
    options = parser(__doc__, tuple(CONFIGS), rounds=3)
    options.add_argument("--tokens", type=int, default=2048, help="positions a batch (default %(default)s)")
    options.add_argument("--rows", type=int, default=128, help="sentences decoded (default %(default)s)")
    options.add_argument("--length", type=int, default=16, help="of what is decoded (default %(default)s)")
    options = options.parse_args(arguments)
    device = set_up(options)
    bound, more = matmul_rate(device), {}
    works = {name: synchronized(step, device) for name, step in steps(options, device).items()}
    measured = in_turns(works, options.rounds)
    for name, step in works.items():
        with count_operations() as counter:
            step()
        share = counter.get_total_flops() / bound / measured[name].median
        more[name] = {"kinds": by_kind(step, device), "operations": counter.get_total_flops(), "bound": share}
    record = write("profile", options, measured, [], matmul_rate=bound, parts=more)
    rows = [
        ("milliseconds", *(f"{measured[name].median * 1e3:,.1f}" for name in works)),
        ("spread", *(f"{measured[name].spread:.1%}" for name in works)),
        ("matrix products at the bound", *(f"{more[name]['bound']:.0%}" for name in works)),
        *((kind, *(f"{more[name]['kinds'][kind]:.1%}" for name in works)) for kind in [*KINDS, OTHER]),
    ]
    print_table(("", *works), rows)
    return record


if __name__ == "__main__":
    main(run)
