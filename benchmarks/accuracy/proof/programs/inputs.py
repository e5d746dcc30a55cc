"""Inputs of the second list's programs, the same on each machine: inputs.py KIND PATH SIZE."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
from make import words


def rust(path: Path, types: int) -> None:
    """Rust of so many types, each with generic code made for it."""
    lines = [
        "use std::collections::HashMap;",
        "pub trait Fold { fn fold(&self, seed: u64) -> u64; }",
        "pub fn all<T: Fold + Clone>(items: &[T], times: usize) -> u64 {",
        "    let mut seen: HashMap<u64, Vec<T>> = HashMap::new();",
        "    let mut seed = 7u64;",
        "    for n in 0..times {",
        "        for item in items {",
        "            seed = item.fold(seed ^ n as u64);",
        "            seen.entry(seed % 97).or_default().push(item.clone());",
        "        }",
        "    }",
        "    seen.values().map(|v| v.len() as u64).fold(seed, |a, b| a.wrapping_mul(31) + b)",
        "}",
    ]
    for n in range(types):
        lines += [
            f"#[derive(Clone)] pub struct T{n} {{ a: u64, b: Vec<u{(8, 16, 32, 64)[n % 4]}> }}",
            f"impl Fold for T{n} {{ fn fold(&self, seed: u64) -> u64 {{",
            f"    self.b.iter().fold(seed + self.a, |s, x| s.rotate_left({n % 13 + 1})",
            f"        .wrapping_add(*x as u64 * {n + 3})) }} }}",
            f"pub fn run{n}(items: &[T{n}]) -> u64 {{ all(items, {n + 2}) }}",
        ]
    path.write_text("\n".join(lines) + "\n")


def pages(path: Path, count: int) -> None:
    """PostScript: pages of lines of text over curves and shaded cells."""
    numbers = np.random.default_rng(20)
    rng, known = random.Random(20), words(numbers, 3_000)
    lines = ["%!PS-Adobe-3.0", f"%%Pages: {count}"]
    for page in range(1, count + 1):
        lines.append(f"%%Page: {page} {page}")
        for _ in range(400):
            x, y = rng.uniform(0, 550), rng.uniform(0, 800)
            lines.append(f"{rng.random():.2f} {rng.random():.2f} 0.9 setrgbcolor")
            lines.append(f"newpath {x:.0f} {y:.0f} 30 0 360 arc fill")
            ends = " ".join(f"{rng.uniform(0, 600):.0f}" for _ in range(6))
            lines.append(f"0 setgray newpath {x:.0f} {y:.0f} moveto {ends} curveto stroke")
        lines.append("/Times-Roman findfont 11 scalefont setfont 0 setgray")
        for row in range(60):
            text = " ".join(rng.choice(known) for _ in range(14))
            lines.append(f"40 {780 - 12 * row} moveto ({text}) show")
        lines.append("showpage")
    path.write_text("\n".join(lines) + "\n%%EOF\n")


if __name__ == "__main__":
    kind, where, size = sys.argv[1:]
    {"rust": rust, "pages": pages}[kind](Path(where), int(size))
