"""The looks of a report: one sheet, light and dark, of system fonts."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b1f24; --faint: #59636e; --edge: #d5dae0;
  --grid: #e3e7ec; --blue: #1f63a5; --bar: #5f9fd0; --orange: #b34700; --green: #00734f;
  --warm: #e0652a; --cool: #3a86c8; --mark: #8a4b00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f1317; --card: #171c22; --ink: #e8ecf0; --faint: #a3adb8; --edge: #323941;
    --grid: #2a3139; --blue: #7bbcec; --bar: #3f87bf; --orange: #f7a05c; --green: #4fd6a8;
    --warm: #c2571f; --cool: #2f6fa8; --mark: #ffc06b;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-size: 16px; }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.6rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .4rem; overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .3rem; }
p { margin: .3rem 0 .8rem; max-width: 48rem; }
.faint, figcaption, caption { color: var(--faint); font-size: .875rem; }
a { color: var(--blue); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: .8rem 0 0; font-size: .95rem; }
.numbers { display: grid; gap: .7rem; margin: 1.2rem 0 0; padding: 0;
  grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.numbers div { background: var(--card); border: 1px solid var(--edge); border-radius: 10px;
  padding: .6rem .9rem; }
.numbers dt { color: var(--faint); font-size: .85rem; }
.numbers dd { margin: 0; font-size: 1.4rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.numbers .alarm dd { color: var(--orange); }
.findings { list-style: none; margin: .6rem 0; padding: 0; display: grid; gap: .4rem; }
.findings li { background: var(--card); border: 1px solid var(--edge); border-left: 4px solid
  var(--blue); border-radius: 6px; padding: .45rem .8rem; overflow-wrap: anywhere; }
.findings li.warn { border-left-color: var(--orange); }
.findings b { color: var(--faint); font-weight: 600; font-size: .8rem; text-transform: uppercase;
  letter-spacing: .04em; margin-right: .5rem; }
.cards { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); }
.lines { display: grid; gap: .8rem; margin-top: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); }
figure { margin: 0; background: var(--card); border: 1px solid var(--edge); border-radius: 10px;
  padding: .7rem .8rem .5rem; min-width: 0; }
figure.one { margin-top: .8rem; max-width: 46rem; }
figcaption b { color: var(--ink); font-size: .98rem; overflow-wrap: anywhere; }
figcaption span { display: block; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--edge);
  border-radius: 10px; margin: .5rem 0 .8rem; max-height: 36rem; width: fit-content;
  max-width: 100%; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .5rem .7rem; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--grid); }
th { font-weight: 600; }
thead th { color: var(--faint); position: sticky; top: 0; background: var(--card); z-index: 2; }
th[scope=row], th.left, td.left { text-align: left; }
th[scope=row] { position: sticky; left: 0; background: var(--card); max-width: 15rem;
  overflow: hidden; text-overflow: ellipsis; z-index: 1; }
thead th:first-child { left: 0; z-index: 3; }
td.slow { background: color-mix(in srgb, var(--warm) var(--v), var(--card)); }
td.fast { background: color-mix(in srgb, var(--cool) var(--v), var(--card)); }
td.chosen { outline: 2px solid var(--ink); outline-offset: -2px; font-weight: 700; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: var(--blue); padding: .3rem 0; }
svg.plot { display: block; width: 100%; height: auto; margin-top: .3rem; }
svg text { fill: var(--faint); font-size: 11px; font-family: inherit; }
svg text.small { font-size: 9px; }
svg.wide text { font-size: 13px; }
svg .bar { fill: var(--bar); }
svg .shade { fill: var(--blue); }
svg .axis { stroke: var(--faint); }
svg .grid { stroke: var(--grid); }
svg .median { stroke: var(--orange); stroke-width: 2; }
svg .mark { stroke: var(--mark); stroke-width: 2; }
svg .points { stroke: var(--bar); stroke-width: 3.2; stroke-linecap: round; fill: none;
  stroke-opacity: .6; }
svg .level { stroke: var(--orange); stroke-width: 2.4; fill: none; }
svg .cut { stroke: var(--orange); stroke-dasharray: 3 3; }
svg .way0 { stroke: var(--blue); stroke-width: 2; fill: none; }
svg .way1 { stroke: var(--orange); stroke-width: 2; fill: none; }
svg .dot0 { fill: var(--blue); }
svg .dot1 { fill: var(--orange); }
svg .dot2 { fill: var(--green); }
.sideways { overflow-x: auto; }
.sideways svg { min-width: 34rem; }
dl.words dt { font-weight: 650; margin-top: .7rem; }
dl.words dd { margin: 0; max-width: 48rem; color: var(--faint); }
footer { padding: 2rem 1rem 3rem; }
:focus-visible { outline: 3px solid var(--orange); outline-offset: 2px; }
@media (max-width: 480px) { body { font-size: 15px; } h1 { font-size: 1.4rem; }
  .numbers { grid-template-columns: repeat(2, 1fr); } .cards { grid-template-columns: 1fr; }
  th[scope=row] { max-width: 9.5rem; } }
@media print { .scroll { max-height: none; } }
"""
