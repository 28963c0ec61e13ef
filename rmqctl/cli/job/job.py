"""The group of jobs: `rmqctl job NAME`."""

from __future__ import annotations

import click

from rmqctl.cli.job import diff, duplicates, export, lost, rebuild, sql, stats, timeline, verify
from rmqctl.cli.job.by_store import doctor, lag, report, trace

JOBS = {
    "verify": verify.command,
    "doctor": doctor.command,
    "report": report.command,
    "lag": lag.command,
    "trace": trace.command,
    "stats": stats.command,
    "timeline": timeline.command,
    "export": export.command,
    "diff": diff.command,
    "lost": lost.command,
    "duplicates": duplicates.command,
    "sql": sql.command,
    "rebuild": rebuild.command,
}


class Jobs(click.Group):
    """The group of jobs, which `rmqctl job --help` lists in the order of JOBS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the jobs, in the order of JOBS."""
        del ctx
        return list(self.commands)


@click.group(name="job", cls=Jobs, commands=JOBS)
def command() -> None:
    """Run a job with Spark, for huge stores, and for many stores at once."""
