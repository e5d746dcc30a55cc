"""What every service must do: the same questions to a local store and to a real server."""

from __future__ import annotations

import json
import math
import time

import pytest

from kongming.learning.model_file import read
from kongming.records.answers import Forecast
from kongming.records.errors import (
    ExtrapolationError,
    InputError,
    KongmingError,
    StaleError,
    UnknownNameError,
    UntrainedError,
)
from kongming.records.judgement import Judgement
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.rpc.protocol import PredictionService
from tests import builders
from tests.service_contract.conftest import NODES, PROFILE, SOLO_S, expected


def forecast(service: PredictionService, question: Question) -> Forecast:
    (answer,) = service.predict([question])
    if isinstance(answer, KongmingError):
        raise answer
    return answer


CLOCKS_S = 1.0
"""How far a server's clock, which follows steps of the system's slowly, may be from ours."""


def asked_at(forecast: Forecast) -> float:
    """The moment for which the age of the fingerprint is given (unix seconds)."""
    assert forecast.fingerprint_taken_at is not None
    assert forecast.fingerprint_age_s is not None
    return forecast.fingerprint_taken_at + forecast.fingerprint_age_s


def test_nodes_are_listed_by_name_with_their_slowdown(service: PredictionService) -> None:
    nodes = {node.facts.name: node for node in service.nodes()}
    assert list(nodes) == sorted(NODES)
    for name, (node_id, loads, _) in NODES.items():
        node = nodes[name]
        assert node.facts.id == node_id
        assert node.state in ("ready", "silent", "stored")
        assert node.last_fingerprint_at is not None
        assert node.general_slowdown is not None
        assert (node.general_slowdown > 1.01) is bool(loads)
        assert json.dumps(node.to_dict(), allow_nan=False)
    assert nodes["busy"].slowdown["memory.random.128M"] == pytest.approx(1.822, rel=0.01)


@pytest.mark.parametrize("name", ["calm", "busy"])
def test_prediction_is_of_the_node_as_it_is(service: PredictionService, name: str) -> None:
    before = time.time()
    prediction = forecast(service, Question("chaser", name))
    after = time.time()
    assert prediction.slowdown.median == pytest.approx(expected(name), rel=0.05)
    assert prediction.slowdown.lower < prediction.slowdown.median < prediction.slowdown.upper
    assert (prediction.app, prediction.node_id, prediction.placement) == (
        "chaser",
        NODES[name][0],
        "cross-core",
    )
    assert (prediction.basis, prediction.model, prediction.model_version, prediction.domain) == (
        "model",
        "NNLS",
        1,
        0,
    )
    assert prediction.solo_s is not None
    assert prediction.solo_s == pytest.approx(SOLO_S, rel=0.05)
    assert prediction.runtime_s is not None
    assert prediction.runtime_s.median == pytest.approx(
        prediction.solo_s * prediction.slowdown.median
    )
    assert (prediction.metric_unit, prediction.slowdown.level) == ("s", 0.9)
    assert before - CLOCKS_S <= asked_at(prediction) <= after + CLOCKS_S
    assert not prediction.stale
    assert not prediction.extrapolating
    assert sum(driver.share for driver in prediction.drivers) == pytest.approx(1.0)
    assert json.dumps(prediction.to_dict(), allow_nan=False)


def test_what_training_judged_of_a_profile_is_part_of_every_answer(
    local: PredictionService, remote: PredictionService
) -> None:
    """Word for word the same from a store and from the server that has the same database."""
    judgement = Judgement.from_dict(PROFILE)
    remark = judgement.remark("chaser")
    assert "differ by 2.00 times (2 to 4 s); 1 of 4 loads" in str(remark)
    warnings = []
    for service in (local, remote):
        alone = forecast(service, Question("chaser", "busy"))
        next_to = service.predict_colocation(ColocationQuestion("chaser", ("chaser",)))
        explained = service.explain(Question("chaser", "busy"))
        for prediction in (alone, next_to.prediction, explained.prediction):
            assert prediction.profile == judgement
            assert prediction.warnings.count(str(remark)) == 1
        assert service.rank(RankQuestion("chaser")).profile == judgement
        assert service.rank(RankQuestion("stranger")).profile is None
        assert forecast(service, Question("stranger", "busy")).profile is None
        warnings.append(alone.warnings)
    assert warnings[0] == warnings[1]


