"""What MLflow and Prefect recorded of a repository, read through their own clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from unittest import mock

from tests.flows.miniature import Repository

if TYPE_CHECKING:
    from mlflow.entities import Run
    from prefect.client.schemas.objects import FlowRun, TaskRun


def mlflow_runs(repository: Repository) -> list[Run]:
    """The runs of the repository's own store that nobody deleted."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{repository.folder / 'mlflow.db'}")
    return list(client.search_runs([one.experiment_id for one in client.search_experiments()], max_results=1000))


def flow_runs(repository: Repository) -> list[FlowRun]:
    """The repository's flow runs, the oldest first."""
    return _read(repository)[0]


def task_runs(repository: Repository) -> list[TaskRun]:
    """The tasks of the repository's flow runs, the oldest first."""
    return _read(repository)[1]


def _read(repository: Repository) -> tuple[list[FlowRun], list[TaskRun]]:
    from flows.server import temporary_server

    kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    address = {key: repository.environment[key] for key in ("PREFECT_API_URL",) if key in repository.environment}
    home = {"PREFECT_HOME": str(repository.prefect_home)}
    with mock.patch.dict(os.environ, kept | home | address, clear=True), temporary_server(repository.folder):
        from prefect.client.orchestration import SyncPrefectClient
        from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

        with SyncPrefectClient(os.environ["PREFECT_API_URL"]) as client:
            mine = [
                run
                for run in client.read_flow_runs()
                if any(tag.endswith(f":{repository.folder}") for tag in run.tags)
            ]
            chosen = FlowRunFilter(id=FlowRunFilterId(any_=[run.id for run in mine]))
            tasks = client.read_task_runs(flow_run_filter=chosen)
    return sorted(mine, key=lambda run: run.created), sorted(tasks, key=lambda run: run.created)
