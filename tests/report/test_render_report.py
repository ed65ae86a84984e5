"""The report: self-contained, accessible, labelled; its numbers are the tables' numbers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from rendered import CFG, CONTEXT, draw, run_files
from report_page import PageReader
from synthetic_study import write_study

from expertmiss.cli import main
from expertmiss.errors import UserError
from expertmiss.files import read_json, sha256_file, write_json
from expertmiss.report.base import sections
from expertmiss.report.check import problems
from expertmiss.report.stage import run
from expertmiss.stats.tables import read_table

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def runs(statistics):
    results = statistics["summary"].parents[2]
    return draw(statistics, results / "test" / "make_figures")


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "reports" / "test"
    run(CFG, runs=runs, out=out, context=CONTEXT)
    return out


@pytest.fixture(scope="module")
def page(report):
    return PageReader((report / "index.html").read_text())


def test_all_sections_in_order_and_headings_nest(report, page):
    text = (report / "index.html").read_text()
    shown = [section for section in sections() if set(section.needs) <= {"summary", "differences", "gate_weight", "reuse"}]
    places = [text.index(f'<section id="{section.name}"') for section in shown]
    assert places == sorted(places)
    assert page.headings[0] == "h1" and page.headings.count("h1") == 1
    assert page.headings.count("h2") == len(shown)
    assert all(int(after[1]) - int(before[1]) <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))


def test_page_asks_for_nothing_outside_itself(report, page):
    text = (report / "index.html").read_text()
    assert "<script" not in text and "@import" not in text and not re.search(r"url\((?!#)", text)
    assert all(reference.startswith(("#", "data:,")) for reference in page.references)
    assert set(re.findall(r"https?://[^\"'<\s]*", text)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }  # names, not addresses


def test_links_and_ids_resolve(report, page):
    assert len(page.ids) == len(set(page.ids))
    assert {"#findings", "#methods", "figures/pdf/hit_rate.pdf", "tables/tex/policies.tex", "numbers.tex"} <= set(page.links)
    for link in page.links:
        assert link[1:] in page.ids if link.startswith("#") else (report / link).is_file(), link
    for target in re.findall(r'xlink:href="#([^"]+)"|url\(#([^)]+)\)', (report / "index.html").read_text()):
        assert (target[0] or target[1]) in page.ids


def test_figures_have_alternative_text_and_follow_the_colour_scheme(report, page):
    assert len(page.images) == 5
    for image in page.images:
        assert image["role"] == "img" and len(image["aria-label"]) > 40 and "width" not in image
    body = (report / "index.html").read_text().split("</style>")[1]
    assert "var(--ink)" in body and not re.search("#1b1f24|#ffffff", body, re.IGNORECASE)


def luminance(colour):
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_contrast_is_at_least_4_5_in_both_schemes(report):
    style = (report / "index.html").read_text().split("<style>")[1].split("</style>")[0]
    schemes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{([^}]*)\}", style)]
    assert len(schemes) == 2
    for scheme in schemes:
        for text in ("ink", "muted", "link", "warn"):
            for ground in ("paper", "tint"):
                light, dark = sorted((luminance(scheme[text]), luminance(scheme[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


def test_numbers_in_the_text_come_from_the_tables(statistics, page):
    summary = read_table(statistics["summary"]).frame.query("capacity == 8")
    found = summary.set_index(["policy", "measure"])
    for policy, measure in (("fetch_all", "hit_rate"), ("rule_015", "substituted_share"), ("first_choice", "fetched_share")):
        row = found.loc[(policy, measure)]
        assert f"{100 * row['estimate']:.1f} % [{100 * row['low']:.1f}, {100 * row['high']:.1f}]" in page.text
    assert f"{found.loc[('rule_015', 'mean_mass'), 'estimate']:.3f}" in page.text
    assert "a small model trained by this project" in page.text and "44 documents from 44 sources" in page.text


def test_every_claim_line_carries_its_sample_and_quick_run(report):
    text = (report / "index.html").read_text()
    claims = re.findall(r"<li>.*?</li>", text.split('<ol class="findings">')[1].split("</ol>")[0], re.DOTALL)
    assert len(claims) == 6
    assert all("n = 44 documents, 44 sources; quick run" in claim for claim in claims)


def test_banner_and_limits_follow_the_labels(page):
    for words in ("synthetic", "test_fixture", "exploratory", "test data: invented numbers, not a result", "open loop", "quick run"):
        assert words in page.text
    for words in ("No speed:", "No quality:", "Open loop:", "Not the paper's model:", "Exploratory:"):
        assert words in page.text
    assert "reproduced" not in page.text


def test_tables_hold_the_same_cells_in_every_format(report, statistics):
    names = sorted(path.stem for path in (report / "tables").glob("*.json"))
    assert names == ["differences", "gate_weight", "hit_rate_by_capacity", "mass_by_capacity", "policies", "reuse"]
    data = pd.read_csv(report / "tables" / "csv" / "policies.csv")
    row = data.query("policy == 'rule_015' and measure == 'hit_rate'").iloc[0]
    expected = read_table(statistics["summary"]).frame.query("policy == 'rule_015' and measure == 'hit_rate' and capacity == 8").iloc[0]
    assert row["estimate"] == expected["estimate"]
    shown = f"{100 * row['estimate']:.1f}"
    assert rf"rule\_015 & {shown}\,\%" in (report / "tables" / "tex" / "policies.tex").read_text()
    assert f"{shown}\u00a0%" in (report / "tables" / "md" / "policies.md").read_text()


def test_numbers_tex_defines_each_number_once_with_letters_only(report, statistics):
    lines = (report / "numbers.tex").read_text().splitlines()
    macros = dict(re.fullmatch(r"\\newcommand\{\\([A-Za-z]+)\}\{(.*)\}", line).groups() for line in lines[2:])
    assert len(macros) == len(lines) - 2
    row = read_table(statistics["summary"]).frame.query("policy == 'rule_015' and measure == 'mean_mass' and capacity == 8").iloc[0]
    assert macros["XmMeanMassRuleZeroOneFive"] == f"{row['estimate']:.3f}"
    assert macros["XmHitRateFetchAll"].endswith(r"\,\%")
    assert not any("%" in text.replace(r"\%", "") for text in macros.values())


def test_the_same_inputs_give_the_same_files(report, runs, tmp_path):
    run(CFG, runs=runs, out=tmp_path / "reports" / "test", context=CONTEXT)
    for path in (path for path in sorted(report.rglob("*.*")) if path.name != "run.json"):
        assert path.read_bytes() == (tmp_path / "reports" / "test" / path.relative_to(report)).read_bytes(), path
    assert read_json(report / "run.json")["run_key"] == read_json(tmp_path / "reports" / "test" / "run.json")["run_key"]


def test_an_older_report_leaves_nothing_behind(runs, tmp_path):
    out = tmp_path / "reports" / "test"
    for name in ("figures/svg/old.svg", "tables/csv/old.csv"):
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text("old")
    run(CFG, runs=runs, out=out, context=CONTEXT)
    assert not list(out.rglob("old.*"))


def test_sections_without_their_tables_stay_away(statistics, tmp_path):
    run(CFG, runs=run_files({"reuse": statistics["reuse"]}), out=tmp_path / "reports" / "test", context=CONTEXT)
    page = PageReader((tmp_path / "reports" / "test" / "index.html").read_text())
    assert "routing" in page.ids and not {"findings", "policies", "capacity"} & set(page.ids)


def test_few_sources_are_called_inconclusive(tmp_path):
    few = write_study(tmp_path / "results", sources=20, resamples=50)
    run(CFG, runs=run_files(few), out=tmp_path / "reports" / "test", context=CONTEXT)
    page = PageReader((tmp_path / "reports" / "test" / "index.html").read_text())
    assert page.text.count("inconclusive: n clusters < 40") == 6 and "†" in page.text


def test_inputs_without_tables_and_two_tables_of_one_name_are_refused(statistics, runs, tmp_path):
    write_json(tmp_path / "empty" / "run.json", {"stage": "capture_traces"})
    with pytest.raises(UserError, match="none of the runs"):
        run(CFG, runs=[tmp_path / "empty" / "run.json"], out=tmp_path / "reports", context=CONTEXT)
    twice = [*runs, statistics["reuse"].parent / "run.json"]
    with pytest.raises(UserError, match="a second table 'gate_weight'"):
        run(CFG, runs=twice, out=tmp_path / "reports", context=CONTEXT)


def test_stages_run_from_the_command_line(statistics, tmp_path):
    figures, out = tmp_path / "results" / "figures", tmp_path / "reports" / "test"
    cfg = json.dumps(CFG)
    tables = [word for name in ("differences", "summary") for word in ("--input", f"tables[]={statistics[name]}")]
    assert main(["make_figures", "--cfg", cfg, *tables, "--out", str(figures)]) == 0
    known = [statistics["summary"].parent, statistics["reuse"].parent, figures]
    inputs = [word for folder in known for word in ("--input", f"runs[]={folder / 'run.json'}")]
    assert main(["render_report", "--cfg", cfg, *inputs, "--out", str(out)]) == 0
    assert problems(out) == []


def without_labels(path: Path) -> None:
    """Take the labels out of one artifact, as a careless writer would leave it."""
    if path.suffix == ".json":
        write_json(path, {key: value for key, value in read_json(path).items() if key != "labels"})
    elif path.name == "index.html":
        path.write_text(re.sub(r'<meta name="labels"[^>]*>', "", path.read_text()))
    elif path.name == "numbers.tex":
        path.write_text("\n".join(path.read_text().splitlines()[1:]))
    else:
        if path.suffix == ".png":
            with Image.open(path) as image:
                image.load()
            image.info.clear()
            image.save(path)
        else:
            path.write_bytes(path.read_bytes().replace(b"n: 44 documents", b""))
        description = path.parents[1] / f"{path.stem}.json"
        content = read_json(description)
        content["files"][f"{path.suffix[1:]}/{path.name}"] = sha256_file(path)
        write_json(description, content)


@pytest.mark.parametrize(
    "name",
    [
        "figures/hit_rate.json", "tables/policies.json", "index.html", "numbers.tex", "figures/svg/hit_rate.svg", "figures/pdf/hit_rate.pdf",
        "figures/png/hit_rate.png",
        "figures/png/hit_rate.png",
    ],
)  # fmt: skip
def test_an_artifact_that_lost_its_labels_is_found(report, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(report, copy)
    assert problems(copy) == []
    without_labels(copy / name)
    found = problems(copy)
    assert len(found) == 1 and Path(name).name in found[0] and "labels" in found[0]


def test_files_without_a_description_and_changed_files_are_found(report, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(report, copy)
    (copy / "figures" / "png" / "extra.png").write_bytes(b"")
    (copy / "tables" / "csv" / "policies.csv").write_text("policy\n")
    found = " ".join(problems(copy))
    assert "extra.png: no labels beside it" in found and "policies.csv: missing, or not the file" in found
    assert problems(report) == []


def test_figures_that_lost_their_labels_stop_the_report(statistics, tmp_path):
    runs = draw({"gate_weight": statistics["gate_weight"]}, tmp_path / "results" / "figures")
    without_labels(tmp_path / "results" / "figures" / "gate_weight.json")
    recorded = read_json(runs[-1])
    recorded["outputs"]["results/figures/gate_weight.json"] = sha256_file(tmp_path / "results" / "figures" / "gate_weight.json")
    write_json(runs[-1], recorded)
    with pytest.raises(UserError, match="labels"):
        run(CFG, runs=runs, out=tmp_path / "reports" / "test", context=CONTEXT)
    assert not (tmp_path / "reports" / "test" / "run.json").exists()
