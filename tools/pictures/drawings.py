"""The drawings, a function each: it takes the numbers of the lesson and returns a `Sheet`."""

import math
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

import torch

from annotated import capture_attention, greedy_decode, subsequent_mask

from .signs import CELL, INK, MARK, PALE, PAPER, ROLES, ROW, SIGNS, SOFT, Sheet, printed

START, END = "<s>", "</s>"
Numbers = SimpleNamespace


def factor(number: float) -> str:
    """Return a number as it stands in a product: in brackets where it is negative."""
    return printed(number) if round(float(number), 2) >= 0 else f"({printed(number)})"


def dot(left: Iterable[float], right: Iterable[float]) -> str:
    """Return a sum of products, written out."""
    return " + ".join(f"{factor(p)} · {factor(q)}" for p, q in zip(left, right, strict=True))


def listed(names: Iterable[str], numbers: Iterable[float]) -> str:
    """Return `a 0.55, cat 0.36, runs 0.09`."""
    pairs = zip(names, numbers, strict=True)
    return ", ".join(f"{SIGNS.get(name, name)} {printed(number)}" for name, number in pairs)


def most(names: Sequence[str], numbers: Sequence[float]) -> str:
    """Return the name of the largest number."""
    return names[max(range(len(names)), key=numbers.__getitem__)]


def vector(numbers: Iterable[float]) -> str:
    return f"({', '.join(map(printed, numbers))})"


def sum_below(
    sheet: Sheet, x: float, y: float, weights: Sequence[float], numbers: Sequence[float], total: float
) -> None:
    """Write a weighted mean as a column: a product a line, then the sum."""
    for line, (weight, number) in enumerate(zip(weights, numbers, strict=True)):
        sheet.text(
            x, y + 22 * line, f"{'+ ' if line else ''}{printed(weight)} · {factor(number)}", SOFT, "start"
        )
    sheet.text(x, y + 22 * len(weights), f"= {printed(total)}", INK, "start", bold=True)


# ---- the whole computation


def cat_whole(n: Numbers) -> Sheet:
    columns, right, likely = (60, 140, 220), 430, ("eine", "ein")
    looks, across = n.weights_2[1].tolist(), n.across[1, 0].tolist()
    shares = [n.probabilities[0, n.number[word]].item() for word in likely]
    sheet = Sheet(
        606,
        "A cat runs goes through the model. In the encoder, each word begins as a vector of four numbers; "
        f"cat looks mostly at {most(n.words, looks)}. Its vectors are the memory. In the decoder, start "
        f"looks mostly at {most(n.words, across)} in the memory, and its new vector is "
        f"{vector(n.states[0].tolist())}. The next word is to be {listed(likely, shares)}. The other steps "
        "are left out.",
    )
    sheet.text(140, 18, "encoder", SOFT, bold=True)
    sheet.text(right, 18, "decoder", SOFT, bold=True)
    for place, x in enumerate(columns):
        pale = place != 1
        sheet.chip(x, 50, n.words[place], strong=not pale)
        sheet.strip(x - CELL / 2, 72, n.x[place].tolist(), pale=pale)
        sheet.strip(x - CELL / 2, 256, n.memory[place].tolist(), pale=pale)
    sheet.fan(columns, 186, (columns[1], 256), looks, [0])
    sheet.chip(right, 50, START, strong=True)
    sheet.strip(right - CELL / 2, 72, n.y[0, 0].tolist())
    sheet.arrow((right, 186), (right, 470))
    sheet.fan(columns, 370, (right - CELL / 2, 470), across, [1])
    for x, y, kind in ((250, 208, "self-attention"), (60, 420, "cross-attention")):
        sheet.text(x, y, kind, SOFT, "start")
        sheet.text(x, y + 22, "… more steps", SOFT, "start")
    sheet.text(258, 312, "memory", SOFT, "start", bold=True)
    sheet.text(306, 486, "new vector of start", SOFT, "end")
    sheet.strip(right - 2 * CELL, 472, n.states[0].tolist(), lying=True)
    sheet.arrow((right, 504), (right, 530))
    for line, (word, share) in enumerate(zip(likely, shares, strict=True)):
        y = 550 + 36 * line
        sheet.chip(right - 100, y, word, strong=line == 0)
        sheet.bar(right - 62, y, share, 110, strong=line == 0)
        sheet.text(right + 56, y, printed(share), INK if line == 0 else SOFT, "start", bold=line == 0)
    return sheet


# ---- one word first


