"""The campaign that runs the experiments of a design, and resumes from its table of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kongming.scale.design.experiments import (
    Experiment,
    ExperimentRunner,
    Measured,
    RunTable,
    ordered,
    remaining,
)

if TYPE_CHECKING:
    from kongming.records.application import Application
    from kongming.scale.points import Configuration


@dataclass
class ExperimentCampaign:
    """The experiments of a design, those that are ``left``, and the measured ones. Its table is
    locked until ``close``."""

    table: RunTable
    close: Callable[[], None]
    experiments: Sequence[Experiment]
    left: Sequence[Experiment]
    measured: int = 0
    failed: list[tuple[Experiment, Measured]] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        app: Application,
        design: Sequence[tuple[Configuration, int]],
        out: Path,
        *,
        seed: int,
    ) -> ExperimentCampaign:
        """Return the campaign of the table ``out``, or a new one.

        Raises:
            InputError: the file is another table, or of another program, or another command
                appends to it; or it cannot be written.
        """
        from kongming.files.line_file import of_one_command
        from kongming.profiling.plans.identity import identity
        from kongming.records.errors import InputError, StoreError

        try:
            # Before what is done is read: another command would do the rest as well.
            close = of_one_command(out).close
        except StoreError as error:
            raise InputError(error.message, field="--out") from error
        try:
            table = RunTable(out, identity(app))
        except BaseException:
            close()
            raise
        experiments = ordered(design, seed=seed)
        return cls(table, close, experiments, remaining(experiments, table.done))

    def drive(self, runner: ExperimentRunner, observe: Callable[[int, Experiment], object]) -> None:
        """Run the remaining experiments; ``observe`` is called before each. A failed run is not in
        the table, so the next command repeats it."""
        for number, experiment in enumerate(self.left):
            observe(number, experiment)
            measured = runner.run(experiment)
            if measured.seconds is None:
                self.failed.append((experiment, measured))
                continue
            self.table.add(experiment, measured)
            self.measured += 1


def open_runner(
    kind: str, app: Application, directory: Path | None, share: float, image: str | None
) -> ExperimentRunner:
    """Return the runner of a name: local, slurm or kubernetes.

    Raises:
        InputError: Kubernetes without an image, or an application that it cannot run.
    """
    from kongming.records.errors import InputError

    if kind == "local":
        from kongming.campaigns.local_machines import LocalRunner
        from kongming.probes.folders import work_folder

        return LocalRunner(app, work_folder(directory), share=share)
    from kongming.campaigns.cluster_jobs import KubernetesRunner, SlurmRunner

    if kind == "slurm":
        return SlurmRunner(app)
    if image is None:
        raise InputError("Kubernetes needs a container image.", field="--image")
    return KubernetesRunner(app, image)
