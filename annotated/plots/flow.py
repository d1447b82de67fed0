"""The whole model as a flow of shapes, drawn from what forward hooks heard (Figure 1 of the paper)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from annotated.plots.drawing import COLOURS, load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    shape: str
    inside: str = ""


def plot_model_flow(shapes: Shapes, title: str = "The model, shape by shape") -> "Axes":
    """Draw encoder and decoder from top to bottom, with the shape after each step.

    `shapes` has the shape of what each module of an `EncoderDecoder` returned, by the module's name, in the
    order in which the modules returned; a norm that comes before its sub-layer is drawn before it. Layers
    are drawn once. Raises ValueError that names the shapes missing, or tells which layer differs from the
    first.
    """
    missing = [name for name in NEEDED if name not in shapes]
    if missing:
        raise ValueError(f"plot_model_flow needs the shape of {', '.join(missing)}")
    stacks = {side: list(_steps(shapes, side)) for side in COLUMNS}
    rows = max(map(len, stacks.values()))
    _, ax = load("matplotlib.pyplot").subplots(figsize=(13, 0.62 * rows + 1.2), layout="constrained")
    places = {side: _draw_stack(ax, side, steps) for side, steps in stacks.items()}
    for side in COLUMNS:
        _draw_frame(ax, side, stacks[side], len(_layers(shapes, side)))
    _draw_memory(ax, places, [step.title for step in stacks["decoder"]].index("cross-attention"))
    ax.set(xlim=(-1.5, 16.6), ylim=(rows, -0.5), title=title)
    ax.axis("off")
    return ax


def _layers(shapes: Shapes, side: str) -> list[dict[str, tuple[int, ...]]]:
    """The shapes of each layer of one stack, by the names within the layer, in the order heard."""
    layers: dict[int, dict[str, tuple[int, ...]]] = {}
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


def _steps(shapes: Shapes, side: str) -> Iterator[Step]:
    """The rows of one stack, from the tokens down."""
    embed = {"encoder": "src_embed", "decoder": "tgt_embed"}[side]
    tokens, embedded, placed = (
        str(tuple(shapes[f"{embed}.{i}"])[:end]) for i, end in ((0, -1), (0, 3), (1, 3))
    )
    yield Step({"encoder": "source tokens", "decoder": "target tokens (shifted)"}[side], "", tokens)
    yield Step("embedding · √d_model", "embedding", embedded)
    yield Step("+ positions", "embedding", placed)
    layer = _layers(shapes, side)[0]
    for name, shape in layer.items():
        part = name.rpartition(".")[2]
        if name.count(".") in (0, 2) and part in BOXES:
            title, kind = BOXES[part]
            masked = "masked " if side == "decoder" and part == "self_attn" else ""
            yield Step(masked + title, kind, str(shape), _inside(layer, name))
            if part != "norm":
                yield Step("+", "sum", str(shape))
    if f"{side}.norm" in shapes:
        yield Step("final norm", "norm", str(tuple(shapes[f"{side}.norm"])))
    if side == "decoder":
        yield Step("linear, softmax", "output", str(tuple(shapes["generator"])))


def _inside(layer: Mapping[str, tuple[int, ...]], name: str) -> str:
    """What goes on in a box, from the shapes of the linear maps in it, where these were heard."""
    query, key = (layer.get(f"{name}.linears.{i}") for i in (0, 1))
    if query and key:
        return f"{query[1]} queries, {key[1]} keys"
    inner = layer.get(f"{name}.w_1")
    return f"inside {inner[-1]} wide" if inner else ""


def _draw_stack(ax: "Axes", side: str, steps: Sequence[Step]) -> list[float]:
    """Draw the rows of one stack; returns the height of each."""
    left, branch = COLUMNS[side], 2  # below which row the residual leaves the stream
    closes = "sum" if steps[3].kind == "norm" else "norm"  # what a sub-layer ends with: pre-norm or post-norm
    for y, step in enumerate(steps):
        if y:
            start, end = (y - 1 + _half(steps[y - 1]), y - _half(step))
            _arrow(ax, (left + WIDTH / 2, start), (left + WIDTH / 2, end))
        if step.kind == "sum":
            _draw_sum(ax, left, y, branch)
        else:
            _draw_box(ax, left, y, step)
        branch = y if step.kind == closes else branch
        ax.text(left + WIDTH + 0.15, y, step.shape, ha="left", va="center", fontsize=12)
    return [float(y) for y in range(len(steps))]


def _half(step: Step) -> float:
    """Half the height of what is drawn for a step."""
    return 0.2 if step.kind in ("sum", "") else 0.36


def _draw_box(ax: "Axes", left: float, y: float, step: Step) -> None:
    if step.kind:
        fill, line = COLOURS[step.kind]
        style = "round,pad=0,rounding_size=0.1"
        patches = load("matplotlib.patches")
        box = patches.FancyBboxPatch((left, y - 0.36), WIDTH, 0.72, style, facecolor=fill, edgecolor=line)
        ax.add_patch(box)
    up = 0.14 if step.inside else 0
    ax.text(
        left + WIDTH / 2, y - up, step.title, ha="center", va="center", fontsize=13,
        fontweight="normal" if step.kind else "bold",
    )  # fmt: skip
    if step.inside:
        ax.text(left + WIDTH / 2, y + 0.19, step.inside, ha="center", va="center", fontsize=11)


def _draw_sum(ax: "Axes", left: float, y: float, branch: float) -> None:
    """A plus sign, and the way around the sub-layer that ends in it."""
    middle, around = left + WIDTH / 2, left - 0.45
    ax.plot(middle, y, "o", ms=19, mfc="white", mec="#222222")
    ax.text(middle, y, "+", ha="center", va="center_baseline", fontsize=15)
    start = branch + 0.5
    ax.plot([middle, around, around], [start, start, y], color="#222222", lw=1.4)
    _arrow(ax, (around, y), (middle - 0.28, y))


def _draw_frame(ax: "Axes", side: str, steps: Sequence[Step], count: int) -> None:
    """A dashed frame around what is one layer of `count`."""
    last = max(y for y, step in enumerate(steps) if step.kind == "sum" or step.title == "layer norm")
    patches = load("matplotlib.patches")
    left = COLUMNS[side] - 0.8
    frame = patches.Rectangle((left, 2.42), WIDTH + 3.4, last - 1.98, fill=False, ls="--", ec="#8a8a8a")
    ax.add_patch(frame)
    ax.text(left + WIDTH + 3.3, 2.62, f"{count} times", ha="right", va="center", fontsize=12, color="#555555")


def _draw_memory(ax: "Axes", places: Mapping[str, Sequence[float]], cross: int) -> None:
    """The encoder's result, on its way to every cross-attention of the decoder."""
    x, foot, y = COLUMNS["encoder"] + WIDTH / 2, places["encoder"][-1], places["decoder"][cross]
    turn, end = COLUMNS["decoder"] - 1.5, COLUMNS["decoder"]
    ax.plot([x, x, turn, turn], [foot + 0.36, foot + 0.95, foot + 0.95, y], color="#0173b2", lw=1.8)
    _arrow(ax, (turn, y), (end, y), "#0173b2")
    ax.text((x + turn) / 2, foot + 1.05, "memory: keys and values", ha="center", va="top", fontsize=13)


def _arrow(ax: "Axes", start: tuple[float, float], end: tuple[float, float], colour: str = "#222222") -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=style)
