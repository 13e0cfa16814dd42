"""Draw a run's timeline as an SVG: one lane a core, start-up light, steps solid.

    python tools/picture.py RUN > docs/demo.svg

The picture in the README is made with it, from a real run.
"""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

from headway.core.job import Jobs
from headway.core.timeline import Span, read_timeline

# Eight hues that stay apart for most colour-blind readers (Okabe and Ito 2008), white text on them.
COLOURS = ("#0072B2", "#B3541E", "#007A5A", "#8A4F7D", "#5B6770", "#9A6A00", "#2F5D8A", "#A33B3B")
LEFT, TOP, LANE, GAP, WIDTH = 70, 12, 34, 10, 860


def bar(span: Span, name: str, y: int, scale: float) -> str:
    """One span as a rectangle, with the job's name where it fits."""
    x, width = LEFT + span.t * scale, max(1.0, span.d * scale)
    colour = COLOURS[(span.job or 0) % len(COLOURS)]
    light = ' fill-opacity="0.35"' if span.name == "start-up" else ""
    title = f"<title>{escape(name)}: {span.name}, {span.d / 1e9:.1f} s</title>"
    box = (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE}" fill="{colour}"{light}>'
        f"{title}</rect>"
    )
    if span.name == "start-up" or width < 7.5 * len(name):
        return box
    return box + (
        f'<text x="{x + 5:.1f}" y="{y + LANE / 2 + 4:.0f}" fill="#fff">{escape(name)}</text>'
    )


def picture(run: Path) -> str:
    """The SVG of a run folder's timeline."""
    path = run / "timeline.jsonl"
    timeline = read_timeline(path.read_text().splitlines(keepends=True), source=str(path))
    jobs = Jobs.from_json((run / "jobs.json").read_text(), source="jobs.json").jobs
    begin = min(span.t for span in timeline.spans)
    spans = [span.model_copy(update={"t": span.t - begin}) for span in timeline.spans]
    end_ns = max(span.t + span.d for span in spans)
    lanes = sorted({span.lane for span in spans})
    scale = (WIDTH - LEFT - 10) / end_ns
    rows = {lane: TOP + number * (LANE + GAP) for number, lane in enumerate(lanes)}
    bottom = TOP + len(lanes) * (LANE + GAP)
    parts = [
        f'<text x="4" y="{y + LANE / 2 + 4:.0f}" fill="#666">{escape(lane.split("/")[-1])}</text>'
        for lane, y in rows.items()
    ]
    parts += [bar(s, jobs[s.job or 0].name, rows[s.lane], scale) for s in spans]
    for second in range(0, int(end_ns / 1e9) + 1, 20):
        x = LEFT + second * 1e9 * scale
        parts.append(f'<text x="{x:.0f}" y="{bottom + 12}" fill="#666">{second} s</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 20}" '
        f'font-family="sans-serif" font-size="12" role="img">\n'
        f"<title>Jobs of one run on their cores over time</title>\n{body}\n</svg>\n"
    )


if __name__ == "__main__":
    sys.stdout.write(picture(Path(sys.argv[1])))