def cat_word(n: Numbers) -> Sheet:
    vectors, words, columns = n.embedded.tolist(), n.words, (200, 335, 470)
    scores = (n.embedded @ n.embedded[1]).tolist()
    weights = (n.embedded @ n.embedded[1]).softmax(dim=0).tolist()
    mean = [sum(w * v[i] for w, v in zip(weights, vectors, strict=True)) for i in range(4)]
    sheet = Sheet(
        478,
        "The vector of cat is compared with the vectors of a, cat and runs by dot products: "
        f"{listed(words, scores)}. A softmax turns them into weights: {listed(words, weights)}. The mean "
        f"of the three vectors with these weights is {vector(mean)}.",
    )
    sheet.mark(columns[1] - 34, 360, 68, 36)
    for place, x in enumerate(columns):
        sheet.chip(x, 24, words[place], strong=place == 1)
        sheet.strip(x - CELL / 2, 46, vectors[place])
        sheet.arrow((x, 162), (x, 182), color=PALE)
        sheet.text(x, 196, printed(scores[place]))
        sheet.arrow((x, 208), (x, 228), color=PALE)
        sheet.text(x, 242, printed(weights[place]), bold=place == 1)
    half = sheet.chip(50, 196, "cat", strong=True)
    sheet.text(50 + half + 12, 196, "·", bold=True)
    sheet.text(22, 242, "softmax", SOFT, "start")
    sheet.fan(columns, 256, (columns[1], 336), weights, [1])
    sheet.strip(columns[1] - CELL / 2, 336, mean, bold=1)
    sheet.chip(columns[1] - 70, 392, "cat", strong=True)
    sum_below(sheet, columns[1] + 46, 378, weights, [v[1] for v in vectors], mean[1])
    return sheet


def cat_position(n: Numbers) -> Sheet:
    columns = (130, 297, 464)
    rows = {46: n.embedded.tolist(), 198: n.positions.tolist(), 350: n.x.tolist()}
    sheet = Sheet(
        476,
        f"Embedding plus position is what enters the encoder. For cat: {vector(rows[46][1])} plus "
        f"{vector(rows[198][1])} is {vector(rows[350][1])}. Each pair of the position's numbers is the "
        "hand of a clock: the fast one turns by one radian a word, the slow one by a hundredth.",
    )
    for y in rows:
        sheet.mark(columns[1] - 34, y - 4, 68, 36)
    for y, label in {102: "embedding", 254: "position", 406: "x"}.items():
        sheet.text(94, y, label, anchor="end")
    for y, pace in {226: "fast", 282: "slow"}.items():
        sheet.text(columns[1] + 86, y, pace, anchor="start")
    for place, x in enumerate(columns):
        pale = place != 1
        sheet.chip(x, 24, n.words[place], strong=not pale)
        for y, vectors in rows.items():
            sheet.strip(x - CELL / 2, y, vectors[place], pale=pale, bold=None if pale else 0)
        sheet.text(x, 178, "+", SOFT, bold=True)
        sheet.text(x, 330, "=", SOFT, bold=True)
        sheet.text(x + 58, 178, f"pos {place}", SOFT if pale else INK)
        for pair in (0, 1):
            sine, cosine = rows[198][place][2 * pair : 2 * pair + 2]
            middle = (x + 58, 198 + ROW + 2 * ROW * pair)
            face = {"fill": PAPER, "stroke": PALE if pale else SOFT, "stroke_width": 1.4}
            sheet.shape("circle", cx=middle[0], cy=middle[1], r=22, **face)
            sheet.arrow(
                middle,
                (middle[0] + 21 * sine, middle[1] - 21 * cosine),
                color=SOFT if pale else INK,
                width=2.4,
            )
    return sheet


# ---- attention


def cat_roles(n: Numbers) -> Sheet:
    x = n.x[1].tolist()
    matrices = {
        "query": ("W^Q", n.wide_q[:, 2:]),
        "key": ("W^K", n.wide_k[:, 2:]),
        "value": ("W^V", n.wide_v[:, 2:]),
    }
    made = {role: (n.x[1] @ matrix).tolist() for role, (_, matrix) in matrices.items()}
    sheet = Sheet(
        322,
        f"Three matrices turn the vector of cat, {vector(x)}, into its query {vector(made['query'])}, its "
        f"key {vector(made['key'])} and its value {vector(made['value'])}. The first number of the query "
        f"is {dot(x, n.wide_q[:, 2].tolist())} = {printed(made['query'][0])}.",
    )
    sheet.chip(50, 24, "cat", strong=True)
    sheet.mark(112, 42, CELL + 4, 210)
    sheet.mark(16, 42, CELL + 8, 120)
    sheet.strip(22, 46, x)
    for left, (role, (name, matrix)) in zip((114, 270, 426), matrices.items(), strict=True):
        sheet.text(left + CELL, 24, name, ROLES[role], bold=True)
        sheet.matrix(left, 46, matrix.tolist(), role)
        for column in (0, 1):
            middle = left + CELL * (column + 0.5)
            sheet.arrow(
                (middle, 164), (middle, 216), color=ROLES[role] if role == "query" and not column else PALE
            )
        sheet.strip(left, 220, made[role], role, lying=True, bold=0 if role == "query" else None)
        sheet.text(left + CELL, 268, role, ROLES[role], bold=True)
    terms = dot(x, n.wide_q[:, 2].tolist()).replace(" · ", "·")
    sheet.text(280, 304, f"{terms} = {printed(made['query'][0])}")
    return sheet


