"""Boxes and lines: the model as a flow of shapes (Figure 1), beam search (6.1)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from annotated.plots.drawing import COLOURS, Look, axes_or_new, load, plt
from annotated.search.beam import Candidate

INK, SOFT = "#222222", "#6b6b6b"

Shape = tuple[int, ...]
Shapes = Mapping[str, Sequence[int]]

# What a module is called in the picture, by the last part of its name, and its colours.
BOXES = {
    "self_attn": ("self-attention", "attention"),
    "src_attn": ("cross-attention", "attention"),
    "feed_forward": ("feed-forward", "network"),
    "norm": ("layer norm", "norm"),
}
COLUMNS = {"encoder": 0.0, "decoder": 9.2}  # left edge of each stack's boxes
WIDTH = 3.4  # of a box; a row is 1 high
NEEDED = ("src_embed.0", "src_embed.1", "tgt_embed.0", "tgt_embed.1", "generator")


class Step(NamedTuple):
    """One row of a stack: a box, or a sum where `kind` is "sum"."""

    title: str
    kind: str
    shape: Sequence[int]
    inside: str = ""


def plot_model_flow(shapes: Shapes, title: str = "The model, shape by shape") -> "plt.Axes":
    """Draw encoder and decoder from top to bottom, with the shape after each step.

    `shapes` has the shape of what each module of an `EncoderDecoder` returned, by the module's name, in the
    order in which the modules returned; a norm that comes before its sub-layer is drawn before it. Layers
    are drawn once. Raises ValueError that names the shapes missing, or tells which layer differs from the
    first.
    """
    missing = [name for name in NEEDED if name not in shapes]
    if missing:
        raise ValueError(f"plot_model_flow needs the shape of {', '.join(missing)}")
    layers = {side: _layers(shapes, side) for side in COLUMNS}
    stacks = {side: list(_steps(shapes, side, layers[side][0])) for side in COLUMNS}
    rows = max(map(len, stacks.values()))
    _, ax = plt.subplots(figsize=(13, 0.62 * rows + 1.2), layout="constrained")
    for side, left in COLUMNS.items():
        _draw_stack(ax, left, stacks[side])
    for side, left in COLUMNS.items():
        _draw_frame(ax, left - 0.8, stacks[side], len(layers[side]))
    cross = [step.title for step in stacks["decoder"]].index("cross-attention")
    _draw_memory(ax, len(stacks["encoder"]) - 1, cross)
    ax.set(xlim=(-1.5, 16.6), ylim=(rows, -0.5), title=title)
    ax.axis("off")
    return ax


def _layers(shapes: Shapes, side: str) -> list[dict[str, Shape]]:
    """Return the shapes of each layer of one stack, by the names within the layer, in the order heard."""
    layers: dict[int, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        if name.startswith(f"{side}.layers."):
            number, _, part = name.removeprefix(f"{side}.layers.").partition(".")
            layers.setdefault(int(number), {})[part] = tuple(shape)
    if not layers:
        raise ValueError(f"plot_model_flow needs the shapes of the {side}'s layers")
    for i, layer in layers.items():
        if list(layer.items()) != list(layers[0].items()):
            raise ValueError(f"layer {i} of the {side} differs from layer 0: it cannot stand for all")
    return list(layers.values())


def _steps(shapes: Shapes, side: str, layer: Mapping[str, Shape]) -> Iterator[Step]:
    """The rows of one stack, from the tokens down."""
    embed, tokens = {
        "encoder": ("src_embed", "source tokens"),
        "decoder": ("tgt_embed", "target tokens (shifted)"),
    }[side]
    yield Step(tokens, "", shapes[f"{embed}.0"][:-1])
    yield Step("embedding · √d_model", "embedding", shapes[f"{embed}.0"])
    yield Step("+ positions", "embedding", shapes[f"{embed}.1"])
    for name, shape in layer.items():
        part = name.rpartition(".")[2]
        if name.count(".") in (0, 2) and part in BOXES:
            title, kind = BOXES[part]
            masked = "masked " if side == "decoder" and part == "self_attn" else ""
            yield Step(masked + title, kind, shape, _inside(layer, name))
            if part != "norm":
                yield Step("+", "sum", shape)
    if f"{side}.norm" in shapes:
        yield Step("final norm", "norm", shapes[f"{side}.norm"])
    if side == "decoder":
        yield Step("linear, softmax", "output", shapes["generator"])


def _inside(layer: Mapping[str, Shape], name: str) -> str:
    """What goes on in a box, from the shapes of the linear maps in it, where these were heard."""
    query, key = (layer.get(f"{name}.linears.{i}") for i in (0, 1))
    if query and key:
        return f"{query[1]} queries, {key[1]} keys"
    inner = layer.get(f"{name}.w_1")
    return f"inside {inner[-1]} wide" if inner else ""


def _draw_stack(ax: "plt.Axes", left: float, steps: Sequence[Step]) -> None:
    """Draw the rows of one stack."""
    middle, branch = left + WIDTH / 2, 2  # below which row the residual leaves the stream
    closes = "sum" if steps[3].kind == "norm" else "norm"  # what a sub-layer ends with: pre-norm or post-norm
    above = 0.0
    for y, step in enumerate(steps):
        half = 0.2 if step.kind in ("sum", "") else 0.36  # the height of what is drawn
        if y:
            _arrow(ax, (middle, above), (middle, y - half))
        above = y + half
        if step.kind == "sum":
            _draw_sum(ax, middle, y, branch)
        else:
            _draw_box(ax, left, y, step)
        branch = y if step.kind == closes else branch
        ax.text(left + WIDTH + 0.15, y, str(tuple(step.shape)), ha="left", va="center", fontsize=12)


def _draw_box(ax: "plt.Axes", left: float, y: float, step: Step) -> None:
    if step.kind:
        tint, line = COLOURS[step.kind]
        look = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": tint, "edgecolor": line}
        ax.add_patch(load("matplotlib.patches").FancyBboxPatch((left, y - 0.36), WIDTH, 0.72, **look))
    middle, up = left + WIDTH / 2, 0.14 if step.inside else 0
    weight = "normal" if step.kind else "bold"
    ax.text(middle, y - up, step.title, ha="center", va="center", fontsize=13, fontweight=weight)
    if step.inside:
        ax.text(middle, y + 0.19, step.inside, ha="center", va="center", fontsize=11)


def _draw_sum(ax: "plt.Axes", middle: float, y: float, branch: float) -> None:
    """Draw a plus sign, and the way around the sub-layer that ends in it."""
    around, start = middle - WIDTH / 2 - 0.45, branch + 0.5
    ax.plot(middle, y, "o", ms=19, mfc="white", mec=INK)
    ax.text(middle, y, "+", ha="center", va="center_baseline", fontsize=15)
    ax.plot([middle, around, around], [start, start, y], color=INK, lw=1.4)
    _arrow(ax, (around, y), (middle - 0.28, y))


def _draw_frame(ax: "plt.Axes", left: float, steps: Sequence[Step], count: int) -> None:
    """Draw a dashed frame around what is one layer of `count`."""
    last = max(y for y, step in enumerate(steps) if step.kind == "sum" or step.title == "layer norm")
    ax.add_patch(plt.Rectangle((left, 2.42), WIDTH + 3.4, last - 1.98, fill=False, ls="--", ec="#8a8a8a"))
    ax.text(left + WIDTH + 3.3, 2.62, f"{count} times", ha="right", va="center", fontsize=12, color="#555555")


def _draw_memory(ax: "plt.Axes", foot: float, y: float) -> None:
    """Draw the encoder's result, on its way from its last row, `foot`, to the cross-attention in row `y`."""
    x, end = COLUMNS["encoder"] + WIDTH / 2, COLUMNS["decoder"]
    turn = end - 1.5
    ax.plot([x, x, turn, turn], [foot + 0.36, foot + 0.95, foot + 0.95, y], color="#0173b2", lw=1.8)
    _arrow(ax, (turn, y), (end, y), "#0173b2")
    ax.text((x + turn) / 2, foot + 1.05, "memory: keys and values", ha="center", va="top", fontsize=13)


