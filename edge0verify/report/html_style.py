"""The look of the report: one style sheet, light and dark, from 320 px up. No font, picture or script is loaded."""

from __future__ import annotations

LIGHT = {
    "page": "#ffffff",
    "panel": "#f5f6f8",
    "ink": "#1b1f24",
    "quiet": "#57606a",
    "line": "#c9ced6",
    "link": "#0757b0",
    "pass": "#0f6b33",
    "fail": "#b01c1c",
    "unproven": "#8a5300",
    "on-badge": "#ffffff",
}
DARK = {
    "page": "#14171c",
    "panel": "#1e232a",
    "ink": "#e8eaed",
    "quiet": "#a9b1bb",
    "line": "#444c57",
    "link": "#7db8ff",
    "pass": "#6fd08c",
    "fail": "#ff8a80",
    "unproven": "#f2bd55",
    "on-badge": "#14171c",
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


STYLE = (
    ":root{color-scheme:light dark;" + _variables(LIGHT) + "}\n"
    "@media (prefers-color-scheme:dark){:root{" + _variables(DARK) + "}}\n"
    """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:auto}
body{margin:0;background:var(--page);color:var(--ink);overflow-wrap:anywhere;
 font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
a{color:var(--link)}
.skip{position:absolute;left:-200vw;top:0;background:var(--panel);padding:.5rem 1rem;z-index:2}
.skip:focus{left:.5rem;top:.5rem}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
header,main,footer,nav{max-width:76rem;margin:0 auto;padding:0 1rem}
header{padding-top:1rem}
footer{padding:2rem 1rem;color:var(--quiet);font-size:.875rem}
h1{font-size:1.35rem;line-height:1.3;margin:.25rem 0 .5rem}
h2{font-size:1.15rem;margin:2.25rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
p{margin:.5rem 0;max-width:48rem}
main>nav{padding:0;margin:1.25rem 0 0}
nav ul{display:flex;flex-wrap:wrap;gap:.125rem 1rem;list-style:none;margin:0;padding:0}
nav a{display:inline-block;padding:.25rem 0}
.quiet{color:var(--quiet)}
.verdict{border:1px solid var(--line);border-left:.5rem solid var(--quiet);background:var(--panel);padding:.75rem 1rem;
 margin:.75rem 0}
.verdict.pass{border-left-color:var(--pass)}
.verdict.fail{border-left-color:var(--fail)}
.verdict.inconclusive{border-left-color:var(--unproven)}
.verdict>p>.badge{font-size:1.25rem}
.badge{display:inline-block;font-weight:700;white-space:nowrap;border-radius:.25rem;padding:0 .5rem;background:var(--quiet);
 color:var(--on-badge)}
.badge.pass{background:var(--pass)}
.badge.fail{background:var(--fail)}
.badge.inconclusive{background:var(--unproven)}
td .badge,th .badge{font-size:.8125rem}
ul{padding-left:1.25rem;margin:.5rem 0}
li{margin:.125rem 0}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:.25rem 1.5rem;margin:.5rem 0}
.facts div{display:flex;gap:.5rem;min-width:0}
.facts dt{color:var(--quiet);flex:0 0 8.5rem}
.facts dd{margin:0;min-width:0}
.scroll{overflow-x:auto;width:fit-content;max-width:100%;margin:.5rem 0;border:1px solid var(--line);background:var(--panel)}
.scroll.late{direction:rtl}
.scroll.late>*{direction:ltr}
.scroll.tall{max-height:28rem;overflow-y:auto}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:normal;
 white-space:nowrap}
thead th{vertical-align:bottom;font-weight:600}
tbody th{font-weight:400}
th.n,td.n{text-align:right}
td.why{min-width:16rem;max-width:40rem;white-space:normal;overflow-wrap:anywhere}
tr.fail th,tr.fail td:first-child{box-shadow:inset .25rem 0 var(--fail)}
tr.inconclusive th,tr.inconclusive td:first-child{box-shadow:inset .25rem 0 var(--unproven)}
pre{margin:0;padding:.6rem .75rem;font:.875rem/1.5 ui-monospace,"DejaVu Sans Mono",monospace;white-space:pre;overflow-wrap:normal}
code{font:.9em ui-monospace,"DejaVu Sans Mono",monospace}
details{margin:.5rem 0}
summary{cursor:pointer;padding:.35rem 0;font-weight:600}
details details summary{font-weight:400}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));gap:1rem}
figure{margin:.75rem 0;border:1px solid var(--line);background:var(--panel);padding:.5rem;min-width:0}
.row{display:flex;flex-wrap:wrap;gap:1rem;align-items:flex-start}
.figures figure,.row figure{margin:0}
figure .scroll{border:0;margin:0;width:auto}
figure svg{display:block;width:100%;height:auto;max-width:34rem}
figure.wide{width:fit-content;max-width:100%}
figure.wide .scroll svg{max-width:none}
figcaption{font-size:.875rem;margin-top:.35rem}
.legend{display:flex;flex-wrap:wrap;gap:.125rem .9rem;list-style:none;margin:.35rem 0 0;padding:0;font-size:.875rem}
.legend svg{display:inline-block;width:1.9rem;height:.7rem;vertical-align:middle;margin-right:.3rem}
@media print{.scroll{overflow:visible}.scroll.late{direction:rtl}
.scroll.late>*{direction:ltr}
.scroll.tall{max-height:none}nav,.skip{display:none}}
"""
)
