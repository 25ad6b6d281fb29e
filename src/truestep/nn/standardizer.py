# SPDX-License-Identifier: Apache-2.0
"""Mean 0 and standard deviation 1 for each feature, from data that comes in pieces."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from truestep.core.errors import OptionError, check_choice
from truestep.core.missing_attribute_hints import HelpfulAttributes
from truestep.core.text_formatting import a_type
from truestep.nn import streaming_moments
from truestep.nn.streaming_moments import RunningMoments

Array = TypeVar("Array", Tensor, NDArray[Any])


class Standardizer(HelpfulAttributes):
    """Learn mean and standard deviation of each feature from chunks of data, and standardise with them.

    Equal to scikit-learn's `StandardScaler` where that is exact; independent of chunk sizes, of their order and of how parts
    are merged; exact also where the mean is far larger than the spread. Fit it on training data only: whatever it sees
    of the test data leaks into training.

    Args:
        feature_axis: the axis, or axes, that tell features apart; all others are observations. Channels of (batch, channels,
            height, width) are `-3`, which fits a single image too. None: one mean and deviation for everything.
        nan: "refuse" raises; "omit" leaves NaN out of the statistics, feature by feature. `transform` keeps NaN.
    """

    _called, _variable = "A ts.nn.Standardizer", "standardizer"

    def __init__(
        self, *, feature_axis: int | tuple[int, ...] | None = -1, nan: Literal["refuse", "omit"] = "refuse"
    ) -> None:
        check_choice("ts.nn.Standardizer", "nan", nan, ("refuse", "omit"))
        self.feature_axis = _check_feature_axes(feature_axis)
        self.nan = nan
        self._moments: RunningMoments | None = None  # each part in the shape of the features

    @torch.no_grad()
    def partial_fit(self, values: Array, weights: Array | None = None) -> "Standardizer":
        """Take in a chunk of observations.

        Args:
            values: a tensor or array of real numbers, with at least one axis beside the features; no observation is fine.
            weights: one weight >= 0 for each observation, in the shape of the leading observation axes: (batch,) or, for
                pixels, (batch, height, width). 0 leaves an observation out, whatever its values.
        """
        moved = self._move_features_last(_to_float64(values))
        if moved.ndim == len(self.feature_axis):
            raise ValueError(
                f"partial_fit got shape {tuple(values.shape)}, all of it features (feature_axis={self.feature_axis}): "
                "there is no axis of observations. For one feature use values[:, None]; for one observation, values[None]."
            )
        observations = moved.shape[: moved.ndim - len(self.feature_axis)]
        features = moved.shape[len(observations) :]
        self._check_features(features)
        rows = moved.reshape(observations.numel(), features.numel())
        counted = self._drop_nan_values(rows, _row_weights(weights, observations, rows))
        found = streaming_moments.measure_moments(rows, counted)
        self._merge_moments(RunningMoments(*(part.reshape(features).cpu() for part in found)))
        return self

    def merge(self, other: "Standardizer") -> "Standardizer":
        """Take in all that another one has seen, for example in another process; `a + b` and `sum(parts)` make a new one."""
        if not isinstance(other, Standardizer):
            raise TypeError(f"A Standardizer merges with another one, got {a_type(other)}.")
        if other._moments is not None:
            self._check_features(other._moments.weight.shape)
            self._merge_moments(other._moments)
        return self

    def all_merge(self, group: Any = None) -> "Standardizer":
        """Merge over all ranks of a `torch.distributed` group: afterwards each rank has the same statistics, bit for bit."""
        from torch import distributed

        states: list[Any] = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(states, self.state_dict(), group=group)
        whole = self._new_with_same_options()
        # In the order of ranks on each of them, so that all round alike.
        for state in states:
            whole.merge(self._new_with_same_options().load_state_dict(state))
        return self.load_state_dict(whole.state_dict())

    def transform(self, values: Array) -> Array:
        """Return (values − mean) / scale; floating types stay, integers become torch's default type (arrays: float64)."""
        return self._apply_in_float64(values, lambda moved, mean, low, scale: (moved - mean - low) / scale)

    def inverse_transform(self, values: Array) -> Array:
        """Return values · scale + mean, the inverse of `transform`."""
        return self._apply_in_float64(values, lambda moved, mean, low, scale: (moved * scale + low) + mean)

    @property
    def count(self) -> Tensor:
        """The weight seen of each feature, float64: without weights, how many observations."""
        return self._moments_or_raise().weight

    @property
    def mean(self) -> Tensor:
        """The mean of each feature, float64; NaN where nothing was seen."""
        return torch.where(self.count > 0, self._moments_or_raise().mean, torch.nan)

    @property
    def variance(self) -> Tensor:
        """The variance of each feature (divided by the count, not count − 1), float64; NaN where nothing was seen."""
        return self._moments_or_raise().squares / self.count

    @property
    def scale(self) -> Tensor:
        """The standard deviation of each feature, float64, and 1 for a feature that never changes."""
        deviation = self.variance.sqrt()
        return torch.where(deviation == 0, 1.0, deviation)

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics as tensors, fit for `run.state`, checkpoints and `torch.save`."""
        if self._moments is None:
            return dict.fromkeys(RunningMoments._fields)
        return {name: part.clone() for name, part in self._moments._asdict().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> "Standardizer":
        """Take over what `state_dict` returned, in place of all that was seen here."""
        names = RunningMoments._fields
        if not isinstance(state, Mapping) or set(state) != set(names):
            found = f"has {sorted(state)}" if isinstance(state, Mapping) else f"is {a_type(state)}"
            raise ValueError(f"This is no state of a Standardizer: it {found}, expected {sorted(names)}.")
        self._moments = None
        if state["weight"] is not None:
            parts = (state[name].to("cpu", torch.float64, copy=True) for name in names)
            self._moments = RunningMoments(*parts)
        return self

    def __add__(self, other: "Standardizer") -> "Standardizer":
        if not isinstance(other, Standardizer):
            return NotImplemented
        return self._new_with_same_options().merge(self).merge(other)

    def __radd__(self, other: int) -> "Standardizer":
        return self._new_with_same_options().merge(self) if other == 0 else NotImplemented

    def __repr__(self) -> str:
        seen = "nothing seen" if self._moments is None else f"features of shape {tuple(self.count.shape)}"
        return f"Standardizer(feature_axis={self.feature_axis}, nan={self.nan!r}; {seen})"

    def _new_with_same_options(self) -> "Standardizer":
        return Standardizer(feature_axis=self.feature_axis, nan=self.nan)

    def _move_features_last(self, values: Tensor) -> Tensor:
        outside = [axis for axis in self.feature_axis if not -values.ndim <= axis < values.ndim]
        if outside or len({axis % values.ndim for axis in self.feature_axis}) < len(self.feature_axis):
            raise ValueError(
                f"feature_axis={self.feature_axis} does not fit values of shape {tuple(values.shape)}: an axis is missing or named "
                "twice. Count from 0, or from the end with negative numbers."
            )
        return values.movedim(self.feature_axis, tuple(range(-len(self.feature_axis), 0)))

    def _check_features(self, features: torch.Size) -> None:
        if self._moments is not None and features != self._moments.weight.shape:
            raise ValueError(
                f"These values have features of shape {tuple(features)}, those seen so far {tuple(self.count.shape)} "
                f"(feature_axis={self.feature_axis}). Statistics belong to one feature each; pass the same features, "
                "in the same order."
            )

    def _drop_nan_values(self, rows: Tensor, weights: Tensor) -> Tensor:
        strange = ~rows.isfinite() & (weights > 0)
        if self.nan == "omit":
            missing = rows.isnan()
            weights, strange = torch.where(missing, 0.0, weights), strange & ~missing
        if bool(strange.any()):
            per_feature = strange.sum(0)
            where = per_feature.nonzero().flatten().tolist()
            hint = "" if self.nan == "omit" else ' To leave NaN out write Standardizer(nan="omit").'
            raise ValueError(
                f"{int(per_feature.sum())} values are NaN or infinite, in the features (flat indices) {where[:8]}"
                f"{' and more' if len(where) > 8 else ''}. One of them would spoil its feature's mean and deviation for good.{hint}"
            )
        return weights

    def _merge_moments(self, found: RunningMoments) -> None:
        merged = found if self._moments is None else streaming_moments.merge_moments(self._moments, found)
        if not all(bool(part.isfinite().all()) for part in merged):
            raise ValueError(
                "The squares of these values overflow float64 (beyond about 1e154). Nothing was taken in; "
                "divide the values by a constant first."
            )
        self._moments = merged

    def _moments_or_raise(self) -> RunningMoments:
        if self._moments is None:
            raise ValueError("This Standardizer has seen no data. Call partial_fit(chunk) first.")
        return self._moments

    def _apply_in_float64(self, values: Array, function: Callable[..., Tensor]) -> Array:
        """Return `function` of float64 values with their features last, mean, its low part and scale, in the values' form."""
        statistics = (self.mean, self._moments_or_raise().mean_low, self.scale)
        moved = self._move_features_last(_to_float64(values))
        self._check_features(moved.shape[moved.ndim - len(self.feature_axis) :])
        result = function(moved, *(part.to(moved) for part in statistics))
        result = result.movedim(tuple(range(-len(self.feature_axis), 0)), self.feature_axis)
        if isinstance(values, Tensor):
            return result.to(values.dtype if values.is_floating_point() else torch.get_default_dtype())
        kept = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        return result.numpy().astype(kept)


