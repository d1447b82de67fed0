"""The model as a flow, where what forward hooks heard stands in its place; the tree of a search."""

import pytest
import torch
from matplotlib.patches import FancyBboxPatch
from torch import nn

from annotated.data.batches import Batch
from annotated.plots.diagrams import plot_beam, plot_model_flow
from annotated.search.beam import Candidate
from annotated.search.inference import evaluating
from annotated.transformer.model import make_model

Shapes = dict[str, tuple[int, ...]]


def heard(**settings) -> Shapes:
    """The shapes that every module of a small model returns, in the order in which they return."""
    model = make_model(11, 13, N=3, d_model=8, d_ff=20, h=2, **settings)
    shapes: Shapes = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.Identity):
            module.register_forward_hook(
                lambda module, given, out, name=name: shapes.update({name: tuple(out.shape)})
            )
    batch = Batch(torch.full((2, 4), 5), torch.full((2, 7), 5))
    with evaluating(model):
        model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
    return shapes


@pytest.fixture(scope="module")
def shapes() -> Shapes:
    return heard()


def column(shapes: Shapes, side: str) -> list[str]:
    """The texts on one stack's boxes, from top to bottom; shapes and small print left out."""
    texts = [text for text in plot_model_flow(shapes).texts if text.get_fontsize() > 12]
    middle = {"encoder": 1.7, "decoder": 10.9}[side]
    found = [text for text in texts if abs(text.get_position()[0] - middle) < 0.01]
    return [text.get_text() for text in sorted(found, key=lambda text: text.get_position()[1])]


PART = {"self": "self-attention", "cross": "cross-attention", "network": "feed-forward"}


@pytest.mark.parametrize(("side", "parts"), [("encoder", ["self", "network"]), ("decoder", list(PART))])
@pytest.mark.parametrize("norm_first", [False, True])
def test_boxes_stand_in_the_order_of_the_forward_pass(side, parts, norm_first) -> None:
    around = (["layer norm"], ["+"]) if norm_first else ([], ["+", "layer norm"])
    masked = {"self": "masked self-attention"} if side == "decoder" else {}
    expected = [word for part in parts for word in (*around[0], {**PART, **masked}[part], *around[1])]
    names = column(heard(norm_first=norm_first), side)
    assert names[3 : 3 + len(expected)] == expected
    assert ("final norm" in names) == norm_first
    assert (names[-1] == "linear, softmax") == (side == "decoder")


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_residual_leaves_the_stream_above_the_whole_sub_layer(norm_first) -> None:
    ax = plot_model_flow(heard(norm_first=norm_first))
    ways = [
        line.get_ydata() for line in ax.lines if line.get_linestyle() == "-" and len(line.get_ydata()) == 3
    ]
    assert len(ways) == 2 + 3
    heights = [3, 6, 3, 6, 9]  # of the first box of each sub-layer; every sub-layer has three rows
    for (start, _, end), first in zip(ways, heights, strict=True):
        assert first - 1 < start < first
        assert end == (first + 2 if norm_first else first + 1)


def test_shapes_are_written_beside_their_boxes(shapes: Shapes) -> None:
    words = [text.get_text() for text in plot_model_flow(shapes).texts]
    assert words.count("(2, 4, 8)") == 2 + 3 * 2
    assert words.count("(2, 6, 8)") == 2 + 3 * 3
    assert {"(2, 4)", "(2, 6)", "(2, 6, 13)", "6 queries, 4 keys", "inside 20 wide"} <= set(words)
    assert words.count("3 times") == 2


def test_every_module_of_a_layer_has_a_box(shapes: Shapes) -> None:
    ax = plot_model_flow(shapes, title="Flow")
    boxes = [patch for patch in ax.patches if type(patch) is FancyBboxPatch]
    assert len(boxes) == 2 * 2 + (2 + 2) + (3 + 3) + 1
    assert ax.get_title() == "Flow"


