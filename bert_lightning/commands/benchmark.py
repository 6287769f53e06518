"""``benchmark``: what each precision gives on this machine, and which claims about it hold.

Settings in the groups model, data, amp and trainer are those of every case's ``fit``.
"""

from __future__ import annotations

import json
from argparse import ArgumentError
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser

from bert_lightning import __version__
from bert_lightning.arguments import (
    BENCHMARK,
    BENCHMARK_TASK,
    configs_folder,
    explain,
    order_arguments,
    typed_values,
)
from bert_lightning.benchmark.case_page import as_page
from bert_lightning.benchmark.case_picture import write_picture
from bert_lightning.benchmark.case_results import Results, as_csv, replace
from bert_lightning.benchmark.case_runs import (
    INTERRUPTED,
    Result,
    run_case,
    run_words,
    sigterm_interrupts,
)
from bert_lightning.benchmark.case_screen import Screen
from bert_lightning.benchmark.case_tables import as_markdown
from bert_lightning.benchmark.cases import (
    BenchmarkSettings,
    Case,
    Subject,
    all_cases,
    check_cases,
    raise_all,
)
from bert_lightning.benchmark.claims import Claim, Judgement, as_rows, judge, read_claims
from bert_lightning.benchmark.peer_cells import own_command
from bert_lightning.benchmark.stopwatch import Extent
from bert_lightning.console import Console
from bert_lightning.errors import ConfigError
from bert_lightning.notices import quieten
from bert_lightning.precision import cpu_computes_bf16

FIT_GROUPS = ("model", "data", "amp", "trainer")
CPU_EXTENT = Extent(warmup=15, steps=60, seconds=3.0, repeats=3)  # at most
WHOLE_EPOCH_SECONDS = 1e9
SIGINT_STATUS = 130


def benchmark(args: Sequence[str]) -> int:
    """Measure what is not measured yet, judge the claims, write and show all.

    Args:
        args: Command line without the program's and the command's name.

    Returns:
        0 if all cases were run, 1 if none gave a number, 130 if it was interrupted.

    Raises:
        ConfigError: Settings that cannot be used.
    """
    quieten()
    ordered = order_arguments([BENCHMARK, *args], BENCHMARK)
    own, options = _parted(ordered[1:])
    settings = _parsed(own)
    problems = check_cases(settings)
    claims = read_claims(settings.claims, problems)
    raise_all(problems)
    return _Benchmark(settings, claims, options).run()


