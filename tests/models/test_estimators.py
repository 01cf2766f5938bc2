"""Estimators follow scikit-learn: explicit parameters that come back as given, cloning, arrays, and few methods."""

from __future__ import annotations

import copy
import inspect
from typing import get_type_hints

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks

import rgcn
from rgcn.errors import DataError
from rgcn.models.pretrainer import Pretrainer

ESTIMATORS = (rgcn.NodeClassifier, rgcn.LinkPredictor, rgcn.LinkClassifier)
PARAMS = [
    (rgcn.NodeClassifier, {"model": "e-rgcn", "embedding": 8, "epochs": 2, "convolution_options": {}, "prune": True}),
    (rgcn.LinkPredictor, {"model": "path", "width": 4, "layers": 2, "steps": 2, "objective_options": {}}),
    (rgcn.LinkPredictor, {"encoder": "none", "decoder": rgcn.nn.decoders.DistMult, "embedding": 4, "steps": 2}),
    (rgcn.LinkClassifier, {"model": "c-rgcn", "embedding": 8, "bottleneck": 4, "steps": 2, "class_share": 0.5}),
    (Pretrainer, {"model": "universal", "start": "random", "graphs": {"world": 1.0}, "layers": 2, "steps": 2}),
]


def checked_clone(estimator):
    """Copy an unfitted estimator with the algorithm of `sklearn.base.clone`, including its check of identity."""
    params = {name: copy.deepcopy(value) for name, value in estimator.get_params(deep=False).items()}
    copied = type(estimator)(**params)
    found = copied.get_params(deep=False)
    for name, value in params.items():
        assert found[name] is value, f"the constructor changes the parameter {name}"
    return copied


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_the_constructor_has_every_setting_of_its_sections_with_its_default(kind):
    parameters = dict(inspect.signature(kind).parameters)
    if kind is rgcn.LinkPredictor:  # its constructor is that of LinkClassifier too
        assert parameters.pop("class_share").default is None
    assert parameters.pop("model").kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    sections = kind.model_section, kind.training_section
    fields = [name for section in sections for name in section.model_fields if name != "name"]
    assert len(set(fields)) == len(fields)  # sections must not share a name: parameters are flat
    assert sorted(parameters) == sorted([*fields, *kind.own_settings])
    assert {name: each.default for name, each in parameters.items()} == {
        name: default for name, default in kind().get_params().items() if name != "model"
    }
    for section in sections:
        for name, field in section.model_fields.items():
            if name in parameters and parameters[name].default is not None:
                assert parameters[name].default == field.default, name
    hints = get_type_hints(kind.__init__)
    for name, each in parameters.items():
        optional = type(None) in getattr(hints[name], "__args__", ())
        assert optional or each.default is not None, name


@pytest.mark.parametrize(("kind", "params"), PARAMS)
def test_parameters_come_back_as_given_and_make_the_same_estimator(kind, params):
    estimator = kind(**params)
    assert {name: estimator.get_params()[name] for name in params} == params
    copied = checked_clone(estimator)
    assert copied.settings_ == estimator.settings_
    assert estimator.set_params(seed=7) is estimator
    assert (estimator.get_params()["seed"], copied.seed) == (7, 0)


def test_a_clone_of_a_fitted_estimator_is_not_fitted():
    fitted = rgcn.LinkPredictor(encoder="none", embedding=4, steps=1).fit(rgcn.load("world"))
    copied = checked_clone(fitted)
    assert "not fitted" in repr(copied)
    assert copied.get_params() == fitted.get_params()


@pytest.mark.parametrize(("kind", "params"), PARAMS)
def test_scikit_learn_clones_them(kind, params):
    estimator = kind(**params)
    assert clone(estimator).get_params() == estimator.get_params()


# scikit-learn's other checks train on arrays of features; or they want settings to be validated in `fit`, where ours
# are validated as soon as they are given.
@pytest.mark.filterwarnings("ignore:(ConfigError occurred|Estimator's parameters changed):UserWarning")
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_mixin_order,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_set_params,
    ],
)
def test_checks_of_scikit_learn(kind, check):
    check(kind.__name__, kind())


