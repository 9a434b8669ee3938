"""The table in Markdown."""

# Whose ratio is shown.
RATIOS = {"per_second", "p50_ms", "p99_ms"}
UNITS = {"per_second": "messages/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms"}


def figure(value: float) -> str:
    """To three digits, which is more than such a measurement has."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def cell(spread: dict | None) -> str:
    if spread is None:
        return "—"
    if spread["rounds"] == 1:
        return figure(spread["median"])
    return f"{figure(spread['median'])} ({figure(spread['min'])}..{figure(spread['max'])})"


def table(job: dict, versions: dict[str, str]) -> list[str]:
    """One job: a row for each contender, and what Postrider is to it."""
    summary = job["summary"]
    names = sorted(summary, key=lambda name: (name != "postrider", name != "bare SQL", _order(job, name)))
    figures = list(next(iter(summary.values()), {}))
    head = ["", "messages"]
    for it in figures:
        head += [UNITS[it], "Postrider to it"] if it in RATIOS else [UNITS[it]]
    lines = [f"### {job['name']}: {job['about']}", "", _row(head), _row(["---"] * len(head))]
    for name in names:
        cells = []
        for it in figures:
            cells.append(cell(summary[name][it]["figure"]))
            if it in RATIOS:
                cells.append(cell(summary[name][it]["postrider_to_it"] if name != "postrider" else None))
        lines.append(_row([f"{name} {versions.get(name, '')}".strip(), f"{job['messages'][name]:,}", *cells]))
    lines += [_row([name, "—", "failed", *[""] * (len(head) - 3)]) for name in job["failed"] if name not in summary]
    return [*lines, ""]


def _order(job: dict, name: str) -> float:
    """The best first."""
    of_name = job["summary"][name]
    first = next(iter(of_name))
    value = of_name[first]["figure"]["median"]
    return -value if first == "per_second" else value


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.strip() for cell in cells) + " |"


def setting(values: dict[str, object]) -> str:
    """A setting that is the same in all jobs is said once."""
    if len(set(values.values())) == 1:
        return str(next(iter(values.values())))
    return ", ".join(f"{value} ({kind})" for kind, value in values.items())


def page(report: dict) -> str:
    machine, server = report["machine"], report["server"]
    lines = [
        "# Postrider beside others",
        "",
        f"{report['began']}, {report['rounds']} rounds in turn, median (smallest..largest). {machine['processor']}, "
        f"{machine['cores']} cores shared by clients and server, {machine['system']}.",
        f"PostgreSQL {server['server_version']}: " + ", ".join(f"{k} {v}" for k, v in server.items() if k != "server_version")
        + ".",
        "",
    ]
    if report["quick"] or report["build"] != "release":
        lines += ["**Not for figures**: a quick run, or a debug build of Postrider.", ""]
    for job in report["jobs"]:
        lines += table(job, report["versions"])
    lines += ["### Settings", ""]
    for name, settings in report["settings"].items():
        lines.append(f"- **{name}**: " + "; ".join(f"{key}: {setting(values)}" for key, values in settings.items()))
    if report["failures"]:
        lines += ["", "### Failed", "", *(f"- {it['who']}, {it['job']}: {it['why']}" for it in report["failures"])]
    return "\n".join(lines) + "\n"
