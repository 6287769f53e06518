"""``benchmark``: what each precision gives on this machine, and which claims about it hold.

Settings in the groups model, data, amp and trainer are those of every case's ``fit``.
"""

from __future__ import annotations

import json
import shlex
from argparse import ArgumentError
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser

from bert_lightning import __version__
from bert_lightning.arguments import (
    BENCHMARK,
    BENCHMARK_TASK,
    configs_folder,
    explain,
    order_arguments,
    read_config,
    typed_values,
)
from bert_lightning.benchmark.case_page import as_page
from bert_lightning.benchmark.case_picture import write_picture
from bert_lightning.benchmark.case_results import FILE, Results, as_csv
from bert_lightning.benchmark.case_runs import (
    Interrupted,
    Processes,
    ReadyProcess,
    Result,
    interrupting_signals,
    run_case,
)
from bert_lightning.benchmark.case_screen import Screen
from bert_lightning.benchmark.case_tables import as_markdown
from bert_lightning.benchmark.cases import (
    BenchmarkSettings,
    Case,
    Subject,
    absence,
    all_cases,
    check_cases,
)
from bert_lightning.benchmark.claims import Claim, read_claims
from bert_lightning.benchmark.places import without_places
from bert_lightning.benchmark.stopwatch import Extent
from bert_lightning.benchmark.verdicts import Judgement, judge
from bert_lightning.console import Console
from bert_lightning.errors import ConfigError
from bert_lightning.notices import quieten
from bert_lightning.plain_yaml import read_yaml
from bert_lightning.precision import cpu_computes_bf16
from bert_lightning.replacing import replacing

FIT_GROUPS = ("model", "data", "amp", "trainer")
WINDOWS = 3
SET_BY_CASES = ("trainer.precision", "trainer.callbacks", "trainer.devices", "trainer.num_nodes")
CPU_WARMUP, CPU_STEPS, CPU_SECONDS = 15, 60, 3.0  # at most


def benchmark(args: Sequence[str]) -> int:
    """Measure what is not measured yet, judge the claims, write and show all.

    Args:
        args: Command line without the program's and the command's name.

    Returns:
        0 if a case gave a number, 1 if none did, 128 + the number of a signal that ended it.

    Raises:
        ConfigError: Settings that cannot be used.
    """
    quieten()
    own, options = _parted(order_arguments([BENCHMARK, *args], BENCHMARK)[1:])
    settings = _parsed(own)
    problems = check_cases(settings) + _check_options(options)
    claims = read_claims(settings.claims, problems)
    more = read_claims(settings.cpu_claims, problems, "cpu_claims")
    if problems:
        raise ConfigError("\n".join(problems))
    if not torch.cuda.is_available():
        claims += more
    with Processes(ahead=torch.cuda.is_available()) as processes:
        return _Benchmark(settings, claims, options, processes).run()


class _Benchmark:
    """Cases and claims of one call.

    Args:
        settings: Of the benchmark.
        claims: What is checked.
        options: Options of ``fit`` that all cases share.
        processes: That the cases run in.
    """

    def __init__(
        self,
        settings: BenchmarkSettings,
        claims: list[Claim],
        options: list[str],
        processes: Processes,
    ) -> None:
        self.claims = claims
        self.processes = processes
        self.on_cpu = not torch.cuda.is_available()
        plan = planned(options, processes.take())
        self.subject = _subject(settings, options, self.on_cpu)
        self.results = Results(
            Path(settings.output),
            {
                "device": f"cpu, {torch.get_num_threads()} threads"
                if self.on_cpu
                else torch.cuda.get_device_name(),
                **{name: without_places(plan["lines"][name]) for name in ("model", "data")},
                "settings": f"batch {self.subject.batch_size}, max_length {self.subject.max_length}"
                + (f", {settings.memory_gib:g} GiB" if settings.memory_gib else ""),
                "options of fit": without_places(shlex.join(options)) or "none",
                "versions": ", ".join(f"{name} {number}" for name, number in _versions().items()),
            },
        )
        self.has_bf16 = cpu_computes_bf16() if self.on_cpu else True
        self.cases = all_cases(settings, self.subject.batch_size, self.on_cpu, self.has_bf16)
        if not self.cases:
            key = "cpu_cases" if self.on_cpu else "cases"
            raise ConfigError(
                f"{key}: expected a case that this machine can measure – found none\n"
                f"name some under {key}, or give accuracy and accuracy_seeds"
            )

    def run(self) -> int:
        """Run, write and show; return the exit status."""
        self.results.folder.mkdir(parents=True, exist_ok=True)
        missing = [
            case for case in self.cases if not self.results.is_known(case, self.subject.asked)
        ]
        screen = Screen(Console(), self.cases, len(missing), self.results.by_key)
        status = 0
        try:
            with interrupting_signals(), screen:
                for case in missing:
                    self._measure(case, self.processes.take(more=case != missing[-1]), screen)
        except Interrupted as signal:
            status = 128 + signal.number
        rows = self._write()
        screen.show(rows, self._judged())
        screen.console.say(
            f"out   {self.results.folder / 'benchmark.html'}, .json, .md, .csv, .png"
        )
        return status or int(all("reason" in row for row in rows))

    def _measure(self, case: Case, process: ReadyProcess, screen: Screen) -> None:
        screen.begin(case)
        try:
            result = run_case(case, self.subject, process, screen.tick)
        except Interrupted:
            self.results.add(case, self.subject.asked, {"reason": "interrupted"})
            raise
        self.results.add(case, self.subject.asked, result)
        screen.end(case)
        self._write()

    def _judged(self) -> list[Judgement]:
        def absent(case: Case) -> str:
            return absence(case, self.cases, self.on_cpu, self.has_bf16)

        return judge(self.claims, self.results.by_key, self.subject.batch_size, absent)

    def _write(self) -> list[Result]:
        """Write all forms of what is known; return its rows in the order of the cases."""
        order = [case.key for case in self.cases]
        known = self.results.by_key
        rows = [known[key] for key in order if key in known]
        rows += [row for key, row in known.items() if key not in order]
        judged, lines = self._judged(), self.results.circumstances
        texts = {
            FILE: self.results.as_json([asdict(judgement) for judgement in judged]),
            "benchmark.md": as_markdown(lines, rows, judged),
            "benchmark.csv": as_csv(rows),
            "benchmark.html": as_page(lines, rows, judged),
        }
        for name, text in texts.items():
            # a byte order mark, without which Excel takes Chinese for Latin
            encoding = "utf-8-sig" if name.endswith(".csv") else "utf-8"
            with replacing(self.results.folder / name, encoding=encoding) as stream:
                stream.write(text)
        write_picture(self.results.folder / "benchmark.png", lines["device"], rows)
        return rows


