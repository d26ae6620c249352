"""The plan beside a report is the same from the report's own setting and without it."""

import msgspec

from graphdiag.bucket_advice import plan_beside, setting_beside
from graphdiag.diagnosis import diagnosis_of
from tests.buckets.making import LADDER, engine_rows, graphs_off_rows, summary


def test_the_reports_setting_gives_the_same_plan():
    told = summary(engine_rows([*[*LADDER] * 20, *[9] * 40]), capture_sizes=[*LADDER])
    found = diagnosis_of(told, "made by hand")
    plan, again = plan_beside(found.report, told, found.setting), plan_beside(found.report, told)
    assert setting_beside(found.report, told, found.setting) is found.setting
    assert plan is not None
    assert msgspec.to_builtins(plan) == msgspec.to_builtins(again)


def test_where_graphs_were_off_the_eager_steps_are_planned_for():
    told = summary(graphs_off_rows([8] * 150 + [9] * 40))
    found = diagnosis_of(told, "made by hand")
    assert not len(found.setting.traffic.sizes)
    assert setting_beside(found.report, told, found.setting).traffic.sizes.tolist() == [8, 9]
