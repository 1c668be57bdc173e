"""Beam transforms applied to plain lists, at once and in this thread: what a runner does, without a runner.

    with eagerly(random.Random(7)) as pipeline:
        counts = pipeline | beam.Create([...]) | BoundContributions(...)     # an `Eager` collection
    counts.elements

Elements come in random order, bundles are cut at random, accumulators are merged at random, and a shuffle sometimes
passes its values through their coders: a stage whose result depends on any of these shows. Building a pipeline for a
runner takes a hundred times as long as running a small job this way.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.internal import pickler
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.runners import common
from apache_beam.runners.worker import operations  # noqa: F401 (imported before DoFnSignature is replaced)
from apache_beam.transforms import core, ptransform
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import IOTypeHints
from apache_beam.utils.windowed_value import WindowedValue

from hushgram.transforms.read_records import WriteRejectedRecords

__all__ = ["Eager", "Pipeline", "eagerly", "replaced"]


class Pipeline:
    """Where collections begin. It has a random generator for everything that a runner may decide."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def __or__(self, transform: Any) -> Any:
        return _apply(transform, self, self)


class Eager:
    """A collection whose elements are there."""

    is_bounded = True
    windowing = core.Windowing(GlobalWindows())

    def __init__(self, elements: Iterable[Any], pipeline: Pipeline) -> None:
        self.elements, self.pipeline = list(elements), pipeline
        self.element_type: Any = Any

    def __or__(self, transform: Any) -> Any:
        return _apply(transform, self, self.pipeline)


class _Outputs:
    """The outputs of a step with tags."""

    def __init__(self, outputs: dict[str | None, Eager], main: str | None) -> None:
        self._outputs, self._main = outputs, main

    def __getattr__(self, tag: str) -> Eager:
        if tag.startswith("_"):
            raise AttributeError(tag)
        return self[tag]

    def __getitem__(self, tag: str) -> Eager:
        return self._outputs[None if tag == self._main else tag]