def head_2(n: Numbers) -> tuple:
    """Return queries, keys, values, scores, weights and output of the encoder's second head."""
    q, k, v = (n.x @ wide[:, 2:] for wide in (n.wide_q, n.wide_k, n.wide_v))
    return (
        q,
        k,
        v,
        q @ k.T,
        (q @ k.T / math.sqrt(2)).softmax(dim=-1),
        (q @ k.T / math.sqrt(2)).softmax(dim=-1) @ v,
    )


def cat_scores(n: Numbers) -> Sheet:
    queries, keys, _, scores, weights, _ = head_2(n)
    q, k, scores, weights = queries[1].tolist(), keys.tolist(), scores[1].tolist(), weights[1].tolist()
    scaled = [score / math.sqrt(2) for score in scores]
    columns = (250, 370, 490)
    sheet = Sheet(
        416,
        f"The query of cat, {vector(q)}, times the keys of a, cat and runs gives the scores "
        f"{listed(n.words, scores)}. Divided by the square root of 2 they are "
        f"{', '.join(map(printed, scaled))}, and a softmax turns them into the weights "
        f"{', '.join(map(printed, weights))}: cat looks mostly at a.",
    )
    sheet.mark(columns[0] - 36, 42, 72, 326)
    sheet.chip(54, 122, "cat", strong=True)
    sheet.text(90, 122, "query", ROLES["query"], "start", bold=True)
    sheet.strip(28, 142, q, "query", lying=True)
    sheet.text(196, 74, "key", ROLES["key"], bold=True)
    for place, x in enumerate(columns):
        sheet.chip(x, 24, n.words[place])
        sheet.strip(x - CELL / 2, 46, k[place], "key")
        sheet.arrow((x, 106), (x, 140), color=SOFT if place == 0 else PALE)
        sheet.text(x, 156, printed(scores[place]), bold=place == 0)
        sheet.text(x, 194, printed(scaled[place]))
        sheet.bar(x, 342, weights[place], 110, place == 0, upright=True)
        sheet.text(x, 356, printed(weights[place]), bold=place == 0)
    sheet.arrow((144, 156), (210, 156), color=PALE)
    sheet.text(140, 194, "÷ √2", SOFT, "end")
    sheet.text(140, 286, "softmax", SOFT, "end")
    sheet.text(280, 396, f"{dot(q, k[0])} = {printed(scores[0])}")
    return sheet


def cat_mean(n: Numbers) -> Sheet:
    _, _, values, _, weights, output = head_2(n)
    v, weights, output, columns = values.tolist(), weights[1].tolist(), output[1].tolist(), (130, 280, 430)
    sheet = Sheet(
        336,
        f"The values of a, cat and runs, {vector(v[0])}, {vector(v[1])} and {vector(v[2])}, flow together "
        f"in lines as wide as the weights {listed(n.words, weights)}. Their weighted mean, "
        f"{vector(output)}, is what cat gets.",
        largest=1.2,
    )
    sheet.text(66, 74, "value", ROLES["value"], bold=True)
    for place, x in enumerate(columns):
        sheet.chip(x, 24, n.words[place])
        sheet.strip(x - CELL / 2, 46, v[place], "value", pale=place != 0)
        sheet.text(
            x + 40, 124, printed(weights[place]), INK if place == 0 else SOFT, "start", bold=place == 0
        )
    sheet.fan(columns, 104, (280, 226), weights, [0])
    sheet.mark(280 - 34, 222, 68, 36)
    sheet.strip(280 - CELL / 2, 226, output, "value", bold=0)
    sheet.chip(206, 254, "cat", strong=True)
    sum_below(sheet, 330, 240, weights, [value[0] for value in v], output[0])
    return sheet


