"""Shape of a BERT, batch and precision → GPU memory of a training step, as an estimate."""

from __future__ import annotations

from typing import Any, NamedTuple

from bert_lightning.functional_bert import is_checkpointed

GIB = 2**30
REST_GIB = 0.29  # measured: workspaces of the libraries, temporaries of clipping and optimizer


class Memory(NamedTuple):
    """GiB on one device, at the peak of a step."""

    weights: float
    gradients: float
    adam: float
    activations: float
    rest: float

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self)


def training_memory(
    config: Any,
    weights: int,
    trained: int,
    positions: int,
    *,
    is_mixed: bool,
    is_checkpointed: bool = False,
    frozen_layers: int = 0,
    shards: int = 1,
    buckets: bool = False,
) -> Memory:
    """Estimate the peak of one step.

    A trained weight takes 16 bytes: itself, its gradient, two moments. Mixed precision adds 16-bit
    copies of the encoder's weights. What a layer keeps of one position for the backward pass, h
    wide, with f inside:

        float32  34 h + 8 f bytes: input of queries, keys, values 4 h, these 12 h, attention 4 h,
                 inputs of both LayerNorms 8 h, input of the first wide product 4 h, two dropout
                 masks 2 h, values before and after GELU 8 f
        mixed    26 h + 4 f bytes: the same in 16 bits, three casts of the first input, and
                 LayerNorm's inputs, which stay float32

    Embeddings keep 9 h, and the gradient of one layer's GELU is there at the peak. Attention keeps
    no matrix of positions × positions, as its fused kernels do not. Under gradient checkpointing
    each layer keeps its float32 input, 4 h, and one layer is there in full; compiled it keeps
    another 4 h, what attention gives and two masks, which is not in the estimate.

    Source: the count of Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
        Models", 2022, section 4, in the types that autocast gives. Within
        4 % of nine measured peaks of bert-base on an H200 (length 128, batch 16, 32, 256; float32,
        fp16, fp16 checkpointed), of which ``REST_GIB`` is taken.

    Args:
        config: Shape of the BERT.
        weights: Number of weights.
        trained: Those of them that are trained.
        positions: Rows × padded length of a batch on one device.
        is_mixed: Whether products are computed in 16 bits.
        is_checkpointed: Whether layers are computed again in the backward pass.
        frozen_layers: Layers, from the lowest, that keep nothing as they are not trained.
        shards: Devices that share weights, gradients and moments.
        buckets: Whether DDP keeps a second copy of the gradients.
    """
    wide, inside = config.hidden_size, config.intermediate_size
    layers = config.num_hidden_layers - frozen_layers
    layer = 26 * wide + 4 * inside if is_mixed else 34 * wide + 8 * inside
    kept = layers * 4 * wide + layer if is_checkpointed and layers else layers * layer
    kept += (2 if is_mixed else 4) * inside + (0 if frozen_layers else 9 * wide)
    embedded = (config.vocab_size + config.max_position_embeddings) * wide
    copies = 2 * max(0, weights - embedded) if is_mixed else 0
    return Memory(
        weights=(4 * weights / shards + copies) / GIB,
        gradients=(8 if buckets else 4) * trained / shards / GIB,
        adam=8 * trained / shards / GIB,
        activations=positions * kept / GIB,
        rest=REST_GIB,
    )


def memory_of(
    network: Any, positions: int, *, is_mixed: bool, shards: int = 1, buckets: bool = False
) -> Memory:
    """Estimate the peak of one step of a network.

    Args:
        network: A BertForSequenceClassification.
        positions: Rows × padded length of a batch on one device.
        is_mixed: Whether products are computed in 16 bits.
        shards: Devices that share weights, gradients and moments.
        buckets: Whether DDP keeps a second copy of the gradients.
    """
    parameters = list(network.parameters())
    layers = network.bert.encoder.layer
    frozen = [not any(p.requires_grad for p in layer.parameters()) for layer in layers]
    return training_memory(
        network.config,
        sum(p.numel() for p in parameters),
        sum(p.numel() for p in parameters if p.requires_grad),
        positions,
        is_mixed=is_mixed,
        is_checkpointed=is_checkpointed(network),
        frozen_layers=sum(frozen),
        shards=shards,
        buckets=buckets,
    )
