"""BERT's forward pass as functions of tensors: ids → embeddings → layers → logits.

transformers' module launches some forty kernels a layer and casts each weight where it is used.
Here a layer is one function of its tensors, so that it is compiled once and serves all layers,
takes query, key and value as one product, and takes weights that somebody else has cast. The
arithmetic is that of transformers under autocast: products and dropout in the type of the weights,
LayerNorm and the sums around it in float32. Tests compare the two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import (
    dropout,
    embedding,
    layer_norm,
    linear,
    scaled_dot_product_attention,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

ALIGNED_ELEMENTS = 16

Joined = Tensor | tuple[Tensor, ...]  # along the first dimension; a tuple is yet to be joined
Leaf = Callable[[Sequence[nn.Parameter]], Any]


class LayerWeights(NamedTuple):
    """Tensors of one encoder layer; those of its products in one type, LayerNorm in float32."""

    qkv: Joined
    qkv_bias: Joined
    attention_output: Tensor
    attention_output_bias: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor
    attention_norm: Tensor
    attention_norm_bias: Tensor
    output_norm: Tensor
    output_norm_bias: Tensor

    def of_type(self, dtype: torch.dtype) -> LayerWeights:
        """Return them with those of products joined and cast; as they are if they are both."""
        return LayerWeights(*[_cast(w, dtype) for w in self[:8]], *self[8:])  # type: ignore[call-arg]


class BertWeights(NamedTuple):
    """All tensors of a BertForSequenceClassification."""

    embeddings: tuple[Tensor, ...]  # words, positions, types, LayerNorm weight and bias: float32
    layers: list[LayerWeights]
    head: tuple[Tensor, ...]  # pooler and classifier, weight and bias each


class Shape(NamedTuple):
    """What a layer is besides its tensors.

    Args:
        heads: Number of attention heads.
        epsilon: That of LayerNorm.
        activation: Between the two products of the feed-forward part.
        hidden_dropout: Of what is added to the residual, and of the embeddings.
        attention_dropout: Of attention probabilities.
        head_dropout: Of what the classifier gets.
        dtype: Type of the products.
        checkpointed: Whether layers are computed again in the backward pass.
        padding: Token id whose embedding gets no gradient, or None.
    """

    heads: int
    epsilon: float
    activation: Callable[[Tensor], Tensor]
    hidden_dropout: float
    attention_dropout: float
    head_dropout: float
    dtype: torch.dtype
    checkpointed: bool
    padding: int | None

    def without_dropout(self) -> Shape:
        """Return the shape for evaluation."""
        return self._replace(
            hidden_dropout=0.0, attention_dropout=0.0, head_dropout=0.0, checkpointed=False
        )


def as_they_are(parameters: Sequence[Tensor]) -> Any:
    """Return parameters for `weights_of` that are joined and cast where they are used."""
    return parameters[0] if len(parameters) == 1 else tuple(parameters)


def weights_of(network: Any, leaf: Leaf = as_they_are) -> BertWeights:
    """Gather the tensors of a network.

    Args:
        network: A BertForSequenceClassification.
        leaf: Parameters that are used as one → what is used.
    """
    bert = network.bert
    embeddings = bert.embeddings
    return BertWeights(
        tuple(
            leaf([parameter])
            for parameter in (
                embeddings.word_embeddings.weight,
                embeddings.position_embeddings.weight,
                embeddings.token_type_embeddings.weight,
                embeddings.LayerNorm.weight,
                embeddings.LayerNorm.bias,
            )
        ),
        [_layer_weights(layer, leaf) for layer in bert.encoder.layer],
        tuple(
            leaf([parameter])
            for module in (bert.pooler.dense, network.classifier)
            for parameter in (module.weight, module.bias)
        ),
    )


def _layer_weights(layer: Any, leaf: Leaf) -> LayerWeights:
    attention = layer.attention.self
    projections = (attention.query, attention.key, attention.value)
    products = (layer.attention.output.dense, layer.intermediate.dense, layer.output.dense)
    norms = (layer.attention.output.LayerNorm, layer.output.LayerNorm)
    return LayerWeights(
        leaf([projection.weight for projection in projections]),
        leaf([projection.bias for projection in projections]),
        *(leaf([p]) for module in (*products, *norms) for p in (module.weight, module.bias)),
    )


def product_parameters(network: Any) -> set[nn.Parameter]:
    """Return the weights and biases of products, which mixed precision takes in 16 bits."""
    modules = [m for m in network.modules() if isinstance(m, nn.Linear)]
    return {parameter for module in modules for parameter in module.parameters()}


def is_checkpointed(network: Any) -> bool:
    """Tell whether layers are computed again in the backward pass."""
    names = ("is_activation_checkpointing", "is_gradient_checkpointing")  # from 5.24 on, and before
    return bool(getattr(network, next(name for name in names if hasattr(type(network), name))))


def shape_of(network: Any, dtype: torch.dtype) -> Shape:
    """Read heads, dropouts and the like from a BertForSequenceClassification."""
    layer = network.bert.encoder.layer[0]
    return Shape(
        heads=network.config.num_attention_heads,
        epsilon=network.config.layer_norm_eps,
        activation=layer.intermediate.intermediate_act_fn,
        hidden_dropout=layer.output.dropout.p,
        attention_dropout=layer.attention.self.dropout.p,
        head_dropout=network.dropout.p,
        dtype=dtype,
        checkpointed=is_checkpointed(network),
        padding=network.bert.embeddings.word_embeddings.padding_idx,
    )


def embed(input_ids: Tensor, weights: tuple[Tensor, ...], shape: Shape) -> Tensor:
    """Return the sum of the embeddings, float32 of shape (B, T, H), for ids of shape (B, T)."""
    words, positions, types, norm, norm_bias = weights
    found = embedding(input_ids, words, shape.padding)
    summed = found + types[0] + positions[: input_ids.shape[1]]
    normed = layer_norm(summed, norm.shape, norm, norm_bias, shape.epsilon)
    return dropout(normed, shape.hidden_dropout)


def added_mask(attention_mask: Tensor, dtype: torch.dtype, positions: int) -> Tensor:
    """Return what is added to attention scores, shape (B, 1, T, T), for 1 and 0 of shape (B, T).

    Args:
        attention_mask: 1 for pieces and 0 for padding.
        dtype: Of the scores.
        positions: Most pieces a row.
    """
    rows, length = attention_mask.shape
    # rows lie as far apart as the longest would: kernels of attention want them aligned, and would
    # else be compiled once for lengths that are, and once for others that are copied first
    apart = -(-positions // ALIGNED_ELEMENTS) * ALIGNED_ELEMENTS
    mask = torch.zeros(rows, 1, 1, apart, dtype=dtype, device=attention_mask.device)[..., :length]
    # the lowest number instead of -inf: a row without pieces must give no NaN
    mask.masked_fill_(attention_mask[:, None, None, :] == 0, torch.finfo(dtype).min)
    return mask.expand(rows, 1, length, length)


def encoder_layer(
    hidden: Tensor, mask: Tensor | None, weights: LayerWeights, shape: Shape
) -> Tensor:
    """Return what a layer makes of ``hidden``, float32 of shape (B, T, H).

    Args:
        hidden: float32, shape (B, T, H).
        mask: Added to attention scores, in the type of the products, shape (B, 1, T, T); None
            where there is no padding.
        weights: Of the layer.
        shape: Of the layer.

    Returns:
        float32, shape (B, T, H).
    """
    if not shape.checkpointed:
        return _layer(hidden, mask, weights, shape)
    kept = []
    if shape.hidden_dropout:
        # drawn here, as torch 2.11 compiles no random numbers that are to be drawn again
        kept = [torch.rand_like(hidden) >= shape.hidden_dropout for _ in range(2)]
    result: Tensor = checkpoint(
        *(_layer, hidden, mask, weights, shape, *kept),
        use_reentrant=False,
        context_fn=functools.partial(create_selective_checkpoint_contexts, _keep_attention),
    )
    return result


def _layer(
    hidden: Tensor,
    mask: Tensor | None,
    weights: LayerWeights,
    shape: Shape,
    kept_of_attention: Tensor | None = None,
    kept_of_output: Tensor | None = None,
) -> Tensor:
    rows, length, width = hidden.shape
    weights = weights.of_type(shape.dtype)
    qkv: Any = linear(hidden.to(shape.dtype), cast(Any, weights.qkv), cast(Any, weights.qkv_bias))
    query, key, value = (
        qkv.view(rows, length, 3, shape.heads, width // shape.heads)
        .permute(2, 0, 3, 1, 4)
        .unbind(0)
    )
    mixed = scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=shape.attention_dropout
    )
    mixed = mixed.transpose(1, 2).reshape(rows, length, width)
    added = linear(mixed, weights.attention_output, weights.attention_output_bias)
    hidden = layer_norm(
        hidden + _dropped(added, shape.hidden_dropout, kept_of_attention),
        (width,),
        weights.attention_norm,
        weights.attention_norm_bias,
        shape.epsilon,
    )
    inner = shape.activation(linear(hidden.to(shape.dtype), weights.up, weights.up_bias))
    added = linear(inner, weights.down, weights.down_bias)
    return layer_norm(
        hidden + _dropped(added, shape.hidden_dropout, kept_of_output),
        (width,),
        weights.output_norm,
        weights.output_norm_bias,
        shape.epsilon,
    )


def _dropped(values: Tensor, probability: float, kept: Tensor | None) -> Tensor:
    """Return values after dropout; ``kept`` says which are kept where that is drawn already."""
    if kept is None:
        return dropout(values, probability)
    return torch.where(kept, values / (1 - probability), 0)


def _keep_attention(_context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    """Keep what attention gives, all else is computed again.

    It is small, and its kernels draw their own random numbers: a graph could not put these back.
    """
    is_attention = operator.name().startswith("aten::_scaled_dot_product")
    return CheckpointPolicy.MUST_SAVE if is_attention else CheckpointPolicy.PREFER_RECOMPUTE


def classify(hidden: Tensor, weights: tuple[Tensor, ...], shape: Shape) -> Tensor:
    """Return logits, float32 of shape (B, C), from the first position of ``hidden``."""
    pooler, pooler_bias, classifier, classifier_bias = (_cast(w, shape.dtype) for w in weights)
    pooled = torch.tanh(linear(hidden[:, 0].to(shape.dtype), pooler, pooler_bias))
    return linear(dropout(pooled, shape.head_dropout), classifier, classifier_bias).float()


class FunctionalBert:
    """The whole forward pass.

    Args:
        shape: Of all layers.
        compiled: Whether to compile embeddings, layer and head; each is compiled once, for all
            layers and any length.
    """

    def __init__(self, shape: Shape, compiled: bool) -> None:
        self.shape = shape
        self.compiled = compiled
        self._parts: list[Callable[..., Tensor]] = [embed, encoder_layer, classify]
        if compiled:
            self._parts = [torch.compile(part) for part in self._parts]

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        weights: BertWeights,
        training: bool = True,
    ) -> Tensor:
        """Return logits, float32 of shape (B, C).

        Args:
            input_ids: int64, shape (B, T).
            attention_mask: 1 for pieces and 0 for padding, shape (B, T); None where there is none.
            weights: On the device of the ids.
            training: Whether there is dropout.
        """
        embed_ids, layer, head = self._parts
        shape = self.shape if training else self.shape.without_dropout()
        mask = None
        if attention_mask is not None:
            mask = added_mask(attention_mask, shape.dtype, len(weights.embeddings[1]))
            mask = self._of_any_length(mask, 2, 3)
        hidden = embed_ids(self._of_any_length(input_ids, 1), weights.embeddings, shape)
        for layer_weights in weights.layers:
            hidden = layer(self._of_any_length(hidden, 1), mask, layer_weights, shape)
        return head(self._of_any_length(hidden, 1), weights.head, shape)

    def _of_any_length(self, tensor: Tensor, *dimensions: int) -> Tensor:
        """Say which dimensions vary; all others of all tensors are compiled in, which is faster."""
        if self.compiled:
            torch._dynamo.maybe_mark_dynamic(tensor, dimensions)
        return tensor


def _cast(weight: Joined, dtype: torch.dtype) -> Tensor:
    joined = torch.cat(weight) if isinstance(weight, tuple) else weight
    return joined.to(dtype)