def test_driver_of_a_slowdown_is_named_first(service: PredictionService) -> None:
    assert forecast(service, Question("chaser", "busy")).drivers[0].family == "memory"


def test_node_is_known_by_id_and_by_name(service: PredictionService) -> None:
    by_name, by_id = service.predict([Question("chaser", "busy"), Question("chaser", "node-2")])
    assert isinstance(by_name, Forecast)
    assert isinstance(by_id, Forecast)
    assert by_name.slowdown == by_id.slowdown


def test_interval_widens_with_its_level(service: PredictionService) -> None:
    narrow, wide = (
        forecast(service, Question("chaser", "busy", level=level)).slowdown for level in (0.5, 0.9)
    )
    assert wide.lower < narrow.lower < narrow.upper < wide.upper
    assert (narrow.level, wide.level) == (0.5, 0.9)


def test_one_bad_question_does_not_spoil_the_others(service: PredictionService) -> None:
    good, bad, last = service.predict(
        [Question("chaser", "calm"), Question("chaser", "bussy"), Question("chaser", "busy")]
    )
    assert isinstance(good, Forecast)
    assert isinstance(bad, UnknownNameError)
    assert "busy" in str(bad)
    assert isinstance(last, Forecast)
    assert good.slowdown.median < last.slowdown.median


def test_no_question_has_no_answer(service: PredictionService) -> None:
    assert service.predict([]) == ()


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        (Question("chaser", "calm", model="NOTHING"), UnknownNameError),
        (Question("chaser", "calm", model_version=9), UnknownNameError),
        (Question("chaser", "calm", domain=5), KongmingError),
        (Question("chaser", "wild", strict=True), ExtrapolationError),
        (Question("chaser", "dozing", stale_policy="refuse"), StaleError),
    ],
)
def test_what_cannot_be_answered_says_why(
    service: PredictionService, question: Question, kind: type[KongmingError]
) -> None:
    with pytest.raises(kind) as caught:
        forecast(service, question)
    assert caught.value.message


def test_extrapolation_is_flagged(service: PredictionService) -> None:
    prediction = forecast(service, Question("chaser", "wild"))
    assert prediction.extrapolating
    assert prediction.warnings


def test_old_fingerprint_widens_the_interval_and_says_so(service: PredictionService) -> None:
    before = time.time()
    old = forecast(service, Question("chaser", "dozing"))
    after = time.time()
    new = forecast(service, Question("chaser", "busy"))
    assert old.stale
    assert before - CLOCKS_S <= asked_at(old) <= after + CLOCKS_S
    assert old.fingerprint_age_s is not None
    assert old.fingerprint_age_s >= NODES["dozing"][2] - CLOCKS_S
    assert old.warnings
    assert old.slowdown.upper / old.slowdown.lower > new.slowdown.upper / new.slowdown.lower
    assert old.slowdown.median == pytest.approx(expected("dozing"), rel=0.1)


def test_history_stands_in_for_an_old_fingerprint(service: PredictionService) -> None:
    prediction = forecast(service, Question("chaser", "dozing", stale_policy="history"))
    assert prediction.stale
    assert prediction.slowdown.median == pytest.approx(expected("dozing"), rel=0.1)


def test_program_that_nobody_profiled_is_predicted_by_the_node_alone(
    service: PredictionService,
) -> None:
    prediction = forecast(service, Question("stranger", "busy"))
    general = next(n for n in service.nodes() if n.facts.name == "busy").general_slowdown
    assert (prediction.basis, prediction.model, prediction.model_version) == ("node-only", "", 0)
    assert (prediction.solo_s, prediction.runtime_s) == (None, None)
    assert prediction.slowdown.median == pytest.approx(general, rel=0.01)


def test_ranking_puts_the_quicker_node_first(service: PredictionService) -> None:
    ranking = service.rank(RankQuestion("chaser", ("busy", "calm", "wild")))
    scores = {node.name: node.score for node in ranking.nodes}
    assert list(scores) == ["calm", "busy", "wild"], ranking
    assert list(scores.values()) == sorted(scores.values())
    assert [node.node_id for node in ranking.nodes] == ["node-1", "node-2", "node-3"]
    assert (ranking.candidates, ranking.basis, ranking.refused) == (3, "model", {})
    for node in ranking.nodes:
        slowdown = forecast(service, Question("chaser", node.name)).slowdown
        assert node.slowdown.median == pytest.approx(slowdown.median, rel=0.01)
    assert ranking.nodes[-1].extrapolating
    assert json.dumps(ranking.to_dict(), allow_nan=False)


