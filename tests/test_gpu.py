"""What a GPU computes is what a CPU does; every test runs on the CPU too, which shows that it can pass."""

import pytest
import torch
from tiny_runs import make_trainer
from torch import Tensor, distributed as dist

from annotated.batches import Batch
from annotated.cpu_kernels import quick_dropout
from annotated.loss import LabelSmoothing, smoothed_cross_entropy
from annotated.transformer.attention import MultiHeadedAttention, attention
from annotated.transformer.model import EncoderDecoder, make_model
from annotated.translation.storage.model_folder import WEIGHTS
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.training.summed_loss import half_precision, rdrop_cross_entropy
from annotated.translation.translator import Translator

PAD = 2


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def model_and_batch() -> tuple[EncoderDecoder, Batch]:
    """A model without dropout, and four pairs of unlike lengths; the last source is padding alone."""
    src, tgt = torch.randint(3, 50, (4, 9)), torch.randint(3, 50, (4, 8))
    src[1, 4:], tgt[1, 6:], src[2, 7:], src[3] = PAD, PAD, PAD, PAD
    return make_model(50, 50, N=2, d_model=32, d_ff=64, h=4, dropout=0.0), Batch(src, tgt)


def loss_of(model: EncoderDecoder, batch: Batch) -> Tensor:
    """The label-smoothed loss, computed where the model is."""
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).flatten(0, 1)
    proj = model.generator.proj
    with torch.autocast(states.device.type, enabled=False):
        target = batch.tgt_y.flatten()
        return smoothed_cross_entropy(states.float(), proj.weight, proj.bias, target, 0.1, chunk=4096)


def gradients(model: EncoderDecoder) -> dict[str, Tensor]:
    return {name: parameter.grad.cpu() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [False, True])
def test_a_query_that_may_see_nothing_gets_zeros(device, dtype, training):
    module = MultiHeadedAttention(4, 32, dropout=0.1).to(device, dtype).train(training)
    x = torch.randn(
        2, 70, 32, device=device, dtype=dtype, requires_grad=True
    )  # too long for the readable form
    mask = torch.ones(2, 70, 70, dtype=torch.bool, device=device)
    mask[0, 3], mask[1] = False, False
    out = module(x, x, x, mask)
    nothing = module.linears[3].bias
    assert torch.equal(out[0, 3], nothing)
    assert torch.equal(out[1], nothing.expand(70, 32))
    assert not torch.equal(out[0, 4], nothing)
    out.float().square().sum().backward()
    assert x.grad.isfinite().all()
    assert not x.grad[1].any()  # nobody saw it, and it saw nobody


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_form_is_the_readable_one(device, dtype):
    module = MultiHeadedAttention(4, 32, dropout=0.0).to(device, dtype).eval()
    q, k, v = (torch.randn(2, 4, 70, 8, device=device, dtype=dtype) for _ in range(3))
    mask = torch.rand(2, 1, 70, 70, device=device) < 0.7
    mask[0, 0, 3] = False
    close = {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(module.attend(q, k, v, mask), attention(q, k, v, mask)[0], **close)


def test_the_model_and_its_gradients_are_those_of_the_cpu(device):
    model, batch = model_and_batch()
    expected = loss_of(model, batch)
    expected.backward()
    wanted = gradients(model)
    model.zero_grad()
    found = loss_of(model.to(device), batch.to(device))
    found.backward()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(
            gradient, wanted[name], rtol=1e-3, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_half_precision_is_near_and_keeps_the_weights_in_float32(device):
    model, batch = model_and_batch()
    model, batch = model.to(device), batch.to(device)
    full = loss_of(model, batch)
    with half_precision(torch.device(device)):
        half = loss_of(model, batch)
        half.backward()
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, full, rtol=0.02, atol=0)
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients(model).values())


@pytest.mark.parametrize("chunk", [7, 4096])
def test_the_losses_of_chunks_are_the_readable_ones(device, chunk):
    n, width, size = 5000 if chunk == 4096 else 20, 16, 40
    first, second = (torch.randn(n, width, device=device, requires_grad=True) for _ in range(2))
    weight, bias = torch.randn(size, width, device=device) / 4, torch.randn(size, device=device)
    target = torch.randint(size, (n,), device=device)
    criterion = LabelSmoothing(size, PAD, 0.1)
    logs = [(states @ weight.T + bias).log_softmax(-1) for states in (first, second)]
    readable = [criterion(log, target) for log in logs]
    fast = smoothed_cross_entropy(first, weight, bias, target, 0.1, PAD, chunk)
    torch.testing.assert_close(fast, readable[0], rtol=1e-4, atol=0)
    paired = rdrop_cross_entropy(first, second, weight, bias, target, 0.0, 0.1, PAD, chunk)
    torch.testing.assert_close(paired, sum(readable) / 2, rtol=1e-4, atol=0)
    for loss, expected in ((fast, readable[0]), (paired, sum(readable) / 2)):
        one, other = (torch.autograd.grad(x, first, retain_graph=True)[0] for x in (loss, expected))
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_training_with_the_fused_optimizer_is_that_of_the_cpu(device, tmp_path):
    settings = {"max_steps": 6, "model": {"dropout": 0.0}, "dtype": torch.float64}
    make_trainer(tmp_path / "cpu", **settings).fit()
    trainer = make_trainer(tmp_path / "there", device=device, **settings)
    assert trainer.optimizer.defaults["fused"]
    trainer.fit()
    assert next(trainer.model.parameters()).device.type == device
    expected = read_tensors(tmp_path / "cpu" / WEIGHTS)
    for name, tensor in read_tensors(tmp_path / "there" / WEIGHTS).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)


def test_one_rank_trains_as_no_group_does(device, tmp_path):
    """Gradients and losses go through the group's backend: NCCL on a GPU."""
    settings = {"max_steps": 4, "model": {"dropout": 0.0}, "dtype": torch.float64, "device": device}
    make_trainer(tmp_path / "alone", **settings).fit()
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        make_trainer(tmp_path / "group", **settings).fit()
    finally:
        dist.destroy_process_group()
    expected = read_tensors(tmp_path / "alone" / WEIGHTS)
    for name, tensor in read_tensors(tmp_path / "group" / WEIGHTS).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)


def test_translations_are_those_of_the_cpu(device):
    words = WordTokenizer([f"w{i}" for i in range(20)], None)
    model = make_model(24, 24, N=2, d_model=32, d_ff=64, h=4).double().eval()
    sentences = [" ".join(f"w{(i * j) % 20}" for j in range(i % 7 + 1)) for i in range(12)]
    expected = Translator(model, words, words).search(sentences, beam=3, n_best=3)
    found = Translator(model.to(device), words, words).search(sentences, beam=3, n_best=3)
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in expected]


def test_a_batch_comes_back_whole(device):
    src, tgt = torch.randint(3, 50, (64, 500)), torch.randint(3, 50, (64, 400))
    batch = Batch(src.clone(), tgt.clone()).to(device)
    assert batch.src_mask.device.type == device
    batch.to("cpu")
    assert torch.equal(batch.src, src)
    assert torch.equal(batch.tgt_y, tgt[:, 1:])


def test_dropout_drops_its_share(device):
    out = quick_dropout(torch.ones(100_000, device=device), 0.3)
    assert out.device.type == device
    assert abs((out == 0).double().mean().item() - 0.3) < 0.01