def cat_rows(n: Numbers) -> Sheet:
    q, k, v, scores, weights, output = (matrix.tolist() for matrix in head_2(n))
    sheet = Sheet(
        404,
        "The queries of all words times the keys of all words is a matrix of nine scores. Divided by the "
        "square root of 2 and through a softmax, each row becomes the weights of one word, and the "
        "weights times the values are the outputs. The row of cat is the one that was computed alone: "
        f"scores {', '.join(map(printed, scores[1]))}, weights {', '.join(map(printed, weights[1]))}, "
        f"output {vector(output[1])}.",
        largest=1.8,
    )
    wide, left = 72, 250
    middles = [left + wide * (place + 0.5) for place in range(3)]
    sheet.text(134, 100, "Q", ROLES["query"], bold=True)
    sheet.text(left + 3 * wide + 26, 74, "K^T", ROLES["key"], bold=True)
    sheet.matrix(78, 116, q, "query", strong=1)
    for place, middle in enumerate(middles):
        sheet.chip(middle, 24, n.words[place])
        sheet.matrix(left + wide * place, 46, [[number] for number in k[place]], "key", width=wide)
    sheet.matrix(left, 116, scores, strong=1, width=wide)
    sheet.arrow((middles[1], 206), (middles[1], 236), (162, 236), (162, 264))
    sheet.text(middles[1] + 12, 224, "÷ √2, softmax", SOFT, "start")
    for top in (116, 268):
        for down, word in enumerate(n.words):
            sheet.chip(38, top + ROW * (down + 0.5), word, strong=down == 1, height=24)
    sheet.matrix(78, 268, weights, strong=1)
    sheet.text(78 + 1.5 * CELL, 374, "weights", SOFT)
    sheet.text(261, 310, "·", bold=True)
    sheet.matrix(276, 268, v, "value")
    sheet.text(276 + CELL, 374, "V", ROLES["value"], bold=True)
    sheet.text(409, 310, "=", bold=True)
    sheet.matrix(430, 268, output, "value", strong=1)
    sheet.text(430 + CELL, 374, "output", SOFT)
    return sheet


def cat_heads(n: Numbers) -> Sheet:
    heads = [((60, 140, 220), n.weights_1[1].tolist()), ((340, 420, 500), n.weights_2[1].tolist())]
    both, mixed = n.both[1].tolist(), (n.both @ n.w_o)[1].tolist()
    sheet = Sheet(
        424,
        f"In head 1 cat looks at {listed(n.words, heads[0][1])}, in head 2 at "
        f"{listed(n.words, heads[1][1])}. The two results, {vector(both[:2])} and {vector(both[2:])}, "
        f"stand side by side, and the matrix W^O turns the four numbers into {vector(mixed)}.",
        largest=1.0,
    )
    for number, (columns, weights) in enumerate(heads):
        middle, half = columns[1], both[2 * number : 2 * number + 2]
        sheet.text(middle, 18, f"head {number + 1}", bold=True)
        strongest = max(range(3), key=weights.__getitem__)
        sheet.fan(columns, 94, (middle, 180), weights, [strongest])
        for place, x in enumerate(columns):
            sheet.chip(x, 50, n.words[place])
            sheet.text(
                x, 80, printed(weights[place]), INK if place == strongest else SOFT, bold=place == strongest
            )
        sheet.strip(middle - CELL, 180, half, "value", lying=True)
        sheet.arrow((middle, 212), (224 + 112 * number, 260), color=ROLES["value"])
        sheet.strip(168 + 112 * number, 264, half, "value", lying=True)
    sheet.arrow((280, 298), (280, 352))
    sheet.text(292, 324, "W^O", SOFT, "start", bold=True)
    sheet.chip(110, 370, "cat", strong=True)
    sheet.strip(168, 356, mixed, lying=True)
    return sheet


# ---- the rest of a layer


def cat_residual(n: Numbers) -> Sheet:
    x, found = n.x[1].tolist(), n.attended[1].tolist()
    added, normed = n.added[1].tolist(), n.normed[1].tolist()
    mean, spread = n.added[1].mean().item(), n.added[1].std(correction=0).item()
    sheet = Sheet(
        388,
        f"The vector of cat, {vector(x)}, bypasses the attention, and what attention found, "
        f"{vector(found)}, is added: {vector(added)}. Its mean is {printed(mean)}, its standard deviation "
        f"{printed(spread)}; normalized it is {vector(normed)}, with mean 0 and standard deviation 1.",
    )
    sheet.chip(130, 24, "cat", strong=True)
    for y0, y1 in ((74, 164), (188, 218)):
        sheet.line((130, y0), (130, y1), color=ROLES["stream"], width=7)
    sheet.strip(18, 46, x, lying=True)
    sheet.arrow((130, 96), (420, 96), (420, 116))
    sheet.box(308, 116, 224, 28, "Multi-Head Attention")
    sheet.strip(308, 162, found, lying=True)
    sheet.arrow((306, 176), (146, 176))
    sheet.shape("circle", cx=130, cy=176, r=13, fill=PAPER, stroke=INK, stroke_width=2.4)
    sheet.text(130, 176, "+", bold=True)
    sheet.strip(18, 218, added, lying=True)
    sheet.arrow((130, 250), (130, 314))
    sheet.text(142, 280, "(x − μ) / σ", SOFT, "start", bold=True)
    sheet.strip(18, 318, normed, lying=True)
    sheet.arrow((248, 232), (302, 232))
    sheet.arrow((248, 332), (302, 332))
    number_line(sheet, 238, added, mean, spread, f"μ = {printed(mean)},  σ = {printed(spread)}")
    number_line(sheet, 338, normed, 0.0, 1.0, "μ = 0,  σ = 1")
    return sheet


