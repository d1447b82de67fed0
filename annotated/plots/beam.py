"""Beam search as a tree, and the length penalty choosing among its ends (section 6.1)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, check_names, load, palette
from annotated.translation.hypotheses import Candidate, Hypothesis, Penalty, length_penalty

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, SOFT = "#222222", "#6b6b6b"
FATES = {"kept": ("#d6e8f5", "#0173b2"), "dropped": ("#ffffff", "#8a8a8a"), "ended": ("#fbe3c0", "#b87503")}


def plot_beam(
    steps: Sequence[Sequence[Candidate]],
    winner: Sequence[int],
    pieces: Callable[[Sequence[int]], Sequence[str]],
    ax: "Axes | None" = None,
) -> "Axes":
    """The tree of one search: a column for each step, the likeliest on top, the winner's path heavy.

    Args:
        steps: for each step the candidates, likeliest first, as `beam_search` shows them to its watcher.
        winner: the tokens of the hypothesis that was returned, without the end symbol.
        pieces: turns tokens into what is written on them, such as `tokenizer.pieces`.

    Raises ValueError for a candidate that continues nothing which was kept, or a winner that never ended.
    """
    places = place_candidates(steps)
    path = winning_path(steps, winner)
    ranks = max(len(step) for step in steps)
    ax = axes_or_new(ax, 1.6 * len(steps) + 2, 0.75 * ranks + 1.4)
    ax.text(0, 0, "start", ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": INK})
    for candidate in (candidate for step in steps for candidate in step):
        parent, place, won = places[candidate.tokens[:-1]], places[candidate.tokens], candidate.tokens in path
        ax.plot(
            *zip(parent, place, strict=True),
            color=INK if won else "#aaaaaa",
            lw=4 if won else 1.2,
            ls=":" if candidate.fate == "dropped" else "-",
        )
        text = f"{pieces(candidate.tokens[-1:])[0]}\n{candidate.log_prob:.2f}".replace("-", "−")
        draw_node(ax, place, text, candidate.fate, won)
    return finish_tree(ax, len(steps), ranks)


def draw_node(ax: "Axes", place: tuple[int, int], text: str, fate: str, won: bool) -> None:
    """One box of the tree."""
    fill, line = FATES[fate]
    box = {"boxstyle": "round", "fc": fill, "ec": INK if won else line, "lw": 2.5 if won else 1.2}
    colour = SOFT if fate == "dropped" else INK
    ax.text(*place, text, ha="center", va="center", fontsize=11, color=colour, bbox=box)


def finish_tree(ax: "Axes", steps: int, ranks: int) -> "Axes":
    """Legend, title, and room for the outermost boxes."""
    patch, line = load("matplotlib.patches").Patch, load("matplotlib.lines").Line2D
    handles = [patch(fc=fill, ec=line, label=fate) for fate, (fill, line) in FATES.items()]
    handles.append(line([], [], color=INK, lw=4, label="the winner"))
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False)
    ax.set(title="Beam search: log-probability of each beginning", xlabel="step", ylabel="rank in its step")
    ax.set_xticks(range(1, steps + 1))
    ax.yaxis.set_major_locator(load("matplotlib.ticker").MaxNLocator(integer=True))
    ax.set_ylim(ranks - 0.4, -0.6)
    ax.margins(x=0.08)
    return ax


def place_candidates(steps: Sequence[Sequence[Candidate]]) -> dict[tuple[int, ...], tuple[int, int]]:
    """Where each beginning is drawn, by its tokens: (step, rank), the start at (0, 0)."""
    if not steps or not all(steps):
        raise ValueError("a beam tree needs at least one step, and candidates in each")
    places, kept = {(): (0, 0)}, {()}
    for step, candidates in enumerate(steps, start=1):
        for rank, candidate in enumerate(candidates):
            if candidate.tokens[:-1] not in kept:
                raise ValueError(f"{candidate.tokens} in step {step} continues nothing that was kept")
            places[candidate.tokens] = (step, rank)
        kept = {candidate.tokens for candidate in candidates if candidate.fate == "kept"}
    return places


def winning_path(steps: Sequence[Sequence[Candidate]], winner: Sequence[int]) -> set[tuple[int, ...]]:
    """The beginnings of the winner, its ended candidate among them."""
    tokens = tuple(winner)
    ends = [c.tokens for step in steps for c in step if c.fate == "ended" and c.tokens[:-1] == tokens]
    if not ends:
        raise ValueError(f"the winner {tokens} is none of the hypotheses that ended")
    return {ends[0][:length] for length in range(1, len(ends[0]) + 1)}


def plot_length_penalty(
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    alpha: float = 0.6,
    penalty: Penalty = "gnmt",
    ax: "Axes | None" = None,
) -> "Axes":
    """Each hypothesis's score against alpha: where two lines cross, the longer one is saved.

    Dots mark who wins without a penalty and who wins with this `alpha`. `texts` names the hypotheses.
    Raises ValueError if there is none.
    """
    if not hypotheses:
        raise ValueError("plot_length_penalty needs at least one hypothesis")
    check_names(texts, len(hypotheses), "hypotheses")
    ax = axes_or_new(ax)
    alphas = [i * max(1.0, 2 * alpha) / 100 for i in range(101)]
    colours = palette(len(hypotheses))
    for hypothesis, text, colour in zip(hypotheses, texts, colours, strict=True):
        scores = [penalised(hypothesis, at, penalty) for at in alphas]
        ax.plot(alphas, scores, color=colour, label=f"{text} ({len(hypothesis.tokens) + 1} tokens)")
    for at in (0.0, alpha):
        scores = [penalised(hypothesis, at, penalty) for hypothesis in hypotheses]
        best = max(range(len(scores)), key=scores.__getitem__)
        ax.plot(at, scores[best], "o", color=colours[best], ms=11, clip_on=False, zorder=5)
    ax.axvline(alpha, color="#8a8a8a", lw=1.2, ls="--", zorder=0)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
    ax.set(
        title=f"Who wins: without a penalty, and with alpha {alpha:g}",
        xlabel="alpha, strength of the length penalty",
        ylabel="score",
        xlim=(0, alphas[-1]),
    )
    return ax


def penalised(hypothesis: Hypothesis, alpha: float, penalty: Penalty) -> float:
    """The score that `beam_search` would give; the end symbol counts as a token."""
    return hypothesis.log_prob / length_penalty(len(hypothesis.tokens) + 1, alpha, penalty)