def test_ranking_without_candidates_is_of_all_nodes(service: PredictionService) -> None:
    ranking = service.rank(RankQuestion("chaser"))
    assert {node.name for node in ranking.nodes} == set(NODES)
    assert [node.name for node in ranking.nodes if node.stale] == ["dozing"]


def test_limit_says_how_many_come_back(service: PredictionService) -> None:
    ranking = service.rank(RankQuestion("chaser", ("busy", "calm"), limit=1))
    assert [node.name for node in ranking.nodes] == ["calm"]
    assert ranking.candidates == 2


def test_constraints_refuse_with_a_reason(service: PredictionService) -> None:
    ranking = service.rank(RankQuestion("chaser", ("busy", "calm"), slowdown_limit=1.2))
    assert [node.name for node in ranking.nodes] == ["calm"]
    assert sum(ranking.refused.values()) == 1
    stale = service.rank(RankQuestion("chaser", ("dozing", "calm"), stale_policy="refuse"))
    assert [node.name for node in stale.nodes] == ["calm"]
    assert sum(stale.refused.values()) == 1
    small = service.rank(RankQuestion("chaser", ("calm",), memory_bytes=1 << 50))
    assert small.nodes == ()
    assert sum(small.refused.values()) == 1


def test_at_least_so_much_does_not_keep_a_limit(service: PredictionService) -> None:
    free = service.rank(RankQuestion("chaser", ("wild", "calm")))
    wild = next(node for node in free.nodes if node.name == "wild")
    assert wild.slowdown.at_least
    assert not wild.worst_resident_at_least
    limited = service.rank(
        RankQuestion("chaser", ("wild", "calm"), slowdown_limit=10.0 * wild.slowdown.median)
    )
    assert [node.name for node in limited.nodes] == ["calm"]
    assert limited.refused == {"slowdown_limit": 1}


def test_weight_of_nothing_scores_all_alike(service: PredictionService) -> None:
    ranking = service.rank(RankQuestion("chaser", ("calm", "busy"), newcomer_weight=0.0))
    assert [node.score for node in ranking.nodes] == [0.0, 0.0]
    assert all(node.tied_with_first for node in ranking.nodes)


def test_program_that_nobody_profiled_is_ranked_by_the_nodes(service: PredictionService) -> None:
    ranking = service.rank(RankQuestion("stranger", ("busy", "calm", "wild")))
    assert ranking.basis == "node-only"
    assert [node.name for node in ranking.nodes] == ["calm", "busy", "wild"]


def test_candidate_that_nobody_knows_is_named(service: PredictionService) -> None:
    with pytest.raises(UnknownNameError, match="calmer"):
        service.rank(RankQuestion("chaser", ("calmer",)))


def test_same_seed_same_order(service: PredictionService) -> None:
    question = RankQuestion("chaser", newcomer_weight=0.0, seed=7)
    first, second = service.rank(question), service.rank(question)
    assert [node.name for node in first.nodes] == [node.name for node in second.nodes]


def test_registering_twice_is_harmless(service: PredictionService) -> None:
    document = {"name": "sorter", "command": ["sort", "-n"], "cpus": 2}
    first = service.register_application("sorter", "abc123", document)
    assert first == service.register_application("sorter", "abc123", document)
    assert (first.name, first.identity, first.runs) == ("sorter", "abc123", 0)
    assert (first.document["command"], first.document["timeout_s"]) == (["sort", "-n"], 600.0)


def test_registering_answers_the_same_at_a_server_and_at_a_store(
    local: PredictionService, remote: PredictionService
) -> None:
    document = {"command": ["sort", "-n"], "cpus": 2}
    assert local.register_application("sorter", "abc123", document) == (
        remote.register_application("sorter", "abc123", document)
    )


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"command": "x", "cpus": -3}, "document.cpus"),
        ({"command": "x", "timeout_s": 0}, "document.timeout_s"),
        ({"command": 7}, "document.command"),
        ({"command": []}, "document.command"),
        ({"command": "x", "env": [1]}, "document.env"),
        ({"command": "x", "env": "ab"}, "document.env"),
        ({"command": "x", "workdir": 7}, "document.workdir"),
        ({"command": "x", "kind": "daemon"}, "document.kind"),
        ({"command": "x", "name": "other"}, "document.name"),
        ({"cpus": 1}, "document"),
    ],
)
def test_what_is_no_table_of_an_application_is_refused(
    service: PredictionService, document: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError) as refused:
        service.register_application("sorter", "abc123", document)
    assert refused.value.field == field


