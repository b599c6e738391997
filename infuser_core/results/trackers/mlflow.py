"""Tracker for MLflow: logs to the server in `MLFLOW_TRACKING_URI`, else to a database in the run's folder."""

import os
from collections.abc import Iterable

from infuser_core.results.trackers.parts.follow import Tracked
from infuser_core.results.trackers.parts.points import Point

PACKAGE = "mlflow"
_EXPERIMENT = "infuser"
_PARAMS = 100


def track(run: Tracked, points: Iterable[Point]) -> None:
    """Log all metrics of a run, and its settings as parameters; later attempts continue the same MLflow run."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.folder / 'mlflow.db'}")

    def create() -> str:
        existing = client.get_experiment_by_name(_EXPERIMENT)
        experiment = existing.experiment_id if existing else client.create_experiment(_EXPERIMENT, str(run.folder))
        run_id: str = client.create_run(experiment, run_name=run.name).info.run_id
        params = [Param(name, str(value)[:500]) for name, value in run.settings.items()]
        for start in range(0, len(params), _PARAMS):
            client.log_batch(run_id, params=params[start : start + _PARAMS])
        return run_id

    number = run.remembered("run_id", create)
    client.update_run(number, status="RUNNING")
    for point in points:
        when, step = int(1000 * point.seconds), max(0, point.step)
        client.log_batch(number, metrics=[Metric(name, value, when, step) for name, value in point.values.items()])
    client.set_terminated(number)