def number_line(
    sheet: Sheet, y: float, numbers: Sequence[float], mean: float, spread: float, words: str
) -> None:
    """Draw numbers as dots on a line, with their mean and, as a mark, one standard deviation around it."""
    zero, unit = 420, 52
    middle = zero + unit * mean
    sheet.mark(middle - unit * spread, y - 15, 2 * unit * spread, 30)
    sheet.line((zero - 110, y), (zero + 110, y), color=PALE)
    sheet.line((zero, y - 6), (zero, y + 6))
    sheet.text(zero, y + 25, "0", SOFT)
    sheet.line((middle, y - 15), (middle, y + 15), color=INK, width=2.4)
    for number in numbers:
        sheet.shape("circle", cx=zero + unit * number, cy=y, r=5, fill=INK)
    sheet.text(zero, y - 27, words, SOFT)


def cat_network(n: Numbers) -> Sheet:
    x, before, after = n.normed[1].tolist(), (n.normed @ n.w_1)[1].tolist(), n.inner[1].tolist()
    made = (n.inner @ n.w_2)[1].tolist()
    sheet = Sheet(
        346,
        f"The vector of cat, {vector(x)}, becomes eight numbers, {vector(before)}. The ReLU sets the "
        f"negative ones to 0, and the other four become {vector(made)}.",
        largest=1.7,
    )
    sheet.chip(280, 22, "cat", strong=True)
    sheet.strip(168, 44, x, lying=True)
    sheet.shape("polygon", points="168,75 392,75 504,123 56,123", fill=PALE, fill_opacity=0.35)
    sheet.text(280, 99, "W_1", bold=True)
    sheet.text(8, 175, "ReLU", SOFT, "start", bold=True)
    for place, number in enumerate(before):
        left, on = 56 + CELL * place, number > 0
        sheet.cell(left, 126, number, pale=not on)
        sheet.cell(left, 196, after[place], pale=not on, bold=on)
        middle = left + CELL / 2
        if on:
            sheet.arrow((middle, 156), (middle, 194), color=INK, width=2)
        else:
            sheet.line((middle, 156), (middle, 174), color=PALE, width=1.6)
            sheet.line((middle - 9, 174), (middle + 9, 174), color=SOFT, width=2.4)
    sheet.frame(56, 126, 8, 1, "stream")
    sheet.frame(56, 196, 8, 1, "stream")
    sheet.shape("polygon", points="56,227 504,227 392,275 168,275", fill=PALE, fill_opacity=0.35)
    sheet.text(280, 251, "W_2", bold=True)
    sheet.strip(168, 278, made, lying=True)
    sheet.chip(280, 328, "cat", strong=True)
    return sheet


# ---- the decoder


def cat_shift(n: Numbers) -> Sheet:
    read, wanted, columns = n.german_read, [*n.german_read[1:], END], (140, 260, 380, 500)
    sheet = Sheet(
        262,
        "In training, the decoder reads start, eine, Katze, rennt, and at these four positions, all at once, "
        "it is to predict eine, Katze, rennt, end. An arrow leads from eine, predicted at start, to eine, "
        "read at the next position: the same word, one place later.",
    )
    sheet.text(44, 30, "reads", SOFT)
    sheet.text(44, 188, "predicts", SOFT)
    sheet.box(88, 92, 464, 36, "")
    sheet.text(540, 110, "decoder: in training, all at once", SOFT, "end")
    band = ((133, 172), (223, 54), (214, 48), (248, 46), (255, 79), (247, 73), (157, 190))
    sheet.shape("polygon", points=" ".join(f"{x},{y}" for x, y in band), fill=MARK)
    sheet.mark(88, 226, 274, 28)
    sheet.text(100, 240, "the same word, one place later", anchor="start")
    for place, x in enumerate(columns):
        sheet.arrow((x, 48), (x, 88), color=SOFT)
        sheet.arrow((x, 130), (x, 170), color=SOFT)
        sheet.chip(x, 30, read[place], strong=place == 1)
        sheet.chip(x, 188, wanted[place], strong=place == 0)
    return sheet