def test_missing_shapes_are_named(shapes: Shapes) -> None:
    less = {name: shape for name, shape in shapes.items() if name not in ("generator", "tgt_embed.1")}
    with pytest.raises(ValueError, match=r"the shape of tgt_embed\.1, generator"):
        plot_model_flow(less)
    with pytest.raises(ValueError, match="the encoder's layers"):
        plot_model_flow({name: shape for name, shape in shapes.items() if "encoder.layers" not in name})


def test_a_layer_unlike_the_first_cannot_hide_behind_it(shapes: Shapes) -> None:
    with pytest.raises(ValueError, match="layer 2 of the decoder differs from layer 0"):
        plot_model_flow({**shapes, "decoder.layers.2.feed_forward": (2, 6, 9)})


WORDS = ["<s>", "</s>", "<blank>", "<unk>", "a", "dog", "cat"]
# Beam 2, end symbol 1: "a dog" wins over "cat".
STEPS = [
    [Candidate((4,), -0.4, "kept"), Candidate((6,), -1.3, "kept"), Candidate((5,), -3.0, "dropped")],
    [Candidate((4, 5), -0.8, "kept"), Candidate((6, 1), -1.6, "ended"), Candidate((4, 6), -2.0, "kept")],
    [Candidate((4, 5, 1), -0.9, "ended"), Candidate((4, 6, 1), -2.5, "ended")],
]


def pieces(ids) -> list[str]:
    return [WORDS[i] for i in ids]


def test_every_candidate_has_its_box() -> None:
    ax = plot_beam(STEPS, [4, 5], pieces)
    boxes = {text.get_position(): text.get_text() for text in ax.texts}
    assert boxes[0, 0] == "start"
    for step, candidates in enumerate(STEPS, start=1):
        for rank, candidate in enumerate(candidates):
            word = WORDS[candidate.tokens[-1]]
            assert boxes[step, rank] == f"{word}\n−{-candidate.log_prob:.2f}"
    assert len(boxes) == 1 + sum(map(len, STEPS))


def test_every_line_leads_from_what_was_continued() -> None:
    ax = plot_beam(STEPS, [4, 5], pieces)
    ways = {tuple(zip(*line.get_data(), strict=True)): line for line in ax.lines}
    expected = {
        ((0, 0), (1, 0)), ((0, 0), (1, 1)), ((0, 0), (1, 2)),
        ((1, 0), (2, 0)), ((1, 1), (2, 1)), ((1, 0), (2, 2)),
        ((2, 0), (3, 0)), ((2, 2), (3, 1)),
    }  # fmt: skip
    assert set(ways) == expected
    heavy = {way for way, line in ways.items() if line.get_linewidth() == 4}
    assert heavy == {((0, 0), (1, 0)), ((1, 0), (2, 0)), ((2, 0), (3, 0))}
    assert [way for way, line in ways.items() if line.get_linestyle() == ":"] == [((0, 0), (1, 2))]


def test_the_winner_need_not_be_the_likeliest_in_its_step() -> None:
    ax = plot_beam(STEPS, [6], pieces)
    heavy = [line.get_xydata().tolist() for line in ax.lines if line.get_linewidth() == 4]
    assert heavy == [[[0, 0], [1, 1]], [[1, 1], [2, 1]]]


def test_the_likeliest_is_on_top() -> None:
    ax = plot_beam(STEPS, [4, 5], pieces)
    assert ax.yaxis_inverted()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "rank in its step")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "kept",
        "dropped",
        "ended",
        "the winner",
    ]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_beam([], [4], pieces), "at least one step"),
        (lambda: plot_beam([STEPS[0], []], [4], pieces), "candidates in each"),
        (lambda: plot_beam(STEPS, [4, 4], pieces), r"winner \(4, 4\)"),
        (lambda: plot_beam([STEPS[0], [Candidate((5, 1), -4.0, "ended")]], [5], pieces), "continues nothing"),
        (lambda: plot_beam(STEPS[1:], [4, 5], pieces), "step 1 continues nothing"),
    ],
)
def test_a_beam_that_is_no_tree_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
