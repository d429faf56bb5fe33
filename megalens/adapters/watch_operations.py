"""Operations of torch by what they do with features, by name."""

from __future__ import annotations


def _named(*names: str) -> frozenset[str]:
    return frozenset(name for each in names for name in each.split())


SAME = _named("clone alias detach contiguous lift_fresh _to_copy positive _conj _neg_view")
RESHAPES = _named("view _unsafe_view reshape _reshape_alias view_as reshape_as flatten unflatten")
MOVES = _named(
    "permute transpose t numpy_T mT mH adjoint movedim moveaxis swapaxes swapdims split split_with_sizes",
    "unsafe_split unsafe_split_with_sizes unsafe_chunk chunk tensor_split unbind select slice narrow expand",
    "squeeze unsqueeze diagonal unfold",
)
COPIES = _named("repeat index_select index gather roll flip take_along_dim")
JOINS = _named("cat stack concat hstack vstack")
NORMS = _named(
    "native_layer_norm native_group_norm _fused_rms_norm rms_norm native_batch_norm layer_norm group_norm",
    "_native_batch_norm_legit cudnn_batch_norm batch_norm normalize",
)
SOFTMAX = _named("_softmax softmax _safe_softmax _masked_softmax")
ATTENTION = "scaled_dot_product"
CHOICES = _named("topk sort argsort argmax max kthvalue")
"""What takes the largest of scores."""
TIMES = _named("mul div multiply divide true_divide")
SUMS = _named("add sub subtract rsub lerp addcmul where maximum minimum")
LINEAR_UNARY = _named("neg negative tril triu masked_fill clamp clamp_min clamp_max nan_to_num real imag")
UNARY = _named("hardswish rrelu_with_noise prelu _prelu_kernel log_sigmoid_forward")
"""Nonlinearities that torch does not call pointwise, or that take more than what goes through them."""
PRODUCTS = {
    **dict.fromkeys(("mm", "bmm", "matmul", "linear", "_scaled_mm", "_int_mm"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "_addmm_activation"), (1, 2)),
}
"""Which arguments are multiplied."""
EMPTY = _named(
    "empty_like zeros_like ones_like full_like new_empty new_zeros new_ones new_full rand_like randn_like",
    "bernoulli new_empty_strided",
)
PLAIN = EMPTY | _named(
    "mean sum amax amin max min topk sort argmax argsort var std var_mean cumsum norm linalg_vector_norm",
    "any all count_nonzero _log_softmax nll_loss_forward isnan isinf one_hot scatter cross_entropy_loss",
)
"""What sums up or chooses: what it gives are no features any more."""
NONLINEAR = _named(
    "silu gelu relu relu6 sigmoid tanh softplus mish hardswish hardsigmoid hardtanh leaky_relu elu celu selu",
    "exp erf prelu _prelu_kernel softmax pow squared log_sigmoid_forward rrelu_with_noise softsign",
)
"""What is noted of features that went through a nonlinearity."""
