"""The calls of the state function for the keys of a bucket, in the order of the fold's clock.

The hot path of the project: it runs once for every event. Measure (`make bench`) before
and after each change.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from include.fold.admission import NEVER_US
from include.fold.definition import ExactlyOne, Key, KeyedFold
from include.fold.emitted import Emitted, KeyRun
from include.fold.event_order import distinct
from include.fold.failures import (
    TIMEOUTS_IN_A_ROW,
    TimeoutPace,
    arithmetic,
    failure,
    function_text,
    refuse_timeout_loop,
)
from include.fold.group_state import TIMERS, TickingGroupState, TimedGroupState
from include.fold.product_table import checked_projection, project
from include.fold.records import record_of
from include.fold.rejecting import RejectingCalls
from include.fold.states import States, end_us

Call = Callable[[Iterator[Any]], None]


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
        self._returned: Any = None  # update streams: the last row of the call, until it is checked

    def fold_all(self, runs: Iterable[KeyRun]) -> None:
        """The calls for all of these keys. In a stream without timeouts each key has events."""
        if not self._fold.calls_per_event and isinstance(self._fold.function, ExactlyOne):
            self.group = TickingGroupState(self._times_us)
            self.one_output_for_all(runs)
            return
        fold_run = self.one_per_event if self._fold.calls_per_event else self.one_for_all
        is_append = self._fold.output_mode == "append"
        if self._fold.times_out or (self._fold.calls_per_event and not is_append):
            fold_run = self.one_per_event_and_timeout
        if self._fold.ttl is not None:
            fold_run = self.one_per_event_timeout_and_end
        for run in runs:
            fold_run(run)

    def one_per_event(self, run: KeyRun) -> None:
        """An append stream without timeouts."""
        key, start, end = run
        self.key = key
        function, group, events = self._fold.function, self.group, self._events
        rows, emitted_at_us = self.emitted.rows, self.emitted.emitted_at_us
        state = self._states.get(key)
        for position in range(start, end):
            time_us = self._times_us[position]
            group.begin_call(state, time_us)
            for output in function(key, iter((events[position],)), group):
                rows.append(output)
                emitted_at_us.append(time_us)
            state = group.getOption
        self._states.put(key, state, self._times_us[end - 1])

    def one_for_all(self, run: KeyRun) -> None:
        """An update stream without timeouts: only the last row counts."""
        key, start, end = run
        self.key = key
        times_us = self._times_us[start:end]
        self.group.begin_call(self._states.get(key), times_us[0])
        self._keep_returned(self._ticking(self._events[start:end], times_us))
        self.group.clock_us = times_us[-1]
        self._states.put(key, self.group.getOption, times_us[-1])
        self._emit_projection()

    def one_output_for_all(self, runs: Iterable[KeyRun]) -> None:
        """The same of a function that returns one output: it yields no row before its last event.

        What the calls leave behind is looked at for all keys at once.
        """
        runs, states, returned = list(runs), [], []
        function, group, events = self._fold.function, self.group, self._events
        record: Any = self._fold.state
        for key, start, end in runs:
            self.key = key
            own = iter(events[start:end])
            group.begin_events(self._states.get(key), own, start, end)
            (row,) = function(key, own, group)
            state = group.getOption
            if state is not None and type(state) is not record:
                state = record_of(record, state)  # now: another call may change a list
            states.append(state)
            returned.append(row)
        self._put_all(runs, states)
        self._emit_all(runs, states, returned)

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
        """For the message, should the call of this key have left behind what is refused."""
        self.key = run.key
        self.group.begin_events(None, iter(()), run.start, run.end)

    def _ticking(self, events: Sequence[Any], times_us: Sequence[int]) -> Iterator[Any]:
        """The events, each at its own time, as if the function were called for each.

        Which events settle together must not show: neither in the clock, nor in which rows
        are refused.
        """
        group = self.group
        for event, time_us in zip(events, times_us, strict=True):
            if self._returned is not None:
                self._check_returned()
            group.clock_us = time_us
            yield event

    def one_per_event_and_timeout(self, run: KeyRun) -> None:
        """Any stream with timeouts, and update streams that are called for each event."""
        key, start, end = run
        self.key = key
        group, events, times_us = self.group, self._events, self._times_us
        is_update = self._fold.output_mode == "update"
        call = self._keep_returned if is_update else self._append_outputs
        group.begin_call(self._states.get(key), times_us[start] if end else 0)
        timeout_us = self._states.timeout_of(key)
        for position in range(start, end):
            time_us = times_us[position]
            if timeout_us < time_us:
                self._fire(timeout_us, time_us, call)
            group.begin_call(group.getOption, time_us)
            call(iter((events[position],)))
            timeout_us = group.timeout_at_us
        if timeout_us < self._until_us:
            timeout_us = self._fire(timeout_us, self._until_us, call)
        self._states.put(key, group.getOption, group.clock_us, timeout_us)
        if is_update:
            self._emit_projection()

    def one_per_event_timeout_and_end(self, run: KeyRun) -> None:
        """Any stream whose states end by themselves."""
        key, start, end = run
        self.key = key
        group, times_us = self.group, self._times_us
        is_update = self._fold.output_mode == "update"
        call = self._keep_returned if is_update else self._append_outputs
        group.begin_call(self._states.get(key), self._states.changed_at_of(key))
        timeout_us = self._states.timeout_of(key)
        for position in range(start, end):
            timeout_us = self._wake(timeout_us, times_us[position], call)
            group.begin_call(group.getOption, times_us[position])
            call(iter((self._events[position],)))
            timeout_us = group.timeout_at_us
        timeout_us = self._wake(timeout_us, self._until_us, call)
        self._states.put(key, group.getOption, group.clock_us, timeout_us)
        if is_update:
            self._emit_projection()

    def _wake(self, timeout_us: int, before_us: int, call: Call) -> int:
        """All timeouts, and the end of the state, before an instant; the timeout that is left.

        A timeout at the very end comes first: its call touches the state.
        """
        group, pace = self.group, TimeoutPace()
        while True:
            end = end_us(self._fold.ttl_us, group.getOption, group.clock_us)
            if timeout_us <= end:
                if timeout_us >= before_us:
                    return timeout_us
                group.begin_call(group.getOption, timeout_us, timed_out=True)
                call(iter(()))
                pace.fired(timeout_us, group.timeout_at_us)
                timeout_us = group.timeout_at_us
            elif end >= before_us:
                return timeout_us
            else:
                self._returned = None
                group.begin_call(None, end)
                timeout_us = NEVER_US

    def _fire(self, timeout_us: int, before_us: int, call: Call) -> int:
        """Fire the timeout, and those it sets in turn, before an instant; the one that is left."""
        while timeout_us < before_us:
            first_us = timeout_us
            for _ in range(TIMEOUTS_IN_A_ROW):
                self.group.begin_call(self.group.getOption, timeout_us, timed_out=True)
                call(iter(()))
                timeout_us = self.group.timeout_at_us
                if timeout_us >= before_us:
                    return timeout_us
            refuse_timeout_loop(first_us, timeout_us)
        return timeout_us

    def _append_outputs(self, events: Iterator[Any]) -> None:
        rows, emitted_at_us = self.emitted.rows, self.emitted.emitted_at_us
        time_us = self.group.clock_us
        for output in self._fold.function(self.key, events, self.group):
            rows.append(output)
            emitted_at_us.append(time_us)

    def _keep_returned(self, events: Iterator[Any]) -> None:
        if self._returned is not None:
            self._check_returned()
        for returned in self._fold.function(self.key, events, self.group):
            self._returned = returned

    def _check_returned(self) -> Any:
        """The projection of the state, which the row that a call yields last must be."""
        returned, self._returned = self._returned, None
        return checked_projection(self._fold, self.key, self.group.getOption, returned)

    def _emit_projection(self) -> None:
        """The row of an update stream's key after its last call."""
        self.emitted.rows.append(self._check_returned())
        self.emitted.emitted_at_us.append(self.group.clock_us)
        self.emitted.removed.append(self.group.getOption is None)


