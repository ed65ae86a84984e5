"""How numbers are written."""

from __future__ import annotations

import math

import pytest

from expertmiss.report.numbers import Numbers, digits_for, latex_text, macro_name, show, show_interval


@pytest.mark.parametrize(
    ("unit", "value", "signed", "expected"),
    [
        ("share", 0.59049, False, "59.0\u00a0%"), ("share", 0.0042, False, "0.42\u00a0%"), ("share", 0.0, False, "0\u00a0%"),
        ("share", -0.0123, True, "−1.2\u00a0points"), ("share", 0.0123, True, "+1.2\u00a0points"), ("share", -1e-9, True, "0.00\u00a0points"),
        ("weight", 0.07049, False, "0.070"), ("weight", 0.00049, False, "0.0005"), ("experts", 1.639, False, "1.639"), ("nats", math.nan, False, "–"),
    ],
)  # fmt: skip
def test_numbers_have_about_three_figures_and_their_unit(unit, value, signed, expected):
    assert show(unit, value, digits_for(unit, value), signed) == expected


def test_intervals_share_the_estimates_decimals():
    assert show_interval("share", 0.5012, 0.6, 1) == "[50.1, 60.0]"
    assert show_interval("share", -0.02, 0.01, 1, signed=True) == "[−2.0, +1.0]"
    assert show_interval("share", math.nan, 0.6, 1) == show_interval("weight", 0.0, 0.0, 3) == ""


def test_macro_names_are_letters():
    assert macro_name("hit_rate", "rule_015") == "XmHitRateRuleZeroOneFive"
    assert macro_name("gate_weight", "rank 0", "CI") == "XmGateWeightRankZeroCI"


def test_latex_text_escapes_what_tex_reads_as_markup():
    assert latex_text("rule_015 (25\u00a0%) [−1.0, 2] ≥ †") == r"rule\_015 (25\,\%) {[}$-$1.0, 2{]} $\geq$ $^\dagger$"


def test_one_name_cannot_mean_two_numbers():
    numbers = Numbers()
    assert numbers.plain(("n",), 1234) == numbers.plain(("n",), 1234) == "1,234"
    with pytest.raises(ValueError, match="XmN is used with two values"):
        numbers.plain(("n",), 5)
