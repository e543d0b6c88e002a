"""Stage `game@NAME`: one entry of `games`, by the module of its kind."""

from pathlib import Path

from lethe.audits import AuditResult, Runner, write_rows
from lethe.audits.unlearning_game.result import GameResult
from lethe.config import Params
from lethe.config.schema import GameParams
from lethe.errors import BadParam
from lethe.io.files import SCHEMA_VERSION, atomic_folder, restored, write_json, write_text
from lethe.io.tables import write_parquet
from lethe.registry import GAMES
from lethe.report.game_page import page
from stages import entry, named


def run(settings: Params, root: Path, name: str) -> None:
    """Play one entry of ``games``; write ``root/games/name``."""
    result = play(name, named("games", settings.games, name))
    write(name, result, root)
    for sentence in result.sentences:
        print(f"{name} {sentence}")


def play(name: str, settings: GameParams, run: Runner | None = None) -> AuditResult:
    """Return the result of a game; ``run`` starts its repetitions, by default in this process."""
    try:
        return GAMES[settings.kind].play(settings, run=run)
    except BadParam as error:
        raise BadParam(f"games.{name}.{error.key}", error.got, error.legal) from error


def write(name: str, result: AuditResult, root: Path) -> None:
    """Write the rows, the headline, the details and the tables of a game, and its page where it compares methods."""
    write_rows("game", name, result, root)
    write_json(root / "games" / f"{name}.json", {"schema": SCHEMA_VERSION, **result.headline})
    with atomic_folder(root / "games" / name) as folder:
        details = {"schema": SCHEMA_VERSION, "name": name, **result.details}
        write_json(folder / "details.json", details)
        for title, table in result.tables.items():
            write_parquet(folder / f"{title}.parquet", table)
        if "methods" in result.details:
            write_text(folder / "index.html", page(name, restored(GameResult, result.details)))


main = entry(run, __name__)
