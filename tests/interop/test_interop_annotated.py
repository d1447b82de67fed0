"""Checkpoints of the Annotated Transformer, against its model's formulas stated anew on the bare tensors."""

import math

import pytest
import torch
from interop_models import Bomb

from annotated.interop import from_annotated
from annotated.search.greedy import greedy_decode
from annotated.transformer.attention import padding_mask, subsequent_mask
from annotated.transformer.positions import sinusoids

N, D, D_FF, H, SRC_VOCAB, TGT_VOCAB = 2, 12, 20, 3, 9, 11


def names_and_shapes():
    """Every parameter of that model, as its code names them."""
    for side, size in (("src", SRC_VOCAB), ("tgt", TGT_VOCAB)):
        yield f"{side}_embed.0.lut.weight", (size, D)
    yield from {"generator.proj.weight": (TGT_VOCAB, D), "generator.proj.bias": (TGT_VOCAB,)}.items()
    for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "src_attn"])):
        norms = [f"{stack}.norm"]
        for i in range(N):
            layer = f"{stack}.layers.{i}"
            for linear in [f"{layer}.{a}.linears.{j}" for a in attentions for j in range(4)]:
                yield from {f"{linear}.weight": (D, D), f"{linear}.bias": (D,)}.items()
            for k, (rows, columns) in enumerate(((D_FF, D), (D, D_FF)), start=1):
                yield f"{layer}.feed_forward.w_{k}.weight", (rows, columns)
                yield f"{layer}.feed_forward.w_{k}.bias", (rows,)
            norms += [f"{layer}.sublayer.{j}.norm" for j in range(len(attentions) + 1)]
        for norm in norms:
            yield from {f"{norm}.a_2": (D,), f"{norm}.b_2": (D,)}.items()


@pytest.fixture
def state():
    torch.manual_seed(0)
    tensors = {name: torch.randn(shape) * 0.4 for name, shape in names_and_shapes()}
    for name, tensor in tensors.items():
        if name.endswith("a_2"):
            tensor += 1
    position, i = torch.arange(50.0).unsqueeze(1), torch.arange(0.0, D, 2)
    waves = torch.zeros(1, 50, D)  # in float32, as that code takes them
    waves[0, :, 0::2] = torch.sin(position * torch.exp(i * -(math.log(10000.0) / D)))
    waves[0, :, 1::2] = torch.cos(position * torch.exp(i * -(math.log(10000.0) / D)))
    return tensors | {"src_embed.1.pe": waves, "tgt_embed.1.pe": waves.clone()}