def test_name_that_is_no_name_is_refused(service: PredictionService) -> None:
    with pytest.raises(InputError, match="name"):
        service.register_application("", "abc123", {"command": "x"})


@pytest.mark.parametrize("name", ["calm", "busy", "wild"])
def test_server_and_store_say_the_same(
    local: PredictionService, remote: PredictionService, name: str
) -> None:
    here, there = (forecast(service, Question("chaser", name)) for service in (local, remote))
    assert here.slowdown.median == pytest.approx(there.slowdown.median, rel=1e-3)
    assert here.slowdown.lower == pytest.approx(there.slowdown.lower, rel=1e-2)
    assert here.slowdown.upper == pytest.approx(there.slowdown.upper, rel=1e-2)
    assert here.extrapolating == there.extrapolating


def test_explanation_names_what_a_program_suffers_from(service: PredictionService) -> None:
    answer = service.explain(Question("chaser", "busy"))
    assert answer.prediction.slowdown.median == pytest.approx(expected("busy"), rel=0.05)
    first = answer.contributions[0]
    assert first.family == "memory"
    assert first.seconds_per_op > first.idle_seconds_per_op
    parts = [contribution.log_slowdown for contribution in answer.contributions]
    assert parts == sorted(parts, reverse=True)
    # One without the other is all that there is, where one resource alone is short.
    assert parts[0] > 0.5 * math.log(answer.prediction.slowdown.median) / len(parts)
    assert json.dumps(answer.to_dict(), allow_nan=False)


def test_explanation_of_a_stranger_has_equal_shares(service: PredictionService) -> None:
    answer = service.explain(Question("stranger", "busy"))
    assert answer.prediction.basis == "node-only"
    general = math.log(answer.prediction.slowdown.median)
    assert sum(contribution.log_slowdown for contribution in answer.contributions) == pytest.approx(
        general, abs=0.01
    )


def test_server_and_store_explain_alike(
    local: PredictionService, remote: PredictionService
) -> None:
    here, there = (
        {
            contribution.surrogate: contribution
            for contribution in service.explain(Question("chaser", "busy")).contributions
        }
        for service in (local, remote)
    )
    assert here.keys() == there.keys()
    for name, contribution in here.items():
        assert contribution.family == there[name].family
        assert contribution.log_slowdown == pytest.approx(there[name].log_slowdown, abs=1e-3)
        for value in ("seconds_per_op", "idle_seconds_per_op"):
            assert getattr(contribution, value) == pytest.approx(
                getattr(there[name], value), rel=1e-3
            )


def test_what_cannot_be_explained_says_why(service: PredictionService) -> None:
    with pytest.raises(UnknownNameError, match="busy"):
        service.explain(Question("chaser", "bussy"))
    with pytest.raises(StaleError):
        service.explain(Question("chaser", "dozing", stale_policy="refuse"))


def test_models_are_listed_and_read(service: PredictionService) -> None:
    (listed,) = service.models("chaser")
    assert (listed.app, listed.placement, listed.version) == ("chaser", "cross-core", 1)
    assert (listed.node_id, listed.in_service, listed.document) == ("node-1", True, "")
    assert service.models("nothing") == ()
    model = service.model("chaser")
    document = json.loads(model.document)
    assert (model.version, model.in_service) == (1, True)
    assert model.chosen == document["chosen"]
    assert read(document).app == "chaser"
    for wanted in (("chaser", None, 7), ("nothing", None, 0)):
        with pytest.raises(UntrainedError):
            service.model(*wanted)


def test_runs_are_imported_once(service: PredictionService) -> None:
    runs = [builders.run("imported", 1.0 + n, node_id="node-1") for n in range(3)]
    first = service.import_runs(runs)
    again = service.import_runs([*runs, builders.run("imported", 9.0, node_id="node-1")])
    assert (first.runs, first.signatures, first.duplicates) == (3, 0, 0)
    assert (again.runs, again.signatures, again.duplicates) == (1, 0, 3)
    assert service.import_runs([]).runs == 0
