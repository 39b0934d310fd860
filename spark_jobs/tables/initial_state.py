"""A stream's initial state, savepoint 0: the states of keys as of an instant, given by a user.

It is a Delta table or a JSON file, and read only. Whatever is wrong with it is found before
a stream's first run writes anything.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import chain
from operator import or_
from types import MappingProxyType

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from include.fold.admission import EPOCH, LAST_INSTANT_US, MICROSECOND
from include.fold.definition import KeyedFold
from include.fold.records import Items, Nested, Pairs, Shape
from include.lake.paths import Lake
from include.landing.initial_state import (
    REPEATED_KEYS_SHOWN,
    InitialStates,
    check_as_of,
    default_timeout_us,
    document_fingerprint,
    find_initial_state,
    newest_version,
    read_document,
    refuse_repeated,
    states_of,
    table_fingerprint,
    typed_rows,
    wrong_initial_state,
)
from include.landing.landed_values import MIN_US, shown
from include.text_table import counted

STATE, TIMEOUT_AT, TIMEOUT_AT_US = "state", "timeout_at", "timeout_at_us"


def read_table(
    spark: SparkSession, lake: Lake, path: str, fold: KeyedFold
) -> tuple[int, str, DataFrame]:
    """`as_of` in microseconds since 1970, the fingerprint, and the rows of a table.

    The rows are key, state and timeout_at_us. SettingsError when one of them is wrong.
    """
    # The newest version, whenever its rows last changed: an older one is unreadable after a
    # VACUUM, and Delta refuses it after a week.
    version = newest_version(path)
    table = spark.read.format("delta").option("versionAsOf", version).load(path)
    _check_schema(path, table.schema, fold)
    if TIMEOUT_AT not in table.columns:
        table = table.withColumn(TIMEOUT_AT, F.lit(None).cast("timestamp"))
    as_of_us = _check_values(path, table, fold)
    _check_unique(path, table)
    fields = [F.col(STATE)[column.name].alias(column.name) for column in fold.state_columns]
    timeout_at_us = F.unix_micros(TIMEOUT_AT).alias(TIMEOUT_AT_US)
    rows = table.select("key", F.struct(*fields).alias(STATE), timeout_at_us)
    return as_of_us, table_fingerprint(lake, path, version), rows


def _check_schema(path: str, schema: StructType, fold: KeyedFold) -> None:
    found = _types(schema)
    fields = {column.name: _as_spark_writes(column.kind) for column in fold.state_columns}
    state = schema[STATE].dataType if STATE in found else None
    if isinstance(state, StructType):
        _check_types(path, f"{STATE}.", _types(state), required=fields)
        fields = _types(state)  # their order is free
    struct = f"struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>"
    required = {"key": _as_spark_writes(fold.keys.kind), STATE: struct, "as_of": "timestamp"}
    _check_types(path, "", found, required=required, optional={TIMEOUT_AT: "timestamp"})


def _check_types(
    path: str,
    prefix: str,
    found: Mapping[str, str],
    required: Mapping[str, str],
    optional: Mapping[str, str] = MappingProxyType({}),
) -> None:
    expected = {**required, **optional}
    for name, kind in found.items():
        if name not in expected:
            raise wrong_initial_state(
                f"{prefix}{name}",
                f"initial state {path} has a column {prefix}{name}, which is not known: drop it, "
                f"or name it as one of {', '.join(prefix + known for known in expected)}",
            )
        if kind != expected[name]:
            raise wrong_initial_state(
                f"{prefix}{name}",
                f"initial state {path}: column {prefix}{name} is {kind}, expected "
                f"{expected[name]}: write the table with that type",
            )
    missing = [f"{prefix}{name} {kind}" for name, kind in required.items() if name not in found]
    if missing:
        raise wrong_initial_state(
            missing[0].partition(" ")[0],
            f"initial state {path} has no column {', '.join(missing)}: add it",
        )


def _as_spark_writes(kind: str) -> str:
    """The SQL type in the spelling of `simpleString`."""
    return kind.replace(": ", ":").replace(", ", ",")


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def _check_values(path: str, table: DataFrame, fold: KeyedFold) -> int:
    """`as_of` in microseconds since 1970, once all rows have been looked at, in one job."""
    as_of_us = F.unix_micros("as_of")
    wrong = _wrong_rows(fold)
    found = table.agg(
        F.count("*"),
        F.count_if(F.col("as_of").isNull()),
        F.min(as_of_us),
        F.max(as_of_us),
        F.count_if(F.col("key").isNull() & F.lit(not fold.keys.shape.nullable)),
        *(F.count_if(condition) for condition in wrong.values()),
        *(F.min(F.when(condition, F.col("key"))) for condition in wrong.values()),
    ).collect()[0]
    instant_us = _one_instant(path, *found[:4])
    if found[4]:
        raise wrong_initial_state(
            "key", f"initial state {path}: key is null in {counted(found[4], 'row')}: mend them"
        )
    counts, keys = found[5 : 5 + len(wrong)], found[5 + len(wrong) :]
    for reason, count, key in zip(wrong, counts, keys, strict=True):
        if count:
            raise wrong_initial_state(
                reason.partition(" ")[0],
                f"initial state {path}, key {shown(key)}: {reason} (in {counted(count, 'row')}): mend them",
            )
    return instant_us


def _one_instant(path: str, rows: int, null: int, first_us: int, last_us: int) -> int:
    if (why := _why_not_one(path, rows, null, first_us=first_us, last_us=last_us)) is not None:
        raise wrong_initial_state("as_of", f"initial state {path}{why}")
    return first_us


def _why_not_one(path: str, rows: int, null: int, first_us: int, last_us: int) -> str | None:
    if not rows:
        return (
            " has no rows, so its as_of is not known: add them, or give a "
            f'file {path}.json with {{"as_of": ..., "keys": []}} in its place'
        )
    if null:
        return f": as_of is null in {counted(null, 'row')}: give the same instant in each"
    if not MIN_US <= first_us <= last_us <= LAST_INSTANT_US:
        return ": as_of is outside the years 1 to 9999: mend it"
    if first_us != last_us:
        first, last = (EPOCH + micros * MICROSECOND for micros in (first_us, last_us))
        return (
            f": as_of differs between rows, from {first} to {last}: give the same instant in each"
        )
    return None


def _wrong_rows(fold: KeyedFold) -> Mapping[str, SparkColumn]:
    """What can be wrong with a row that its types allow, and the rows where it is."""
    state, timeout_at = F.col(STATE), F.col(TIMEOUT_AT)
    wrong = {f"{STATE} is null": state.isNull()}
    for column in fold.state_columns:
        wrong |= _nulls(column.shape, state, column.name, path=STATE)
    if fold.times_out:
        wrong["timeout_at is not after as_of"] = timeout_at <= F.col("as_of")
        wrong["timeout_at is beyond the year 9999"] = F.unix_micros(timeout_at) > LAST_INSTANT_US
    else:
        wrong["timeout_at is given, but the stream has no timeouts (NoTimeout)"] = (
            timeout_at.isNotNull()
        )
    return wrong


def _nulls(shape: Shape, of: SparkColumn, name: str, path: str) -> dict[str, SparkColumn]:
    """Where the member `name` of the struct `of` has a null that is not declared, by what is said."""
    value, path = of[name], f"{path}.{name}"
    found = {} if shape.nullable else {f"{path} is null": of.isNotNull() & value.isNull()}
    if isinstance(shape, Nested):
        for member, part in shape.parts:
            found |= _nulls(part, value, member, path=path)
    elif (within := _has_null_in(shape, value)) is not None:
        found[f"{path} has a null in it"] = within
    return found


def _has_null_in(shape: Shape, value: SparkColumn) -> SparkColumn | None:
    """Whether a value that is there has one; None of a shape that cannot."""
    if isinstance(shape, Nested):
        found = [*chain(*(_nulls(part, value, name, "").values() for name, part in shape.parts))]
        return reduce(or_, found) if found else None
    if not isinstance(shape, (Items, Pairs)):
        return None
    items = value if isinstance(shape, Items) else F.map_values(value)
    if shape.item.nullable and _has_null_in(shape.item, value) is None:
        return None

    def is_wrong(item: SparkColumn) -> SparkColumn:
        is_null = F.lit(not shape.item.nullable) & item.isNull()
        within = _has_null_in(shape.item, item)
        return is_null if within is None else is_null | F.coalesce(within, F.lit(False))

    return F.exists(items, is_wrong)


def _check_unique(path: str, table: DataFrame) -> None:
    repeated = table.groupBy("key").count().where("count > 1").select("key")
    some = repeated.orderBy("key").limit(REPEATED_KEYS_SHOWN).collect()
    # Counted only when there are any: usually this is one job.
    refuse_repeated(path, [row.key for row in some], repeated.count() if some else 0)


def read_initial_state(
    spark: SparkSession, lake: Lake, stream: str, fold: KeyedFold
) -> InitialStates | None:
    """The initial state of `stream` as rows of `state_rows_ddl`, checked as a whole; None for none.

    Raises SettingsError that names the file or table, and the key or row that is wrong.
    """
    found = find_initial_state(lake, stream)
    if found is None:
        return None
    read = read_table if found.is_table else read_file
    as_of_us, fingerprint, rows = read(spark, lake, found.path, fold)
    # Rows that name no timeout get the fold's, counted from `as_of`.
    default_us = default_timeout_us(found.path, as_of_us, fold)
    check_as_of(found.path, as_of_us)
    states = rows.select(
        F.lit(0).alias("bucket"),
        "key",
        STATE,
        F.lit(as_of_us).alias("changed_at_us"),
        F.coalesce(TIMEOUT_AT_US, F.lit(default_us)).alias(TIMEOUT_AT_US),
    )
    return InitialStates(as_of_us, fingerprint, states)


def read_file(
    spark: SparkSession, lake: Lake, path: str, fold: KeyedFold
) -> tuple[int, str, DataFrame]:
    """The same of a file."""
    document = read_document(lake, path)
    as_of_us, rows = typed_rows(path, document, fold)
    table = states_of(rows, as_of_us, fold).rows().select(["key", STATE, TIMEOUT_AT_US])
    return as_of_us, document_fingerprint(document), spark.createDataFrame(table)
