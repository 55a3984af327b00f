from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch

from services.trainer.batch import Answer, Micro, Unit, pack, padded, split
from services.trainer.learner import Hyper, Learner
from services.trainer.loss import Clip, policy_loss, token_logprobs

if TYPE_CHECKING:
    from services.trainer.model import LanguageModel

Make = Callable[[int], list[Unit]]


def loss_and_gradient(model: LanguageModel, micros: list[Micro], tokens: int) -> tuple[float, torch.Tensor]:
    model.module.zero_grad()
    total = 0.0
    for micro in micros:
        logp, _ = token_logprobs(model.logits(micro), micro.targets, micro.temperature)
        loss = policy_loss(logp, micro.mu, micro.advantage, tokens, Clip()).loss
        torch.autograd.backward(loss)
        total += float(loss.detach())
    return total, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_loss_and_gradient_do_not_depend_on_packing_order_or_micro_batches(
    model: LanguageModel, make_units: Make
) -> None:
    units = make_units(3)
    tokens = sum(unit.trained for unit in units)
    shuffled = random.Random(0).sample(units, len(units))
    loss, gradient = loss_and_gradient(model, padded(units), tokens)
    assert gradient.abs().max() > 1e-3
    for micros in (
        pack(units, 4096),
        pack(shuffled, 4096),
        pack(units, 40),
        pack(units, 7),
        [micro for unit in units for micro in pack([unit], 64)],
    ):
        other, other_gradient = loss_and_gradient(model, micros, tokens)
        assert other == pytest.approx(loss, abs=1e-5)
        assert torch.allclose(other_gradient, gradient, atol=1e-5)


def test_logprobs_are_those_of_the_plain_model(model: LanguageModel, make_units: Make) -> None:
    unit = make_units(5)[0]
    micro = pack([unit], 4096)[0]
    logp, _ = token_logprobs(model.logits(micro), micro.targets, micro.temperature)
    expected = []
    for answer in unit.answers:
        ids = torch.tensor([[*unit.prompt, *answer.tokens]])
        logits = torch.log_softmax(model.module(input_ids=ids).logits[0] / unit.temperature, -1)
        start = len(unit.prompt) - 1
        expected += [
            float(logits[start + place, token].detach()) for place, token in enumerate(answer.tokens)
        ]
    assert logp.tolist() == pytest.approx(expected, abs=1e-5)


def test_every_token_is_trained_once_and_rows_keep_their_limit(make_units: Make) -> None:
    units = make_units(9)
    for limit in (20, 60, 4096):
        micros = pack(units, limit)
        trained = sorted(
            (int(t), float(m)) for micro in micros for t, m in zip(micro.targets, micro.mu, strict=True)
        )
        wanted = sorted(
            (token, torch.tensor(mu).item())
            for unit in units
            for answer in unit.answers
            for token, mu in zip(answer.tokens, answer.mu, strict=True)
        )
        assert trained == wanted
        longest = max(part.length for unit in units for part in split(unit, limit))
        assert all(micro.input_ids.numel() <= max(limit, longest) for micro in micros)


def test_a_row_holds_several_groups_that_do_not_see_each_other(make_units: Make) -> None:
    units = make_units(2)
    long = msgspec.structs.replace(units[0], prompt=tuple(range(50)))
    micro = pack([long, *units[1:]], 4096)[0]
    assert micro.input_ids.shape[0] < len(units)
    assert bool(micro.mask.any(-1).all()), "a query without any key would be NaN"
    starts = (micro.position_ids[:, 1:] == 0).sum()
    assert int(starts) > 0


def test_clip_and_truncation_take_effect_on_the_right_side() -> None:
    mu = torch.tensor([-1.0, -1.0, -1.0, -5.0])
    prox = torch.tensor([-1.0, -1.0, -1.0, -1.0])
    logp = torch.tensor([-0.5, -0.5, -1.5, -1.0], requires_grad=True)  # Ratios e^0.5, e^0.5, e^-0.5, 1.
    advantage = torch.tensor([1.0, -1.0, -1.0, 1.0])
    terms = policy_loss(logp, mu, advantage, 4, Clip(low=0.2, high=0.28, cap=2.0), prox=prox)
    torch.autograd.backward(terms.loss)
    assert terms.clipped.tolist() == [True, False, True, False]
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([0.0, 2.718281828**0.5 / 4, 0.0, -2.0 / 4], abs=1e-6)


def test_one_minibatch_needs_no_proximal_pass_and_zero_tokens_are_refused() -> None:
    logp = torch.tensor([-1.0], requires_grad=True)
    terms = policy_loss(logp, torch.tensor([-1.0]), torch.tensor([3.0]), 2, Clip())
    torch.autograd.backward(terms.loss)
    assert float(terms.loss.detach()) == -1.5
    assert logp.grad is not None
    assert logp.grad.item() == -1.5
    with pytest.raises(ValueError, match="at least one"):
        policy_loss(logp, torch.tensor([-1.0]), torch.tensor([3.0]), 0, Clip())


def test_groups_without_advantage_dilute_the_mean_and_cost_nothing_else(
    make_units: Make, make_model: Callable[[], LanguageModel]
) -> None:
    def step(units: list[Unit]) -> tuple[float, float]:
        learned = Learner(make_model(), Hyper(), seed=1).step(units, 1e-3)
        return learned.loss, learned.grad_norm

    units = make_units(4)
    silent = Unit(prompt=(1, 2), answers=(Answer(tokens=(3,) * 20, mu=(-4.0,) * 20, advantage=0.0),))
    (loss, norm), (diluted, less) = step(units), step([*units, silent])
    tokens = sum(unit.trained for unit in units)
    assert diluted == pytest.approx(loss * tokens / (tokens + 20), rel=1e-4)
    assert less == pytest.approx(norm * tokens / (tokens + 20), rel=1e-4)


def test_nothing_to_learn_leaves_the_weights_alone(model: LanguageModel) -> None:
    before = [weight.clone() for weight in model.parameters()]
    learned = Learner(model, Hyper(), seed=1).step(
        [Unit(prompt=(1,), answers=(Answer(tokens=(2, 3), mu=(-1.0, -1.0), advantage=0.0),))], 1e-2
    )
    assert learned.gradient_steps == 0
    assert learned.tokens == 2
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_gradient_that_is_not_finite_is_left_out(model: LanguageModel, make_units: Make) -> None:
    before = [weight.clone() for weight in model.parameters()]
    units = [msgspec.structs.replace(unit, temperature=float("nan")) for unit in make_units(1)]
    assert Learner(model, Hyper(), seed=1).step(units, 1e-2).skipped == 1
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_minibatches_take_several_steps_against_the_first_policy(
    model: LanguageModel, make_units: Make
) -> None:
    learned = Learner(model, Hyper(minibatches=2), seed=1).step(make_units(6), 5e-2)
    assert learned.gradient_steps == 2
    assert learned.tokens == sum(unit.trained for unit in make_units(6))
