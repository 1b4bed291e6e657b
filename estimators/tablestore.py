"""Every table of a folder, found by what it is about."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from estimators.errors import TableError
from estimators.table import LatencyTable, Phase

TableKey = tuple[str, Phase]
"""Model and phase."""

_MAX_WHY = 200


@dataclass(frozen=True, slots=True)
class TableStore:
    """Tables by model and phase, and what was wrong with the files that gave none.

    Attributes:
        tables: Sound tables.
        problems: One error per file that was skipped.
    """

    tables: Mapping[TableKey, LatencyTable]
    problems: tuple[TableError, ...] = ()

    @classmethod
    def load(cls, folder: str | Path) -> "TableStore":
        """Read every ``*.npz`` of a folder, in the order of their names.

        A file that is unsound, nameless, or about what an earlier one is about, is skipped and
        told in ``problems``; the others are loaded. A folder that cannot be read is a problem too.
        """
        tables: dict[TableKey, LatencyTable] = {}
        problems: list[TableError] = []
        try:
            paths = sorted(path for path in Path(folder).iterdir() if path.suffix == ".npz")
        except OSError as exc:
            problem = TableError(
                "cannot read the folder of tables",
                where=str(folder),
                why=exc.strerror or str(exc),
                hint="create it, or correct its path in the configuration",
            )
            return cls(MappingProxyType({}), (problem,))
        for path in (path for path in paths if not path.name.startswith(".")):
            try:
                table = LatencyTable.load(path)
                tables[_free_key(table, tables)] = table
            except TableError as exc:
                problems.append(exc)
            except Exception as exc:
                # Whoever may write one file here must not be able to end a governor that holds
                # the clocks of the board, so even an error nobody foresaw is only that file's.
                why = f"{type(exc).__name__}: {exc}"[:_MAX_WHY]
                hint = "remove the file, or make it again"
                problems.append(TableError("cannot use", where=str(path), why=why, hint=hint))
        return cls(MappingProxyType(tables), tuple(problems))

    def get(self, model: str, phase: Phase = "inference") -> LatencyTable:
        """Find a table.

        Raises:
            TableError: There is none for that model and phase.
        """
        table = self.tables.get((model, phase))
        if table is None:
            known = ", ".join(f"{name} ({part})" for name, part in self) or "none"
            raise TableError(
                f"no table for model {model!r}, phase {phase}",
                why=f"loaded are: {known}",
                hint="put a table of it into the folder of tables and reload",
            )
        return table

    def __iter__(self) -> Iterator[TableKey]:
        """Iterate over models and phases, sorted."""
        return iter(sorted(self.tables))

    def __len__(self) -> int:
        """Count the tables."""
        return len(self.tables)


def _free_key(table: LatencyTable, tables: Mapping[TableKey, LatencyTable]) -> TableKey:
    key = (table.header.model, table.header.phase)
    if not key[0]:
        raise TableError(
            "table without a model's name",
            where=table.source,
            hint="import it again with --model",
        )
    if key in tables:
        raise TableError(
            f"second table for model {key[0]!r}, phase {key[1]}",
            where=table.source,
            why=f"{tables[key].source} is used",
            hint="remove one of them",
        )
    return key
