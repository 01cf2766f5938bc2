"""Services a run reports to on request: TensorBoard, Weights & Biases, MLflow; each is an extra of its own."""

import logging
import os
import re
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rgcn.runs.configuration import flat_settings
from rgcn.runs.tracking import RunTracker, Value, by_split, cannot_start, read_metrics, remember_id, remembered_id
from rgcn.system.lazy import import_extra

FLUSH_SECONDS = 10  # of TensorBoard
EXIT_CODE = {"finished": 0, "interrupted": 255, "failed": 1}  # wandb shows 255 as killed
LOCAL_STORE = "sqlite:///mlflow.db"  # what `mlflow ui` opens by itself; MLflow 3 refuses its old store of plain files
SEND_SECONDS = 5.0
LARGEST_BATCH = 1000  # MLflow's own limits
MOST_PARAMETERS = 100
LONGEST_VALUE = 500
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class TensorBoardTracker(RunTracker):
    """Event files in FOLDER/tensorboard, a curve for each value: `tensorboard --logdir runs` shows every run there."""

    extra = "tensorboard"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        import_extra("tensorboard", "tensorboard")
        writer = import_extra("tensorboard", "tensorboard", "torch.utils.tensorboard").SummaryWriter
        target = folder / "tensorboard"
        earlier = target.is_dir() and any(target.iterdir())
        # A run that goes on writes the steps after its checkpoint again: the first ones must not be shown twice.
        self._writer = writer(
            str(target), purge_step=from_step + 1 if earlier else None, flush_secs=FLUSH_SECONDS, max_queue=1000
        )
        self._step = from_step
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # a code block, in Markdown
        self._writer.add_text("configuration", indented, from_step)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._step = step
        for key, value in values.items():
            if value is not None and key != "number":
                self._writer.add_scalar(key, value, step)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        for key, value in by_split(metrics).items():
            self._writer.add_scalar(key, value, self._step)

    def close(self, outcome: str) -> None:
        self._writer.add_text("outcome", outcome, self._step)
        self._writer.close()


class WandbTracker(RunTracker):
    """A run of the project "rgcn" (or WANDB_PROJECT), which a resumed training goes on with.

    With WANDB_MODE=offline reports stay in the run's folder until `wandb sync`.
    """

    extra = "wandb"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        wandb = import_extra("wandb", "wandb")
        run_id = remembered_id(folder, "wandb") or uuid.uuid4().hex[:12]
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or "rgcn",
                name=name,
                id=run_id,
                resume="allow",
                dir=str(folder),
                config=dict(config),
                # Silent, and hands off our output: --json prints one document and nothing else.
                settings=wandb.Settings(silent=True, console="off"),
            )
        except Exception as error:
            raise cannot_start("wandb", error, "run `wandb login`, or set WANDB_MODE=offline") from error
        remember_id(folder, "wandb", run_id)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._run.log({key: value for key, value in values.items() if value is not None}, step=step)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        self._run.summary.update(by_split(metrics))

    def close(self, outcome: str) -> None:
        self._run.finish(exit_code=EXIT_CODE.get(outcome, 1))