class _Benchmark:
    """Cases and claims of one call.

    Args:
        settings: Of the benchmark.
        claims: What is checked.
        options: Options of ``fit`` that all cases share.
    """

    def __init__(
        self, settings: BenchmarkSettings, claims: list[Claim], options: list[str]
    ) -> None:
        self.settings = settings
        self.claims = claims
        self.on_cpu = not torch.cuda.is_available()
        plan = planned(options)
        typed, base = typed_values(["fit", *options]), _base_data()
        self.subject = Subject(
            options=tuple(options),
            batch_size=int(typed.get("data.batch_size", base["batch_size"])),
            max_length=int(typed.get("data.max_length", base["max_length"])),
            rows=plan["rows"]["train"],
        )
        self.lines = {
            "device": torch.cuda.get_device_name() if not self.on_cpu else "cpu",
            **{name: plan["lines"][name] for name in ("model", "data")},
            "settings": f"batch {self.subject.batch_size}, max_length {self.subject.max_length}"
            + (f", {settings.memory_gib:g} GiB" if settings.memory_gib else ""),
            "versions": ", ".join(f"{name} {number}" for name, number in _versions().items()),
        }
        self.results = Results(Path(settings.output), {**self.lines, "options": options})
        has_bf16 = cpu_computes_bf16() if self.on_cpu else True
        self.cases = all_cases(settings, self.subject.batch_size, self.on_cpu, has_bf16)

    def run(self) -> int:
        """Run, write and show; return the exit status."""
        self.results.folder.mkdir(parents=True, exist_ok=True)
        missing = [case for case in self.cases if not self._is_known(case)]
        screen = Screen(Console(), self.cases, len(missing), self.results.by_key)
        status = 0
        try:
            with sigterm_interrupts(), screen:
                for case in missing:
                    self._measure(case, screen)
        except KeyboardInterrupt:
            status = SIGINT_STATUS
        rows = self._write()
        screen.show(rows, self._judged())
        screen.console.say(
            f"out   {self.results.folder / 'benchmark.html'}, .json, .md, .csv, .png"
        )
        return status or int(all("reason" in row for row in rows))

    def _is_known(self, case: Case) -> bool:
        return self.results.is_known(case, asdict(self._extent(case)))

    def _measure(self, case: Case, screen: Screen) -> None:
        extent = self._extent(case)
        screen.begin(case)
        try:
            result = run_case(case, self.subject, extent, self.settings.memory_gib, screen.tick)
        except KeyboardInterrupt:
            self.results.add(case, asdict(extent), {"reason": INTERRUPTED})
            raise
        self.results.add(case, asdict(extent), result)
        screen.end(case)
        self._write()

    def _extent(self, case: Case) -> Extent:
        s = self.settings
        if s.full:
            steps = -(-self.subject.rows // (case.batch or self.subject.batch_size))
            return Extent(s.warmup, steps, WHOLE_EPOCH_SECONDS, repeats=1)
        if self.on_cpu:
            small = CPU_EXTENT
            return Extent(
                min(s.warmup, small.warmup),
                min(s.steps, small.steps),
                min(s.seconds, small.seconds),
            )
        return Extent(s.warmup, s.steps, s.seconds)

    def _judged(self) -> list[Judgement]:
        absent = "needs a CUDA device or native bf16" if self.on_cpu else "not among the cases"
        return judge(self.claims, self.results.by_key, self.subject.batch_size, absent)

    def _write(self) -> list[Result]:
        """Write all forms of what is known; return its rows in the order of the cases."""
        order = [case.key for case in self.cases]
        known = self.results.by_key
        rows = [known[key] for key in order if key in known]
        rows += [row for key, row in known.items() if key not in order]
        judged = self._judged()
        folder = self.results.folder
        self.results.write(as_rows(judged), self.lines)
        replace(folder / "benchmark.md", as_markdown(self.lines, rows, judged))
        replace(folder / "benchmark.csv", as_csv(rows))
        replace(folder / "benchmark.html", as_page(self.lines, rows, judged))
        write_picture(folder / "benchmark.png", self.lines["device"], rows)
        return rows


def planned(options: Sequence[str]) -> dict[str, Any]:
    """Return what ``plan`` says of a fit, which also reads and tokenises the data.

    Raises:
        ConfigError: Such a fit would be refused.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        words = [*own_command("plan"), *options, "--output", str(folder / "plan.json")]
        status, errors = run_words(words, folder, None, lambda: None)
        if status:
            raise ConfigError(errors.strip().removeprefix("error: ") or f"plan: status {status}")
        plan: dict[str, Any] = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    return plan


def _parted(ordered: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part a command line into what is the benchmark's own and what belongs to ``fit``."""
    own = ["--config", (configs_folder() / "benchmark.yaml").read_text(encoding="utf-8")]
    options: list[str] = []
    words = iter(ordered)
    for word in words:
        if word == "--config":
            value = next(words)
            is_text = value.lstrip().startswith("{")
            content = yaml.safe_load(value if is_text else Path(value).read_text("utf-8-sig")) or {}
            shared = {key: content.pop(key) for key in FIT_GROUPS if key in content}
            own += ["--config", json.dumps(content, ensure_ascii=False)]
            options += ["--config", json.dumps(shared, ensure_ascii=False)] if shared else []
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


def _base_data() -> dict[str, Any]:
    text = (configs_folder() / "base.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)["data"]
    return content


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("torch", "lightning", "transformers")}
    return {"bert_lightning": __version__, **packages}
