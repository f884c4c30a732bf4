"""A mixture of experts by kernels, which need Triton."""

from dataclasses import dataclass

from torch import Tensor

from services.common.kernels.experts.kernel import ExpertStack, combine, multiply_experts, route
from services.common.kernels.linear import Normed, linear, linear_gated, linear_normed
from services.common.model.spec import Experts, StackSpec
from services.common.model.weights.ffn_weights import ExpertWeights


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts, and a part that all rows take where there is one."""

    weights: ExpertWeights
    experts: Experts
    spec: StackSpec

    def __call__(
        self, normed: Normed, stream_TD: Tensor, next_norm_D: Tensor, squares_T: Tensor, live_T: Tensor | None
    ) -> tuple[Normed, Tensor]:
        """Rows that are padding get no expert; results are added by rank, with the stream, in one launch."""
        own, experts, eps = self.weights, self.experts, self.spec.norm_eps
        gates_TF = linear_normed(normed, own.router_FD, eps)
        routes = route(gates_TF, live_T, experts.count, experts.top_k, experts.renorm, own.uses_E)
        at_2E = None if own.cold is None else own.cold.at_2E
        parts_TKD = multiply_experts(normed, routes, ExpertStack(own.gate_up_EFD, own.down_EDF, at_2E), eps)
        shared_TD = None
        if own.shared is not None:
            shared_TD = linear(linear_gated(normed, own.shared.gate_up_FD, eps), own.shared.down_DF)
        gate_T = None if shared_TD is None else gates_TF[:, experts.count]
        return combine(
            parts_TKD, routes, shared_TD, gate_T, stream_TD, next_norm_D, squares_T, eps, self.spec.norm_offset
        )
