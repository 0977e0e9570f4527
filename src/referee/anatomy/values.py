"""Which values do arguments mostly have, by their names? What is tried when an operator's arguments are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SHAPES: tuple[tuple[int, ...], ...] = (
    (8,),
    (4, 4),
    (2, 4, 4),
    (2, 3, 8, 8),
    (),
    (1, 3, 8),
    (2, 3, 4, 4, 4),
    (1,),
    (4, 8),
)
"""In the order tried; small ones, because the cost of a call is asked for and not that of its arithmetic."""

DTYPES = ("float32", "int64", "bool", "complex64", "float64", "bfloat16")

INTS: Mapping[str, tuple[int, ...]] = {
    "dim": (0, -1, 1),
    "dim0": (0,),
    "dim1": (1, 0),
    "axis0": (0,),
    "axis1": (1,),
    "axis": (0,),
    "dim2": (1,),
    "k": (1,),
    "n": (4,),
    "m": (4,),
    "groups": (1,),
    "start": (0,),
    "end": (2,),
    "step": (1,),
    "index": (0,),
    "size": (2,),
    "length": (2,),
    "num_classes": (4, -1),
    "reduction": (1, 0),
    "padding_idx": (-1,),
    "diagonal": (0,),
    "num_samples": (1,),
    "window_length": (8,),
    "n_fft": (4,),
    "upscale_factor": (1,),
    "downscale_factor": (1,),
    "num_weights": (8,),
    "num_groups": (1,),
    "group": (1,),
    "N": (2,),
    "C": (3,),
    "HxW": (64, 8),
    "chunks": (2,),
    "sections": (2,),
    "split_size": (2,),
    "steps": (4,),
    "dimension": (0,),
    "max_size": (2,),
    "hidden_size": (4,),
    "num_heads": (1,),
    "num_head": (1,),
    "embed_dim": (4,),
}

INT_LISTS: Mapping[str, tuple[Sequence[int], ...]] = {
    "dim": ([0], [-1], [0, 1]),
    "kernel_size": ([2, 2], [2], [2, 2, 2]),
    "stride": ([1, 1], [1], [1, 1, 1], []),
    "padding": ([0, 0], [0], [0, 0, 0], [1, 1, 1, 1], [1, 1], [1, 1, 1, 1, 1, 1]),
    "output_padding": ([0, 0], [0], [0, 0, 0]),
    "dilation": ([1, 1], [1], [1, 1, 1]),
    "output_size": ([4, 4], [4], [4, 4, 4]),
    "pad": ([1, 1],),
    "shifts": ([1],),
    "repeats": ([1, 1, 1, 1, 1],),
    "dims": ([0], [1, 0], [0, 1], [2, 1, 0], [3, 2, 1, 0]),
    "split_sizes": ([4, 4], [2, 2], [1, 1]),
    "indices": ([2], [1]),
    "sections": ([2],),
    "source": ([0],),
    "destination": ([0],),
    "normalized_shape": ([8], [4], [4, 4]),
    "tile": ([1],),
}

FLOATS: Mapping[str, float] = {"eps": 1e-5, "p": 0.5, "momentum": 0.1, "std": 1.0, "mean": 0.0, "lambd": 0.5}

STRINGS: Mapping[str, tuple[str, ...]] = {
    "approximate": ("none",),
    "reduce": ("sum", "mean"),
    "mode": ("constant", "reduced", "mean"),
    "rounding_mode": ("floor",),
    "equation": ("ij,jk->ik", "i,i->i"),
    "padding": ("valid", "same"),
    "indexing": ("ij",),
    "UPLO": ("L",),
    "ord": ("fro", "nuc"),
    "side": ("left",),
    "interpolation": ("linear",),
    "driver": ("gels",),
    "reduction": ("mean",),
}

ENUMERATED = frozenset({"dtype", "layout", "memory_format"})
"""Integers to the schema, and not to be counted through: a layout of 1 is a sparse one."""

INDEX_NAMES = frozenset({"index", "indices", "offsets", "batch1_index", "idx", "positions", "lengths", "zero_points"})
MASK_NAMES = frozenset({"mask", "condition", "found_inf_mask"})

TRAINING_NAMES = frozenset({"train", "training"})
"""True first: outside of training a dropout does nothing."""

CLASS_LOSSES = ("nll_loss", "cross_entropy_loss", "multi_margin_loss", "multilabel_margin_loss")
"""Losses whose target names classes; other targets are what the input is held against, number by number."""
