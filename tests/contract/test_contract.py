"""Every command of the contract gives the JSON that other people's checks read: each recorded key, each recorded value."""

import json

import pytest

from tests.contract.commands import CASES, RECORDED, differences, result_of

RESULTS = json.loads(RECORDED.read_text(encoding="utf-8"))


def test_every_case_is_recorded():
    assert list(RESULTS) == [case.name for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_command_keeps_its_contract(case, tmp_path, model):
    found = result_of(case, tmp_path, model)
    assert list(differences(RESULTS[case.name], found, case.tolerance)) == []