class Formulas:
    """That model, written down as formulas over its state_dict."""

    def __init__(self, state, h):
        self.state, self.h = {name: tensor.double() for name, tensor in state.items()}, h

    def linear(self, x, name):
        return x @ self.state[f"{name}.weight"].T + self.state[f"{name}.bias"]

    def norm(self, x, name):
        deviation = ((x - x.mean(-1, True)) ** 2).sum(-1, True).div(x.size(-1) - 1).sqrt()
        return (
            self.state[f"{name}.a_2"] * (x - x.mean(-1, True)) / (deviation + 1e-6)
            + self.state[f"{name}.b_2"]
        )

    def attend(self, x, memory, mask, name):
        q, k, v = (
            self.linear(y, f"{name}.linears.{j}").reshape(len(y), -1, self.h, D // self.h)
            for j, y in enumerate((x, memory, memory))
        )
        scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(D // self.h)
        weights = torch.softmax(scores + torch.where(mask[:, None], 0.0, -1e9), -1)
        return self.linear(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2), f"{name}.linears.3")

    def embed(self, tokens, side):
        waves = self.state[f"{side}_embed.1.pe"][:, : tokens.size(1)]
        return self.state[f"{side}_embed.0.lut.weight"][tokens] * math.sqrt(D) + waves

    def stack(self, x, name, attentions):
        for i in range(N):
            layer = f"{name}.layers.{i}"
            for j, (attention, memory, mask) in enumerate(attentions):
                y = self.norm(x, f"{layer}.sublayer.{j}.norm")
                x = x + self.attend(y, y if memory is None else memory, mask, f"{layer}.{attention}")
            y = self.norm(x, f"{layer}.sublayer.{len(attentions)}.norm")
            x = x + self.linear(
                self.linear(y, f"{layer}.feed_forward.w_1").relu(), f"{layer}.feed_forward.w_2"
            )
        return self.norm(x, f"{name}.norm")

    def __call__(self, src, tgt, src_mask, tgt_mask):
        memory = self.stack(self.embed(src, "src"), "encoder", [("self_attn", None, src_mask)])
        attentions = [("self_attn", None, tgt_mask), ("src_attn", memory, src_mask)]
        states = self.stack(self.embed(tgt, "tgt"), "decoder", attentions)
        return torch.log_softmax(self.linear(states, "generator.proj"), -1)


def batch():
    src = torch.tensor([[0, 4, 5, 8, 1], [0, 6, 1, 2, 2]])
    tgt = torch.tensor([[0, 10, 5, 6], [0, 7, 8, 9]])
    return src, tgt, padding_mask(src, 2), subsequent_mask(4)


def log_probs(model, *inputs):
    with torch.no_grad():
        return model.generator(model(*inputs)).double()


@pytest.mark.parametrize("h", [1, 3])
def test_it_computes_what_that_model_does(state, h):
    model = from_annotated(state, h=h)
    torch.testing.assert_close(log_probs(model, *batch()), Formulas(state, h)(*batch()), atol=1e-4, rtol=0)


def test_a_tensor_that_is_missing_is_named(state):
    embeddings = {name: tensor for name, tensor in state.items() if "embed" in name}
    with pytest.raises(KeyError, match=r"encoder\.layers\.0\."):
        from_annotated(embeddings)


def test_a_pickle_is_never_opened(tmp_path):
    torch.save({"weight": Bomb(tmp_path / "exploded")}, tmp_path / "bomb.pt")
    with pytest.raises(ValueError, match="is not a file of tensors"):
        from_annotated(tmp_path / "bomb.pt")
    assert not (tmp_path / "exploded").exists()
    torch.load(tmp_path / "bomb.pt", weights_only=False)
    assert (tmp_path / "exploded").exists()  # the bomb does work


@pytest.mark.parametrize("cut", [0, 5, 1000, -1])
def test_a_damaged_file_is_named(state, tmp_path, cut):
    torch.save(state, tmp_path / "cut.pt")
    content = (tmp_path / "cut.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(content[:cut])
    with pytest.raises(ValueError, match=r"cut\.pt is not a file of tensors"):
        from_annotated(tmp_path / "cut.pt")


def test_a_flipped_bit_is_damage(state, tmp_path):
    path = tmp_path / "bit.pt"
    torch.save(state, path)
    content = bytearray(path.read_bytes())
    content[content.index(state[NAMES[0]].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bit\.pt is damaged"):
        from_annotated(path, h=3)


def test_tensors_that_claim_more_than_the_file_holds(state, tmp_path):
    torch.save(state | {"src_embed.0.lut.weight": torch.zeros(1, D).expand(10**9, D)}, tmp_path / "wide.pt")
    with pytest.raises(ValueError, match="more than the file holds"):
        from_annotated(tmp_path / "wide.pt", h=3)


def test_a_file_of_before_archives_is_read(state, tmp_path):
    """As PyTorch of 2018 wrote it; embeddings that are one tensor stand in it once."""
    state["tgt_embed.0.lut.weight"] = state["generator.proj.weight"]
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    model = from_annotated(tmp_path / "old.pt", h=3)
    torch.testing.assert_close(log_probs(model, *batch()), log_probs(from_annotated(state, h=3), *batch()))


NAMES = [name for name, _ in names_and_shapes()]


@pytest.mark.parametrize("name", [NAMES[0], NAMES[4], NAMES[-1], "src_embed.1.pe"])
def test_a_missing_tensor_is_named(state, name):
    del state[name]
    with pytest.raises((ValueError, KeyError), match=name):
        from_annotated(state, h=3)


def test_positions_that_are_no_sinusoids_are_refused(state):
    state["tgt_embed.1.pe"] = torch.zeros(1, 50, D)
    for wrong in (state["tgt_embed.1.pe"], torch.zeros(0, 50, D), sinusoids(50, D + 1)[None]):
        with pytest.raises(ValueError, match=r"tgt_embed\.1\.pe does not hold the sinusoids"):
            from_annotated(state | {"tgt_embed.1.pe": wrong}, h=3)


def test_tokens_keep_their_numbers(state, tmp_path):
    torch.save(state, tmp_path / "model.pt")
    model, (src, _, mask, _) = from_annotated(tmp_path / "model.pt", h=3), batch()
    found = greedy_decode(model, src, mask, max_len=4, start_symbol=3)
    tgt = torch.full((2, 1), 3)
    for _ in range(3):
        scores = Formulas(state, 3)(src, tgt, mask, subsequent_mask(tgt.size(1)))
        tgt = torch.cat([tgt, scores[:, -1:].argmax(-1)], dim=1)
    assert found.tolist() == tgt.tolist()