def test_a_component_given_as_a_class_is_returned_as_a_class():
    estimator = rgcn.LinkPredictor(encoder="none", decoder=rgcn.nn.decoders.DistMult)
    assert estimator.get_params()["decoder"] is rgcn.nn.decoders.DistMult
    assert estimator.settings_["decoder"] == "distmult"


def test_a_preset_sets_what_is_not_given():
    assert rgcn.LinkPredictor("path").model.layers == 6
    assert rgcn.LinkPredictor("path", layers=2).model.layers == 2
    assert rgcn.LinkPredictor("path").training.objective == "softmax"
    assert rgcn.LinkPredictor("path").set_params(model="c-rgcn").model.layers == 1


@pytest.mark.parametrize("kind", [*ESTIMATORS, Pretrainer])
def test_estimators_have_at_most_thirty_public_methods(kind):
    methods = [name for name in dir(kind) if not name.startswith("_") and inspect.isroutine(getattr(kind, name))]
    assert len(methods) <= 30, sorted(methods)


@pytest.mark.parametrize("kind", [rgcn.NodeClassifier, rgcn.LinkClassifier])
def test_a_classifier_returns_arrays_and_its_score_is_accuracy(kind):
    kg = rgcn.load("world")
    classifier = kind(embedding=16, epochs=2)
    assert classifier.fit(kg) is classifier
    nodes = ["Peru", "Norway", 0]
    predicted, table = classifier.predict(nodes), classifier.predict_frame(nodes)
    assert (type(predicted), predicted.shape) == (np.ndarray, (3,))
    assert set(predicted) <= set(classifier.classes_)
    assert table["class"].to_list() == predicted.tolist()
    assert table.columns == ["node", "class", "score", "probability"]
    probabilities = classifier.predict_proba(nodes)
    assert probabilities.shape == (3, len(classifier.classes_))
    np.testing.assert_allclose(probabilities.max(1), table["probability"], rtol=1e-6)
    assert classifier.score(kg, "test") == classifier.evaluate(kg, "test")["accuracy"]


def test_a_link_predictor_returns_arrays_and_its_score_is_mrr():
    kg = rgcn.load("world")
    predictor = rgcn.LinkPredictor(encoder="none", embedding=8, steps=3).fit(kg)
    question = {"subject": "Peru", "relation": "borders", "k": 5}
    answers, table = predictor.predict(**question), predictor.predict_frame(**question)
    assert (type(answers), answers.shape, type(table)) == (np.ndarray, (5,), pl.DataFrame)
    assert table["object"].to_list() == answers.tolist()
    predicted = predictor.predict(object="Peru", relation="borders", k=2)
    assert predicted.tolist() == predictor.predict_frame(object="Peru", relation="borders", k=2)["subject"].to_list()
    assert predictor.score(kg, "test") == predictor.evaluate(kg, "test")["mrr"]
    triples = table.select("subject", "relation", "object").rows()
    frame, scores, probabilities = (
        method(triples) for method in (predictor.triples_frame, predictor.score_triples, predictor.predict_proba)
    )
    assert frame["score"].to_list() == scores.tolist()
    assert frame["known"].to_list() == table["known"].to_list()
    assert np.isnan(probabilities).tolist() == frame["known"].to_list() == frame["probability"].is_null().to_list()
    worst = predictor.least_likely(kg, k=3)
    assert worst["score"].to_list() == sorted(worst["score"])


def test_probabilities_of_triples_are_refused_without_triples_to_calibrate_on():
    kg = rgcn.KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "c")])
    predictor = rgcn.LinkPredictor(encoder="none", embedding=2, steps=1).fit(kg)
    with pytest.raises(DataError, match="No probabilities"):
        predictor.predict_proba([("a", "r", "c")])


def test_a_parameter_of_link_classifiers_is_refused_by_link_predictors():
    with pytest.raises(rgcn.errors.ConfigError, match="LinkPredictor has no parameter 'class_share'"):
        rgcn.LinkPredictor(class_share=0.5)