def _check_feature_axes(feature_axis: object) -> tuple[int, ...]:
    if feature_axis is None:
        return ()
    several = feature_axis if isinstance(feature_axis, tuple | list) else (feature_axis,)
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in several)
    if not whole or len(set(several)) < len(several):
        raise OptionError(
            f"feature_axis={feature_axis!r}: give the number of an axis, -1 for the last, a tuple of different ones, or None."
        )
    return tuple(several)


def _to_float64(values: Tensor | NDArray[Any]) -> Tensor:
    if isinstance(values, Tensor) and not values.is_complex():
        if values.layout is not torch.strided or values.is_meta or values.is_quantized:
            kind = "quantised" if values.is_quantized else "meta" if values.is_meta else "sparse"
            raise TypeError(
                f"A Standardizer takes tensors whose numbers are there one by one, and this one is {kind}: "
                "values.to_dense(), values.dequantize(), or real data instead of meta."
            )
        return values.to(torch.float64)
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            "A masked array's hidden values would count like any other. Write values.filled(np.nan), with "
            'Standardizer(nan="omit").'
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return torch.from_numpy(values.astype(np.float64))
    kind = f"an array of {values.dtype}" if hasattr(values, "dtype") else f"{a_type(values)}"
    raise TypeError(
        f"A Standardizer takes tensors and NumPy arrays of real numbers, got {kind}. For lists: torch.tensor(values)."
    )


def _row_weights(weights: Any, observations: torch.Size, rows: Tensor) -> Tensor:
    if weights is None:
        return torch.ones((len(rows), 1), dtype=torch.float64, device=rows.device)
    found: Tensor = _to_float64(weights).to(rows.device)
    if found.ndim == 0 or found.shape != observations[: found.ndim]:
        raise ValueError(
            f"The weights have shape {tuple(found.shape)}, the observations {tuple(observations)}. Give one weight for each "
            "observation: the shape of the leading observation axes."
        )
    if not bool((found.isfinite() & (found >= 0)).all()):
        raise ValueError("A weight is negative, infinite or NaN; it says how often a row counts.")
    missing = [1] * (len(observations) - found.ndim)
    return found.reshape(*found.shape, *missing).expand(observations).reshape(-1, 1)