def cat_causal(n: Numbers) -> Sheet:
    read, wanted = n.german_read, [*n.german_read[1:], END]
    weights = n.looks[1].tolist()
    rows = (
        f"Row {SIGNS.get(token, token)}: {', '.join(map(printed, row[: place + 1]))}. "
        for place, (token, row) in enumerate(zip(read, weights, strict=True))
    )
    sheet = Sheet(
        288,
        "Each row is a token that the decoder reads, each column one that it may look at. "
        f"{''.join(rows)}The cells to the right of the diagonal are closed.",
    )
    wide, high, left, top = 80, 46, 96, 78
    for x, heading in ((48, "reads"), (left + 2 * wide, "may look at"), (500, "predicts")):
        sheet.text(x, 18, heading, SOFT)
    for place, token in enumerate(read):
        y = top + high * (place + 0.5)
        sheet.chip(48, y, token)
        sheet.chip(left + wide * (place + 0.5), 54, token)
        sheet.arrow((left + 4 * wide + 8, y), (left + 4 * wide + 34, y))
        sheet.chip(500, y, wanted[place], strong=True)
        for column, weight in enumerate(weights[place]):
            x, closed = left + wide * column, column > place
            cell = {"x": x + 1, "y": y - high / 2 + 1, "width": wide - 2, "height": high - 2}
            sheet.shape("rect", **cell, fill=PALE if closed else "none", stroke=PALE)
            if closed:
                sheet.line((x + 30, y - 10), (x + 50, y + 10), color=PAPER, width=3)
                sheet.line((x + 50, y - 10), (x + 30, y + 10), color=PAPER, width=3)
            else:
                sheet.text(x + wide / 2, y - 5, printed(weight), bold=weight > 0.5)
                if weight > 0.005:
                    sheet.shape("rect", x=x + 6, y=y + 9, width=(wide - 12) * weight, height=7, fill=INK)
    return sheet


def cat_cross(n: Numbers) -> Sheet:
    heads = [((60, 140, 220), n.across[0, 0].tolist()), ((340, 420, 500), n.across[1, 0].tolist())]
    likely = {word: n.probabilities[0, n.number[word]].item() for word in ("eine", "ein")}
    sheet = Sheet(
        424,
        "At the start of the sentence, the decoder looks at the English words: in head 1 at "
        f"{listed(n.words, heads[0][1])}, in head 2 at {listed(n.words, heads[1][1])}. "
        "From both, the rest of the decoder makes the first word: "
        f"{listed(likely, likely.values())}. The German for cat, Katze, is feminine and needs eine.",
    )
    sheet.text(280, 18, "cross-attention: start looks at", SOFT)
    for number, (columns, weights) in enumerate(heads):
        middle = columns[1]
        sheet.text(middle, 46, f"head {number + 1}", bold=True)
        strong = [place for place in range(3) if weights[place] > 0.4]
        sheet.fan(columns, 122, (middle, 214), weights, strong)
        for place, x in enumerate(columns):
            sheet.chip(x, 78, n.words[place])
            sheet.text(
                x, 108, printed(weights[place]), INK if place in strong else SOFT, bold=place in strong
            )
        sheet.chip(middle, 228, START)
        sheet.arrow((middle, 244), (middle, 268))
    sheet.box(60, 270, 440, 34, "the rest of the decoder")
    sheet.arrow((280, 304), (280, 330))
    genders = ("feminine, as Katze (cat)", "masculine or neuter")
    for line, ((word, share), gender) in enumerate(zip(likely.items(), genders, strict=True)):
        y, color = 352 + 40 * line, INK if line == 0 else SOFT
        sheet.chip(44, y, word, strong=line == 0)
        sheet.bar(92, y, share, 180, strong=line == 0)
        sheet.text(284, y, printed(share), color, "start", bold=line == 0)
        sheet.text(338, y, gender, color, "start")
    return sheet


def cat_hidden(n: Numbers) -> Sheet:
    articles = ("eine", "ein")
    likely = {case: n.hiding["cat", case][[1, 0]].tolist() for case in ("nothing", *n.words)}
    told = (f"with {case} hidden {listed(articles, pair)}" for case, pair in likely.items())
    sheet = Sheet(336, f"What the decoder may look at decides the article: {'; '.join(told)}.")
    for x, (case, pair) in zip((75, 212, 348, 485), likely.items(), strict=True):
        if case == "cat":
            sheet.mark(x - 64, 6, 128, 322)
        for line, word in enumerate(n.words):
            y = 28 + 38 * line
            half = sheet.chip(x, y, word, ghost=word == case)
            if word == case:
                sheet.line((x - half, y + 10), (x + half, y - 10), color=INK, width=3)
        sheet.arrow((x, 126), (x, 154))
        for side, word, share in zip((-30, 30), articles, pair, strict=True):
            strong = share == max(pair)
            sheet.bar(x + side, 286, share, 100, strong, upright=True)
            sheet.text(x + side, 172, printed(share), INK if strong else SOFT, bold=strong)
            sheet.text(x + side, 306, word, INK if strong else SOFT, bold=strong)
    return sheet


