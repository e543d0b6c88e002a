"""Tables for classifiers: Adult, Purchase-100 real and generated, digits; what is refused."""

import numpy as np
import pytest

from lethe.errors import BadFile, BadRow, BadValue, LetheError, MissingColumn
from studies.landscape.classification import PURCHASE_CLASSES, PURCHASE_FEATURES, load

ADULT = "age,workclass,sex,income\n" + "".join(
    f"{20 + i},{'Private' if i % 2 else ' State-gov'},{'Male' if i % 3 else 'Female'},{'>50K' if i % 4 else '<=50K.'}\n"
    for i in range(40)
)


@pytest.fixture
def adult(tmp_path):
    path = tmp_path / "adult.csv"
    path.write_text(ADULT + "50,?,Male,>50K\n60,,Male,>50K\n")
    return str(path)


def test_adult_has_numbers_and_a_column_a_value_standardised_on_the_training_set(adult):
    data = load("adult", adult, None, 0.25, 0)
    (train, labels), (population, _) = data.train, data.population
    assert (train.shape, population.shape, data.classes) == ((30, 5), (10, 5), 2)
    assert np.allclose(train.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(train.std(axis=0), 1, atol=1e-5)
    assert set(labels) == {0, 1}
    assert "40 complete rows of 42" in data.note
    assert labels.sum() + data.population[1].sum() == 30


def test_real_adult(shared):
    data = load("adult", str(shared / "data/adult/adult.csv"), None, 0.3333, 0)
    assert "30,162 complete rows" in data.note
    assert (len(data.train[1]), len(data.population[1])) == (20109, 10053)


def test_generated_purchases_have_the_shape_and_repeat():
    data, again, larger = (load("purchase100", None, points, 0.33, 0) for points in (1000, 1000, None))
    assert data.train[0].shape == (670, PURCHASE_FEATURES)
    assert set(np.unique(data.train[0])) == {0.0, 1.0}
    assert np.array_equal(data.train[0], again.train[0])
    assert len(np.unique(larger.train[1])) == PURCHASE_CLASSES


def test_what_is_refused(adult, tmp_path):
    with pytest.raises(BadValue, match="adult, purchase100, digits"):
        load("mnist", None, None, 0.3, 0)
    with pytest.raises(BadFile, match=r"data\.source"):
        load("adult", None, None, 0.3, 0)
    with pytest.raises(BadFile, match="no such file"):
        load("purchase100", str(tmp_path / "none"), None, 0.3, 0)
    with pytest.raises(BadValue, match="points"):
        load("adult", adult, 41, 0.3, 0)
    with pytest.raises(BadValue, match="population"):
        load("adult", adult, None, 0.01, 0)
    bad = tmp_path / "bad.csv"
    for text, kind, error in (
        ("age\n1\n", "adult", MissingColumn),
        ("age,income\n1,a\n2,b\n3,c\n", "adult", BadFile),
        ("1,2,3\n", "purchase100", BadFile),
        ("1,a,3\n", "purchase100", BadFile),
        ("", "purchase100", BadFile),
    ):
        bad.write_text(text)
        with pytest.raises(error) as caught:
            load(kind, str(bad), None, 0.3, 0)
        assert isinstance(caught.value, LetheError | BadRow)