def _subject(settings: BenchmarkSettings, options: list[str], on_cpu: bool) -> Subject:
    typed = typed_values(["fit", *options])
    base = read_yaml(configs_folder() / "base.yaml")["data"]
    extent = Extent(settings.warmup, settings.steps, settings.seconds, repeats=WINDOWS)
    if on_cpu:
        extent = replace(
            extent,
            warmup=min(extent.warmup, CPU_WARMUP),
            steps=min(extent.steps, CPU_STEPS),
            seconds=min(extent.seconds, CPU_SECONDS),
        )
    return Subject(
        options=tuple(options),
        batch_size=int(typed.get("data.batch_size", base["batch_size"])),
        max_length=int(typed.get("data.max_length", base["max_length"])),
        extent=extent,
        memory_gib=settings.memory_gib,
        full=settings.full,
    )


def planned(options: Sequence[str], process: ReadyProcess) -> dict[str, Any]:
    """Return what ``plan`` says of a fit, which also reads and tokenises the data.

    Raises:
        ConfigError: Such a fit would be refused.
    """
    with process:
        file = process.folder / "plan.json"
        words = ["plan", *options, "--output", str(file)]
        status, errors = process.run(words, lambda: None, None)
        if status:
            raise ConfigError(errors.strip().removeprefix("error: ") or f"plan: status {status}")
        plan: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return plan


def _check_options(options: Sequence[str]) -> list[str]:
    """Return what is wrong with the options of every fit, one line each."""
    typed = typed_values(["fit", *options])
    return [
        f"{key}: expected not to be set, as every case sets it – found {typed[key]!r}"
        for key in SET_BY_CASES
        if key in typed
    ]


def _parted(ordered: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part a command line into what is the benchmark's own and what belongs to ``fit``."""
    own = ["--config", json.dumps(read_yaml(configs_folder() / f"{BENCHMARK}.yaml"))]
    options: list[str] = []
    words = iter(ordered)
    for word in words:
        if word == "--config":
            content = read_config(next(words)) or {}
            shared = {key: content.pop(key) for key in FIT_GROUPS if key in content}
            own += [word, json.dumps(content, ensure_ascii=False)]
            options += [word, json.dumps(shared, ensure_ascii=False)] if shared else []
        elif word.removeprefix("--").partition(".")[0] in FIT_GROUPS:
            options += [word] if "=" in word else [word, next(words, "")]
        else:
            own.append(word)
    return own, options


def _parsed(own: list[str]) -> BenchmarkSettings:
    parser = ArgumentParser(
        prog=f"bert-lightning {BENCHMARK}",
        description=f"{BENCHMARK_TASK} Keys of {', '.join(FIT_GROUPS)} are those of every fit.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="YAML file.")
    parser.add_class_arguments(BenchmarkSettings)
    try:
        parsed = parser.parse_args(own)
    except ArgumentError as error:
        raise ConfigError(explain(str(error), parser.get_defaults().keys())) from error
    parsed.pop("config")
    return BenchmarkSettings(**parsed.as_dict())


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("torch", "lightning", "transformers")}
    return {"bert_lightning": __version__, **packages}
