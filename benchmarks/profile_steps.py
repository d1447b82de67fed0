"""Where does the time of a training step go, and that of a decoding step, and what could be had at best?

    python benchmarks/profile_steps.py --size tiny

Before and after: the readable forms and what the package does, the textbook's decoding loop and the one with
a cache. The operations of each are grouped by kind, by torch's profiler. The bound is the share of its time
that its matrix products would take at the rate that one large product reaches here.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial

import torch
from report import main, matmul_rate, parser, print_table, set_up, synchronized, write
from scaling import cached, uncached
from timing import in_turns
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import ProfilerActivity, profile
from train import count_operations
from trainees import Trainee, ours, readable
from workload import CONFIGS, random_batches

from annotated.search.beam import beam_search
from annotated.tokenizers import END
from annotated.transformer.model import EncoderDecoder

# Which words in an operation's name tell its kind; the first kind that fits counts. Adam that is not fused is
# made of sums and products like any others.
KINDS = {
    "matrix products": "mm addmm bmm baddbmm linear matmul",
    "fused attention": "scaled_dot_product flash_attention efficient_attention",
    "layer norm": "layer_norm",
    "Adam": "adam",
    "softmax": "softmax exp logsumexp",
    "drawing dropout": "random dropout bernoulli",
    "best tokens": "topk argmax sort max",
    "moving and selecting": "copy cat index gather scatter embedding clone stack select",
    "adding and multiplying": "add sub rsub mul div sum mean sqrt lerp addcmul addcdiv neg eq ne ge relu "
    "threshold clamp fill zero where",
}
OTHER = "all else"
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def kind_of(name: str) -> str:
    """The kind of an operation by the words of its name, be it `aten::layer_norm` or `LayerNormBackward0`."""
    words = f"_{'_'.join(WORD.findall(name)).lower()}_"
    return next(
        (kind for kind, signs in KINDS.items() if any(f"_{s}_" in words for s in signs.split())), OTHER
    )


def by_kind(step: Callable[[], object], device: torch.device) -> dict[str, float]:
    """What share of the operations' time each kind takes."""
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (device.type == "cuda")]
    with profile(activities=activities) as profiler:
        step()
    return shares(profiler.key_averages(), device)


def shares(events: Iterable[FunctionEventAvg], device: torch.device) -> dict[str, float]:
    """What share of the events' time each kind takes, on the device.

    A GPU's time stands in the records twice, with the operation that started a kernel and with the kernel
    itself. The operations are counted, for their names are those that are known here.
    """
    times: dict[str, float] = dict.fromkeys([*KINDS, OTHER], 0.0)
    for event in events:
        if event.device_type == DeviceType.CPU:
            on_gpu = device.type == "cuda"
            times[kind_of(event.key)] += event.self_device_time_total if on_gpu else event.self_cpu_time_total
    return {kind: each / sum(times.values()) for kind, each in times.items()}


def endless(model: EncoderDecoder) -> EncoderDecoder:
    """A copy to decode with, which ends no sentence by itself: each gets the length that is asked for."""
    copy = deepcopy(model)
    with torch.no_grad():
        copy.generator.proj.bias[END] = -1e9
    return copy


def steps(options: Namespace, device: torch.device) -> dict[str, Callable[[], object]]:
    """An update of the weights, and decoding to a length that no end symbol cuts; before and after."""
    config = CONFIGS[options.size]
    torch.manual_seed(0)
    model = EncoderDecoder.from_config(config).to(device).train()
    plain, decoder = deepcopy(model), endless(model)
    batch = random_batches(config, options.tokens, 1)[0].to(device)
    src = torch.randint(4, config.src_vocab, (options.rows, 16), device=device)
    mask = torch.ones(options.rows, 1, 16, dtype=torch.bool, device=device)
    length = options.length
    return {
        "training step, before": partial(Trainee(plain, readable(plain), fused=False).step, batch),
        "training step, after": partial(Trainee(model, ours(model)).step, batch),
        f"greedy, {length} tokens, before": partial(uncached, decoder, src, length),
        f"greedy, {length} tokens, after": partial(cached, decoder, src, length),
        f"beam 5, {length} tokens": partial(beam_search, decoder, src, mask, length, beam=5),
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