def cat_logits(n: Numbers) -> Sheet:
    state, words = n.states[0].tolist(), ["ein", "eine", "der", "die", "Katze", "rennt", END]
    rows = [n.table[n.number[word]].tolist() for word in words]
    logits = [n.logits[0, n.number[word]].item() for word in words]
    shares = [n.probabilities[0, n.number[word]].item() for word in words]
    sheet = Sheet(
        372,
        f"The vector that leaves the decoder, {vector(state)}, is compared with the rows of the table. The "
        "logits are "
        f"{listed(words, logits)}; a softmax turns them into probabilities: {listed(words, shares)}.".replace(
            END, "end"
        ),
        largest=5,
    )
    best = max(range(len(words)), key=shares.__getitem__)
    sheet.mark(10, 116 + 36 * best - 18, 540, 36)
    sheet.chip(52, 36, START)
    sheet.strip(100, 22, state, lying=True)
    sheet.text(212, 74, "·", bold=True)
    for column in range(4):
        middle = 100 + CELL * (column + 0.5)
        sheet.arrow((middle, 56), (middle, 92), color=PALE)
    sheet.text(372, 80, "logit", SOFT)
    sheet.text(460, 80, "softmax", SOFT)
    for line, word in enumerate(words):
        y, strong = 116 + 36 * line, line == best
        sheet.chip(52, y, word, strong=strong)
        sheet.strip(100, y - ROW / 2, rows[line], lying=True, pale=not strong)
        sheet.text(396, y, printed(logits[line]), INK if strong else SOFT, "end", bold=strong)
        sheet.bar(412, y, shares[line], 80, strong)
        sheet.text(546, y, printed(shares[line]), INK if strong else SOFT, "end", bold=strong)
    return sheet


def cat_decoding(n: Numbers) -> Sheet:
    tokens = [*n.german_read, END]
    shares, columns = n.p.tolist(), (104, 206, 308, 410, 512)
    sheet = Sheet(
        420,
        "The encoder reads a cat runs once. Then the decoder runs four times. At each step it reads start "
        "and all that it has written, and writes one token, with its probability: "
        f"{listed(tokens[1:], shares)}.",
    )
    for x, word in zip((60, 126, 200), n.words, strict=True):
        sheet.chip(x, 24, word)
    sheet.arrow((126, 42), (126, 62))
    sheet.box(20, 64, 220, 34, "encoder")
    sheet.line((34, 98), (34, 390), color=ROLES["stream"], width=7)
    for step in range(4):
        y = 150 + 76 * step
        sheet.arrow((34, y), (columns[0] - 36, y), color=ROLES["stream"], width=2.4)
        pill = {"x": columns[0] - 34, "y": y - 20, "width": columns[step] - columns[0] + 68, "height": 40}
        sheet.shape("rect", **pill, rx=20, fill=PALE, fill_opacity=0.35)
        for place in range(step + 1):
            sheet.chip(columns[place], y, tokens[place])
        sheet.arrow((columns[step] + 36, y), (columns[step + 1] - 36, y), color=INK, width=2.4)
        sheet.text(columns[step] + 51, y - 26, printed(shares[step]), SOFT)
        if step < 3:
            sheet.arrow((columns[step + 1], y + 16), (columns[step + 1], y + 54), color=INK, width=2.4)
        sheet.chip(columns[step + 1], y, tokens[step + 1], strong=True)
    return sheet


def cat_loss(n: Numbers) -> Sheet:
    tokens, columns = [*n.german_read[1:], END], (150, 260, 370, 480)
    shares = n.p.tolist()
    losses = [-math.log(share) for share in shares]
    mean = sum(losses) / len(losses)
    sheet = Sheet(
        368,
        f"The right tokens got the probabilities {listed(tokens, shares)}. Their losses, minus the "
        "logarithms, are "
        f"{listed(tokens, losses)}; the mean is {printed(mean)}.",
    )
    sheet.mark(columns[0] - 46, 6, 92, 326)
    sheet.text(24, 112, "p", bold=True, anchor="start")
    sheet.text(24, 262, "−log p", bold=True, anchor="start")
    for place, (x, share, loss) in enumerate(zip(columns, shares, losses, strict=True)):
        sheet.chip(x, 26, tokens[place], strong=place == 0)
        sheet.bar(x, 150, share, 100, place == 0, upright=True)
        sheet.text(x, 166, printed(share), bold=place == 0)
        sheet.arrow((x, 180), (x, 200), color=PALE)
        foot = {"x": x - 9, "y": 300 - 200 * loss, "width": 18, "height": 200 * loss}
        sheet.shape("rect", **foot, fill=INK if place == 0 else SOFT)
        sheet.text(x, 316, printed(loss), bold=place == 0)
    sheet.line((100, 300 - 200 * mean), (530, 300 - 200 * mean))
    sheet.text(514, 286 - 200 * mean, printed(mean), SOFT)
    sheet.text(280, 350, f"({' + '.join(map(printed, losses))}) / 4 = {printed(mean)}")
    return sheet