def _arrow(ax: "plt.Axes", start: tuple[float, float], end: tuple[float, float], colour: str = INK) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=style)


FATES = {"kept": ("#d6e8f5", "#0173b2"), "dropped": ("#ffffff", "#8a8a8a"), "ended": ("#fbe3c0", "#b87503")}


def plot_beam(
    steps: Sequence[Sequence[Candidate]],
    winner: Sequence[int],
    pieces: Callable[[Sequence[int]], Sequence[str]],
    ax: "plt.Axes | None" = None,
) -> "plt.Axes":
    """Draw the tree of one search: a column for each step, the likeliest on top, the winner's path heavy.

    `steps` has for each step the candidates, likeliest first, as `beam_search` shows them to its watcher;
    `winner` are the tokens of the hypothesis that was returned, without the end symbol; `pieces` turns tokens
    into what is written on them, such as `tokenizer.pieces`.

    Raises ValueError for a candidate that continues nothing which was kept, or a winner that never ended.
    """
    places = _place_candidates(steps)
    path = _winning_path(steps, tuple(winner))
    ranks = max(len(step) for step in steps)
    ax = axes_or_new(ax, 1.6 * len(steps) + 2, 0.75 * ranks + 1.4)
    ax.text(0, 0, "start", ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": INK})
    for candidate in (candidate for step in steps for candidate in step):
        parent, place, won = places[candidate.tokens[:-1]], places[candidate.tokens], candidate.tokens in path
        dropped, (tint, line) = candidate.fate == "dropped", FATES[candidate.fate]
        look: Look = {"color": INK, "lw": 4} if won else {"color": "#aaaaaa", "lw": 1.2}
        ax.plot(*zip(parent, place, strict=True), ls=":" if dropped else "-", **look)
        text = f"{pieces(candidate.tokens[-1:])[0]}\n{candidate.log_prob:.2f}".replace("-", "−")
        box = {"boxstyle": "round", "fc": tint, "ec": INK if won else line, "lw": 2.5 if won else 1.2}
        colour = SOFT if dropped else INK
        ax.text(*place, text, ha="center", va="center", fontsize=11, color=colour, bbox=box)
    patch = load("matplotlib.patches").Patch
    handles = [patch(fc=tint, ec=line, label=fate) for fate, (tint, line) in FATES.items()]
    handles.append(plt.Line2D([], [], color=INK, lw=4, label="the winner"))
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False)
    ax.set(title="Beam search: log-probability of each beginning", xlabel="step", ylabel="rank in its step")
    ax.set_xticks(range(1, len(steps) + 1))
    ax.yaxis.set_major_locator(plt.MaxNLocator(integer=True))
    ax.set_ylim(ranks - 0.4, -0.6)
    ax.margins(x=0.08)
    return ax


def _place_candidates(steps: Sequence[Sequence[Candidate]]) -> dict[tuple[int, ...], tuple[int, int]]:
    """Where each beginning is drawn, by its tokens: (step, rank), the start at (0, 0)."""
    if not steps or not all(steps):
        raise ValueError("a beam tree needs at least one step, and candidates in each")
    places: dict[tuple[int, ...], tuple[int, int]] = {(): (0, 0)}
    kept: set[tuple[int, ...]] = {()}
    for step, candidates in enumerate(steps, start=1):
        for rank, candidate in enumerate(candidates):
            if candidate.tokens[:-1] not in kept:
                raise ValueError(f"{candidate.tokens} in step {step} continues nothing that was kept")
            places[candidate.tokens] = (step, rank)
        kept = {candidate.tokens for candidate in candidates if candidate.fate == "kept"}
    return places


def _winning_path(steps: Sequence[Sequence[Candidate]], winner: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The beginnings of the winner, its ended candidate among them."""
    ends = [c.tokens for step in steps for c in step if c.fate == "ended" and c.tokens[:-1] == winner]
    if not ends:
        raise ValueError(f"the winner {winner} is none of the hypotheses that ended")
    return {ends[0][:length] for length in range(1, len(ends[0]) + 1)}
