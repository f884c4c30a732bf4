"""Mixtures of experts by kernels, which need Triton."""

from dataclasses import dataclass

from torch import Tensor

from services.common.kernels.experts.alone.kernel import mix_alone, shape_alone
from services.common.kernels.experts.kernel import (
    BesideNorms,
    ExpertStack,
    Rating,
    Routes,
    combine,
    combine_beside,
    multiply_experts,
    route,
)
from services.common.kernels.linear import Normed, linear, linear_gated, linear_normed
from services.common.kernels.linear.kernel import engine_of
from services.common.model.spec import Beside, Experts, StackSpec
from services.common.model.weights.ffn_weights import BesideWeights, ExpertWeights


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts, and a part that all rows take where there is one."""

    weights: ExpertWeights
    experts: Experts
    spec: StackSpec

    def __call__(
        self, normed: Normed, stream_TD: Tensor, next_norm_D: Tensor, squares_T: Tensor, live_T: Tensor | None
    ) -> tuple[Normed, Tensor]:
        """Rows that are padding get no expert; results are added by rank, with the stream, in one launch.

        A row that is alone is mixed by one launch behind the router's, where that is served.
        """
        own, experts, eps = self.weights, self.experts, self.spec.norm_eps
        gates_TF = linear_normed(normed, own.router_FD, eps)
        early = engine_of(normed.rows_TD, own.router_FD).earlier_is_complete
        stack, rating = _stack_of(own), _rating_of(own, experts)
        shape = None
        if (own.shared is None or stack.followed) and not experts.gelu:
            shape = shape_alone(normed, gates_TF, stack, rating, experts.count, experts.top_k, experts.renorm)
        if shape is not None:
            ends = stream_TD, next_norm_D, squares_T, eps, self.spec.norm_offset
            gated = own.shared is not None and experts.shared_gated
            return mix_alone(normed, gates_TF, live_T, stack, rating, shape, own.uses_E, *ends, gated, early)
        routes = _routed(gates_TF, live_T, own, experts, early)
        parts_TKD = multiply_experts(normed, routes, stack, eps, gelu=experts.gelu)
        shared_TD = None
        if parts_TKD.shape[1] > experts.top_k:
            shared_TD = parts_TKD[:, experts.top_k]
        elif own.shared is not None:
            shared_TD = linear(linear_gated(normed, own.shared.gate_up_FD, eps, experts.gelu), own.shared.down_DF)
        gate_T = gates_TF[:, experts.count] if own.shared is not None and experts.shared_gated else None
        return combine(
            parts_TKD, routes, shared_TD, gate_T, stream_TD, next_norm_D, squares_T, eps, self.spec.norm_offset
        )


@dataclass(frozen=True)
class BesideMixture:
    """A dense part, and a mixture that takes the stream by a norm of its own; results are normalised, and their sum."""

    weights: BesideWeights
    record: Beside
    spec: StackSpec
    own_norm_D: Tensor
    scale_1: Tensor | None

    def __call__(
        self, normed: Normed, stream_TD: Tensor, next_norm_D: Tensor, squares_T: Tensor, live_T: Tensor | None
    ) -> tuple[Normed, Tensor]:
        """The stream handed in is left as it is. All that its norms differ in are weights, none for the router."""
        own, eps, offset = self.weights, self.spec.norm_eps, self.spec.norm_offset
        dense, experts = self.record.dense, self.record.experts
        dense_TD = linear(linear_gated(normed, own.dense.gate_up_FD, eps, dense.gelu), own.dense.down_DF)
        gates_TF = linear_normed(Normed(stream_TD, normed.squares_T), own.experts.router_FD, eps)
        routes, stack = _routed(gates_TF, live_T, own.experts, experts), _stack_of(own.experts)
        into = Normed(stream_TD * (own.into_norm_D + offset if offset else own.into_norm_D), normed.squares_T)
        parts_TKD = multiply_experts(into, routes, stack, eps, gelu=experts.gelu)
        norms = BesideNorms(own.mixed_norm_D, own.dense_norm_D, self.own_norm_D, next_norm_D)
        return combine_beside(parts_TKD, routes, dense_TD, stream_TD, norms, squares_T, eps, offset, self.scale_1)


def _routed(
    gates_TF: Tensor, live_T: Tensor | None, own: ExpertWeights, experts: Experts, early: bool = False
) -> Routes:
    """Return which experts rows take; `early`: what is older than gates is complete by then."""
    rating, followed = _rating_of(own, experts), _stack_of(own).followed
    return route(gates_TF, live_T, experts.count, experts.top_k, experts.renorm, own.uses_E, rating, followed, early)


def _rating_of(own: ExpertWeights, experts: Experts) -> Rating:
    return Rating(own.bias_E, own.scale_E, experts.cap, experts.factor)


def _stack_of(own: ExpertWeights) -> ExpertStack:
    """Return where the experts lie."""
    at_2E = None if own.cold is None else own.cold.at_2E
    return ExpertStack(own.gate_up_EFD, own.down_EDF, at_2E, own.followed, own.scales)