class TimerCalls(Calls):
    """Those of a fold that the first failed call stops."""

    def fold_all(self, runs: Iterable[KeyRun]) -> None:
        """The calls for all of these keys."""
        for run in runs:
            self.group.begin_key(self._states.beside(TIMERS, run.key))
            self.one_per_event_timeout_and_end(run)
            self._states.put_beside(TIMERS, run.key, self.group.stored_timers())

    def _wake(self, timeout_us: int, before_us: int, call: Call) -> int:
        group, pace = self.group, TimeoutPace()
        while True:
            end = end_us(self._fold.ttl_us, group.getOption, group.clock_us)
            call_us = min(timeout_us, group.first_timer_us)
            if min(call_us, end) >= before_us:
                return timeout_us
            if end < call_us:
                self._returned = None
                group.begin_key(None)
                group.begin_call(None, end)
                timeout_us = NEVER_US
                continue
            if call_us < timeout_us:
                group.fire_timer()
            group.begin_call(group.getOption, call_us, timed_out=True)
            call(iter(()))
            timeout_us = group.timeout_at_us
            pace.fired(call_us, min(timeout_us, group.first_timer_us))


class RejectingTimerCalls(RejectingCalls):
    """Those of a fold that rejects. A rejected call leaves the timers as they were; one that was
    made by a timer has fired it."""

    group: TimedGroupState[Any]

    def _fold_run(self, run: KeyRun) -> None:
        self.group.begin_key(self._states.beside(TIMERS, run.key))
        super()._fold_run(run)
        self._states.put_beside(TIMERS, run.key, self.group.stored_timers())

    def _fire(self, before_us: int) -> None:
        group, pace = self.group, TimeoutPace()
        while True:
            end = end_us(self._fold.ttl_us, self._state, self._touched_us)
            call_us = min(self._timeout_us, group.first_timer_us)
            if min(call_us, end) >= before_us:
                return
            if end < call_us:
                group.begin_key(None)
                self._end(end)
                continue
            if call_us < self._timeout_us:
                group.fire_timer()
            else:
                self._timeout_us = NEVER_US
            self._call(call_us, ())
            pace.fired(call_us, min(self._timeout_us, group.first_timer_us))

    def _call(self, clock_us: int, events: tuple[Any, ...]) -> None:
        before, rejected = self.group.stored_timers(), len(self._rejected)
        super()._call(clock_us, events)
        if len(self._rejected) > rejected:
            self.group.begin_key(before)