@contextmanager
def replaced(values: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Put other values into modules and classes, by (owner, name), for a while: `mock.patch.object` without mocks."""
    before = [(owner, name, vars(owner)[name]) for owner, name in values]
    try:
        for (owner, name), value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


@contextmanager
def eagerly(rng: random.Random) -> Iterator[Pipeline]:
    """A pipeline whose transforms run as soon as they are applied."""
    whole = ptransform.PTransform.__ror__

    def applied(transform: Any, left: Any, label: str | None = None) -> Any:
        pipeline = _pipeline_of(left)
        return whole(transform, left, label) if pipeline is None else _apply(transform, left, pipeline)

    def unhinted(transform: Any, *types: Any, **tagged: Any) -> Any:
        return transform  # values go through the coders of their own types

    hints = {
        (owner, name): unhinted
        for owner in (ptransform.PTransform, ptransform.PTransformWithSideInputs)
        for name in ("with_input_types", "with_output_types")
        if name in vars(owner)
    }
    with replaced(
        {
            (ptransform.PTransform, "__ror__"): applied,
            (pickler, "roundtrip"): lambda value: value,
            (common, "DoFnSignature"): lambda fn: None,
            (core, "_check_fn_use_yield_and_return"): lambda fn: False,
            (IOTypeHints, "_make_origin"): staticmethod(lambda *_, **__: []),  # stack traces
            (IOTypeHints, "from_callable"): staticmethod(lambda fn: IOTypeHints.empty()),
            **hints,
        }
    ):
        yield Pipeline(rng)


def _pipeline_of(left: Any) -> Pipeline | None:
    if isinstance(left, Eager):
        return left.pipeline
    held = left.values() if isinstance(left, dict) else left if isinstance(left, list | tuple) else ()
    return next((found for found in map(_pipeline_of, held) if found is not None), None)


def _apply(transform: Any, left: Any, pipeline: Pipeline) -> Any:
    if isinstance(transform, ptransform._NamedPTransform):
        transform = transform.transform
    step = _primitive(type(transform))
    return transform.expand(left) if step is None else step(transform, left, pipeline)


@cache
def _primitive(kind: type) -> Callable[[Any, Any, Pipeline], Any] | None:
    return next((step for known, step in _PRIMITIVES.items() if issubclass(kind, known)), None)


def _create(transform: Any, _: Any, pipeline: Pipeline) -> Eager:
    return Eager(_shuffled(transform.values, pipeline.rng), pipeline)


def _same(_: Any, left: Eager, pipeline: Pipeline) -> Eager:
    return Eager(left.elements, pipeline)


def _nothing(_: Any, left: Eager, pipeline: Pipeline) -> Eager:
    return Eager((), pipeline)


def _flatten(_: Any, left: Any, pipeline: Pipeline) -> Eager:
    return Eager(_shuffled([e for part in left for e in part.elements], pipeline.rng), pipeline)


def _group(_: Any, left: Eager, pipeline: Pipeline) -> Eager:
    groups: dict[Any, list[Any]] = defaultdict(list)
    coded = pipeline.rng.random() < 0.25
    for key, value in _shuffled(left.elements, pipeline.rng):
        groups[key].append(_through_coder(value) if coded else value)
    return Eager(groups.items(), pipeline)


def _co_group(_: Any, left: dict[str, Eager], pipeline: Pipeline) -> Eager:
    grouped: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: {tag: [] for tag in left})
    for tag, part in left.items():
        for key, values in _group(None, part, pipeline).elements:
            grouped[key][tag] = values
    return Eager(_shuffled(grouped.items(), pipeline.rng), pipeline)


def _through_coder(value: Any) -> Any:
    coder = coders.registry.get_coder(type(value))
    return coder.decode(coder.encode(value))


def _par_do(transform: Any, left: Eager, pipeline: Pipeline) -> Eager:
    return _outputs(transform, left, pipeline)[None]


def _multi_par_do(transform: Any, left: Eager, pipeline: Pipeline) -> _Outputs:
    outputs = _outputs(transform._do_transform, left, pipeline)
    for tag in transform._tags:
        outputs.setdefault(tag, Eager((), pipeline))
    return _Outputs(outputs, transform._main_tag)


def _outputs(transform: Any, left: Eager, pipeline: Pipeline) -> dict[str | None, Eager]:
    args, kwargs = _side_inputs(transform.raw_side_inputs)
    fn = transform.fn
    found: dict[str | None, list[Any]] = {None: []}

    def put(released: Any) -> None:
        for element in released or ():
            while isinstance(element, WindowedValue):
                element = element.value
            if isinstance(element, beam.pvalue.TaggedOutput):
                value = element.value
                found.setdefault(element.tag, []).append(
                    value.value if isinstance(value, WindowedValue) else value
                )
            else:
                found[None].append(element)

    fn.setup()
    for bundle in _bundles(left.elements, pipeline.rng):
        fn.start_bundle()
        for element in bundle:
            for more in _restrictions(fn, element, pipeline.rng):
                put(fn.process(element, *args, *more, **kwargs))
        put(fn.finish_bundle())
    fn.teardown()
    return {tag: Eager(_shuffled(elements, pipeline.rng), pipeline) for tag, elements in found.items()}


def _restrictions(fn: Any, element: Any, rng: random.Random) -> list[tuple[Any, ...]]:
    """For a splittable step, trackers of the ranges that an engine may cut an element into."""
    if not isinstance(fn, RestrictionProvider):
        return [()]
    whole = fn.initial_restriction(element)
    ends = (whole.start, rng.randint(whole.start, whole.stop), whole.stop)
    parts = [OffsetRange(*part) for part in pairwise(ends) if part[0] < part[1]] or [whole]
    return [(fn.create_tracker(part),) for part in parts]


def _side_inputs(raw: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = raw
    return [_side_input(value) for value in args], {name: _side_input(v) for name, v in kwargs.items()}


def _side_input(value: Any) -> Any:
    if not isinstance(value, beam.pvalue.AsSideInput):
        return value
    elements = value.pvalue.elements
    if isinstance(value, beam.pvalue.AsSingleton):
        (one,) = elements
        return one
    return list(elements)


def _combine_globally(transform: Any, left: Eager, pipeline: Pipeline) -> Eager:
    fn = transform.fn
    args, kwargs = _side_inputs((transform.args, transform.kwargs))
    if not left.elements and not transform.has_defaults:
        return Eager((), pipeline)
    held = []
    for bundle in _bundles(left.elements, pipeline.rng) or [[]]:
        accumulator = fn.create_accumulator(*args, **kwargs)
        for element in bundle:
            accumulator = fn.add_input(accumulator, element, *args, **kwargs)
        held.append(fn.compact(accumulator, *args, **kwargs))
    whole = fn.merge_accumulators(_shuffled(held, pipeline.rng), *args, **kwargs)
    return Eager([fn.extract_output(whole, *args, **kwargs)], pipeline)


def _shuffled(elements: Iterable[Any], rng: random.Random) -> list[Any]:
    held = list(elements)
    rng.shuffle(held)
    return held


def _bundles(elements: list[Any], rng: random.Random) -> list[list[Any]]:
    """The elements in bundles: all in one, or cut here and there."""
    if rng.random() < 0.5:
        return [elements]
    bundles: list[list[Any]] = [[]]
    for element in elements:
        if bundles[-1] and rng.random() < 0.4:
            bundles.append([])
        bundles[-1].append(element)
    return bundles


_PRIMITIVES: dict[type, Callable[[Any, Any, Pipeline], Any]] = {
    beam.WindowInto: _same,  # which is a ParDo too
    core._MultiParDo: _multi_par_do,
    beam.ParDo: _par_do,
    beam.Create: _create,
    beam.GroupByKey: _group,
    beam.CoGroupByKey: _co_group,
    beam.Flatten: _flatten,
    beam.CombineGlobally: _combine_globally,
    beam.Reshuffle: _same,
    WriteRejectedRecords: _nothing,
}
