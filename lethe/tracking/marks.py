"""A mark on the newest pipeline run in MLflow: whether something got worse or better, or changed, since the run before."""

from __future__ import annotations

import os
from pathlib import Path

from lethe.tracking import notes, store, without_password

TAG = "lethe.change"


def mark_newest(change: str, text: str, home: Path) -> str:
    """Tag the newest pipeline run; return a sentence if that failed.

    Never raises, because the artifacts matter more.
    """
    if os.environ.get("LETHE_TRACKING") == "off":
        return ""
    home = Path(os.environ.get("DVC_ROOT") or home).resolve()
    uri = os.environ.get("MLFLOW_TRACKING_URI") or store(home)
    if not notes.answers(uri):
        uri = store(home)
    try:
        from lethe.tracking import runs, view

        client = view.client_of(uri)
        run = runs.newest_pipeline(client, view.experiment_of(client, None))
        if run is not None:
            client.set_tag(run.info.run_id, TAG, change)
            client.set_tag(run.info.run_id, f"{TAG}.text", text[: runs.MAX_TAG])
    except Exception as error:  # whatever MLflow raises
        return f"MLflow: the change is not marked at {without_password(uri)} ({type(error).__name__})."
    return ""
