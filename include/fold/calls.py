"""The calls of the state function for the keys of a bucket, in the order of the fold's clock.

The hot path of the project, run once for every event: measure (`make bench`) each change. There are
two loops: one call for all events of a key, where only the last row counts; and one call per event,
with a look at what is due before it, which may be checked, and undone when it fails.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import localcontext
from itertools import count
from operator import attrgetter
from typing import Any

from include.fold.admission import NEVER_US
from include.fold.arrow_values import checked_output, checked_projection, project
from include.fold.definition import DeadLetter, Emitted, ExactlyOne, Key, KeyedFold, KeyRun
from include.fold.event_order import distinct
from include.fold.failures import (
    ARITHMETIC,
    NEVER_DEAD_LETTERS,
    TIMEOUTS_IN_A_ROW,
    describe,
    failure,
    refuse_timeout_loop,
)
from include.fold.group_state import TIMERS, GroupState, TickingGroupState
from include.fold.records import record_of
from include.fold.states import States, end_us


class Calls:
    """The calls of the state function in one pass, and what they emit."""

    def __init__(
        self,
        fold: KeyedFold,
        states: States,
        events: Sequence[Any],
        times_us: Sequence[int],
        until_us: int,
    ) -> None:
        self.emitted = Emitted([], [], [])
        self._fold = fold
        self._states = states
        self._events = events
        self._times_us = times_us
        self._until_us = until_us
        self.key: Key = ""
        self.group: Any = fold.group_state()
        self._is_update = fold.output_mode == "update"
        self._begin_call: Callable[..., None] = self.group.begin_call
        self._function: Any = self._keep_returned if self._is_update else fold.function
        # Of the key at hand: it has been called, and the row of an update stream's last call.
        self._changed = False
        self._returned: Any = None

    def fold_all(self, runs: Iterable[KeyRun]) -> None:
        if self._fold.calls_per_event:
            self.one_per_event(runs)
        else:
            self.group = TickingGroupState(self._times_us)
            self.one_for_all(list(runs))

    def one_per_event(self, runs: Iterable[KeyRun]) -> None:
        """Call for each event at its own time, and before it for what is due; at last for what is due by the end."""
        group, events, times_us, function = self.group, self._events, self._times_us, self._function
        states, until_us, timers = self._states, self._until_us, self._fold.timers
        due_us_of, is_update = _due_us_of(self._fold), self._is_update
        known, put = states.known, states.put
        begin_key, begin_call = group.begin_key, self._begin_call
        keep, keep_at_us = self.emitted.rows.append, self.emitted.emitted_at_us.append
        for key, start, end in runs:
            self.key = key
            if is_update:
                self._changed, self._returned = False, None
            state, changed_at_us, timeout_at_us = known(key)
            begin_key(state, changed_at_us, timeout_at_us)
            if timers:
                group.begin_timers(states.extra_of(TIMERS, key))
            due_us = due_us_of(group)
            for position in range(start, end):
                time_us = times_us[position]
                if due_us < time_us:
                    self._call_what_is_due(time_us)
                begin_call(time_us)
                for output in function(key, iter((events[position],)), group):
                    keep(output)
                    keep_at_us(time_us)
                due_us = due_us_of(group)
            if due_us < until_us:
                self._call_what_is_due(until_us)
            put(key, group.getOption, group.clock_us, group.timeout_at_us)
            if timers:
                states.put_extra(TIMERS, key, group.stored_timers())
            if is_update and self._changed:
                self._emit_projection()

    def _call_what_is_due(self, before_us: int) -> None:
        """Call for all timeouts and timers before an instant, up to the end of the state."""
        group = self.group
        first_us = 0
        for number in count():
            call_us = group.due_us()
            end = end_us(self._fold.ttl_us, group.getOption, group.clock_us)
            if min(call_us, end) >= before_us:
                return
            if end < call_us:
                group.begin_key(None, end)
                group.begin_timers(None)
                self._changed, self._returned = True, None
                return
            if number % TIMEOUTS_IN_A_ROW == 0:
                if number:
                    refuse_timeout_loop(first_us, call_us)
                first_us = call_us
            timer = group.take_timer(call_us)
            self._begin_call(call_us, timer is None, timer)
            for output in self._function(self.key, iter(()), group):
                self.emitted.rows.append(output)
                self.emitted.emitted_at_us.append(call_us)

    def _keep_returned(
        self, key: Key, events: Iterator[Any], group: GroupState[Any]
    ) -> Sequence[Any]:
        returned = None
        for returned in self._fold.function(key, events, group):  # noqa: B007 (the last)
            pass
        if returned is not None:
            returned = checked_projection(self._fold, key, group.getOption, returned)
        self._changed, self._returned = True, returned
        return ()

    def _emit_projection(self) -> None:
        state = self.group.getOption
        row = project(self._fold, self.key, state) if self._returned is None else self._returned
        self.emitted.rows.append(row)
        self.emitted.emitted_at_us.append(self.group.clock_us)
        self.emitted.removed.append(state is None)

    def one_for_all(self, runs: list[KeyRun]) -> None:
        """Call once per key of an update stream without timeouts; all states and rows are checked at once."""
        states, returned = [], []
        function, group, events = self._fold.function, self.group, self._events
        state_of = self._states.get
        record: Any = self._fold.state
        is_read_out = isinstance(function, ExactlyOne)  # before it returns, it has yielded nothing
        for key, start, end in runs:
            self.key = key
            own = iter(events[start:end])
            group.begin_events(state_of(key), own, start, end)
            if is_read_out:
                (row,) = function(key, own, group)
            else:
                row = self._last_row(function(key, self._between_rows(own), group))
            state = group.getOption
            if state is not None and type(state) is not record:
                state = record_of(record, state)
            states.append(state)
            returned.append(row)
        self._put_all(runs, states)
        self._emit_all(runs, states, returned)

    def _last_row(self, rows: Iterable[Any]) -> Any:
        self._returned = None
        for self._returned in rows:
            pass
        return self._returned

    def _between_rows(self, events: Iterator[Any]) -> Iterator[Any]:
        """Yield the events, and check each row that is yielded between two: the cut must not show."""
        for event in events:
            if self._returned is not None:
                checked_projection(self._fold, self.key, self.group.getOption, self._returned)
                self._returned = None
            yield event

    def _put_all(self, runs: list[KeyRun], states: list[Any]) -> None:
        keys = [run.key for run in runs]
        changed_at_us = [self._times_us[run.end - 1] for run in runs]
        if self._states.put_all(keys, states, changed_at_us):
            return
        for run, state, at_us in zip(runs, states, changed_at_us, strict=True):
            self._return_to(run)
            self._states.put(run.key, state, at_us)

    def _emit_all(self, runs: list[KeyRun], states: list[Any], returned: list[Any]) -> None:
        rows: list[Any] = []
        is_right = False
        with suppress(Exception):  # the same below says of which key it is
            after = zip(runs, states, strict=True)
            rows = [project(self._fold, run.key, state) for run, state in after]
            is_right = rows == returned
        if not is_right:
            rows = []
            for run, state, row in zip(runs, states, returned, strict=True):
                self._return_to(run)
                rows.append(checked_projection(self._fold, run.key, state, row))
        self.emitted.rows.extend(rows)
        self.emitted.emitted_at_us.extend(self._times_us[run.end - 1] for run in runs)
        self.emitted.removed.extend(state is None for state in states)

    def _return_to(self, run: KeyRun) -> None:
        self.key = run.key
        self.group.begin_events(None, iter(()), run.start, run.end)


def _due_us_of(fold: KeyedFold) -> Callable[[GroupState[Any]], int]:
    ttl_us, timers = fold.ttl_us, fold.timers
    if ttl_us is None:
        return GroupState.due_us if timers else attrgetter("timeout_at_us")

    def due_us(group: GroupState[Any]) -> int:
        call_us = group.due_us() if timers else group.timeout_at_us
        return min(call_us, end_us(ttl_us, group.getOption, group.clock_us))

    return due_us


class CheckedCalls(Calls):
    """Calls of which one that fails is a dead letter: recorded, and as if never made, but a timeout has fired.

    The cut must not show: so after each call all is checked that else is at the end of a pass.
    """

    def __init__(self, fold: KeyedFold, *given: Any) -> None:
        super().__init__(fold, *given)
        self._dead_letters: list[DeadLetter] = []
        self.emitted = self.emitted._replace(dead_letters=self._dead_letters)
        self._begin_call, self._function = self._begin_undoable, self._checked
        self._before: tuple[Any, int, int] = (None, 0, NEVER_US)
        self._timers: Any = None
        self._number, self._dead_letters_last = 0, (None, 0)

    def _begin_undoable(
        self, at_us: int, timed_out: bool = False, timer: str | None = None
    ) -> None:
        group = self.group
        timeout_us = NEVER_US if timed_out else group.timeout_at_us
        self._before = group.getOption, group.clock_us, timeout_us
        self._timers = group.stored_timers()
        group.begin_call(at_us, timed_out, timer)

    def _checked(self, key: Key, events: Iterator[Any], group: GroupState[Any]) -> Sequence[Any]:
        given = tuple(events)
        try:
            state, outputs = self._made_of(key, given, group)
        except NEVER_DEAD_LETTERS:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it is recorded)
            self._keep_dead_letter(group.clock_us, given, error)
            group.begin_key(*self._before)
            group.begin_timers(self._timers)
            return ()
        group.show(state)
        self._changed = True
        return outputs

    def _made_of(
        self, key: Key, events: tuple[Any, ...], group: GroupState[Any]
    ) -> tuple[Any, Sequence[Any]]:
        # To its end, before anything is looked at: what it yields last may be what it fails with.
        yielded = list(self._fold.function(key, iter(events), group))
        state = group.getOption
        if state is not None:
            state = self._fold.stored(state)
        if not self._is_update:
            return state, [checked_output(self._fold, row) for row in yielded]
        row = checked_projection(self._fold, key, state, yielded[-1] if yielded else None)
        self._returned = row if state is None else checked_output(self._fold, row)
        return state, ()

    def _keep_dead_letter(self, at_us: int, events: tuple[Any, ...], error: Exception) -> None:
        self._number = self._number + 1 if self._dead_letters_last == (self.key, at_us) else 0
        self._dead_letters_last = self.key, at_us
        event = events[0] if events else None
        self._dead_letters.append(describe(self.key, at_us, self._number, event, error))


def fold_runs(
    fold: KeyedFold,
    states: States,
    runs: Iterable[KeyRun],
    events: Sequence[Any],
    times_us: Sequence[int],
    until_us: int,
) -> Emitted:
    """Fold `events`, with their times, into `states`, and fire all timeouts before `until_us`."""
    duplicates = 0
    if fold.seen is not None:
        runs, events, times_us, duplicates = distinct(fold.seen, states, runs, events, times_us)
    calls = (CheckedCalls if fold.keeps_dead_letters else Calls)(
        fold, states, events, times_us, until_us
    )
    with localcontext(ARITHMETIC):
        try:
            calls.fold_all(runs)
            # Without events: of keys with some, the timeouts have fired already.
            calls.fold_all(KeyRun(key, 0, 0) for key in states.due(until_us))
        except Exception as error:
            raise failure(fold, calls.key, calls.group, error) from error
    states.forget_seen(until_us)
    return calls.emitted._replace(duplicates=duplicates) if duplicates else calls.emitted