# ---- the training


def from_then_on(holds: Sequence[bool]) -> int:
    """Return the first place from which on something holds to the end."""
    return max((place + 1 for place, held in enumerate(holds) if not held), default=0)


def cat_learning(n: Numbers) -> Sheet:
    articles, likely, first, losses, right, looks = ("eine", "ein"), [], [], [], [], []
    for model in n.past:
        with torch.no_grad(), capture_attention(model) as attention:
            states = model(n.english, n.read, None, subsequent_mask(4))
            chances = model.generator(states)[2].exp()  # (4, vocabulary)
            own = model.generator(states).gather(-1, n.write.unsqueeze(-1))
        losses.append(-own.mean().item())
        likely.append([chances[0, n.number[word]].item() for word in articles])
        first.append(n.vocab[chances[0].argmax()])
        right.append(torch.equal(chances.argmax(dim=-1), n.write[2]))
        looks.append(attention["encoder", 0][2, 1, 1].tolist())
    last = len(n.past) - 1
    moments = [
        0,
        from_then_on([eine > ein for eine, ein in likely]),
        from_then_on(right),
        from_then_on([most(n.words, weights) == "a" for weights in looks]),
        last,
    ]
    columns, told = [106 + 100 * place for place in range(len(moments))], []
    left, top, high, wide = 72, 20, 84, 480  # of the curve
    sheet = Sheet(660, "", largest=2.0)
    curve = [
        (left + wide * update / last, top + high * (1 - loss / losses[0]))
        for update, loss in enumerate(losses)
    ]
    sheet.line((left, top + high), (left + wide, top + high), color=PALE)
    for update, x in zip(moments, columns, strict=True):
        sheet.line(curve[update], (x, 128), color=PALE, width=1.2)
    sheet.line(*curve, color=INK, width=2.4)
    labels = {60: "loss", 140: "update", 164: "loss", 229: "cat", 249: "looks", 318: "its", 338: "vector"}
    for y, words in (labels | {456: "first", 476: "word", 582: "writes"}).items():
        sheet.text(8, y, words, SOFT, "start")
    for update, x in zip(moments, columns, strict=True):
        model = n.past[update]
        memory = model.encode(n.cat_runs.unsqueeze(0), None)[0, 1].tolist()
        weights = looks[update]
        written = greedy_decode(model, n.cat_runs.unsqueeze(0), None, 7, n.number[START], n.number[END])[0]
        written = [n.vocab[token] for token in written[1:].tolist() if n.vocab[token] != END]
        sheet.shape("circle", cx=curve[update][0], cy=curve[update][1], r=5, fill=INK)
        sheet.text(x, 140, str(update), bold=True)
        sheet.text(x, 164, printed(losses[update]))
        names = [x - 36, x - 10, x + 28]
        if update:
            sheet.line((x - 48, 186), (x - 48, 522), color=PALE)
        for place, word in zip(names, n.words, strict=True):
            sheet.text(place, 196, word, SOFT)
        sheet.fan(names, 208, (x, 270), weights, [n.words.index(most(n.words, weights))])
        sheet.strip(x - CELL / 2, 272, memory)
        for side, word, share in zip((-22, 22), articles, likely[update], strict=True):
            strong = word == first[update]
            sheet.bar(x + side, 500, share, 70, strong, upright=True)
            sheet.text(x + side, 418, printed(share), INK if strong else SOFT, bold=strong)
            sheet.text(x + side, 516, word, INK if strong else SOFT, bold=strong)
        for line, word in enumerate(written[:3]):
            sheet.chip(x, 548 + 34 * line, word, strong=word == n.german_read[line + 1])
        if len(written) > 3:
            sheet.text(x, 644, "…")
        told.append(
            f"After {update} updates: loss {printed(losses[update])}, {listed(articles, likely[update])}; "
            f"cat looks mostly at {most(n.words, weights)}, and the model writes {' '.join(written)}."
        )
    sheet.words = "The tiny model learns. " + " ".join(told)
    return sheet


DRAWINGS: dict[str, Callable[[Numbers], Sheet]] = {
    name: draw for name, draw in globals().items() if name.startswith("cat_")
}