class MlflowTracker(RunTracker):
    """A run of the experiment "rgcn" (or MLFLOW_EXPERIMENT_NAME), which a resumed training goes on with: settings as
    parameters, every value with its step, once, since MLflow cannot take one back.

    It is on a server where MLFLOW_TRACKING_URI names one, else in a SQLite file in the working folder.
    """

    extra = "mlflow"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        make_client = _client_maker()
        self._entities = import_extra("mlflow", "mlflow", "mlflow.entities")
        try:
            self._client = make_client()
            self._run_id, self._sent_to = self._go_on(folder) or (self._begin(name), 0)
            remember_id(folder, "mlflow", self._run_id)
            self._log_settings(config)
        except Exception as error:
            raise cannot_start("mlflow", error, "check MLFLOW_TRACKING_URI") from error
        self._step = from_step
        self._waiting: list[Any] = []
        self._last_sent = time.monotonic()
        for row in read_metrics(folder / "metrics.jsonl"):  # a killed session takes what it had not sent yet with it
            if row["number"] <= from_step:
                self._add(row["number"], row)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._step = step
        self._add(step, values)
        if time.monotonic() - self._last_sent >= SEND_SECONDS:
            self._send()

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        self._sent_to = 0  # final figures are sent anew by whoever finishes, whatever step that was
        self._add(self._step, by_split(metrics))
        self._send()

    def close(self, outcome: str) -> None:
        self._send()
        self._client.set_terminated(self._run_id, STATUS.get(outcome, "FAILED"))

    def _begin(self, name: str) -> str:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "rgcn"
        found = self._client.get_experiment_by_name(experiment)
        try:
            number = self._client.create_experiment(experiment) if found is None else found.experiment_id
        except Exception:  # another run may have made it in the meantime
            found = self._client.get_experiment_by_name(experiment)
            if found is None:
                raise
            number = found.experiment_id
        return str(self._client.create_run(str(number), run_name=name).info.run_id)

    def _go_on(self, folder: Path) -> tuple[str, int] | None:
        """(id, last step sent) of the run of an earlier session, or None where there is none any more."""
        run_id = remembered_id(folder, "mlflow")
        if run_id is None:
            return None
        try:
            run = self._client.get_run(run_id)
        except import_extra("mlflow", "mlflow", "mlflow.exceptions").MlflowException as error:
            if getattr(error, "error_code", "") != "RESOURCE_DOES_NOT_EXIST":
                raise
            run = None
        if run is None or run.info.lifecycle_stage != "active":
            warnings.warn(f"MLflow no longer has the run {run_id}: reports go on in a new one", stacklevel=4)
            return None
        self._client.update_run(run_id, status="RUNNING")
        reported = [key for key in run.data.metrics if "/" not in key]
        steps = [metric.step for key in reported for metric in self._client.get_metric_history(run_id, key)]
        return run_id, max(steps, default=0)

    def _log_settings(self, config: Mapping[str, Any]) -> None:
        known = self._client.get_run(self._run_id).data.params  # MLflow refuses to change one
        settings = {_allowed(key): str(value)[:LONGEST_VALUE] for key, value in flat_settings(config).items()}
        new = [self._entities.Param(key, value) for key, value in settings.items() if key not in known]
        for start in range(0, len(new), MOST_PARAMETERS):
            self._client.log_batch(self._run_id, params=new[start : start + MOST_PARAMETERS])

    def _add(self, step: int, values: Mapping[str, Value]) -> None:
        """Put values in line to be sent, unless an earlier session sent them."""
        now = int(time.time() * 1000)
        told = {key: value for key, value in values.items() if value is not None and key != "number"}
        if step > self._sent_to:
            self._waiting += [self._entities.Metric(_allowed(k), float(v), now, step) for k, v in told.items()]

    def _send(self) -> None:
        for start in range(0, len(self._waiting), LARGEST_BATCH):
            self._client.log_batch(self._run_id, metrics=self._waiting[start : start + LARGEST_BATCH])
        self._waiting.clear()
        self._last_sent = time.monotonic()


def _client_maker() -> Callable[[], Any]:
    import_extra("mlflow", "mlflow")
    tracking = import_extra("mlflow", "mlflow", "mlflow.tracking")
    address = os.environ.get("MLFLOW_TRACKING_URI") or LOCAL_STORE
    if address.startswith("sqlite:"):
        for package in ("sqlalchemy", "alembic"):  # mlflow-skinny leaves them out
            import_extra(package, "mlflow")
    for chatty in ("mlflow", "alembic"):  # a new store tells of each of its fifty migrations
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return partial(tracking.MlflowClient, tracking_uri=address)


def _allowed(name: str) -> str:
    """MLflow's names have no @: hits@10 becomes hits_at_10."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))