def fold_runs(
    fold: KeyedFold,
    states: States,
    runs: Iterable[KeyRun],
    events: Sequence[Any],
    times_us: Sequence[int],
    until_us: int,
) -> Emitted:
    """Fold `events` into `states`, fire all timeouts before `until_us`, return what that emits.

    `events` and `times_us` run side by side; within each run they are ordered by time, ties
    by the whole row, and all are before `until_us`. Raises StateFunctionError.
    """
    duplicates = 0
    if fold.seen is not None:
        runs, events, times_us, duplicates = distinct(fold.seen, states, runs, events, times_us)
    calls = _way(fold)(fold, states, events, times_us, until_us)
    with arithmetic(function_text(fold)):
        try:
            calls.fold_all(runs)
            # Without events: of keys with some, the timeouts have fired already.
            calls.fold_all(KeyRun(key, 0, 0) for key in states.due(until_us))
        except Exception as error:
            raise failure(fold, calls.key, calls.group, error) from error
    states.forget_seen(until_us)
    return calls.emitted._replace(duplicates=duplicates) if duplicates else calls.emitted


def _way(fold: KeyedFold) -> type[Calls] | type[RejectingCalls]:
    if fold.timers:
        return RejectingTimerCalls if fold.quarantines else TimerCalls
    return RejectingCalls if fold.quarantines else Calls
