"""``kongming audit`` as it is called: documents, pages, exit statuses."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from kongming.audit.readings import write_observations
from tests.audit.synthetic import SURROGATES, Effect, Machine, machines, observe, only
from tests.conftest import Kongming
from tests.variants import variants

HOSTILE = "</title><script>document.title='ran'</script><img src=x onerror=alert(1)>"


def recorded(path: Path, of: Sequence[Machine], *effects: Effect, **options: Any) -> Path:
    observations = observe(of, effects=effects, **options)
    write_observations(path, observations.table, observations.sessions)
    return path


class Tags(HTMLParser):
    """The elements of a page, and attributes that would fetch or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.active: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.active += [
            name
            for name, value in attrs
            if name.startswith("on") or name == "src" or "url(" in (value or "")
            or (name == "href" and not (value or "").startswith("#"))
        ]  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("fleet")
    slow = only("node-02", None, lambda m: 0.3)
    hostile = Machine(HOSTILE, type="<b>odd</b>", tags={"team": "<script>x</script>"})
    return [
        recorded(folder / f"{k}.parquet", [machine], slow, blocks=30, seed=k)
        for k, machine in enumerate([*machines(3), hostile])
    ]


def test_report_in_all_its_forms(kongming: Kongming, fleet: list[Path], tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("type,price\nc1.small,0.1\n<b>odd</b>,0.2\n")
    done = kongming(
        "audit", "report", *fleet, "--out", "report.html", "--csv", "tables", "--prices", prices,
        "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["counts"]["machines"] == 4
    assert {f["kind"] for f in document["findings"]} >= {"slow machine", "variability"}
    with (tmp_path / "tables" / "audit-summaries.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(document["summaries"])
    assert float(rows[0]["median"]) == document["summaries"][0]["median"]
    page = (tmp_path / "report.html").read_text()
    assert "node-02 (c1.small) is slower" in page
    assert "Price and performance" in page


def test_a_page_runs_and_fetches_nothing(
    kongming: Kongming, fleet: list[Path], tmp_path: Path
) -> None:
    assert kongming("audit", "report", *fleet, "--out", "report.html").returncode == 0
    text = (tmp_path / "report.html").read_text()
    tags = Tags(text)
    assert not tags.names & {"script", "img", "iframe", "link", "object", "b>odd"}
    assert tags.active == []
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    # Each plot has a description, and its colours from the style sheet.
    assert text.count("<svg") == text.count('role="img"') > 5
    assert not re.search(r'style="[^"]*#[0-9a-f]{3}', text)


@pytest.mark.parametrize("module", variants(("matplotlib", "jinja2")))
def test_a_page_without_its_libraries_names_the_extra(
    kongming: Kongming, fleet: list[Path], tmp_path: Path, module: str
) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / f"{module}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')"
    )
    done = kongming(
        "audit", "report", *fleet, "--out", "report.html", env={"PYTHONPATH": str(blocked)}
    )
    assert done.returncode == 2
    assert "pip install 'kongming[plots]'" in done.stderr
    assert not (tmp_path / "report.html").exists()
    # Tables need neither.
    done = kongming("audit", "report", *fleet, "--json", env={"PYTHONPATH": str(blocked)})
    assert done.returncode == 0, done.stderr


PICTURES = Path(__file__).parents[2] / "build" / "pictures"
"""The folder of the screenshots, for a person to look at."""

CUT_LABELS = """[...document.querySelectorAll("svg")].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const own = text.getBoundingClientRect();
    return own.width && (own.left < box.left - 1 || own.right > box.right + 1);
  }).map(text => text.textContent);
})"""

NESTED = """[...document.querySelectorAll("main *")].filter(one =>
  one.scrollHeight > one.clientHeight + 1 && one.clientHeight
  && getComputedStyle(one).overflowY !== "visible" && one.tagName !== "svg"
  && !one.closest("th")).map(one => one.className)"""

WIDE_TABLES = """[...document.querySelectorAll(".scroll")].filter(one =>
  one.scrollWidth > one.clientWidth + 1).map(one => one.getAttribute("aria-label"))"""


@pytest.mark.thorough
@pytest.mark.parametrize("recordings", ["fleet", "one-machine"])
def test_a_page_in_a_browser(
    kongming: Kongming, fleet: list[Path], tmp_path: Path, recordings: str
) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser_path = shutil.which("chromium")
    if browser_path is None:
        pytest.skip("chromium is not installed")
    files = fleet if recordings == "fleet" else fleet[:1]
    assert kongming("audit", "report", *files, "--out", "report.html").returncode == 0
    PICTURES.mkdir(parents=True, exist_ok=True)
    events: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        papers = set()
        for width, scheme in itertools.product((1200, 800, 400), ("light", "dark")):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            page.on("console", lambda message: events.append(message.text))
            page.on("dialog", lambda dialog: (events.append("dialog"), dialog.dismiss()))
            page.on("request", lambda request: events.append(request.url))
            page.goto((tmp_path / "report.html").as_uri())
            assert page.title() == "Audit of instances"
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            # A wide table scrolls sideways within itself; nothing else does, and nothing downwards.
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.evaluate(NESTED) == []
            if width == 1200:
                # A column for each name does not fit, of however many there are.
                wide = [
                    heading
                    for heading in page.evaluate(WIDE_TABLES)
                    if heading != "machine, serve, sort, zip"
                ]
                assert wide == []
            assert page.evaluate(CUT_LABELS) == []
            papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            page.screenshot(
                path=PICTURES / f"audit-{recordings}-{width}-{scheme}.png", full_page=True
            )
            page.close()
        browser.close()
    assert len(papers) == 2
    assert [event for event in events if not event.endswith("/report.html")] == []


@pytest.mark.thorough
def test_a_page_of_one_machine_announces_only_what_it_shows(
    kongming: Kongming, fleet: list[Path], tmp_path: Path
) -> None:
    assert kongming("audit", "report", fleet[0], "--out", "report.html").returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert "strip of shades" not in page
    assert "An interval would be that of further machines" in page
    signals = page.index("Passive signals (what ran on the machine")
    assert page.index(">os.syscall<") < signals < page.rindex(">psi.cpu.some<")


def test_a_recording_too_short_to_conclude_from_says_so(kongming: Kongming, tmp_path: Path) -> None:
    short = recorded(tmp_path / "short.parquet", machines(1), blocks=6, step_s=1.0, seed=1)
    done = kongming("audit", "report", short, "--json", "--out", "report.html")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["findings"][0]
    assert first["kind"] == "short recording"
    assert "it shows this moment" in first["text"]
    assert "Record for 10 min 00 s or more" in (tmp_path / "report.html").read_text()


def test_report_for_a_person(kongming: Kongming, fleet: list[Path]) -> None:
    done = kongming("audit", "report", *fleet)
    assert done.returncode == 0
    assert "node-02 (c1.small) is slower than the typical machine" in done.stdout


def test_a_type_without_a_price_is_named(
    kongming: Kongming, fleet: list[Path], tmp_path: Path
) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("type,price\nc1.smal,0.1\n")
    done = kongming("audit", "report", *fleet, "--prices", prices)
    assert done.returncode == 2
    assert "<b>odd</b>, c1.small" in done.stderr
    prices.write_text("type,price\nc1.small,0.1\n")
    done = kongming("audit", "report", *fleet, "--prices", prices)
    assert done.returncode == 0
    assert "has no price of <b>odd</b>." in " ".join(done.stderr.split())


def test_tables_of_an_earlier_report_do_not_stay(
    kongming: Kongming, fleet: list[Path], tmp_path: Path
) -> None:
    prices, tables = tmp_path / "prices.csv", tmp_path / "tables"
    prices.write_text("type,price\nc1.small,0.1\n<b>odd</b>,0.2\n")
    assert kongming("audit", "report", *fleet, "--csv", tables, "--prices", prices).returncode == 0
    written = {path.name for path in tables.iterdir()}
    assert {"audit-slow_machines.csv", "audit-prices.csv", "audit-summaries.csv"} <= written
    own = {name: f"my own {name}" for name in ("notes.csv", "prices.csv", "machines.csv")}
    for name, text in own.items():
        (tables / name).write_text(text)
    assert kongming("audit", "report", fleet[0], "--csv", tables).returncode == 0
    written = {path.name for path in tables.iterdir()}
    assert "audit-summaries.csv" in written
    assert {name: (tables / name).read_text() for name in own} == own
    assert not {"audit-slow_machines.csv", "audit-prices.csv"} & written


def test_a_page_is_not_written_in_the_place_of_what_it_is_made_from(
    kongming: Kongming, fleet: list[Path], tmp_path: Path
) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("type,price\nc1.small,0.1\n")
    for out in (fleet[0], prices):
        before = out.read_bytes()
        done = kongming("audit", "report", *fleet, "--prices", prices, "--out", out)
        assert done.returncode == 2
        assert "which it would replace" in done.stderr
        assert out.read_bytes() == before


def test_a_recording_that_is_there_twice_is_refused(kongming: Kongming, fleet: list[Path]) -> None:
    done = kongming("audit", "report", fleet[0], fleet[0])
    assert done.returncode == 2
    assert "Give each recording once" in done.stderr


@pytest.mark.parametrize(
    ("effect", "status", "verdict"),
    [(0.0, 0, "equivalent"), (0.2, 4, "differs")],
)
def test_compare(
    kongming: Kongming, tmp_path: Path, effect: float, status: int, verdict: str
) -> None:
    a = recorded(tmp_path / "a.parquet", machines(1), seed=1)
    b = recorded(tmp_path / "b.parquet", machines(1), only(None, "zip", lambda m: effect), seed=2)
    done = kongming("audit", "compare", a, b, "--json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    by_name = {row["name"]: row for row in document["comparisons"]}
    assert by_name["zip"]["verdict"] == verdict
    assert by_name["zip"]["ratio"] == pytest.approx(1.0 + effect * 1.1, abs=0.03)
    assert {row["verdict"] for name, row in by_name.items() if name != "zip"} == {"equivalent"}
    assert "Fewer than three recordings" in document["notes"][0]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        # Of a program that varies so much the readings say nothing, however steady surrogates are.
        ({"load": {"zip": 0.5}}, 3),
        ({"failing": {"zip": 1.1}}, 3),
        ({"programs": {"sort": 5.0, "serve": 0.8}}, 3),
        ({"surrogates": {"compute.int": 9e-9, "os.syscall": 4e-7}}, 0),
    ],
    ids=["undecided", "failed", "gone", "a surrogate moved"],
)
def test_the_status_of_a_comparison_is_that_of_the_programs(
    kongming: Kongming, tmp_path: Path, options: dict[str, Any], status: int
) -> None:
    a = recorded(tmp_path / "a.parquet", machines(1), seed=1)
    b = recorded(tmp_path / "b.parquet", machines(1), seed=2, **options)
    done = kongming("audit", "compare", a, b)
    assert done.returncode == status, done.stdout
    assert "equivalent" in done.stdout


@pytest.mark.parametrize("rates", [(), ("zip",)], ids=["seconds", "rate"])
def test_a_difference_says_its_direction(
    kongming: Kongming, tmp_path: Path, rates: tuple[str, ...]
) -> None:
    a = recorded(tmp_path / "a.parquet", machines(1), rates=rates, seed=1)
    faster = only(None, "zip", lambda m: -0.2)
    b = recorded(tmp_path / "b.parquet", machines(1), faster, rates=rates, seed=2)
    assert "differs: B is faster" in kongming("audit", "compare", a, b).stdout
    done = kongming("audit", "compare", b, a, "--json")
    assert done.returncode == 4
    directions = {row["name"]: row["direction"] for row in json.loads(done.stdout)["comparisons"]}
    assert directions.pop("zip") == "slower"
    assert set(directions.values()) == {None}


def test_a_program_that_failed_in_all_runs_of_both_is_not_equivalent(
    kongming: Kongming, tmp_path: Path
) -> None:
    failing = {"zip": 1.1}
    a, b = (
        recorded(tmp_path / f"{k}.parquet", machines(1), blocks=40, failing=failing, seed=k)
        for k in (1, 2)
    )
    for by in ((), ("--by", "machine")):
        done = kongming("audit", "compare", a, b, "--json", *by)
        assert done.returncode == 3, done.stdout
        document = json.loads(done.stdout)
        programs = [row for row in document["comparisons"] if row["kind"] == "program"]
        assert {row["verdict"] for row in programs} == {"equivalent"}
        assert any("Without a successful reading on a side" in n for n in document["notes"])
        assert any("zip" in note for note in document["notes"])


def test_a_program_that_a_machine_never_ran_does_not_lack_there(
    kongming: Kongming, tmp_path: Path
) -> None:
    recordings = []
    for k in (1, 2):
        first = observe(machines(1), blocks=40, seed=k)
        other = observe([Machine("other")], blocks=40, programs={"sort": 5.0}, seed=10 + k)
        table = pyarrow.concat_tables([first.table, other.table]).unify_dictionaries()
        recordings.append(tmp_path / f"{k}.parquet")
        sessions = {**first.sessions, **other.sessions}
        write_observations(recordings[-1], table.sort_by([("at", "ascending")]), sessions)
    done = kongming("audit", "compare", *recordings, "--by", "machine")
    assert done.returncode == 0, done.stdout


def test_a_program_that_was_never_run_under_a_tag_does_not_lack_there(
    kongming: Kongming, tmp_path: Path
) -> None:
    """One machine, of which only the newer recordings have the second program."""
    recordings = []
    for k in (1, 2):
        older = observe(machines(1), blocks=40, seed=k)
        newer = observe(machines(1), blocks=40, programs={"zip": 3.0, "sort": 5.0}, seed=10 + k)
        renamed = {key: f"newer {key}" for key in newer.sessions}
        owners = [renamed[key] for key in newer.table["session"].to_pylist()]
        place = newer.table.schema.get_field_index("session")
        table = newer.table.set_column(place, "session", pyarrow.array(owners).dictionary_encode())
        table = pyarrow.concat_tables([older.table, table.cast(older.table.schema)])
        sessions = {key: {**own, "tags": {"v": "old"}} for key, own in older.sessions.items()}
        sessions |= {
            renamed[key]: {**own, "tags": {"v": "new"}} for key, own in newer.sessions.items()
        }
        recordings.append(tmp_path / f"{k}.parquet")
        table = table.unify_dictionaries().sort_by([("at", "ascending")])
        write_observations(recordings[-1], table, sessions)
    done = kongming("audit", "compare", *recordings, "--by", "tag:v")
    assert done.returncode == 0, done.stdout


def test_compare_that_can_tell_nothing(kongming: Kongming, tmp_path: Path) -> None:
    a = recorded(tmp_path / "a.parquet", machines(1), blocks=10, noise=0.5, seed=1)
    b = recorded(tmp_path / "b.parquet", machines(1), blocks=10, noise=0.5, seed=2)
    done = kongming("audit", "compare", a, b)
    assert done.returncode == 3
    assert "more per side" in done.stdout


def test_compare_kernels_of_many_machines(kongming: Kongming, tmp_path: Path) -> None:
    a = recorded(tmp_path / "a.parquet", machines(4, kernel="6.1.0"), blocks=20, seed=1)
    newer = only(None, "os.syscall", lambda m: 0.3)
    b = recorded(tmp_path / "b.parquet", machines(4, kernel="6.9.0"), newer, blocks=20, seed=2)
    done = kongming("audit", "compare", a, b, "--by", "kernel", "--json")
    # What moved is a surrogate; the programs are as fast as before.
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {row["group"] for row in document["comparisons"]} == {"6.1.0 and 6.9.0"}
    assert [r["name"] for r in document["comparisons"] if r["verdict"] == "differs"] == [
        "os.syscall"
    ]
    assert {row["a"]["judged_by"] for row in document["comparisons"]} == {"machines"}


def test_compare_like_with_like(kongming: Kongming, tmp_path: Path) -> None:
    a = recorded(tmp_path / "a.parquet", machines(2), blocks=20, seed=1)
    slower = only("node-01", "zip", lambda m: 0.3)
    b = recorded(tmp_path / "b.parquet", machines(3), slower, blocks=20, seed=2)
    document = json.loads(kongming("audit", "compare", a, b, "--by", "machine", "--json").stdout)
    differing = [
        (r["group"], r["name"]) for r in document["comparisons"] if r["verdict"] == "differs"
    ]
    assert differing == [("node-01", "zip")]
    assert "In only one of the two: node-02." in document["notes"]


def test_two_machines_want_a_third(kongming: Kongming, tmp_path: Path) -> None:
    slower = only("node-01", None, lambda m: 0.1)
    a, b = (
        recorded(tmp_path / f"{k}.parquet", machines(2), slower, blocks=20, sessions=3, seed=k)
        for k in (1, 2)
    )
    done = kongming("audit", "compare", a, b, "--wide")
    assert done.returncode == 3, done.stdout
    assert "cannot tell (needs a third machine)" in done.stdout
    assert "Only two machines on a side" in done.stdout
    assert kongming("audit", "compare", a, b, "--by", "machine").returncode == 0


def test_seconds_and_rates_are_not_mixed(kongming: Kongming, tmp_path: Path) -> None:
    a = recorded(tmp_path / "a.parquet", machines(1), blocks=20, seed=1)
    b = recorded(tmp_path / "b.parquet", machines(1), blocks=20, seed=2, rates=("serve",))
    document = json.loads(kongming("audit", "compare", a, b, "--json").stdout)
    assert "serve" not in {row["name"] for row in document["comparisons"]}
    assert (
        "Without a successful reading on a side, or in different units: serve." in document["notes"]
    )
    done = kongming("audit", "report", a, b, "--out", tmp_path / "page.html")
    assert done.returncode == 2
    assert "The readings of serve differ in unit (op/s, s)" in done.stderr


def test_what_is_not_the_same_on_both_sides_is_named(kongming: Kongming, tmp_path: Path) -> None:
    paths = []
    for k, size in enumerate((1 << 20, 2 << 20)):
        observations = observe(machines(1), blocks=20, seed=k)
        ((key, session),) = observations.sessions.items()
        sizes = {name: {"data": size if name == "os.syscall" else 1} for name in SURROGATES}
        session = {
            **session,
            "suite_version": f"1-{k}",
            "surrogates": {name: {"sizes": own} for name, own in sizes.items()},
            "programs": {**session["programs"], "zip": {"identity": str(k), "unit": "s"}},
        }
        paths.append(tmp_path / f"{k}.parquet")
        write_observations(paths[-1], observations.table, {key: session})
    done = kongming("audit", "compare", *paths, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    names = {row["name"] for row in document["comparisons"] if row["kind"] == "surrogate"}
    assert names == set(SURROGATES) - {"os.syscall"}
    notes = " ".join(document["notes"])
    assert "Left out: os.syscall has other sizes on other machines: 1.00 MiB, 2.00 MiB." in notes
    assert "Not the same command, settings and executable in all recordings: zip." in notes


@pytest.mark.parametrize("by", ["colour", "tag:"])
def test_compare_by_what_there_is_not(kongming: Kongming, fleet: list[Path], by: str) -> None:
    done = kongming("audit", "compare", fleet[0], fleet[1], "--by", by)
    assert done.returncode == 2
    assert "tag:KEY" in done.stderr
